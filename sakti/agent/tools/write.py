"""Create or replace files by write."""

from __future__ import annotations

import asyncio
from typing import Annotated

from sakti.agent.tools import changes, textfile
from sakti.agent.tools.base import Outcome, ToolRun, Workbench, tool


def _preview(bench: Workbench, path: str, content: str) -> str:
    return changes.shown(bench, [changes.written(bench, path, content)])


@tool(effect="write", small=5, preview=_preview)
async def write(
    run: ToolRun,
    path: Annotated[str, "file to create or replace"],
    content: Annotated[str, "the whole new content"],
) -> Outcome:
    """Create a file, or replace one that was read before, with the given content."""
    change = await asyncio.to_thread(changes.written, run.bench, path, content)
    await asyncio.to_thread(changes.put, run.bench, [change])
    what = "created" if change.before is None else "replaced"
    number = len(textfile.bodies(content))
    return Outcome(f"{change.name} {what}: {number} line{'s' * (number != 1)}.", details=changes.details([change]))
