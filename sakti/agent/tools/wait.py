"""Wait for a background command: for a text in its output, its end, a time, or a message of the user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from sakti.agent.tools import background
from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.processes import Running
from sakti.store.threads import jobs

NAME = "wait"
INTERVAL = 0.05  # seconds between two looks


def make(is_steered: Callable[[], bool]) -> Tool:
    """Make the tool of one session; `is_steered` tells whether the user sent a message meanwhile."""

    @tool(effect="own", name=NAME, parallel=True)
    async def wait(
        run: ToolContext,
        job: Annotated[str, "number that bash gave"],
        text: Annotated[str, "plain text to wait for in its output"] = "",
        timeout: Annotated[Annotated[int, Meta(ge=1, le=600)], "seconds"] = 60,
    ) -> Outcome:
        """Wait for a background command."""
        running = background.find(run, job)
        running.output.watch(text)
        why = f"{timeout} s have passed; it still runs" + (", and the text has not appeared" if text else "")
        try:
            async with asyncio.timeout(timeout):
                while not (reason := _reason(running, text, is_steered)):  # noqa: ASYNC110 - an output has no event
                    await asyncio.sleep(INTERVAL)
                why = reason
        except TimeoutError:
            pass
        tail = background.last_lines(running)
        details = {jobs.ENDED: int(job)} if running.is_reported else {}
        return Outcome(f"[{why}]\n{tail}".rstrip(), details={"exit_code": running.exit_code, **details})

    return wait


def _reason(running: Running, text: str, is_steered: Callable[[], bool]) -> str:
    """Return why the wait is over; "" if it is not."""
    running.drain()
    if text and running.output.is_matched:
        return "the text has appeared"
    if not running.members():
        running.drain()
        running.is_reported = True
        if text and running.output.is_matched:
            return f"the text has appeared, and the command ended with exit code {running.exit_code}"
        return f"ended with exit code {running.exit_code}" + (", without the text" if text else "")
    return "the user sent a message; it still runs" if is_steered() else ""
