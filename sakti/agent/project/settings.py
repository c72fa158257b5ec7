"""Load the settings for a workspace; those of the project apply only if it is trusted."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sakti.agent.project.files import CONFIG, PAGES, ProjectFiles, resolve_inside
from sakti.agent.reports.settings_view import as_toml
from sakti.core import resources
from sakti.core.config import LoadedConfig, load
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line

with lazy_imports:
    from sakti.memory import policy
    from sakti.memory.working import schema as page_schema

IDLE_MS = (1_000, 86_400_000)  # between which a project may have groups activated after a pause


def user_settings(overrides: Sequence[str] = ()) -> LoadedConfig:
    """Merge every source but the project's. Raises `ConfigError`."""
    return load(user_file=resources.config_home() / "config.toml", env=os.environ, overrides=overrides)


def settings(project: ProjectFiles, *, use: bool, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Merge every source, the project's as it was looked at where `use` says so. Raises `ConfigError`."""
    return load(
        user_file=resources.config_home() / "config.toml",
        project_file=project.workspace / CONFIG if use and project.config is not None else None,
        project_bytes=project.config,
        env=os.environ,
        overrides=overrides,
        usable=usable_in(project.workspace),
    )


def usable_in(workspace: Path) -> Callable[[str, Any], str]:
    """Return a check that gives the reason why a project's value would not work there, or ""."""

    def usable(name: str, value: Any) -> str:
        try:
            if name in PAGES and value != "none":
                if resolve_inside(workspace, value) is None:
                    return f"{name} must name a file in the workspace and is not used."
                if name == PAGES[0]:
                    page_schema.load(value, workspace)
                else:
                    page_schema.template(value, workspace)
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
    changes = [f"{name} = {one_line(as_toml(value) or 'none', 60)}" for name, value in loaded.changed.items()]
    return f"{CONFIG} sets {', '.join(changes)}." if changes else ""
