"""Widgets on Textual's line API: a base that turns lines of segments into strips, with text selection.

`line_at(y)` gives the line at a position of the whole content; everything else (scrolling, cropping, the
selection's colour, what is copied) is the same for the transcript, the observation log and the result lists.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Offset, Region, Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from sakti.tui.host import host_of
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, rows_text
from sakti.tui.widgets.bar import ground, paint_fast

_NOTHING: Line = []  # below the last line


class LineView(ScrollView, can_focus=True):
    """A scrolling view of lines. Subclasses set `virtual_size` and define `line_at`."""

    ALLOW_SELECT = True
    takes_click = (
        True  # one click gives it the keys; where not, they stay in the prompt until it is gone into on purpose
    )
    DEFAULT_CSS = """
    LineView { overflow-x: hidden; overflow-y: auto; scrollbar-size-vertical: 1;
        scrollbar-gutter: stable; }
    """

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._strips: LRUCache[tuple[int, int, int], tuple[Line, Style, Strip]] = LRUCache(512)
        self._moved = 0  # lines that everything has moved down by: a selection is counted without them
        self._palette: Palette | None = None

    @property
    def palette(self) -> Palette:
        """Return the colours of the current theme."""
        if self._palette is None:
            self._palette = host_of(self).palette
        return self._palette

    @property
    def vertical_scrollbar(self) -> ScrollBar:
        bar = super().vertical_scrollbar
        paint_fast(bar)
        return bar

    def on_mount(self) -> None:
        host_of(self).theme_changed_signal.subscribe(self, lambda _: self.theme_changed())

    def theme_changed(self) -> None:
        """Draw everything again in the colours of a new theme."""
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
        """Return the style of a bar before a chosen line, where the widget has a cell for it."""
        return None

    def line_spans(self, y: int, line: Line) -> list[tuple[tuple[int, int], Style]]:
        """Return highlighted spans of a line: (start, end) in characters, and the style."""
        return []

    @property
    def allow_select(self) -> bool:
        return True

    def focus_on_click(self) -> bool:
        return self.takes_click

    async def _on_click(self, event: events.Click) -> None:
        if event.chain > 1:
            event.prevent_default()  # a widget's own way with a double click is to select all that it has,
            event.stop()  # and the screen's to select everything

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the painted lines of the region.

        A line that was painted before returns its cached strip, so lines that only moved cost next to nothing.
        """
        styles = self.styles
        if styles.gutter != styles.padding or self.opacity != 1.0 or styles.text_opacity != 1.0:
            return super().render_lines(crop)
        base = self.rich_style  # walks up the tree: once for all lines
        width, rows = self.region.width, self.size.height
        above, indent = styles.padding.top, styles.padding.left
        top = self.scroll_offset.y - above
        filters, (under, background) = self.get_line_filters(), self.background_colors
        around = ground(under + background)
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
            line = _NOTHING
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
                return self._lay(line, width, left, around, style, self.line_bar(y))
        key = (id(line), width, left)
        cached = self._strips.get(key)
        if cached is not None and cached[0] is line and cached[1] is base:
            return cached[2]
        strip = self._lay(line, width, left, around, base)
        self._strips[key] = (line, base, strip)
        return strip

    def _lay(self, line: Line, width: int, left: int, around: Style, style: Style, bar: Style | None = None) -> Strip:
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
        start, end = self.selected(selection)
        lines = [self.line_at(y) or [] for y in range(start.y, end.y + 1)]
        return (rows_text(lines, start.x, end.x), "\n") if lines else None

    def selected(self, selection: Selection) -> tuple[Offset, Offset]:
        """Return the first and last place of the selection in the current content."""
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
            # the bar stays: only it changes, and the screen need not be laid out again
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
