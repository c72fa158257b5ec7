"""Running activities with their owners, and the one that the status line shows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias, assert_never

from msgspec import Struct, field

from sakti.core.events import (
    AgentFinished,
    AgentProgress,
    AgentStarted,
    ApprovalRequested,
    ApprovalResolved,
    CompactionFinished,
    Event,
    JobsChanged,
    McpServerChanged,
    MemoryActivation,
    MemoryOperation,
    MemoryStatus,
    MessageSaved,
    ModelChanged,
    Notice,
    PromptRead,
    QueueChanged,
    RetryScheduled,
    SideQuestion,
    StaleLeases,
    StepDiscarded,
    StepFinished,
    StepStarted,
    StoreWaiting,
    TasksChanged,
    TextDelta,
    ThinkingDelta,
    ThreadChanged,
    ToolCallDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from sakti.core.text import to_one_line
from sakti.core.types import display_name

Progress: TypeAlias = Callable[[int, int, str], None]  # bytes so far, total bytes, current step


class RunningActivity(Struct, eq=False):
    """`name` completes "esc stop …"; `stop` asks it to end, which may take a moment."""

    name: str
    stop: Callable[[], object]
    is_stopping: bool = False


class Activities:
    """Running activities that can be stopped, oldest first. `changed` is called when the list changes."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._running: list[RunningActivity] = []
        self._changed = changed

    def begin(self, name: str, stop: Callable[[], object]) -> RunningActivity:
        activity = RunningActivity(name, stop)
        self._running.append(activity)
        self._changed()
        return activity

    def end(self, activity: RunningActivity | None) -> None:
        if activity in self._running:
            self._running.remove(activity)
            self._changed()

    @contextmanager
    def own_current_task(self, name: str) -> Generator[None]:
        """Register the current task while the block runs; stopping the activity cancels it."""
        task = asyncio.current_task()
        activity = self.begin(name, task.cancel if task is not None else bool)
        try:
            yield
        finally:
            self.end(activity)

    @property
    def names(self) -> list[str]:
        """Return the activities that have not been stopped yet, oldest first."""
        return [a.name for a in self._running if not a.is_stopping]

    def newest_name(self, *, stopping: bool) -> str:
        """Return the newest activity that is, or is not, `stopping`; "" without one."""
        return next((a.name for a in reversed(self._running) if a.is_stopping == stopping), "")

    def is_running(self, name: str) -> bool:
        return any(a.name == name for a in self._running)

    def stop_newest(self) -> str:
        """Stop the newest activity that is not already stopping; returns its name, or ""."""
        newest = next((a for a in reversed(self._running) if not a.is_stopping), None)
        if newest is None:
            return ""
        newest.is_stopping = True
        newest.stop()
        self._changed()
        return newest.name


class Download:
    """Download of the small model's weights; it continues when the welcome is closed."""

    def __init__(self, activities: Activities, name: Callable[[str], None]) -> None:
        self._activities, self._set_status = activities, name
        self.show: Callable[[str], None] = lambda text: None  # in an open welcome
        self._stop: threading.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._stop is not None

    def stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    async def run(self, install: Callable[[Progress, Callable[[], bool]], object]) -> None:
        """Run `install(progress, is_stopped)` in a thread. Raises `SaktiError` if it failed or was stopped."""
        stop = self._stop = threading.Event()
        activity = self._activities.begin("download", stop.set)
        loop = asyncio.get_running_loop()

        def progress(done: int, total: int, what: str) -> None:
            loop.call_soon_threadsafe(self._show, done, total, what)

        try:
            await asyncio.to_thread(install, progress, stop.is_set)
        finally:
            stop.set()  # the window is closing
            self._stop = None
            self._activities.end(activity)
            self._set_status("")

    def _show(self, done: int, total: int, what: str) -> None:
        share = f"{done / total:.0%}" if total else ""
        self._set_status(f"download {share}" if self._stop is not None else "")
        self.show(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB  {share}")


ActivityKind: TypeAlias = Literal["waiting", "running", "retrying", "thinking", "answering"]


class ActivityState(Struct, frozen=True):
    """`since`: monotonic time of the start in seconds; for a retry, of the next attempt."""

    kind: ActivityKind
    text: str
    since: float


class ActivityTracker(Struct):
    """Tracks a turn and the commands that the user runs beside it."""

    _turn: ActivityState | None = None
    _retry: ActivityState | None = None
    _tools: dict[str, ActivityState] = field(default_factory=dict[str, ActivityState])
    _user_calls: set[str] = field(default_factory=set[str])  # the user's own calls, which outlast a turn
    _questions: dict[str, ActivityState] = field(default_factory=dict[str, ActivityState])

    def handle_event(self, event: Event, now: float) -> bool:
        """Update the state from `event`, which arrived at `now`; return whether it may have changed."""
        match event:
            case TurnStarted() | StepStarted() | ThinkingDelta() | PromptRead():
                self._start_thinking(event, now)
            case TextDelta():
                return self._start_answering(now)
            case RetryScheduled(attempt, limit, delay, reason):
                text = f"{attempt}/{limit} · {to_one_line(reason, 120)}"
                self._retry = ActivityState("retrying", text, now + delay)
            case ToolStarted(call, own):
                self._retry = None
                self._tools[call.id] = ActivityState("running", to_one_line(display_name(call.name), 40), now)
                if own:
                    self._user_calls.add(call.id)
            case ToolFinished(result):
                self._end_tool(result.call_id, now)
            case ApprovalRequested():
                self._questions[event.id] = ActivityState("waiting", event.call_id, now)
            case ApprovalResolved():
                self._questions.pop(event.id, None)
                if (tool := self._tools.get(event.call_id)) is not None:
                    self._tools[event.call_id] = ActivityState("running", tool.text, now)
            case TurnFinished():
                self._turn = self._retry = None
                self._questions.clear()
                self._tools = {i: s for i, s in self._tools.items() if i in self._user_calls}
            case (
                ToolCallDelta() | ToolOutput() | MessageSaved() | StepFinished() | StepDiscarded() | QueueChanged()
                | ThreadChanged() | AgentStarted() | AgentProgress() | AgentFinished() | ModelChanged()
                | TasksChanged() | StoreWaiting() | Notice() | MemoryStatus() | StaleLeases() | MemoryOperation()
                | MemoryActivation() | CompactionFinished() | SideQuestion() | JobsChanged()
                | McpServerChanged()
            ):  # fmt: skip
                return False
            case _:
                assert_never(event)
        return True

    def _end_tool(self, call_id: str, now: float) -> None:
        """Remove a finished call; after the last call of a step, the model is asked again."""
        self._tools.pop(call_id, None)
        if call_id not in self._user_calls and self._turn is not None:
            self._turn = ActivityState("thinking", "thinking", now)
        self._user_calls.discard(call_id)

    def _start_thinking(self, event: TurnStarted | StepStarted | ThinkingDelta | PromptRead, now: float) -> None:
        if isinstance(event, StepStarted | ThinkingDelta):
            self._retry = None
        if isinstance(event, PromptRead):
            label = f"reading the prompt {event.percent} %" if event.percent < 100 else "thinking"
            self._turn = ActivityState("thinking", label, self._turn.since if self._turn else now)
        elif not isinstance(event, ThinkingDelta) or self._turn is None or self._turn.kind == "answering":
            self._turn = ActivityState("thinking", "thinking", now)

    def _start_answering(self, now: float) -> bool:
        if self._turn is not None and self._turn.kind == "answering" and self._retry is None:
            return False
        self._turn, self._retry = ActivityState("answering", "answering", now), None
        return True

    @property
    def state(self) -> ActivityState | None:
        """Return the most important current state, or None when idle."""
        if self._questions:
            return ActivityState("waiting", "waiting for you", min(s.since for s in self._questions.values()))
        if self._retry is not None:
            return self._retry
        if self._tools:
            first = min(self._tools.values(), key=lambda s: s.since)
            more = f" and {len(self._tools) - 1} more" if len(self._tools) > 1 else ""
            return ActivityState("running", f"running {first.text}{more}", first.since)
        return self._turn
