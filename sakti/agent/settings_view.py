"""The settings as people look at them: value, origin, and the line that would change one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sakti.core.config import Config, check, flat, load, project_may_set, replace_setting
from sakti.core.errors import ConfigError

HERE = "this window"  # set on the command line, or while it runs


@dataclass(frozen=True, slots=True)
class Setting:
    """`origin`: a file, a variable, "default", or `HERE`. `project`: a project's own file may set it."""

    name: str
    value: Any
    default: Any
    origin: str
    project: bool

    @property
    def text(self) -> str:
        return as_toml(self.value)


def settings(config: Config, *, user_file: Path, project_file: Path, env: Mapping[str, str]) -> list[Setting]:
    """Every setting of `config` with where it comes from, as the files are now. Raises `ConfigError`."""
    loaded = load(user_file=user_file, project_file=project_file, env=env)
    stored, defaults = flat(loaded.config), flat(Config())
    return [
        Setting(
            name,
            value,
            defaults.get(name),
            loaded.origins.get(name, "default") if stored.get(name) == value else HERE,
            project_may_set(name),
        )
        for name, value in flat(config).items()
    ]


def as_toml(value: Any) -> str:
    """A value as TOML writes it; empty for what is not set."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(as_toml(v) for v in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


def proposed(config: Config, name: str, text: str) -> str:
    """The lines for a config file that set `name` to what was typed. Raises `ConfigError` where it takes no such
    value, or another setting contradicts it."""
    if not text.strip():
        raise ConfigError(f"Write a value; to unset {name}, take its line out of the file.")
    try:
        value: Any = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    if isinstance(value, dict | list) and any(isinstance(v, dict | list) for v in value):  # pyright: ignore[reportUnknownVariableType]
        raise ConfigError(f"{name} cannot be {text!r}.")
    changed = replace_setting(config, name, value, "typed")
    check(changed)
    table, _, key = name.rpartition(".")
    line = f"{key} = {as_toml(flat(changed)[name])}"
    return f"[{table}]\n{line}" if table else line
