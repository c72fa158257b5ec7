"""Textual's command palette, for keys that come faster than it draws."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette

from sakti.tui.host import STYLES, app_of


class SafePalette(CommandPalette):
    """A palette that is closed once, and takes no key for a list that is not there yet, or no longer."""

    CSS_PATH: ClassVar[Any] = [STYLES / "panels.tcss"]

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close the palette; does nothing if it is already closing, so no other screen is closed."""
        return super().dismiss(result) if app_of(self).screen is self else AwaitComplete()

    def _action_cursor_down(self) -> None:
        if self.query(CommandList):
            super()._action_cursor_down()

    def _action_command_list(self, action: str) -> None:
        if not self.query(CommandList):
            return
        try:
            super()._action_command_list(action)
        except (IndexError, KeyError):
            return  # the list has other lines by now, or they are not drawn yet
