"""What an action finds around it: the workspace, its store, and in a chat the live session."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from sakti.actions.values import Refused, Value

if TYPE_CHECKING:
    from sakti.agent.session import Session
    from sakti.core.config import Config, Loaded
    from sakti.store.database import Store
    from sakti.tasks.service import Actor

T = TypeVar("T")
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
    def resource(self) -> str:
        """The id that everything of this workspace is stored under."""
        ...

    @property
    def database(self) -> Path:
        """The database file. Raises `ConfigError`."""
        ...

    @property
    def config(self) -> Config:
        """The settings as they hold here. Raises `ConfigError`."""
        ...

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

    def in_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        """Run `work` with the store opened for it and closed again: what goes on afterwards has the file alone. Only
        for what needs nothing, in the shell."""
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

    def working(self, text: str) -> AbstractContextManager[None]:
        """Say what is being waited for, as long as the block runs; the user may stop it."""
        ...


class ChatScope:
    """In a chat. `tell` and `working` are what its surface does with them."""

    json = False

    def __init__(
        self,
        session: Session,
        tell: Callable[[Value], None],
        working: Callable[[str], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.session = session
        self.tell = tell
        self.working = working

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
    def resource(self) -> str:
        return self.session.resource_id

    @property
    def database(self) -> Path:
        return self.store.path

    @property
    def config(self) -> Config:
        return self.session.config

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

    def in_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        raise Refused("This works in a shell only.")

    async def ask(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from sakti.store.text_registry import leaving_all

        return leaving_all(await self.store.read(fn, self.resource, *args, **kwargs))

    async def change(self, fn: Callable[..., Any], name: str | None, *args: Any, **kwargs: Any) -> Any:
        return await self.store.write(fn, self._actor(), *args, **kwargs)

    def _actor(self) -> Actor:
        """The user; what the chat of this window has claimed is theirs to change."""
        from sakti.tasks.service import SHELL_CLAIM_MS, Actor

        session = self.session
        own = () if session.thread is None else (session.thread.id,)
        now = session.clock.now()
        return Actor(self.resource, "user:you", now, name="you", lease_ms=SHELL_CLAIM_MS, also=own)

    @asynccontextmanager
    async def memory(
        self, thread: str | None, overrides: Sequence[str], models: Models = "none"
    ) -> AsyncGenerator[Session]:
        yield self.session
