"""Keep the background commands of a session, with the tools wait, bash_output and kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext, ToolState
from sakti.agent.tools.processes import Running
from sakti.core.errors import ToolError
from sakti.core.text import format_duration
from sakti.store.secrets import mask_secrets
from sakti.store.threads import runs
from sakti.store.threads.runs import StoredJob

WAIT = "wait"
INTERVAL = 0.05  # seconds between two checks by wait
LOOK = 1.0  # seconds between two checks of processes that a command left running
LAST_LINES, LONGEST_LINE = 20, 400  # of the output that is shown of an ended command
_PAST = {"lost": "lost: sakti was killed while it ran", "stopped": "stopped: sakti ended"}


async def register(run: ToolContext, running: Running) -> str:
    """Keep a command running in the background; return its number, which is never reused."""
    state = run.state
    state.started += 1
    if state.job_log is not None:
        state.started = await state.job_log.begin(run.thread_id, running, state.started - 1)
    number = str(state.started)
    state.background[number] = running
    state.jobs_changed()
    task = asyncio.create_task(_follow(state, running))
    state.followers.add(task)
    task.add_done_callback(state.followers.discard)
    return number


async def _follow(state: ToolState, running: Running) -> None:
    """Save the output of a command, and report when it and all that it started have ended."""
    ended, received = asyncio.ensure_future(running.wait_for_exit()), 0
    try:
        while not ended.done() or running.members():  # the end of other processes causes no event
            await (asyncio.sleep(LOOK) if ended.done() else asyncio.wait({ended}, timeout=LOOK))
            if running.output.received != received:
                received = running.output.received
                _save_end(running)
    finally:
        ended.cancel()
    running.drain()
    await log_end(state, running)
    state.jobs_changed()


async def log_end(state: ToolState, running: Running) -> None:
    """Store the end of a command, and its last lines."""
    _save_end(running)
    if state.job_log is not None:
        await state.job_log.end(running)


def has_ended(running: Running | StoredJob) -> bool:
    """Return whether no process of a command runs."""
    return isinstance(running, StoredJob) or running.exit_code is not None


def describe_state(running: Running | StoredJob) -> str:
    """Return the state of a command for lists: how long it runs, or how it ended."""
    if isinstance(running, StoredJob) and running.state in _PAST:
        return _PAST[running.state]
    code = running.exit_code
    if isinstance(running, StoredJob) or code is not None:
        return f"ended with exit code {code}"
    return f"running for {format_duration(int(time.monotonic() - running.began) * 1000)}"


def read_last_lines(running: Running | StoredJob, count: int = LAST_LINES) -> str:
    """Return the end of a command's output; for a command of an earlier process, its saved output."""
    text = _read_end(running.file) if isinstance(running, StoredJob) else running.output.current_text()
    lines = [line[:LONGEST_LINE] for line in text.rstrip().split("\n")[-count:]]
    return mask_secrets("\n".join(lines))


def _save_end(running: Running) -> None:
    """Save the last lines of a command, which a later process shows."""
    path = _find_end_file(str(running.output.path))
    with contextlib.suppress(OSError), os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(read_last_lines(running))


def _read_end(file: str) -> str:
    try:
        return _find_end_file(file).read_text("utf-8", "replace")
    except OSError:
        return "Its output was not saved."


def _find_end_file(file: str) -> Path:
    """Return the file with the last lines of a command, beside that of its output."""
    return Path(file).with_suffix(".end")


def find_job(run: ToolContext, number: str) -> Running:
    """Return the command with a number. Raises `ToolError` if no command has it."""
    if number not in run.state.background:
        running = ", ".join(run.state.background) or "none"
        raise ToolError(f"There is no command {number} in the background (running: {running}).")
    return run.state.background[number]


def stop_own_command(state: ToolState, call_id: str = "") -> bool:
    """Stop a command that the user typed, the newest by default; false if it does not run."""
    task = state.own_commands.get(call_id or next(reversed(state.own_commands), ""))
    return task is not None and task.cancel()


def list_running(state: ToolState) -> dict[str, Running]:
    """Return the commands that run in the background, by number."""
    jobs: dict[str, Running] = state.background
    return {number: job for number, job in jobs.items() if job.members()}


async def stop_command(state: ToolState, number: str) -> list[str]:
    """Stop a background command and all that it started; return the names of survivors."""
    running: Running | None = state.background.get(number)
    survivors: list[str] = []
    if running is not None:
        survivors = await running.stop()
        await log_end(state, running)
    state.jobs_changed()
    return survivors


async def stop_all(state: ToolState) -> list[str]:
    """Stop all commands that run, at the end of the session; return the names of survivors."""
    if tasks := list(state.own_commands.values()):
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tuple(state.followers):
        task.cancel()
    survivors: list[str] = []
    for running in list(state.background.values()):
        survivors += await running.stop()
        await log_end(state, running)
    state.background.clear()
    await state.recorder.settle(ends=True)
    return survivors


def make_wait(is_steered: Callable[[], bool]) -> Tool:
    """Make the tool of one session; `is_steered` tells whether the user sent a message meanwhile."""

    @tool(effect="own", name=WAIT, parallel=True)
    async def wait(
        run: ToolContext,
        job: Annotated[str, "number that bash gave"],
        text: Annotated[str, "plain text to wait for in its output"] = "",
        timeout: Annotated[Annotated[int, Meta(ge=1, le=600)], "seconds"] = 60,
    ) -> Outcome:
        """Wait for a background command."""
        running = find_job(run, job)
        running.output.watch(text)
        why = f"{timeout} s have passed; it still runs" + (", and the text has not appeared" if text else "")
        try:
            async with asyncio.timeout(timeout):
                while not (reason := _explain_end(running, text, is_steered)):  # noqa: ASYNC110 - an output has no event
                    await asyncio.sleep(INTERVAL)
                why = reason
        except TimeoutError:
            pass
        tail = read_last_lines(running)
        details = {runs.ENDED: int(job)} if running.is_reported else {}
        return Outcome(f"[{why}]\n{tail}".rstrip(), details={"exit_code": running.exit_code, **details})

    return wait


def _explain_end(running: Running, text: str, is_steered: Callable[[], bool]) -> str:
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
    running = find_job(run, id)
    running.drain()
    text = running.output.take_unread().removeprefix("\r").rstrip("\n") or "[nothing new]"
    members = running.members()
    code = running.process.returncode
    running.is_reported = not members
    state = "[still running]" if members else f"[ended with exit code {code}]"
    details = {} if members else {runs.ENDED: int(id)}
    return Outcome(f"{text}\n{state}", details={"exit_code": None if members else code, **details})


@tool(effect="own")
async def kill(run: ToolContext, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """End a background command and everything that it started."""
    running = find_job(run, id)
    over = not running.members()
    survivors = await running.stop()
    run.state.background.pop(id, None)
    await log_end(run.state, running)
    run.state.jobs_changed()
    await run.state.recorder.settle()
    result = f"Command {id} had already ended." if over else f"Command {id} ended."
    if survivors:
        result = f"Command {id} was asked to end. Still running: {', '.join(survivors)}."
    details = {"exit_code": running.process.returncode, runs.ENDED: int(id)}
    return Outcome(result, is_error=bool(survivors), details=details)
