"""The welcome over the chat: when it shows, and that typing goes through it to the prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from textual import events
from textual.app import App

from sakti.tui.host import Host


class Welcome:
    """Opens the welcome; `apply` shows a setting that was changed there."""

    def __init__(self, host: Host, apply: Callable[[str], str]) -> None:
        self._host, self._apply = host, apply

    async def open_once(self, state: Mapping[str, str], occupied: Callable[[], bool]) -> None:
        """Open it where it is due; never over something that is being typed or was asked for."""
        from sakti.agent import setup  # after the first paint, which does not need it

        session = self._host.session
        if occupied() or not await setup.is_first(session, state) or occupied():
            return
        self.open()
        await session.views.set_ui_state(setup.SHOWN, "1")

    def open(self) -> None:
        """Open it, whether it is due or not."""
        from sakti.tui.screens.welcome import WelcomeScreen

        self._host.push(WelcomeScreen(self._apply))

    def typed_through(self, event: events.Event, app: App[Any]) -> None:
        """Leave the welcome when something is typed or pasted: it is meant for the prompt."""
        if isinstance(event, events.Paste) or (isinstance(event, events.Key) and event.is_printable):
            from sakti.tui.screens.welcome import WelcomeScreen

            if isinstance(app.screen, WelcomeScreen) and not app.screen.typing:
                app.screen.dismiss(None)
