"""Bars of a pane: its title, and the time line of the log (● observations, ◆ reflections)."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Static

from sakti.store.log.events import LogChange
from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line


class TimeBar(Widget):
    """One line. `at` is the index of the moment that is shown, None for now."""

    class Picked(Message):
        """A click, or a double click while the pane does not have the focus; `at` as in `TimeBar`."""

        def __init__(self, at: int | None) -> None:
            super().__init__()
            self.at = at

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.moments: Sequence[LogChange] = ()
        self.at: int | None = None

    def on_mount(self) -> None:
        get_host(self).theme_changed_signal.subscribe(self, lambda _: self.refresh())
        self.display = False

    def show(self, moments: Sequence[LogChange], at: int | None) -> None:
        """Show the moments of the log, if there is more than one; `at` is the selected one."""
        self.moments, self.at = moments, at
        self.display = len(moments) > 1
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        base = self.rich_style
        if y or not self.moments:
            return Strip.blank(width, base)
        line = draw_time_bar(self.moments, self.at, width, get_host(self).palette)
        return Strip(Segment.apply_style(line, base)).crop_extend(0, width, base)

    def on_click(self, event: events.Click) -> None:
        pane, focused = self.parent, self.screen.focused
        inside = focused is not None and pane in focused.ancestors
        if self.moments and (inside or event.chain > 1):
            self.post_message(self.Picked(find_moment(event.x, len(self.moments), self.size.width)))


def get_cell(index: int, count: int, width: int) -> int:
    """Return the cell of moment `index` of `count`; `count` itself (now) is the last but one. Pure."""
    room = max(1, width - 3)
    return 1 + round(index / max(1, count) * room)


def find_moment(x: int, count: int, width: int) -> int | None:
    """Return the moment nearest to cell `x`, or None for the current log. Pure."""
    nearest = min(range(count + 1), key=lambda i: abs(get_cell(i, count, width) - x))
    return None if nearest == count else nearest


def draw_time_bar(moments: Sequence[LogChange], at: int | None, width: int, palette: Palette) -> Line:
    cells: dict[int, Segment] = {}
    count = len(moments)
    for index, moment in enumerate(moments):
        cell = get_cell(index, count, width)
        sign, style = ("◆", palette.agent) if moment.kind == "reflection" else ("●", palette.muted)
        if cell not in cells or moment.kind == "reflection":  # if several moments share a cell
            cells[cell] = Segment(sign, style)
    cells[get_cell(count, count, width)] = Segment("○", palette.ok)
    if at is not None:
        cells[get_cell(at, count, width)] = Segment("▼", palette.warn)
    return [Segment(" "), *(cells.get(x) or Segment("─", palette.line) for x in range(1, max(2, width - 1)))]


FOLD_SYMBOLS = {False: "▾", True: "▸"}


class PaneTitle(Static):
    """Title of a pane. `Sidebar` folds the pane on a click, and resizes the pane above on a drag."""

    def __init__(self, name: str, *, id: str) -> None:
        super().__init__("", id=id, classes="pane-title", markup=False)
        self._name, self._figures, self._right = name, ("",), ""
        self._folded = False

    def set_figures(self, name: str, *figures: str, right: str = "") -> None:
        """Set the name, figures and a text for the right edge (all safe); the last figures are dropped first."""
        self._name, self._figures, self._right = name, figures, right
        self._update_text()

    def fold(self, folded: bool) -> None:
        self._folded = folded
        self._update_text()

    def on_resize(self) -> None:
        self._update_text()

    def _update_text(self) -> None:
        figures = [f for f in self._figures if f]
        while True:
            text = f"{FOLD_SYMBOLS[self._folded]} {self._name}  {' · '.join(figures)}".rstrip()
            if len(text) <= self.size.width or not figures:
                break
            figures.pop()
        room = self.size.width - len(text) - 2
        self.update(f"{text}  {self._right.rjust(room)}" if self._right and len(self._right) <= room else text)
