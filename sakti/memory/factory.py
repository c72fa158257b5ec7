"""Which Observer and Reflector a session gets."""

from __future__ import annotations

from sakti.core.clock import Clock
from sakti.core.config import MemorySettings
from sakti.core.tokens import Counter
from sakti.memory.asking import Asker
from sakti.memory.condensing import ExtractiveReflector
from sakti.memory.extractive import ExtractiveObserver
from sakti.memory.fallback import FallbackObserver, FallbackReflector
from sakti.memory.observer import ModelObserver
from sakti.memory.protocol import Observer, Reflector
from sakti.memory.reflector import ModelReflector
from sakti.providers.protocol import Provider

EXTRACTIVE = "extractive"


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
    """Observer and Reflector on `model_name` of `provider` (the Reflector on its own pair where one is
    given), or extractive ones where there is no model, it is not fit to observe, or the settings say
    "extractive".

    `window` and `max_output` are the model's, in tokens, None where they are not known.
    """
    extractive = ExtractiveObserver(counter), ExtractiveReflector(counter)
    if window is not None:
        max_output = min(max_output or window, max(1_000, window // 4))
    wanted = settings.model or settings.observation.model
    observes = provider is not None and model_name and fit and wanted != EXTRACTIVE
    observer: Observer = extractive[0]
    if provider is not None and model_name and observes:
        told = settings.observation
        asker = Asker(provider, model_name, counter, clock, settings=told.model_settings, max_output=max_output)
        asked = ModelObserver(asker, previous_tokens=told.previous_observer_tokens, window=window)
        observer = FallbackObserver(asked, extractive[0], clock)
    # a Reflector that is named reflects, whoever observes; one that is not goes with the Observer
    named = settings.reflection.model
    if named == EXTRACTIVE or not (observes or named):
        return observer, extractive[1]
    reflecting, name = reflector_provider or provider, reflector_model or model_name
    if reflecting is None or not name:
        return observer, extractive[1]
    asker = Asker(reflecting, name, counter, clock, settings=settings.reflection.model_settings, max_output=max_output)
    same = (reflecting, name) == (provider, model_name)
    return observer, FallbackReflector(ModelReflector(asker, window=window if same else None), extractive[1])
