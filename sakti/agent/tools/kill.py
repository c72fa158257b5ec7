"""End a background command by kill."""

from __future__ import annotations

from typing import Annotated

from sakti.agent.tools import background
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext


@tool(effect="own", parallel=True)
async def kill(run: ToolContext, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """End a background command and everything that it started."""
    running = background.find(run, id)
    over = not running.members()
    await running.stop()
    run.state.background.pop(id, None)
    told = f"Command {id} had ended already." if over else f"Command {id} ended."
    return Outcome(told, details={"exit_code": running.process.returncode})
