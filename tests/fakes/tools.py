"""Calling tools as the toolbox does, without a session."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sakti.agent.tools.base import Tool
from sakti.agent.tools.catalog import list_workspace_tools
from sakti.agent.tools.context import Outcome, ToolState


async def call(tools: ToolState, tool: Tool, **arguments: object) -> Outcome:
    """Run one call; its result is bounded as the model gets it."""
    run = tools.make_context("call-123456789012", "t", "m", lambda _piece: None)
    return tools.limit_output(await tool(run, arguments), run.call_id)


async def ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that only waits to be collected."""
    for _ in range(200):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        await asyncio.sleep(0.01)
    return False


# Those for files and commands, by name.
TOOLS = {t.name: t for t in list_workspace_tools()}
