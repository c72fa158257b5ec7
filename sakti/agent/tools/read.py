"""Show files and folders to the model: read (text by lines, images, pages of a PDF), ls and glob."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Annotated, BinaryIO

from msgspec import Meta, Struct

from sakti.agent.judge.workspace_view import explain_secret
from sakti.agent.tools import files, pictures, textfile
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import (
    MAX_RESULTS,
    SECONDS,
    Listing,
    format_omitted,
    list_folder,
    list_notes,
    make_matcher,
    show_in_row,
    take_until,
)
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.core.text import format_count
from sakti.store.secrets import mask_lines

MAX_ENTRIES = 1_000  # of a folder
MAX_LINE = 2_000
MASKED_AT_ONCE = 2_000_000  # characters of a file
ROOM_FOR_NOTE = 300  # characters that stay free for the note about the rest


@tool(effect="read", small=1)
async def read(
    run: ToolContext,
    path: Annotated[str, "file, relative to the current folder or absolute"],
    offset: Annotated[int, Meta(ge=1), "first line (of a PDF: page), counted from 1"] = 1,
    limit: Annotated[Annotated[int, Meta(ge=1)] | None, "how many lines; 2000 by default"] = None,
) -> Outcome:
    """Read a text file, an image, or pages of a PDF."""
    if run.resolve_judged(path).is_dir():
        return await ls(run, {"path": path})
    target = files.require_file(run, path)
    name = run.state.show(target)
    with await asyncio.to_thread(files.open_file, target) as file:
        head = file.read(textfile.HEAD)
    if (kind := pictures.detect_kind(head)) is not None:
        return await pictures.show(target, name, kind, offset, limit)
    if await asyncio.to_thread(lambda: target.stat().st_size) > files.MAX_FILE_BYTES:
        return await asyncio.to_thread(_read_large, run, target, head, offset, limit or 2000)
    data, text = await asyncio.to_thread(files.read_file, target)
    await asyncio.to_thread(run.state.mark_seen, target, data)
    bodies = await asyncio.to_thread(_split_masked, text.text)
    if not bodies:
        return Outcome(f"{name} is empty.", details={"path": name, "lines": "0"})
    if offset > len(bodies):
        raise ToolError(f"{path} has {format_count(len(bodies), 'line')}; line {offset} is after its end.")
    selected = bodies[offset - 1 : offset - 1 + (limit or 2000)]
    rows = _number_lines(selected, offset, len(str(offset + len(selected) - 1)), run.state.output_bytes - ROOM_FOR_NOTE)
    last = offset + len(rows) - 1
    remaining = len(bodies) - last
    more = (
        f"\n[{format_count(remaining, 'more line')} of {len(bodies)}: read on with offset={last + 1}.]"
        if remaining
        else ""
    )
    return Outcome("\n".join(rows) + more + _describe_form(text), details={"path": name, "lines": f"{offset}-{last}"})


def _split_masked(text: str) -> list[str]:
    """Return the lines of a file, masked together, since a secret key may have several lines.

    A very large file is masked by the lines that are shown.
    """
    return textfile.split_bodies(mask_lines(text) if len(text) <= MASKED_AT_ONCE else text)


def _describe_form(text: FileText) -> str:
    """Describe the file's encoding and line ends if they are unusual."""
    what = [] if text.encoding == "utf-8" else [text.label]
    end = textfile.find_line_end(textfile.split_lines(text.text)) if "\r" in text.text else "\n"
    what += [{"\r\n": "CRLF line ends", "\r": "CR line ends"}[end]] if end != "\n" else []
    only = "; new text has to be ASCII" if text.guess else ""
    return f"\n[Written with {' and '.join(what)}, which edit and write keep{only}.]" if what else ""


def _number_lines(bodies: Iterable[str], first: int, width: int, room: int) -> list[str]:
    """Return numbered lines, as many complete ones as fit in `room` characters, at least one."""
    out: list[str] = []
    for n, body in enumerate(bodies, first):
        cut = f" [… {len(body) - MAX_LINE:,} more characters]" if len(body) > MAX_LINE else ""
        row = f"{n:>{width}}\t{body[:MAX_LINE]}{cut}"
        room -= len(row) + 1
        if room < 0 and out:
            break
        out.append(row)
    return out


def _read_large(run: ToolContext, path: Path, head: bytes, offset: int, limit: int) -> Outcome:
    """Read lines of a file too large for memory; its number of lines is not known."""
    if b"\0" in head:
        raise ToolError(f"{path.name} is a binary file of {path.stat().st_size:,} bytes.")
    with files.open_file(path) as file:
        selected = _read_lines(file, offset, limit + 1)
        rows = _number_lines(selected, offset, len(str(offset + limit)), run.state.output_bytes - ROOM_FOR_NOTE)
    if not rows:
        raise ToolError(f"{path.name} has fewer than {offset} lines.")
    name, last = run.state.show(path), offset + min(len(rows), limit) - 1
    more = (
        f"\n[More lines follow: read on with offset={last + 1}.]" if len(rows) > limit or next(selected, None) else ""
    )
    return Outcome("\n".join(rows[:limit]) + more, details={"path": name, "lines": f"{offset}-{last}"})


def _read_lines(file: BinaryIO, offset: int, limit: int) -> Iterator[str]:
    """Yield lines from the `offset`-th on, each cut to the shown length."""
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


class _ListedEntry(Struct, frozen=True):
    name: str
    folder: bool
    row: str
    secret: bool


@tool(effect="read", small=6)
async def ls(run: ToolContext, path: Annotated[str, "folder"] = ".") -> Outcome:
    """List a folder: folders end with a slash, files show their size in bytes."""
    folder = run.resolve_judged(path)
    if not folder.is_dir():
        if folder.exists():
            raise ToolError(f"{path} is a file, not a folder; use read.")
        raise ToolError(f"{path} is not a folder.")
    entries = sorted(await asyncio.to_thread(_list_entries, run, folder), key=lambda e: (not e.folder, e.name))
    rows = [e.row for e in entries if not e.secret]
    secret = [e.name for e in entries if e.secret]
    more = [f"[{len(rows) - MAX_ENTRIES} more; use glob with a pattern]"] if len(rows) > MAX_ENTRIES else []
    hidden = [format_omitted(secret)] if secret else []
    name = run.state.show(folder)
    text = "\n".join([*rows[:MAX_ENTRIES], *more, *hidden])
    return Outcome(text or f"{name} is empty.", details={"path": name, "entries": len(rows)})


def _list_entries(run: ToolContext, folder: Path) -> list[_ListedEntry]:
    place = run.place()
    out: list[_ListedEntry] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            secret = bool(explain_secret(place.resolve(entry.path), place) or explain_secret(Path(entry.path), place))
            is_folder = entry.is_dir(follow_symlinks=False)
            try:
                size = "" if is_folder else f"  {entry.stat(follow_symlinks=False).st_size}"
                row = f"{entry.name} -> {Path(entry.path).readlink()}" if entry.is_symlink() else f"{entry.name}{size}"
            except OSError:  # gone meanwhile
                continue
            out.append(_ListedEntry(entry.name, is_folder, show_in_row(f"{entry.name}/" if is_folder else row), secret))
    return out


@tool(effect="read")
async def glob(
    run: ToolContext,
    pattern: Annotated[str, "such as src/**/*.py, *.{ts,tsx}; without a slash it is a name at any depth"],
    path: Annotated[str, "folder to look in"] = ".",
) -> Outcome:
    """Find files by name, newest first."""
    root = _require_folder(run, path)
    deadline = monotonic() + SECONDS
    files = await list_folder(root, run.place(), seconds=SECONDS * 3 / 4)
    fits = make_matcher(pattern, root)
    names, files.complete = await asyncio.to_thread(_sort_by_age, files, fits, root, deadline)
    secret = [p for p in files.secret if fits(p)]
    rows = [show_in_row(run.state.show(root / p)) for p in names[:MAX_RESULTS]] or ["No file matches."]
    rows += [f"[{len(names) - MAX_RESULTS} more; narrow the pattern]"] if len(names) > MAX_RESULTS else []
    return Outcome("\n".join([*rows, *list_notes(files, secret)]), details={"matches": len(names)})


def _sort_by_age(files: Listing, fits: Callable[[str], bool], root: Path, deadline: float) -> tuple[list[str], bool]:
    """Return the files that fit, newest first, and whether there was time to look at all."""
    fitting = list(filter(fits, files.paths))
    ages = {path: -_read_mtime(root / path) for path in take_until(deadline, fitting)}
    return sorted(ages, key=ages.__getitem__), files.complete and len(ages) == len(fitting)


def _require_folder(run: ToolContext, path: str) -> Path:
    root = run.resolve_judged(path)
    if not root.is_dir():
        raise ToolError(f"{path} is not a folder.")
    return root


def _read_mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
