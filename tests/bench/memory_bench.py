"""Measure for `python -m tests.bench memory` what is still known after many generations of a log.

Generated coding sessions (see `planted`) tell facts, some of which they replace or take back later. Each session runs
through the real engine; after each generation, and at the end, every fact told so far is asked for: in what the model
would see, then in what the search finds. For comparison, plain summarising at the same budget, and no memory, are
asked after the same turns as the scripted Observer.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from sakti.core.clock import SystemClock
from sakti.core.config import MemorySettings, ModelSettings, ObservationSettings, ReflectionSettings
from sakti.core.resources import fill_prompt
from sakti.core.tokens import Counter, count_parts, sum_message_tokens
from sakti.core.types import Json, Message, Part, Role, TextPart, Thread, ToolCallPart, ToolResultPart, join_plain_text
from sakti.memory.engine import MemoryEngine
from sakti.memory.log import dates
from sakti.memory.model_call import MemoryModel
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.observe.model import ModelObserver
from sakti.memory.protocol import ObserveInput, Observer, ObserveResult, ReflectInput, Reflector, ReflectResult
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.memory.reflect.model import ModelReflector
from sakti.memory.state import MemoryOptions, MemoryServices
from sakti.providers.protocol import Provider
from sakti.store.database import Store
from sakti.store.log.replacements import remove_marks
from sakti.store.search import search
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads
from tests.bench.bench_store import BenchClock
from tests.bench.planted import CATEGORIES, Fact, Session, generate

WORKSPACE = "/bench"
SESSIONS = 20
WINDOW, LOG = (
    1_500,
    700,
)  # tokens at which memory moves: of messages, and of the log (280 of them stand round its lines)
HITS = 5
MAX_OUTPUT_TOKENS = 4_000
OUTCOMES = ("log", "search", "lost", "wrong", "contradicted")


# --- who observes ---------------------------------------------------------------------------------------


class HonestObserver:
    """Observer that writes each planted sentence verbatim, and one short line for each result of a tool."""

    name = "scripted"

    def __init__(self, session: Session) -> None:
        self._said = [said.text for fact in session.facts for said in fact.said]

    async def observe(self, request: ObserveInput) -> ObserveResult:
        out: list[str] = []
        day = ""
        for message in request.messages:
            if (today := dates.format_day(message.created_at, request.timezone)) != day:
                day = today
                out.append(f"Date: {day}")
            time = dates.format_clock(message.created_at, request.timezone)
            out += [f"* 🔴 ({time}) {text}" for text in self._said if text in message.text]
            out += [f"* 🟢 ({time}) Agent used {c.name}" for c in message.tool_calls]
        return ObserveResult("\n".join(out), model=self.name)


class HonestReflector:
    """Reflector that drops replaced and short lines; statements stay word for word."""

    name = "scripted"

    def __init__(self, session: Session) -> None:
        self._replaced = {fact.said[0].text: fact.said[-1].text for fact in session.facts if len(fact.said) > 1}

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        text = "\n".join(t for _, t in request.groups)
        kept = [line for line in text.split("\n") if line.startswith("Date:") or self._stays(line, text)]
        return ReflectResult("\n".join(kept), model=self.name)

    def _stays(self, line: str, text: str) -> bool:
        old = next((new for said, new in self._replaced.items() if remove_marks(line).endswith(said)), None)
        return "🟢" not in line and (old is None or old not in text)


# --- asking ---------------------------------------------------------------------------------------------


class Tally(Struct):
    """Results of one kind of memory; `whole` and `kept` are the tokens of its input and of its log."""

    name: str
    categories: dict[str, dict[str, int]] = field(
        default_factory=lambda: {c: dict.fromkeys(OUTCOMES, 0) for c in CATEGORIES}
    )
    whole: int = 0
    kept: int = 0
    valid: int = 0
    mistaken: int = 0

    def judge_marks(self, fact: Fact, log: str) -> None:
        """Count whether a fact that still holds is marked as replaced."""
        mistaken = fact.mistaken(log)
        self.valid += mistaken is not None
        self.mistaken += mistaken is True

    def as_json(self) -> Json:
        """Return the results as JSON.

        `retention`: share of the questions that the visible text answers; `compression`: tokens per token of the log
        (0 without one); `contradicted`: share of the answered replaced facts whose old value stands unmarked beside
        the new one; `wrongly_marked`: share of the facts in the log that still hold and are marked as replaced.
        """
        asked = sum(sum(c.values()) for c in self.categories.values())
        seen = sum(c["log"] for c in self.categories.values())
        replaced = [self.categories[c] for c in ("updated", "retracted")]
        stale = sum(c["contradicted"] for c in replaced)
        answered = stale + sum(c["log"] for c in replaced)
        return {
            "name": self.name,
            "retention": seen / asked if asked else 0.0,
            "compression": self.whole / self.kept if self.kept else 0.0,
            "contradicted": stale / answered if answered else 0.0,
            "wrongly_marked": self.mistaken / self.valid if self.valid else 0.0,
            "categories": self.categories,
        }


class Memory(Protocol):
    """Kind of memory, for one session."""

    async def add(self, role: Role, *parts: Part) -> None:
        """Add a message."""
        ...

    async def turn_ends(self, last: bool) -> bool:
        """Return whether to ask now: memory was condensed, or this was the last turn."""
        ...

    def sees(self) -> str:
        """Return what the model would see."""
        ...

    def log(self) -> str:
        """Return the part of that which stands for messages the model no longer sees."""
        ...

    async def search(self, question: str) -> str:
        """Return what a search for the question finds."""
        ...


async def ask(session: Session, memory: Memory, tally: Tally, at: Collection[int] | None = None) -> list[int]:
    """Play a session into a memory and ask for the facts told so far; return the turns after which it was asked.

    It is asked whenever it says so, or after the turns `at`.
    """
    asked: list[int] = []
    for number in range(len(session.turns)):
        now = await play_turn(session, number, memory)
        if not (now if at is None else number in at):
            continue
        asked.append(number)
        seen, log = memory.sees(), memory.log()
        for fact in session.facts:
            if fact.said[-1].turn <= number:
                tally.judge_marks(fact, log)
                tally.categories[fact.category][await outcome(fact, seen, memory)] += 1
    return asked


async def play_turn(session: Session, number: int, memory: Memory) -> bool:
    """Play a turn into a memory; return whether to ask now."""
    turn = session.turns[number]
    await memory.add("user", TextPart(turn.user))
    await memory.add("assistant", ToolCallPart(f"c{number}", turn.tool, turn.arguments))
    await memory.add("tool", ToolResultPart(f"c{number}", turn.tool, turn.output))
    await memory.add("assistant", TextPart(turn.answer))
    return await memory.turn_ends(number == len(session.turns) - 1)


async def outcome(fact: Fact, seen: str, memory: Memory) -> str:
    """Judge one question.

    log: the visible text holds the answer; contradicted: the log also holds the former value as if it were true;
    wrong: it holds only the former value; search: a search for the question finds the answer; lost: nothing does.
    """
    if fact.answered(seen):
        return "contradicted" if fact.contradicted(memory.log()) else "log"
    if fact.misled(seen):
        return "wrong"
    return "search" if fact.answered(await memory.search(fact.question)) else "lost"


# --- ways to remember -----------------------------------------------------------------------------------


class Observed:
    """Memory under test: the real engine, on a database of its own."""

    def __init__(
        self,
        store: Store,
        clock: BenchClock,
        counter: Counter,
        observer: Observer,
        reflector: Reflector,
        limits: tuple[int, int] = (WINDOW, LOG),
    ) -> None:
        """Set up the engine; `limits`: the thresholds of messages and of the log, in tokens."""
        self._store, self._clock, self._counter = store, clock, counter
        self._step, self._asked = 0, 0
        self.engine = MemoryEngine(
            MemoryServices(store, counter, lambda _event: None),
            MemoryOptions(
                settings=MemorySettings(
                    observation=ObservationSettings(message_tokens=limits[0]),
                    reflection=ReflectionSettings(observation_tokens=limits[1]),
                ),
                timezone="UTC",
            ),
            observer,
            reflector,
        )

    async def open(self) -> None:
        """Open the session's thread."""
        now = self._clock.now()
        await self.engine.open(await self._store.write(threads.create, Thread("t", WORKSPACE, "", now, now)))

    async def add(self, role: Role, *parts: Part) -> None:
        if role == "assistant":
            if self._step == 0:
                await self.engine.begin_turn(provider="bench", model="bench")
            self._step += 1
            await self.engine.prepare(step=self._step)
        self._clock.advance(20_000)
        message = said(self._store.ids.new(), self._clock.now(), role, parts, self._counter)
        self.engine.add(await self._store.write(message_store.append, message))

    async def turn_ends(self, last: bool) -> bool:
        await self.engine.end_turn()
        await self.engine.wait_idle()
        self._step = 0
        generations = self.engine.state.window.record.generation_count
        grown, self._asked = generations > self._asked, generations
        return grown or last

    def sees(self) -> str:
        shown = self.engine.preview()
        return "\n".join([*(b.text for b in shown.blocks), *(join_plain_text(m.parts) for m in shown.messages)])

    def log(self) -> str:
        return "\n".join(b.text for b in self.engine.preview().blocks)

    async def search(self, question: str) -> str:
        page = await self._store.read(search.search, question, search.Scope(WORKSPACE, "t"), limit=HITS)
        return "\n".join(hit.text for hit in page.hits)


class Plain:
    """Baseline without memory: the newest messages that fit."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.messages: list[Message] = []
        self.summary = ""

    async def add(self, role: Role, *parts: Part) -> None:
        self.messages.append(said(f"m{len(self.messages)}", 0, role, parts, self.counter))

    async def turn_ends(self, last: bool) -> bool:
        moved = False
        while len(self.messages) > 4 and sum(m.tokens for m in self.messages) > WINDOW:
            del self.messages[0]
            moved = True
        return moved or last

    def sees(self) -> str:
        return "\n".join([self.summary, *(join_plain_text(m.parts) for m in self.messages)])

    def log(self) -> str:
        return self.summary

    async def search(self, question: str) -> str:
        return ""


class Summarised(Plain):
    """Baseline that summarizes the conversation whenever the window is full.

    By a model, else by the first sentence of each message, thinned out evenly to the budget of a log.
    """

    def __init__(self, counter: Counter, memory_model: MemoryModel | None = None) -> None:
        super().__init__(counter)
        self._asker = memory_model
        self.whole = 0

    async def turn_ends(self, last: bool) -> bool:
        if sum(m.tokens for m in self.messages) <= WINDOW:
            return last
        old, self.messages = self.messages[:-4], self.messages[-4:]
        self.whole += sum(m.tokens for m in old)
        self.summary = await self._write(old)
        return True

    async def _write(self, old: Sequence[Message]) -> str:
        if self._asker is not None:
            text = "\n\n".join([self.summary, *(f"{m.role}: {join_plain_text(m.parts)}" for m in old)])
            answer, _ = await self._asker.ask(fill_prompt("memory#summary", tokens=str(LOG)), text)
            return answer
        firsts = [join_plain_text(m.parts).split(". ")[0].split("\n")[0][:160] for m in old if m.role != "tool"]
        lines = [*self.summary.split("\n"), *firsts]
        while self.counter.count("\n".join(lines)) > LOG:
            lines = lines[::2]
        return "\n".join(lines)


def said(id: str, time: int, role: Role, parts: tuple[Part, ...], counter: Counter) -> Message:
    """Make a message of the session, with its tokens."""
    counted = count_parts(counter, parts)
    return Message(
        id, "t", WORKSPACE, role, parts, time, tokens=sum_message_tokens(counted), part_tokens=counted,
        token_counter=counter.name,
    )  # fmt: skip


# --- the whole of it ------------------------------------------------------------------------------------


async def run(seeds: Iterable[int], counter: Counter, model: tuple[Provider, str] | None = None) -> list[Json]:
    """Return one row for each kind of memory.

    `model`: a provider and a model's name, to observe, reflect and summarize as well.
    """
    memory_model = None
    if model is not None:
        memory_model = MemoryModel(*model, counter, SystemClock(), settings=ModelSettings(0.0, MAX_OUTPUT_TOKENS))
    names = ["scripted", "extractive", *([memory_model.full_name] if memory_model else []), "summary", "none"]
    tallies = {name: Tally(name) for name in names}
    for seed in seeds:
        session = generate(seed)
        at = await _observed(session, counter, tallies["scripted"], HonestObserver(session), HonestReflector(session))
        await _observed(
            session, counter, tallies["extractive"], ExtractiveObserver(counter), ExtractiveReflector(counter)
        )
        if memory_model is not None:
            observer = ModelObserver(memory_model, previous_tokens=2_000)
            await _observed(session, counter, tallies[memory_model.full_name], observer, ModelReflector(memory_model))
        summarized = Summarised(counter, memory_model)
        await ask(session, summarized, tallies["summary"], at)
        tallies["summary"].whole += summarized.whole
        tallies["summary"].kept += counter.count(summarized.summary)
        await ask(session, Plain(counter), tallies["none"], at)
    return [tally.as_json() for tally in tallies.values()]


async def _observed(
    session: Session, counter: Counter, tally: Tally, observer: Observer, reflector: Reflector
) -> list[int]:
    async with open_observed(counter, observer, reflector) as memory:
        asked = await ask(session, memory, tally)
        tally.whole += memory.engine.state.window.record.total_tokens_observed
        tally.kept += memory.engine.state.observation_tokens
    return asked


@contextlib.asynccontextmanager
async def open_observed(counter: Counter, observer: Observer, reflector: Reflector) -> AsyncGenerator[Observed]:
    """Open the memory under test on a new database."""
    clock = BenchClock()
    with tempfile.TemporaryDirectory(prefix="sakti-memory-") as folder:
        store = await Store.open(Path(folder) / "memory.db", clock=clock, synchronous="NORMAL")
        memory = Observed(store, clock, counter, observer, reflector)
        try:
            await memory.open()
            yield memory
        finally:
            await memory.engine.close()
            await store.close()
