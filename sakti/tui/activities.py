"""Running activities with their owners; one of them is the download of the small model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import Struct

Progress: TypeAlias = Callable[[int, int, str], None]  # bytes so far, total bytes, current step


class RunningActivity(Struct, eq=False):
    """`name` completes "esc stop …"; `stop` asks it to end, which may take a moment."""

    name: str
    stop: Callable[[], object]
    is_stopping: bool = False


class Activities:
    """Everything that runs and can be stopped, oldest first. `changed` is called when that changes."""

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
    def current_task(self, name: str) -> Generator[None]:
        """Own the current task while the block runs: stopping cancels it."""
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

    def has(self, name: str) -> bool:
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
        self._activities, self._name = activities, name
        self.show: Callable[[str], None] = lambda text: None  # in an open welcome
        self._stop: threading.Event | None = None

    @property
    def is_running(self) -> bool:
        return self._stop is not None

    def stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    async def run(self, install: Callable[[Progress, Callable[[], bool]], object]) -> None:
        """Run `install(progress, is_stopped)` in a thread. Raises `SaktiError`, also if it was stopped."""
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
            self._name("")

    def _show(self, done: int, total: int, what: str) -> None:
        share = f"{done / total:.0%}" if total else ""
        self._name(f"download {share}" if self._stop is not None else "")
        self.show(f"{what}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB  {share}")
