"""bash: commands in a process group of their own, streamed, bounded, stopped as a whole."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pydantic

from sakti.agent.tools.base import Outcome, ToolRun, Workbench, tool
from sakti.core.errors import ToolError
from sakti.core.programs import find_program

MEMORY_LIMIT = 200_000  # characters of an output kept in memory: its head and its tail
FILE_LIMIT = 64_000_000  # bytes of an output kept in its file
STREAM_INTERVAL = 0.1  # seconds between two pieces for the screen
GRACE = 2.0  # seconds between TERM and KILL


@dataclass(slots=True)
class Output:
    """What a command prints: the head and the tail in memory, all of it (up to a limit) in a file."""

    path: Path
    head: str = ""
    tail: str = ""
    total: int = 0
    unread: str = ""
    _written: int = field(default=0)

    def add(self, text: str) -> None:
        self.total += len(text)
        room = MEMORY_LIMIT // 2 - len(self.head)
        if room > 0:
            self.head, text_rest = self.head + text[:room], text[room:]
        else:
            text_rest = text
        self.tail = (self.tail + text_rest)[-MEMORY_LIMIT // 2 :]
        self.unread = (self.unread + text)[-MEMORY_LIMIT // 2 :]
        if self._written < FILE_LIMIT:
            data = text.encode("utf-8", "replace")[: FILE_LIMIT - self._written]
            handle = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
            try:
                self._written += os.write(handle, data)
            finally:
                os.close(handle)

    def text(self) -> str:
        left_out = self.total - len(self.head) - len(self.tail)
        gap = f"\n[… {left_out} characters left out …]\n" if left_out > 0 else ""
        return self.head + gap + self.tail

    def take_unread(self) -> str:
        text, self.unread = self.unread, ""
        return text


@dataclass(slots=True)
class Running:
    """A command that goes on in the background."""

    command: str
    process: asyncio.subprocess.Process
    output: Output
    reader: asyncio.Task[None]


async def start(bench: Workbench, command: str, call_id: str) -> tuple[asyncio.subprocess.Process, Output, Path]:
    program = find_program("bash", bench.workspace, bench.env.get("PATH"))
    if program is None:
        raise ToolError("bash was not found on PATH outside the workspace: install it.")
    bench.output_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    output = Output(bench.output_folder / f"{call_id[-12:]}-{bench.ids.new()[-8:]}.txt")
    handle, cwd_file = tempfile.mkstemp(prefix="sakti-cwd-")
    os.close(handle)
    cwd = bench.cwd if bench.cwd.is_dir() else bench.workspace
    script = f"trap 'pwd -P >\"$SAKTI_CWD_FILE\"' EXIT\n{command}\n"
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "-c",
            script,
            cwd=cwd,
            env={**bench.env, "SAKTI_CWD_FILE": cwd_file},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as e:
        Path(cwd_file).unlink(missing_ok=True)
        raise ToolError(f"bash cannot be started: {e.strerror}.") from e
    return process, output, Path(cwd_file)


async def pump(process: asyncio.subprocess.Process, output: Output) -> None:
    """Read until the pipe closes; whole UTF-8 sequences only."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    assert process.stdout is not None
    while data := await process.stdout.read(1 << 16):
        output.add(decoder.decode(data))
    output.add(decoder.decode(b"", final=True))


async def stop(process: asyncio.subprocess.Process) -> None:
    """End the whole process group: TERM, a moment, KILL; also what ignored TERM and outlived its parent."""
    group = process.pid  # start_new_session made it the leader
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    await process.wait()


async def stop_all(bench: Workbench) -> None:
    """Stop everything in the background: the session ends."""
    for running in list(bench.background.values()):
        await stop(running.process)
        running.reader.cancel()
    bench.background.clear()


@tool()
async def bash(
    run: ToolRun,
    command: Annotated[str, "what bash runs"],
    timeout: Annotated[int | None, pydantic.Field(ge=1, le=3600), "seconds until it is stopped"] = None,
    background: Annotated[bool, "return at once; read on with bash_output, end with kill"] = False,
) -> Outcome:
    """Run a command. The current folder carries over to the next command; there is no terminal and no input."""
    process, output, cwd_file = await start(run.bench, command, run.call_id)
    reader = asyncio.create_task(pump(process, output))
    if background:
        number = str(len(run.bench.background) + 1)
        run.bench.background[number] = Running(command, process, output, reader)
        cwd_file.unlink(missing_ok=True)
        return Outcome(f"Running in the background as {number}.", details={"background": number})
    limit = timeout or run.bench.bash_timeout
    timed_out = False
    try:
        async with asyncio.timeout(limit):
            ended = asyncio.create_task(process.wait())
            while not ended.done():
                await asyncio.wait({ended}, timeout=STREAM_INTERVAL)
                if piece := output.take_unread():
                    run.stream(piece)
            # what it left running may hold the pipe open: read what is there, wait no longer
            await asyncio.wait({reader}, timeout=STREAM_INTERVAL * 3)
    except TimeoutError:
        timed_out = True
    finally:
        await stop(process)
        reader.cancel()
        if (where := cwd_file.read_text().strip()) and Path(where).is_dir():
            run.bench.cwd = Path(where)
        cwd_file.unlink(missing_ok=True)
    if piece := output.take_unread():
        run.stream(piece)
    return _result(run, output, process.returncode, timed_out, limit)


def _result(run: ToolRun, output: Output, code: int | None, timed_out: bool, limit: int) -> Outcome:
    text = output.text().rstrip("\n")
    details: dict[str, object] = {"exit_code": code}
    if output.total > run.bench.output_bytes:
        details["output_file"] = str(output.path)
        details["characters"] = output.total
    else:
        output.path.unlink(missing_ok=True)
    if timed_out:
        return Outcome(
            f"{text}\n[stopped after {limit} s]".lstrip(), is_error=True, details={**details, "timeout": limit}
        )
    if code:
        return Outcome(f"{text}\n[exit code {code}]".lstrip(), is_error=True, details=details)
    return Outcome(text or "[no output]", details=details)


def _running(run: ToolRun, number: str) -> Running:
    if number not in run.bench.background:
        known = ", ".join(run.bench.background) or "none"
        raise ToolError(f"There is no command {number} in the background (running: {known}).")
    return run.bench.background[number]


@tool(read_only=True)
async def bash_output(run: ToolRun, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """What a background command has printed since it was last asked, and whether it still runs."""
    running = _running(run, id)
    text = running.output.take_unread().rstrip("\n") or "[nothing new]"
    code = running.process.returncode
    state = "[still running]" if code is None else f"[ended with exit code {code}]"
    return Outcome(f"{text}\n{state}", details={"exit_code": code})


@tool(read_only=True)
async def kill(run: ToolRun, id: Annotated[str, "number that bash gave"]) -> Outcome:
    """End a background command."""
    running = _running(run, id)
    await stop(running.process)
    del run.bench.background[id]
    return Outcome(f"Command {id} ended.", details={"exit_code": running.process.returncode})
