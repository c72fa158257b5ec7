"""Make ids: UUIDv7 (RFC 9562 section 5.7), which sort by the time they were made."""

from __future__ import annotations

import os
from typing import Protocol

from sakti.core.clock import Clock


class Ids(Protocol):
    def new(self) -> str: ...


class TimeIds:
    """UUIDv7 strings from a clock, strictly increasing within the process even when the clock is not."""

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


def short(identifier: str) -> str:
    """Return the last eight characters, as users see and type an id (its start is only the time)."""
    return identifier[-8:]
