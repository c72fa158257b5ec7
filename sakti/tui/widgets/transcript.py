"""Navigate the conversation: blocks, folding, selection, copying, links, and search in the thread."""

from __future__ import annotations

import re
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.geometry import Offset
from textual.message import Message as TextualMessage
from textual.selection import Selection

from sakti.core.text import format_count
from sakti.tui.host import get_host
from sakti.tui.transcript.blocks import Block, Label
from sakti.tui.transcript.links import Target, get_target
from sakti.tui.transcript.selection import find_source_line, find_word, get_code, get_message_text, get_range_text
from sakti.tui.transcript.tool import ToolBlock
from sakti.tui.transcript.wrap import Line, measure_line, to_row
from sakti.tui.widgets.transcript_view import TranscriptView

LINE_END = 1 << 20  # larger than any line length


class Transcript(TranscriptView):
    """Blocks of one thread with keyboard and mouse navigation; `findable`: supports search."""

    HELP = (
        "The messages. A click on ▸ unfolds, on a code block's language copies it, on a link opens it. F6 "
        "focuses them, Esc returns to the prompt. With the focus, [ and ] go from block to block, v selects "
        "lines, l goes to links, / finds in this thread."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("[", "choose(-1)", "Previous message, fold or code block", show=False, id="transcript.previous"),
        Binding("]", "choose(1)", "Next message, fold or code block", show=False, id="transcript.next"),
        Binding("space", "unfold", "Fold or unfold", show=False, id="transcript.fold"),
        Binding("enter", "use", "Fold or unfold, open the link, next match", show=False, id="transcript.toggle"),
        Binding("k", "scroll_up", "Up", show=False, id="transcript.up"),
        Binding("j", "scroll_down", "Down", show=False, id="transcript.down"),
        Binding("g", "scroll_home", "Oldest", show=False, id="transcript.home"),
        Binding("G,shift+g", "scroll_end", "Newest", show=False, id="transcript.end"),
        Binding("v", "select", "Select lines: j, k, page keys, then y", show=False, id="transcript.select"),
        Binding("y", "copy", "Copy: the lines, the message, the last answer", show=False, id="transcript.copy"),
        Binding("c", "copy_code", "Copy the code block", show=False, id="transcript.copy-code"),
        Binding("l", "link(1)", "Next link", show=False, id="transcript.link"),
        Binding("L,shift+l", "link(-1)", "Previous link", show=False, id="transcript.link-back"),
        Binding("x", "stop_child", "Stop the chosen child thread", show=False, id="transcript.stop-child"),
        Binding("/", "find", "Find in this thread", show=False, id="transcript.find"),
        Binding("n", "find(1)", "Older match", show=False, id="transcript.find-next"),
        Binding("N,shift+n", "find(-1)", "Newer match", show=False, id="transcript.find-previous"),
        Binding("escape", "leave", "Leave the selection, the link, the search", show=False, id="transcript.leave"),
    ]

    class HintChanged(TextualMessage):
        """A hint for the status line, for `seconds` or until the next one (0)."""

        def __init__(self, text: str, seconds: float = 0) -> None:
            super().__init__()
            self.text = text
            self.seconds = seconds

    class LinkOpened(TextualMessage):
        """A link was clicked, or selected and opened."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    class FindWanted(TextualMessage):
        """The user wants to find words in this thread; `step`: go to the next (1) or previous (-1) match."""

        def __init__(self, step: int = 0) -> None:
            super().__init__()
            self.step = step

    class ChildWanted(TextualMessage):
        """The user wants to follow or stop the child thread of the selected call."""

        def __init__(self, child_id: str, *, stop: bool = False) -> None:
            super().__init__()
            self.child_id = child_id
            self.stop_it = stop

    class FindLeft(TextualMessage):
        """The user left the search results."""

    def __init__(self, *, id: str | None = None, findable: bool = False) -> None:
        super().__init__(id=id)
        self._findable = findable
        self._anchor: int | None = None  # start and end of the line selection,
        self._cursor = 0  # both in selection coordinates
        self._link: tuple[int, int] | None = None  # line and first character of the selected link
        self._hovered: Target | None = None
        self._pattern_found: re.Pattern[str] | None = None
        self._current_match: tuple[Block, int] | None = None  # the line of the current match

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable letters without effect, so that they go to the prompt."""
        match action:
            case "find" if parameters:
                return self._findable and self._pattern_found is not None
            case "stop_child":
                return bool(self._chosen_child)
            case _:
                return True

    # --- highlights -----------------------------------------------------------------------------------------

    def line_spans(self, y: int, line: Line) -> list[tuple[tuple[int, int], Style]]:
        spans = super().line_spans(y, line)
        if self._pattern_found is not None:
            text = "".join(s.text for s in line)
            spans += [(m.span(), self.palette.mark) for m in self._pattern_found.finditer(text) if m[0]]
        if self._link is not None and self._link[0] == y - self._moved:
            spans += [(p, Style(reverse=True)) for p, _ in _find_links(line) if p[0] == self._link[1]]
        return spans

    def line_style(self, y: int) -> Style | None:
        place = self.document.locate(y) if self._current_match is not None else None
        if place is not None and (self.document.blocks[place[0]], place[1]) == self._current_match:
            return self.palette.cursor
        return super().line_style(y)

    def mark_matches(self, pattern: re.Pattern[str] | None) -> None:
        """Mark every match of `pattern`."""
        self._pattern_found, self._current_match = pattern, None
        self.refresh()

    def show_row(self, index: int, row: int) -> None:
        """Scroll to a line of block `index`, with context above it."""
        self._current_match = (self.document.blocks[index], row)
        y = self.document.top(index) + row
        if not self.scroll_offset.y <= y < self.scroll_offset.y + self.size.height:
            self._follow = False
            self._scroll_to_place((index, row))
            y = self.document.top(index) + row
            self._scroll_to_place(self.document.locate(max(0, y - self.size.height // 3)))
        self.refresh()

    # --- the mouse ------------------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset_capture(self)
        if self.news and at.y == self.size.height - 1 and at.x >= self.size.width - cell_len(self.news) - 1:
            self.scroll_end_now()
            return
        place = self.document.locate(at.y + self.scroll_offset.y)
        if place is None:
            return
        if event.chain > 1:
            self._select_at(event)
        elif self.text_selection is None:
            self._click_line(event, *place)

    def _click_line(self, event: events.Click, index: int, inside: int) -> None:
        """Open a link, copy code at the right end of its head line, or fold or unfold a block."""
        block = self.document.blocks[index]
        line = self.document.lines(index)[inside]
        copies = to_row(line).copies
        if (target := get_target(event.style)) is not None:
            self.post_message(self.LinkOpened(target))
        elif copies is not None:
            if event.x > measure_line(line) // 2:
                self._copy(copies or get_code(self.document, index) or "")
        elif block.is_foldable and inside == int(block.gap) and event.x <= measure_line(line):
            self._toggle(index)

    def _select_at(self, event: events.Click) -> None:
        """Select a word on a double click, a source line on a triple click."""
        _, offset = self.screen.get_widget_and_offset_at(event.screen_x, event.screen_y)
        if offset is None:
            return
        y = offset.y + self._moved
        if event.chain == 2:
            start, end = find_word(self.line_at(y) or [], offset.x)
            self._select(Offset(start, offset.y), Offset(end, offset.y))
        else:
            first, last = find_source_line(self.document, y)
            self._select(Offset(0, first - self._moved), Offset(LINE_END, last - self._moved))

    def on_mouse_move(self, event: events.MouseMove) -> None:
        target = get_target(event.style)
        if target != self._hovered:
            self._hovered = target
            self.post_message(self.HintChanged(target[1] if target else ""))

    def on_leave(self) -> None:
        if self._hovered is not None:
            self._hovered = None
            self.post_message(self.HintChanged(""))

    # --- from block to block --------------------------------------------------------------------------------

    def action_use(self) -> None:
        """Open the selected link; else go to the next match; else fold or unfold the selected block."""
        if self._link is not None:
            line = self.line_at(self._link[0] + self._moved) or []
            for span, target in _find_links(line):
                if span[0] == self._link[1]:
                    self.post_message(self.LinkOpened(target))
        elif self._pattern_found is not None:
            self.post_message(self.FindWanted(1))
        elif child_id := self._chosen_child:
            self.post_message(self.ChildWanted(child_id))
        else:
            self.action_unfold()

    @property
    def _chosen_child(self) -> str:
        """Return the child thread started by the selected call; "" without one."""
        return self._chosen.child_id if isinstance(self._chosen, ToolBlock) else ""

    def action_stop_child(self) -> None:
        if not self._chosen_child:
            raise SkipAction
        self.post_message(self.ChildWanted(self._chosen_child, stop=True))

    def action_unfold(self) -> None:
        """Fold or unfold the selected block, else (always from the prompt) the newest foldable on screen."""
        blocks = self.document.blocks
        if not self.has_focus:
            self._chosen = None
        if self._chosen is None or self._chosen not in blocks:
            self._choose([i for i in self.document.list_stops() if blocks[i].is_foldable], -1)
        if self._chosen is not None and self._chosen in blocks and self._chosen.is_foldable:
            self._toggle(blocks.index(self._chosen))

    def action_choose(self, step: int) -> None:
        """Go to the next or previous message, fold or code block; at first, to the newest on the screen."""
        self._choose(list(self.document.list_stops()), step)
        block = self._chosen
        if block is None:
            return
        code = get_code(self.document, self.document.blocks.index(block)) is not None
        keys = ["enter unfolds"] if block.is_foldable else []
        keys = ["enter follows the child", "x stops it", "space unfolds"] if self._chosen_child else keys
        keys += ["c copies the code"] if code else []
        self.post_message(self.HintChanged(" · ".join([*keys, "y copies the message"])))

    def _choose(self, places: list[int], step: int) -> None:
        if not places:
            return
        index = self._find_next_place(places, step)
        self._chosen = self.document.blocks[index]
        top = self.document.top(index)
        if not self.scroll_offset.y <= top < self.scroll_offset.y + self.size.height - 1:
            self._follow = False
            self._scroll_to_place((max(0, index - 1), 0))
        self.refresh()

    def _find_next_place(self, places: list[int], step: int) -> int:
        """Return the place after or before the selected block; without one, the newest on the screen."""
        if self._chosen is None or self._chosen not in self.document.blocks:
            bottom = self.document.locate(min(self.scroll_offset.y + self.size.height, self.document.height) - 1)
            last = bottom[0] if bottom else places[-1]
            return next((i for i in reversed(places) if i <= last), places[0])
        at = self.document.blocks.index(self._chosen)
        if step > 0:
            return next((i for i in places if i > at), at)
        return next((i for i in reversed(places) if i < at), at)

    def _toggle(self, index: int) -> None:
        """Fold or unfold a block, and bring it into view, or its beginning if it is too long."""
        document = self.document
        document.blocks[index].toggle()
        document.redraw(index)
        self.drop_selection()
        at_end = document.height <= self.size.height
        self._follow = self._follow and (at_end or index == self._blocks - 1)
        document.measure(index)
        top = document.top(index)
        lowest = top + document.block_height(index) - self.size.height
        shown = document.locate(min(top, max(self.scroll_offset.y, lowest)))
        self._scroll_to_place(None if self._follow else shown)

    def action_leave(self) -> None:
        """Clear the selection, link and search in one step; without any, go to the prompt."""
        selects = self._anchor is not None or self.text_selection is not None
        if not (selects or self._link) and self._pattern_found is None:
            self._chosen = None
            self.post_message(self.HintChanged(""))
            self.refresh()
            raise SkipAction
        self.drop_selection()
        self._link = self._chosen = None
        if self._pattern_found is not None:
            self.post_message(self.FindLeft())
        self.post_message(self.HintChanged(""))
        self.refresh()

    # --- selecting lines --------------------------------------------------------------------------------------

    def drop_selection(self) -> None:
        self._anchor = None
        super().drop_selection()

    def action_select(self) -> None:
        """Start selecting lines at the selected block, else at the last line on the screen."""
        if self._anchor is not None:
            self.drop_selection()
            return
        top = self.scroll_offset.y
        bottom = min(top + self.size.height, self.document.height) - 1
        if bottom < top:
            return
        start = bottom
        if self._chosen is not None and self._chosen in self.document.blocks:
            index = self.document.blocks.index(self._chosen)
            head = self.document.top(index) + self._chosen.head_line
            start = head if top <= head <= bottom else bottom
        while start > top and not any(s.text.strip() for s in self.line_at(start) or []):
            start -= 1
        self._anchor = start - self._moved
        self._extend(start)

    def _extend(self, y: int) -> None:
        """Extend the line selection to `y` and scroll it into view."""
        assert self._anchor is not None
        y = max(0, min(y, self.document.height - 1))
        self._cursor = y - self._moved
        if not self.scroll_offset.y <= y < self.scroll_offset.y + self.size.height:
            self.scroll_to(y=y if y < self.scroll_offset.y else y - self.size.height + 1, animate=False, force=True)
        first, last = sorted((self._anchor, self._cursor))
        self._select(Offset(0, first), Offset(LINE_END, last))
        lines = last - first + 1
        self.post_message(self.HintChanged(f"{format_count(lines, 'line')} · y copies · esc leaves"))

    def _select(self, start: Offset, end: Offset) -> None:
        self.screen.selections = {self: Selection(start, end)}

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        start, end = self.selected_span(selection)
        text = get_range_text(self.document, (start.y, start.x), (end.y, end.x))
        return (text, "\n") if text else None

    def _extend_by(self, lines: int) -> bool:
        """Move the end of the selection if lines are being selected; otherwise return False."""
        if self._anchor is None:
            return False
        self._extend(self._cursor + self._moved + lines)
        return True

    def action_scroll_up(self) -> None:
        if not self._extend_by(-1):
            super().action_scroll_up()

    def action_scroll_down(self) -> None:
        if not self._extend_by(1):
            super().action_scroll_down()

    def action_page_up(self) -> None:
        if not self._extend_by(-self.size.height):
            super().action_page_up()

    def action_page_down(self) -> None:
        if not self._extend_by(self.size.height):
            super().action_page_down()

    def action_scroll_home(self) -> None:
        if not self._extend_by(-LINE_END):
            self.scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        if not self._extend_by(LINE_END):
            self.scroll_end_now()

    # --- copying ----------------------------------------------------------------------------------------------

    def _copy(self, text: str) -> None:
        if text:
            get_host(self).copy_to_clipboard(text)

    def action_copy(self) -> None:
        """Copy the selected lines, else the selected message, else the last answer."""
        selection = self.text_selection
        if selection is not None:
            self._copy((self.get_selection(selection) or ("", ""))[0])
            self.drop_selection()
        elif self._chosen is not None and self._chosen in self.document.blocks:
            self._copy(get_message_text(self.document, self.document.blocks.index(self._chosen)))
        else:
            self._copy(self.last_answer)

    def action_copy_code(self) -> None:
        """Copy the selected code block, else the last one that begins on the screen or above it."""
        blocks = self.document.blocks
        if self._chosen is not None and self._chosen in blocks:
            first = last = blocks.index(self._chosen)
            if isinstance(self._chosen, Label):
                after = (i for i in range(first + 1, len(blocks)) if isinstance(blocks[i], Label))
                last = next(after, len(blocks)) - 1
        else:
            bottom = self.document.locate(min(self.scroll_offset.y + self.size.height, self.document.height) - 1)
            first, last = 0, bottom[0] if bottom else -1
        for index in range(last, max(first, last - 400) - 1, -1):
            if (code := get_code(self.document, index)) is not None:
                self._copy(code)
                return
        self.post_message(self.HintChanged("no code block here", 2))

    # --- links ------------------------------------------------------------------------------------------------

    def action_link(self, step: int) -> None:
        """Select the next or previous link on the screen; Enter opens it."""
        links = self._list_visible_links()
        if not links:
            self.post_message(self.HintChanged("no link on the screen", 2))
            return
        at = next((i for i, (y, x, _) in enumerate(links) if (y, x) == self._link), None)
        y, x, target = links[(-1 if step < 0 else 0) if at is None else (at + step) % len(links)]
        self._link = (y, x)
        self.refresh()
        self.post_message(self.HintChanged(f"{target[1]} · enter opens it"))

    def _list_visible_links(self) -> list[tuple[int, int, Target]]:
        """Return line, character and target of the visible links; a link on several lines is listed once."""
        top = self.scroll_offset.y
        links: list[tuple[int, int, Target]] = []
        for y in range(top, top + self.size.height):
            line = self.line_at(y) or []
            for span, target in _find_links(line):
                if links and to_row(line).join == "" and links[-1][2] == target and span[0] <= to_row(line).skip:
                    continue  # continuation of the link above
                links.append((y - self._moved, span[0], target))
        return links

    # --- finding ------------------------------------------------------------------------------------------------

    def action_find(self, step: int = 0) -> None:
        if not self._findable or (step and self._pattern_found is None):
            raise SkipAction
        self.post_message(self.FindWanted(step))


def _find_links(line: Line) -> list[tuple[tuple[int, int], Target]]:
    """Return the links in a line as start character, end character and target."""
    out: list[tuple[tuple[int, int], Target]] = []
    at = 0
    for text, style, _ in line:
        target = get_target(style)
        if target is not None:
            if out and out[-1][1] == target and out[-1][0][1] == at:
                out[-1] = ((out[-1][0][0], at + len(text)), target)
            else:
                out.append(((at, at + len(text)), target))
        at += len(text)
    return out
