"""List rows on the line API: one widget for observations, tasks, results, threads and models."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, Row, indent, row_of, wrap
from sakti.tui.widgets.lines import LineView

GUTTER = 1  # cells before a row for the bar of the cursor


def _add_bar(row: Row, bar: Segment) -> Line:
    """Return `row` with the bar in its gutter."""
    if not any(segment.text.strip() for segment in row):
        return row  # a line that sets rows apart
    first = row[0]
    marked = Row([bar, Segment(first.text[1:], first.style), *row[1:]], row.skip, row.join)
    marked.tail, marked.leaf, marked.copies = row.tail, row.leaf, row.copies
    return marked


def _always(_row: Any) -> bool:
    return True


class LineList(LineView):
    """`draw(row, width, palette)` returns a row's lines; `selectable(row)`: whether it can be selected."""

    HELP = "Up and down to move, Enter to open."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False, id="list.up"),
        Binding("down,j", "move(1)", "Down", show=False, id="list.down"),
        Binding("pageup", "move(-10)", "Page up", show=False, id="list.pageup"),
        Binding("pagedown", "move(10)", "Page down", show=False, id="list.pagedown"),
        Binding("home,g", "move(-1000000)", "First", show=False, id="list.home"),
        Binding("end,G", "move(1000000)", "Last", show=False, id="list.end"),
        Binding("enter", "open", "Open", show=False, id="list.open"),
    ]

    class Opened(Message):
        """Enter or a click on a row; a double click if clicks do not focus the list.

        `row` is None if the list is empty.
        """

        def __init__(self, view: LineList, row: Any) -> None:
            super().__init__()
            self.view = view
            self.row = row

        @property
        def control(self) -> LineList:
            return self.view

    class Moved(Message):
        """The cursor moved to another row (None: to no row)."""

        def __init__(self, view: LineList, row: object | None) -> None:
            super().__init__()
            self.view = view
            self.row = row

        @property
        def control(self) -> LineList:
            return self.view

    def __init__(
        self,
        draw: Callable[[Any, int, Palette], list[Line]],
        *,
        selectable: Callable[[Any], bool] | None = None,
        empty: str = "",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._draw = draw
        self._selectable: Callable[[Any], bool] = selectable or _always
        self._empty = empty
        self.follow_end = False  # a log: its newest line is in sight until somebody scrolls
        self.rows: Sequence[Any] = ()
        self.cursor = -1
        self.cursor_always = False  # show the cursor without the focus, where a line above has it
        self._lines: list[list[Line]] = []
        self._nothing: list[Line] = []  # shown without rows
        self._tops: list[int] = []
        self._barred: tuple[int, list[Line]] = (-1, [])  # the row under the cursor with its bar
        self._drawn_width = 0
        self._just_entered = False

    def set_rows(self, rows: Sequence[Any], *, cursor: int | None = None, keep_end: bool = False) -> None:
        """Show `rows`. `cursor`: where to put it; `keep_end`: stay at the end when the end was in sight."""
        at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        self.rows = rows
        if cursor is not None or self.cursor >= len(rows) or self.cursor < 0:
            self.cursor = self._nearest(cursor if cursor is not None else 0, 1)
        self._layout()
        if (keep_end and at_end) or (self.follow_end and not self.has_focus):
            self.scroll_end(animate=False, force=True)
        else:
            self._show_cursor()

    def say_empty(self, text: str) -> None:
        """Set the text that is shown when the list is empty."""
        if text != self._empty:
            self._empty = text
            if not self.rows:
                self._layout()

    @property
    def current(self) -> Any:
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def theme_changed(self) -> None:
        super().theme_changed()
        self._layout()

    def on_resize(self) -> None:
        if self.scrollable_size.width != self._drawn_width:
            self._layout()
        if self.follow_end and not self.has_focus:
            self.scroll_end(animate=False, force=True)

    def _layout(self) -> None:
        width = self.scrollable_size.width
        self._drawn_width = width
        if width <= 0:
            return
        self._strips.clear()
        blank = Segment(" " * GUTTER)
        self._barred = (-1, [])
        self._lines = [indent(self._draw(row, width - GUTTER, self.palette), blank) for row in self.rows]
        self._tops = []
        y = 0
        for lines in self._lines:
            self._tops.append(y)
            y += len(lines)
        empty = wrap([(self._empty, self.palette.faint)], max(1, width - GUTTER)) if self._empty else []
        self._nothing = indent(empty, blank)
        self.set_height(y if self.rows else max(1, len(self._nothing)))
        self.refresh()

    def line_at(self, y: int) -> Line | None:
        if not self.rows:
            return self._nothing[y] if 0 <= y < len(self._nothing) else None
        index = bisect_right(self._tops, y) - 1
        if index < 0 or index >= len(self._lines):
            return None
        inside = y - self._tops[index]
        lines = self._with_bar() if index == self.cursor and self._cursor_shows else self._lines[index]
        return lines[inside] if inside < len(lines) else None

    @property
    def _cursor_shows(self) -> bool:
        return self.has_focus or self.cursor_always

    def _with_bar(self) -> list[Line]:
        """Return the lines of the selected row, with a bar that is visible without colours."""
        if self._barred[0] != self.cursor:
            bar = Segment("▌", self.palette.agent)
            rows = map(row_of, self._lines[self.cursor])
            self._barred = self.cursor, [_add_bar(row, bar) for row in rows]
        return self._barred[1]

    def line_style(self, y: int) -> Style | None:
        if not self.rows or not self._cursor_shows:
            return None
        return self.palette.cursor if bisect_right(self._tops, y) - 1 == self.cursor else None

    def on_focus(self) -> None:
        self._just_entered = True  # the click that brought it here opens nothing
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_move(self, step: int) -> None:
        """Move the cursor by `step` rows, over rows that cannot be chosen."""
        if not self.rows:
            return
        target = max(0, min(len(self.rows) - 1, self.cursor + step))
        self.move_to(self._nearest(target, 1 if step > 0 else -1))

    def move_to(self, index: int) -> None:
        if index != self.cursor and 0 <= index < len(self.rows):
            self.cursor = index
            self._show_cursor()
            self.refresh()
            self.post_message(self.Moved(self, self.current))

    def action_open(self) -> None:
        if self.current is not None and self._selectable(self.current):
            self.post_message(self.Opened(self, self.current))

    def on_click(self, event: events.Click) -> None:
        index = bisect_right(self._tops, event.y + self.scroll_offset.y) - 1
        if not self.takes_click and not self.has_focus and event.chain < 2:
            return  # a click beside the prompt, perhaps only into the window
        if not self.takes_click and not self.rows:
            self.post_message(self.Opened(self, None))
        elif 0 <= index < len(self.rows) and self._selectable(self.rows[index]):
            again = index == self.cursor and (self.cursor_always or not self._just_entered)
            self._just_entered = False
            self.move_to(index)
            if (again and self.takes_click) or event.chain > 1:
                self.action_open()

    def _nearest(self, index: int, step: int) -> int:
        for way in (step, -step):
            at = index
            while 0 <= at < len(self.rows):
                if self._selectable(self.rows[at]):
                    return at
                at += way
        return -1

    def _show_cursor(self) -> None:
        if not 0 <= self.cursor < len(self._tops):
            return
        top, height = self._tops[self.cursor], len(self._lines[self.cursor])
        y, rows = self.scroll_offset.y, self.size.height
        if self.cursor == self._nearest(0, 1):
            top = 0
        if top < y:
            self.scroll_to(y=top, animate=False, force=True)
        elif top + height > y + rows:
            self.scroll_to(y=top + height - rows, animate=False, force=True)
