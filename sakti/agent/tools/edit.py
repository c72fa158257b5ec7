"""Change parts of files by edit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from sakti.agent.tools import changes, matching, textfile
from sakti.agent.tools.base import tool
from sakti.agent.tools.changes import ChangedFile
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.files import read_file, regular
from sakti.agent.tools.parameters import UNLISTED
from sakti.core.errors import ToolError
from sakti.core.text import counted
from sakti.store.secrets import reveal_marks


class Edit(Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement. `after` (not offered, but known from other programs) puts `new` behind that line."""

    old: Annotated[str, Meta(description="text of the file, without line numbers")]
    new: Annotated[str, Meta(description="text to put there")]
    all: Annotated[bool, Meta(description="replace every occurrence, not only a unique one")] = False
    after: Annotated[int | None, UNLISTED] = None


def _preview(run: ToolContext, path: str, edits: Sequence[Edit]) -> str:
    return changes.format_diff(run, [_edit(run, path, edits)])


@tool(effect="write", small=2, preview=_preview)
async def edit(
    run: ToolContext,
    path: Annotated[str, "file that was read or written before"],
    edits: Annotated[list[Edit], "replacements, made in order; either all are made or none"],
) -> Outcome:
    """Change parts of a file by replacing text."""
    change = await asyncio.to_thread(_edit, run, path, edits)
    await asyncio.to_thread(changes.put, run, [change])
    details = changes.details([change])
    verb = "created" if change.before is None else "changed"
    return Outcome(f"{change.name} {verb} (+{details['added']} −{details['removed']} lines).", details=details)


def _edit(run: ToolContext, path: str, edits: Sequence[Edit]) -> ChangedFile:
    if len(edits) == 1 and not edits[0].old and edits[0].after is None and _is_empty(run.resolve(path)):
        return changes.write_content(run, path, edits[0].new)  # how other programs make a file by their edit tool
    target = regular(run, path)
    name = run.state.show(target)
    run.state.check_unchanged(target)
    changes.writable(target, name)
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
                text = matching.apply(text, matching.Change(change.old, change.new, change.all), name)
        except ToolError as e:
            if len(edits) == 1:
                raise ToolError(e.message[0].upper() + e.message[1:]) from e
            raise ToolError(f"Edit {number} of {len(edits)}: {e.message}") from e
    return text


def _insert(text: str, after: int, new: str) -> str:
    lines = textfile.lines(text)
    if not 0 <= after <= len(lines):
        raise ToolError(f"the file has {counted(len(lines), 'line')}; there is no line {after} to insert after.")
    end = textfile.usual_end(lines)
    put = [textfile.Line(line.body, end) for line in textfile.lines(new)]
    head = lines[:after]
    if head and not head[-1].end:
        head[-1] = textfile.Line(head[-1].body, end)
    return "".join(line.body + line.end for line in [*head, *put, *lines[after:]])
