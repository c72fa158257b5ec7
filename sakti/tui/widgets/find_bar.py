"""Find words in the conversation from a line under it."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from sakti.tui.widgets.safe_input import SafeInput


class FindBar(Horizontal):
    """The search input, the number of matches, and the keys."""

    DEFAULT_CSS = """
    FindBar { height: 1; background: $panel; padding: 0 1; }
    FindBar Static { width: auto; color: $sakti-muted; }
    FindBar #find-count { margin-left: 2; }
    FindBar Input { width: 1fr; min-width: 8; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(1)", "Older match", show=False, id="find.older"),
        Binding("down", "step(-1)", "Newer match", show=False, id="find.newer"),
        Binding("escape", "close", "Close", show=False, id="find.close"),
    ]

    class Changed(Message):
        """Other words."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Step(Message):
        """To the next older place (1) or the next newer one (-1); `read`: the keys go to the conversation."""

        def __init__(self, step: int, *, read: bool = False) -> None:
            super().__init__()
            self.step = step
            self.read = read

    class Closed(Message):
        """The bar was closed."""

    def compose(self) -> ComposeResult:
        yield Static("/ ", markup=False)
        yield SafeInput(placeholder="find in this thread", compact=True, select_on_focus=False, id="find-text")
        yield Static("", markup=False, id="find-count")

    @property
    def text(self) -> str:
        return self.query_one(Input).value.strip()

    def say(self, text: str) -> None:
        """Show `text`, which is safe to show; nothing if the bar was closed meanwhile."""
        for count in self.query("#find-count").results(Static):
            count.update(text)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Changed(event.value.strip()))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Step(1, read=True))

    def action_step(self, step: int) -> None:
        self.post_message(self.Step(step))

    def action_close(self) -> None:
        self.post_message(self.Closed())
