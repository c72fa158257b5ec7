"""Draw the line above the conversation while it shows what a search found: the way back, and to results."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal

from sakti.core.text import one_line
from sakti.tui.widgets.chip import Chip


class VisitBar(Horizontal):
    """Hidden but for a visit."""

    DEFAULT_CSS = """
    VisitBar { display: none; height: 1; background: $surface; padding: 0 1; overflow: hidden; }
    """

    def compose(self) -> ComposeResult:
        yield Chip("alt+←", "back", "screen.go_back", id="visit-back")
        yield Chip("^f", "results", "screen.search")
        yield Chip("×", "stay here", "screen.stay")

    def show(self, title: str) -> None:
        """Show the way back; `title`: of the thread that it leads to, "" where it is the same one."""
        where = f"back to {one_line(title, 30)}" if title else "back to where you were"
        self.query_one("#visit-back", Chip).say(where, on=True)
        self.display = True
