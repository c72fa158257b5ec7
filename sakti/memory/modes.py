"""Read a mode: `prompts/modes/NAME.md`, its front matter in TOML, and its named parts.

Files in the user's `prompts/modes/` are modes, too. The front matter has the numbers, `description`, `tools` and
`[fields]`, the keys with types that the lines of the mode fill.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from sakti.core.config import MemorySettings, ObservationSettings, ReflectionSettings
from sakti.core.errors import ConfigError
from sakti.core.resources import has_prompt, list_modes, read_prompt
from sakti.core.types import Json
from sakti.memory.log.lines import parse_fields as named_fields

DEFAULT = "default"
FieldType: TypeAlias = Literal["text", "list", "table"]


class ModeNumbers(Struct, frozen=True, forbid_unknown_fields=True):
    """Front matter of a mode.

    Thresholds in tokens for observing, reflecting and buffering; messages sent with memory off. `tools` None: all.
    """

    message_tokens: int = 30_000
    observation_tokens: int = 40_000
    buffer_tokens: int = 6_000
    last_messages: int = 10
    description: str = ""
    tools: tuple[str, ...] | None = None
    fields: dict[str, FieldType] = field(default_factory=dict[str, FieldType])


@lru_cache(maxsize=64)
def read_numbers(mode: str) -> ModeNumbers:
    """Return the front matter of a mode; without a file, that of the default mode.

    Raises `ConfigError`.
    """
    name = f"modes/{mode}"
    if not has_prompt(name):
        return ModeNumbers()
    text = read_prompt(name)
    if not text:
        raise ConfigError(f"prompts/{name}.md is empty: write what the mode does, or delete the file.")
    try:
        return convert(tomllib.loads(text.strip("+")), ModeNumbers)
    except (tomllib.TOMLDecodeError, ValidationError) as e:
        raise ConfigError(f"The front matter of prompts/{name}.md is wrong: {e}.") from e


def describe(mode: str) -> str:
    """Describe a mode in one sentence: its description, else the first sentence of its task."""
    sentence = read_numbers(mode).description or prompt(mode, "task").partition(". ")[0]
    return f"{sentence.strip().removesuffix('.')}."


def read_descriptions() -> dict[str, str]:
    """Return one sentence for each mode, by name; for a broken file, the problem."""
    return {name: find_problem(name) or describe(name) for name in list_modes()}


def find_problem(mode: str) -> str:
    """Return why the file of a mode cannot be used; "" if it can."""
    try:
        describe(mode)
    except ConfigError as e:
        return e.message
    return ""


def convert_fields(mode: str, section: str, content: str) -> Json:
    """Return the `mode_specific` values of a line: declared keys typed, others in a section as text.

    The section fills the key of its name: a text, a list entry, or a table made of its pairs.
    """
    declared = read_numbers(mode).fields
    pairs = named_fields(content)
    out: Json = {_key(n): _read_value(v, declared[_key(n)]) for n, v in pairs.items() if _key(n) in declared}
    extra: Json = {n: v for n, v in pairs.items() if _key(n) not in declared} if section else {}
    key, text = _key(section), content.partition(" | ")[0].strip()
    if declared.get(key) == "table":
        return {**out, key: extra or {"text": text}}
    if key in declared:
        out.setdefault(key, [text] if declared[key] == "list" else text)
    return {**extra, **out}


def _read_value(value: str, kind: FieldType) -> str | list[str] | dict[str, str]:
    if kind == "list":
        return [entry for part in value.split("; ") if (entry := part.strip())]
    return {"text": value} if kind == "table" else value


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def prompt(mode: str, name: str) -> str:
    """Return a part of a mode's prompts, else the default mode's, else an empty text."""
    for each in (mode, DEFAULT):
        if has_prompt(f"modes/{each}#{name}"):
            return read_prompt(f"modes/{each}#{name}")
    return ""


@lru_cache(maxsize=64)
def list_sections(mode: str) -> tuple[str, ...]:
    """Return the sections that a mode's Observer writes besides observations: the tags in its `output`."""
    return tuple(dict.fromkeys(re.findall(r"^<([a-z][a-z-]*)>", prompt(mode, "output"), re.MULTILINE)))


def apply_mode(settings: MemorySettings, mode: str) -> MemorySettings:
    """Return the settings, with the mode's numbers in place of default values."""
    if mode == DEFAULT:
        return settings
    row, observation, reflection = read_numbers(mode), settings.observation, settings.reflection
    usual, usual_reflection = ObservationSettings(), ReflectionSettings()
    if observation.message_tokens == usual.message_tokens:
        observation = replace(observation, message_tokens=row.message_tokens)
        if observation.buffer_tokens == usual.buffer_tokens:
            observation = replace(observation, buffer_tokens=row.buffer_tokens)
    if reflection.observation_tokens == usual_reflection.observation_tokens:
        reflection = replace(reflection, observation_tokens=row.observation_tokens)
    return replace(settings, observation=observation, reflection=reflection)


def last_messages(settings: MemorySettings, mode: str) -> int:
    return settings.last_messages if settings.last_messages is not None else read_numbers(mode).last_messages
