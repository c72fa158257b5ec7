"""Scope of an action: the workspace, its store, the live session of a chat, progress and questions."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from sakti.actions.values import USAGE, Refused, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import quote

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.agent.workspace import Workspace
    from sakti.core.config import Config, LoadedConfig
    from sakti.core.types import Thread
    from sakti.store.database import Store


with lazy_imports:
    from sakti.agent import titles as thread_titles
    from sakti.store import secrets
    from sakti.store.threads import threads as stored_threads
    from sakti.tasks import service as task_service

T = TypeVar("T")
Models = Literal["none", "chosen", "called"]


class Scope:
    """Context of an action: this class in a chat, a subclass in a shell.

    `live` is the session of the chat, None in a shell. `tell` shows a value while the action runs; `working` shows an
    activity during its block, and lets the user stop it. `json`: the output is JSON.
    """

    json = False

    def __init__(
        self,
        live: Session | None,
        tell: Callable[[Value], None],
        working: Callable[[str], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.live = live
        self.tell = tell
        self.working = working
        self.state: dict[str, Any] = {}  # state of actions that span several runs in this chat

    @property
    def session(self) -> Session:
        """Return the live session. Raises Refused without one."""
        if self.live is None:
            raise Refused("This works in the chat only.")
        return self.live

    @property
    def store(self) -> Store:
        return self.session.workspace.store

    @property
    def workspace(self) -> Path:
        return self.session.workspace.root

    @property
    def resource(self) -> str:
        """Return the resource id of this workspace in the store."""
        return self.session.workspace.resource_id

    @property
    def board(self) -> str:
        """Return the resource id of this workspace's tasks and working memory page."""
        return self.session.workspace.board_id

    @property
    def database(self) -> Path:
        """Return the database file. Raises `ConfigError`."""
        return self.store.path

    @property
    def config(self) -> Config:
        """Return the effective settings. Raises `ConfigError`."""
        return self.session.workspace.config

    @property
    def env(self) -> Mapping[str, str]:
        return self.session.workspace.env

    def now(self) -> int:
        """Return the current time in Unix ms."""
        return self.session.workspace.clock.now()

    async def ask(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the result of `fn(db, resource, …)`, secrets masked; the shell needs no event loop."""
        return secrets.mask_output(await self.store.read(fn, self.board, *args, **kwargs))

    async def change(self, fn: Callable[..., Any], name: str | None, *args: Any, **kwargs: Any) -> Any:
        """Run the change `fn(db, actor, …)`; in a shell, `name` replaces the user as the actor."""
        return await self.store.write(fn, self.actor(name), *args, **kwargs)

    def actor(self, name: str | None) -> task_service.Actor:
        """Return the actor: in a chat the user, who may also change tasks claimed by this window."""
        thread = self.session.thread
        claims = () if thread is None else (thread.id,)
        return task_service.Actor(
            self.board, "user:you", self.now(), name="you", lease_ms=task_service.SHELL_CLAIM_MS, also=claims
        )

    def settings(self, overrides: Sequence[str] = ()) -> LoadedConfig:
        """Read every setting with its origin; only in the shell. Raises `ConfigError`."""
        raise Refused("This works in a shell only.")

    def make_workspace(self) -> Workspace:
        """Make a workspace without its store; only in the shell. Raises `ConfigError`."""
        raise Refused("This works in a shell only.")

    def in_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run `work` with the store open, then close it; only in the shell, if the action needs nothing.

        Code after it has exclusive use of the database file.
        """
        raise Refused("This works in a shell only.")

    @asynccontextmanager
    async def memory(
        self, thread: str | None, overrides: Sequence[str], models: Models = "none"
    ) -> AsyncGenerator[Session]:
        """Open a session on a thread to read or change its memory; in a chat this is the live one.

        `models`: not needed, chosen (so that they have names), or ready to be called.
        """
        yield self.session


Show: TypeAlias = Callable[..., None]  # (done, total, current step)


@contextmanager
def show_progress_bar(what: str, unit: Literal["bytes", "count"]) -> Generator[Show]:
    """Draw a progress bar during the block; yields the function that updates it."""
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
    """Ask on the terminal; an empty answer means no."""
    try:
        return input(f"{question} [y/N]: ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def confirm_change(scope: Scope, path: Path, diff: Sequence[str]) -> None:
    """Show the change of a file and ask for confirmation. Raises `Refused` without it."""
    if not scope.json:
        scope.tell(Text(tuple(diff), kind="diff"))
    if scope.json or not sys.stdin.isatty():
        raise Refused(f"This changes {path}; --yes confirms it.", code=USAGE)
    if not confirm(f"Change {path}?"):
        raise Refused("Nothing was changed.")


async def find_thread(scope: Scope, text: str, resource: str | None) -> Thread:
    """Return the only thread of a workspace (None: of all) with that id, end of it, or title.

    Raises `Refused`.
    """
    matches = thread_titles.narrow_matches(text, await scope.store.read(stored_threads.find, resource, text))
    if not matches:
        elsewhere = await scope.store.read(stored_threads.find, None, text)
        raise Refused(thread_titles.explain_missing(text, elsewhere))
    if len(matches) > 1:
        raise Refused(f"{quote(text)} matches {len(matches)} threads; `sakti threads list` shows them.")
    return matches[0]
