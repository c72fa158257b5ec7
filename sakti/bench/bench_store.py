"""Run a store in its caller's thread, with random delays, watched commits and simulated crashes.

After a crash nothing is written any more, as after a kill. One thread, so that the same seed plays the same run and a
step's time includes the database's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import ContextVar
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import Struct

from sakti.bench.charged import Charge
from sakti.core.clock import Clock
from sakti.core.errors import StoreError
from sakti.core.tokens import O200k
from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.database import Store

P = ParamSpec("P")
R = TypeVar("R")
PASSES = (0, 0, 0, 1, 2, 7)  # of the loop by which an answer may be late, at each end


class Killed(BaseException):
    """Simulated end of the process at a failpoint."""


class Act(Struct, frozen=True):
    """Action under way, and its window; `number` grows."""

    window: int
    name: str
    number: int


ACT: ContextVar[Act | None] = ContextVar("act", default=None)  # whoever drives an engine says what for


class Awaited(ThreadPoolExecutor):
    """Executor whose caller waits for the work: what comes first is then the same in each run."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        done = super().submit(fn, *args, **kwargs)
        wait((done,))
        return done


class _SameThread(ThreadPoolExecutor):
    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        done: Future[R] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as e:  # as in a pool: who waits for it is told
            done.set_exception(e)
        return done


class BenchStore(Store):
    """Store of the replay.

    `late`: source of the random delay of each answer (None: no delay). `committed` is called after every transaction
    of an action. `running`: unanswered calls. `charge` is what its work is charged to.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]
        self._writer = _SameThread(1)
        self._reader = _SameThread(1)
        self.late: random.Random | None = None
        self.committed: Callable[[Database, Act], None] = _nobody
        self.dead = False
        self.running: set[asyncio.Future[Any]] = set()
        self.charge = Charge()

    def die(self) -> None:
        """Write nothing from now on."""
        self.dead = True

    async def write(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check()
        heartbeat = fn is leases.renew  # comes by the real clock: chance must not depend on it
        return await self._watched(super().write(fn, *args, **kwargs), late=not heartbeat)

    async def read(self, fn: Callable[Concatenate[Database, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._watched(super().read(fn, *args, **kwargs))

    async def aside(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute something beside the actions: nothing continues until it is done."""
        return await self._watched(asyncio.to_thread(fn, *args, **kwargs))

    def _check(self) -> None:
        if self.dead:
            raise StoreError("The process has ended.", code="closed")

    async def _watched(self, work: Awaitable[R], *, late: bool = True) -> R:
        task = asyncio.ensure_future(self._answer(work, late))
        self.running.add(task)
        task.add_done_callback(self.running.discard)
        return await asyncio.shield(task)

    async def _answer(self, work: Awaitable[R], late: bool) -> R:
        chance = self.late if late else None
        before, after = (chance.choice(PASSES), chance.choice(PASSES)) if chance else (0, 0)
        for _ in range(before):
            await asyncio.sleep(0)
        found = await work
        for _ in range(after):
            await asyncio.sleep(0)
        return found

    def _in_transaction(self, fn: Callable[Concatenate[Database, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        self._check()
        found = super()._in_transaction(fn, *args, **kwargs)
        act = ACT.get()
        if act is not None:
            with self.charge.apart():
                super()._with_reader("_read_db", self.committed, act)
        return found

    def _upkeep(self, seconds: float, idle: bool) -> bool:
        with self.charge.apart():
            return super()._upkeep(seconds, idle)


def _nobody(db: Database, act: Act) -> None:
    """Do nothing: the callback of an unwatched store."""


class BenchClock:
    """Clock that moves only when it is told to, or when something sleeps. Starts on 2026-01-15 12:00 UTC."""

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


class BenchIds:
    """UUIDv7 strings that are the same for the same seed, strictly increasing."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock = clock
        self._source = random.Random(seed)
        self._last = 0

    def new(self) -> str:
        self._last = max(self._clock.now() << 12, self._last + 1)
        value = (self._last >> 12) << 80 | 0x7 << 76 | (self._last & 0xFFF) << 64 | 0b10 << 62
        text = f"{value | self._source.getrandbits(62):032x}"
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class TimedCounter:
    """o200k counter whose work no step is charged with."""

    name = O200k.name
    approximate = False

    def __init__(self, counter: O200k, charge: Charge) -> None:
        self._counter, self._charge = counter, charge

    def count(self, text: str) -> int:
        with self._charge.apart():
            return self._counter.count(text)


class KnownCounter:
    """o200k counter with a cache, for checks, which count the same texts at every step."""

    name = O200k.name
    approximate = False

    def __init__(self, counter: O200k) -> None:
        self._counter = counter
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._counter.count(text)
        return found
