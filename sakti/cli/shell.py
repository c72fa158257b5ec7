"""Find the commands of the shell, run one in the scope of the current folder, and print its result."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sakti.actions import registry
from sakti.actions.scope import Scope
from sakti.actions.spec import Action
from sakti.actions.values import Open, Text, Value
from sakti.cli import common
from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_imports
from sakti.core.text import sanitize_text

if TYPE_CHECKING:
    from sakti.actions.registry import Subject
    from sakti.actions.scope import Models
    from sakti.agent.workspace import Workspace
    from sakti.core.config import Config, LoadedConfig
    from sakti.store.database import Store

with lazy_imports:
    from sakti.agent import repository
    from sakti.agent.session import initial_thread
    from sakti.agent.session import session as sessions
    from sakti.cli import loop
    from sakti.store import secrets
    from sakti.tasks import service as task_service


T = TypeVar("T")


class ShellScope(Scope):
    """`store` is open if the action declared that it needs it; otherwise each query or change opens it."""

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
        return common.find_workspace()

    @property
    def resource(self) -> str:
        return str(self.workspace)

    @property
    def board(self) -> str:
        shared = common.load_own_settings().config.store.share_worktrees
        return str(repository.find_board_root(self.workspace, shared=shared))

    @property
    def database(self) -> Path:
        return common.find_database()

    @property
    def config(self) -> Config:
        return common.load_settings().config

    @property
    def env(self) -> Mapping[str, str]:
        return os.environ

    def now(self) -> int:
        return int(time.time() * 1000)

    def settings(self, overrides: Sequence[str] = ()) -> LoadedConfig:
        return common.load_settings(overrides)

    def make_workspace(self) -> Workspace:
        return sessions.Session(common.make_options(trusted=False)).workspace

    def in_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        return common.run_in_store(work)

    async def ask(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._store is not None:
            return await super().ask(fn, *args, **kwargs)
        return secrets.mask_output(common.query_store(fn, self.board, *args, **kwargs))

    async def change(self, fn: Callable[..., Any], name: str | None, *args: Any, **kwargs: Any) -> Any:
        if self._store is not None:
            return await super().change(fn, name, *args, **kwargs)
        actor = self.actor(name)
        return common.run_in_store(lambda store: store.write(fn, actor, *args, **kwargs))

    def actor(self, name: str | None) -> task_service.Actor:
        """Return the actor: `--as`, else SAKTI_ACTOR, else the user of the shell."""
        who = name or os.environ.get("SAKTI_ACTOR") or os.environ.get("USER") or "shell"
        lease_ms = task_service.SHELL_CLAIM_MS
        return task_service.Actor(self.board, f"shell:{who}", self.now(), name=who, lease_ms=lease_ms)

    @asynccontextmanager
    async def memory(
        self, thread: str | None, overrides: Sequence[str], models: Models = "none"
    ) -> AsyncGenerator[sessions.Session]:
        def make_session(resume: str | None) -> sessions.Session:
            chosen = common.make_options(overrides=overrides, resume=resume, trusted=False)
            return sessions.Session(chosen, store=self._store)

        session = make_session(thread)
        for warning in session.workspace.options.warnings:
            print(f"sakti: {sanitize_text(warning)}", file=sys.stderr)
        if models == "chosen":
            await session.workspace.models.select(None)
        await initial_thread.open_read_only(session.current)
        if models == "chosen" and session.workspace.models.info is not None:
            await session.current.learn()
        if (
            models == "called" and session.thread and not session.workspace.config.memory.read_only
        ):  # otherwise the engine reports it
            await session.close()
            session = make_session(session.thread.id)
            await session.start()
        try:
            yield session
        finally:
            await session.close()

    def _say(self, value: Value) -> None:
        if not self.json:
            for line in value.lines:
                common.say(line)


OWN = ("run", "tour")  # commands that are not actions: they open a chat


@functools.cache
def find_subject(word: str) -> Subject | None:
    """Return the declarations of `sakti WORD`; None for an unknown command."""
    if word in OWN:
        return registry.read_subject(importlib.import_module("sakti.cli.run"))
    return registry.find_subject(word) if word.isidentifier() else None


def list_words() -> list[str]:
    """Return the first words of all commands."""
    return sorted({*OWN, *registry.list_shell_words()})


def explain_unknown(word: str) -> str:
    """Return the error for an unknown command, with the nearest one."""
    import difflib

    near = difflib.get_close_matches(word, list_words(), 1)
    hint = f"Did you mean `sakti {near[0]}`?" if near else "`sakti --help` shows the commands."
    return f"Unknown command `sakti {word}`. {hint}"


def execute(action: Action, values: dict[str, Any]) -> None:
    """Run an action and print its result.

    Raises SystemExit for an exit code other than 0, and `SaktiError`.
    """
    as_json: bool = values.pop("json", False)
    try:
        _show(_run(action, values, as_json), as_json)
    except TaskError as e:
        _refuse(e, as_json)


def _run(action: Action, values: dict[str, Any], as_json: bool) -> Value | None:
    async def work(scope: ShellScope) -> Value | None:
        value = await action.run(scope, **values)
        return await value.fallback() if isinstance(value, Open) and value.fallback is not None else value

    if action.needs == "store":
        return common.run_in_store(lambda store: work(ShellScope(store, json=as_json)))
    if action.needs == "nothing":
        return _run_without_loop(work(ShellScope(json=as_json)))
    return loop.run(work(ShellScope(json=as_json)))


def _run_without_loop(work: Coroutine[Any, Any, Value | None]) -> Value | None:
    """Run a coroutine that never waits without an event loop: importing asyncio would cost more."""
    try:
        work.send(None)
    except StopIteration as e:
        return e.value
    raise RuntimeError("an action that needs nothing must be awaited")


_PRINTERS = {"findings": common.say_finding, "markdown": common.say_markdown, "document": common.say_document}


def _show(value: Value | None, as_json: bool) -> None:
    if value is None:
        return
    if as_json:
        common.say_json(value.as_json())
    else:
        say = _PRINTERS.get(value.kind if isinstance(value, Text) else "", common.say)
        for line in value.lines:
            say(line)
    if value.exit:
        raise SystemExit(value.exit)


def _refuse(error: TaskError, as_json: bool) -> NoReturn:
    """Exit with a refusal of the board, which is printed as JSON if `as_json`."""
    code = common.USAGE if error.code in ("no_input", "unreadable", "bad_text") else common.FAILED
    if as_json:
        common.say_json({"success": False, "error": error.message, "code": error.code})
        raise SystemExit(code)
    common.fail(error.message, code)
