"""Ask for one thing at a time in a line below a list: a title, a summary, a file."""

from __future__ import annotations

from textual.widget import Widget

from sakti.tui.widgets.safe_input import SafeInput


class AskLine(SafeInput):
    """Hidden while it asks for nothing; `asked` is the name of what it asks for, "" for nothing."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True)
        self.asked = ""
        self._back: Widget | None = None
        self.display = False

    def ask(self, what: str, hint: str, value: str = "") -> None:
        """Show it with the focus; what had the focus gets it back at the end."""
        if not self.asked:
            self._back = self.screen.focused
        self.asked, self.placeholder, self.value = what, hint, value
        self.cursor_position = len(value)
        self.display = True
        self.screen.set_focus(self)

    def end(self) -> bool:
        """Hide it; False where it asked for nothing."""
        if not self.asked:
            return False
        self.asked = ""
        self.display = False
        self.screen.set_focus(self._back)
        return True
