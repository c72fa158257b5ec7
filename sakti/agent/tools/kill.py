"""End a background command by kill."""

from __future__ import annotations

from typing import Annotated

from sakti.agent.tools import background
from sakti.agent.tools.base import Outcome, ToolRun, tool


@tool(effect="own", parallel=True)
async def kill(run: ToolRun, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """End a background command and everything that it started."""
    running = background.find(run, id)
    over = not running.members()
    await running.stop()
    run.bench.background.pop(id, None)
    told = f"Command {id} had ended already." if over else f"Command {id} ended."
    return Outcome(told, details={"exit_code": running.process.returncode})
