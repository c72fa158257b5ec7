"""The observation log by date, and what filters it. Priority shows by colour and by shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.getters import query_one
from textual.message import Message
from textual.widgets import Input, Static

from sakti.core.text import one_line, sanitise
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, indent, wrap
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.store.memory_log import LogLine

SHAPES = {"high": "●", "medium": "○", "low": "·", "done": "✓", "info": "·"}
MAX_LINES = 4  # of one observation in the side bar


@dataclass(frozen=True, slots=True)
class DateRow:
    """A heading: a date, or a reflection."""

    text: str


@dataclass(frozen=True, slots=True)
class ObservationRow:
    """One line of the log. `priority` is a word of `SHAPES`; `flags` are doubts about it."""

    id: str
    group_id: str
    priority: str
    time: str
    text: str
    depth: int
    flags: tuple[str, ...]
    pinned: bool
    edited: bool
    reflection: bool


Row = DateRow | ObservationRow


def log_rows(lines: Sequence[LogLine], wanted: str = "") -> list[Row]:
    """Lines as rows under their dates; with `wanted`, only those that hold it."""
    rows: list[Row] = []
    heading = None
    needle = wanted.lower()
    for line in lines:
        if line.forgotten:
            continue
        text = sanitise(line.content).strip()
        if needle and needle not in text.lower():
            continue
        reflection = line.kind == "reflection"
        date = one_line(line.date or "", 40)
        title = f"{date}  reflection" if reflection else date
        if title != heading:
            heading = title
            if title.strip():
                rows.append(DateRow(title.strip()))
        rows.append(
            ObservationRow(
                line.id,
                line.group_id,
                _priority(line.priority),
                one_line(line.time or "", 12),
                text,
                line.depth,
                tuple(one_line(f, 60) for f in line.flags),
                line.pinned,
                line.edited,
                reflection,
            )
        )
    return rows


def _priority(value: str | None) -> str:
    text = (value or "").lower()
    return {"🔴": "high", "🟡": "medium", "🟢": "low", "✅": "done"}.get(text, text if text in SHAPES else "low")


def draw_row(row: Row, width: int, palette: Palette) -> list[Line]:
    """One row of the log in the side bar."""
    if isinstance(row, DateRow):
        return [[Segment(row.text, palette.heading)]]
    style: Style = {"high": palette.bad, "medium": palette.warn, "done": palette.ok}.get(row.priority, palette.faint)
    lead = "  " * min(row.depth, 4)
    shape = "→" if row.depth and row.priority == "low" else SHAPES[row.priority]
    head: Line = [Segment(f"{lead}{shape} ", style)]
    if row.pinned:
        head.append(Segment("⚑ ", palette.agent))
    spans = [(f"{row.time} ", palette.faint)] if row.time and not row.depth else []
    text = palette.muted if row.priority == "low" or row.depth else palette.text
    body = wrap([*spans, (row.text.replace("\n", " "), text)], max(6, width - len(lead) - 2 - 2 * row.pinned))
    if row.flags:
        body[-1] = [*body[-1], Segment(f" ?{len(row.flags)}", palette.warn)]
    if row.edited:
        body[-1] = [*body[-1], Segment(" ✎", palette.agent)]
    if len(body) > MAX_LINES:
        body = [*body[: MAX_LINES - 1], [*body[MAX_LINES - 1], Segment("…", palette.faint)]]
    blank = Segment(" " * (len(lead) + 2 + 2 * row.pinned))
    return [[*head, *body[0]], *indent(body[1:], blank)]


def _is_line(row: Row) -> bool:
    return isinstance(row, ObservationRow)


class ObservationsPane(Vertical):
    """Title, filter and the list."""

    HELP = (
        "The observation log. Enter opens the messages a line was made from; p pins, e edits, x forgets a line and "
        "u takes that back; / filters, Esc goes back."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "correct('pin')", "Pin or unpin the line", show=False, id="observations.pin"),
        Binding("e", "edit", "Edit the line", show=False, id="observations.edit"),
        Binding("x", "correct('forget')", "Forget the line", show=False, id="observations.forget"),
        Binding("u", "undo", "Take the last correction back", show=False, id="observations.undo"),
        Binding("slash", "filter", "Filter", show=False, id="observations.filter"),
        Binding("escape", "leave", "Back", show=False, id="observations.leave"),
    ]

    class SourcesWanted(Message):
        """Enter on a line: show what it was made from."""

        def __init__(self, row: ObservationRow) -> None:
            super().__init__()
            self.row = row

    class Corrected(Message):
        """A line is to be changed: `action` is pin, unpin, edit (to `text`), forget, or undo (the last change)."""

        def __init__(self, action: str, line_id: str = "", text: str = "") -> None:
            super().__init__()
            self.action, self.line_id, self.text = action, line_id, text

    title = query_one("#observations-title", Static)
    edit_box = query_one("#observations-edit", Input)
    filter_box = query_one("#observations-filter", Input)
    log_list = query_one("#observations-list", LineList)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[LogLine] = ()
        self._edited = ""  # the line in the edit box

    def compose(self) -> ComposeResult:
        yield Static("Observations", id="observations-title", classes="pane-title", markup=False)
        yield Input(placeholder="/ filter", id="observations-filter", compact=True)
        yield LineList(
            draw_row,
            selectable=_is_line,
            id="observations-list",
            empty="nothing observed yet",
        )
        yield Input(placeholder="what the line should say", id="observations-edit", compact=True)

    def on_mount(self) -> None:
        self.log_list.follow_end = True

    def show(self, lines: Sequence[LogLine]) -> None:
        """The log as it is now; stays at the end when the end was in sight."""
        self._lines = lines
        self._refresh(keep_end=True)

    def _refresh(self, *, keep_end: bool = False) -> None:
        rows = log_rows(self._lines, self.filter_box.value.strip())
        shown = sum(isinstance(r, ObservationRow) for r in rows)
        total = len(self._lines)
        count = f"{shown} of {total}" if shown != total else f"{total}" if total else ""
        self.title.update(f"Observations  {count}".rstrip())
        follow = keep_end and not self.log_list.has_focus  # who reads a line keeps it
        self.log_list.set_rows(rows, cursor=len(rows) - 1 if follow else None, keep_end=follow)

    @on(Input.Changed, "#observations-filter")
    def _filter_changed(self) -> None:
        self._refresh()

    @on(Input.Submitted, "#observations-filter")
    def _filter_done(self) -> None:
        self.log_list.focus()

    @on(LineList.Opened, "#observations-list")
    def _opened(self, event: LineList.Opened) -> None:
        event.stop()
        if isinstance(event.row, ObservationRow):
            self.post_message(self.SourcesWanted(event.row))

    def _current(self) -> ObservationRow | None:
        row = self.log_list.current
        return row if isinstance(row, ObservationRow) else None

    def action_correct(self, action: str) -> None:
        if row := self._current():
            self.post_message(self.Corrected("unpin" if action == "pin" and row.pinned else action, row.id))

    def action_undo(self) -> None:
        self.post_message(self.Corrected("undo"))

    def action_edit(self) -> None:
        if row := self._current():
            self._edited = row.id
            self.edit_box.value = row.text
            self.edit_box.add_class("-open")
            self.edit_box.focus()

    @on(Input.Submitted, "#observations-edit")
    def _edit_done(self, event: Input.Submitted) -> None:
        event.stop()
        self._close_edit()
        self.post_message(self.Corrected("edit", self._edited, event.value))

    def _close_edit(self) -> None:
        self.edit_box.remove_class("-open")
        self.log_list.focus()

    def action_filter(self) -> None:
        self.filter_box.focus()

    def action_leave(self) -> None:
        if self.edit_box.has_class("-open"):
            self._close_edit()
            return
        if self.filter_box.value:
            self.filter_box.value = ""
        self.screen.set_focus(self.screen.query_one("#prompt"))
