"""Two processes on one memory, in every order that Hypothesis thinks of: turns, compactions, undo, edits, slow and
failing Observers, crashes, clocks that jump. Nothing is lost, nothing observed twice, nothing comes back changed."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sakti.core.events import MemoryOperation
from sakti.store.log import lines as memory_log
from sakti.store.threads import messages
from tests.bench import invariants, snapshot
from tests.bench.invariants import Undo
from tests.bench.snapshot import Ledger, Snapshot
from tests.fakes import memory as fake
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver, ScriptedObserver

LINE = "what about src/queue.py line 12? "
who = st.sampled_from((0, 1))


class TwoWriters(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="sakti-two-"))
        self.clock = FakeClock()
        self.settings = fake.settings(500, 200, buffer_tokens=0.25)
        self.seen: Snapshot | None = None
        self.undone = False
        self.number = 0
        self.fail = False
        self.both: list[Driver] = [self.run(self.make()) for _ in range(2)]

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    async def make(self) -> Driver:
        observer = ScriptedObserver(lambda _: self.fail)
        return await Driver.make(self.folder / "m.db", self.settings, observer=observer, clock=self.clock)

    async def take_in(self, driver: Driver) -> None:
        """What the other one said, as a session takes it in before its turn."""
        rows = await driver.store.read(messages.list_after, "t1", -1)
        for message in rows[len(driver.said) :]:
            driver.engine.add(message)
        driver.said = rows

    async def idle(self, driver: Driver) -> None:
        """Up to date, and nothing under way."""
        self.answer(driver)
        await self.take_in(driver)
        await driver.engine.begin_turn(provider="scripted", model="demo")
        await driver.engine.wait_idle()

    def answer(self, driver: Driver) -> None:
        if driver.observer.gate is not None:
            driver.observer.gate.set()
            driver.observer.gate = None

    async def prepare(self, driver: Driver) -> None:
        """A step; where it has to wait for the Observer, that answers."""
        step = asyncio.create_task(driver.prepare())
        await asyncio.wait([step], timeout=0.1 if driver.observer.gate else None)
        if not step.done():
            self.answer(driver)
        await step

    # --- what may happen ----------------------------------------------------------------------------------

    @rule(one=who, size=st.sampled_from((1, 6, 40)), calls=st.integers(0, 3), quiet=st.booleans())
    def turn(self, one: int, size: int, calls: int, quiet: bool) -> None:
        async def talk() -> None:
            driver = self.both[one]
            await self.take_in(driver)
            self.number += 1
            await driver.begin(f"{self.number}: {LINE * size}")
            steps: list[dict[str, Any]] = [
                {"tool": {"name": "read", "args": {"path": "a.py"}, "result": LINE * size}} for _ in range(calls)
            ]
            for number, step in enumerate([*steps, {"text": "It drains at midnight."}]):
                await self.prepare(driver)
                await driver.step(step, f"c{self.number}-{number}")
            await driver.engine.end_turn()
            if quiet:
                self.answer(driver)
                await driver.engine.wait_idle()

        self.run(talk())

    @rule(one=who)
    def the_observer_takes_long(self, one: int) -> None:
        observer = self.both[one].observer
        observer.gate = observer.gate or asyncio.Event()

    @rule(one=who)
    def the_observer_answers(self, one: int) -> None:
        self.answer(self.both[one])
        self.run(self.both[one].engine.wait_idle())

    @rule(fail=st.booleans())
    def observers_fail(self, fail: bool) -> None:
        self.fail = fail

    @rule(one=who)
    def compact_and_undo(self, one: int) -> None:
        async def both_ways() -> None:
            driver = self.both[one]
            await self.idle(driver)
            before = driver.engine.preview()
            if (await driver.engine.compact()).messages and await driver.engine.undo_compaction() is not None:
                after = driver.engine.preview()
                assert [b.text for b in after.blocks] == [b.text for b in before.blocks]
                assert [m.id for m in after.messages] == [m.id for m in before.messages]

        self.undone = True
        self.run(both_ways())

    @rule(one=who, pin=st.booleans())
    def correct_a_line(self, one: int, pin: bool) -> None:
        async def correct() -> None:
            driver = self.both[one]
            await driver.engine.begin_turn(provider="scripted", model="demo")
            lines = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
            if not lines:
                return
            action: Literal["pin", "edit"] = "pin" if pin and not lines[0].pinned else "edit"
            self.number += 1
            await driver.engine.correct(lines[0].id, action, f"Nothing drains, says {self.number}.")

        self.run(correct())

    @rule(one=who, back=st.booleans())
    def reflect(self, one: int, back: bool) -> None:
        async def reflect() -> None:
            driver = self.both[one]
            await self.idle(driver)
            before = [b.text for b in driver.engine.preview().blocks]
            if await driver.engine.reflect_now() and back:
                await driver.engine.undo_reflection()
                assert [b.text for b in driver.engine.preview().blocks] == before

        self.undone = True
        self.run(reflect())

    @rule(one=who)
    def crash(self, one: int) -> None:
        """The process is gone without a word; its leases stay until they run out."""

        async def die() -> None:
            driver = self.both[one]
            tasks = driver.engine.tasks()
            for task in tasks:
                task.cancel()
            driver.store._in_transaction = _gone  # type: ignore[method-assign]
            await asyncio.gather(*tasks, return_exceptions=True)
            await driver.engine.close()
            await driver.store.close()
            self.both[one] = await self.make()
            self.both[one].said = await self.both[one].store.read(messages.list_after, "t1", -1)

        self.run(die())

    @rule(seconds=st.sampled_from((20, 45, 3_600, 400 * 86_400, -86_400)))
    def the_clock_jumps(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # --- what must hold -----------------------------------------------------------------------------------

    @invariant()
    def the_log_only_grows_and_covers_once(self) -> None:
        async def look() -> tuple[Snapshot | None, Ledger]:
            store, ledger = self.both[0].store, Ledger()
            ledger.begin("t1")
            for message in await store.read(messages.list_after, "t1", -1):
                ledger.add(message)
            return await store.read(snapshot.take, self.both[0].engine.record_id), ledger

        now, ledger = self.run(look())
        assert now is not None
        assert not list(invariants.coverage(now, ledger)), "the log covers exactly what is behind the cursor"
        if self.seen is not None:
            assert not list(invariants.moves(self.seen, now, Undo(anything=self.undone)))
        self.seen, self.undone = now, False

    @invariant()
    def nothing_breaks(self) -> None:
        for driver in self.both:
            failed = [e.fields["error"] for e in driver.events if isinstance(e, MemoryOperation) and e.kind == "failed"]
            expected = ("rate limit", "already in progress", "in another window", "took over this work", "not smaller")
            strange = [
                error
                for error in failed
                if not any(
                    known in error for known in (*expected, "has changed", "corrected meanwhile", "already prepared")
                )
            ]
            assert not strange, strange
            driver.events.clear()

    def teardown(self) -> None:
        async def end() -> None:
            for driver in self.both:
                self.answer(driver)
                await driver.close()

        self.run(end())
        self.loop.close()
        shutil.rmtree(self.folder)


def _gone(*_: object, **__: object) -> None:
    raise asyncio.CancelledError


TwoWriters.TestCase.settings = settings(
    max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTwoWriters = TwoWriters.TestCase
