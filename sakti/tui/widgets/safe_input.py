"""Input lines without control sequences, and a command palette that tolerates fast typing."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any, ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.command import CommandList, CommandPalette
from textual.css.query import NoMatches
from textual.widget import Widget
from textual.widgets import Input

from sakti.core.text import sanitize_typed
from sakti.tui.host import STYLES, get_app
from sakti.tui.keys import is_text

MAX_PASTE = 10_000  # maximum characters of a paste: with a million, each key would be slow


class SafeInput(Input):
    """An input line without control characters. Its cursor blinks unless motion is reduced."""

    def on_mount(self) -> None:
        self.cursor_blink = self.app.animation_level != "none"  # pyright: ignore[reportUnknownMemberType]

    async def _on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            # handled here to keep the order of keys: letters could overtake a binding
            if await self.app.run_action(binding.action, self):  # pyright: ignore[reportUnknownMemberType]
                event.stop()
                event.prevent_default()
                return
        if is_text(event) and not event.is_printable:
            event.stop()
            event.prevent_default()
            self.replace(event.character or "", *self.selection)
            return
        await super()._on_key(event)

    def _on_paste(self, event: events.Paste) -> None:
        """Insert all lines as one; Textual's own handler would keep only the first."""
        event.stop()
        event.prevent_default()
        if line := " ".join(event.text.splitlines())[:MAX_PASTE]:
            self.replace(line, *self.selection)

    def validate_value(self, value: str) -> str:
        return " ".join(sanitize_typed(value).split("\n"))


class PaneInput(SafeInput):
    """An input line of a pane; a click does not take the focus from the prompt."""

    FOCUS_ON_CLICK = False


class AskLine(SafeInput):
    """An input line that is hidden until it asks; `question` is the name of the question, or ""."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True)
        self.question = ""
        self._back: Widget | None = None
        self.display = False

    def ask(self, what: str, hint: str, value: str = "") -> None:
        """Show and focus the line; the previous focus returns at the end."""
        if not self.question:
            self._back = self.screen.focused
        self.question, self.placeholder, self.value = what, hint, value
        self.cursor_position = len(value)
        self.display = True
        self.screen.set_focus(self)

    def end(self) -> bool:
        """Hide the line; False if it was not asking."""
        if not self.question:
            return False
        self.question = ""
        self.display = False
        self.screen.set_focus(self._back)
        return True


class CurrentCommands(CommandList):
    """The matching commands; ignores a click on a line that has changed since."""

    async def _on_click(self, event: events.Click) -> None:
        option = event.style.meta.get("option")
        if option is not None and option >= self.option_count:
            event.prevent_default().stop()


class SafePalette(CommandPalette):
    """A palette that closes only once, and ignores keys until its list is mounted."""

    CSS_PATH: ClassVar[Any] = [STYLES / "panels.tcss"]

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield CurrentCommands() if type(widget) is CommandList else widget

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close the palette; does nothing if it is already closing, so no other screen is closed."""
        return super().dismiss(result) if get_app(self).screen is self else AwaitComplete()

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)
    async def _gather_commands(self, search_value: str) -> None:
        with contextlib.suppress(NoMatches):  # the palette was closed before the search for its last letter started
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
            return  # the list has changed, or is not drawn yet
