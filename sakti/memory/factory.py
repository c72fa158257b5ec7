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
    wanted = settings.model or settings.observation.model
    if provider is None or not model_name or not fit or wanted == EXTRACTIVE:
        return extractive
    if window is not None:
        max_output = min(max_output or window, max(1_000, window // 4))
    asker = Asker(
        provider, model_name, counter, clock, settings=settings.observation.model_settings, max_output=max_output
    )
    observer = FallbackObserver(
        ModelObserver(asker, previous_tokens=settings.observation.previous_observer_tokens, window=window),
        extractive[0],
        clock,
    )
    if settings.reflection.model == EXTRACTIVE:
        return observer, extractive[1]
    reflecting = Asker(
        reflector_provider or provider,
        reflector_model or model_name,
        counter,
        clock,
        settings=settings.reflection.model_settings,
        max_output=max_output,
    )
    same = reflector_model is None or (reflector_provider in (None, provider) and reflector_model == model_name)
    return observer, FallbackReflector(ModelReflector(reflecting, window=window if same else None), extractive[1])
