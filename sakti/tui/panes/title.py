"""The first line of a pane: its name with figures, and whether it is folded."""

from __future__ import annotations

from textual.widgets import Static

SIGNS = {False: "▾", True: "▸"}


class PaneTitle(Static):
    """A click on it folds the pane, drawing it makes the pane above higher or lower: see `Sidebar`."""

    def __init__(self, text: str, *, id: str) -> None:
        super().__init__(f"{SIGNS[False]} {text}", id=id, classes="pane-title", markup=False)
        self._text = text
        self._folded = False

    def say(self, text: str) -> None:
        """`text` is safe to show."""
        self._text = text
        self.update(f"{SIGNS[self._folded]} {text}")

    def fold(self, folded: bool) -> None:
        self._folded = folded
        self.say(self._text)
