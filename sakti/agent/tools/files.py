"""Find and read the files that tools show or change."""

from __future__ import annotations

import difflib
import stat
from pathlib import Path

from sakti.agent.tools import textfile
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError

MAX_FILE_BYTES = 20_000_000  # of a file that is held in memory; larger ones are read line by line


def regular(run: ToolContext, path: str) -> Path:
    """Return the file at a path. Raises `ToolError` for anything but a regular file."""
    target = run.resolve(path)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        near = _near_names(target)
        raise ToolError(f"There is no file {path}.{near}") from None
    except OSError as e:
        raise ToolError(f"{path} cannot be read: {e.strerror}.") from e
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path} is a folder; use ls.")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is not a regular file.")
    return target


def _near_names(path: Path) -> str:
    try:
        names = difflib.get_close_matches(path.name, [p.name for p in path.parent.iterdir()], 3, 0.5)
    except OSError:
        return ""
    return f" Near it: {', '.join(names)}." if names else ""


def read_file(path: Path) -> tuple[bytes, FileText]:
    """Return the file's bytes and text; raises `ToolError` for binary or over-large files."""
    size = path.stat().st_size
    if size > MAX_FILE_BYTES:
        raise ToolError(f"{path.name} has {size:,} bytes, too many to load; use grep or bash.")
    data = path.read_bytes()
    text = textfile.decode(data)
    if text is None:
        raise ToolError(f"{path.name} is a binary file of {len(data):,} bytes.")
    return data, text


def one_row(name: str) -> str:
    """Put a name on one line, whatever it contains."""
    return name.replace("\n", "␊").replace("\r", "␍")


def describe_omitted(secret: list[str]) -> str:
    """Format a note that names the files left out as secret."""
    names = ", ".join(secret[:5]) + (f" and {len(secret) - 5} more" if len(secret) > 5 else "")
    return f"[Left out, because they contain secrets: {names}]"
