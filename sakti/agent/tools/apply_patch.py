"""Change, add, move and delete files by apply_patch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import replace

from sakti.agent.judge.where import resolve_path
from sakti.agent.tools import changes, textfile
from sakti.agent.tools import patch as patches
from sakti.agent.tools.base import tool
from sakti.agent.tools.changes import ChangedFile
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import read_file, regular
from sakti.agent.tools.parameters import UNLISTED
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.store.secrets import marks_in, reveal_marks


def _named_by_patch(arguments: Mapping[str, Any]) -> list[str]:
    folder = str(arguments.get("workdir") or "")
    named = patches.paths(str(arguments.get("patch", "")))
    return [p if p.startswith("~") else os.path.join(folder, p) for p in named]  # noqa: PTH118  # they may be no paths


def _preview(run: ToolContext, patch: str, workdir: str | None) -> str:
    return changes.format_diff(run, _apply(run, patch, workdir))


@tool(effect="write", paths=_named_by_patch, rule_name="edit", preview=_preview)
async def apply_patch(
    run: ToolContext,
    patch: Annotated[str, "the whole patch, from *** Begin Patch to *** End Patch"],
    workdir: Annotated[str | None, UNLISTED] = None,
) -> Outcome:
    """Change, add, move and delete files by a patch."""
    done = await asyncio.to_thread(_apply, run, patch, workdir)
    await asyncio.to_thread(changes.put, run, done)
    rows = [f"{_sign(c)} {c.name}" for c in done]
    return Outcome("\n".join(["Done:", *rows]), details=changes.details(done))


def _sign(change: ChangedFile) -> str:
    return "D" if change.data is None else "A" if change.before is None else "M"


def _apply(run: ToolContext, text: str, workdir: str | None) -> list[ChangedFile]:
    """Return the changes of a patch; either all of it fits or nothing is done."""
    folder = resolve_path(run.cwd, workdir or ".")
    out: dict[Path, ChangedFile] = {}
    for change in patches.parse(text):
        path = str(resolve_path(folder, change.path))
        target = run.resolve(path)
        if change.kind == "add":
            if os.path.lexists(target) and target not in out:
                run.state.check_unchanged(regular(run, path), whole=True)
            out[target] = changes.write_content(run, path, change.content)
            continue
        there = _current(run, out, path, target)
        if change.kind == "delete":
            out[target] = ChangedFile(target, there.name, there.before, "", None)
            continue
        before, encoded = there.after, textfile.decode(there.data or b"") or FileText("")
        after = patches.apply_update(before, _with_values(change, before), there.name)
        goal = run.resolve(str(resolve_path(folder, change.move_to))) if change.move_to else target
        if goal != target:
            if os.path.lexists(goal):
                raise ToolError(f"{run.state.show(goal)} already exists; nothing was changed.")
            out[target] = ChangedFile(target, there.name, there.before, "", None)
            out[goal] = ChangedFile(goal, run.state.show(goal), None, after, encoded.encode(after))
        else:
            out[target] = ChangedFile(target, there.name, there.before, after, encoded.encode(after))
    return list(out.values())


def _with_values(change: patches.FileChange, there: str) -> patches.FileChange:
    """Return a change with its marks replaced by the file's secret values."""
    if not marks_in([row for hunk in change.hunks for row in (*hunk.old, *hunk.new)]):
        return change

    def rows(given: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(reveal_marks("\n".join(given), there).split("\n")) if given else given

    hunks = tuple(replace(h, old=rows(h.old), new=rows(h.new)) for h in change.hunks)
    return replace(change, hunks=hunks)


def _current(run: ToolContext, done: dict[Path, ChangedFile], path: str, found: Path) -> ChangedFile:
    """Return a file as it is, or as an earlier part of the patch leaves it."""
    if found in done:
        return done[found]
    regular(run, path)
    name = run.state.show(found)
    changes.writable(found, name)
    if run.state.files.state(found) == "changed":
        run.state.check_unchanged(found)
    data, there = read_file(found)
    return ChangedFile(found, name, there.text, there.text, data)
