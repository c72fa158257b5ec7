"""Calling the user back to a terminal that is not in sight: a bell, or a notification of the desktop (OSC 9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp

LONG_TURN = 10.0  # seconds after which the end of a turn is worth a call
BELL = "\x07"


def sequence(how: str, text: str) -> str:
    """What is written to the terminal. `text` may come from anywhere: nothing in it can end the sequence early."""
    if how == "off":
        return ""
    return f"\x1b]9;sakti: {one_line(text, 120)}{BELL}{BELL}" if how == "desktop" else BELL


class Attention:
    """Speaks up only while the terminal says that it has no focus; one that never says so is left in peace."""

    def __init__(self, app: SaktiApp) -> None:
        self._app = app
        self._began: float | None = None

    def turn_began(self) -> None:
        if self._began is None:
            self._began = self._app.session.clock.monotonic()

    def turn_ended(self, text: str) -> None:
        began, self._began = self._began, None
        if began is not None and self._app.session.clock.monotonic() - began > LONG_TURN:
            self.wanted(text)

    def wanted(self, text: str) -> None:
        """Something waits for the user."""
        if not self._app.app_focus and (written := sequence(self._app.session.config.ui.notify, text)):
            self._app.call_terminal(written)
