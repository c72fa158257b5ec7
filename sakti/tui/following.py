"""What another window says in the open thread shows here as well, while no turn of our own runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from sakti.core.errors import SaktiError

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp

LOOK = 2.0  # seconds between looks at whether anything was written
NEWEST = 50  # messages that are looked at when something was


class Following:
    """The part of the app that looks what other windows do; `self` is the app."""

    _version = -1  # of the database, when it was looked at last

    def look_for_others(self) -> None:
        """Show what another window added to the open thread."""
        app = cast("SaktiApp", self)
        if app.started and app.session.thread is not None and not app.session.busy:
            app.go(self._follow, app.session.thread.id, group="follow", exclusive=True)

    async def _follow(self, thread_id: str) -> None:
        app = cast("SaktiApp", self)
        try:
            version = await app.session.views.version()
            if version == self._version:
                return
            page = await app.session.views.transcript(thread_id, limit=NEWEST)
        except SaktiError:
            return  # the next look may see more; what the user does says what is wrong
        thread = app.session.thread
        if app.session.busy or thread is None or thread.id != thread_id or app.shown_thread != thread_id:
            return
        self._version = version
        new = [m for m in page if m.id not in app.transcript.live.seen and m.state != "provisional"]
        if len(new) == NEWEST:
            await app.load_thread(thread_id)
        elif new:
            app.transcript.live.add_stored(new)
            app.load_observations()
