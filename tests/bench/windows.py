"""Run a window of a replay: one process with its database connection, memory of one thread and models.

It is driven as the agent's session drives them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct, field

from sakti.agent.session import recovery as resume
from sakti.agent.session.turn_lease import TurnLease
from sakti.core.events import Event
from sakti.core.tokens import O200k, count_parts, sum_message_tokens
from sakti.core.types import (
    Json,
    Message,
    MessageState,
    Part,
    Role,
    TextPart,
    Thread,
    ToolResultPart,
)
from sakti.memory.engine import MemoryEngine, Prepared
from sakti.memory.state import MemoryOptions, MemoryServices
from sakti.providers import facts
from sakti.providers.scripted import ScriptedProvider
from sakti.store.threads import messages, removal, threads
from tests.bench import oracle, raw_rows
from tests.bench.bench_store import ACT, Act, BenchClock, BenchIds, BenchStore, Killed, TimedCounter
from tests.bench.charged import Charge
from tests.bench.checker import Checker
from tests.bench.script import Script
from tests.bench.scripted import Gate, ScriptedObserver, ScriptedReflector
from tests.bench.snapshot import Ledger
from tests.bench.step_checks import StepChecks

T = TypeVar("T")
WORKSPACE = "/bench"
NOBODY = 4_999_999  # above the largest process id there is: who held a lease before a crash is gone


class Stage(Struct):
    """State shared by all windows of a replay."""

    script: Script
    path: Path
    plain: O200k  # counts what is said
    counter: TimedCounter  # memory's own
    clock: BenchClock
    ids: BenchIds
    gate: Gate
    ledger: Ledger
    checker: Checker
    steps: StepChecks
    source: random.Random
    charge: Charge = field(default_factory=Charge)
    kill_at: str = ""
    hits: int = 0
    kills: int = 0
    acts: itertools.count[int] = field(default_factory=itertools.count)
    calls: itertools.count[int] = field(default_factory=itertools.count)


class Window:
    """One process; `events` since they were last checked, `prompts` of the user in this turn."""

    def __init__(self, number: int, stage: Stage) -> None:
        self.number, self.stage = number, stage
        self.events: list[Event] = []
        self.prompts: set[str] = set()
        self.turn: list[Message] = []
        self.owners: list[str] = []
        self.tokens = 0  # of what was said here
        self._lease: TurnLease | None = None
        self._anew = False
        self._unheard: dict[str, str] = {}  # of messages, by id: the word that no Observer may hear
        self.newest = -1
        script = stage.script
        seed = (script.seed or 0) * 10 + number
        self.observer = ScriptedObserver(
            stage.gate,
            stage.plain,
            stage.clock,
            ScriptedProvider(),
            stage.charge,
            window=number,
            previous_tokens=script.settings.observation.previous_observer_tokens,
            fail_rate=script.fail_rate,
            seed=seed,
        )
        self.observer.asked = lambda request, prompt: stage.checker.asked(self.number, request, prompt)
        self.observer.answered = lambda request: stage.checker.answered(self.number, request)
        self.reflector = ScriptedReflector(
            stage.gate,
            stage.charge,
            window=number,
            incompressible=script.incompressible,
            fail_rate=script.fail_rate,
            seed=seed + 5,
        )
        self.reflector.answered = stage.checker.condensed
        self.store: BenchStore
        self.engine: MemoryEngine
        self.thread: Thread

    # --- process and thread -------------------------------------------------------------------------------

    async def start(self, thread_id: str = "main") -> None:
        """Start a new process on the file; leases of an earlier one of this number lose their owner."""
        store = await BenchStore.open(self.stage.path, clock=self.stage.clock, ids=self.stage.ids, synchronous="NORMAL")
        assert isinstance(store, BenchStore)
        self.store = store
        store.charge = self.stage.charge
        store.late = random.Random(self.stage.source.random()) if self.stage.script.late else None
        store.committed = self.stage.checker.committed
        for owner in self.owners:
            await store.write(raw_rows.orphan_leases, owner, f"{socket.gethostname()}:{NOBODY}:{owner[-8:]}")
        self.owners.clear()
        await self.open(thread_id)

    async def show(self, thread_id: str) -> None:
        """Show another thread, as it is now."""
        await self.act("close", self.engine.close())
        await self.open(thread_id)

    async def open(self, thread_id: str) -> None:
        """Open a thread in a process that has none open, creating it if needed."""
        found = await self.store.read(threads.get, thread_id)
        if found is None:
            now = self.stage.clock.now()
            found = await self.store.write(threads.create, Thread(thread_id, WORKSPACE, "", now, now))
        self.stage.ledger.begin(thread_id)
        self.thread = found
        await self._load()

    async def _load(self) -> None:
        """Load the thread's memory from the database."""
        await self._answer_open_calls()
        newest = await self.store.read(messages.list_page, self.thread.id, limit=1)
        self.newest = newest[-1].index if newest else -1
        settings, owner = self.stage.script.settings, self._owner("memory")
        self.engine = MemoryEngine(
            MemoryServices(self.store, self.stage.counter, self._emit, self.store.aside, self._failpoint),
            MemoryOptions(settings=settings, timezone="UTC", owner=owner, patience=0),
            self.observer,
            self.reflector,
        )
        await self.act("open", self.engine.open(self.thread))
        await self.store.read(self.stage.checker.opened, self.number, self.engine, self.thread.id)

    async def _answer_open_calls(self) -> None:
        owner = self.owners[-1] if self.owners else self._owner("turn")
        done = await resume.recover(self.store, self.thread, self.stage.plain, owner)
        for added in done.messages:
            self.stage.ledger.add(added)

    def _owner(self, what: str) -> str:
        self.owners.append(f"{socket.gethostname()}:{os.getpid()}:{what}-{self.number}-{next(self.stage.acts):06d}")
        return self.owners[-1]

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self.stage.checker.happened(self.number, event)

    def _failpoint(self, name: str) -> None:
        stage = self.stage
        if name != stage.kill_at:
            return
        stage.hits += 1
        if stage.hits % 3 == 1:
            self.store.die()
            raise Killed(name)

    def act(self, name: str, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start some work; all its effects, also in the background, are attributed to `name`."""
        token = ACT.set(Act(self.number, name, next(self.stage.acts)))
        try:
            return asyncio.ensure_future(work)
        finally:
            ACT.reset(token)

    # --- a turn -------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Take the thread's turn lease, and load what other windows said there."""
        self._lease = TurnLease(self.store, self._owner("turn"), self.thread.id)
        await self._lease.take()
        await self._answer_open_calls()
        newer = await self.store.read(messages.list_after, self.thread.id, self.newest)
        if newer:
            self.thread = await self.store.read(threads.get, self.thread.id) or self.thread
            await self.act("close", self.engine.close())
            await self._load()
        self.turn = []
        self.prompts = set()
        self._anew = False

    async def go_on(self) -> None:
        """Take the turn lease again after a crash; of the prompts only the newest is known as one."""
        self._lease = TurnLease(self.store, self._owner("turn"), self.thread.id)
        await self._lease.take()
        said = [m for m in self.turn if m.id in self.prompts]
        self.prompts = {m.id for m in said[-1:]}
        self._anew = True

    async def end(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            await lease.give_back()

    @property
    def busy(self) -> bool:
        return self._lease is not None

    async def say(
        self, role: Role, *parts: Part, state: MessageState = "saved", metadata: Json | None = None
    ) -> Message:
        """Store a message and add it to memory; what no Observer may read contains a word of its own."""
        stage = self.stage
        identifier = stage.ids.new()
        if state != "saved" or role == "system" or metadata:
            word = self._unheard[identifier] = oracle.word("unheard", next(stage.calls))
            stage.checker.forbid(word, f"a {state} message" if role != "system" and not metadata else "a notice")
            parts = tuple(_with_word(p, word) for p in parts)
        counted = count_parts(stage.plain, parts)
        stage.clock.advance(10)
        message = Message(
            identifier,
            self.thread.id,
            WORKSPACE,
            role,
            parts,
            stage.clock.now(),
            tokens=sum_message_tokens(counted),
            part_tokens=counted,
            token_counter=stage.plain.name,
            state=state,
            metadata=metadata or {},
        )
        saved = await self.store.write(messages.append, message)
        stage.ledger.add(saved)
        self.turn.append(saved)
        self.tokens += saved.tokens
        self.newest = saved.index
        self.engine.add(saved)
        if role == "user" and not saved.metadata:
            if self._anew:  # what is said after a crash is a prompt of its own
                self.prompts.clear()
            self.prompts.add(saved.id)
            self._anew = False
        return saved

    async def judge(self, passes: bool) -> None:
        """Apply the guardrail's decision on this turn's messages."""
        guarded = [m for m in self.turn if m.state == "provisional"]
        ids, stage = {m.id for m in guarded}, self.stage
        if passes:
            await self.store.write(messages.confirm, sorted(ids))
            stage.ledger.change(self.thread.id, ids, state="saved")
            for message in guarded:
                stage.checker.allow(self._unheard[message.id])
            return
        await self.store.write(removal.withhold_turn, sorted(ids), "not allowed")
        stage.ledger.change(self.thread.id, ids, state="withheld", tokens=0)
        self.engine.forget(sorted(ids))
        self.prompts -= ids

    def prepare(self, step: int, model: str = "") -> asyncio.Task[Prepared]:
        """Start the work of one step, up to its request."""

        async def work() -> Prepared:
            if step == 0:
                provider, _, name = (model or "scripted/demo").partition("/")
                ttl = facts.resolve_auto_activation_ttl(provider, name)
                await self.engine.begin_turn(provider=provider, model=name, cache_ttl=ttl)
                ACT.set(Act(self.number, "step", next(self.stage.acts)))
            self._anew = False
            with self.stage.charge.apart():
                self.stage.steps.step_begins(self.number)
            return await self.engine.prepare(step=step + 1, budget=self.stage.script.budget)

        return self.act("step" if step else "begin", work())

    # --- the end of a process -----------------------------------------------------------------------------

    async def close(self) -> None:
        await self.end()
        await self.act("close", self.engine.close())
        await self.store.close()
        self.stage.checker.closed(self.number)

    async def die(self) -> None:
        """Simulate a crash: nothing it does is written any more, its leases stay."""
        self.store.die()
        tasks = self.engine.tasks()
        for task in tasks:
            task.cancel()
        await self.end()
        await self.engine.close()
        await self.store.close()
        self.stage.checker.closed(self.number)


def _with_word(part: Part, word: str) -> Part:
    match part:
        case TextPart(text):
            return TextPart(f"{word} {text}")
        case ToolResultPart(call_id, name, content):
            return ToolResultPart(call_id, name, f"{word} {content}")
        case _:
            return part
