"""Define the state machine of memory: its phases and transitions, and the state of one open thread.

A thread's observation is in one `Phase`, the reflection on its log in one `ReflectionPhase`; `TRANSITIONS` and
`REFLECTION_TRANSITIONS` are all that can happen to them. `MemoryState.settle` follows what is stored (paused, held
after an undo, a buffered reflection) after every load, so that every window of a thread is in the phase that the
database implies.

Memory itself changes in the store alone (`sakti.store.memory.advance`): `MemoryState.move` commits one move and
reloads the window. There is no second copy of a transition here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
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
from sakti.memory.slices import RunAside
from sakti.memory.window import Window, load
from sakti.store import memory as memory_store
from sakti.store.database import Database, Store
from sakti.store.memory import Activate, Group, Move, MoveResult
from sakti.store.threads import threads

FailpointHook: TypeAlias = Callable[[str], None]

# Points at which a process may die in the middle of memory's work: the commit boundaries. Benchmarks and tests inject a
# hook that is called at each and may end the engine there. `begin`: the work is announced and its input is sealed;
# `asked`: the model has answered, nothing is stored; `written`: inside the transaction, which has not committed;
# `committed`: stored, the window in memory is not updated; `observed`: a compaction is observed, but not recorded.
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


PATIENCE_S = 10.0  # for what another window observes; then the request goes with what there is
TURN_WAIT_S = 14.0  # for models of memory in one turn


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
    """How the memory of one thread works.

    `goal` is a sub-agent's. `owner` names the engine in leases. `reason`: why this Observer. `page_of`: the workspace
    whose page is read, None for the thread's. `patience`: seconds to wait for another window's work; `turn_wait`:
    seconds that a turn waits for models of memory.
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


class Phase(StrEnum):
    """Phase of a thread's observation."""

    IDLE = "idle"  # nothing runs; crossing an interval begins a background observation
    BUFFERING = "buffering"  # a background observation runs, the chat goes on
    WAITING = "waiting"  # a step or the user waits for an observation
    HELD = "held"  # after the user's undo: nothing by itself until one more interval is pending
    PAUSED = "paused"  # the user paused it: nothing by itself, the newest messages that fit are sent
    CATCHING_UP = "catching up"  # far more is pending than a request takes: oldest first, in the background
    BACKING_OFF = "backing off"  # it failed: tried again when more was said or some time has passed


class Signal(StrEnum):
    BUFFER = "a background observation begins"
    WAIT = "somebody waits for an observation"
    DONE = "the observation ended, or was given up"
    FAILED = "the observation failed"
    RETRY = "the time to try again has come"
    OVERFLOW = "far more is pending than a request takes"
    CAUGHT_UP = "what is pending fits again"
    HOLD = "the user undid a compaction"
    GROWN = "one more interval is pending"
    PAUSE = "the user paused"
    RESUME = "the user resumed"


TRANSITIONS: Mapping[Phase, Mapping[Signal, Phase]] = {
    Phase.IDLE: {
        Signal.BUFFER: Phase.BUFFERING,
        Signal.WAIT: Phase.WAITING,
        Signal.DONE: Phase.IDLE,  # the slice that ran when it was paused, and resumed meanwhile
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.OVERFLOW: Phase.CATCHING_UP,
        Signal.HOLD: Phase.HELD,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.BUFFERING: {
        Signal.WAIT: Phase.WAITING,
        Signal.DONE: Phase.IDLE,
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.HOLD: Phase.HELD,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.WAITING: {
        Signal.WAIT: Phase.WAITING,
        Signal.DONE: Phase.IDLE,
        Signal.FAILED: Phase.BACKING_OFF,
    },
    Phase.HELD: {
        Signal.WAIT: Phase.WAITING,  # by hand
        Signal.DONE: Phase.HELD,  # what ran when it began
        Signal.FAILED: Phase.HELD,
        Signal.GROWN: Phase.IDLE,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.PAUSED: {
        Signal.WAIT: Phase.WAITING,  # by hand
        Signal.DONE: Phase.PAUSED,  # the slice that ran when it began
        Signal.FAILED: Phase.PAUSED,
        Signal.RESUME: Phase.IDLE,
    },
    Phase.CATCHING_UP: {
        Signal.BUFFER: Phase.CATCHING_UP,
        Signal.WAIT: Phase.WAITING,  # by hand
        Signal.DONE: Phase.CATCHING_UP,
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.CAUGHT_UP: Phase.IDLE,
        Signal.HOLD: Phase.HELD,
        Signal.PAUSE: Phase.PAUSED,
    },
    Phase.BACKING_OFF: {
        Signal.WAIT: Phase.WAITING,  # by hand
        Signal.DONE: Phase.BACKING_OFF,
        Signal.FAILED: Phase.BACKING_OFF,
        Signal.RETRY: Phase.IDLE,
        Signal.HOLD: Phase.HELD,
        Signal.PAUSE: Phase.PAUSED,
    },
}

# Phases in which memory does nothing to a thread by itself, and those in which a step never waits for it.
RESTING = frozenset({Phase.HELD, Phase.PAUSED})
NEVER_WAITS = frozenset({Phase.HELD, Phase.PAUSED, Phase.CATCHING_UP, Phase.BACKING_OFF})
# Phases in which not all that is pending is sent. After an undo it is as it was before the compaction.
LIMITED = NEVER_WAITS - {Phase.HELD}


class ReflectionPhase(StrEnum):
    """Phase of the reflection on the log."""

    IDLE = "idle"  # from its share of the threshold on a background reflection begins
    RUNNING = "running"  # a reflection is being made
    READY = "ready"  # it is stored and enters the log when that reaches its threshold
    HELD = "held"  # after the user's undo: nothing by itself until the log has grown by one more interval
    BACKING_OFF = "backing off"  # it failed: tried again when the log has grown


class ReflectionSignal(StrEnum):
    BEGIN = "a reflection begins"
    DONE = "it is stored"
    FAILED = "it failed"
    GONE = "it entered the log, or the log outran it"
    HOLD = "the user undid a reflection"
    GROWN = "the log has grown"


REFLECTION_TRANSITIONS: Mapping[ReflectionPhase, Mapping[ReflectionSignal, ReflectionPhase]] = {
    ReflectionPhase.IDLE: {
        ReflectionSignal.BEGIN: ReflectionPhase.RUNNING,
        ReflectionSignal.DONE: ReflectionPhase.READY,  # another window's
        ReflectionSignal.HOLD: ReflectionPhase.HELD,
    },
    ReflectionPhase.RUNNING: {
        ReflectionSignal.DONE: ReflectionPhase.READY,
        ReflectionSignal.FAILED: ReflectionPhase.BACKING_OFF,
        ReflectionSignal.GONE: ReflectionPhase.IDLE,
    },
    ReflectionPhase.READY: {
        ReflectionSignal.GONE: ReflectionPhase.IDLE,
    },
    ReflectionPhase.HELD: {
        ReflectionSignal.BEGIN: ReflectionPhase.RUNNING,  # by hand
        ReflectionSignal.DONE: ReflectionPhase.READY,
        ReflectionSignal.GROWN: ReflectionPhase.IDLE,
    },
    ReflectionPhase.BACKING_OFF: {
        ReflectionSignal.BEGIN: ReflectionPhase.RUNNING,  # by hand
        ReflectionSignal.DONE: ReflectionPhase.READY,
        ReflectionSignal.GROWN: ReflectionPhase.IDLE,
        ReflectionSignal.HOLD: ReflectionPhase.HELD,
    },
}

# A thread with more than so many times `block_after` pending is caught up with in the background.
BACKLOG_FACTOR = 2


class MemoryState:
    """Memory of one open thread: its window, as last loaded, and its phases.

    `changed` is called after every change, for the status. `prompts` are the user's messages of the running turn.
    """

    def __init__(
        self,
        services: MemoryServices,
        options: MemoryOptions,
        builder: ContextBuilder,
        window: Window,
        changed: Callable[[], None],
    ) -> None:
        self.store, self.counter, self.emit = services.store, services.counter, services.emit
        self.clock, self.ids, self.failpoint = services.store.clock, services.store.ids, services.failpoint
        self.settings, self.mode, self.goal = options.settings, options.mode, options.goal
        self.builder, self.window, self.changed = builder, window, changed
        self.timezone = options.timezone or window.record.observed_timezone
        self.budget: int | None = None
        self.prompts: list[Message] = []
        self.note = ""
        self.has_warned = False
        self.is_late: Callable[[], bool] = lambda: False  # whether a model of memory kept a turn waiting and still runs
        self.phase = Phase.IDLE
        self.reflection_phase = ReflectionPhase.IDLE
        self.retry = policy.Backoff()
        self.reflect_above = 0  # input tokens of a reflection that failed: not tried again until it has grown
        self._lock = asyncio.Lock()
        self._today = (-1, 0)
        self._numbers: tuple[tuple[int, int | None], policy.Numbers] | None = None

    # --- figures ------------------------------------------------------------------------------------------

    @property
    def today(self) -> int:
        minute = self.clock.now() // policy.MINUTE
        if self._today[0] != minute:  # days begin with a minute, in every zone; asked for many times a step
            self._today = minute, dates.noon(self.clock.now(), self.timezone)
        return self._today[1]

    def observation_tokens(self) -> int:
        return self.builder.tokens(self.window.active, self.today)

    def numbers(self) -> policy.Numbers:
        state = (self.observation_tokens(), self.budget)
        if self._numbers is None or self._numbers[0] != state:  # asked for many times a step
            self._numbers = state, policy.effective_numbers(self.settings, *state)
        return self._numbers[1]

    @property
    def is_paused(self) -> bool:
        """Return whether the user paused this memory, in any window."""
        return memory_store.PAUSED in self.window.record.metadata

    @property
    def is_held(self) -> bool:
        """Return whether an undone compaction still holds back memory, paused or not.

        It does until one more interval is pending.
        """
        hold = self.window.thread.metadata.get(threads.HOLD)
        return hold is not None and self.window.pending < hold

    def full(self) -> bool:
        """Return whether messages or log have reached their threshold."""
        numbers = self.numbers()
        return self.window.pending >= numbers.threshold or self.observation_tokens() >= numbers.reflect_at

    def room(self) -> int | None:
        """Return the most message tokens per request while memory is behind; None for no limit."""
        limited = self.phase in LIMITED or self.is_late()
        if self.phase is Phase.HELD:
            limited = bool(self.window.thread.metadata.get(threads.HOLD_LIMITED))
        return BACKLOG_FACTOR * self.numbers().block_after if limited else None

    def warn_once(self, text: str) -> None:
        """Show a failure of a model of memory to the user, once until it works again."""
        if not self.has_warned:
            self.has_warned = True
            self.emit(Notice("warning", "Memory", text))

    # --- phases -------------------------------------------------------------------------------------------

    def signal(self, signal: Signal) -> None:
        self.phase = TRANSITIONS[self.phase][signal]

    def signal_reflection(self, signal: ReflectionSignal) -> None:
        self.reflection_phase = REFLECTION_TRANSITIONS[self.reflection_phase][signal]

    def settle(self) -> None:
        """Update the phases from stored and pending messages; a running wait takes precedence."""
        self._settle_reflection()
        if self.phase is Phase.WAITING:
            return
        if self.is_paused:
            if self.phase is not Phase.PAUSED:
                self.signal(Signal.PAUSE)
            return
        self._settle_rest()
        if self.phase is Phase.CATCHING_UP and self.window.pending <= self.numbers().block_after:
            self.signal(Signal.CAUGHT_UP)
        if self.phase is Phase.BACKING_OFF and self.retry.due(self.window.pending, self.clock.now()):
            self.signal(Signal.RETRY)
            self.overflow()

    def overflow(self) -> None:
        """Start catching up if far more is pending than a request takes.

        Checked when a thread is opened, resumed, retried or no longer held.
        """
        if self.phase is Phase.IDLE and self.window.pending > BACKLOG_FACTOR * self.numbers().block_after:
            self.signal(Signal.OVERFLOW)

    def _settle_rest(self) -> None:
        """End a pause, and begin or end the hold after an undo."""
        if self.phase is Phase.PAUSED:
            self.signal(Signal.RESUME)
            self.overflow()
        if self.is_held and self.phase is not Phase.HELD:
            self.signal(Signal.HOLD)
        elif self.phase is Phase.HELD and not self.is_held:
            self.signal(Signal.GROWN)
            self.overflow()

    def _is_reflection_held(self) -> bool:
        """Return whether an undone reflection still holds back the next: until the log has grown."""
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
        held = self._is_reflection_held()
        if held and self.reflection_phase in (ReflectionPhase.IDLE, ReflectionPhase.BACKING_OFF):
            self.signal_reflection(ReflectionSignal.HOLD)
        elif self.reflection_phase is ReflectionPhase.HELD and not held:
            self.signal_reflection(ReflectionSignal.GROWN)

    # --- the store ----------------------------------------------------------------------------------------

    async def move(self, move: Move, point: str, trigger: Trigger | None = None) -> MoveResult:
        """Commit one move and reload the window.

        `point` names its failpoints; with a `trigger` it is reported as an activation. Raises `MemoryFailure` where
        the store refuses, with the window reloaded, and `StoreError` where it cannot write.
        """
        async with self._lock:
            return await self._move(move, point, trigger)

    async def try_move(self, move: Move, point: str, trigger: Trigger | None = None) -> MoveResult | None:
        """Commit a move as `move` does, but only report a failure: memory never ends a turn."""
        try:
            return await self.move(move, point, trigger)
        except MemoryFailure:
            return None  # another window was first; what it did is in the window now
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
            self.changed()
            raise
        self.failpoint(f"{point}.committed")
        self._show(fresh)
        if done.retitled is not None:
            self.emit(ThreadChanged(done.retitled))
        if trigger is not None:
            self._tell(done, trigger, before - len(self.window.messages))
        self.changed()
        return done

    async def write(self, work: Callable[[Database], T], point: str) -> T:
        """Commit the user's changes of the log and reload it."""
        async with self._lock:
            old = self.window
            done, fresh = await self.store.write(lambda db: (work(db), load(db, old)))
            self.failpoint(f"{point}.committed")
            self._show(fresh)
            self.changed()
        return done

    async def read(self, work: Callable[[Database], T]) -> T:
        """Read from the store while no move of this window is running, so that the two are consistent."""
        async with self._lock:
            return await self.store.read(work)

    async def refresh(self) -> bool:
        """Load what other windows changed, and return whether they did.

        If the database cannot be read the window stays as it is.
        """
        async with self._lock:
            window = self.window
            try:
                now = await self.store.read(memory_store.revision, window.record.id, window.thread.id)
                if now == window.revision:
                    return False
                await self._load()
            except StoreError as e:
                self.emit(Notice("warning", e.title, e.message))
            self.changed()
            return True

    async def _load(self) -> None:
        self._show(await self.store.read(load, self.window))

    def _show(self, fresh: Window) -> None:
        """Put a window that was read from the store in the place of the present one."""
        for message in self.window.messages:  # made durable while it was read
            fresh.add(message)
        self.window = fresh
        self.settle()

    def _tell(self, done: MoveResult, trigger: Trigger, gone: int) -> None:
        kinds: list[tuple[Literal["observation", "reflection"], tuple[Group, ...]]] = [
            ("observation", done.groups),
            ("reflection", (done.reflection,) if done.reflection else ()),
        ]
        cycle = next((g.cycle_id for _, groups in kinds for g in groups), "")
        for kind, groups in kinds:
            if groups:
                self.emit(
                    MemoryActivation(
                        cycle,
                        kind,
                        self.window.record.id,
                        (self.window.thread.id,),
                        trigger,
                        self.clock.now(),
                        len(groups),
                        sum(g.message_tokens for g in groups),
                        sum(g.observation_tokens for g in groups),
                        gone if kind == "observation" else 0,
                        self.window.record.generation_count,
                        "\n".join(g.text for g in groups if g.text),
                        self.snapshot(),
                    )
                )

    # --- activation ---------------------------------------------------------------------------------------

    async def activate_due(self, trigger: Trigger = "threshold") -> bool:
        """Activate buffered groups while their threshold is reached; calls no model."""
        done = False
        while True:
            async with self._lock:  # the groups chosen here are moved, whatever is buffered meanwhile
                move, revision = self._due(trigger), self.window.record.revision
                if move is None:
                    return done
                self.changed()  # the current projection is moved
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

    def _count_due(self, ready: Sequence[Group], trigger: Trigger) -> int:
        """Return how many of the finished groups enter the log now."""
        numbers, pending = self.numbers(), self.window.pending
        if not ready or (pending < numbers.threshold and trigger == "threshold"):
            return 0
        sizes = [g.message_tokens for g in ready]
        return policy.choose_boundary(sizes, numbers.activation, numbers.threshold, pending)

    def _due(self, trigger: Trigger) -> Activate | None:
        """Return the groups to activate now, and whether to activate the reflection; None after an undo."""
        if self.is_held:
            return None
        numbers, window = self.numbers(), self.window
        ready = window.ready()
        count = self._count_due(ready, trigger)
        condense = False
        if self.reflection_phase is ReflectionPhase.READY:  # it enters with the groups that fill the log, in one move
            log = [*window.active, *ready[:count]] if count else window.active
            condense = self.builder.tokens(log, self.today) >= numbers.reflect_at
        if not count and not condense:
            return None
        return Activate(tuple(g.id for g in ready[:count]), condense, window.record.revision)

    async def activate_ready(self, upto: int | None = None, into: list[Group] | None = None) -> None:
        """Activate every buffered group that begins up to index `upto`, for a caller that waits.

        `into` gets the groups activated.
        """
        ready = [g for g in self.window.ready() if upto is None or (g.first_index or 0) <= upto]

        async def activate() -> None:
            done = await self.try_move(Activate(tuple(g.id for g in ready)), "activate", "threshold")
            if done is not None and into is not None:
                into.extend(done.groups)

        if ready:
            await finish_commit(activate())

    # --- telling ------------------------------------------------------------------------------------------

    def snapshot(self) -> Json:
        """Return the settings in force, for the events of an operation."""
        numbers = self.numbers()
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
