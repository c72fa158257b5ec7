"""Show the welcome over the chat; typing goes through it to the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from textual import events
from textual.app import App

from sakti.core.lazy import lazy_imports
from sakti.tui.activities import Download
from sakti.tui.host import Host
from sakti.tui.keys import is_text

with lazy_imports:
    from sakti.agent import setup as machine
    from sakti.tui.screens import welcome as welcome_screen


# Keys of the chat that leave the welcome, as typing does.
PASSED_ON = ("app.help", "app.memory", "app.log", "app.tasks", "app.browse", "app.panes", "app.search", "app.threads")


class Welcome:
    """Opens the welcome; `apply` shows a setting that was changed there."""

    def __init__(self, host: Host, apply: Callable[[str], str], download: Download) -> None:
        self._host, self._apply, self._download = host, apply, download

    async def open_once(self, state: Mapping[str, str], occupied: Callable[[], bool]) -> None:
        """Open the welcome screen on the first start, unless the user is already busy."""
        session = self._host.session
        if occupied() or not await machine.is_first(session, state) or occupied():
            return
        self.open()
        await session.views.set_ui_state(machine.SHOWN, "1")

    def open(self) -> None:
        """Open it, whether it is due or not."""
        self._host.push(welcome_screen.WelcomeScreen(self._apply, self._download))

    def typed_through(self, event: events.Event, app: App[Any]) -> None:
        """Leave the welcome at input meant for the chat: typed or pasted text, and the keys of the chat."""
        passed = isinstance(event, events.Paste) or (isinstance(event, events.Key) and self._is_passed_on(event))
        if passed and isinstance(app.screen, welcome_screen.WelcomeScreen) and not app.screen.typing:
            app.screen.dismiss(None)

    def _is_passed_on(self, event: events.Key) -> bool:
        return is_text(event) or any(event.key == self._host.key_of(key_id) for key_id in PASSED_ON)
