"""Choose among models for one task of memory: the first that takes the input; next on failure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from sakti.core.errors import SaktiError
from sakti.memory.protocol import ObserveInput, Observer, ObserveResult, ReflectInput, Reflector, ReflectResult

log = logging.getLogger(__name__)
Worker = TypeVar("Worker")


class SizedModel(Struct, Generic[Worker], frozen=True):
    """Model with its largest input, `up_to` tokens (None: no limit)."""

    worker: Worker
    up_to: int | None = None


def fitting(choices: Sequence[SizedModel[Worker]], size: int) -> list[Worker]:
    """Return the workers for `size` tokens, in order; if all are too small, the largest."""
    workers = [c.worker for c in choices if c.up_to is None or size <= c.up_to]
    return workers or [max(choices, key=lambda c: c.up_to or 0).worker]


class ChosenObserver:
    def __init__(self, choices: Sequence[SizedModel[Observer]]) -> None:
        self._choices = choices

    @property
    def name(self) -> str:
        return self._choices[0].worker.name

    async def observe(self, request: ObserveInput) -> ObserveResult:
        """Return the first successful worker's observations. Raises as the last one does."""
        *first, last = fitting(self._choices, sum(m.tokens for m in request.messages))
        for observer in first:
            try:
                return await observer.observe(request)
            except SaktiError as e:
                log.info("%s could not observe, the next is asked: %s", observer.name, e.message)
        return await last.observe(request)


class ChosenReflector:
    def __init__(self, choices: Sequence[SizedModel[Reflector]], count: Callable[[str], int]) -> None:
        self._choices, self._count = choices, count

    @property
    def name(self) -> str:
        return self._choices[0].worker.name

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """Return the first successful worker's reflection. Raises as the last one does."""
        *first, last = fitting(self._choices, sum(self._count(text) for _, text in request.groups))
        for reflector in first:
            try:
                return await reflector.reflect(request)
            except SaktiError as e:
                log.info("%s could not reflect, the next is asked: %s", reflector.name, e.message)
        return await last.reflect(request)
