"""read, write, edit, ls: files as the model sees and changes them."""

from __future__ import annotations

import asyncio
import difflib
import os
import stat
import tempfile
from pathlib import Path
from typing import Annotated

import pydantic

from sakti.agent.tools.base import Outcome, ToolRun, Workbench, tool
from sakti.core.errors import ToolError

MAX_FILE_BYTES = 20_000_000
MAX_LINE = 2_000


def _regular(bench: Workbench, path: str) -> Path:
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


def read_text(path: Path) -> str:
    """The file's text; raises `ToolError` for binary or over-large files."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ToolError(f"{path.name} has {path.stat().st_size:,} bytes, too many to read; use grep or bash.")
    data = path.read_bytes()
    if b"\0" in data[:8192]:
        raise ToolError(f"{path.name} is a binary file of {len(data):,} bytes.")
    return data.decode("utf-8", "replace")


@tool(read_only=True)
async def read(
    run: ToolRun,
    path: Annotated[str, "file, relative to the current folder or absolute"],
    offset: Annotated[int, pydantic.Field(ge=1), "first line, counted from 1"] = 1,
    limit: Annotated[int, pydantic.Field(ge=1), "how many lines"] = 2000,
) -> Outcome:
    """Read a text file. Lines come numbered; the numbers are not part of the file."""
    found = _regular(run.bench, path)
    text = await asyncio.to_thread(read_text, found)
    run.bench.saw(found)
    lines = text.splitlines()
    if not lines:
        return Outcome(f"{run.bench.show(found)} is empty.", details={"path": run.bench.show(found), "lines": "0"})
    if offset > len(lines):
        raise ToolError(f"{path} has {len(lines)} lines; line {offset} is behind its end.")
    chosen = lines[offset - 1 : offset - 1 + limit]
    width = len(str(offset + len(chosen) - 1))
    body = "\n".join(
        f"{n:>{width}}\t{line if len(line) <= MAX_LINE else line[:MAX_LINE] + ' […]'}"
        for n, line in enumerate(chosen, offset)
    )
    last = offset + len(chosen) - 1
    rest = f"\n[{len(lines) - last} more lines, from line {last + 1}]" if last < len(lines) else ""
    return Outcome(body + rest, details={"path": run.bench.show(found), "lines": f"{offset}-{last}"})


@tool()
async def write(
    run: ToolRun,
    path: Annotated[str, "file to create or replace"],
    content: Annotated[str, "the whole new content"],
) -> Outcome:
    """Create a file, or replace one that was read before, with the given content."""
    found = run.bench.resolve(path)
    before = ""
    if found.exists():
        _regular(run.bench, path)
        run.bench.check_unchanged(found)
        before = await asyncio.to_thread(read_text, found)
    await asyncio.to_thread(replace_file, found, content)
    run.bench.saw(found)
    name = run.bench.show(found)
    what = "replaced" if before else "created"
    return Outcome(f"{name} {what}: {len(content.splitlines())} lines.", details=_diff_details(name, before, content))


class Edit(pydantic.BaseModel):
    """One replacement."""

    model_config = pydantic.ConfigDict(extra="forbid")
    old: Annotated[str, pydantic.Field(description="text that stands in the file, exactly, without line numbers")]
    new: Annotated[str, pydantic.Field(description="text to put there")]
    all: Annotated[bool, pydantic.Field(description="replace every occurrence, not only a unique one")] = False


@tool()
async def edit(
    run: ToolRun,
    path: Annotated[str, "file that was read before"],
    edits: Annotated[list[Edit], "replacements, made in order; either all are made or none"],
) -> Outcome:
    """Change parts of a file by exact replacement. `old` must occur exactly once, unless `all` is set."""
    found = _regular(run.bench, path)
    run.bench.check_unchanged(found)
    before = await asyncio.to_thread(read_text, found)
    after = apply_edits(before, edits, run.bench.show(found))
    await asyncio.to_thread(replace_file, found, after)
    run.bench.saw(found)
    name = run.bench.show(found)
    details = _diff_details(name, before, after)
    return Outcome(f"{name} changed (+{details['added']} −{details['removed']} lines).", details=details)


def apply_edits(text: str, edits: list[Edit], name: str) -> str:
    """`text` after all `edits`; raises `ToolError` naming the first that does not fit, with the nearest match."""
    if not edits:
        raise ToolError("edit needs at least one replacement.")
    for number, change in enumerate(edits, 1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        if change.old == change.new:
            raise ToolError(f"{which}old and new are the same; nothing was changed.")
        if not change.old:
            raise ToolError(f"{which}old is empty; say which text is to be replaced.")
        count = text.count(change.old)
        if count == 0:
            raise ToolError(f"{which}that text is not in {name}; nothing was changed.{_nearest(text, change.old)}")
        if count > 1 and not change.all:
            raise ToolError(
                f"{which}that text occurs {count} times in {name}; nothing was changed. "
                "Give more lines round it, or set all."
            )
        text = text.replace(change.old, change.new)
    return text


def _nearest(text: str, wanted: str) -> str:
    """Where something like `wanted` stands, for the error message."""
    lines, size = text.splitlines(), max(1, len(wanted.splitlines()))
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")
    if not first:
        return ""
    starts = difflib.get_close_matches(first, [line.strip() for line in lines], 1, 0.6)
    if not starts:
        return ""
    at = next(i for i, line in enumerate(lines) if line.strip() == starts[0])
    shown = "\n".join(lines[at : at + size])
    return f" The nearest, at line {at + 1}, is:\n{shown[:2000]}"


def replace_file(path: Path, content: str) -> None:
    """Write beside the file and rename over it, so that a crash leaves the old or the new one, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as f:
            f.write(content)
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def unified_diff(name: str, before: str, after: str) -> str:
    return "\n".join(
        line.rstrip("\n")
        for line in difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=3
        )
    )


def _diff_details(name: str, before: str, after: str) -> dict[str, object]:
    diff = unified_diff(name, before, after)
    body = diff.splitlines()[2:]
    return {
        "path": name,
        "diff": diff,
        "added": sum(line.startswith("+") for line in body),
        "removed": sum(line.startswith("-") for line in body),
    }


def preview_diff(bench: Workbench, name: str, arguments: dict[str, object]) -> str:
    """The diff that a write or edit call would make, for the approval; empty where it cannot be made."""
    try:
        path = bench.resolve(str(arguments["path"]))
        before = read_text(path) if path.is_file() else ""
        if name == "write":
            after = str(arguments["content"])
        else:
            edits = pydantic.TypeAdapter(list[Edit]).validate_python(arguments["edits"])
            after = apply_edits(before, edits, bench.show(path))
        return unified_diff(bench.show(path), before, after)
    except (ToolError, KeyError, OSError, pydantic.ValidationError):
        return ""


@tool(read_only=True)
async def ls(run: ToolRun, path: Annotated[str, "folder"] = ".") -> Outcome:
    """List a folder: folders end with a slash, files show their size in bytes."""
    found = run.bench.resolve(path)
    if not found.is_dir():
        raise ToolError(f"{path} is not a folder.")
    rows: list[str] = []
    for entry in sorted(os.scandir(found), key=lambda e: (not e.is_dir(follow_symlinks=False), e.name)):
        if entry.is_dir(follow_symlinks=False):
            rows.append(f"{entry.name}/")
        elif entry.is_symlink():
            rows.append(f"{entry.name} -> {Path(entry.path).readlink()}")
        else:
            rows.append(f"{entry.name}  {entry.stat(follow_symlinks=False).st_size}")
    name = run.bench.show(found)
    return Outcome("\n".join(rows) or f"{name} is empty.", details={"path": name, "entries": len(rows)})
