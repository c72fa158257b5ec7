"""Plays a conversation against the real engine on a real database, and checks at every step what must hold.

The clock is moved by the conversation, the models of memory are scripted (`scripted`), a crash is a failpoint
behind which nothing is written any more, and a new start on the same file.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sakti.bench import history, invariants
from sakti.bench.bench_store import BenchClock, BenchStore, Killed, TimedCounter
from sakti.bench.invariants import Finding, Log, Violation
from sakti.bench.prompt_cache import PromptCache
from sakti.bench.script import Script, Step, Turn
from sakti.bench.scripted import Gate, ScriptedObserver, ScriptedReflector
from sakti.core.errors import StoreError
from sakti.core.events import Event, MemoryActivation, MemoryStatus, Notice
from sakti.core.resources import read_prompt
from sakti.core.tokens import O200k, count_parts, message_tokens
from sakti.core.types import (
    Block,
    Message,
    Part,
    Request,
    Role,
    TextPart,
    Thread,
    ToolCallPart,
    ToolResultPart,
    plain_text,
)
from sakti.memory import policy
from sakti.memory.engine import MemoryEngine, Prepared
from sakti.memory.state import MemoryState, Phase
from sakti.memory.window import sync_cut
from sakti.providers.scripted import ScriptedProvider
from sakti.store import memory as memory_store
from sakti.store import memory_log, search, threads
from sakti.store import messages as message_store
from sakti.store.connection import Database
from sakti.store.memory import GroupState

T = TypeVar("T")
WORKSPACE = "/bench"
MODEL = "claude-sonnet-4-5"
STATES: tuple[GroupState, ...] = ("buffered", "active", "superseded", "discarded")
NO_PROCESS = 4_999_999  # above the largest process id there is: who held a lease before a crash is gone
TURNS_OF = 20  # passes of the loop without any work of the database after which what is not done waits for a model
SHOWN = 100  # violations of one run that are listed
UNDONE = ("compact", "uncompact", "reflect", "unreflect", "edit")  # failpoints of what is done and taken back
SEARCHED = 25  # messages of one run that are looked for by search


@dataclass(slots=True)
class Run:
    """The figures of one conversation. `cpu`: milliseconds of thread time of each step, from when memory is asked
    for the request until it gives it, with what the database threads do meanwhile; without counting."""

    name: str
    seed: int | None
    turns: int = 0
    steps: int = 0
    conversation_tokens: int = 0
    observer_calls: int = 0
    observer_input_tokens: int = 0
    cached_share: float = 0.0
    activations: int = 0
    generations: int = 0
    blocked_steps: int = 0
    max_request_tokens: int = 0
    cpu: list[float] = field(default_factory=list[float])
    violations: list[Violation] = field(default_factory=list[Violation])
    kills: int = 0

    def as_json(self) -> dict[str, Any]:
        out = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("cpu", "kills")}
        ratio = self.observer_input_tokens / self.conversation_tokens if self.conversation_tokens else 0.0
        out["observer_input_ratio"] = round(ratio, 3)
        out["cached_share"] = round(self.cached_share, 4)
        out["step_cpu_ms"] = percentiles(self.cpu)
        out["violations"] = [dataclasses.asdict(v) for v in self.violations]
        return out


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and max of some milliseconds."""
    ordered = sorted(values) or [0.0]
    at = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.95)]
    return {"p50": round(at[0], 3), "p95": round(at[1], 3), "max": round(ordered[-1], 3)}


async def replay(script: Script, counter: O200k, *, kill_at: str = "", history_messages: int = 0) -> Run:
    """Play one conversation. `kill_at` names a failpoint at which the process dies, more than once."""
    asyncio.get_running_loop().set_exception_handler(_quiet_about_kills)
    with tempfile.TemporaryDirectory(prefix="sakti-replay-") as folder:
        player = _Player(script, counter, Path(folder) / "replay.db", kill_at)
        await player.start(history_messages)
        try:
            for number, turn in enumerate(script.turns):
                await player.turn(number, turn)
            await player.finish()
        finally:
            await player.close()
        return player.run


def _quiet_about_kills(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


class _Player:
    def __init__(self, script: Script, counter: O200k, path: Path, kill_at: str) -> None:
        self.script, self.path, self.kill_at = script, path, kill_at
        self.run = Run(script.name, script.seed)
        self.clock = BenchClock()
        self.plain = counter
        self.counter = TimedCounter(counter)
        self.gate = Gate(script.delay)
        seed = script.seed or 0
        self.observer = ScriptedObserver(
            self.gate,
            counter,
            self.clock,
            ScriptedProvider(),
            previous_tokens=script.settings.observation.previous_observer_tokens,
            fail_rate=script.fail_rate,
            seed=seed,
        )
        self.reflector = ScriptedReflector(
            self.gate, incompressible=script.incompressible, fail_rate=script.fail_rate, seed=seed + 1
        )
        self.cache = PromptCache(counter)
        self.events: list[Event] = []
        self.said: dict[str, list[Message]] = {}
        self.prompts: set[str] = set()
        self.log = Log()
        self.looked = -1
        self.covered: tuple[int, set[int]] = (-1, set())
        self.last_status: MemoryStatus | None = None
        self.place = (0, 0)
        self.hits = 0
        self.undoing = False
        self.calls = itertools.count()
        self.owners = itertools.count()
        system = read_prompt("system")
        self.system = Block("system", system, edge=True, tokens=counter.count(system))
        self.forbidden = {
            "the reminder": read_prompt("memory-reminder")[:200],
            "the context's instructions": read_prompt("memory-context")[:200],
        }
        self.store: BenchStore
        self.engine: MemoryEngine
        self.thread: Thread

    # --- start and end ------------------------------------------------------------------------------------

    async def start(self, history_messages: int) -> None:
        await self._open_store()
        await self._open_thread("main")
        if history_messages:
            await self.engine.close()
            flow = self.engine.state
            await history.add(self.store, self.plain, self.thread, flow.window.record, history_messages)
            await self._open_thread("main")

    async def _open_store(self) -> None:
        store = await BenchStore.open(self.path, clock=self.clock, synchronous="NORMAL")
        assert isinstance(store, BenchStore)
        self.store = store
        self.looked, self.covered = -1, (-1, set[int]())

    async def _open_thread(self, name: str) -> None:
        found = await self.store.read(threads.get, name)
        if found is None:
            now = self.clock.now()
            found = await self.store.write(threads.create, Thread(name, WORKSPACE, "", now, now))
        self.thread = found
        self.said.setdefault(name, [])
        self.engine = MemoryEngine(
            store=self.store,
            settings=self.script.settings,
            mode="default",
            counter=self.counter,
            clock=self.clock,
            ids=self.store.ids,
            observer=self.observer,
            reflector=self.reflector,
            emit=self.events.append,
            owner=f"{socket.gethostname()}:{NO_PROCESS}:{next(self.owners)}",
            timezone="UTC",
            failpoint=self._failpoint,
        )
        await self.engine.open(found)

    def _failpoint(self, name: str) -> None:
        if name != self.kill_at:
            return
        self.hits += 1
        if self.hits % 3 == 1:
            self.store.die()
            raise Killed(name)

    async def _restart(self, *, crashed: bool = False) -> None:
        """End this process, with or without a warning, and begin again on the same file."""
        # catching up ends lower than it begins: one that went on before need not go on after a new start
        at_rest = not (self.engine.tasks() or self.engine.state.room() is not None)
        before = self.engine.preview() if at_rest and not crashed else None
        if crashed:
            self.run.kills += 1
            self.store.die()
            self.observer.answered.clear()
        for task in self.engine.tasks():
            task.cancel()
        await self._settled(self.engine.close())
        await self.store.close()
        self.last_status = None
        await self._open_store()
        await self._open_thread(self.thread.id)
        if before is not None and self.engine.state.room() is None and self.script.budget is None:
            self._compare(9, "after a restart", before, self.engine.preview())
        await self._look()

    async def close(self) -> None:
        await self.engine.close()
        await self.store.close()

    # --- turns --------------------------------------------------------------------------------------------

    async def turn(self, number: int, turn: Turn) -> None:
        if turn.restart:
            await self._restart()
            return
        self.place = (number, 0)
        self.run.turns += 1
        self.clock.advance(turn.gap_ms)
        name = turn.thread or "main"
        if name != self.thread.id:
            await self._settled(self.engine.close())
            self.last_status = None
            await self._open_thread(name)
        self.prompts = {(await self._say("user", TextPart(turn.user or "."))).id}
        steps = turn.steps or (Step("."),)
        for index, step in enumerate(steps):
            self.place = (number, index)
            await self._step(turn, index)
            await self._answer(step)
        await self._measured(self.engine.end_turn())
        every = self.script.undo_every or (5 if self.kill_at.startswith(UNDONE) else 0)
        if every and number % every == every - 1:
            await self._undo_round()

    async def _step(self, turn: Turn, index: int) -> None:
        provider, _, model = (turn.model or "scripted/demo").partition("/")
        self.run.steps += 1
        while True:
            started, first_event = self._cpu(), len(self.events)

            async def work() -> Prepared:
                if index == 0:
                    await self.engine.begin_turn(provider=provider, model=model)
                return await self.engine.prepare(step=index + 1, budget=self.script.budget)

            prepared = await self._settled(work(), watch=True)
            if prepared is None:
                await self._restart(crashed=True)
                continue
            flow = self.engine.state
            numbers = flow.numbers()
            may_observe = _may_observe(flow, numbers)
            self.run.cpu.append((self._cpu() - started) * 1000)
            self.gate.call_made()
            await self._quiet()
            break
        self._account(prepared)
        if not self.store.dead:  # what a dead engine would do next nobody sees
            self._find(invariants.after_step(prepared.status, numbers, may_observe=may_observe))
        self._find(invariants.projections(self.events[first_event:], self.last_status))
        statuses = [e for e in self.events if isinstance(e, MemoryStatus)]
        self.last_status = statuses[-1] if statuses else self.last_status
        self.run.activations += sum(
            isinstance(e, MemoryActivation) and e.operation_type == "observation" for e in self.events
        )
        self.events.clear()
        await self._check_request(prepared, flow)
        if self.store.dead:
            await self._restart(crashed=True)

    async def _answer(self, step: Step) -> None:
        text: tuple[Part, ...] = (TextPart(step.text),) if step.text else ()
        if not step.tool:
            await self._say("assistant", *(text or (TextPart("."),)))
            return
        call_id = f"call{next(self.calls)}"
        await self._say("assistant", *text, ToolCallPart(call_id, step.tool, step.args))
        await self._say("tool", ToolResultPart(call_id, step.tool, step.result))

    async def _say(self, role: Role, *parts: Part) -> Message:
        counted = count_parts(self.plain, parts)
        self.clock.advance(10)
        message = Message(
            self.store.ids.new(),
            self.thread.id,
            WORKSPACE,
            role,
            parts,
            self.clock.now(),
            tokens=message_tokens(counted),
            part_tokens=counted,
            token_counter=self.plain.name,
        )
        if self.store.dead:
            await self._restart(crashed=True)
        try:
            saved = await self.store.write(message_store.append, message)
        except StoreError:
            if not self.store.dead:
                raise
            await self._restart(crashed=True)
            saved = await self.store.write(message_store.append, message)
        self.said[self.thread.id].append(saved)
        self.run.conversation_tokens += saved.tokens
        self.engine.add(saved)
        return saved

    async def finish(self) -> None:
        """What can only be said of the whole: everything was seen, everything is found."""
        self.gate.release()
        self.place = (len(self.script.turns), 0)
        await self._undo_round()
        await self._check_texts()
        self.run.observer_calls = self.observer.calls
        self.run.observer_input_tokens = self.observer.input_tokens
        self.run.cached_share = self.cache.share
        self.run.generations = self.engine.state.window.record.generation_count

    # --- waiting ------------------------------------------------------------------------------------------

    async def _settled(self, work: Coroutine[Any, Any, T], *, watch: bool = False) -> T | None:
        """Run `work` to its end; where it waits for a model, the model may answer. None: it was killed.
        `watch`: a step that waits is counted, and whether it may is checked."""
        flow = self.engine.state
        reflecting = flow.reflection_phase in ("running", "ready")
        task = asyncio.ensure_future(work)
        waited, idle = False, 0
        while await self._stands_still(task):
            if not self.gate.waiting:
                idle += 1
                if idle > 200:
                    task.cancel()
                    self._find([(6, "a step waits for nothing")])
                    break
                continue
            if watch and not waited and not self.store.dead:
                waited = True
                self.run.blocked_steps += 1
                self._find(
                    invariants.waiting(
                        flow.numbers(),
                        flow.window.pending,
                        flow.observation_tokens(),
                        ready=bool(flow.window.ready()),
                        running=flow.phase == "buffering",
                        reflecting=reflecting,
                    )
                )
            self.gate.release()
        try:
            return await task
        except Killed:
            return None
        except Exception:
            if self.store.dead:
                return None
            raise

    async def _quiet(self) -> None:
        """Until background work is done, or waits for a model that has not answered yet."""
        while tasks := self.engine.tasks():
            if await self._stands_still(tasks[0]):
                return

    async def _stands_still(self, task: asyncio.Future[Any]) -> bool:
        """True once nothing moves any more and `task` is not done: the database has answered everything, and what
        waited for an answer has had more passes of the loop than it needs to go on. However long the database takes,
        the passes are counted from its last answer: an answer that was given but not taken yet is no standstill."""
        passes = 0
        while not task.done() and passes < TURNS_OF:
            await asyncio.sleep(0)
            passes += 1
            if self.store.running:
                await asyncio.wait({task, *self.store.running}, return_when=asyncio.FIRST_COMPLETED)
                passes = 0
        return not task.done()

    async def _measured(self, work: Coroutine[Any, Any, None]) -> None:
        await self._settled(work)
        await self._quiet()
        if self.store.dead:
            await self._restart(crashed=True)

    def _cpu(self) -> float:
        """Seconds of thread time of the engine: all but models and counting."""
        others = self.observer.cpu + self.reflector.cpu + self.counter.cpu
        return time.thread_time() + self.store.cpu - others

    # --- checks -------------------------------------------------------------------------------------------

    def _find(self, findings: Iterable[Finding]) -> None:
        for number, message in findings:
            if len(self.run.violations) < SHOWN:
                self.run.violations.append(Violation(number, *self.place, message))

    def _account(self, prepared: Prepared) -> None:
        tail = "\n\n".join([f"Now: {self.clock.now()}", *prepared.tail])
        request = Request(MODEL, (self.system, *prepared.blocks), prepared.messages, tail=tail)
        self.cache.add(request)
        tokens = sum(b.tokens for b in request.system) + sum(m.tokens for m in request.messages)
        self.run.max_request_tokens = max(self.run.max_request_tokens, tokens)

    async def _check_request(self, prepared: Prepared, flow: MemoryState) -> None:
        before = self.engine.state.window.cursor
        await self._look()
        log = self.sent_log(prepared)
        blocks = sum(b.tokens for b in prepared.blocks)
        pending = prepared.status.messages.tokens
        room = self.script.budget
        prompts = sum(m.tokens for m in self.said[self.thread.id][-200:] if m.id in self.prompts)
        limited = flow.room() is not None or (room is not None and blocks + pending + prompts + 400 > room)
        self._find(invariants.request(prepared, self.said[self.thread.id], self.prompts, log, limited=limited))
        sent = [m for m in prepared.messages if "synthetic" not in m.metadata]
        last = sum(m.tokens for m in sent[-3:]) + sum(m.tokens for m in sent if m.id in self.prompts) + 300
        self._find(invariants.size(prepared, room, last))
        self._find(invariants.foreign(self.observer.asked, self.observer.prompts, self.forbidden))
        if not self.engine.tasks() and not self.store.dead:
            self._find(invariants.finished(self.observer.answered, self.log))
            self.observer.answered.clear()
        self.observer.asked.clear()
        self.observer.prompts.clear()
        if flow.window.cursor < before:
            self._find([(3, "the window's cursor went back")])

    def sent_log(self, prepared: Prepared) -> set[int]:
        """Indexes of the messages that the log of this request stands for."""
        if self.covered[0] != self.looked:
            self.covered = self.looked, self.log.covered(self.thread.id)
        return self.covered[1]

    async def _look(self) -> None:
        """Compare the database with how it was when we last looked, if anything was written since."""
        if self.looked == self.store.writes:
            return
        now = await self.store.read(self._read_log)
        self._find(invariants.log_moves(self.log, now, undone=self.undoing))
        self.undoing = False
        pinned = [g for g in now.groups.values() if g.kind == "reflection" and g.id not in self.log.groups]
        for group in pinned:
            lines = await self.store.read(memory_store.pinned_lines, group.merged_group_ids)
            self._find(
                (8, f"a pinned line is not in the reflection: {line}")
                for line in lines
                if line.lstrip("* ") not in group.text
            )
        self.log, self.looked = now, self.store.writes

    def _read_log(self, db: Database) -> Log:
        record = self.engine.record_id
        groups = [g for state in STATES for g in memory_store.groups(db, record, state)]
        cursors = {**self.log.cursors, self.thread.id: memory_store.cursor(db, record, self.thread.id)}
        return Log({**self.log.groups, **{g.id: g for g in groups}}, cursors)

    async def _undo_round(self) -> None:
        """11: a compaction, a reflection and an edit that are taken back leave no trace in log and window."""
        self.gate.release()
        await self._settled(self.engine.wait_idle())
        for round in (self._undo_compaction, self._undo_reflection, self._undo_edit):
            if not await round() or self.store.dead:
                await self._restart(crashed=True)
        self.events.clear()
        self.observer.answered.clear()
        self.last_status = None

    async def _undo_compaction(self) -> bool:
        await self._look()
        before = self.engine.preview()
        done = await self._settled(self.engine.compact())
        if done is None:
            return False
        if not done.messages or self.store.dead:
            return True
        await self._look()
        self.undoing = True
        undone = await self._settled(_some(self.engine.undo_compaction))
        if undone is None:
            return False
        await self._look()
        if not undone[0]:
            notices = [e.message for e in self.events if isinstance(e, Notice)]
            self._find([(11, f"a compaction could not be taken back: {notices[-1:]}")])
            return True
        self._compare(11, "after a compaction and its undo", before, self.engine.preview())
        return True

    async def _undo_reflection(self) -> bool:
        before = self.engine.preview()
        reflected = await self._settled(self.engine.reflect_now())
        if reflected is None or self.store.dead:
            return False
        if not reflected:
            return True
        await self._look()
        if await self._settled(_some(self.engine.undo_reflection)) is None:
            return False
        await self._look()
        self._compare(11, "after a reflection and its undo", before, self.engine.preview())
        return True

    async def _undo_edit(self) -> bool:
        lines = await self.store.read(memory_log.log_lines, self.engine.record_id)
        if not lines:
            return True
        line = lines[len(lines) // 2]
        before = self.engine.preview()
        text = f"Something else is true, number {next(self.calls)}."
        edited = await self._settled(_some(lambda: self.engine.correct(line.id, "edit", text)))
        if edited is None or self.store.dead:
            return False
        if not any(text in b.text for b in self.engine.preview().blocks):
            self._find([(11, "an edited line is not in the log as edited")])
        if await self._settled(_some(self.engine.undo_correction)) is None:
            return False
        self._compare(11, "after an edit and its undo", before, self.engine.preview())
        return True

    def _compare(self, number: int, when: str, before: Prepared, after: Prepared) -> None:
        same = {
            "the log": [b.text for b in before.blocks] == [b.text for b in after.blocks],
            "the messages": [m.id for m in before.messages] == [m.id for m in after.messages],
            "the tail": number != 11 or before.tail == after.tail,
            "pending": before.status.messages == after.status.messages,
            "what is buffered": before.status.buffered_observations == after.status.buffered_observations,
        }
        self._find((number, f"{what} is not the same {when}") for what, equal in same.items() if not equal)

    async def _check_texts(self) -> None:
        """10: what was said is stored as it was and found by its words."""
        for thread, said in self.said.items():
            stored = {m.id: m for m in await self.store.read(message_store.get_many, [m.id for m in said])}
            for message in said:
                if message.id not in stored or stored[message.id].parts != message.parts:
                    self._find([(10, f"message {message.index} is not as it was said")])
            for message in said[:: max(1, len(said) // SEARCHED)]:
                text = plain_text(message.parts)
                words = text.split()[:10]
                if len(words) < 3:
                    continue
                phrase = " ".join(words).replace('"', " ")
                page = await self.store.read(
                    search.search, f'"{phrase}"', search.Scope(WORKSPACE, thread, ("message",)), limit=50
                )
                if not any(hit.id == message.id or hit.text == text for hit in page.hits):
                    self._find([(10, f"message {message.index} is not found by its words")])


async def _some(work: Callable[[], Awaitable[T]]) -> tuple[T]:
    """The result in a tuple, so that None is told from a killed run."""
    return (await work(),)


def _may_observe(flow: MemoryState, numbers: policy.Numbers) -> bool:
    """Whether a step above its limit could have observed something first."""
    if flow.note or flow.phase in (Phase.HELD, Phase.PAUSED, Phase.CATCHING_UP, Phase.BACKING_OFF):
        return False
    floor = policy.resolve_retention_floor(numbers.activation, numbers.threshold)
    return bool(flow.window.ready()) or sync_cut(flow.window.uncovered(), numbers.threshold, floor) > 0
