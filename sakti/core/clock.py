"""Define the injected clock and ids made from it, so that tests can move time."""

from __future__ import annotations

import asyncio
import os
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


class Ids(Protocol):
    def new(self) -> str: ...


class TimeIds:
    """UUIDv7 strings from a clock, strictly increasing within the process even if the clock jumps back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> str:
        # 48 bits of milliseconds, then 12 bits that count within the millisecond
        stamp = max(self._clock.now() << 12, self._last + 1)
        self._last = stamp
        tail = int.from_bytes(os.urandom(8), "big") & ((1 << 62) - 1)
        value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62 | tail
        text = f"{value:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def read_id_time(identifier: str) -> int:
    """Return when an id of `TimeIds` was made (Unix ms)."""
    return int(identifier.replace("-", "")[:12], 16)


def shorten_id(identifier: str) -> str:
    """Return the last eight characters, as users see and type an id (its start is only the time)."""
    return identifier[-8:]
