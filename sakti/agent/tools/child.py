"""Programs of our own that search, list and draw: started by their path, read as they go, ended at a deadline.

A regular expression or a damaged file can keep a library busy for hours or bring it down; in a process of its own that
costs a call, not the session. Cancelling ends the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 16


@dataclass(slots=True)
class Ended:
    """How a child ended: its exit code, None where it was stopped at the deadline, and what it complained of."""

    code: int | None = None
    errors: str = ""


@functools.cache
def ripgrep() -> str | None:
    """Where the installed package has its program; None where there is no package for this platform. PATH is never
    asked: anyone may have written what is there."""
    from importlib import metadata

    try:
        files = metadata.distribution("ripgrep").files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        found = Path(str(file.locate()))
        if file.name in ("rg", "rg.exe") and found.is_file():
            return str(found.resolve())
    return None


def script(name: str) -> list[str]:
    """The command for a program beside this file, which imports nothing of sakti's; `-P` keeps the current folder from
    being a place to import from."""
    return [sys.executable, "-P", "-B", str(Path(__file__).with_name(name))]


async def chunks(
    command: Sequence[str], cwd: Path, ended: Ended, *, data: bytes = b"", deadline: float
) -> AsyncGenerator[bytes, None]:
    """What a program prints, as it comes, until `deadline` (of the running loop's clock). Closing the generator ends
    the program."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=asyncio.subprocess.PIPE if data else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    helpers = [asyncio.create_task(_head(process.stderr))]
    if process.stdin is not None:
        helpers.append(asyncio.create_task(_feed(process.stdin, data)))
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


async def _head(stream: asyncio.StreamReader) -> str:
    """The beginning of what a program complains of; the rest is read so that it can go on."""
    kept = b""
    while piece := await stream.read(CHUNK):
        kept += piece[: max(0, 8_192 - len(kept))]
    return kept.decode("utf-8", "replace")


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> str:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()
    return ""
