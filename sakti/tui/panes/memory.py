"""Show memory usage: context windows, background work, costs and the latest events."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Self

from msgspec.structs import replace
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from sakti.agent.reports.memory_report import (
    RESTS,
    describe_event,
    describe_unsent,
    describe_unsent_observations,
    format_backlog,
    format_forecast,
    format_gauge,
    get_sent_gauges,
    name_current_work,
    summarize_doubts,
)
from sakti.core.events import Gauge, MemoryOperation, MemoryStatus
from sakti.core.text import count_k, to_one_line
from sakti.core.types import Spent
from sakti.store.log.events import MemoryEvent
from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.panes.bars import FOLD_SYMBOLS
from sakti.tui.transcript.wrap import Line, measure_line, shorten

if TYPE_CHECKING:
    from sakti.store.log.lines import Figures

LABEL_WIDTH = 13
MIN_BAR = 8  # minimum cells of a bar beside its numbers; otherwise it gets its own line
GAUGE_NAMES = ("Messages", "Observations")
MAX_LINES = 6  # maximum lines of a reason or a note
MAX_FAILURES = 50
EVENT_SIGNS = {
    "observed": "●",
    "activated": "▼",
    "reflected": "◆",
    "taken_over": "◆",
    "taken_back": "↶",
    "compacted": "▣",
    "undone": "↶",
    "failed": "✗",
    "stopped": "■",
}


class MemoryPane(Widget, can_focus=True):
    """Pane with the last `MemoryStatus`, stored figures, usage, and as many recent events as fit.

    `streaming`: estimated tokens of the running step.
    """

    FOCUS_ON_CLICK = False
    HELP = (
        "How full the windows are. ▒: tokens that ready observations will free; ┃: where the next ones are made in the "
        "background; ≈: a part is streaming and estimated. Enter: all events."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "events", "All events", show=False, id="memory.events"),
        Binding("escape", "leave", "Back to the prompt", show=False, id="memory.leave"),
    ]

    class EventsWanted(Message):
        """Show all memory events."""

    events: reactive[Sequence[MemoryEvent]] = reactive(())
    status: reactive[MemoryStatus | None] = reactive(None)
    spent: reactive[Spent] = reactive(Spent())
    figures: reactive[Figures | None] = reactive(None)
    failed: reactive[str] = reactive("")
    turn_tokens: reactive[int | None] = reactive(None)
    streaming: reactive[int] = reactive(0)
    title_style = Style()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._failures: list[MemoryEvent] = []  # failures of this window; they are not stored
        self._folded = False
        self._drawn: tuple[Size, list[Line]] | None = None  # time of the last change

    def refresh(self, *regions: Region, **options: bool) -> Self:
        self._drawn = None
        return super().refresh(*regions, **options)

    def watch_status(self, old: MemoryStatus | None, new: MemoryStatus | None) -> None:
        if old is not None and new is not None and old.record_id != new.record_id:
            self._failures, self.failed = [], ""  # the failures belong to another thread
        if new is not None and new.retry_at is not None and (wait := new.retry_at - self._get_time()) > 0:
            self.set_timer(wait / 1000 + 0.1, lambda: self.refresh(layout=True))
        self._fit()

    def _get_time(self) -> int:
        return get_host(self).session.workspace.clock.now()

    def _get_current_status(self) -> MemoryStatus | None:
        """Return the status, dropping a retry time that has passed: the next turn retries."""
        status = self.status
        if status is None or status.retry_at is None or status.retry_at > self._get_time():
            return status
        return replace(status, retry_at=None, phase="idle" if status.phase == "backing off" else status.phase)

    def watch_turn_tokens(self) -> None:
        self._fit()

    def watch_streaming(self) -> None:
        self._fit()

    def watch_figures(self) -> None:
        self._fit()

    def watch_failed(self) -> None:
        self._fit()

    def watch_events(self) -> None:
        self._fit()

    def on_mount(self) -> None:
        get_host(self).theme_changed_signal.subscribe(self, lambda _: self.refresh())

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def fold(self, folded: bool) -> None:
        self._folded = folded
        self.refresh(layout=True)

    def _fit(self) -> None:
        """Lay out the side bar again only if the number of lines changed."""
        fixed = self._folded or self.has_class("-set") or any(w.has_class("-alone") for w in self.ancestors)
        if (
            not fixed
            and self.is_mounted
            and self.size.width
            and len(self._build_lines(self.size.width)) != self.size.height
        ):
            self.refresh(layout=True)

    def _count_event_rows(self) -> int:
        """Return the number of event lines of a pane with automatic height."""
        rows = get_host(self).size.height
        return 3 if rows >= 45 else 2 if rows >= 34 else 0

    def all_events(self) -> list[MemoryEvent]:
        """Newest first, with the failures of this window."""
        return sorted([*self.events, *self._failures], key=lambda e: e.time, reverse=True)

    def action_events(self) -> None:
        self.post_message(self.EventsWanted())

    def action_leave(self) -> None:
        self.screen.set_focus(self.screen.query_one("#prompt"))

    def on_click(self, event: events.Click) -> None:
        if event.y > 0 and (self.has_focus or event.chain > 1):  # the title folds
            self.action_events()

    def handle_operation(self, event: MemoryOperation) -> None:
        """Show that background work started, ended or failed."""
        if event.kind == "failed":
            when = int(event.fields.get("failed_at") or 0)
            self._failures = [*self._failures, self._describe_end(event, when)][-MAX_FAILURES:]
        elif event.kind == "end":
            self.failed = ""

    def _describe_end(self, event: MemoryOperation, when: int) -> MemoryEvent:
        """Return the event of an operation without a result; the pane shows a failure until one succeeds."""
        if event.fields.get("code") == "stopped":
            self.failed = ""
            return MemoryEvent(when, "stopped", text=f"{event.operation_type} stopped by you")
        reason = str(event.fields.get("error") or event.fields.get("reason") or "")
        self.failed = f"{event.operation_type} failed: {to_one_line(reason, 600)}"
        return MemoryEvent(when, "failed", text=self.failed)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._build_lines(max(12, width)))

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        if self._drawn is None or self._drawn[0] != self.size:
            self._drawn = self.size, self._build_lines(width, self.size.height)
        lines = self._drawn[1]
        base = self.rich_style
        if y >= len(lines):
            return Strip.blank(width, base)
        style = base
        if y == 0:
            style += self.title_style + Style(underline=self.has_focus)
        line = [Segment(" "), *lines[y]]
        return Strip(Segment.apply_style(line, style)).crop_extend(0, width, style)

    def _build_lines(self, width: int, height: int | None = None) -> list[Line]:
        """Return the lines of the pane, filled up to `height` with events (None: automatic height)."""
        palette = get_host(self).palette
        self.title_style = Style() if palette.mark.reverse else palette.cursor
        room = max(10, width - 2)
        lines = self._build_memory_lines(room, palette)
        free = self._count_event_rows() if height is None else height - len(lines)
        shown = self.all_events()[: max(0, free)] if self.status is not None else []
        return [*lines, *(draw_event(e, room, palette) for e in shown)]

    def _build_memory_lines(self, width: int, palette: Palette) -> list[Line]:
        """Return the lines above the events, the title first, without technical terms: `/memory` has those."""
        title: Line = [Segment(f"{FOLD_SYMBOLS[self._folded]} Memory", palette.bold)]
        status = self._get_current_status()
        if status is None:
            return [title, [Segment("No messages yet.", palette.faint)]]
        if state := name_current_work(status):
            title.append(Segment(state.rjust(max(1, width - 8)), palette.warn))
        lines = [title, *_draw_gauges(status, self.streaming, self.turn_tokens, width, palette)]
        if reflected := _describe_reflection(status):
            lines.append([Segment("  "), Segment(reflected, palette.muted)])
        if status.backlog is not None:
            style = palette.warn if status.backlog.paused else palette.text
            lines.append([Segment("Backlog ", palette.muted), Segment(format_backlog(status.backlog, ""), style)])
        if self.figures is not None and (warning := summarize_doubts(self.figures)):
            lines.append([Segment("! ", palette.warn), Segment(warning, palette.warn)])
        lines += _draw_costs(status, self.spent, palette, width, self.failed)
        lines = [_crop(line, width) for line in lines]
        return [*lines, *_draw_failure(self.failed, status.retry_at, width, palette)] if self.failed else lines


def _draw_failure(failed: str, retry_at: int | None, width: int, palette: Palette) -> list[Line]:
    """Return the last failure, and when memory tries again (Unix ms)."""
    lines = _wrap_plain(f"✗ {failed}", palette.bad, width)
    if retry_at is not None:
        when = datetime.fromtimestamp(retry_at / 1000).strftime("%H:%M:%S")
        lines += _wrap_plain(f"  next try at {when} at the latest", palette.muted, width)
    return lines


def _wrap_plain(text: str, style: Style, width: int) -> list[Line]:
    """Return a text in at most `MAX_LINES` lines, cut with …; Enter shows all of it."""
    lines = textwrap.wrap(text, max(8, width), max_lines=MAX_LINES, placeholder=" …")
    return [[Segment(line, style)] for line in lines]


def _draw_costs(status: MemoryStatus, spent: Spent, palette: Palette, width: int, failed: str) -> list[Line]:
    """Lay out cache, price and Observer, on one line if they fit; then its reason and the note."""
    name = to_one_line(status.observer.rpartition("/")[2], 40).removeprefix("claude-")
    cost = _describe_cost(spent)
    together = " · ".join(x for x in (cost, name) if x)
    texts = [together] if len(together) <= width else [cost, name]
    lines: list[Line] = [[Segment("", palette.muted), Segment(text, palette.muted)] for text in texts if text]
    if name and "/" not in status.observer and status.reason:
        lines.append([Segment("  "), Segment(to_one_line(status.reason, 60), palette.muted)])
    if status.note and status.note not in failed:
        lines += _wrap_plain(to_one_line(status.note, 300), palette.warn, width)
    return lines


def _describe_reflection(status: MemoryStatus) -> str:
    """Return the status of a buffered reflection, or ""."""
    reflection = status.buffered_reflection
    if not reflection.input_observation_tokens or not reflection.observation_tokens:
        return ""
    sizes = f"{count_k(reflection.input_observation_tokens)} → {count_k(reflection.observation_tokens)}"
    return f"shorter log ready, {sizes}"


def _draw_gauges(
    status: MemoryStatus, streaming: int, turn_tokens: int | None, width: int, palette: Palette
) -> list[Line]:
    """Return both gauges, and below them the tokens left out and the next action of memory."""
    gauges = get_sent_gauges(status, streaming)
    abouts = status.approximate or streaming > 0, status.approximate
    numbers = [format_gauge(gauge, about=about) for gauge, about in zip(gauges, abouts, strict=True)]
    # reserve the width of the number, so that the bar does not move
    most = [f"≈{count_k(g.threshold)}{n[n.find(' of ') :]}" for g, n in zip(gauges, numbers, strict=True)]
    field = max(len(text) for text in (*most, *numbers))
    cells = width - LABEL_WIDTH - field - 1
    buffered = status.buffered_observations
    ready = buffered.projected_message_removal if buffered.chunks and status.phase not in RESTS else 0
    marks = (status.next_buffer_at, ready), (None, 0)
    below = describe_unsent(status), describe_unsent_observations(status)
    more = format_forecast(status, turn_tokens, streaming), ""
    out: list[Line] = []
    for name, gauge, text, mark, unsent, then in zip(GAUGE_NAMES, gauges, numbers, marks, below, more, strict=True):
        if cells >= MIN_BAR:
            bar = draw_gauge(gauge, cells, palette, *mark)
            out.append([_draw_label(name, palette), *bar, Segment(f" {text.rjust(field)}", palette.text)])
        else:
            out.append([_draw_label(name, palette), Segment(text.rjust(width - LABEL_WIDTH), palette.text)])
            out.append(draw_gauge(gauge, width, palette, *mark))
        out += [[Segment(f"  {line}", palette.warn)] for line in textwrap.wrap(unsent, max(8, width - 2))]
        out += [[Segment("  "), Segment(then, palette.muted)]] if then else []
    return out


def _draw_label(name: str, palette: Palette) -> Segment:
    return Segment(name.ljust(LABEL_WIDTH), palette.muted)


def draw_gauge(gauge: Gauge, cells: int, palette: Palette, next_at: int | None = None, ready: int = 0) -> Line:
    """Return a bar as `███████▒▒░┃`.

    ▒ marks the tokens that ready observations will free, ┃ the start of the next background observation.
    """
    threshold = max(1, gauge.threshold)
    share = gauge.tokens / threshold
    full = max(0, min(cells, int(share * cells + 0.5)))
    freed = min(full, int(ready / threshold * cells + 0.5))
    style = palette.gauge_high if share >= 0.9 else palette.gauge
    at = None if next_at is None else min(cells - 1, int(next_at / threshold * cells))
    mark = at if at is not None and at >= full else cells
    line = [
        Segment("█" * (full - freed), style),
        Segment("▒" * freed, style),
        Segment("░" * (mark - full), palette.line),
        Segment("┃" * (mark < cells), palette.warn),
        Segment("░" * (cells - mark - 1), palette.line),
    ]
    return [segment for segment in line if segment.text]


def _crop(line: Line, width: int) -> Line:
    """Return `line` with its second segment shortened if the line is too long."""
    over = measure_line(line) - width
    if over > 0 and len(line) > 1:
        text, style, _ = line[1]
        return [line[0], Segment(shorten(text, max(1, cell_len(text) - over)), style), *line[2:]]
    return line


def _describe_cost(spent: Spent) -> str:
    """Return the cached share of the conversation's input and, if known, the cost of all calls."""
    usage = spent.actor
    if not usage.input_tokens:
        return ""
    share = f"Cache {usage.cached_tokens / usage.input_tokens:.0%}"
    cost = (usage + spent.memory + spent.search).cost_usd
    return share if cost is None else f"{share} · ${cost:.2f}"


def draw_event(event: MemoryEvent, width: int, palette: Palette) -> Line:
    """Return an event as `12:04 ● 4 messages → 3 lines`, shortened to fit."""
    head = draw_event_head(event, palette, "%H:%M")
    room, text = max(4, width - measure_line(head)), to_one_line(describe_event(event), 300)
    if event.kind in ("observed", "activated"):
        text = text.partition(" ")[2]  # the symbol stands for the verb
    if len(text) > room and event.kind != "failed":
        text = text.partition(",")[0]  # the tokens are dropped first
    return [*head, Segment(shorten(text, room), palette.muted)]


def draw_event_head(event: MemoryEvent, palette: Palette, clock: str) -> Line:
    """Draw when an event happened, in the strftime format `clock`, and its symbol."""
    style = {"failed": palette.bad, "activated": palette.ok, "compacted": palette.ok}.get(event.kind, palette.agent)
    when = f"{datetime.fromtimestamp(event.time / 1000):{clock}} "
    return [Segment(when, palette.faint), Segment(f"{EVENT_SIGNS[event.kind]} ", style)]
