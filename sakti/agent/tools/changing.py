"""Change files by write, edit and apply_patch; encoding, line ends and permissions are kept."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pydantic
from pydantic.json_schema import SkipJsonSchema

from sakti.agent.tools import matching, merging, patch, textfile
from sakti.agent.tools.base import Outcome, ToolRun, Workbench, tool
from sakti.agent.tools.files import read_file, regular
from sakti.agent.tools.permissions import resolved
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.store.secrets import marks_in, revealed

CONTEXT = 3  # lines round each change in a diff
LARGEST_DIFF = 50_000  # lines that are compared
_HUNK = re.compile(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$")


class Edit(pydantic.BaseModel):
    """One replacement. `after` (not offered, but known from other programs) puts `new` behind that line."""

    model_config = pydantic.ConfigDict(extra="forbid")
    old: Annotated[str, pydantic.Field(description="text that stands in the file, without line numbers")]
    new: Annotated[str, pydantic.Field(description="text to put there")]
    all: Annotated[bool, pydantic.Field(description="replace every occurrence, not only a unique one")] = False
    after: SkipJsonSchema[int | None] = None


@dataclass(frozen=True, slots=True)
class Changed:
    """One file before and after: texts for the diff, and the new bytes.

    `data` None: it is deleted; `before` None: it is new.
    """

    path: Path
    name: str
    before: str | None
    after: str
    data: bytes | None


@tool(effect="write", small=5)
async def write(
    run: ToolRun,
    path: Annotated[str, "file to create or replace"],
    content: Annotated[str, "the whole new content"],
) -> Outcome:
    """Create a file, or replace one that was read before, with the given content."""
    change = await asyncio.to_thread(_written, run.bench, path, content)
    await asyncio.to_thread(_put, run.bench, [change])
    what = "created" if change.before is None else "replaced"
    number = len(textfile.bodies(content))
    return Outcome(f"{change.name} {what}: {number} line{'s' * (number != 1)}.", details=_details([change]))


def _written(bench: Workbench, path: str, content: str) -> Changed:
    found = bench.resolve(path)
    name = bench.show(found)
    if not os.path.lexists(found):
        return Changed(found, name, None, content, _encoded(FileText(""), content))
    regular(bench, path)
    bench.check_unchanged(found, whole=True)
    writable(found, name)
    try:
        _, there = read_file(found)
    except ToolError:  # binary or very large: replaced as it was asked for, without a diff
        return Changed(found, name, "", content, _encoded(FileText(""), content))
    content = revealed(content, there.text)
    return Changed(found, name, there.text, content, there.encode(_kept_ends(there.text, content)))


def _kept_ends(before: str, content: str) -> str:
    r"""Give new content of a whole file its former line ends, and keep unchanged lines as they were.

    A content with line ends other than \n is taken literally.
    """
    if "\r" in content or "\r" not in before:
        return content
    old = textfile.lines(before)
    if not any("\r" in line.end for line in old):
        return content
    new = [textfile.Line(line.body, line.end) for line in textfile.lines(content)]
    plain = [textfile.Line(line.body, "\n" if line.end else "") for line in old]
    return merging.merged(old, plain, new, textfile.usual_end(old))


def _encoded(there: FileText, text: str) -> bytes:
    return there.encode(text)


@tool(effect="write", small=2)
async def edit(
    run: ToolRun,
    path: Annotated[str, "file that was read or written before"],
    edits: Annotated[list[Edit], "replacements, made in order; either all are made or none"],
) -> Outcome:
    """Change parts of a file by replacing text."""
    change = await asyncio.to_thread(_edited, run.bench, path, edits)
    await asyncio.to_thread(_put, run.bench, [change])
    details = _details([change])
    verb = "created" if change.before is None else "changed"
    return Outcome(f"{change.name} {verb} (+{details['added']} −{details['removed']} lines).", details=details)


def _edited(bench: Workbench, path: str, edits: Sequence[Edit]) -> Changed:
    if len(edits) == 1 and not edits[0].old and edits[0].after is None and _is_empty(bench.resolve(path)):
        return _written(bench, path, edits[0].new)  # how other programs make a file by their edit tool
    found = regular(bench, path)
    name = bench.show(found)
    bench.check_unchanged(found)
    writable(found, name)
    _, there = read_file(found)
    after = apply_edits(there.text, [_unmasked(one, there.text) for one in edits], name)
    return Changed(found, name, there.text, after, there.encode(after))


def _unmasked(change: Edit, there: str) -> Edit:
    """Return a replacement with the values that its marks stand for in this file: the model sees secrets masked."""
    return change.model_copy(update={"old": revealed(change.old, there), "new": revealed(change.new, there)})


def _is_empty(path: Path) -> bool:
    """Return whether there is no such file, or it is empty."""
    return not os.path.lexists(path) or (path.is_file() and path.stat().st_size == 0)


def apply_edits(text: str, edits: Sequence[Edit], name: str) -> str:
    """Return `text` after all `edits`.

    Raises `ToolError` naming the first that does not match, with the nearest text.
    """
    if not edits:
        raise ToolError("edit needs at least one replacement: edits is a list of objects with old and new.")
    for number, change in enumerate(edits, 1):
        try:
            if change.after is not None:
                text = _inserted(text, change.after, change.new)
            else:
                text = matching.apply(text, matching.Change(change.old, change.new, change.all), name)
        except ToolError as e:
            if len(edits) == 1:
                raise ToolError(e.message[0].upper() + e.message[1:]) from e
            raise ToolError(f"Edit {number} of {len(edits)}: {e.message}") from e
    return text


def _inserted(text: str, after: int, new: str) -> str:
    lines = textfile.lines(text)
    if not 0 <= after <= len(lines):
        raise ToolError(f"the file has {len(lines)} lines; there is no line {after} to insert behind.")
    end = textfile.usual_end(lines)
    put = [textfile.Line(line.body, end) for line in textfile.lines(new)]
    head = lines[:after]
    if head and not head[-1].end:
        head[-1] = textfile.Line(head[-1].body, end)
    return "".join(line.body + line.end for line in [*head, *put, *lines[after:]])


def _named_by_patch(arguments: Mapping[str, Any]) -> list[str]:
    folder = str(arguments.get("workdir") or "")
    named = patch.paths(str(arguments.get("patch", "")))
    return [p if p.startswith("~") else os.path.join(folder, p) for p in named]  # noqa: PTH118  # they may be no paths


@tool(effect="write", paths=_named_by_patch, rule_name="edit")
async def apply_patch(
    run: ToolRun,
    patch: Annotated[str, "the whole patch, from *** Begin Patch to *** End Patch"],
    workdir: SkipJsonSchema[str | None] = None,
) -> Outcome:
    """Change, add, move and delete files by a patch."""
    changes = await asyncio.to_thread(_patched, run.bench, patch, workdir)
    await asyncio.to_thread(_put, run.bench, changes)
    rows = [f"{_sign(c)} {c.name}" for c in changes]
    return Outcome("\n".join(["Done:", *rows]), details=_details(changes))


def _sign(change: Changed) -> str:
    return "D" if change.data is None else "A" if change.before is None else "M"


def _patched(bench: Workbench, text: str, workdir: str | None) -> list[Changed]:
    """Return the changes of a patch; either all of it fits or nothing is done."""
    folder = resolved(bench.cwd, workdir or ".")
    out: dict[Path, Changed] = {}
    for change in patch.parse(text):
        path = str(resolved(folder, change.path))
        found = bench.resolve(path)
        if change.kind == "add":
            if os.path.lexists(found) and found not in out:
                bench.check_unchanged(regular(bench, path), whole=True)
            out[found] = _written(bench, path, change.content)
            continue
        there = _current(bench, out, path, found)
        if change.kind == "delete":
            out[found] = Changed(found, there.name, there.before, "", None)
            continue
        before, encoded = there.after, textfile.decode(there.data or b"") or FileText("")
        after = patch.patched(before, _with_values(change, before), there.name)
        goal = bench.resolve(str(resolved(folder, change.move_to))) if change.move_to else found
        if goal != found:
            if os.path.lexists(goal):
                raise ToolError(f"{bench.show(goal)} is there already; nothing was changed.")
            out[found] = Changed(found, there.name, there.before, "", None)
            out[goal] = Changed(goal, bench.show(goal), None, after, encoded.encode(after))
        else:
            out[found] = Changed(found, there.name, there.before, after, encoded.encode(after))
    return list(out.values())


def _with_values(change: patch.FileChange, there: str) -> patch.FileChange:
    """Return a change with the values that its marks stand for in the file."""
    if not marks_in([row for hunk in change.hunks for row in (*hunk.old, *hunk.new)]):
        return change

    def rows(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(revealed("\n".join(given), there).split("\n")) if given else given

    hunks = tuple(replace(h, old=rows(h.old), new=rows(h.new)) for h in change.hunks)
    return replace(change, hunks=hunks)


def _current(bench: Workbench, done: dict[Path, Changed], path: str, found: Path) -> Changed:
    """Return a file as it is, or as an earlier part of the patch leaves it."""
    if found in done:
        return done[found]
    regular(bench, path)
    name = bench.show(found)
    writable(found, name)
    if bench.files.state(found) == "changed":
        bench.check_unchanged(found)
    data, there = read_file(found)
    return Changed(found, name, there.text, there.text, data)


# --- writing ----------------------------------------------------------------------------------------------------------


def writable(path: Path, name: str) -> None:
    """Raise `ToolError` for a read-only file: replacing it would not even be noticed."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if not mode & 0o222:
        raise ToolError(f"{name} is read-only (mode {mode:04o}); nothing was changed: make it writable.")


def _put(bench: Workbench, changes: Sequence[Changed]) -> None:
    for change in changes:
        if change.data is None:
            change.path.unlink()
            bench.files.forget(change.path)
        else:
            replace_file(change.path, change.data)
            bench.saw(change.path, change.data)


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file and rename it over the target, so that a crash leaves the old or the new file.

    A file with several links, of another owner, or in a folder that is not writable is overwritten in place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        there = path.stat()
    except FileNotFoundError:
        there = None
    if there is not None and (there.st_nlink > 1 or _of_another(there) or not os.access(path.parent, os.W_OK)):
        _overwrite(path, data)
        return
    mode = stat.S_IMODE(there.st_mode) if there else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _of_another(there: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and there.st_uid != os.geteuid()


def _overwrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as f:
        f.write(data)
        f.truncate()
        f.flush()
        os.fsync(f.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- what changed, for people -----------------------------------------------------------------------------------------


def unified_diff(name: str, before: str, after: str) -> str:
    """Compare both texts line by line; a changed line end shows as ␍ at the end of its line."""
    old, new = textfile.bodies(before), textfile.bodies(after)
    if old == new and before != after:
        old, new = _with_ends(before), _with_ends(after)
    start, tail = _common(old, new)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    if len(old) + len(new) > LARGEST_DIFF:
        return f"--- a/{name}\n+++ b/{name}\n@@ lines {start + 1} to {start + len(new)}: too many to compare @@"
    rows = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT)
    return "\n".join(_HUNK.sub(lambda m: _hunk(m, start), row) for row in rows)


def _hunk(found: re.Match[str], start: int) -> str:
    """Return the header of a hunk, shifted by the lines before the compared part."""
    old, old_size, new, new_size = found.groups(default="")
    return f"@@ -{int(old) + start}{old_size} +{int(new) + start}{new_size} @@"


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines at the beginning and end are equal and need no comparing, without context."""
    shortest = min(len(old), len(new))
    head = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    tail = next((i for i in range(shortest - head) if old[-1 - i] != new[-1 - i]), shortest - head)
    return max(0, head - CONTEXT), max(0, tail - CONTEXT)


def _with_ends(text: str) -> list[str]:
    return [line.body + ("␍" if "\r" in line.end else "") for line in textfile.lines(text)]


def _details(changes: Sequence[Changed]) -> dict[str, Any]:
    diffs = [unified_diff(c.name, c.before or "", c.after) for c in changes]
    bodies = [row for diff in diffs for row in diff.split("\n")[2:]]
    return {
        "path": ", ".join(c.name for c in changes),
        "diff": "\n".join(d for d in diffs if d),
        "added": sum(row.startswith("+") for row in bodies),
        "removed": sum(row.startswith("-") for row in bodies),
    }


def preview_diff(bench: Workbench, name: str, arguments: dict[str, Any]) -> str:
    """Return the diff that a call of write, edit or apply_patch would make; its arguments were checked.

    Raises `ToolError` where the change cannot be made.
    """
    try:
        if name == "write":
            changes = [_written(bench, str(arguments["path"]), str(arguments["content"]))]
        elif name == "edit":
            edits = pydantic.TypeAdapter(list[Edit]).validate_python(arguments["edits"])
            changes = [_edited(bench, str(arguments["path"]), edits)]
        else:
            changes = _patched(bench, str(arguments["patch"]), arguments.get("workdir"))
        return str(_details(changes)["diff"])
    except (KeyError, OSError, pydantic.ValidationError):
        return ""
