"""Textual's command palette, for keys that come faster than it draws."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette

from sakti.tui.host import STYLES, app_of


class SafePalette(CommandPalette):
    """A palette that is closed once, and turns no page of a list whose lines are not made yet."""

    CSS_PATH: ClassVar[Any] = [STYLES / "panels.tcss"]

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close the palette; does nothing if it is already closing, so no other screen is closed."""
        return super().dismiss(result) if app_of(self).screen is self else AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        try:
            super()._action_command_list(action)
        except KeyError:
            if not action.startswith("page_"):
                raise
