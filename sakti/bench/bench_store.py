"""A store whose work is measured, and which can die: after that nothing is written any more, as after a kill."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from sakti.core.errors import StoreError
from sakti.core.tokens import O200k
from sakti.store.connection import Database
from sakti.store.database import Store

P = ParamSpec("P")
R = TypeVar("R")


class Killed(BaseException):
    """The process died at a failpoint."""


class BenchStore(Store):
    """`cpu`: seconds of thread time that the database threads took. `running`: what they have not answered."""

    cpu = 0.0
    writes = 0
    dead = False
    running: set[asyncio.Future[Any]]

    def die(self) -> None:
        """Nothing is written from here on."""
        self.dead = True

    async def write(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check()
        return await self._watched(super().write(fn, *args, **kwargs))

    async def read(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._watched(super().read(fn, *args, **kwargs))

    def _check(self) -> None:
        if self.dead:
            raise StoreError("The process has ended.", code="closed")

    async def _watched(self, work: Any) -> Any:
        if "running" not in self.__dict__:
            self.running = set()
        task = asyncio.ensure_future(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return await asyncio.shield(task)

    def _in_transaction(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._check()
        started = time.thread_time()
        self.writes += 1
        try:
            return super()._in_transaction(fn, *args, **kwargs)
        finally:
            self.cpu += time.thread_time() - started

    def _with_reader(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        started = time.thread_time()
        try:
            return super()._with_reader(fn, *args, **kwargs)
        finally:
            self.cpu += time.thread_time() - started


class BenchClock:
    """Moves only when it is told to, or when something sleeps. Starts on 2026-01-15 12:00 UTC."""

    def __init__(self) -> None:
        self.time = 1_768_478_400_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000

    def advance(self, ms: int) -> None:
        self.time += ms

    async def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))
        await asyncio.sleep(0)


class TimedCounter:
    """o200k, with the seconds of thread time that counting took in `cpu`."""

    name = O200k.name
    approximate = False

    def __init__(self, counter: O200k) -> None:
        self._counter = counter
        self.cpu = 0.0

    def count(self, text: str) -> int:
        started = time.thread_time()
        try:
            return self._counter.count(text)
        finally:
            self.cpu += time.thread_time() - started
