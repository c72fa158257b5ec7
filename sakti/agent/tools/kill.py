"""End a background command by kill."""

from __future__ import annotations

from typing import Annotated

from sakti.agent.tools import background
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.store.threads import jobs


@tool(effect="own", parallel=True)
async def kill(run: ToolContext, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """End a background command and everything that it started."""
    running = background.find(run, id)
    over = not running.members()
    survivors = await running.stop()
    run.state.background.pop(id, None)
    await background.log_end(run.state, running)
    run.state.jobs_changed()
    await run.state.recorder.settle()
    result = f"Command {id} had ended already." if over else f"Command {id} ended."
    if survivors:
        result = f"Command {id} was asked to end. Still running: {', '.join(survivors)}."
    details = {"exit_code": running.process.returncode, jobs.ENDED: int(id)}
    return Outcome(result, is_error=bool(survivors), details=details)
