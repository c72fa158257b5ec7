"""Read on in a background command by bash_output."""

from __future__ import annotations

from typing import Annotated

from sakti.agent.tools import background
from sakti.agent.tools.base import tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.store.threads import jobs


@tool(effect="own", parallel=True)
async def bash_output(run: ToolContext, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """Return what a background command has printed since the last call, and whether it still runs."""
    running = background.find(run, id)
    running.drain()
    text = running.output.take_unread().removeprefix("\r").rstrip("\n") or "[nothing new]"
    members = running.members()
    code = running.process.returncode
    running.is_reported = not members
    state = "[still running]" if members else f"[ended with exit code {code}]"
    details = {} if members else {jobs.ENDED: int(id)}
    return Outcome(f"{text}\n{state}", details={"exit_code": None if members else code, **details})
