"""A model first, code when it fails for good: memory never ends in a dead end."""

from __future__ import annotations

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
_GONE = ("authentication", "not_found", "connection", "refused", "invalid_request", "context_too_long")


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
            return _with_note(
                await self._extractive.observe(request),
                f"{self._model.name} cannot observe ({e.message}) "
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
    """As `FallbackObserver`, for one call at a time: a reflection that a model cannot give is made by
    code."""

    def __init__(self, model: Reflector, extractive: Reflector) -> None:
        self._model, self._extractive = model, extractive

    @property
    def name(self) -> str:
        return self._model.name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        try:
            return await self._model.reflect(request)
        except SaktiError as e:
            if isinstance(e, ProviderError) and e.retryable:
                raise
            result = await self._extractive.reflect(request)
            return ReflectResult(
                result.text,
                result.current_task,
                result.suggested_response,
                result.model,
                result.prompt_hash,
                result.level,
                result.calls,
                f"{e.message} The log was condensed without a model.",
            )


def _with_note(result: ObserveResult, note: str) -> ObserveResult:
    return ObserveResult(
        result.text,
        result.current_task,
        result.suggested_response,
        result.title,
        result.model,
        result.prompt_hash,
        result.calls,
        note,
    )
