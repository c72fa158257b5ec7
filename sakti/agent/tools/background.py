"""Keep the commands that run in the background of a session."""

from __future__ import annotations

from sakti.agent.tools.base import ToolRun, Workbench
from sakti.agent.tools.processes import Running
from sakti.core.errors import ToolError


def keep(bench: Workbench, running: Running) -> str:
    """Keep a command running in the background; return its number, which is never reused."""
    bench.started += 1
    number = str(bench.started)
    bench.background[number] = running
    return number


def find(run: ToolRun, number: str) -> Running:
    """Return the command of a number. Raises `ToolError` where there is none."""
    if number not in run.bench.background:
        known = ", ".join(run.bench.background) or "none"
        raise ToolError(f"There is no command {number} in the background (running: {known}).")
    return run.bench.background[number]


async def stop_all(bench: Workbench) -> list[str]:
    """Stop everything in the background, at the end of the session; return the names of survivors."""
    survivors: list[str] = []
    for running in list(bench.background.values()):
        survivors += await running.stop()
    bench.background.clear()
    return survivors
