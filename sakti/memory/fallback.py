"""Fall back to the extractive implementation when a model fails for good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from msgspec import Struct, structs

from sakti.core.clock import Clock
from sakti.core.errors import MemoryFailure, ProviderError, SaktiError
from sakti.core.types import Json
from sakti.memory.protocol import (
    ObserveInput,
    Observer,
    ObserveResult,
    ReflectInput,
    Reflector,
    ReflectResult,
)

FAILURE_LIMIT = 3
# Failures that waiting does not mend: the model is not to be had.
_GONE = (
    *("authentication", "permission", "not_found", "connection", "refused", "invalid_request"),
    *("context_too_long", "output_too_long", "certificate", "not_a_model", "endless"),
)


KEY = "observer_failures"  # in a record's metadata
REST_MS = 60 * 60_000  # so long a model that failed again and again is not asked
SLOW_REST_MS = 10 * 60_000  # and one that was waited for in vain


class Failures(Struct, frozen=True):
    """Consecutive failures of a model, and the time of the last (Unix ms)."""

    count: int = 0
    time: int = 0


class FallbackObserver:
    """Observer that calls `model` and falls back to `extractive` after three failures in a row.

    Failures count across processes. The fallback lasts for the thread's life after malformed answers or where the
    model is unavailable, else for an hour. Single failures are left to the engine's backoff. A caller that waits no
    longer for an answer gets the extractive one (`stand_in`), and the model rests for ten minutes.
    """

    def __init__(self, model: Observer, extractive: Observer, clock: Clock) -> None:
        self._model, self._extractive, self._clock = model, extractive, clock
        self._malformed = 0
        self._switched = False
        self._failures = Failures()
        self._keep: Callable[[Failures], Awaitable[None]] | None = None
        self._calls: dict[str, asyncio.Future[float]] = {}  # by thread: set to the seconds that were waited in vain

    @property
    def name(self) -> str:
        return self._extractive.name if self._switched or self._rests() else self._model.name

    def remember(self, metadata: Mapping[str, Any], keep: Callable[[Json], Awaitable[None]]) -> None:
        """Load this model's failures from a record's metadata, and `keep` later ones there."""
        known: Any = metadata.get(KEY)
        if isinstance(known, dict) and known.get("model") == self._model.name:  # pyright: ignore[reportUnknownMemberType]
            said = cast("Json", known)
            self._failures = Failures(int(said.get("count") or 0), int(said.get("time") or 0))

        async def write(failures: Failures) -> None:
            values = {"model": self._model.name, "count": failures.count, "time": failures.time}
            await keep({KEY: values if failures.count else None})

        self._keep = write

    async def observe(self, request: ObserveInput) -> ObserveResult:
        if self._switched or self._rests():
            return await self._extractive.observe(request)
        try:
            result = await self._ask(request)
        except SaktiError as e:
            await self._count(Failures(self._failures.count + 1, self._clock.now()))
            if not self._gives_up(e):
                raise
            until = "From now on" if self._switched else "For the next hour"
            return structs.replace(
                await self._extractive.observe(request),
                note=f"{self._model.name} cannot observe ({e.message}) "
                f"{until} observations are extracted without a model.",
            )
        if not isinstance(result, ObserveResult):
            await self._count(Failures(FAILURE_LIMIT, self._clock.now() - REST_MS + SLOW_REST_MS))
            return structs.replace(
                await self._extractive.observe(request),
                note=f"{self._model.name} has not answered for {result:g} seconds. For the next ten minutes "
                "observations are extracted without a model.",
            )
        self._malformed = 0
        await self._count(Failures())
        return result

    def stand_in(self, thread_id: str, waited: float) -> bool:
        """Answer a running call without the model, after `waited` seconds; False if none runs."""
        call = self._calls.get(thread_id)
        if call is None or call.done():
            return False
        call.set_result(waited)
        return True

    async def _ask(self, request: ObserveInput) -> ObserveResult | float:
        """Return the model's answer, or the seconds after which nobody waits for it any longer."""
        answer = asyncio.ensure_future(self._model.observe(request))
        call = self._calls[request.thread_id] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((answer, call), return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else call.result()
        finally:
            answer.cancel()
            del self._calls[request.thread_id]

    def _rests(self) -> bool:
        failures = self._failures
        return failures.count >= FAILURE_LIMIT and self._clock.now() - failures.time < REST_MS

    async def _count(self, failures: Failures) -> None:
        changed, self._failures = failures != self._failures, failures
        if changed and self._keep is not None:
            await self._keep(failures)

    def _gives_up(self, error: SaktiError) -> bool:
        if isinstance(error, MemoryFailure) and error.code == "malformed":
            self._malformed += 1
            self._switched = self._malformed >= FAILURE_LIMIT
        elif isinstance(error, ProviderError) and not error.retryable and error.code in _GONE:
            self._switched = True
        return self._switched or self._rests()


class FallbackReflector:
    """Reflector that falls back to the extractive one; after three malformed answers in a row for the thread's life."""

    def __init__(self, model: Reflector, extractive: Reflector) -> None:
        self._model, self._extractive = model, extractive
        self._malformed = 0

    @property
    def name(self) -> str:
        return self._extractive.name if self._malformed >= FAILURE_LIMIT else self._model.name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        if self._malformed >= FAILURE_LIMIT:
            return await self._extractive.reflect(request)
        try:
            result = await self._model.reflect(request)
        except SaktiError as e:
            if isinstance(e, ProviderError) and e.retryable:
                raise
            malformed = isinstance(e, MemoryFailure) and e.code == "malformed"
            self._malformed = self._malformed + 1 if malformed else 0
            switched = " From now on logs are condensed without a model." if self._malformed >= FAILURE_LIMIT else ""
            note = f"{e.message} The log was condensed without a model.{switched}"
            return structs.replace(await self._extractive.reflect(request), note=note)
        self._malformed = 0
        return result
