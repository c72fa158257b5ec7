"""Run our own helper programs to search, list and draw, streamed, and killed at a deadline.

A regular expression or a damaged file can keep a library busy for hours or crash it; in a process of its own that
costs a call, not the session. Cancelling ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from msgspec import Struct

CHUNK = 1 << 16
# Variables that a helper needs; others may hold keys, and it reads files that anyone may have written.
PASSED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "TEMP")


class ChildEnd(Struct):
    """End of a child process: its exit code (None if killed at the deadline) and its stderr."""

    code: int | None = None
    errors: str = ""


@functools.cache
def find_ripgrep() -> str | None:
    """Return the program of the installed ripgrep package, or None if this platform has none.

    PATH is not used: anyone may have written what is there.
    """
    from importlib import metadata

    try:
        files = metadata.distribution("ripgrep").files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        program = Path(str(file.locate()))
        if file.name in ("rg", "rg.exe") and program.is_file():
            return str(program.resolve())
    return None


def make_command(name: str) -> list[str]:
    """Return the command for a program beside this file, which imports nothing of sakti's.

    `-P` keeps the current folder out of the import path.
    """
    return [sys.executable, "-P", "-B", str(Path(__file__).with_name(name))]


def choose_environment() -> dict[str, str]:
    """Return the variables for our own helper programs."""
    return {name: os.environ[name] for name in PASSED if name in os.environ}


async def read_chunks(
    command: Sequence[str], cwd: Path, ended: ChildEnd, *, data: bytes = b"", deadline: float
) -> AsyncGenerator[bytes, None]:
    """Yield the output of a program as it arrives, until `deadline` (of the running loop's clock).

    Closing the generator ends the program.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=choose_environment(),
        stdin=asyncio.subprocess.PIPE if data else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    helpers = [asyncio.create_task(_read_head(process.stderr))]
    if process.stdin is not None:
        helpers.append(asyncio.create_task(_write_input(process.stdin, data)))
    try:
        async with asyncio.timeout_at(deadline):
            while piece := await process.stdout.read(CHUNK):
                yield piece
            ended.errors = await helpers[0]
            ended.code = await process.wait()
    except TimeoutError:
        ended.code = None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for helper in helpers:
            helper.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await process.wait()


async def _read_head(stream: asyncio.StreamReader) -> str:
    """Return the beginning of a program's stderr; the rest is read so that it does not block."""
    head = b""
    while piece := await stream.read(CHUNK):
        head += piece[: max(0, 8_192 - len(head))]
    return head.decode("utf-8", "replace")


async def _write_input(stream: asyncio.StreamWriter, data: bytes) -> str:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()
    return ""
