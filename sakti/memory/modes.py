"""Read what a mode is for memory: `prompts/modes/<mode>.md`, with its numbers as front matter and a part a purpose."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache

from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.resources import folders, has_prompt, read_prompt

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class ModeNumbers:
    """Tokens at which to observe, reflect and buffer, and how many messages are sent when memory is off."""

    message_tokens: int = 30_000
    observation_tokens: int = 40_000
    buffer_tokens: int = 6_000
    last_messages: int = 10


@lru_cache(maxsize=64)
def numbers(mode: str) -> ModeNumbers:
    """Return the numbers of a mode; the default's where it has none."""
    name = f"modes/{mode}"
    return ModeNumbers(**tomllib.loads(read_prompt(name).strip("+"))) if has_prompt(name) else ModeNumbers()


def prompt(mode: str, name: str) -> str:
    """Return a part of a mode's prompts, the default mode's where it has none, empty where that has none either."""
    for each in (mode, DEFAULT):
        if has_prompt(f"modes/{each}#{name}"):
            return read_prompt(f"modes/{each}#{name}")
    return ""


@lru_cache(maxsize=64)
def sections(mode: str) -> tuple[str, ...]:
    """The names of the sections that a mode asks its Observer for beside the observations: the tags in its `output`."""
    return tuple(dict.fromkeys(re.findall(r"^<([a-z][a-z-]*)>", prompt(mode, "output"), re.MULTILINE)))


def settings_for(settings: MemorySettings, mode: str) -> MemorySettings:
    """The settings with the mode's numbers in place of those that stand at their defaults."""
    if mode == DEFAULT:
        return settings
    row, observation, reflection = numbers(mode), settings.observation, settings.reflection
    usual, usual_reflection = ObservationSettings(), ReflectionSettings()
    if observation.message_tokens == usual.message_tokens:
        observation = dataclasses.replace(observation, message_tokens=row.message_tokens)
        if observation.buffer_tokens == usual.buffer_tokens:
            observation = dataclasses.replace(observation, buffer_tokens=row.buffer_tokens)
    if reflection.observation_tokens == usual_reflection.observation_tokens:
        reflection = dataclasses.replace(reflection, observation_tokens=row.observation_tokens)
    return dataclasses.replace(settings, observation=observation, reflection=reflection)


def last_messages(settings: MemorySettings, mode: str) -> int:
    return settings.last_messages if settings.last_messages is not None else numbers(mode).last_messages


def names() -> tuple[str, ...]:
    """Return every mode that has a file."""
    return tuple(sorted({p.stem for folder in folders("prompts") for p in (folder / "modes").glob("*.md")} | {DEFAULT}))
