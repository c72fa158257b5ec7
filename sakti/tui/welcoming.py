"""The welcome and the app: when it shows, and that typing goes through it to the prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from textual import events

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp


class Welcoming:
    """The part of the app that welcomes; `self` is the app."""

    async def welcome_once(self, state: Mapping[str, str]) -> None:
        """Show the welcome where it is due; never over something that is being typed or was asked for."""
        from sakti.agent import setup  # after the first paint, which does not need it

        app = cast("SaktiApp", self)
        if app.occupied or not await setup.is_first(app.session, state) or app.occupied:
            return
        self.open_setup()
        await app.session.views.set_ui_state(setup.SHOWN, "1")

    def open_setup(self) -> None:
        from sakti.tui.screens.welcome import WelcomeScreen

        cast("SaktiApp", self).push_screen(WelcomeScreen())

    def typed_through(self, event: events.Event) -> None:
        """Leave the welcome when something is typed or pasted: it is meant for the prompt."""
        app = cast("SaktiApp", self)
        if isinstance(event, events.Paste) or (isinstance(event, events.Key) and event.is_printable):
            from sakti.tui.screens.welcome import WelcomeScreen

            screen = app.screen
            if isinstance(screen, WelcomeScreen) and not screen.typing:
                screen.dismiss(None)
