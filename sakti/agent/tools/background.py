"""Keep the commands that run in the background of a session."""

from __future__ import annotations

from sakti.agent.tools.context import ToolContext, ToolState
from sakti.agent.tools.processes import Running
from sakti.core.errors import ToolError


def keep(run: ToolContext, running: Running) -> str:
    """Keep a command running in the background; return its number, which is never reused."""
    run.state.started += 1
    number = str(run.state.started)
    run.state.background[number] = running
    return number


def find(run: ToolContext, number: str) -> Running:
    """Return the command of a number. Raises `ToolError` where there is none."""
    if number not in run.state.background:
        known = ", ".join(run.state.background) or "none"
        raise ToolError(f"There is no command {number} in the background (running: {known}).")
    return run.state.background[number]


async def stop_all(state: ToolState) -> None:
    """Stop everything in the background, at the end of the session."""
    for running in list(state.background.values()):
        await running.stop()
    state.background.clear()
