"""Stopping and quitting: what ctrl+c, Esc and ctrl+q end, and when they ask for a second press."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from sakti.tui.chat.conversation import Conversation
from sakti.tui.host import Host
from sakti.tui.widgets.status import StatusLine

TWICE = 2.0  # seconds in which a second ctrl+c quits


class Compaction:
    """The running /compact: it is named in the last line, and Esc stops it."""

    def __init__(self, status_line: StatusLine) -> None:
        self._status_line = status_line
        self._task: asyncio.Task[Any] | None = None

    @property
    def under_way(self) -> bool:
        return self._task is not None

    def stop(self) -> bool:
        """Cancel it; False if none runs."""
        return self._task is not None and self._task.cancel()

    @contextmanager
    def working(self, text: str) -> Generator[None]:
        """Show `text` in the last line while the block runs; `stop` cancels the block."""
        self._status_line.work(text)
        self._task = asyncio.current_task()
        try:
            yield
        finally:
            self._task = None
            self._status_line.work("")


class Stopping:
    """Keeps when each key was pressed last."""

    def __init__(self, host: Host, conversation: Conversation, compaction: Compaction) -> None:
        self._host, self._compaction = host, compaction
        self._conversation, self._prompt = conversation, conversation.prompt
        self._last_stop = self._last_quit = float("-inf")

    def stop(self) -> None:
        """Answer ctrl+c: interrupt what runs, or clear the prompt; twice quits."""
        session = self._host.session
        now = session.workspace.clock.monotonic()
        if now - self._last_stop < TWICE:
            self._host.exit(0)
            return
        self._last_stop = float("inf")  # until the hint stands: a second press means it, however late it is heard
        if not self.interrupt():
            self._prompt.drop()
        self._host.note("ctrl+c again quits")
        self._prompt.call_after_refresh(self._quit_offered)

    def _quit_offered(self) -> None:
        """Begin the two seconds where the hint can be read, however late a busy machine paints it."""
        self._last_stop = self._host.session.workspace.clock.monotonic()
        self._prompt.set_timer(TWICE, self._clear_note)

    def _clear_note(self) -> None:
        self._host.note("")

    def interrupt(self) -> bool:
        """Stop the compaction, else the user's own command, else the turn; false if nothing runs.

        The partial answer of a turn is kept, and queued messages go back to the prompt.
        """
        if self._compaction.stop() or self._host.session.stop_command():
            return True
        if self._host.session.busy:
            self._conversation.take_back_queue()  # before it stops: nothing of it is sent while it does
            self._host.go(self._interrupt, group="interrupt")
            return True
        return False

    async def _interrupt(self) -> None:
        await self._host.session.interrupt()

    def may_quit(self) -> bool:
        """Return whether ctrl+q may close the window; with work under way only when asked twice."""
        session = self._host.session
        now = session.workspace.clock.monotonic()
        if session.busy and now - self._last_quit > TWICE * 3:
            self._last_quit = now
            self._host.note("the agent is working; press again to stop it and quit")
            return False
        return True
