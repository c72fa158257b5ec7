"""What an action finds around it: the workspace, its store, and in a chat the live session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from sakti.actions.values import Value
    from sakti.agent.session import Session
    from sakti.core.config import Loaded
    from sakti.store.database import Store
    from sakti.tasks.service import Actor

Models = Literal["none", "chosen", "called"]


class Scope(Protocol):
    """The surroundings of a run. `live`: there is a session that somebody talks to; `json`: JSON was asked for."""

    json: bool

    @property
    def live(self) -> Session | None: ...
    @property
    def session(self) -> Session:
        """The live session; only for actions that need one."""
        ...

    @property
    def store(self) -> Store: ...
    @property
    def workspace(self) -> Path: ...
    @property
    def env(self) -> Mapping[str, str]: ...
    def now(self) -> int:
        """Unix ms."""
        ...

    def settings(self, overrides: Sequence[str] = ()) -> Loaded:
        """Every setting with its origin. Raises `ConfigError`."""
        ...

    async def ask(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What `fn(db, resource, …)` reads, secrets masked; in the shell without an event loop."""
        ...

    async def change(self, fn: Callable[..., Any], name: str | None, *args: Any, **kwargs: Any) -> Any:
        """What `fn(db, actor, …)` changes; `name` is who acts, where it is not the user."""
        ...

    def memory(
        self, thread: str | None, overrides: Sequence[str], models: Models = "none"
    ) -> AbstractAsyncContextManager[Session]:
        """A session on that thread whose engine may be asked and changed. Its models: none, chosen so that they can be
        named, or ready to be called."""
        ...

    def tell(self, value: Value) -> None:
        """Show something while the action goes on."""
        ...

    def work(self, text: str) -> None:
        """Say what is being waited for; empty: no more."""
        ...


class ChatScope:
    """In a chat. `tell` and `work` are what its surface does with them."""

    json = False

    def __init__(
        self, session: Session, tell: Callable[[Value], None], work: Callable[[str], None] = lambda _: None
    ) -> None:
        self.session = session
        self.tell = tell
        self.work = work

    @property
    def live(self) -> Session | None:
        return self.session

    @property
    def store(self) -> Store:
        return self.session.store

    @property
    def workspace(self) -> Path:
        return self.session.workspace

    @property
    def env(self) -> Mapping[str, str]:
        return self.session.env

    def now(self) -> int:
        return self.session.clock.now()

    def settings(self, overrides: Sequence[str] = ()) -> Loaded:
        from sakti.core.config import load
        from sakti.core.resources import config_home

        project = self.workspace / ".sakti" / "config.toml"
        return load(
            user_file=config_home() / "config.toml", project_file=project, env=self.env, overrides=tuple(overrides)
        )

    async def ask(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from sakti.store.text_registry import leaving_all

        return leaving_all(await self.store.read(fn, self.session.resource_id, *args, **kwargs))

    async def change(self, fn: Callable[..., Any], name: str | None, *args: Any, **kwargs: Any) -> Any:
        return await self.store.write(fn, self._actor(), *args, **kwargs)

    def _actor(self) -> Actor:
        """The user; what the chat of this window has claimed is theirs to change."""
        from sakti.tasks.service import SHELL_CLAIM_MS, Actor

        session = self.session
        own = () if session.thread is None else (session.thread.id,)
        now = session.clock.now()
        return Actor(session.resource_id, "user:you", now, name="you", lease_ms=SHELL_CLAIM_MS, also=own)

    @asynccontextmanager
    async def memory(
        self, thread: str | None, overrides: Sequence[str], models: Models = "none"
    ) -> AsyncGenerator[Session]:
        yield self.session
