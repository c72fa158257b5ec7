"""Find the processors that the settings name: built-in guards, and those of installed packages.

A package offers one by an entry point in the group `sakti.processors`: a class without arguments, a function that
returns a processor, or a plain step hook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any

from sakti.agent.processors.base import FromFunction, Processor
from sakti.agent.processors.builtin import (
    MessageHistory,
    PromptInjectionGuard,
    SecretRedactor,
    ToolCallFilter,
    ToolSearch,
    UnicodeNormalizer,
)
from sakti.core.errors import ConfigError
from sakti.core.text import quote, to_one_line

GROUP = "sakti.processors"
BUILT_IN: dict[str, Callable[[], Processor]] = {
    "unicode_normalizer": UnicodeNormalizer,
    "prompt_injection_guard": PromptInjectionGuard,
    "secret_redactor": SecretRedactor,
    "tool_call_filter": ToolCallFilter,
    "message_history": MessageHistory,
    "tool_search": ToolSearch,
}


def load(names: Sequence[str]) -> tuple[Processor, ...]:
    """Return new processors by name, in order.

    Raises `ConfigError` for one that does not exist or cannot be made.
    """
    return tuple(_make(name) for name in names)


def _make(name: str) -> Processor:
    if name in BUILT_IN:
        return BUILT_IN[name]()
    offered = {point.name: point for point in metadata.entry_points(group=GROUP)}
    if name not in offered:
        names = ", ".join([*BUILT_IN, *sorted(offered)])
        raise ConfigError(f"processors: there is no processor {quote(name, 60)}; there are {names}.")
    try:
        factory: Any = offered[name].load()
        processor: Any = factory() if isinstance(factory, type) or not _is_hook(factory) else FromFunction(factory)
    except Exception as e:
        why = f"{type(e).__name__}: {to_one_line(str(e), 200)}"
        raise ConfigError(f"processors: {quote(name)} of {offered[name].value} cannot be loaded: {why}") from e
    if not isinstance(processor, Processor):
        raise ConfigError(f"processors: {quote(name)} of {offered[name].value} is not a processor.")
    return processor


def _is_hook(function: Any) -> bool:
    """Return whether a function takes a step; one without arguments makes a processor."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_argcount > 0
