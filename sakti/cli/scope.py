"""Scope of an action in a shell: the current folder's workspace and the user's database."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sakti.actions.scope import Scope
from sakti.actions.values import Value
from sakti.cli import common
from sakti.core.lazy import lazy_imports
from sakti.core.text import sanitise

if TYPE_CHECKING:
    from sakti.actions.scope import Models
    from sakti.agent.workspace import Workspace
    from sakti.core.config import Config, LoadedConfig
    from sakti.store.database import Store

with lazy_imports:
    from sakti.agent import repository
    from sakti.agent.session import initial_thread
    from sakti.agent.session import session as sessions
    from sakti.store import secrets
    from sakti.tasks import service as task_service

T = TypeVar("T")


class ShellScope(Scope):
    """`store` is open where the action said that it needs it; else each question or change opens it once."""

    def __init__(self, store: Store | None = None, *, json: bool = False) -> None:
        super().__init__(None, self._say)
        self.json = json
        self._store = store

    @property
    def store(self) -> Store:
        assert self._store is not None, "the action does not say that it needs the store"
        return self._store

    @property
    def workspace(self) -> Path:
        return common.workspace()

    @property
    def resource(self) -> str:
        return str(self.workspace)

    @property
    def board(self) -> str:
        shared = common.own_settings().config.store.share_worktrees
        return str(repository.board_root(self.workspace, shared=shared))

    @property
    def database(self) -> Path:
        return common.database_path()

    @property
    def config(self) -> Config:
        return common.settings().config

    @property
    def env(self) -> Mapping[str, str]:
        return os.environ

    def now(self) -> int:
        return int(time.time() * 1000)

    def settings(self, overrides: Sequence[str] = ()) -> LoadedConfig:
        return common.settings(overrides)

    def make_workspace(self) -> Workspace:
        return sessions.Session(common.options(interactive=False)).workspace

    def in_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        return common.in_store(work)

    async def ask(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._store is not None:
            return await super().ask(fn, *args, **kwargs)
        return secrets.mask_output(common.ask(fn, self.board, *args, **kwargs))

    async def change(self, fn: Callable[..., Any], name: str | None, *args: Any, **kwargs: Any) -> Any:
        if self._store is not None:
            return await super().change(fn, name, *args, **kwargs)
        actor = self.actor(name)
        return common.in_store(lambda store: store.write(fn, actor, *args, **kwargs))

    def actor(self, name: str | None) -> task_service.Actor:
        """Return who acts: `--as`, else SAKTI_ACTOR, else the user of the shell."""
        who = name or os.environ.get("SAKTI_ACTOR") or os.environ.get("USER") or "shell"
        lease_ms = task_service.SHELL_CLAIM_MS
        return task_service.Actor(self.board, f"shell:{who}", self.now(), name=who, lease_ms=lease_ms)

    @asynccontextmanager
    async def memory(
        self, thread: str | None, overrides: Sequence[str], models: Models = "none"
    ) -> AsyncGenerator[sessions.Session]:
        def made(resume: str | None) -> sessions.Session:
            chosen = common.options(overrides=overrides, resume=resume, interactive=False)
            return sessions.Session(chosen, store=self._store)

        session = made(thread)
        for warning in session.workspace.options.warnings:
            print(f"sakti: {sanitise(warning)}", file=sys.stderr)
        if models == "chosen":
            await session.workspace.models.select(None)
        await initial_thread.open_read_only(session.current)
        if models == "chosen" and session.workspace.models.info is not None:
            await session.current.learn()
        if (
            models == "called" and session.thread and not session.workspace.config.memory.read_only
        ):  # else the engine says it
            await session.close()
            session = made(session.thread.id)
            await session.start()
        try:
            yield session
        finally:
            await session.close()

    def _say(self, value: Value) -> None:
        if not self.json:
            for line in value.lines:
                common.say(line)
