"""Notify the user when the terminal has no focus: a bell or a desktop notification (OSC 9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.agent.session.session import Session

LONG_TURN = 10.0  # seconds after which the end of a turn is worth a call
BELL = "\x07"


def sequence(how: str, text: str) -> str:
    """Return the control sequence for a notification; `text` is sanitised and cannot end it early."""
    if how == "off":
        return ""
    return f"\x1b]9;sakti: {one_line(text, 120)}{BELL}{BELL}" if how == "desktop" else BELL


class Notifier:
    """Notifies only when the terminal has reported that it lost the focus (`focused`).

    `write` sends a control sequence to the terminal.
    """

    def __init__(self, session: Session, focused: Callable[[], bool], write: Callable[[str], None]) -> None:
        self._session, self._focused, self._write = session, focused, write
        self._began: float | None = None

    def turn_began(self) -> None:
        if self._began is None:
            self._began = self._session.workspace.clock.monotonic()

    def turn_ended(self, text: str) -> None:
        """Call where the turn took long."""
        began, self._began = self._began, None
        if began is not None and self._session.workspace.clock.monotonic() - began > LONG_TURN:
            self.call(text)

    def call(self, text: str) -> None:
        """Tell that something waits for the user."""
        if not self._focused() and (written := sequence(self._session.workspace.config.ui.notify, text)):
            self._write(written)
