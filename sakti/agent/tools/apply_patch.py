"""Change, add, move and delete files by apply_patch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import replace

from sakti.agent.judge.where import resolved
from sakti.agent.tools import changes, textfile
from sakti.agent.tools import patch as patches
from sakti.agent.tools.base import Outcome, ToolRun, Workbench, tool
from sakti.agent.tools.changes import Changed
from sakti.agent.tools.files import read_file, regular
from sakti.agent.tools.parameters import UNLISTED
from sakti.agent.tools.textfile import FileText
from sakti.core.errors import ToolError
from sakti.store.secrets import marks_in, revealed


def _named_by_patch(arguments: Mapping[str, Any]) -> list[str]:
    folder = str(arguments.get("workdir") or "")
    named = patches.paths(str(arguments.get("patch", "")))
    return [p if p.startswith("~") else os.path.join(folder, p) for p in named]  # noqa: PTH118  # they may be no paths


def _preview(bench: Workbench, patch: str, workdir: str | None) -> str:
    return changes.shown(bench, _patched(bench, patch, workdir))


@tool(effect="write", paths=_named_by_patch, rule_name="edit", preview=_preview)
async def apply_patch(
    run: ToolRun,
    patch: Annotated[str, "the whole patch, from *** Begin Patch to *** End Patch"],
    workdir: Annotated[str | None, UNLISTED] = None,
) -> Outcome:
    """Change, add, move and delete files by a patch."""
    done = await asyncio.to_thread(_patched, run.bench, patch, workdir)
    await asyncio.to_thread(changes.put, run.bench, done)
    rows = [f"{_sign(c)} {c.name}" for c in done]
    return Outcome("\n".join(["Done:", *rows]), details=changes.details(done))


def _sign(change: Changed) -> str:
    return "D" if change.data is None else "A" if change.before is None else "M"


def _patched(bench: Workbench, text: str, workdir: str | None) -> list[Changed]:
    """Return the changes of a patch; either all of it fits or nothing is done."""
    folder = resolved(bench.cwd, workdir or ".")
    out: dict[Path, Changed] = {}
    for change in patches.parse(text):
        path = str(resolved(folder, change.path))
        found = bench.resolve(path)
        if change.kind == "add":
            if os.path.lexists(found) and found not in out:
                bench.check_unchanged(regular(bench, path), whole=True)
            out[found] = changes.written(bench, path, change.content)
            continue
        there = _current(bench, out, path, found)
        if change.kind == "delete":
            out[found] = Changed(found, there.name, there.before, "", None)
            continue
        before, encoded = there.after, textfile.decode(there.data or b"") or FileText("")
        after = patches.patched(before, _with_values(change, before), there.name)
        goal = bench.resolve(str(resolved(folder, change.move_to))) if change.move_to else found
        if goal != found:
            if os.path.lexists(goal):
                raise ToolError(f"{bench.show(goal)} is there already; nothing was changed.")
            out[found] = Changed(found, there.name, there.before, "", None)
            out[goal] = Changed(goal, bench.show(goal), None, after, encoded.encode(after))
        else:
            out[found] = Changed(found, there.name, there.before, after, encoded.encode(after))
    return list(out.values())


def _with_values(change: patches.FileChange, there: str) -> patches.FileChange:
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
    changes.writable(found, name)
    if bench.files.state(found) == "changed":
        bench.check_unchanged(found)
    data, there = read_file(found)
    return Changed(found, name, there.text, there.text, data)
