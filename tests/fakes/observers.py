"""Observer and Reflector on one model, for tests and benchmarks."""

from __future__ import annotations

from sakti.core.clock import Clock
from sakti.core.config import MemorySettings
from sakti.core.tokens import Counter
from sakti.memory.factory import EXTRACTIVE, ModelCandidate, build
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.protocol import ObserveInput, Observer, ObserveResult, Reflector
from sakti.providers.protocol import Provider


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


def extract(observer: ExtractiveObserver, request: ObserveInput) -> ObserveResult:
    """What the observer writes, without an event loop."""
    work = observer.steps(request)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
