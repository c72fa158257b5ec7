"""Choose the Observer and the Reflector of a session, and replace a model that keeps failing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct, structs

from sakti.core.clock import Clock
from sakti.core.config import MemorySettings
from sakti.core.errors import MemoryFailure, ProviderError, SaktiError
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.memory.model_call import MemoryModel
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.observe.model import ModelObserver
from sakti.memory.protocol import ObserveInput, Observer, ObserveResult, ReflectInput, Reflector, ReflectResult
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.memory.reflect.model import ModelReflector
from sakti.providers.protocol import Provider

Worker = TypeVar("Worker")


class SizedModel(Struct, Generic[Worker], frozen=True):
    """Model with its largest input, `up_to` tokens (None: no limit)."""

    worker: Worker
    up_to: int | None = None


def select_fitting(choices: Sequence[SizedModel[Worker]], size: int) -> list[Worker]:
    """Return the workers for `size` tokens, in order; if all are too small, the largest."""
    workers = [c.worker for c in choices if c.up_to is None or size <= c.up_to]
    return workers or [max(choices, key=lambda c: c.up_to or 0).worker]


class ChosenObserver:
    """Observer that asks the first model that is large enough for the messages, then the next."""

    def __init__(self, choices: Sequence[SizedModel[Observer]]) -> None:
        self._choices = choices

    @property
    def name(self) -> str:
        return self._choices[0].worker.name

    async def observe(self, request: ObserveInput) -> ObserveResult:
        """Return the first successful worker's observations.

        Raises the last worker's error.
        """
        *first, last = select_fitting(self._choices, sum(m.tokens for m in request.messages))
        for observer in first:
            try:
                return await observer.observe(request)
            except SaktiError as e:
                log.info("%s could not observe, trying the next model: %s", observer.name, e.message)
        return await last.observe(request)


class ChosenReflector:
    """Reflector that asks the first model that is large enough for the log, then the next."""

    def __init__(self, choices: Sequence[SizedModel[Reflector]], count: Callable[[str], int]) -> None:
        self._choices, self._count = choices, count

    @property
    def name(self) -> str:
        return self._choices[0].worker.name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """Return the first successful worker's reflection.

        Raises the last worker's error.
        """
        *first, last = select_fitting(self._choices, sum(self._count(text) for _, text in request.groups))
        for reflector in first:
            try:
                return await reflector.reflect(request)
            except SaktiError as e:
                log.info("%s could not reflect, trying the next model: %s", reflector.name, e.message)
        return await last.reflect(request)


EXTRACTIVE = "extractive"


class ModelCandidate(Struct, frozen=True):
    """Candidate model for memory; without a provider, the extractive implementation.

    `up_to`: largest input in tokens, `window`: its context window, None if unknown.
    """

    provider: Provider | None
    model: str | None
    up_to: int | None = None
    window: int | None = None


def build(
    settings: MemorySettings,
    observers: Sequence[ModelCandidate],
    reflectors: Sequence[ModelCandidate],
    *,
    counter: Counter,
    clock: Clock,
    max_output: int | None = None,
) -> tuple[Observer, Reflector]:
    """Build Observer and Reflector from the candidates, each tried in order, the extractive ones last."""
    extractive = ExtractiveObserver(counter), ExtractiveReflector(counter)

    def model_of(one: ModelCandidate, *, observes: bool) -> MemoryModel:
        assert one.provider is not None and one.model is not None
        part = settings.observation if observes else settings.reflection
        most = max_output if one.window is None else min(max_output or one.window, max(1_000, one.window // 4))
        return MemoryModel(one.provider, one.model, counter, clock, settings=part.model_settings, max_output=most)

    def observing(one: ModelCandidate) -> Observer:
        if one.provider is None:
            return extractive[0]
        shown = settings.observation.previous_observer_tokens
        return ModelObserver(model_of(one, observes=True), previous_tokens=shown, window=one.window)

    def reflecting(one: ModelCandidate) -> Reflector:
        if one.provider is None:
            return extractive[1]
        return ModelReflector(model_of(one, observes=False), window=one.window)

    observer: Observer = extractive[0]
    if observers:
        chosen = [SizedModel(observing(c), c.up_to) for c in observers]
        primary = chosen[0].worker if len(chosen) == 1 else ChosenObserver(chosen)
        observer = primary if primary is extractive[0] else FallbackObserver(primary, extractive[0], clock)
    if not reflectors:
        return observer, extractive[1]
    condensing = [SizedModel(reflecting(c), c.up_to) for c in reflectors]
    condenser = condensing[0].worker if len(condensing) == 1 else ChosenReflector(condensing, counter.count)
    if condenser is extractive[1]:
        return observer, extractive[1]
    return observer, FallbackReflector(condenser, extractive[1])


FAILURE_LIMIT = 3
# Codes of failures that waiting does not fix: the model is unavailable.
_UNAVAILABLE = (
    *("authentication", "permission", "not_found", "connection", "refused", "invalid_request"),
    *("context_too_long", "output_too_long", "certificate", "not_a_model", "endless"),
)
KEY = "observer_failures"  # key in a record's metadata
REST_MS = 60 * 60_000  # pause of a model after repeated failures
SLOW_REST_MS = 10 * 60_000  # pause of a model that did not answer in time


class Failures(Struct, frozen=True):
    count: int = 0
    time: int = 0


class FallbackObserver:
    """Observer that calls `model` and falls back to `extractive` after three failures in a row.

    Failures count across processes. After malformed answers, or if the model is unavailable, the thread never uses
    the model again; otherwise it is retried after an hour. Single failures are left to the engine's backoff. A caller
    that stops waiting gets the extractive answer (`stand_in`), and the model rests for ten minutes.
    """

    def __init__(self, model: Observer, extractive: Observer, clock: Clock) -> None:
        self._model, self._extractive, self._clock = model, extractive, clock
        self._malformed = 0
        self._switched = False
        self._failures = Failures()
        self._store: Callable[[Failures], Awaitable[None]] | None = None
        self._calls: dict[str, asyncio.Future[float]] = {}  # by thread; the result is the seconds waited in vain

    @property
    def name(self) -> str:
        return self._extractive.name if self._switched or self._is_resting() else self._model.name

    def load_failures(self, metadata: Mapping[str, Any], store: Callable[[Json], Awaitable[None]]) -> None:
        """Load this model's failures from a record's metadata; `store` saves later ones there."""
        entry: Any = metadata.get(KEY)
        if isinstance(entry, dict) and entry.get("model") == self._model.name:  # pyright: ignore[reportUnknownMemberType]
            stored = cast("Json", entry)
            self._failures = Failures(int(stored.get("count") or 0), int(stored.get("time") or 0))

        async def write(failures: Failures) -> None:
            values = {"model": self._model.name, "count": failures.count, "time": failures.time}
            await store({KEY: values if failures.count else None})

        self._store = write

    async def observe(self, request: ObserveInput) -> ObserveResult:
        if self._switched or self._is_resting():
            return await self._extractive.observe(request)
        try:
            result = await self._ask(request)
        except SaktiError as e:
            await self._count(Failures(self._failures.count + 1, self._clock.now()))
            if not self._should_switch(e):
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
        """Answer a running call without the model, after `waited` seconds; False if none is running."""
        call = self._calls.get(thread_id)
        if call is None or call.done():
            return False
        call.set_result(waited)
        return True

    async def _ask(self, request: ObserveInput) -> ObserveResult | float:
        """Return the model's answer, or the seconds waited if the call was abandoned."""
        answer = asyncio.ensure_future(self._model.observe(request))
        call = self._calls[request.thread_id] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((answer, call), return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else call.result()
        finally:
            answer.cancel()
            del self._calls[request.thread_id]

    def _is_resting(self) -> bool:
        failures = self._failures
        return failures.count >= FAILURE_LIMIT and self._clock.now() - failures.time < REST_MS

    async def _count(self, failures: Failures) -> None:
        changed, self._failures = failures != self._failures, failures
        if changed and self._store is not None:
            await self._store(failures)

    def _should_switch(self, error: SaktiError) -> bool:
        if isinstance(error, MemoryFailure) and error.code == "malformed":
            self._malformed += 1
            self._switched = self._malformed >= FAILURE_LIMIT
        elif isinstance(error, ProviderError) and not error.retryable and error.code in _UNAVAILABLE:
            self._switched = True
        return self._switched or self._is_resting()


class FallbackReflector:
    """Reflector that falls back to the extractive one.

    Three malformed answers in a row make that permanent for the thread.
    """

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


log = logging.getLogger(__name__)
