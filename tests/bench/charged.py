"""Charge a replay's steps with what memory and its database compute, and with nothing of the replay itself."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Generator
from typing import Any


class Charge:
    """Adds up the seconds of thread time of all tasks but the one that plays the replay.

    Every task that is created after `install` counts, with what it calls. What a task does `apart` does not.
    """

    def __init__(self) -> None:
        self.cpu = 0.0
        self._running = False

    def install(self) -> None:
        """Charge the tasks that this event loop makes from now on."""

        def make(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
            return asyncio.Task(_Charged(work, self), loop=loop, **more)

        asyncio.get_running_loop().set_task_factory(make)

    @contextlib.contextmanager
    def apart(self) -> Generator[None]:
        """Leave out what the block does; nothing is charged outside of tasks anyway."""
        started, running = time.thread_time(), self._running
        try:
            yield
        finally:
            if running:
                self.cpu -= time.thread_time() - started

    @contextlib.contextmanager
    def charged(self) -> Generator[None]:
        """Charge what the block does."""
        started, self._running = time.thread_time(), True
        try:
            yield
        finally:
            self._running = False
            self.cpu += time.thread_time() - started


class _Charged(Coroutine[Any, Any, Any]):
    """A coroutine each of whose steps is charged."""

    def __init__(self, work: Coroutine[Any, Any, Any], charge: Charge) -> None:
        self._work, self._charge = work, charge

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()

    def send(self, value: Any, /) -> Any:
        with self._charge.charged():
            return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        with self._charge.charged():
            return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()
