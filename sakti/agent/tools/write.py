"""Create or replace files by write."""

from __future__ import annotations

import asyncio
from typing import Annotated

from sakti.agent.tools import changes, textfile
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.text import counted


def _preview(run: ToolContext, path: str, content: str) -> str:
    return changes.format_diff(run, [changes.write_content(run, path, content)])


@tool(effect="write", small=5, preview=_preview)
async def write(
    run: ToolContext,
    path: Annotated[str, "file to create or replace"],
    content: Annotated[str, "the whole new content"],
) -> Outcome:
    """Create a file, or replace one that was read before, with the given content."""
    change = await asyncio.to_thread(changes.write_content, run, path, content)
    await asyncio.to_thread(changes.put, run, [change])
    what = "created" if change.before is None else "replaced"
    number = len(textfile.bodies(content))
    return Outcome(f"{change.name} {what}: {counted(number, 'line')}.", details=changes.details([change]))
