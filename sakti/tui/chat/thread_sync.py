"""Show what another window says in the open thread here as well, while no turn of our own runs."""

from __future__ import annotations

from sakti.core.errors import SaktiError
from sakti.tui.chat.loader import ThreadLoader
from sakti.tui.host import Host
from sakti.tui.widgets.transcript import Transcript

LOOK = 2.0  # seconds between looks at whether anything was written
NEWEST = 50  # messages that are looked at when something was


class ThreadSync:
    """Looks at what other windows wrote to the database."""

    def __init__(self, host: Host, transcript: Transcript, loader: ThreadLoader) -> None:
        self._host, self._transcript, self._loader = host, transcript, loader
        self._version = -1  # of the database, when it was looked at last

    def look(self) -> None:
        """Show what another window added to the open thread."""
        session = self._host.session
        if session.thread is not None and not session.busy:
            self._host.go(self._look, session.thread.id, group="follow", exclusive=True)

    async def _look(self, thread_id: str) -> None:
        session, live = self._host.session, self._transcript.live
        try:
            version = await session.views.version()
            if version == self._version:
                return
            page = await session.views.transcript(thread_id, limit=NEWEST)
        except SaktiError:
            return  # the next look may see more; what the user does says what is wrong
        thread = session.thread
        if session.busy or thread is None or thread.id != thread_id or self._loader.shown != thread_id:
            return
        self._version = version
        new = [m for m in page if m.id not in live.seen and m.state != "provisional"]
        if len(new) == NEWEST:
            await self._loader.load(thread_id)
        elif new:
            live.add_stored(new)
            self._loader.loaded()
