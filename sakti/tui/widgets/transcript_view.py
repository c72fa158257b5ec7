"""Scroll over a `Document`, live at its end, loading older messages at its top."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from time import monotonic

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region
from textual.message import Message as TextualMessage
from textual.strip import Strip
from textual.timer import Timer

from sakti.core.types import Message
from sakti.tui.host import get_host
from sakti.tui.palette import make_palette
from sakti.tui.transcript.blocks import Block, CardBlock, FindingsBlock, Label, NoticeBlock, WaitingBlock
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.live_turn import LiveTurn
from sakti.tui.transcript.selection import find_best_match
from sakti.tui.transcript.tool import ToolBlock
from sakti.tui.transcript.wrap import Line
from sakti.tui.widgets.lines import LineView

FLUSH_S = 0.05  # seconds between two drawings of the open block,
FIRST_FLUSH_S = 0.0125  # and after an answer's first one, when a short answer is often complete; doubled from then on
HIGHLIGHT_S = 2.0  # seconds for which the head of a message stays marked after a jump
MATCH_HIGHLIGHT_S = 10.0  # seconds for which search words stay marked after a jump
COUNTED_BLOCKS = (Label, NoticeBlock, CardBlock, FindingsBlock, ToolBlock)  # blocks counted as news below the screen


class TranscriptView(LineView):
    """Blocks of one thread. Follows new content while the user is at the end."""

    class OlderWanted(TextualMessage):
        """The user is near the top and there may be older messages."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.document = Document(make_palette({}, True))
        self.more_above = False
        self.live = LiveTurn(self.document, self._schedule, self._get_seconds, self._get_wall_time)
        self._timer: Timer | None = None
        self._clock_timer: Timer | None = None
        self.has_clock = True  # False: another widget advances its clocks together with its own
        self._last_flush = 0.0
        self._pace = FLUSH_S  # seconds until the next drawing
        self._follow = True
        self._read_count = 0  # number of blocks when the user left the end
        self._has_grown = False  # whether blocks were added below the screen since then
        self._last_height = 0
        self._is_scrolling = False
        self._chosen: Block | None = None
        self._marked = ""
        self._target = ""  # target of the last jump, which a resize keeps in view
        self._pattern: re.Pattern[str] | None = None  # finds the line of the target to show
        self._asked_older = False
        self.drawn: Callable[[], object] = bool  # called after a drawing, before it is painted

    # --- drawing ------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        super().on_mount()
        self.document.restyle(self.palette)

    def apply_theme(self) -> None:
        super().apply_theme()
        self.document.restyle(self.palette)
        self.forget_strips()

    def line_at(self, y: int) -> Line | None:
        place = self.document.locate(y)
        if place is None:
            return None
        lines = self.document.lines(place[0])
        return lines[place[1]] if place[1] < len(lines) else None

    def line_style(self, y: int) -> Style | None:
        if self._chosen is None and not self._marked:
            return None
        place = self.document.locate(y)
        if place is None:
            return None
        block = self.document.blocks[place[0]]
        if self._pattern is None and place == (self.document.index_of(self._marked), block.head_line) and self._marked:
            return self.palette.mark
        return self.palette.cursor if block is self._chosen and place[1] == block.head_line else None

    def line_spans(self, y: int, line: Line) -> list[tuple[tuple[int, int], Style]]:
        place = self.document.locate(y) if self._marked and self._pattern is not None else None
        if place is None or self._pattern is None or not self.document.blocks[place[0]].shows_message(self._marked):
            return []
        text = "".join(s.text for s in line)
        return [(m.span(), self.palette.mark) for m in self._pattern.finditer(text) if m[0]]

    def line_bar(self, y: int) -> Style | None:
        return self.palette.agent if self.line_style(y) == self.palette.cursor else None

    def on_resize(self, event: events.Resize) -> None:
        width = max(8, self.size.width - 1)
        place = self.document.locate(self.scroll_offset.y)
        if width != self.document.width:
            self.document.restyle(width=width)
            self.drop_selection()
            self._strips.clear()
        elif not self._follow and not self._target:
            return
        self._scroll_to_place(None if self._follow else self._place_of(self._target) or place)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._is_scrolling:
            return
        self._target = ""
        self._follow = new_value >= self.max_scroll_y - 1
        if self._follow:
            self._read_count, self._has_grown = self._blocks, False
        self._measure_visible()
        if self.more_above and new_value < self.size.height * 2 and not self._asked_older:
            self._asked_older = True
            self.post_message(self.OlderWanted())

    def _measure_visible(self) -> None:
        """Measure the blocks on the screen and one screen above it without moving the content."""
        place = self.document.locate(self.scroll_offset.y)
        if place is None:
            return
        index, rows = place[0], self.size.height
        first = self._find_block_above(index)
        if all(self.document.is_exact(i) for i in range(first, min(index + rows, self._blocks))):
            return
        growth = self.document.measure(index) if self.document.top(index) < self.scroll_offset.y else 0
        shift = growth + self._measure_up(index)
        self._keep_selection(index, shift)
        self._measure_down(index, self.scroll_offset.y + shift + rows)
        self._move(self.scroll_offset.y + shift)

    def _keep_selection(self, index: int, shift: int) -> None:
        """Shift the selection by `shift` lines if it is below the start of block `index`."""
        selection = self.text_selection if shift else None
        if selection is not None and self.selected_span(selection)[0].y + shift >= self.document.top(index):
            self._moved += shift

    def drop_selection(self) -> None:
        """Drop the selection."""
        if self.text_selection is not None:
            self.screen.clear_selection()
        self._moved = 0

    def _find_block_above(self, index: int) -> int:
        """Return the first block of the screen above block `index`, by the known heights."""
        have = 0
        while index > 0 and have <= self.size.height:
            index -= 1
            have += self.document.block_height(index)
        return index

    def _measure_up(self, index: int) -> int:
        """Measure one screen above block `index`, so that a page up does not skip lines.

        Returns by how many lines everything below has moved.
        """
        shift = have = 0
        while index > 0 and have <= self.size.height:
            index -= 1
            shift += self.document.measure(index)
            have += self.document.block_height(index)
        return shift

    def _scroll_to_place(self, place: tuple[int, int] | None) -> None:
        """Scroll so that `place` (a block and a line in it) is on top; None: to the end."""
        document, rows = self.document, max(1, self.size.height)
        if place is not None:
            index, inside = place
            if index >= self._blocks:
                return
            document.measure(index)
            self._keep_selection(index, self._measure_up(index))
            self._measure_down(index, document.top(index) + inside + rows)
            self._move(document.top(index) + min(inside, max(0, document.block_height(index) - 1)))
            self._measure_visible()  # near the end, earlier blocks are also on the screen
            return
        have = 0
        for index in range(self._blocks - 1, -1, -1):
            document.measure(index)
            have += document.block_height(index)
            if have >= rows * 2:  # the screen and a page above it
                break
        self._move(document.height)

    def _measure_down(self, index: int, bottom: int) -> None:
        while index < self._blocks and self.document.top(index) < bottom:
            self.document.measure(index)
            index += 1

    @property
    def _blocks(self) -> int:
        return len(self.document.blocks)

    def _move(self, y: int) -> None:
        """Scroll to line `y`; if the top is unchanged, repaint only the changed lines."""
        top, first = self.scroll_offset.y, self.document.take_changed()
        self._is_scrolling = True
        try:
            self.set_height(self.document.height)
            y = max(0, min(y, self.document.height - self.size.height))
            self.scroll_target_y = y
            self.scroll_y = y
        finally:
            self._is_scrolling = False
        self._last_height = self.document.height
        if self._follow:
            self._read_count, self._has_grown = self._blocks, False
        below = self.scroll_offset.y + self.size.height
        if self.scroll_offset.y != top or first <= top:
            self.refresh()
        elif first < below:
            self.refresh_lines(first, below - first)

    def scroll_end_now(self) -> None:
        """Scroll to the newest line, and follow it from now on."""
        self._follow = True
        self._scroll_to_place(None)

    def show_result(self, block: Block) -> None:
        """Scroll to a block that the user requested, or to its beginning if it exceeds the screen."""
        index = self.document.blocks.index(block)
        self.document.measure(index)
        self.scroll_end_now()
        if self.document.height - self.document.top(index) > self.size.height > 0:
            self._follow = False
            self._scroll_to_place((index, 0))

    @property
    def news(self) -> str:
        """Return the notice of new content below the screen, or ""."""
        if self._follow or not self._has_grown:
            return ""
        count = sum(isinstance(block, COUNTED_BLOCKS) for block in self.document.blocks[self._read_count :])
        return f"↓ {count} new · End" if count else "↓ new · End"

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the painted lines, with the notice of news over the end of the last one."""
        strips = super().render_lines(crop)
        last = self.size.height - 1
        news = self.news and f" {self.news} "
        end = self.styles.padding.left + self.size.width
        start = end - cell_len(news)
        if news and crop.x == 0 and 0 < start < end <= crop.right and crop.y <= last < crop.bottom:
            strip = strips[last - crop.y]
            sign = Strip([Segment(news, self.palette.agent + Style(reverse=True))])
            strips[last - crop.y] = Strip.join([strip.crop(0, start), sign, strip.crop(end)])
        return strips

    def show_top(self) -> None:
        """Scroll to the first line."""
        self._follow = False
        self._scroll_to_place((0, 0))
        self.forget_strips()

    # --- loading ------------------------------------------------------------------------------------------

    def load(self, messages: Iterable[Message], more: bool) -> None:
        """Show a thread from its newest messages. `more`: there are older ones."""
        self.drop_selection()
        notices = [] if self.live.seen else list(self.document.blocks)  # notices shown before anything was loaded
        self.document.clear()
        awaited = self.live.reset(notices)
        self.live.seen.clear()
        shown = list(messages)
        self.live.seen.update(m.id for m in shown)
        self.document.append(*make_message_blocks(shown), *(b for b in notices if not isinstance(b, WaitingBlock)))
        if awaited:
            self.live.begin_step(awaited)
        self.more_above, self._asked_older = more, False
        self.live.answer = [next((m.text for m in reversed(shown) if m.role == "assistant" and m.text), "")]
        self.forget_strips()
        self.scroll_end_now()

    def begin_empty(self) -> None:
        """Clear the screen for a new thread if it shows messages; startup notices alone stay."""
        if self.live.seen:
            self.clear_screen()
            self.live.seen.clear()

    def load_older(self, messages: Iterable[Message], more: bool) -> None:
        """Insert older `messages` at the top without moving the visible content."""
        place = self.document.locate(self.scroll_offset.y)
        before = self._blocks
        old = self.document.top(place[0]) if place is not None else 0
        shown = list(messages)
        self.live.seen.update(m.id for m in shown)
        self.document.insert(0, make_message_blocks(shown))
        added = self._blocks - before
        self.live.shift(added)
        self._read_count += added
        self.more_above, self._asked_older = more, False
        if place is not None and self.text_selection is not None:
            self._moved += self.document.top(place[0] + added) - old
        self._scroll_to_place((place[0] + added, place[1]) if place is not None and not self._follow else None)

    def clear_screen(self) -> None:
        """Clear the screen; nothing is deleted anywhere."""
        self.drop_selection()
        self.document.clear()
        self.live.reset()
        self.more_above = False
        self.forget_strips()
        self.scroll_end_now()

    @property
    def place(self) -> str:
        """Return the id of the message at the top of the screen; "" when following the end."""
        top = None if self._follow else self.document.locate(self.scroll_offset.y)
        return next((b.message_id for b in self.document.blocks[top[0] :] if b.message_id), "") if top else ""

    def jump(self, message_id: str, pattern: re.Pattern[str] | None = None) -> bool:
        """Scroll to a message and mark it for a moment.

        With `pattern`, the best matching line is in view. False if the message is not loaded.
        """
        self._pattern = pattern
        place = self._place_of(message_id)
        if place is None:
            return False
        self._follow = False
        self._scroll_to_place(place)
        self._marked = self._target = message_id
        self.set_timer(HIGHLIGHT_S if self._pattern is None else MATCH_HIGHLIGHT_S, partial(self._unmark, message_id))
        self.refresh()
        return True

    def _place_of(self, message_id: str) -> tuple[int, int] | None:
        """Return the scroll target for a message: its head, or just above the best match of `_pattern`."""
        index = self.document.index_of(message_id) if message_id else None
        if index is None:
            return None
        match = find_best_match(self.document, message_id, self._pattern) if self._pattern is not None else None
        if match is None:
            self._pattern = None  # the words are out of view, so mark the head of the message
            return index, 0
        gap = self.document.top(match[0]) + match[1] - self.document.top(index)
        return (index, 0) if gap < self.size.height - 2 else (match[0], max(0, match[1] - 3))

    def _unmark(self, message_id: str) -> None:
        if self._marked == message_id:
            self._marked = self._target = ""
            self.refresh()

    # --- a live turn --------------------------------------------------------------------------------------

    @property
    def last_answer(self) -> str:
        """Return the Markdown of the newest answer, as far as it has come."""
        return self.live.last_answer

    def _schedule(self, now: bool) -> None:
        """Draw soon.

        At once if the last drawing was long ago or the user is waiting for it. No timer runs while nothing changes.
        """
        if now:
            self._pace = FIRST_FLUSH_S
            self._stop_timer()
        if self._timer is not None or not self.is_mounted:
            return
        wait = 0.0 if now else self._last_flush + self._pace - monotonic()
        if not now:
            self._pace = min(FLUSH_S, 2 * self._pace)
        if wait <= 0:
            self.call_next(self._flush)
            wait = self._pace
        self._timer = self.set_timer(wait, self._flush)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _flush(self) -> None:
        self._stop_timer()
        self._last_flush = monotonic()
        self.live.draw()
        self._update_clock_timer()
        if self._follow:
            self._scroll_to_place(None)
        else:
            self._has_grown |= self.document.height > self._last_height
            news = self.news
            self._move(self.scroll_offset.y)
            if news and self.size.height:
                self.refresh_lines(self.scroll_offset.y + self.size.height - 1, 1)
        self.drawn()

    def _get_seconds(self) -> float:
        return get_host(self).session.workspace.clock.monotonic()

    def _get_wall_time(self) -> int:
        return get_host(self).session.workspace.clock.now()

    def _update_clock_timer(self) -> None:
        """Run the clock timer only while something on the screen needs it."""
        needed = self.has_clock and self.live.has_clock
        if needed and self._clock_timer is None:
            self._clock_timer = self.set_interval(1.0, self.live.tick)
        elif not needed and self._clock_timer is not None:
            self._clock_timer.stop()
            self._clock_timer = None
