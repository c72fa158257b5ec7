"""Edit one line of input without showing control sequences, typed, pasted or set by code."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from sakti.core.text import sanitise_typed
from sakti.tui.keys import is_text

PASTED = 10_000  # characters of a paste: with a million of them each key takes long


class SafeInput(Input):
    """Its value is one line without control characters. It blinks only where things may move."""

    def on_mount(self) -> None:
        self.cursor_blink = self.app.animation_level != "none"  # pyright: ignore[reportUnknownMemberType]

    async def _on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            # run here, in the order of the keys: as a binding it could be overtaken by letters
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
        """Insert all lines as one; Textual's own handler, which is not asked, keeps the first."""
        event.stop()
        event.prevent_default()
        if line := " ".join(event.text.splitlines())[:PASTED]:
            self.replace(line, *self.selection)

    def validate_value(self, value: str) -> str:
        return " ".join(sanitise_typed(value).split("\n"))


class PaneInput(SafeInput):
    """One of a pane: a click beside the prompt does not take the keys from it."""

    FOCUS_ON_CLICK = False
