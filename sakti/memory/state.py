"""Memory of one open thread: its window, as last loaded, and its phases.

Memory itself only changes in the store (`sakti.store.memory.advance`): `MemoryState.move` commits one move and
reloads the window. `MemoryState.settle` then derives the phases from the stored rows, so that every window of a
thread is in the phase that the database implies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct

from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure, StoreError
from sakti.core.events import Event, MemoryActivation, Notice, ThreadChanged
from sakti.core.tokens import Counter
from sakti.core.types import Json, Message
from sakti.memory import policy
from sakti.memory.context import ContextBuilder
from sakti.memory.log import dates
from sakti.memory.phases import (
    LIMITED,
    REFLECTION_TRANSITIONS,
    TRANSITIONS,
    Phase,
    ReflectionPhase,
    ReflectionSignal,
    Signal,
)
from sakti.memory.protocol import RunAside
from sakti.memory.window import Window, load
from sakti.store import memory as memory_store
from sakti.store.database import Database, Store
from sakti.store.memory import Activate, Group, Move, MoveResult
from sakti.store.threads import threads

FailpointHook: TypeAlias = Callable[[str], None]

# Points at which a process may die during memory's work: the commit boundaries. Benchmarks and tests inject a hook
# that is called at each and may end the engine there. `begin`: the work is announced and its input is sealed;
# `asked`: the model has answered, nothing is stored; `written`: inside the uncommitted transaction; `committed`:
# stored, but the window in memory is not updated; `observed`: a compaction is observed, but not recorded.
FAILPOINTS: tuple[str, ...] = (
    "buffer.begin",
    "buffer.asked",
    "buffer.written",
    "buffer.committed",
    "observe.begin",
    "observe.asked",
    "observe.written",
    "observe.committed",
    "activate.written",
    "activate.committed",
    "reflect.begin",
    "reflect.asked",
    "reflect.written",
    "reflect.committed",
    "compact.observed",
    "compact.written",
    "compact.committed",
    "uncompact.written",
    "uncompact.committed",
    "unreflect.written",
    "unreflect.committed",
    "edit.written",
    "edit.committed",
)


def ignore_failpoint(name: str) -> None:
    """Do nothing: the default hook."""


PATIENCE_S = 10.0  # most seconds to wait for an observation in another window; then the request goes without it
TURN_WAIT_S = 14.0  # most seconds to wait for the Observer and Reflector in one turn


class MemoryServices(Struct, frozen=True):
    """Collaborators of one thread's memory; clock and ids are the store's.

    `aside` runs pure computation beside the event loop. `failpoint` is called at each of `FAILPOINTS`.
    """

    store: Store
    counter: Counter
    emit: Callable[[Event], None]
    aside: RunAside = asyncio.to_thread
    failpoint: FailpointHook = ignore_failpoint


class MemoryOptions(Struct, frozen=True, kw_only=True):
    """Options of one thread's memory.

    `goal` is that of a sub-agent. `owner` names the engine in leases. `reason`: why this Observer was chosen.
    `page_of`: the workspace whose page is read, None for the thread's. `patience`: seconds to wait for another
    window's work; `turn_wait`: seconds that a turn waits for models of memory.
    """

    settings: MemorySettings
    mode: str = "default"
    timezone: str = ""
    goal: str = ""
    owner: str = ""
    reason: str = ""
    page_of: str | None = None
    patience: float = PATIENCE_S
    turn_wait: float = TURN_WAIT_S


T = TypeVar("T")
Trigger: TypeAlias = Literal["threshold", "idle", "provider_change"]


# A backlog starts at this multiple of `block_after`: then the thread catches up in the background.
BACKLOG_FACTOR = 2


class MemoryState:
    """Memory of one open thread: its window, as last loaded, and its phases.

    `notify` is called after every change, for the status. `prompts` are the user's messages of the running turn.
    """

    def __init__(
        self,
        services: MemoryServices,
        options: MemoryOptions,
        builder: ContextBuilder,
        window: Window,
        notify: Callable[[], None],
    ) -> None:
        self.store, self.counter, self.emit = services.store, services.counter, services.emit
        self.clock, self.ids, self.failpoint = services.store.clock, services.store.ids, services.failpoint
        self.settings, self.mode, self.goal = options.settings, options.mode, options.goal
        self.builder, self.window, self.notify = builder, window, notify
        self.timezone = options.timezone or window.record.observed_timezone
        self.budget: int | None = None
        self.prompts: list[Message] = []
        self.note = ""
        self.has_warned = False
        self.is_late: Callable[[], bool] = lambda: False  # whether a job exceeded a turn's wait and is still running
        self.phase = Phase.IDLE
        self.reflection_phase = ReflectionPhase.IDLE
        self.retry = policy.Backoff()
        self.reflect_above = 0  # input tokens of a failed reflection: retried only when the log is larger
        self._lock = asyncio.Lock()
        self._today = (-1, 0)
        self._numbers: tuple[tuple[int, int | None], policy.Numbers] | None = None

    # --- figures ------------------------------------------------------------------------------------------

    @property
    def today(self) -> int:
        minute = self.clock.now() // policy.MINUTE
        if self._today[0] != minute:  # days begin with a minute in every zone; called many times per step
            self._today = minute, dates.get_noon(self.clock.now(), self.timezone)
        return self._today[1]

    @property
    def observation_tokens(self) -> int:
        """Return the tokens of the log as sent today."""
        return self.builder.tokens(self.window.active, self.today)

    @property
    def numbers(self) -> policy.Numbers:
        """Return the thresholds in force at this size of the log."""
        state = (self.observation_tokens, self.budget)
        if self._numbers is None or self._numbers[0] != state:  # called many times per step
            self._numbers = state, policy.compute_effective_numbers(self.settings, *state)
        return self._numbers[1]

    @property
    def is_paused(self) -> bool:
        """Return whether the user paused this memory, in any window."""
        return memory_store.PAUSED in self.window.record.metadata

    @property
    def is_suspended(self) -> bool:
        """Return whether less than one interval has become pending since a compaction was undone."""
        hold = self.window.thread.metadata.get(threads.HOLD)
        return hold is not None and self.window.pending < hold

    def is_full(self) -> bool:
        """Return whether messages or log have reached their threshold."""
        numbers = self.numbers
        return self.window.pending >= numbers.threshold or self.observation_tokens >= numbers.reflect_at

    @property
    def message_limit(self) -> int | None:
        """Return the most message tokens per request while there is a backlog; None for no limit."""
        limited = self.phase in LIMITED or self.is_late()
        if self.phase is Phase.SUSPENDED:
            limited = bool(self.window.thread.metadata.get(threads.HOLD_LIMITED))
        return BACKLOG_FACTOR * self.numbers.block_after if limited else None

    def warn_once(self, text: str) -> None:
        """Warn the user of a failing Observer or Reflector, once until it works again."""
        if not self.has_warned:
            self.has_warned = True
            self.emit(Notice("warning", "Memory", text))

    # --- phases -------------------------------------------------------------------------------------------

    def signal(self, signal: Signal) -> None:
        self.phase = TRANSITIONS[self.phase][signal]

    def signal_reflection(self, signal: ReflectionSignal) -> None:
        self.reflection_phase = REFLECTION_TRANSITIONS[self.reflection_phase][signal]

    def settle(self) -> None:
        """Derive the phases from the stored and pending messages; a running wait takes precedence."""
        self._settle_reflection()
        if self.phase is Phase.WAITING:
            return
        if self.is_paused:
            if self.phase is not Phase.PAUSED:
                self.signal(Signal.PAUSE)
            return
        self._settle_rest()
        if self.phase is Phase.CATCHING_UP and self.window.pending <= self.numbers.block_after:
            self.signal(Signal.CAUGHT_UP)
        if self.phase is Phase.BACKING_OFF and self.retry.due(self.window.pending, self.clock.now()):
            self.signal(Signal.RETRY)
            self.detect_backlog()

    def detect_backlog(self) -> None:
        """Start catching up if far more is pending than fits a request.

        Called when a thread is opened, resumed or retried, and when the suspension after an undo ends.
        """
        if self.phase is Phase.IDLE and self.window.pending > BACKLOG_FACTOR * self.numbers.block_after:
            self.signal(Signal.OVERFLOW)

    def _settle_rest(self) -> None:
        """End a pause; begin or end the suspension after an undo."""
        if self.phase is Phase.PAUSED:
            self.signal(Signal.RESUME)
            self.detect_backlog()
        if self.is_suspended and self.phase is not Phase.SUSPENDED:
            self.signal(Signal.SUSPEND)
        elif self.phase is Phase.SUSPENDED and not self.is_suspended:
            self.signal(Signal.GROWN)
            self.detect_backlog()

    def _is_reflection_suspended(self) -> bool:
        """Return whether the log has not grown enough since a reflection was undone."""
        hold = self.window.record.metadata.get(memory_store.HOLD_REFLECTION)
        return hold is not None and sum(g.observation_tokens for g in self.window.active) < hold

    def _settle_reflection(self) -> None:
        phase, stored = self.reflection_phase, self.window.reflection is not None
        if phase is ReflectionPhase.RUNNING:
            return
        if stored and phase is not ReflectionPhase.READY:
            self.signal_reflection(ReflectionSignal.DONE)
        elif not stored and phase is ReflectionPhase.READY:
            self.signal_reflection(ReflectionSignal.GONE)
        suspended = self._is_reflection_suspended()
        if suspended and self.reflection_phase in (ReflectionPhase.IDLE, ReflectionPhase.BACKING_OFF):
            self.signal_reflection(ReflectionSignal.SUSPEND)
        elif self.reflection_phase is ReflectionPhase.SUSPENDED and not suspended:
            self.signal_reflection(ReflectionSignal.GROWN)

    # --- the store ----------------------------------------------------------------------------------------

    async def move(self, move: Move, point: str, trigger: Trigger | None = None) -> MoveResult:
        """Commit one move and reload the window.

        `point` names its failpoints; with a `trigger` the move is reported as an activation. Raises `MemoryFailure`
        if the store refuses, with the window reloaded, and `StoreError` if it cannot write.
        """
        async with self._lock:
            return await self._move(move, point, trigger)

    async def try_move(self, move: Move, point: str, trigger: Trigger | None = None) -> MoveResult | None:
        """Commit a move like `move`, but only report a failure: memory never ends a turn."""
        try:
            return await self.move(move, point, trigger)
        except MemoryFailure:
            return None  # another window was first; its changes are in the window now
        except StoreError as e:
            self.emit(Notice("warning", e.title, e.message))
            return None

    async def _move(self, move: Move, point: str, trigger: Trigger | None) -> MoveResult:
        old = self.window

        def write(db: Database) -> tuple[MoveResult, Window]:
            done = memory_store.advance(db, old.record.id, old.thread.id, move, self.clock.now())
            self.failpoint(f"{point}.written")
            return done, load(db, old)

        before = len(old.messages)
        try:
            done, fresh = await self.store.write(write)
        except MemoryFailure:
            await self._load()
            self.notify()
            raise
        self.failpoint(f"{point}.committed")
        self._replace_window(fresh)
        if done.retitled is not None:
            self.emit(ThreadChanged(done.retitled))
        if trigger is not None:
            self._report_activation(done, trigger, before - len(self.window.messages))
        self.notify()
        return done

    async def write(self, work: Callable[[Database], T], point: str) -> T:
        """Commit the user's changes of the log and reload it."""
        async with self._lock:
            old = self.window
            done, fresh = await self.store.write(lambda db: (work(db), load(db, old)))
            self.failpoint(f"{point}.committed")
            self._replace_window(fresh)
            self.notify()
        return done

    async def read(self, work: Callable[[Database], T]) -> T:
        """Read from the store while no move of this window is running, so that both are consistent."""
        async with self._lock:
            return await self.store.read(work)

    async def refresh(self) -> bool:
        """Load what other windows changed, and return whether they did.

        If the database cannot be read, the window stays as it is.
        """
        async with self._lock:
            window = self.window
            try:
                now = await self.store.read(memory_store.read_revision, window.record.id, window.thread.id)
                if now == window.revision:
                    return False
                await self._load()
            except StoreError as e:
                self.emit(Notice("warning", e.title, e.message))
            self.notify()
            return True

    async def _load(self) -> None:
        self._replace_window(await self.store.read(load, self.window))

    def _replace_window(self, fresh: Window) -> None:
        """Replace the window by a fresh one; messages stored during the read are added to it."""
        for message in self.window.messages:
            fresh.add(message)
        self.window = fresh
        self.settle()

    def _report_activation(self, done: MoveResult, trigger: Trigger, removed_messages: int) -> None:
        groups = (*done.groups, done.reflection) if done.reflection else done.groups
        cycle = groups[0].cycle_id if groups else ""
        if done.groups:
            self.emit(self._make_activation("observation", cycle, done.groups, trigger, removed_messages))
        if done.reflection:
            self.emit(self._make_activation("reflection", cycle, (done.reflection,), trigger, 0))

    def _make_activation(
        self,
        kind: Literal["observation", "reflection"],
        cycle: str,
        groups: Sequence[Group],
        trigger: Trigger,
        removed_messages: int,
    ) -> MemoryActivation:
        return MemoryActivation(
            cycle,
            kind,
            self.window.record.id,
            (self.window.thread.id,),
            trigger,
            self.clock.now(),
            len(groups),
            sum(g.message_tokens for g in groups),
            sum(g.observation_tokens for g in groups),
            removed_messages,
            self.window.record.generation_count,
            "\n".join(g.text for g in groups if g.text),
            self.describe_settings(),
        )

    # --- activation ---------------------------------------------------------------------------------------

    async def activate_due(self, trigger: Trigger = "threshold") -> bool:
        """Activate buffered groups while the threshold is reached; calls no model."""
        done = False
        while True:
            async with self._lock:  # the groups chosen here are moved, whatever is buffered meanwhile
                move, revision = self._choose_activation(trigger), self.window.record.revision
                if move is None:
                    return done
                self.notify()  # so that the moved projection is the current one
                moved = await self._try_to_activate(move, trigger)
                if not moved and self.window.record.revision == revision:
                    return done
            if not moved:
                continue  # another window was first: choose again from the current groups
            done = True
            if trigger != "threshold":
                return done

    async def _try_to_activate(self, move: Activate, trigger: Trigger) -> bool:
        try:
            moved = await self._move(move, "activate", trigger)
        except MemoryFailure:
            return False
        except StoreError as e:
            self.emit(Notice("warning", e.title, e.message))
            return False
        return bool(moved.groups or moved.reflection)

    def _count_due_groups(self, ready: Sequence[Group], trigger: Trigger) -> int:
        """Return how many of the finished groups enter the log now."""
        numbers, pending = self.numbers, self.window.pending
        if not ready or (pending < numbers.threshold and trigger == "threshold"):
            return 0
        sizes = [g.message_tokens for g in ready]
        return policy.choose_boundary(sizes, numbers.activation, numbers.threshold, pending)

    def _choose_activation(self, trigger: Trigger) -> Activate | None:
        """Return the groups to activate now, and whether to activate the reflection; None after an undo."""
        if self.is_suspended:
            return None
        numbers, window = self.numbers, self.window
        ready = window.ready()
        count = self._count_due_groups(ready, trigger)
        condense = False
        if self.reflection_phase is ReflectionPhase.READY:  # it enters with the groups that fill the log, in one move
            log = [*window.active, *ready[:count]] if count else window.active
            condense = self.builder.tokens(log, self.today) >= numbers.reflect_at
        if not count and not condense:
            return None
        return Activate(tuple(g.id for g in ready[:count]), condense, window.record.revision)

    async def activate_ready(self, upto: int | None = None, into: list[Group] | None = None) -> None:
        """Activate all buffered groups that begin no later than index `upto`, for a caller that waits.

        The activated groups are added to `into`.
        """
        ready = [g for g in self.window.ready() if upto is None or (g.first_index or 0) <= upto]

        async def activate() -> None:
            done = await self.try_move(Activate(tuple(g.id for g in ready)), "activate", "threshold")
            if done is not None and into is not None:
                into.extend(done.groups)

        if ready:
            await finish_commit(activate())

    # --- events -------------------------------------------------------------------------------------------

    def describe_settings(self) -> Json:
        """Describe the settings in force, for the events of an operation."""
        numbers = self.numbers
        return {
            "message_tokens": numbers.threshold,
            "buffer_tokens": numbers.buffer or False,
            "buffer_activation": numbers.activation,
            "block_after": numbers.block_after,
            "observation_tokens": numbers.reflect_at,
            "scope": self.window.record.scope,
            "mode": self.mode,
        }


async def finish_commit(work: Coroutine[Any, Any, T]) -> T:
    """Finish a commit that has begun, with its follow-up, before the caller is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait([task])
        raise
