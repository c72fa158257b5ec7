"""Find the hooks of a workspace: the user's own, and those of the project's files as they were looked at."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from sakti.agent.hooks.settings import CLAUDE, Found, collect, part
from sakti.core import resources
from sakti.core.config.hooks import HookSettings
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError

__all__ = ["Found", "broken", "found"]

LONGEST = 1_000_000  # bytes of a file of settings


def found(own: Sequence[HookSettings], files: Mapping[str, bytes]) -> Found:
    """Return the hooks of the user's configuration and of ~/.claude/settings.json, and those in a project's `files`."""
    home, config = Path.home(), resources.config_home() / "config.toml"
    name = f"~/{config.relative_to(home).as_posix()}" if config.is_relative_to(home) else str(config)
    claude: bytes | None = None
    with contextlib.suppress(ConfigError):
        claude = read_bytes(home / ".claude" / "settings.json", LONGEST)
    return collect(own, name, claude, files)


def broken(workspace: Path) -> list[str]:
    """Return sentences on a project's files of hooks that cannot be read: nothing of them counts."""
    out: list[str] = []
    for name in CLAUDE:
        try:
            data = read_bytes(workspace / name, LONGEST)
        except ConfigError as e:
            out.append(e.message)
            continue
        if data and part(data) is None and not _is_table(data):
            out.append(f"{name} is not a JSON object: its hooks do not run.")
    return out


def _is_table(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False
