"""Progress bar on standard error, if that is a terminal, and questions on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from sakti.core.text import sanitise

Show: TypeAlias = Callable[..., None]  # (done, of how many, doing what)


@contextmanager
def bar(what: str, unit: Literal["bytes", "count"]) -> Generator[Show]:
    """Draw a bar as long as the block runs; it yields what moves it on."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), amount, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)

        def show(done: int, total: int, doing: str = what) -> None:
            progress.update(task, completed=done, total=total, description=doing)

        yield show


async def show_address(address: str) -> None:
    """Open an address in the browser, and print it for one on another machine."""
    print(f"Open this address to log in:\n\n{sanitise(address)}\n", file=sys.stderr)
    print("If the browser cannot show the last page, paste its address here and press Enter.", file=sys.stderr)
    if "SSH_CONNECTION" not in os.environ:
        await open_browser(address)


async def open_browser(address: str) -> None:
    import webbrowser

    await asyncio.to_thread(webbrowser.open, address)


async def read_line() -> str:
    """Return the next line that the user types; waits for ever at the end of the input."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if data := os.read(sys.stdin.fileno(), 65_536):
            if not typed.done():
                typed.set_result(data.decode("utf-8", "replace"))
        else:
            loop.remove_reader(sys.stdin)

    with contextlib.suppress(OSError, ValueError):  # a file, or no standard input: nothing is pasted
        loop.add_reader(sys.stdin, read)
    try:
        return await typed
    finally:
        with contextlib.suppress(OSError, ValueError):
            loop.remove_reader(sys.stdin)


def confirm(question: str) -> bool:
    """Ask on the terminal; no answer is no."""
    try:
        return input(f"{question} [y/N]: ").strip().lower() in ("y", "yes")
    except EOFError:
        return False
