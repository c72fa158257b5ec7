"""Ask for one thing at a time in a line below a list: a title, a summary, a file."""

from __future__ import annotations

from textual.widget import Widget

from sakti.tui.widgets.safe_input import SafeInput


class AskLine(SafeInput):
    """An input line that is hidden unless it asks; `asked` is the name of the question, or ""."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True)
        self.asked = ""
        self._back: Widget | None = None
        self.display = False

    def ask(self, what: str, hint: str, value: str = "") -> None:
        """Show and focus the line; the previous focus returns at the end."""
        if not self.asked:
            self._back = self.screen.focused
        self.asked, self.placeholder, self.value = what, hint, value
        self.cursor_position = len(value)
        self.display = True
        self.screen.set_focus(self)

    def end(self) -> bool:
        """Hide the line; False if it was not asking."""
        if not self.asked:
            return False
        self.asked = ""
        self.display = False
        self.screen.set_focus(self._back)
        return True
