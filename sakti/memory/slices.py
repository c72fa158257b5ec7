"""Run pure computation beside the event loop, or on it in slices that let screen and model run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

SLICE = 0.005  # seconds


class RunAside(Protocol):
    """Runs a function in another thread, as `asyncio.to_thread` does."""

    async def __call__(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...


async def run_in_slices(work: Generator[None, None, T], now: Callable[[], float] = time.thread_time) -> T:
    """Return the result of `work`, giving way to the event loop after each slice.

    `work` yields between its steps, each of which should take much less than a slice. `now` gives seconds.
    """
    begun = now()
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        if now() - begun >= SLICE:
            await asyncio.sleep(0)
            begun = now()


def run_to_end(work: Generator[None, None, T]) -> T:
    """Return the result of `work`, in one go."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
