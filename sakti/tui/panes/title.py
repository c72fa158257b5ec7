"""Draw the first line of a pane: its name with figures, and whether it is folded."""

from __future__ import annotations

from textual.widgets import Static

SIGNS = {False: "▾", True: "▸"}


class PaneTitle(Static):
    """A click on it folds the pane, drawing it makes the pane above higher or lower: see `Sidebar`."""

    def __init__(self, name: str, *, id: str) -> None:
        super().__init__("", id=id, classes="pane-title", markup=False)
        self._name, self._figures, self._right = name, ("",), ""
        self._folded = False

    def say(self, name: str, *figures: str, right: str = "") -> None:
        """Set the figures and a text for the right edge, all safe to show; without room the last ones go."""
        self._name, self._figures, self._right = name, figures, right
        self._fit()

    def fold(self, folded: bool) -> None:
        self._folded = folded
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        figures = [f for f in self._figures if f]
        while True:
            text = f"{SIGNS[self._folded]} {self._name}  {' · '.join(figures)}".rstrip()
            if len(text) <= self.size.width or not figures:
                break
            figures.pop()
        room = self.size.width - len(text) - 2
        self.update(f"{text}  {self._right.rjust(room)}" if self._right and len(self._right) <= room else text)
