"""Work that only computes: beside the program's own thread, or on it in slices, between which the screen and the
model's answer go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SLICE = 0.005  # seconds


class Aside(Protocol):
    """Runs a function beside the program's own thread, as `asyncio.to_thread` does."""

    async def __call__(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


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
