"""Keep the commands that run in the background of a session."""

from __future__ import annotations

import asyncio
import time

from sakti.agent.tools.context import ToolContext, ToolState
from sakti.agent.tools.processes import Running
from sakti.core.errors import ToolError
from sakti.store.secrets import masked
from sakti.store.threads.jobs import StoredJob

LOOK = 1.0  # seconds between two looks at what a command left running
LAST_LINES, LONGEST_LINE = 20, 400  # of the output that is shown of an ended command


async def keep(run: ToolContext, running: Running) -> str:
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
    """Tell when a command has ended with all that it started."""
    await running.wait_for_exit()
    while running.members():  # noqa: ASYNC110 - nothing tells of the end of other processes
        await asyncio.sleep(LOOK)
    running.drain()
    await log_end(state, running)
    state.jobs_changed()


async def log_end(state: ToolState, running: Running) -> None:
    """Store how a command ended."""
    if state.job_log is not None:
        await state.job_log.end(running)


def is_over(running: Running | StoredJob) -> bool:
    """Return whether nothing of a command runs."""
    return isinstance(running, StoredJob) or running.exit_code is not None


def describe_state(running: Running | StoredJob) -> str:
    """Return the state of a command for lists: how long it runs, or how it ended."""
    if isinstance(running, StoredJob):
        return "lost: sakti was killed while it ran"
    code = running.exit_code
    if code is not None:
        return f"ended with exit code {code}"
    seconds = int(time.monotonic() - running.began)
    return f"running for {seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"running for {seconds} s"


def last_lines(running: Running | StoredJob, count: int = LAST_LINES) -> str:
    """Return the end of a command's output; of a lost one nothing is kept."""
    text = "Its output was not saved." if isinstance(running, StoredJob) else running.output.current_text()
    lines = [line[:LONGEST_LINE] for line in text.rstrip().split("\n")[-count:]]
    return masked("\n".join(lines))


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


def list_running(state: ToolState) -> dict[str, Running]:
    """Return the commands that run in the background, by number."""
    jobs: dict[str, Running] = state.background
    return {number: job for number, job in jobs.items() if job.members()}


async def stop_command(state: ToolState, number: str) -> list[str]:
    """Stop a background command and all that it started; return the names of survivors."""
    running: Running | None = state.background.pop(number, None)
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
