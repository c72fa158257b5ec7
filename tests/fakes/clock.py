"""A clock that moves only when it is told to, or when something sleeps."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Starts at 2026-01-15 12:00 UTC. `slept` records every wait."""

    def __init__(self, now: int = 1_768_478_400_000) -> None:
        self.time = now
        self.slept: list[float] = []

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000

    def advance(self, seconds: float) -> None:
        self.time += round(seconds * 1000)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)
