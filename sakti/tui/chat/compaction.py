"""/compact on the screen: under way, told in the last line, given up with Esc, shown and undone."""

from __future__ import annotations

import asyncio
from typing import Any

from sakti.core.text import count_k, one_line
from sakti.tui.host import Host
from sakti.tui.widgets.status import StatusLine


class Compaction:
    """Owns the compaction that is under way."""

    def __init__(self, host: Host, status_line: StatusLine) -> None:
        self._host, self._status_line = host, status_line
        self._task: asyncio.Task[Any] | None = None

    @property
    def under_way(self) -> bool:
        return self._task is not None

    def stop(self) -> bool:
        """Give it up; False where none is under way."""
        return self._task is not None and self._task.cancel()

    async def run(self, focus: str) -> None:
        """Compact now, to what `focus` asks for. Raises `SaktiError`."""
        host, session = self._host, self._host.session
        if self.under_way:
            host.say("A compaction is under way; Esc stops it.")
            return
        await session.require_thread()
        await session.follow()
        messages, before, after = session.compact_preview()
        if not messages:
            host.say("There is nothing to compact: all but the last exchange is observed already.")
            return
        host.say(f"{messages} messages, {count_k(before)} → ≈{count_k(after)} tokens", title="Compacting")
        who = one_line(session.status.observer, 40) if session.status is not None else "memory"
        self._status_line.work(f"compacting: {who} reads {messages} messages")
        self._task = asyncio.current_task()
        try:
            await session.compact(focus)
        finally:
            self._task = None
            self._status_line.work("")

    async def undo(self) -> None:
        if not await self._host.session.undo_compaction():
            self._host.say("There is no compaction to undo.")

    async def show_last(self) -> None:
        """Show what the last one did to the log."""
        from sakti.agent import last_compaction
        from sakti.tui.screens.compaction import CompactionScreen

        shown = await last_compaction.last(self._host.session)
        if shown is None:
            self._host.say("Nothing was compacted in this thread, or it was undone.")
        else:
            self._host.push(CompactionScreen(shown))
