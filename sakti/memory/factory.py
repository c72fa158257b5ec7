"""Choose the Observer and the Reflector of a session."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from sakti.core.clock import Clock
from sakti.core.config import MemorySettings
from sakti.core.errors import SaktiError
from sakti.core.tokens import Counter
from sakti.memory.fallback import FallbackObserver, FallbackReflector
from sakti.memory.model_call import MemoryModel
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.observe.model import ModelObserver
from sakti.memory.protocol import ObserveInput, Observer, ObserveResult, ReflectInput, Reflector, ReflectResult
from sakti.memory.reflect.extractive import ExtractiveReflector
from sakti.memory.reflect.model import ModelReflector
from sakti.providers.protocol import Provider

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


EXTRACTIVE = "extractive"


class ModelCandidate(Struct, frozen=True):
    """Model that may work for memory; without a provider, the extractive implementation.

    `up_to`: largest input in tokens, `window`: its context window, None where unknown.
    """

    provider: Provider | None
    model: str | None
    up_to: int | None = None
    window: int | None = None


def build_observers(
    settings: MemorySettings,
    provider: Provider | None,
    model_name: str | None,
    fit: bool,
    *,
    counter: Counter,
    clock: Clock,
    reflector_provider: Provider | None = None,
    reflector_model: str | None = None,
    window: int | None = None,
    max_output: int | None = None,
) -> tuple[Observer, Reflector]:
    """Return Observer and Reflector on `model_name` of `provider`.

    The Reflector may have its own pair. They are extractive where there is no model, it is not fit to observe, or the
    settings say "extractive".

    `window` and `max_output` are the model's, in tokens, None where unknown.
    """
    model_setting = settings.model or settings.observation.model
    observes = provider is not None and bool(model_name) and fit and model_setting != EXTRACTIVE
    observers = (ModelCandidate(provider, model_name, None, window),) if observes else ()
    # a Reflector that is named reflects, whoever observes; one that is not goes with the Observer
    named = settings.reflection.model
    reflecting = (reflector_provider or provider, reflector_model or model_name)
    reflects = named != EXTRACTIVE and bool(observes or named) and None not in reflecting
    same = reflecting == (provider, model_name)
    reflectors = (ModelCandidate(*reflecting, None, window if same else None),) if reflects else ()
    return build(settings, observers, reflectors, counter=counter, clock=clock, max_output=max_output)


def build(
    settings: MemorySettings,
    observers: Sequence[ModelCandidate],
    reflectors: Sequence[ModelCandidate],
    *,
    counter: Counter,
    clock: Clock,
    max_output: int | None = None,
) -> tuple[Observer, Reflector]:
    """Return Observer and Reflector of the candidates, each tried in order, extractive ones last."""
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
