"""Play a conversation in one or more windows, step by step, and show every step to the checker.

Nothing waits in real time: where all work is blocked a model of memory answers, chosen at random.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from sakti.core.errors import SaktiError, StoreError
from sakti.core.events import MemoryActivation
from sakti.core.resources import read_prompt
from sakti.core.tokens import O200k
from sakti.core.types import (
    Block,
    Json,
    MessageState,
    Part,
    Request,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.memory.engine import Prepared
from tests.bench import by_hand, ending, history, raw_rows
from tests.bench.bench_store import BenchClock, BenchIds, Killed, KnownCounter, TimedCounter
from tests.bench.charged import Charge
from tests.bench.checker import Checker
from tests.bench.invariants import Finding, Violation
from tests.bench.prompt_cache import PromptCache
from tests.bench.run import Run
from tests.bench.script import Command, Script, Step, Turn
from tests.bench.scripted import Gate
from tests.bench.settling import Settling, Work
from tests.bench.snapshot import Ledger
from tests.bench.step_checks import StepChecks
from tests.bench.windows import Stage, Window

T = TypeVar("T")
MODEL = "claude-sonnet-4-5"
SHOWN = 100  # violations of one run that are listed
UNDONE = ("compact", "uncompact", "reflect", "unreflect", "edit")  # failpoints of what is done and taken back
TRIES = 3  # of a step that memory ends


class Playing(Struct):
    """Turn and the window it is played in."""

    window: Window
    turn: Turn

    @property
    def state(self) -> MessageState:
        return "provisional" if self.turn.guard else "saved"


class Player:
    """Player of one replay."""

    def __init__(self, script: Script, counter: O200k, path: Path, kill_at: str) -> None:
        self.script = script
        self.run = Run(script.name, script.seed)
        self.place = (0, 0)
        clock, ledger, charge = BenchClock(), Ledger(), Charge()
        checker = Checker(script.settings, ledger, KnownCounter(counter), clock, self.find)
        checker.own_texts = {
            "the reminder": read_prompt("memory#reminder")[:200],
            "the context's instructions": read_prompt("memory")[:200],
        }
        seed = script.seed or 0
        self.stage = Stage(
            script,
            path,
            counter,
            TimedCounter(counter, charge),
            clock,
            BenchIds(clock, seed),
            Gate(script.delay),
            ledger,
            checker,
            StepChecks(checker),
            random.Random(seed + 1),
            charge,
            kill_at,
        )
        self.checker, self.steps, self.source = checker, self.stage.steps, self.stage.source
        self.windows: dict[int, Window] = {}
        self._cache = PromptCache(counter)
        self._settling = Settling(self.windows, self.stage, self.find)
        self.refused: Counter[tuple[str, str]] = Counter()  # commands, by the reason that memory gave
        system = read_prompt("system")
        self._system = Block("system", system, edge=True, tokens=counter.count(system))

    def find(self, findings: Iterable[Finding]) -> None:
        for number, message in findings:
            if len(self.run.violations) < SHOWN:
                self.run.violations.append(Violation(number, *self.place, message))

    # --- windows ------------------------------------------------------------------------------------------

    async def start(self, history_messages: int = 0) -> None:
        self.stage.charge.install()
        self.stage.ledger.begin("main", history_messages)
        first = self.windows[0] = Window(0, self.stage)
        await first.start()
        if history_messages:
            await history.add(first.store, self.stage.plain, first.thread, first.engine.record_id, history_messages)
            self.checker.forget(first.engine.record_id)  # nobody answers for what was before
            await first.show("main")

    async def window(self, number: int, thread: str = "") -> Window:
        """Return the window of that number, opening it if needed, on `thread` if given."""
        found = self.windows.get(number)
        if found is None:
            found = self.windows[number] = Window(number, self.stage)
            await found.start(thread or "main")
        self.stage.gate.stopped.discard(number)
        if thread and found.thread.id != thread:
            await found.show(thread)
        return found

    async def revive(self, window: Window) -> None:
        """Restart a process that died, in the same turn."""
        self.run.kills += 1
        busy = window.busy
        await window.die()
        await window.start(window.thread.id)
        if busy:
            await window.go_on()

    async def restart(self, window: Window) -> None:
        """End a process properly, without waiting for anything, and start it again: all must be the same."""
        eye = self.checker.eyes[window.number]
        alone = len(self.windows) == 1 and not window.engine.tasks() and self.script.budget is None
        before = window.engine.preview() if alone and not eye.catching_up else None
        newest = self.stage.ledger.newest(window.thread.id)
        await window.close()
        await window.start(window.thread.id)
        answered = self.stage.ledger.newest(window.thread.id) > newest  # calls that were left open
        if before is not None and not answered and not self.checker.eyes[window.number].catching_up:
            cursor = self.checker.at[eye.record_id].cursor(window.thread.id)
            self.find(by_hand.compare(9, "after a restart", before, window.engine.preview(), cursor))

    async def advance(self, ms: int) -> None:
        """Advance the clock; running processes renew their leases."""
        self.stage.clock.advance(ms)
        alive = [w for n, w in self.windows.items() if n not in self.stage.gate.stopped]
        owners = [o for w in alive for o in w.owners]
        if alive:
            now, window = self.stage.clock.now(), alive[0]
            await self.safely(window, lambda: window.store.write(raw_rows.renew_leases, owners, now))

    async def close(self) -> None:
        for window in self.windows.values():
            await window.close()

    # --- turns --------------------------------------------------------------------------------------------

    async def turn(self, number: int, turn: Turn) -> None:
        self.place = (number, 0)
        if turn.restart:
            for window in self.windows.values():
                await self.restart(window)
            return
        await self.advance(turn.gap_ms)
        for command in turn.commands:
            await self.command(command)
        if not turn.steps:
            return
        playing = [Playing(await self.window(one.window, one.thread or "main"), one) for one in _turns(turn)]
        for one in playing:
            await self._begin(one)
        for index in range(max(len(one.turn.steps) for one in playing)):
            self.place = (number, index)
            await self._round([one for one in playing if index < len(one.turn.steps)], index)
        for one in playing:
            await self._end(one)
        every = self.script.undo_every or (5 if self.stage.kill_at.startswith(UNDONE) else 0)
        if every and number % every == every - 1:
            await by_hand.roundtrips(self, playing[0].window)

    async def _begin(self, one: Playing) -> None:
        self.run.turns += 1
        await self.safely(one.window, one.window.begin)
        for note in one.turn.notes:
            text = TextPart("The branch has changed meanwhile, and nobody said so.")
            await self.say(one.window, "system" if note == "system" else "user", text, metadata={note: "note"})
        await self.say(one.window, "user", TextPart(one.turn.user or "."), state=one.state)
        await self._take_in(one)

    async def _take_in(self, one: Playing) -> None:
        """Note what memory's first step of the turn finds."""
        prompts, model = one.window.prompts, one.turn.model or "scripted/demo"
        read = one.window.store.read
        await read(self.steps.begins, one.window.number, model, prompts, self.script.budget)

    async def _round(self, playing: list[Playing], index: int) -> None:
        """Play the next step of each turn, one after the other or at the same time."""
        for one in playing:
            if one.turn.steps[index].steer:
                await self.say(one.window, "user", TextPart(one.turn.steps[index].steer), state=one.state)
        together = len(playing) > 1 and self.source.random() < 0.5
        for some in [playing] if together else [[one] for one in playing]:
            await self._steps(some, index)
            for one in some:
                await self._answer(one, one.turn.steps[index])

    async def _steps(self, playing: list[Playing], index: int) -> None:
        """Prepare the requests of these turns' steps at the same time, and check them."""
        left = list(playing)
        for attempt in range(TRIES * 3):
            started, alone = self.stage.charge.cpu, len(left) == 1
            works = [Work(o.window, o.window.prepare(index, o.turn.model), step=True) for o in left]
            meanwhile = [c for o in left for c in o.turn.steps[index].meanwhile] if attempt == 0 else []
            hands = [w for c in meanwhile for w in await self._meanwhile(c, left)]
            blocked = self.run.blocked_steps
            await self.settle([*works, *hands])
            if alone and not hands:
                self.run.cpu.append((self.stage.charge.cpu - started) * 1000)
            again: list[Playing] = []
            for one, work in zip(left, works, strict=True):
                prepared = await self._prepared(one, work)
                if prepared is None:
                    self.run.blocked_steps = blocked
                    again.append(one)
                    if index == 0:
                        await self._take_in(one)
                else:
                    await self._seen(one, prepared, too_long=one.turn.steps[index].too_long and attempt == 0)
            for hand in hands:
                await self._outcome(hand)
            left = again
            if not left:
                return

    async def _prepared(self, one: Playing, work: Work) -> Prepared | None:
        """Return the request of a step; None where its process died, or memory ended it."""
        try:
            return await work.task
        except Killed:
            pass
        except SaktiError as e:
            if not one.window.store.dead:
                self.find([(1, f"memory ended a step: {e.message}")])
                return None
        await self.revive(one.window)
        return None

    async def _seen(self, one: Playing, prepared: Prepared, *, too_long: bool) -> None:
        window = one.window
        self.run.steps += 1
        if not window.store.dead:  # what a dead engine would do next nobody sees
            await self._check(window, prepared)
        if too_long:
            prepared = await self._too_long(one) or prepared
        self._account(prepared)
        self.stage.gate.call_made()
        await self.quiet()
        self._count(window)
        if window.store.dead:
            await self.revive(window)

    async def _check(self, window: Window, prepared: Prepared) -> None:
        await window.store.read(self.steps.request, window.number, prepared, set(window.prompts))

    async def _too_long(self, one: Playing) -> Prepared | None:
        """Let the provider find the request too long: memory shrinks it, and it is prepared once more."""
        window = one.window
        work = Work(window, window.act("observe", by_hand.observe(self, window)))
        await self.settle([work])
        try:
            await work.task
        except (Killed, SaktiError):
            return None
        again = Work(window, window.prepare(1))
        await self.settle([again])
        try:
            prepared = await again.task
        except (Killed, SaktiError):
            return None
        await self._check(window, prepared)
        return prepared

    async def _answer(self, one: Playing, step: Step) -> None:
        window = one.window
        parts: list[Part] = [ThinkingPart(step.thinking)] if step.thinking else []
        if step.text or not step.calls:
            parts.append(TextPart(step.text or "."))
        calls = [(f"call{next(self.stage.calls)}", c) for c in step.calls]
        await self.say(
            window, "assistant", *parts, *(ToolCallPart(i, c.tool, c.args) for i, c in calls), state=one.state
        )
        results = [ToolResultPart(i, c.tool, c.result) for i, c in calls if c.result is not None]
        if results and self.stage.ledger.result(results[0].call_id) is None:  # a new start may have answered them
            await self.say(window, "tool", *results, state=one.state)

    async def _end(self, one: Playing) -> None:
        window = one.window
        if one.turn.guard == "withholds":
            await self.safely(window, lambda: window.judge(False))
        else:
            await self.settle([Work(window, window.act("end", window.engine.end_turn()))])
            self.checker.eyes[window.number].room = None
        if one.turn.guard == "passes":
            await self.safely(window, lambda: window.judge(True))
        await self.quiet()
        await self.safely(window, window.end)
        self._count(window)
        if window.store.dead:
            await self.revive(window)

    async def say(
        self, window: Window, role: Role, *parts: Part, state: MessageState = "saved", metadata: Json | None = None
    ) -> None:
        before = window.tokens
        await self.safely(window, lambda: window.say(role, *parts, state=state, metadata=metadata))
        self.run.conversation_tokens += window.tokens - before

    async def safely(self, window: Window, work: Callable[[], Awaitable[T]]) -> T:
        """Use the store; if the process dies meanwhile, restart it and repeat."""
        while True:
            if window.store.dead:
                await self.revive(window)
            try:
                return await work()
            except StoreError:
                if not window.store.dead:
                    raise

    def _count(self, window: Window) -> None:
        self.run.activations += sum(
            isinstance(e, MemoryActivation) and e.operation_type == "observation" for e in window.events
        )
        window.events.clear()

    def _account(self, prepared: Prepared) -> None:
        tail = "\n\n".join([f"Now: {self.stage.clock.now()}", *prepared.tail])
        request = Request(MODEL, (self._system, *prepared.blocks), prepared.messages, tail=tail)
        self._cache.add(request)
        tokens = sum(b.tokens for b in request.system) + sum(m.tokens for m in request.messages)
        self.run.max_request_tokens = max(self.run.max_request_tokens, tokens)

    # --- by hand ------------------------------------------------------------------------------------------

    async def command(self, command: Command) -> None:
        """Carry out what the user does between two turns."""
        window = await self.window(command.window)
        match command.name:
            case "restart":
                await self.restart(window)
            case "kill":
                await self.revive(window)
            case "stop":
                self.stage.gate.stopped.add(command.window)
                self.checker.eyes[command.window].stopped = True
            case "roundtrips":
                await by_hand.roundtrips(self, window)
            case "idle":
                self.stage.gate.release()
                await self.settle([Work(window, window.act("idle", window.engine.wait_idle()))])
            case _:
                await by_hand.do(self, window, command)
        await self.quiet()

    async def _meanwhile(self, command: Command, playing: list[Playing]) -> list[Work]:
        """Start what the user does in another window while these steps are prepared."""
        window = await self.window(command.window)
        if any(one.window is window for one in playing):
            return []
        work = by_hand.work(self, window, command)
        return [] if work is None else [Work(window, work)]

    def work(self, window: Window, task: asyncio.Task[Any]) -> Work:
        return Work(window, task)

    async def _outcome(self, work: Work) -> None:
        try:
            await work.task
        except Killed:
            pass
        except SaktiError:  # refused: nothing has happened
            pass
        if work.window.store.dead:
            await self.revive(work.window)

    # --- waiting ------------------------------------------------------------------------------------------

    async def settle(self, works: list[Work]) -> None:
        """Wait until all works are done."""
        self.run.blocked_steps += await self._settling.settle(works)
        self._raise_fault()

    async def quiet(self) -> None:
        """Wait until nothing runs any more."""
        await self._settling.quiet()
        self._raise_fault()

    def _raise_fault(self) -> None:
        if self.checker.fault is not None:
            raise self.checker.fault

    # --- the end ------------------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Check the whole replay: everything was observed, everything is found."""
        self.stage.gate.stopped.clear()
        self.stage.gate.release()
        self.place = (len(self.script.turns), 0)
        for window in list(self.windows.values()):
            await by_hand.roundtrips(self, window)
            await window.store.read(self.checker.at_the_end, window.engine.record_id)
        self.find(await ending.texts(self.windows[0].store, self.stage.ledger))
        self.run.observer_calls = sum(w.observer.calls for w in self.windows.values())
        self.run.observer_input_tokens = sum(w.observer.input_tokens for w in self.windows.values())
        self.run.cached_share = self._cache.share
        self.run.generations = sum(s.record.generation_count for s in self.checker.at.values())


def _turns(turn: Turn) -> list[Turn]:
    return [turn] if turn.beside is None else [turn, turn.beside]
