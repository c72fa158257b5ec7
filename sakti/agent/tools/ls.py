"""List folders by ls."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from sakti.agent.judge.secrets import secret_reason
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import describe_omitted, one_row
from sakti.core.errors import ToolError

MAX_ENTRIES = 1_000


class _ListedEntry(Struct, frozen=True):
    name: str
    folder: bool
    row: str
    secret: bool


@tool(effect="read", small=6)
async def ls(run: ToolContext, path: Annotated[str, "folder"] = ".") -> Outcome:
    """List a folder: folders end with a slash, files show their size in bytes."""
    folder = run.resolve(path)
    if not folder.is_dir():
        if folder.exists():
            raise ToolError(f"{path} is a file, not a folder; use read.")
        raise ToolError(f"{path} is not a folder.")
    entries = sorted(await asyncio.to_thread(_entries, run, folder), key=lambda e: (not e.folder, e.name))
    rows = [e.row for e in entries if not e.secret]
    secret = [e.name for e in entries if e.secret]
    more = [f"[{len(rows) - MAX_ENTRIES} more; use glob with a pattern]"] if len(rows) > MAX_ENTRIES else []
    hidden = [describe_omitted(secret)] if secret else []
    name = run.state.show(folder)
    text = "\n".join([*rows[:MAX_ENTRIES], *more, *hidden])
    return Outcome(text or f"{name} is empty.", details={"path": name, "entries": len(rows)})


def _entries(run: ToolContext, folder: Path) -> list[_ListedEntry]:
    place = run.place()
    out: list[_ListedEntry] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            secret = bool(secret_reason(place.resolve(entry.path), place) or secret_reason(Path(entry.path), place))
            is_folder = entry.is_dir(follow_symlinks=False)
            try:
                size = "" if is_folder else f"  {entry.stat(follow_symlinks=False).st_size}"
                row = f"{entry.name} -> {Path(entry.path).readlink()}" if entry.is_symlink() else f"{entry.name}{size}"
            except OSError:  # gone meanwhile
                continue
            out.append(_ListedEntry(entry.name, is_folder, one_row(f"{entry.name}/" if is_folder else row), secret))
    return out
