"""Load the settings of a workspace, and show them to people: value, origin, and values as typed."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from sakti.agent.project import trust
from sakti.agent.project.files import CONFIG, PAGES, ProjectFiles, resolve_inside
from sakti.core import resources
from sakti.core.config import (
    Config,
    LoadedConfig,
    Meaning,
    check,
    describe_values,
    flatten,
    get_meaning,
    load,
    mask_value,
    replace_setting,
)
from sakti.core.errors import ConfigError
from sakti.core.text import quote, to_one_line
from sakti.memory import page_content, policy

HERE = "this window"  # set on the command line, or while it runs


class Setting(Struct, frozen=True):
    """`origin`: a file, a variable, "default", or `HERE`."""

    name: str
    value: Any
    default: Any
    origin: str
    meaning: Meaning

    @property
    def text(self) -> str:
        return format_toml(self.value)

    @property
    def takes(self) -> str:
        """Describe what may be written for a setting."""
        return describe_values(self.name)

    @property
    def from_environment(self) -> bool:
        """Return whether a variable sets it, which goes before every file."""
        return self.origin.startswith("SAKTI_")


def list_settings(config: Config, *, user_file: Path, project_file: Path, env: Mapping[str, str]) -> list[Setting]:
    """Return every setting of `config` with its origin, as the files are now. Raises `ConfigError`."""
    project = project_file if trust.review_settings(project_file).holds else None
    loaded = load(user_file=user_file, project_file=project, env=env)
    stored, defaults = flatten(loaded.config), flatten(Config())
    return [
        Setting(
            name,
            mask_value(name, value),
            defaults.get(name),
            loaded.origins.get(name, "default") if stored.get(name) == value else HERE,
            get_meaning(name),
        )
        for name, value in flatten(config).items()
    ]


def format_toml(value: Any) -> str:
    """Format a value as TOML; "" if it is not set."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return f"[{', '.join(format_toml(v) for v in value)}]"  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Struct):
        return format_toml({name: field for name, field in structs.asdict(value).items() if field not in ("", ())})
    if isinstance(value, dict):
        pairs = (f"{json.dumps(k)} = {format_toml(v)}" for k, v in value.items())  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_value(config: Config, name: str, text: str) -> Any:
    """Read typed text as in a settings file; None for an empty text, which removes the setting.

    Raises `ConfigError` where it takes no such value, or another setting contradicts it.
    """
    if not text.strip():
        return None
    try:
        value: Any = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    if isinstance(value, dict | list) and any(isinstance(v, dict | list) for v in value):  # pyright: ignore[reportUnknownVariableType]
        raise ConfigError(f"{name} cannot be {quote(text)}.")
    try:
        changed = replace_setting(config, name, value, name)
        check(changed)
    except ConfigError as e:
        raise ConfigError(e.message.removeprefix(f"{name}: ")) from None
    setting = flatten(changed)[name]
    return "none" if setting is None else setting


def format_lines(name: str, value: Any) -> str:
    """Return the lines of a config file that set `name`."""
    table, _, key = name.rpartition(".")
    line = f"{key} = {format_toml(value)}"
    return f"[{table}]\n{line}" if table else line


IDLE_MS = (1_000, 86_400_000)  # between which a project may have groups activated after a pause


def load_user_settings(overrides: Sequence[str] = ()) -> LoadedConfig:
    """Merge every source but the project's. Raises `ConfigError`."""
    return load(user_file=resources.config_home() / "config.toml", env=os.environ, overrides=overrides)


def load_settings(project: ProjectFiles, *, use: bool, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Merge every source, the project's as it was looked at where `use` says so. Raises `ConfigError`."""
    return load(
        user_file=resources.config_home() / "config.toml",
        project_file=project.workspace / CONFIG if use and project.config is not None else None,
        project_bytes=project.config,
        env=os.environ,
        overrides=overrides,
        usable=make_usability_check(project.workspace),
    )


def make_usability_check(workspace: Path) -> Callable[[str, Any], str]:
    """Return a check that gives the reason why a project's value would not work there, or ""."""

    def usable(name: str, value: Any) -> str:
        try:
            if name in PAGES and value != "none":
                if resolve_inside(workspace, value) is None:
                    return f"{name} must name a file in the workspace and is not used."
                if name == PAGES[0]:
                    page_content.load_schema(value, workspace)
                else:
                    page_content.load_template(value, workspace)
            elif name == "memory.activate_after_idle":
                pause = policy.parse_activation_ttl(value, name)
                if isinstance(pause, int | float) and not IDLE_MS[0] <= pause <= IDLE_MS[1]:
                    return f"{name} is not used; a project may set 1 s to 24 h."
        except ConfigError as e:
            return f"{e.message} It is not used."
        return ""

    return usable


def describe_changes(loaded: LoadedConfig) -> str:
    """Return one line on the settings that the project changed; empty if it changed none."""
    changes = [f"{name} = {to_one_line(format_toml(value) or 'none', 60)}" for name, value in loaded.changed.items()]
    return f"{CONFIG} sets {', '.join(changes)}." if changes else ""
