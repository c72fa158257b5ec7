"""Textual's command palette, for keys and clicks that come faster than it draws."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.css.query import NoMatches

from sakti.tui.host import STYLES, app_of


class CurrentCommands(CommandList):
    """The commands that match; a click on a line that shows another command by now does nothing."""

    async def _on_click(self, event: events.Click) -> None:
        option = event.style.meta.get("option")
        if option is not None and option >= self.option_count:
            event.prevent_default().stop()


class SafePalette(CommandPalette):
    """A palette that is closed once, and takes no key for a list that is not there yet, or no longer."""

    CSS_PATH: ClassVar[Any] = [STYLES / "panels.tcss"]

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield CurrentCommands() if type(widget) is CommandList else widget

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close the palette; does nothing if it is already closing, so no other screen is closed."""
        return super().dismiss(result) if app_of(self).screen is self else AwaitComplete()

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        with contextlib.suppress(NoMatches):  # the palette closed before the search for its last letter began
            await inspect.unwrap(CommandPalette._gather_commands)(self, search_value)

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
