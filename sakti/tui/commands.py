"""What is typed on the screen: a command runs its action, all else goes to the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sakti.actions import line
from sakti.actions.scope import Scope
from sakti.core.errors import NOT_SAVED, RAN, SaktiError
from sakti.tui import draw

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp


class Commands:
    """Runs what was typed. Everything here may raise SaktiError; the app turns it into a notice."""

    def __init__(self, app: SaktiApp) -> None:
        self._app = app
        self._compaction: asyncio.Task[Any] | None = None

    async def run(self, text: str) -> None:
        """A line from the prompt: a command, a shell line, a note or a message."""
        typed = line.parse(text)
        session = self._app.session
        match typed.kind:
            case "command":
                await self._command(typed)
            case "unknown":
                raise line.unknown(typed)
            case "shell":
                self._app.transcript.live.begin_shell(typed.argument)
                await self._kept(text, session.shell(typed.argument))
            case "note":
                await self._kept(text, session.note(typed.argument))
            case _:
                await self._kept(text, session.submit(typed.argument))

    async def _kept(self, text: str, work: Awaitable[None]) -> None:
        """Wait for `work`; where it fails, `text` stands in the prompt again, before what was typed meanwhile."""
        try:
            await work
        except SaktiError as e:
            if e.code == RAN:
                raise
            self._app.prompt.put("\n\n".join(t for t in (text, self._app.prompt.value) if t))
            if e.code in NOT_SAVED:
                told = f"{e.message} Nothing was sent: it stands in the prompt."
                raise SaktiError(told, title=e.title, code=e.code) from e
            raise

    async def _command(self, typed: line.Typed) -> None:
        app = self._app
        if typed.name == "compact" and typed.argument not in ("undo", "diff") and self.compacting:
            app.say("A compaction is under way; Esc stops it.")
            return
        scope = Scope(app.session, lambda value: draw.draw(app, value), self._working)
        await draw.show(app, await line.run(scope, typed))
        app.header.mode, app.header.approval = app.session.mode, app.session.approval_mode
        if typed.name == "memory":
            app.load_observations()
        elif typed.name == "tasks":
            app.load_board()

    @contextmanager
    def _working(self, text: str) -> Generator[None]:
        """Say in the status line what is waited for, and let Esc stop it."""
        self._app.status_line.work(text)
        self._compaction = asyncio.current_task()
        try:
            yield
        finally:
            self._compaction = None
            self._app.status_line.work("")

    @property
    def compacting(self) -> bool:
        return self._compaction is not None

    def stop(self) -> bool:
        """Give up what a command is waiting for; False where none is."""
        return self._compaction is not None and self._compaction.cancel()
