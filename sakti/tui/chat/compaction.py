"""Show /compact on the screen: under way, told in the last line, given up with Esc."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sakti.tui.widgets.status import StatusLine


class Compaction:
    """Owns the compaction that is under way."""

    def __init__(self, status_line: StatusLine) -> None:
        self._status_line = status_line
        self._task: asyncio.Task[Any] | None = None

    @property
    def under_way(self) -> bool:
        return self._task is not None

    def stop(self) -> bool:
        """Give it up; False where none is under way."""
        return self._task is not None and self._task.cancel()

    @contextmanager
    def working(self, text: str) -> Generator[None]:
        """Say `text` in the last line as long as the block runs, which `stop` ends."""
        self._status_line.work(text)
        self._task = asyncio.current_task()
        try:
            yield
        finally:
            self._task = None
            self._status_line.work("")
