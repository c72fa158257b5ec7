"""A model first, code when it fails for good: memory never ends in a dead end."""

from __future__ import annotations

import dataclasses

from sakti.core.errors import MemoryFailure, ProviderError, SaktiError
from sakti.memory.protocol import (
    ObserveInput,
    Observer,
    ObserveResult,
    ReflectInput,
    Reflector,
    ReflectResult,
)

MALFORMED_LIMIT = 3
# Failures that waiting does not mend: the model is not to be had.
_GONE = (
    *("authentication", "not_found", "connection", "refused", "invalid_request", "context_too_long"),
    *("output_too_long", "certificate", "not_a_model", "endless"),
)


class FallbackObserver:
    """Asks `model`; three malformed answers in a row, or a model that cannot be had, and `extractive` takes
    over for this thread's life. Anything transient is left to the engine's own backoff."""

    def __init__(self, model: Observer, extractive: Observer) -> None:
        self._model, self._extractive = model, extractive
        self._malformed = 0
        self._switched = False

    @property
    def name(self) -> str:
        return self._extractive.name if self._switched else self._model.name

    async def observe(self, request: ObserveInput) -> ObserveResult:
        if self._switched:
            return await self._extractive.observe(request)
        try:
            result = await self._model.observe(request)
        except SaktiError as e:
            if not self._gives_up(e):
                raise
            self._switched = True
            return dataclasses.replace(
                await self._extractive.observe(request),
                note=f"{self._model.name} cannot observe ({e.message}) "
                "From now on observations are extracted without a model.",
            )
        self._malformed = 0
        return result

    def _gives_up(self, error: SaktiError) -> bool:
        if isinstance(error, MemoryFailure) and error.code == "malformed":
            self._malformed += 1
            return self._malformed >= MALFORMED_LIMIT
        return isinstance(error, ProviderError) and not error.retryable and error.code in _GONE


class FallbackReflector:
    """A reflection that a model cannot give is made by code; after three malformed ones in a row the model is not asked
    again in this thread's life."""

    def __init__(self, model: Reflector, extractive: Reflector) -> None:
        self._model, self._extractive = model, extractive
        self._malformed = 0

    @property
    def name(self) -> str:
        return self._extractive.name if self._malformed >= MALFORMED_LIMIT else self._model.name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        if self._malformed >= MALFORMED_LIMIT:
            return await self._extractive.reflect(request)
        try:
            result = await self._model.reflect(request)
        except SaktiError as e:
            if isinstance(e, ProviderError) and e.retryable:
                raise
            malformed = isinstance(e, MemoryFailure) and e.code == "malformed"
            self._malformed = self._malformed + 1 if malformed else 0
            switched = " From now on logs are condensed without a model." if self._malformed >= MALFORMED_LIMIT else ""
            note = f"{e.message} The log was condensed without a model.{switched}"
            return dataclasses.replace(await self._extractive.reflect(request), note=note)
        self._malformed = 0
        return result
