"""Condense the log: older groups become one reflection, made in the background ahead of time."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.memory import policy
from sakti.memory.jobs.observation import HARMLESS, Patience
from sakti.memory.jobs.operation import Leases, Operation
from sakti.memory.log.lines import share_heads
from sakti.memory.protocol import ReflectInput
from sakti.memory.state import RESTING, MemoryState, ReflectionPhase, ReflectionSignal
from sakti.memory.worker import MemoryWorker, ReflectionInputs
from sakti.store import memory as memory_store
from sakti.store.database import Database
from sakti.store.memory import Add, Group, UndoReflection

TAIL_MS, TAIL_LINES = 24 * policy.HOUR, 50
LEAST_SHARE = 0.25  # of a log's tokens, which a reflection may always take: well above the floor of its quality
UNDO_INTERVALS = 5  # after an undo the log grows by such a part of its threshold before it is condensed again


class ReflectionUndone(Struct, frozen=True):
    """Undone reflection.

    Its generation, how many groups it had merged, and how many of its lines had been corrected (they go with it).
    """

    group_id: str
    generation: int
    groups: int
    corrected: int


class Reflection:
    """Reflection job of one open thread's record; `task` is the running or last one."""

    def __init__(self, state: MemoryState, worker: MemoryWorker, leases: Leases) -> None:
        self.state, self.worker, self.leases = state, worker, leases
        self.task: asyncio.Task[None] | None = None

    def running(self) -> asyncio.Task[None] | None:
        return self.task if self.task is not None and not self.task.done() else None

    def to_reflect(self, numbers: policy.Numbers) -> list[Group]:
        """Return the older part of the log to condense.

        All but the newest lines (24 hours or 50, whichever is more) that fit a third of the budget; reflections that
        fill more than half of it go alone, first.
        """
        active = self.state.window.active
        reflections = [g for g in active if g.kind == "reflection"]
        if len(reflections) > 1 and sum(g.observation_tokens for g in reflections) > numbers.reflect_at / 2:
            return reflections
        recent, rows, tokens = 0, 0, 0
        for group in reversed([g for g in active if g.kind == "observation"]):
            young = self.state.clock.now() - group.created_at < TAIL_MS
            if not (young or rows < TAIL_LINES) or tokens + group.observation_tokens > numbers.reflect_at / 3:
                break
            recent, rows, tokens = recent + 1, rows + group.text.count("\n") + 1, tokens + group.observation_tokens
        return active[: len(active) - recent]

    def start(self) -> None:
        """Start in the background from the log's share of the threshold on; the result is buffered."""
        state, numbers = self.state, self.state.numbers()
        if numbers.reflect_from is None or state.phase in RESTING:
            return
        if state.observation_tokens() >= numbers.reflect_from:
            self.begin(1)

    def begin(self, level: int, *, whole: bool = False) -> bool:
        """Start at a level; False when one runs or is buffered, or there is nothing (new) to condense.

        `whole`: the user requests it for all of the log, however small it is.
        """
        state, numbers = self.state, self.state.numbers()
        groups = list(state.window.active) if whole else self.to_reflect(numbers)
        tokens = sum(g.observation_tokens for g in groups)
        if state.reflection_phase is ReflectionPhase.BACKING_OFF and tokens > state.reflect_above:
            state.signal_reflection(ReflectionSignal.GROWN)
        by_itself = state.reflection_phase is ReflectionPhase.IDLE
        idle = (ReflectionPhase.IDLE, ReflectionPhase.HELD, ReflectionPhase.BACKING_OFF)
        if state.reflection_phase not in idle or not groups:
            return False
        if not whole and (not by_itself or tokens < numbers.reflect_at // 6):
            return False
        state.signal_reflection(ReflectionSignal.BEGIN)
        self.task = asyncio.create_task(self._run(groups, level, tokens, state.window.record.corrections))
        self.task.add_done_callback(lambda _task: state.changed())  # only now it no longer runs
        return True

    async def settle(self, patience: Patience) -> None:
        """Wait before a request for a due reflection, then activate it.

        Above its own `block_after`, or at the threshold when there is no background work; at most for the turn's
        patience.
        """
        state = self.state
        numbers, tokens = state.numbers(), state.observation_tokens()
        if tokens < numbers.reflect_at or state.phase in RESTING:
            return
        if self.running() is None and state.reflection_phase is not ReflectionPhase.READY and not self.begin(0):
            return
        running = self.running()
        if running is not None and (tokens > numbers.reflect_block_after or numbers.reflect_from is None):
            await patience.wait(running)
            await state.activate_due()

    async def join(self) -> None:
        """Wait until none runs in this process."""
        if (running := self.running()) is not None:
            await asyncio.wait([running])

    async def undo(self, generation: int | None = None) -> ReflectionUndone:
        """Undo a reflection, the newest by default; one that is being made from it is discarded.

        Raises `MemoryFailure`: not_found, conflict.
        """
        state = self.state
        interval = state.numbers().reflect_at // UNDO_INTERVALS
        done = await state.move(UndoReflection(interval, generation), "unreflect")
        (undone,) = done.removed
        return ReflectionUndone(undone.id, undone.generation, len(undone.merged_group_ids), done.corrected_lines)

    # --- one reflection -----------------------------------------------------------------------------------

    async def _run(self, groups: list[Group], level: int, tokens: int, corrections: int) -> None:
        """Run the job; any error becomes an event, and the chat continues."""
        state = self.state
        operation = Operation.of(state, "buffering" if level else "observation", "reflection", tokens)
        signal = ReflectionSignal.GONE
        try:
            await self._reflect(groups, level, operation, corrections)
            signal, state.reflect_above = ReflectionSignal.DONE, 0
        except Exception as e:
            if not isinstance(e, MemoryFailure) or e.code not in HARMLESS:
                signal = ReflectionSignal.FAILED
                state.reflect_above = tokens + tokens // 10
            elif e.code == "conflict":
                await state.refresh()  # what another window did is in the log, or waits
            state.note = operation.report_failure(state, e)
        finally:
            state.signal_reflection(signal)
            state.settle()
            state.changed()

    async def _reflect(self, groups: list[Group], level: int, operation: Operation, corrections: int) -> None:
        state, tokens = self.state, operation.tokens
        window, numbers = state.window, state.numbers()
        shown = sum(self.worker.counter.count(share_heads(g.text)) for g in groups)
        rest = state.observation_tokens() - shown
        share = state.settings.reflection.buffer_activation if level else 0.5

        least = max(1, int(tokens * LEAST_SHARE))

        before: list[ReflectionInputs] = []

        def begin(db: Database) -> None:  # what would be refused in the end is not asked for
            ids = [g.id for g in groups]
            memory_store.require_condensable(db, window.record.id, ids, corrections)
            before.append(self.worker.to_condense(db, window.record.id, ids))

        async with self.leases.hold(window.record.id, "reflecting", start=begin) as held:
            state.failpoint("reflect.begin")
            operation.start(state)
            request = ReflectInput(
                window.thread.id,
                tuple((g.id, g.text) for g in groups if g.text),
                max(least, int(min(numbers.reflect_at - rest, tokens * share))),
                level,
                tuple(before[-1].pinned),
                state.mode,
                limit_tokens=max(least, numbers.reflect_at - rest),
                full=state.observation_tokens() >= numbers.reflect_at,
            )
            group, lines = await self.worker.reflect(
                window.record, groups, request, before[-1], held, operation.cycle_id
            )
            state.failpoint("reflect.asked")
            await state.move(Add(group, lines, held, corrections=corrections, ends=True), "reflect")
            self.leases.note_end(held)
            operation.end(state, [group])
