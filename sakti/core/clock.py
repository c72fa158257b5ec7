"""Define the injected clock: whatever needs the time asks a `Clock`, so tests can move it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Return wall time as Unix milliseconds. It may jump; order never depends on it alone."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, for durations and timeouts."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
