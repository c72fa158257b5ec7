"""Refuse settings that contradict each other, naming both; `fields` checks single values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from sakti.core.config.fields import (
    EVENTS,
    Config,
    HookSettings,
    MemorySettings,
    ModelSettings,
    ObservationSettings,
    ReflectionSettings,
    resolve_event_name,
)
from sakti.core.errors import ConfigError
from sakti.core.text import quote

# Fields of a request's body that only sakti may set.
_NOT_EXTRA = ("messages", "input", "system", "instructions", "model", "stream")


def parse_model_choices(value: str | tuple[str, ...] | None) -> tuple[tuple[str, int | None], ...]:
    """Parse a setting that names one model or several into pairs (model, largest input in tokens).

    None as the second value means no limit. Raises `ConfigError` for a limit that is not a positive number.
    """
    out: list[tuple[str, int | None]] = []
    for text in (value,) if isinstance(value, str) else value or ():
        name, sep, limit = (part.strip() for part in text.partition("<="))
        digits = limit.replace("_", "").replace(",", "")
        if not name or (sep and not (digits.isdecimal() and int(digits) > 0)):
            raise ConfigError(
                f'{quote(text)} is not a model; write "provider/name", or "provider/name <= 20_000" (tokens).'
            )
        out.append((name, int(digits) if sep else None))
    return tuple(out)


def check(config: Config) -> None:
    """Raise `ConfigError` for the first contradiction."""
    for provider, settings in config.providers.items():
        _check_extra(f"providers.{provider}.extra", settings.extra)
    _check_memory(config.memory)
    for number, hook in enumerate(config.hooks, 1):
        if why := explain_wrong_hook(hook):
            raise ConfigError(f"hooks[{number}]: {why}")


def explain_wrong_hook(hook: HookSettings) -> str:
    """Return the error in a hook's settings, or ""."""
    if not resolve_event_name(hook.event):
        near = difflib.get_close_matches(hook.event, EVENTS, 1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(EVENTS)}."
        return f"there is no event {quote(hook.event)}. {hint}"
    if not hook.command.strip():
        return "command is empty."
    if not hook.timeout > 0:
        return f"timeout = {hook.timeout:g} must be above 0 seconds."
    try:
        re.compile(hook.match)
    except re.error as e:
        return "" if hook.match == "*" else f"match = {quote(hook.match)} is not a valid pattern: {e}."
    return ""


def _check_memory(memory: MemorySettings) -> None:
    observation, reflection = memory.observation, memory.reflection
    if memory.working_memory.schema is not None and memory.working_memory.template is not None:
        raise ConfigError(
            "memory.working_memory.schema and memory.working_memory.template are both set: a page with a schema is "
            "JSON, a template is Markdown; keep one of them."
        )
    for name, settings in (("observation", observation), ("reflection", reflection)):
        parse_model_choices(settings.model)
        if memory.model is not None and settings.model is not None:
            raise ConfigError(
                f"memory.model and memory.{name}.model are both set: memory.model sets both roles, keep one of them."
            )
        _check_model_settings(f"memory.{name}.model_settings", settings.model_settings)
    _check_observation(observation)
    _check_block_after("observation", observation, observation.message_tokens)
    _check_block_after("reflection", reflection, reflection.observation_tokens)


def _check_observation(observation: ObservationSettings) -> None:
    buffer, keep = observation.buffer_tokens, observation.buffer_activation
    if buffer is not False:
        resolved = buffer * observation.message_tokens if 0 < buffer < 1 else buffer
        if not 0 < resolved < observation.message_tokens:
            raise ConfigError(
                f"memory.observation.buffer_tokens = {buffer} must be less than "
                f"memory.observation.message_tokens = {observation.message_tokens}, and more than 0."
            )
    if not (0 < keep <= 1 or keep >= 1000):
        raise ConfigError(
            f"memory.observation.buffer_activation = {keep} must be a share (0 to 1) or at least 1000 tokens to keep."
        )
    if keep >= observation.message_tokens:
        raise ConfigError(
            f"memory.observation.buffer_activation = {keep} keeps more than "
            f"memory.observation.message_tokens = {observation.message_tokens} lets in."
        )


def _check_block_after(name: str, settings: ObservationSettings | ReflectionSettings, threshold: int) -> None:
    value = settings.block_after
    if value < 1 or 100 <= value < threshold:
        raise ConfigError(
            f"memory.{name}.block_after = {value} must be a factor from 1 to 100 or at least the threshold of "
            f"{threshold} tokens."
        )


def _check_extra(name: str, extra: Mapping[str, Any]) -> None:
    for key in _NOT_EXTRA:
        if key in extra:
            raise ConfigError(f"{name} may not set {quote(key)}: sakti sets that field itself.")


def _check_model_settings(name: str, settings: ModelSettings) -> None:
    _check_extra(f"{name}.extra", settings.extra)
    if settings.thinking_tokens is not None and settings.thinking_tokens >= settings.max_output_tokens:
        raise ConfigError(
            f"{name}.thinking_tokens = {settings.thinking_tokens} must be less than "
            f"{name}.max_output_tokens = {settings.max_output_tokens}, 0 for none."
        )
