"""List all that happened to a memory, each with its lines, and show the last compaction."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment

from sakti.agent.reports.memory_report import in_a_line, sizes
from sakti.core.text import count_k, counted, one_line, sanitise
from sakti.tui.palette import Palette
from sakti.tui.panes.memory import event_head
from sakti.tui.screens.panel import BACK, Keys, ListPanel
from sakti.tui.screens.text import DiffBlock, ReadScreen
from sakti.tui.transcript.blocks import Block, CardBlock, TextBlock
from sakti.tui.transcript.wrap import Line, indent, line_width, wrap

if TYPE_CHECKING:
    from sakti.agent.threads.history import LastCompaction
    from sakti.store.log.events import MemoryEvent
    from sakti.store.memory import Group


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
        super().__init__(f"Memory  {counted(len(events), 'event')}")
        self._events = events
        self._retry_at = retry_at

    def rows(self, text: str) -> list[MemoryEvent]:
        return [e for e in self._events if text.lower() in f"{e.kind} {in_a_line(e)}".lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        now = self.host.session.workspace.clock.now()
        retry_at = self._retry_at if self._retry_at is not None and self._retry_at > now else None
        newest = next((e for e in self._events if e.kind == "failed"), None)
        head = event_head(row, palette, "%Y-%m-%d %H:%M:%S")
        text = one_line(in_a_line(row, retry_at if row is newest else None), 300)
        first, *more = wrap([(text, palette.text)], max(10, width - line_width(head) - 1))
        return [[*head, *first], *indent(more, Segment(" " * line_width(head)))]

    def choose(self, row: Any) -> None:
        self.host.go(self._show, row, group="memory-event", exclusive=True)

    async def _show(self, event: MemoryEvent) -> None:
        views = self.host.session.views
        groups = await views.memory_groups(event.group_ids)
        merged = await views.memory_groups(groups[0].merged_group_ids) if groups else []
        title = f"{datetime.fromtimestamp(event.time / 1000):%Y-%m-%d %H:%M:%S}  {in_a_line(event)}"
        self.host.push(ReadScreen(title, event_blocks(event, groups, merged)))


def event_blocks(event: MemoryEvent, groups: Sequence[Group], merged: Sequence[Group]) -> list[Block]:
    """Return the result of an event: its text, or a diff of the log for a reflection."""
    facts = (
        ("what", in_a_line(event)),
        ("tokens", sizes(event.tokens_before, event.tokens_after) if event.tokens_before else ""),
        ("messages", _numbers(groups)),
        ("by", ", ".join(dict.fromkeys(one_line(g.model, 60) for g in groups if g.model))),
        ("focus" if event.kind in ("compacted", "undone") else "why", one_line(event.text, 300)),
    )
    card = CardBlock(title=event.kind.replace("_", " "), rows=tuple((k, v) for k, v in facts if v))
    before, after = _lines_of(merged), _lines_of(groups)
    if merged:
        diff = difflib.unified_diff(before, after, "before", "after", n=len(before), lineterm="")
        return [card, DiffBlock(diff="\n".join(diff))]
    return [card, *([TextBlock(text="\n".join(after), open=True, gap=True)] if after else [])]


def _numbers(groups: Sequence[Group]) -> str:
    """Return which messages `groups` were made from, or ""."""
    indexes = [i for g in groups for i in (g.first_index, g.last_index) if i is not None]
    return f"numbers {min(indexes) + 1} to {max(indexes) + 1}" if indexes else ""


def _lines_of(groups: Sequence[Group]) -> list[str]:
    return [line for g in groups for line in sanitise(g.text).split("\n")]


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
                f"{counted(done.message_count, 'message')}, numbers {done.first_index + 1} to {done.last_index + 1}",
            ),
            ("tokens", f"{count_k(done.tokens_before)} → {count_k(done.tokens_after)}, {count_k(max(0, saved))} freed"),
            ("observations", f"{len(last.before)} → {counted(len(last.after), 'line')}"),
            ("pinned", f"{counted(last.pinned, 'line')}, always kept" if last.pinned else ""),
            ("doubtful", f"{last.doubtful} new lines are not supported by their source" if last.doubtful else ""),
            ("undo", "/compact undo"),
        ]
        card = CardBlock(title="Compacted", rows=tuple((k, v) for k, v in rows if v))
        super().__init__("The last compaction", [card, DiffBlock(diff=last.diff())])
