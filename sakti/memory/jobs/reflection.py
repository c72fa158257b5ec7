"""Condense the log: older groups become one reflection, made in the background ahead of time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.memory import policy
from sakti.memory.jobs.observation import HARMLESS, Patience
from sakti.memory.jobs.operation import Leases, Operation
from sakti.memory.log.lines import share_heads
from sakti.memory.phases import RESTING, ReflectionPhase, ReflectionSignal
from sakti.memory.protocol import ReflectInput
from sakti.memory.state import MemoryState
from sakti.memory.worker import MemoryWorker, ReflectionInputs
from sakti.store import memory as memory_store
from sakti.store.database import Database
from sakti.store.memory import Add, Group, UndoReflection

TAIL_MS, TAIL_LINES = 24 * policy.HOUR, 50
LEAST_SHARE = 0.25  # least share of the input that a reflection may keep: well above `quality.TOKEN_SHARE`
UNDO_INTERVALS = 5  # after an undo the log has to grow by this fraction (1/5) of its threshold


class ReflectionUndone(Struct, frozen=True):
    """Undone reflection.

    Its generation, the number of groups that it had merged, and the number of its lines that had been corrected,
    which are lost.
    """

    group_id: str
    generation: int
    groups: int
    corrected: int


def select_groups(active: Sequence[Group], reflect_at: int, now: int) -> list[Group]:
    """Return the older part of a log to condense.

    Reflections that fill more than half of the threshold `reflect_at` are condensed first, by themselves; otherwise
    everything except the newest observations.
    """
    reflections = [g for g in active if g.kind == "reflection"]
    if len(reflections) > 1 and _count_tokens(reflections) > reflect_at / 2:
        return reflections
    return list(active[: len(active) - _count_recent(active, reflect_at, now)])


def _count_recent(active: Sequence[Group], reflect_at: int, now: int) -> int:
    """Return how many groups to keep: 24 hours or 50 lines, if they fit a third of the threshold."""
    count, rows, tokens = 0, 0, 0
    for group in reversed([g for g in active if g.kind == "observation"]):
        is_recent = now - group.created_at < TAIL_MS or rows < TAIL_LINES
        tokens += group.observation_tokens
        if not is_recent or tokens > reflect_at / 3:
            break
        count, rows = count + 1, rows + group.text.count("\n") + 1
    return count


def _count_tokens(groups: Iterable[Group]) -> int:
    return sum(g.observation_tokens for g in groups)


class Reflection:
    """Reflection job of one open thread's record; `task` is the running or last one."""

    def __init__(self, state: MemoryState, worker: MemoryWorker, leases: Leases) -> None:
        self.state, self.worker, self.leases = state, worker, leases
        self.task: asyncio.Task[None] | None = None

    def running(self) -> asyncio.Task[None] | None:
        return self.task if self.task is not None and not self.task.done() else None

    def start(self) -> None:
        """Start in the background at a share of the log's threshold; the result is buffered."""
        state, numbers = self.state, self.state.numbers
        if numbers.reflect_from is None or state.phase in RESTING:
            return
        if state.observation_tokens >= numbers.reflect_from:
            self.begin(1)

    def begin(self, level: int, *, whole: bool = False) -> bool:
        """Start at a compression level; False if one is running or buffered, or nothing new can be condensed.

        `whole`: at the user's request the complete log is condensed, however small it is.
        """
        state, numbers = self.state, self.state.numbers
        active = state.window.active
        groups = list(active) if whole else select_groups(active, numbers.reflect_at, state.clock.now())
        tokens = _count_tokens(groups)
        if state.reflection_phase is ReflectionPhase.BACKING_OFF and tokens > state.reflect_above:
            state.signal_reflection(ReflectionSignal.GROWN)
        if state.reflection_phase in (ReflectionPhase.RUNNING, ReflectionPhase.READY) or not groups:
            return False
        is_due = state.reflection_phase is ReflectionPhase.IDLE and tokens >= numbers.reflect_at // 6
        if not whole and not is_due:
            return False
        state.signal_reflection(ReflectionSignal.BEGIN)
        self.task = asyncio.create_task(self._run(groups, level, tokens, state.window.record.corrections))
        self.task.add_done_callback(lambda _task: state.notify())  # the job counts as running until this point
        return True

    async def settle(self, patience: Patience) -> None:
        """Wait before a request for a due reflection, then activate it.

        It waits above `reflect_block_after`, or at the threshold without background work, for no longer than the
        turn's patience.
        """
        state = self.state
        numbers, tokens = state.numbers, state.observation_tokens
        if tokens < numbers.reflect_at or state.phase in RESTING:
            return
        if self.running() is None and state.reflection_phase is not ReflectionPhase.READY and not self.begin(0):
            return
        running = self.running()
        if running is not None and (tokens > numbers.reflect_block_after or numbers.reflect_from is None):
            await patience.wait(running)
            await state.activate_due()

    async def join(self) -> None:
        """Wait until no reflection runs in this process."""
        if (running := self.running()) is not None:
            await asyncio.wait([running])

    async def undo(self, generation: int | None = None) -> ReflectionUndone:
        """Undo a reflection, the newest by default; a running one that is based on it is discarded.

        Raises `MemoryFailure`: not_found, conflict.
        """
        state = self.state
        interval = state.numbers.reflect_at // UNDO_INTERVALS
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
                await state.refresh()  # another window's change is in the log, or buffered
            state.note = operation.report_failure(state, e)
        finally:
            state.signal_reflection(signal)
            state.settle()
            state.notify()

    async def _reflect(self, groups: list[Group], level: int, operation: Operation, corrections: int) -> None:
        state, tokens = self.state, operation.tokens
        window, numbers = state.window, state.numbers
        shown = sum(self.worker.counter.count(share_heads(g.text)) for g in groups)
        rest = state.observation_tokens - shown
        share = state.settings.reflection.buffer_activation if level else 0.5

        least = max(1, int(tokens * LEAST_SHARE))

        before: ReflectionInputs | None = None

        def begin(db: Database) -> None:
            nonlocal before
            ids = [g.id for g in groups]
            memory_store.require_condensable(
                db, window.record.id, ids, corrections
            )  # otherwise the model call would be wasted
            before = self.worker.read_inputs(db, window.record.id, ids)

        async with self.leases.hold(window.record.id, "reflecting", start=begin) as held:
            assert before is not None
            state.failpoint("reflect.begin")
            operation.start(state)
            request = ReflectInput(
                window.thread.id,
                tuple((g.id, g.text) for g in groups if g.text),
                max(least, int(min(numbers.reflect_at - rest, tokens * share))),
                level,
                tuple(before.pinned),
                state.mode,
                limit_tokens=max(least, numbers.reflect_at - rest),
                full=state.observation_tokens >= numbers.reflect_at,
            )
            group, lines = await self.worker.reflect(window.record, groups, request, before, held, operation.cycle_id)
            state.failpoint("reflect.asked")
            await state.move(Add(group, lines, held, corrections=corrections, ends=True), "reflect")
            self.leases.note_end(held)
            operation.end(state, [group])
