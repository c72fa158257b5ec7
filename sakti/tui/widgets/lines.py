"""Widgets on Textual's line API: a view of lines with text selection, and a list of rows.

`line_at(y)` returns the line at a content position. The transcript, the observation log and the result lists share
everything else: scrolling, cropping, selecting and copying.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.color import Color
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style as VisualStyle
from textual.widget import Widget

from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, Row, get_source_text, indent, to_row, wrap


def paint_fast(bar: ScrollBar) -> None:
    """Make the vertical scroll bar `bar` render with `_render_bar`."""
    if "render_lines" not in vars(bar):
        bar.render_lines = partial(_render_bar, bar)


def _render_bar(bar: ScrollBar, crop: Region) -> list[Strip]:
    styles = cast("Widget", bar.parent).styles
    if bar.grabbed:
        background, colour = styles.scrollbar_background_active, styles.scrollbar_color_active
    elif bar.mouse_over:
        background, colour = styles.scrollbar_background_hover, styles.scrollbar_color_hover
    else:
        background, colour = styles.scrollbar_background, styles.scrollbar_color
    background = cast("Widget", bar.parent).background_colors[0] + background
    drawn = ScrollBarRender.render_bar(
        size=bar.size.height,
        virtual_size=bar.window_virtual_size,
        window_size=bar.window_size if bar.window_size < bar.window_virtual_size else 0,
        position=bar.position,
        thickness=bar.thickness,
        vertical=True,
        back_color=background.rich_color,  # pyright: ignore[reportArgumentType]
        bar_color=(background + colour).rich_color,  # pyright: ignore[reportArgumentType]
    )
    under, bar_color = bar.background_colors
    around = make_ground(under + bar_color)
    strips: list[Strip] = []
    last, strip = None, Strip.blank(bar.size.width)
    for segment in list(drawn.segments)[crop.y : crop.bottom]:
        if segment is not last:
            last, strip = segment, _make_cell(segment, around)
            for one in bar.get_line_filters():
                strip = strip.apply_filter(one, background)
        strips.append(strip)
    if crop.column_span != (0, bar.size.width):
        strips = [strip.crop(*crop.column_span) for strip in strips]
    return strips


@lru_cache(maxsize=128)
def _make_cell(segment: Segment, around: Style) -> Strip:
    """Return the strip of a cell; cached, so that Textual renders each style only once."""
    return Strip(Segment.apply_style([segment], around))


@lru_cache(maxsize=32)
def make_ground(background: Color) -> Style:
    """Return a style with only a background."""
    return VisualStyle(background=background).rich_style


_EMPTY_LINE: Line = []  # below the last line


class LineView(ScrollView, can_focus=True):
    """A scrolling view of lines. Subclasses set `virtual_size` and define `line_at`."""

    ALLOW_SELECT = True
    focuses_on_click = True  # whether one click focuses it; otherwise the prompt keeps the focus
    DEFAULT_CSS = """
    LineView { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
        scrollbar-gutter: stable; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: LRUCache[tuple[int, int, int], tuple[Line, Style, Strip]] = LRUCache(512)
        self._moved = 0  # lines by which the content has moved down; selections do not count them
        self._palette: Palette | None = None

    @property
    def palette(self) -> Palette:
        """Return the colours of the current theme."""
        if self._palette is None:
            self._palette = get_host(self).palette
        return self._palette

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        bar = super().vertical_scrollbar
        paint_fast(bar)
        return bar

    def on_mount(self) -> None:
        get_host(self).theme_changed_signal.subscribe(self, lambda _: self.apply_theme())

    def apply_theme(self) -> None:
        """Redraw everything in the colours of a new theme."""
        self._palette = None
        self.forget_strips()

    def forget_strips(self) -> None:
        self._strips.clear()
        self.refresh()

    def line_at(self, y: int) -> Line | None:
        """Return the line at content position `y`; None below the end."""
        raise NotImplementedError

    def line_style(self, y: int) -> Style | None:
        """Return the background style of an entire line (cursor, highlight), or None."""
        return None

    def line_bar(self, y: int) -> Style | None:
        """Return the style of the bar before a selected line, or None."""
        return None

    def line_spans(self, y: int, line: Line) -> list[tuple[tuple[int, int], Style]]:
        """Return highlighted spans of a line: (start, end) in characters, and the style."""
        return []

    @property
    def allow_select(self) -> bool:
        return True

    def focus_on_click(self) -> bool:
        return self.focuses_on_click

    async def _on_click(self, event: events.Click) -> None:
        if event.chain > 1:
            event.prevent_default()  # Textual would select the entire widget,
            event.stop()  # and the screen everything

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the painted lines of the region.

        Lines that were painted before come from a cache, so lines that only moved cost next to nothing.
        """
        styles = self.styles
        if styles.gutter != styles.padding or self.opacity != 1.0 or styles.text_opacity != 1.0:
            return super().render_lines(crop)
        base = self.rich_style  # walks up the tree, so call it once for all lines
        width, rows = self.region.width, self.size.height
        above, indent = styles.padding.top, styles.padding.left
        top = self.scroll_offset.y - above
        filters, (under, background) = self.get_line_filters(), self.background_colors
        around = make_ground(under + background)
        out: list[Strip] = []
        for y in crop.line_range:
            inside = above <= y < above + rows
            strip = self._strip(top + y, width, indent, base, around) if inside else Strip.blank(width, around)
            for one in filters:
                strip = strip.apply_filter(one, background)
            out.append(strip)
        if crop.column_span != (0, width):
            out = [strip.crop(*crop.column_span) for strip in out]
        return out

    def render_line(self, y: int) -> Strip:
        """Return a line without padding; its segments carry their content offsets."""
        y += self.scroll_offset.y
        base = self.rich_style
        return self._strip(y, self.size.width, 0, base, base).apply_offsets(0, y - self._moved)

    def _strip(self, y: int, width: int, left: int, base: Style, around: Style) -> Strip:
        """Draw the line at content position `y` over `base`, indented by `left` of `width` cells."""
        line = self.line_at(y)
        if line is None:
            line = _EMPTY_LINE
        else:
            selected = self.text_selection
            under = self.line_style(y)
            spans = self.line_spans(y, line)
            if selected is not None and (span := selected.get_span(y - self._moved)) is not None:
                spans.append((span, self.screen.get_component_rich_style("screen--selection")))
            if spans or under is not None:
                for span, span_style in spans:
                    line = mark(line, span, span_style)
                style = base + under if under is not None else base
                return self._make_strip(line, width, left, around, style, self.line_bar(y))
        key = (id(line), width, left)
        cached = self._strips.get(key)
        if cached is not None and cached[0] is line and cached[1] is base:
            return cached[2]
        strip = self._make_strip(line, width, left, around, base)
        self._strips[key] = (line, base, strip)
        return strip

    def _make_strip(
        self, line: Line, width: int, left: int, around: Style, style: Style, bar: Style | None = None
    ) -> Strip:
        content = self.size.width
        strip = Strip(Segment.apply_style(line, style)).crop_extend(0, content, style)
        right = width - left - content
        if not left and not right:
            return strip
        before, after = Segment(" " * left, around), Segment(" " * right, around)
        if bar is not None and left:
            before = Segment("▌".rjust(left), around + bar)
        return Strip([s for s in (before, *strip, after) if s.text], width)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text as it was written, without layout characters."""
        start, end = self.selected_span(selection)
        lines = [self.line_at(y) or [] for y in range(start.y, end.y + 1)]
        return (get_source_text(lines, start.x, end.x), "\n") if lines else None

    def selected_span(self, selection: Selection) -> tuple[Offset, Offset]:
        """Return the first and last position of the selection in the current content."""
        last = max(0, self.virtual_size.height - 1)
        moved = Offset(0, self._moved)
        start = Offset(0, 0) if selection.start is None else selection.start + moved
        end = Offset(1 << 20, last) if selection.end is None else selection.end + moved
        if end.y > last:
            end = Offset(1 << 20, last)
        return (start if start.y >= 0 else Offset(0, 0)), end

    def set_height(self, height: int) -> None:
        """Set the content's height in lines, at the widget's width; the caller repaints."""
        size = Size(self.size.width, height)
        if size == self.virtual_size:
            return
        rows = self.size.height
        if self.show_vertical_scrollbar and height > rows and self.virtual_size.width == size.width:
            # the bar stays, so only it is updated and the screen keeps its layout
            self.set_reactive(Widget.virtual_size, size)  # pyright: ignore[reportArgumentType]
            self.vertical_scrollbar.window_virtual_size = height
        else:
            self.virtual_size = size


def mark(line: Line, span: tuple[int, int], style: Style) -> Line:
    """Return `line` with `style` over the code points of `span`; an end of -1 is the line's end."""
    start, end = span
    out: Line = []
    at = 0
    total = sum(len(s.text) for s in line)
    end = total if end < 0 else end
    for text, own_style, _ in line:
        low, high = max(0, min(len(text), start - at)), max(0, min(len(text), end - at))
        for piece, marked in ((text[:low], False), (text[low:high], True), (text[high:], False)):
            if piece:
                out.append(Segment(piece, (own_style + style if own_style else style) if marked else own_style))
        at += len(text)
    return out


GUTTER = 1  # cells before a row for the bar of the cursor


def _add_bar(row: Row, bar: Segment) -> Line:
    """Return `row` with the bar in its gutter."""
    if not any(segment.text.strip() for segment in row):
        return row  # a separator line
    first = row[0]
    marked = Row([bar, Segment(first.text[1:], first.style), *row[1:]], row.skip, row.join)
    marked.tail, marked.leaf, marked.copies = row.tail, row.leaf, row.copies
    return marked


def _accept_any(_row: Any) -> bool:
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
        """Enter or a click on a row, or a double click if a click does not focus the list.

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
        self._selectable: Callable[[Any], bool] = selectable or _accept_any
        self._empty = empty
        self.follow_end = False  # keep the newest line in view until the user scrolls
        self.rows: Sequence[Any] = ()
        self.cursor = -1
        self.cursor_always = False  # show the cursor while an input line above has the focus
        self._lines: list[list[Line]] = []
        self._empty_lines: list[Line] = []  # text shown without rows
        self._tops: list[int] = []
        self._cursor_lines: tuple[int, list[Line]] = (-1, [])  # the row under the cursor with its bar
        self._drawn_width = 0
        self._just_focused = False

    def set_rows(self, rows: Sequence[Any], *, cursor: int | None = None, keep_end: bool = False) -> None:
        """Show `rows`. `cursor`: its new row; `keep_end`: stay at the end if it was in view."""
        at_end = self.scroll_offset.y >= self.max_scroll_y - 1
        self.rows = rows
        if cursor is not None or self.cursor >= len(rows) or self.cursor < 0:
            self.cursor = self._find_nearest(cursor if cursor is not None else 0, 1)
        self._layout()
        if (keep_end and at_end) or (self.follow_end and not self.has_focus):
            self.scroll_end(animate=False, force=True)
        else:
            self._show_cursor()

    def set_empty_text(self, text: str) -> None:
        """Set the text that is shown when the list is empty."""
        if text != self._empty:
            self._empty = text
            if not self.rows:
                self._layout()

    @property
    def current(self) -> Any:
        return self.rows[self.cursor] if 0 <= self.cursor < len(self.rows) else None

    def apply_theme(self) -> None:
        super().apply_theme()
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
        self._cursor_lines = (-1, [])
        self._lines = [indent(self._draw(row, width - GUTTER, self.palette), blank) for row in self.rows]
        self._tops = []
        y = 0
        for lines in self._lines:
            self._tops.append(y)
            y += len(lines)
        empty = wrap([(self._empty, self.palette.faint)], max(1, width - GUTTER)) if self._empty else []
        self._empty_lines = indent(empty, blank)
        self.set_height(y if self.rows else max(1, len(self._empty_lines)))
        self.refresh()

    def line_at(self, y: int) -> Line | None:
        if not self.rows:
            return self._empty_lines[y] if 0 <= y < len(self._empty_lines) else None
        index = bisect_right(self._tops, y) - 1
        if index < 0 or index >= len(self._lines):
            return None
        inside = y - self._tops[index]
        lines = self._with_bar() if index == self.cursor and self._is_cursor_visible else self._lines[index]
        return lines[inside] if inside < len(lines) else None

    @property
    def _is_cursor_visible(self) -> bool:
        return self.has_focus or self.cursor_always

    def _with_bar(self) -> list[Line]:
        """Return the lines of the selected row, with a bar that is visible without colours."""
        if self._cursor_lines[0] != self.cursor:
            bar = Segment("▌", self.palette.agent)
            rows = map(to_row, self._lines[self.cursor])
            self._cursor_lines = self.cursor, [_add_bar(row, bar) for row in rows]
        return self._cursor_lines[1]

    def line_style(self, y: int) -> Style | None:
        if not self.rows or not self._is_cursor_visible:
            return None
        return self.palette.cursor if bisect_right(self._tops, y) - 1 == self.cursor else None

    def on_focus(self) -> None:
        self._just_focused = True  # the click that focused the list opens nothing
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_move(self, step: int) -> None:
        """Move the cursor by `step` rows, skipping rows that cannot be selected."""
        if not self.rows:
            return
        target = max(0, min(len(self.rows) - 1, self.cursor + step))
        self.move_to(self._find_nearest(target, 1 if step > 0 else -1))

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
        if not self.focuses_on_click and not self.has_focus and event.chain < 2:
            return  # such a click does not take the focus from the prompt
        if not self.focuses_on_click and not self.rows:
            self.post_message(self.Opened(self, None))
        elif 0 <= index < len(self.rows) and self._selectable(self.rows[index]):
            self._click_row(index, is_double=event.chain > 1)

    def _click_row(self, index: int, *, is_double: bool) -> None:
        """Move the cursor to a row; a click on the current row, or a double click, opens it."""
        again = index == self.cursor and (self.cursor_always or not self._just_focused)
        self._just_focused = False
        self.move_to(index)
        if (again and self.focuses_on_click) or is_double:
            self.action_open()

    def _find_nearest(self, index: int, step: int) -> int:
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
        if self.cursor == self._find_nearest(0, 1):
            top = 0
        if top < y:
            self.scroll_to(y=top, animate=False, force=True)
        elif top + height > y + rows:
            self.scroll_to(y=top + height - rows, animate=False, force=True)
