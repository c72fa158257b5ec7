"""Work of the program's own thread in slices: the screen and the model's answer go on between them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")

SLICE = 0.005  # seconds


async def sliced(work: Generator[None, None, T], now: Callable[[], float] = time.thread_time) -> T:
    """What `work` returns; it yields between its steps, each of which should take much less than a slice. `now` gives
    seconds."""
    begun = now()
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        if now() - begun >= SLICE:
            await asyncio.sleep(0)
            begun = now()


def at_once(work: Generator[None, None, T]) -> T:
    """What `work` returns, in one go."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
