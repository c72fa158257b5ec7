"""Screens to read: sources of an observation, a page, the next request, memory events, a compaction."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.getters import query_one

from sakti.agent.reports.memory_report import ABOUT, describe_event, format_sizes
from sakti.core.events import ApprovalRequested
from sakti.core.text import count_k, format_count, sanitize_text, show_hidden, to_one_line
from sakti.core.types import Message
from sakti.tui.host import Host
from sakti.tui.palette import Palette
from sakti.tui.panes.memory import draw_event_head
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.transcript.blocks import Block, CardBlock, ChunkBlock, NoticeBlock, TextBlock, estimate_lines
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.chunks import split
from sakti.tui.transcript.code import draw_diff
from sakti.tui.transcript.wrap import Line, indent, measure_line, shorten, wrap
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.session.queries import ContextBlock
    from sakti.agent.threads.history import LastCompaction
    from sakti.store.log.events import MemoryEvent
    from sakti.store.memory import Group

CONTEXT_TEXT = 200_000  # maximum characters of a block in the inspector


class DiffBlock(Block, eq=False):
    """A unified diff; its text is already sanitised."""

    diff: str = ""

    def get_plain_text(self) -> str:
        return self.diff

    def render(self, width: int, palette: Palette) -> list[Line]:
        return draw_diff(self.diff, max(8, width), palette)

    def estimate(self, width: int) -> int:
        return estimate_lines(self.diff, width) + self.gap


class ReadScreen(Panel[bool]):
    """Blocks to read. Dismisses with whether the user saw their end."""

    AUTO_FOCUS = "Transcript"
    keys: ClassVar[Keys] = (("↑↓ scroll", ""), BACK)

    def __init__(self, title: str, blocks: Sequence[Block]) -> None:
        super().__init__(title)
        self._blocks = blocks
        self._shown = self._ended = False  # how far the user has read: the top, and the end

    def list_keys(self) -> Keys:
        folds = any(b.is_foldable for b in self._blocks)
        return (self.keys[0], ("[ ] and enter unfold", ""), *self.keys[1:]) if folds else self.keys

    def compose_body(self) -> ComposeResult:
        yield Transcript()

    def on_mount(self) -> None:
        reader = self.query_one(Transcript)
        reader.document.append(*self._blocks)
        self.watch(reader, "scroll_y", self._note_end, init=False)
        self.call_after_refresh(self._show_top)

    def _show_top(self) -> None:
        self.query_one(Transcript).show_top()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._shown = True  # appending first scrolls to the end, which is not visible

    def _note_end(self) -> None:
        if self._shown:  # else it was closed while it opened
            reader = self.query_one(Transcript)
            self._ended = self._ended or reader.scroll_y >= reader.max_scroll_y - 0.5

    def leave(self) -> None:
        self._note_end()
        self.dismiss(self._ended)


class SourceScreen(ReadScreen):
    """The raw messages behind an observation."""

    HELP = "The messages that an observation was made from."

    def __init__(self, observation: str, messages: Sequence[Message]) -> None:
        blocks: list[Block] = [
            CardBlock(title=observation, rows=(("made from", format_count(len(messages), "message")),))
        ]
        if not messages:
            blocks.append(NoticeBlock(tone="warning", title="No messages", text="No source is recorded."))
        super().__init__("Where this comes from", [*blocks, *make_message_blocks(messages)])


async def open_sources(host: Host, group_id: str, text: str) -> None:
    """Show the raw messages behind the log line `text`."""
    host.push(SourceScreen(text, await host.session.views.sources(group_id)))


class PageScreen(ReadScreen):
    """A page of the documentation."""

    HELP = "A page of the documentation."

    def __init__(self, title: str, page: str) -> None:
        chunks = split(sanitize_text(page))
        super().__init__(title, [ChunkBlock(gap=chunk.gap and bool(n), chunk=chunk) for n, chunk in enumerate(chunks)])


def make_approval_screen(asked: ApprovalRequested) -> ReadScreen:
    """Show the full command or diff of an approval question."""
    blocks: list[Block] = [DiffBlock(diff=sanitize_text(asked.diff))] if asked.diff else []
    if asked.tool == "bash" or not blocks:
        blocks.insert(0, TextBlock(text=show_hidden(asked.target), open=True))
    return ReadScreen(f"{asked.tool}: {to_one_line(asked.target, 100)}", blocks)


def _make_request_title(blocks: Sequence[ContextBlock]) -> str:
    total = sum(b.tokens for b in blocks)
    cached = sum(b.tokens for b in blocks if b.cached)
    about = ABOUT if any(b.kind == "streaming" for b in blocks) else ""
    return f"Context  {about}{count_k(total)} tokens, {count_k(cached)} cacheable"


class ContextScreen(Panel[None]):
    """The next request: its blocks with their tokens, and the text of the selected one."""

    AUTO_FOCUS = "#context-list"
    HELP = "Exactly what would be sent now, block by block; ◆ can be cached."
    keys: ClassVar[Keys] = (("↑↓ choose", ""), ("enter read", "read"), BACK)
    blocks_list = query_one("#context-list", LineList)
    reader = query_one(Transcript)

    def __init__(self, blocks: Sequence[ContextBlock]) -> None:
        super().__init__(_make_request_title(blocks))
        self._use(blocks)

    def _use(self, blocks: Sequence[ContextBlock]) -> None:
        self._blocks = blocks
        self._largest = max((b.tokens for b in blocks), default=1) or 1

    def show_blocks(self, blocks: Sequence[ContextBlock]) -> None:
        """Show the current request; the cursor stays on its block, or near it if that is gone."""
        if not self.is_mounted or blocks == self._blocks:
            return
        place, before = self.blocks_list.cursor, self.blocks_list.current
        self._use(blocks)
        self.set_title(_make_request_title(blocks))
        same = (
            i for i, b in enumerate(blocks) if before is not None and (b.kind, b.text) == (before.kind, before.text)
        )
        self.blocks_list.set_rows(blocks, cursor=min(same, key=lambda i: abs(i - place), default=place))
        if self.blocks_list.current != before:
            self._show()

    def compose_body(self) -> ComposeResult:
        with Horizontal(id="context-body"):
            yield LineList(self._draw, id="context-list", empty="nothing would be sent")
            yield Transcript()

    def on_mount(self) -> None:
        self.blocks_list.set_rows(self._blocks, cursor=0)
        self.call_after_refresh(self._show)

    def _draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        tokens = count_k(row.tokens).rjust(7)
        bar = "▇" * max(1, round(row.tokens / self._largest * 6)) if row.tokens else ""
        room = max(3, width - 18)
        return [
            [
                Segment("◆ " if row.cached else "◇ ", palette.ok if row.cached else palette.faint),
                Segment(shorten(to_one_line(row.label, 120), room).ljust(room), palette.text),
                Segment(tokens, palette.muted),
                Segment(f" {bar}", palette.gauge),
            ]
        ]

    @on(LineList.Moved, "#context-list")
    def _show_row(self, event: LineList.Moved) -> None:
        event.stop()
        self._show()

    @on(LineList.Opened, "#context-list")
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        self.action_read()

    def action_read(self) -> None:
        self.reader.focus()

    def _show(self) -> None:
        block = self.blocks_list.current
        if block is None:
            return
        text = sanitize_text(str(block.text))
        shown = TextBlock(text=text[:CONTEXT_TEXT], open=True, gap=True)
        self.reader.document.clear()
        self.reader.document.append(
            CardBlock(title=str(block.label), rows=(("kind", str(block.kind)), ("tokens", f"{block.tokens:,}"))), shown
        )
        if len(text) > CONTEXT_TEXT:
            note = f"the first {CONTEXT_TEXT:,} of {len(text):,} characters"
            self.reader.document.append(NoticeBlock(tone="warning", title="Cut", text=note))
        self.reader.show_top()


class MemoryEventsScreen(ListPanel):
    """`retry_at`: time of the next try after a failure (Unix ms)."""

    HELP = (
        "● observed, ▼ into the log and its messages out of the window, ◆ reflected, ▣ compacted, ↶ undone, "
        "✗ failed. Enter shows what was made, and for a reflection, what happened to the earlier lines."
    )
    placeholder = "filter"
    empty = "No events yet. Observations are made as the thread grows, or by /compact."
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter details", "open"), BACK)

    def __init__(self, events: Sequence[MemoryEvent], retry_at: int | None) -> None:
        super().__init__(f"Memory  {format_count(len(events), 'event')}")
        self._events = events
        self._retry_at = retry_at

    def rows(self, text: str) -> list[MemoryEvent]:
        return [e for e in self._events if text.lower() in f"{e.kind} {describe_event(e)}".lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        now = self.host.session.workspace.clock.now()
        retry_at = self._retry_at if self._retry_at is not None and self._retry_at > now else None
        newest = next((e for e in self._events if e.kind == "failed"), None)
        head = draw_event_head(row, palette, "%Y-%m-%d %H:%M:%S")
        text = to_one_line(describe_event(row, retry_at if row is newest else None), 300)
        first, *more = wrap([(text, palette.text)], max(10, width - measure_line(head) - 1))
        return [[*head, *first], *indent(more, Segment(" " * measure_line(head)))]

    def choose(self, row: Any) -> None:
        self.host.start_worker(self._show, row, group="memory-event", exclusive=True)

    async def _show(self, event: MemoryEvent) -> None:
        views = self.host.session.views
        groups = await views.memory_groups(event.group_ids)
        merged = await views.memory_groups(groups[0].merged_group_ids) if groups else []
        title = f"{datetime.fromtimestamp(event.time / 1000):%Y-%m-%d %H:%M:%S}  {describe_event(event)}"
        self.host.push(ReadScreen(title, make_event_blocks(event, groups, merged)))


def make_event_blocks(event: MemoryEvent, groups: Sequence[Group], merged: Sequence[Group]) -> list[Block]:
    """Return the result of an event: its text, or a diff of the log for a reflection."""
    what, _, reason = event.text.partition(": ") if event.kind == "failed" else (describe_event(event), "", "")
    facts = (
        ("what", what),
        ("tokens", format_sizes(event.tokens_before, event.tokens_after) if event.tokens_before else ""),
        ("messages", _describe_range(groups)),
        ("by", ", ".join(dict.fromkeys(to_one_line(g.model, 60) for g in groups if g.model))),
        ("focus" if event.kind in ("compacted", "undone") else "why", "" if reason else to_one_line(event.text, 300)),
    )
    card = CardBlock(title=event.kind.replace("_", " "), rows=tuple((k, v) for k, v in facts if v))
    before, after = _get_lines(merged), reason.splitlines() or _get_lines(groups)
    if merged:
        diff = difflib.unified_diff(before, after, "before", "after", n=len(before), lineterm="")
        return [card, DiffBlock(diff="\n".join(diff))]
    return [card, *([TextBlock(text="\n".join(after), open=True, gap=True)] if after else [])]


def _describe_range(groups: Sequence[Group]) -> str:
    """Return which messages `groups` were made from, or ""."""
    indexes = [i for g in groups for i in (g.first_index, g.last_index) if i is not None]
    return f"numbers {min(indexes) + 1} to {max(indexes) + 1}" if indexes else ""


def _get_lines(groups: Sequence[Group]) -> list[str]:
    return [line for g in groups for line in sanitize_text(g.text).split("\n")]


class CompactionScreen(ReadScreen):
    """Read-only; `/compact undo` undoes it."""

    HELP = "The changes of the last /compact: + marks new lines of the log. The messages are kept, search finds them."

    def __init__(self, last: LastCompaction) -> None:
        done = last.compaction
        saved = done.tokens_before - done.tokens_after
        rows = [
            ("when", datetime.fromtimestamp(done.created_at / 1000).strftime("%Y-%m-%d %H:%M")),
            ("focus", done.focus),
            (
                "removed",
                f"{format_count(done.message_count, 'message')},"
                f" numbers {done.first_index + 1} to {done.last_index + 1}",
            ),
            ("tokens", f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)}, {count_k(max(0, saved))} freed"),
            ("observations", f"{len(last.before)} → {format_count(len(last.after), 'line')}"),
            ("pinned", f"{format_count(last.pinned, 'line')}, always kept" if last.pinned else ""),
            (
                "doubtful",
                f"{format_count(last.doubtful, 'new line')} not supported by the source" if last.doubtful else "",
            ),
            ("undo", "/compact undo"),
        ]
        card = CardBlock(title="Compacted", rows=tuple((k, v) for k, v in rows if v))
        super().__init__("The last compaction", [card, DiffBlock(diff=last.diff())])
