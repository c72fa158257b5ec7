"""Show files and folders to the model: read and ls."""

from __future__ import annotations

import asyncio
import difflib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import pydantic

from sakti.agent.tools import pictures, textfile
from sakti.agent.tools.base import Outcome, ToolRun, Workbench, tool
from sakti.agent.tools.permissions import secret_reason
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.store.secrets import masked_lines

MAX_FILE_BYTES = 20_000_000  # of a file that is held in memory; larger ones are read line by line
MAX_LINE = 2_000
MAX_ENTRIES = 1_000
MASKED_AT_ONCE = 2_000_000  # characters of a file
ROOM_FOR_NOTE = 300  # characters that stay free for what is said about the rest


def regular(bench: Workbench, path: str) -> Path:
    """Return the file at a path. Raises `ToolError` for anything but a regular file."""
    found = bench.resolve(path)
    try:
        mode = found.stat().st_mode
    except FileNotFoundError:
        near = _near_names(found)
        raise ToolError(f"There is no file {path}.{near}") from None
    except OSError as e:
        raise ToolError(f"{path} cannot be read: {e.strerror}.") from e
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path} is a folder; use ls.")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is not a regular file.")
    return found


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
        raise ToolError(f"{path.name} has {size:,} bytes, too many to hold at once; use grep or bash.")
    data = path.read_bytes()
    found = textfile.decode(data)
    if found is None:
        raise ToolError(f"{path.name} is a binary file of {len(data):,} bytes.")
    return data, found


@tool(effect="read", small=1)
async def read(
    run: ToolRun,
    path: Annotated[str, "file, relative to the current folder or absolute"],
    offset: Annotated[int, pydantic.Field(ge=1), "first line (of a PDF: page), counted from 1"] = 1,
    limit: Annotated[int | None, pydantic.Field(ge=1), "how many lines; 2000 where none are given"] = None,
) -> Outcome:
    """Read a text file, an image, or pages of a PDF."""
    if run.bench.resolve(path).is_dir():
        return await ls(run, {"path": path})
    found = regular(run.bench, path)
    name = run.bench.show(found)
    with await asyncio.to_thread(found.open, "rb") as file:
        head = file.read(textfile.HEAD)
    if (kind := pictures.kind(head)) is not None:
        return await pictures.show(found, name, kind, offset, limit)
    if await asyncio.to_thread(lambda: found.stat().st_size) > MAX_FILE_BYTES:
        return await asyncio.to_thread(_read_large, run.bench, found, head, offset, limit or 2000)
    data, text = await asyncio.to_thread(read_file, found)
    await asyncio.to_thread(run.bench.saw, found, data)
    bodies = await asyncio.to_thread(_shown, text.text)
    if not bodies:
        return Outcome(f"{name} is empty.", details={"path": name, "lines": "0"})
    if offset > len(bodies):
        raise ToolError(f"{path} has {len(bodies)} lines; line {offset} is behind its end.")
    wanted = bodies[offset - 1 : offset - 1 + (limit or 2000)]
    rows = _rows(wanted, offset, len(str(offset + len(wanted) - 1)), run.bench.output_bytes - ROOM_FOR_NOTE)
    last = offset + len(rows) - 1
    left = len(bodies) - last
    more = f"\n[{left} more line{'s' * (left > 1)} of {len(bodies)}: read on with offset={last + 1}.]" if left else ""
    return Outcome("\n".join(rows) + more + _written(text), details={"path": name, "lines": f"{offset}-{last}"})


def _shown(text: str) -> list[str]:
    """Return the lines of a file, secrets masked: as a whole, since a key has several lines and they keep their places.

    A very large file is masked by the lines that are shown.
    """
    return textfile.bodies(masked_lines(text) if len(text) <= MASKED_AT_ONCE else text)


def _written(text: FileText) -> str:
    """Describe the file's encoding and line ends where they are unusual."""
    what = [] if text.encoding == "utf-8" else [text.encoding]
    end = textfile.usual_end(textfile.lines(text.text)) if "\r" in text.text else "\n"
    what += [{"\r\n": "CRLF line ends", "\r": "CR line ends"}[end]] if end != "\n" else []
    return f"\n[Written with {' and '.join(what)}, which edit and write keep.]" if what else ""


def _rows(bodies: Iterable[str], first: int, width: int, room: int) -> list[str]:
    """Return numbered lines, as many whole ones as `room` characters hold, at least one."""
    out: list[str] = []
    for n, body in enumerate(bodies, first):
        cut = f" [… {len(body) - MAX_LINE:,} more characters]" if len(body) > MAX_LINE else ""
        row = f"{n:>{width}}\t{body[:MAX_LINE]}{cut}"
        room -= len(row) + 1
        if room < 0 and out:
            break
        out.append(row)
    return out


def _read_large(bench: Workbench, path: Path, head: bytes, offset: int, limit: int) -> Outcome:
    """Read lines of a file too large for memory; its number of lines is not known."""
    if b"\0" in head:
        raise ToolError(f"{path.name} is a binary file of {path.stat().st_size:,} bytes.")
    with path.open("rb") as file:
        wanted = _lines(file, offset, limit + 1)
        rows = _rows(wanted, offset, len(str(offset + limit)), bench.output_bytes - ROOM_FOR_NOTE)
    if not rows:
        raise ToolError(f"{path.name} has fewer than {offset} lines.")
    name, last = bench.show(path), offset + min(len(rows), limit) - 1
    more = f"\n[More lines follow: read on with offset={last + 1}.]" if len(rows) > limit or next(wanted, None) else ""
    return Outcome("\n".join(rows[:limit]) + more, details={"path": name, "lines": f"{offset}-{last}"})


def _lines(file: BinaryIO, offset: int, limit: int) -> Iterator[str]:
    """Yield lines from the `offset`-th on, each cut to what is shown."""
    number = 1
    while number < offset + limit and not file.closed:
        line = file.readline(MAX_LINE * 4)
        if not line:
            return
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(1 << 20)
        if number >= offset:
            yield line.decode("utf-8", "replace").rstrip("\r\n")
        number += 1


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    folder: bool
    row: str
    secret: bool


@tool(effect="read", small=6)
async def ls(run: ToolRun, path: Annotated[str, "folder"] = ".") -> Outcome:
    """List a folder: folders end with a slash, files show their size in bytes."""
    found = run.bench.resolve(path)
    if not found.is_dir():
        if found.exists():
            raise ToolError(f"{path} is a file, not a folder; use read.")
        raise ToolError(f"{path} is not a folder.")
    entries = sorted(await asyncio.to_thread(_entries, run.bench, found), key=lambda e: (not e.folder, e.name))
    rows = [e.row for e in entries if not e.secret]
    secret = [e.name for e in entries if e.secret]
    more = [f"[{len(rows) - MAX_ENTRIES} more; use glob with a pattern]"] if len(rows) > MAX_ENTRIES else []
    hidden = [not_shown(secret)] if secret else []
    name = run.bench.show(found)
    text = "\n".join([*rows[:MAX_ENTRIES], *more, *hidden])
    return Outcome(text or f"{name} is empty.", details={"path": name, "entries": len(rows)})


def _entries(bench: Workbench, folder: Path) -> list[_Entry]:
    place = bench.place()
    out: list[_Entry] = []
    with os.scandir(folder) as found:
        for entry in found:
            secret = bool(secret_reason(place.resolve(entry.path), place) or secret_reason(Path(entry.path), place))
            is_folder = entry.is_dir(follow_symlinks=False)
            try:
                size = "" if is_folder else f"  {entry.stat(follow_symlinks=False).st_size}"
                row = f"{entry.name} -> {Path(entry.path).readlink()}" if entry.is_symlink() else f"{entry.name}{size}"
            except OSError:  # gone meanwhile
                continue
            out.append(_Entry(entry.name, is_folder, one_row(f"{entry.name}/" if is_folder else row), secret))
    return out


def one_row(name: str) -> str:
    """Put a name on one line, whatever it contains."""
    return name.replace("\n", "␊").replace("\r", "␍")


def not_shown(secret: list[str]) -> str:
    """Format a note that names the files left out as secret."""
    names = ", ".join(secret[:5]) + (f" and {len(secret) - 5} more" if len(secret) > 5 else "")
    return f"[Left out, as what is in them is secret: {names}]"
