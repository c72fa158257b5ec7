"""Progress bar on standard error, if that is a terminal, and questions on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from sakti.actions.values import USAGE, Refused, Text

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

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


def confirm(question: str) -> bool:
    """Ask on the terminal; no answer is no."""
    try:
        return input(f"{question} [y/N]: ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def confirm_change(scope: Scope, path: Path, diff: Sequence[str]) -> None:
    """Show the change of a file and ask about it. Raises `Refused` if it is not confirmed."""
    if scope.json or not sys.stdin.isatty():
        raise Refused(f"This changes {path}; --yes confirms it.", code=USAGE)
    scope.tell(Text(tuple(diff), kind="diff"))
    if not confirm(f"Change {path}?"):
        raise Refused("Nothing was changed.")
