"""Where prompts and themes are: the user's folder, then what was installed, then the repository."""

from __future__ import annotations

import os
import string
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def config_home() -> Path:
    """`$XDG_CONFIG_HOME/sakti`, `~/.config/sakti` where that is not set."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "sakti"


def data_home() -> Path:
    """`$XDG_DATA_HOME/sakti`, `~/.local/share/sakti` where that is not set: the database, models."""
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "sakti"


def state_home() -> Path:
    """`$XDG_STATE_HOME/sakti`, `~/.local/state/sakti` where that is not set: logs and long outputs."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "sakti"


def folders(kind: str) -> Iterator[Path]:
    """The folders that hold `kind` ("prompts" or "themes") and exist, the first to win first."""
    for folder in (config_home() / kind, PACKAGE / "resources" / kind, PACKAGE.parent / kind):
        if folder.is_dir():
            yield folder


@lru_cache(maxsize=256)
def read_prompt(name: str) -> str:
    """The text of `prompts/<name>.md`, stripped. Raises FileNotFoundError for a name that is nowhere."""
    for folder in folders("prompts"):
        path = folder / f"{name}.md"
        if path.is_file():
            return path.read_text("utf-8").strip()
    raise FileNotFoundError(f"prompts/{name}.md is neither installed nor in {config_home() / 'prompts'}")


@lru_cache(maxsize=256)
def has_prompt(name: str) -> bool:
    return any((folder / f"{name}.md").is_file() for folder in folders("prompts"))


def fill_prompt(name: str, **values: str) -> str:
    """`read_prompt(name)` with its $names replaced."""
    return string.Template(read_prompt(name)).safe_substitute(values)
