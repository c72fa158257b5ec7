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
    """Return the command with a number. Raises `ToolError` if no command has it."""
    if number not in run.state.background:
        running = ", ".join(run.state.background) or "none"
        raise ToolError(f"There is no command {number} in the background (running: {running}).")
    return run.state.background[number]


def stop_own_command(state: ToolState, call_id: str = "") -> bool:
    """Stop a command that the user typed, the newest by default; false if it does not run."""
    task = state.own_commands.get(call_id or next(reversed(state.own_commands), ""))
    return task is not None and task.cancel()


async def stop_command(state: ToolState, number: str) -> list[str]:
    """Stop a background command and all that it started; return the names of survivors."""
    running = state.background.pop(number, None)
    return [] if running is None else await running.stop()


async def stop_all(state: ToolState) -> list[str]:
    """Stop all commands that run, at the end of the session; return the names of survivors."""
    if tasks := list(state.own_commands.values()):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    survivors: list[str] = []
    for running in list(state.background.values()):
        survivors += await running.stop()
    state.background.clear()
    await state.recorder.settle(ends=True)
    return survivors
