"""Read a mode's memory settings: `prompts/modes/<mode>.md`, numbers in front matter, named parts."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from functools import lru_cache

from msgspec import Struct

from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.resources import has_prompt, read_prompt

DEFAULT = "default"


class ModeNumbers(Struct, frozen=True):
    """Thresholds in tokens for observing, reflecting and buffering; messages sent with memory off."""

    message_tokens: int = 30_000
    observation_tokens: int = 40_000
    buffer_tokens: int = 6_000
    last_messages: int = 10


@lru_cache(maxsize=64)
def numbers(mode: str) -> ModeNumbers:
    """Return the numbers of a mode; the default mode's if it has none."""
    name = f"modes/{mode}"
    return ModeNumbers(**tomllib.loads(read_prompt(name).strip("+"))) if has_prompt(name) else ModeNumbers()


def prompt(mode: str, name: str) -> str:
    """Return a part of a mode's prompts, else the default mode's, else an empty text."""
    for each in (mode, DEFAULT):
        if has_prompt(f"modes/{each}#{name}"):
            return read_prompt(f"modes/{each}#{name}")
    return ""


@lru_cache(maxsize=64)
def sections(mode: str) -> tuple[str, ...]:
    """Return the sections that a mode's Observer writes beside the observations: the tags in its `output`."""
    return tuple(dict.fromkeys(re.findall(r"^<([a-z][a-z-]*)>", prompt(mode, "output"), re.MULTILINE)))


def settings_for(settings: MemorySettings, mode: str) -> MemorySettings:
    """Return the settings with the mode's numbers in place of those left at their defaults."""
    if mode == DEFAULT:
        return settings
    row, observation, reflection = numbers(mode), settings.observation, settings.reflection
    usual, usual_reflection = ObservationSettings(), ReflectionSettings()
    if observation.message_tokens == usual.message_tokens:
        observation = replace(observation, message_tokens=row.message_tokens)
        if observation.buffer_tokens == usual.buffer_tokens:
            observation = replace(observation, buffer_tokens=row.buffer_tokens)
    if reflection.observation_tokens == usual_reflection.observation_tokens:
        reflection = replace(reflection, observation_tokens=row.observation_tokens)
    return replace(settings, observation=observation, reflection=reflection)


def last_messages(settings: MemorySettings, mode: str) -> int:
    return settings.last_messages if settings.last_messages is not None else numbers(mode).last_messages
