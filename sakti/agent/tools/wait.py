"""Tools for background commands: wait for one, read on in its output, end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from sakti.agent.tools import background
from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.agent.tools.processes import Running
from sakti.store.threads import runs

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
        details = {runs.ENDED: int(job)} if running.is_reported else {}
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
    details = {} if members else {runs.ENDED: int(id)}
    return Outcome(f"{text}\n{state}", details={"exit_code": None if members else code, **details})


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
    details = {"exit_code": running.process.returncode, runs.ENDED: int(id)}
    return Outcome(result, is_error=bool(survivors), details=details)
