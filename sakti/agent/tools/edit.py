"""Change files by edit, write and apply_patch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from sakti.agent.judge.workspace_view import resolve_path
from sakti.agent.tools import changes, matching, textfile
from sakti.agent.tools import patch as patches
from sakti.agent.tools.base import UNLISTED, tool
from sakti.agent.tools.changes import ChangedFile
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import read_file, require_file
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.core.text import format_count
from sakti.store.secrets import find_marks, reveal_marks


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement. `after` (not offered, but known from other programs) puts `new` after that line."""

    old: Annotated[str, Meta(description="text of the file, without line numbers")]
    new: Annotated[str, Meta(description="text to put there")]
    all: Annotated[bool, Meta(description="replace every occurrence, not only a unique one")] = False
    after: Annotated[int | None, UNLISTED] = None


def _preview_edit(run: ToolContext, path: str, edits: Sequence[Edit]) -> str:
    return changes.format_diff(run, [_plan_edit(run, path, edits)])


@tool(effect="write", small=2, preview=_preview_edit)
async def edit(
    run: ToolContext,
    path: Annotated[str, "file that was read or written before"],
    edits: Annotated[list[Edit], "replacements, applied in order, all or none"],
) -> Outcome:
    """Change parts of a file by replacing text."""
    change = await asyncio.to_thread(_plan_edit, run, path, edits)
    await asyncio.to_thread(changes.write_changes, run, [change])
    details = changes.make_details([change])
    verb = "created" if change.before is None else "changed"
    return Outcome(f"{change.name} {verb} (+{details['added']} −{details['removed']} lines).", details=details)


def _plan_edit(run: ToolContext, path: str, edits: Sequence[Edit]) -> ChangedFile:
    if len(edits) == 1 and not edits[0].old and edits[0].after is None and _is_empty(run.resolve(path)):
        return changes.write_content(run, path, edits[0].new)  # how other programs make a file by their edit tool
    target = require_file(run, path)
    name = run.state.show(target)
    run.state.check_unchanged(target)
    changes.require_writable(target, name)
    _, there = read_file(target)
    after = apply_edits(there.text, [_unmask(one, there.text) for one in edits], name)
    return ChangedFile(target, name, there.text, after, there.encode(after))


def _unmask(change: Edit, there: str) -> Edit:
    """Return a replacement with its marks replaced by this file's values: the model sees secrets masked."""
    return replace(change, old=reveal_marks(change.old, there), new=reveal_marks(change.new, there))


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
                text = _insert(text, change.after, change.new)
            else:
                text = matching.apply_change(text, matching.Change(change.old, change.new, change.all), name)
        except ToolError as e:
            if len(edits) == 1:
                raise ToolError(e.message[0].upper() + e.message[1:]) from e
            raise ToolError(f"Edit {number} of {len(edits)}: {e.message}") from e
    return text


def _insert(text: str, after: int, new: str) -> str:
    lines = textfile.split_lines(text)
    if not 0 <= after <= len(lines):
        raise ToolError(f"the file has {format_count(len(lines), 'line')}; there is no line {after} to insert after.")
    end = textfile.find_line_end(lines)
    put = [textfile.Line(line.body, end) for line in textfile.split_lines(new)]
    head = lines[:after]
    if head and not head[-1].end:
        head[-1] = textfile.Line(head[-1].body, end)
    return "".join(line.body + line.end for line in [*head, *put, *lines[after:]])


def _preview_write(run: ToolContext, path: str, content: str) -> str:
    return changes.format_diff(run, [changes.write_content(run, path, content)])


@tool(effect="write", small=5, preview=_preview_write)
async def write(
    run: ToolContext,
    path: Annotated[str, "file to create or replace"],
    content: Annotated[str, "the whole new content"],
) -> Outcome:
    """Create a file, or replace one that was read before, with the given content."""
    change = await asyncio.to_thread(changes.write_content, run, path, content)
    await asyncio.to_thread(changes.write_changes, run, [change])
    what = "created" if change.before is None else "replaced"
    number = len(textfile.split_bodies(content))
    return Outcome(f"{change.name} {what}: {format_count(number, 'line')}.", details=changes.make_details([change]))


def _list_patch_paths(arguments: Mapping[str, Any]) -> list[str]:
    folder = str(arguments.get("workdir") or "")
    named = patches.list_paths(str(arguments.get("patch", "")))
    return [p if p.startswith("~") else os.path.join(folder, p) for p in named]  # noqa: PTH118  # they may not be paths


def _preview_patch(run: ToolContext, patch: str, workdir: str | None) -> str:
    return changes.format_diff(run, _plan_patch(run, patch, workdir))


@tool(effect="write", paths=_list_patch_paths, rule_name="edit", preview=_preview_patch)
async def apply_patch(
    run: ToolContext,
    patch: Annotated[str, "the whole patch, from *** Begin Patch to *** End Patch"],
    workdir: Annotated[str | None, UNLISTED] = None,
) -> Outcome:
    """Change, add, move and delete files by a patch."""
    done = await asyncio.to_thread(_plan_patch, run, patch, workdir)
    await asyncio.to_thread(changes.write_changes, run, done)
    rows = [f"{_get_status_letter(c)} {c.name}" for c in done]
    return Outcome("\n".join(["Done:", *rows]), details=changes.make_details(done))


def _get_status_letter(change: ChangedFile) -> str:
    return "D" if change.data is None else "A" if change.before is None else "M"


def _plan_patch(run: ToolContext, text: str, workdir: str | None) -> list[ChangedFile]:
    """Return the changes of a patch; either all of it fits or nothing is done."""
    folder = resolve_path(run.cwd, workdir or ".")
    out: dict[Path, ChangedFile] = {}
    for change in patches.parse(text):
        path = str(resolve_path(folder, change.path))
        target = run.resolve(path)
        if change.kind == "add":
            if os.path.lexists(target) and target not in out:
                run.state.check_unchanged(require_file(run, path), whole=True)
            out[target] = changes.write_content(run, path, change.content)
            continue
        there = _find_current(run, out, path, target)
        if change.kind == "delete":
            out[target] = ChangedFile(target, there.name, there.before, "", None)
            continue
        goal = run.resolve(str(resolve_path(folder, change.move_to))) if change.move_to else target
        out |= {c.path: c for c in _list_updates(run, change, there, goal)}
    return list(out.values())


def _list_updates(
    run: ToolContext, change: patches.FileChange, there: ChangedFile, goal: Path
) -> Iterator[ChangedFile]:
    """Yield the changes of a file that a patch changes in its place, or moves to `goal`."""
    before, encoded = there.after, textfile.decode(there.data or b"") or FileText("")
    after = patches.apply_update(before, _unmask_patch(change, before), there.name)
    if goal == there.path:
        yield ChangedFile(goal, there.name, there.before, after, encoded.encode(after))
        return
    if os.path.lexists(goal):
        raise ToolError(f"{run.state.show(goal)} already exists; nothing was changed.")
    yield ChangedFile(there.path, there.name, there.before, "", None)
    yield ChangedFile(goal, run.state.show(goal), None, after, encoded.encode(after))


def _unmask_patch(change: patches.FileChange, there: str) -> patches.FileChange:
    """Return a change with its marks replaced by the file's secret values."""
    if not find_marks([row for hunk in change.hunks for row in (*hunk.old, *hunk.new)]):
        return change

    def rows(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(reveal_marks("\n".join(given), there).split("\n")) if given else given

    hunks = tuple(replace(h, old=rows(h.old), new=rows(h.new)) for h in change.hunks)
    return replace(change, hunks=hunks)


def _find_current(run: ToolContext, done: dict[Path, ChangedFile], path: str, target: Path) -> ChangedFile:
    """Return a file as it is, or as an earlier part of the patch leaves it."""
    if target in done:
        return done[target]
    require_file(run, path)
    name = run.state.show(target)
    changes.require_writable(target, name)
    if run.state.files.state(target) == "changed":
        run.state.check_unchanged(target)
    data, there = read_file(target)
    return ChangedFile(target, name, there.text, there.text, data)
