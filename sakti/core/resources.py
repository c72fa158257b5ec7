"""Where prompts and themes are: the user's folder, then what was installed, then the repository."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
_PART = re.compile(r"^<!-- ([a-z0-9_-]+) -->$", re.MULTILINE)


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
    """Return the text of `prompts/<file>.md`, or for `file#part` of what stands below `<!-- part -->` in it, stripped.

    A file of the user's wins with the parts that it has. Raises FileNotFoundError for a name that is nowhere."""
    file, _, part = name.partition("#")
    for folder in folders("prompts"):
        if part in (found := _parts(folder / f"{file}.md")):
            return found[part]
    raise FileNotFoundError(f"prompt {name} is neither installed nor in {config_home() / 'prompts'}")


@lru_cache(maxsize=256)
def has_prompt(name: str) -> bool:
    file, _, part = name.partition("#")
    return any(part in _parts(folder / f"{file}.md") for folder in folders("prompts"))


def fill_prompt(name: str, **values: str) -> str:
    """Return `read_prompt(name)` with its $names replaced."""
    return string.Template(read_prompt(name)).safe_substitute(values)


def _parts(path: Path) -> dict[str, str]:
    """The parts of a prompt file by name, what stands before the first as ""; empty where there is no such file."""
    if not path.is_file():
        return {}
    head, *rest = _PART.split(path.read_text("utf-8"))
    parts = {"": head, **dict(zip(rest[::2], rest[1::2], strict=True))}
    return {name: text.strip() for name, text in parts.items()}
