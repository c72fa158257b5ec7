"""Keep the commands that run in the background of a session."""

from __future__ import annotations

import asyncio

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


def stop_own_command(state: ToolState) -> bool:
    """Stop the newest command that the user typed, with all that it started; false if none runs."""
    return bool(state.own_commands) and state.own_commands[-1].cancel()


async def stop_all(state: ToolState) -> list[str]:
    """Stop all commands that run, at the end of the session; return the names of survivors."""
    if own := list(state.own_commands):
        for task in own:
            task.cancel()
        await asyncio.wait(own)
    survivors: list[str] = []
    for running in list(state.background.values()):
        survivors += await running.stop()
    state.background.clear()
    await state.recorder.settle(ends=True)
    return survivors
