"""Show the observation log by date, and filter it. Colour and shape show the priority."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.getters import query_one
from textual.message import Message
from textual.widgets import Input

from sakti.core.text import sanitize_text, to_one_line
from sakti.core.types import Json, join_values
from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.panes.bars import PaneTitle, TimeBar
from sakti.tui.transcript.wrap import Line, Span, indent, wrap
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import PaneInput

if TYPE_CHECKING:
    from sakti.store.log.events import LogChange
    from sakti.store.log.lines import LogLine
    from sakti.store.threads.fork import CarriedLine

LINE = "* "  # prefix of log lines among the carried lines
SHAPES = {"high": "●", "medium": "○", "low": "·", "done": "✓", "info": "·"}
NOT_YET = "not yet in the context"
REMOVAL_NOTES = {True: "removed: leaves with the next change of the context", False: "left out"}
MAX_LINES = 4  # maximum lines of one observation in the side bar
FOLD_COUNT = 3  # nested lines are folded if there are at least this many


class DateRow(Struct, frozen=True):
    """A heading: a date, or a reflection. `divider`: the rows below are not in the context yet."""

    text: str
    divider: bool = False


class ObservationRow(Struct, frozen=True):
    """One line of the log.

    `priority` is a key of `SHAPES`; `flags` are doubts about the line; in `text`, parts replaced by newer lines are
    marked; `content` is the editable text.
    """

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
    nested: int = 0  # number of folded lines below it
    unfolded: bool = False  # shown in full, with its doubts
    content: str = ""
    waiting: bool = False  # observed, but not in the prompt yet
    category: str = ""  # the section of the mode
    fields: tuple[str, ...] = ()  # fields defined by the mode, shown when unfolded


class CarriedRow(Struct, frozen=True):
    """A line carried over from earlier threads of the workspace."""

    line: CarriedLine
    text: str


Row = DateRow | ObservationRow | CarriedRow


def make_carried_rows(carried: Sequence[CarriedLine], wanted: str = "") -> list[Row]:
    """Return the lines of earlier threads under a heading; with `wanted`, only those that contain it."""
    texts = [(line, to_one_line(line.text.removeprefix(LINE), 500)) for line in carried]
    rows = [CarriedRow(line, text) for line, text in texts if wanted.lower() in text.lower()]
    return [DateRow("From this workspace"), *rows] if rows else []


def passes_filter(line: LogLine, wanted: str) -> bool:
    """Return whether a line passes a filter of text, `#` category prefixes and `?` (flagged lines)."""
    words = wanted.lower().split()
    categories = [w[1:] for w in words if w.startswith("#")]
    text = " ".join(w for w in words if w != "?" and not w.startswith("#"))
    return (
        text in line.content.lower()
        and all(line.category.lower().startswith(c) for c in categories)
        and (bool(line.flags) or "?" not in words)
    )


def make_rows(
    lines: Sequence[LogLine], waiting: Sequence[LogLine], wanted: str = "", unfolded: Set[str] = frozenset()
) -> list[Row]:
    """Return the log as rows; below a divider, the `waiting` notes that are not in the prompt yet."""
    rows, more = make_log_rows(lines, wanted, unfolded), make_log_rows(waiting, wanted, unfolded)
    if not any(isinstance(row, ObservationRow) for row in more):
        return rows
    last = next((row.text for row in reversed(rows) if isinstance(row, DateRow)), "")
    dimmed = [replace(row, waiting=True) if isinstance(row, ObservationRow) else row for row in more]
    if isinstance(dimmed[0], DateRow) and dimmed[0].text == last:
        del dimmed[0]  # same day as the line above
    return [*rows, DateRow(NOT_YET, divider=True), *dimmed]


def make_log_rows(lines: Sequence[LogLine], wanted: str = "", unfolded: Set[str] = frozenset()) -> list[Row]:
    """Return lines as rows under their dates; with `wanted`, only those that pass this filter.

    Long lists of nested lines are folded unless their parent is in `unfolded`.
    """
    lines = [x for x in lines if not x.forgotten]
    folded = {} if wanted else _fold_groups(lines, unfolded)
    hidden = set(chain.from_iterable(folded.values()))
    rows: list[Row] = []
    heading = None
    for line in lines:
        if line.id in hidden or not passes_filter(line, wanted):
            continue
        title = _get_heading(line)
        if title != heading:
            heading = title
            if title.strip():
                rows.append(DateRow(title.strip()))
        rows.append(_make_observation_row(line, len(folded.get(line.id, ())), is_unfolded=line.id in unfolded))
    return rows


def _get_heading(line: LogLine) -> str:
    """Return the date that a line is listed under, with the kind of a reflection."""
    return to_one_line(line.date or "", 40) + ("  reflection" if line.kind == "reflection" else "")


def _make_observation_row(line: LogLine, nested: int, *, is_unfolded: bool) -> ObservationRow:
    """Return a log line as a row, with its number of folded lines."""
    return ObservationRow(
        line.id,
        line.group_id,
        _parse_priority(line.priority),
        to_one_line(line.time or "", 12),
        sanitize_text(line.text_beside_flags).strip(),
        line.depth,
        tuple(to_one_line(f, 60) for f in line.flags),
        line.pinned,
        line.edited,
        line.kind == "reflection",
        nested,
        is_unfolded,
        sanitize_text(line.content).strip(),
        category=to_one_line(line.category, 30),
        fields=_show_fields(line),
    )


def _show_fields(line: LogLine) -> tuple[str, ...]:
    fields: Json = line.metadata.get("mode_specific") or {}
    return tuple(to_one_line(f"{name}: {join_values(value)}", 300) for name, value in fields.items())


def _fold_groups(lines: Sequence[LogLine], unfolded: Set[str]) -> dict[str, list[str]]:
    """Return the ids of lines whose long lists of nested lines are folded."""
    under: dict[str, list[str]] = {}
    top: LogLine | None = None
    for line in lines:
        if not line.depth or top is None or line.group_id != top.group_id:
            top = line
        else:
            under.setdefault(top.id, []).append(line.id)
    return {i: nested for i, nested in under.items() if len(nested) >= FOLD_COUNT and i not in unfolded}


def _parse_priority(value: str | None) -> str:
    text = (value or "").lower()
    return {"🔴": "high", "🟡": "medium", "🟢": "low", "✅": "done"}.get(text, text if text in SHAPES else "low")


def draw_row(row: Row, width: int, palette: Palette) -> list[Line]:
    """Return one row of the log in the side bar."""
    if isinstance(row, DateRow):
        text = f" {row.text} ".center(width, "┄") if row.divider else row.text
        return [[Segment(text, palette.faint if row.divider else palette.heading)]]
    if isinstance(row, CarriedRow):
        return _draw_carried(row, width, palette)
    lead = "  " * min(row.depth, 4)
    sign, style = _get_sign(row, palette)
    head: Line = [Segment(f"{lead}{sign} ", style)]
    body = _draw_text(row, max(6, width - len(lead) - 2), palette)
    if row.unfolded:
        more = [*((f, palette.muted) for f in row.fields), *((f"? {flag}", palette.warn) for flag in row.flags)]
        body += [line for span in more for line in wrap([span], max(6, width - len(lead) - 4))]
    else:
        body = _cut_lines(body, palette)
    blank = Segment(" " * (len(lead) + 2))
    return [[*head, *body[0]], *indent(body[1:], blank)]


def _get_sign(row: ObservationRow, palette: Palette) -> tuple[str, Style]:
    """Return the symbol of a line: a pin, or else its priority."""
    if row.pinned:
        return "⚑", palette.agent
    shape = "→" if row.depth and row.priority == "low" else SHAPES[row.priority]
    styles = {"high": palette.bad, "medium": palette.warn, "done": palette.ok}
    return shape, palette.faint if row.waiting else styles.get(row.priority, palette.faint)


def _cut_lines(body: list[Line], palette: Palette) -> list[Line]:
    """Return at most `MAX_LINES` of a row's lines."""
    if len(body) <= MAX_LINES:
        return body
    return [*body[: MAX_LINES - 1], [*body[MAX_LINES - 1], Segment("…", palette.faint)]]


def _draw_text(row: ObservationRow, width: int, palette: Palette) -> list[Line]:
    """Return the time and text of a line, with its marks: section, doubts, edited, folded lines below."""
    spans = [(f"{row.time} ", palette.faint)] if row.time and not row.depth else []
    text = palette.muted if row.priority == "low" or row.depth else palette.text
    body = (row.text.replace("\n", " "), palette.faint if row.waiting else text)
    return wrap([*spans, body, *_list_marks(row, palette)], width)


def _list_marks(row: ObservationRow, palette: Palette) -> list[Span]:
    marks = [
        (f" #{row.category}" if row.category else "", palette.faint),
        (f" ?{len(row.flags)}" if row.flags else "", palette.warn),
        (" ✎" if row.edited else "", palette.agent),
        (f" ▸{row.nested}" if row.nested else "", palette.agent),
    ]
    return [mark for mark in marks if mark[0]]


def _draw_carried(row: CarriedRow, width: int, palette: Palette) -> list[Line]:
    gone = row.line.is_removed
    text = palette.faint + Style(strike=True) if gone else palette.text
    spans = [(row.text, text), *([(f" {REMOVAL_NOTES[row.line.is_sent]}", palette.warn)] if gone else [])]
    body = _cut_lines(wrap(spans, max(6, width - 2)), palette)
    head = Segment(f"{'○' if row.line.kind == 'line' else '·'} ", palette.faint)
    return [[head, *body[0]], *indent(body[1:], Segment("  "))]


def _count_lines(rows: Sequence[Row], lines: Sequence[LogLine]) -> str:
    """Return how many lines of the log are shown; "" for an empty log."""
    shown = sum(1 + row.nested for row in rows if isinstance(row, ObservationRow))
    total = sum(not line.forgotten for line in lines)
    if shown != total:
        return f"{shown} of {total}"
    return f"{total}" if total else ""


def _name_days(rows: list[Row], now: int) -> tuple[str, list[Row]]:
    """Label the last two days "today" and "yesterday"; return the log's only day and the rows.

    The day of a single-day log is shown outside of the rows; it is "" if there are several days.
    """
    today = datetime.fromtimestamp(now / 1000)
    names = {f"{day:%b} {day.day}, {day.year}": name for n, name in DAYS for day in (today - timedelta(days=n),)}
    named = [replace(r, text=names.get(r.text, r.text)) if isinstance(r, DateRow) else r for r in rows]
    dates = [r for r in named if isinstance(r, DateRow) and not r.divider]
    if len(dates) == 1 and named[0] is dates[0]:
        return dates[0].text, named[1:]
    return "", named


DAYS = ((0, "today"), (1, "yesterday"))


def _format_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).strftime("%m-%d %H:%M")


def _is_line(row: Row) -> bool:
    return not isinstance(row, DateRow)


class ObservationsPane(Vertical):
    """Title, filter and the list."""

    HELP = (
        "The observation log. At its top: lines of earlier threads of the workspace (x removes one, x again "
        "restores it). Enter opens the messages a line was made from; p pins, e edits, x forgets a line and "
        "u undoes that; / filters (also by #category, and ? for doubtful lines), space unfolds; [ and ] move "
        "through the log's past, Esc goes back."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "correct('pin')", "Pin or unpin the line", show=False, id="observations.pin"),
        Binding("e", "edit", "Edit the line", show=False, id="observations.edit"),
        Binding("x", "correct('forget')", "Forget the line", show=False, id="observations.forget"),
        Binding("u", "undo", "Undo the last correction", show=False, id="observations.undo"),
        Binding("slash", "filter", "Filter", show=False, id="observations.filter"),
        Binding("space", "unfold", "Unfold: nested lines, doubts", show=False, id="observations.unfold"),
        Binding("left_square_bracket", "travel(-1)", "Earlier log", show=False, id="observations.earlier"),
        Binding("right_square_bracket", "travel(1)", "Later log", show=False, id="observations.later"),
        Binding("escape", "leave", "Back", show=False, id="observations.leave"),
    ]

    class SourcesWanted(Message):
        """Requests the sources of a line (Enter)."""

        def __init__(self, row: ObservationRow) -> None:
            super().__init__()
            self.row = row

    class Corrected(Message):
        """Requests a correction: `action` is pin, unpin, edit (to `text`), forget, or undo (of the last one)."""

        def __init__(self, action: str, line_id: str = "", text: str = "") -> None:
            super().__init__()
            self.action, self.line_id, self.text = action, line_id, text

    class OriginWanted(Message):
        """Requests the origin of a line of earlier threads (Enter)."""

        def __init__(self, line: CarriedLine) -> None:
            super().__init__()
            self.line = line

    class CarriedRemoved(Message):
        """Requests to remove a line of earlier threads from the requests, or to restore it."""

        def __init__(self, line: CarriedLine) -> None:
            super().__init__()
            self.line = line

    class PastWanted(Message):
        """Requests the log as of a moment; `show_past` receives its lines."""

        def __init__(self, moment: LogChange) -> None:
            super().__init__()
            self.moment = moment

    title = query_one("#observations-title", PaneTitle)
    edit_box = query_one("#observations-edit", Input)
    filter_box = query_one("#observations-filter", Input)
    log_list = query_one("#observations-list", LineList)
    time_bar = query_one(TimeBar)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: Sequence[LogLine] = ()
        self._waiting: Sequence[LogLine] = ()
        self._carried: Sequence[CarriedLine] = ()
        self._moments: Sequence[LogChange] = ()
        self._past: LogChange | None = None  # the moment that is shown; None: the current log
        self._past_lines: Sequence[LogLine] = ()
        self._unfolded: set[str] = set()
        self._edited = ""  # the line in the edit box

    def compose(self) -> ComposeResult:
        yield PaneTitle("Observations", id="observations-title")
        yield LineList(
            draw_row,
            selectable=_is_line,
            id="observations-list",
            empty="No observations yet. They appear as you chat; /compact writes them now.",
        )

    async def mount_rest(self) -> None:
        """Mount the parts that are hidden until a key is pressed or the log has a past."""
        filter_box = PaneInput(placeholder="/ text, #category, ? doubtful", id="observations-filter", compact=True)
        await self.mount(TimeBar(id="observations-time"), filter_box, before=self.log_list)
        await self.mount(PaneInput(placeholder="new text of the line", id="observations-edit", compact=True))

    def on_mount(self) -> None:
        self.log_list.follow_end = True
        self.log_list.focuses_on_click = False

    def show(
        self, lines: Sequence[LogLine], moments: Sequence[LogChange] = (), waiting: Sequence[LogLine] = ()
    ) -> None:
        """Show the current log and the notes `waiting` for it; keep the end in view if it was.

        A past moment stays on the screen as long as the log contains it.
        """
        self._lines, self._moments, self._waiting = lines, moments, waiting
        if self._past is not None and self._past not in moments:
            self._past = None
        self._refresh(keep_end=self._past is None)

    def show_carried(self, carried: Sequence[CarriedLine]) -> None:
        """Show the lines carried over from earlier threads."""
        if carried != self._carried:
            self._carried = carried
            self._refresh(keep_end=True)

    def _refresh(self, *, keep_end: bool = False) -> None:
        lines = self._lines if self._past is None else self._past_lines
        waiting = self._waiting if self._past is None else ()
        rows, day = make_rows(lines, waiting, self.filter_box.value.strip(), self._unfolded), ""
        if self._past is None:
            day, rows = self._add_headings(rows)
        count = _count_lines(rows, (*lines, *waiting))
        self.set_class(self._past is not None, "-past")
        self.time_bar.show(self._moments, None if self._past is None else self._moments.index(self._past))
        if self._past is None:
            self.title.set_figures("Observations", count, right=day)
        else:
            self.title.set_figures(f"PAST {_format_time(self._past.time)}", "esc: now", count or "empty")
        follow = keep_end and not self.log_list.has_focus  # a focused list keeps its line
        self.log_list.set_rows(rows, cursor=len(rows) - 1 if follow else None, keep_end=follow)

    def _add_headings(self, rows: list[Row]) -> tuple[str, list[Row]]:
        """Return the day of the log if there is only one, and its rows below the lines of earlier threads."""
        day, rows = _name_days(rows, get_host(self).session.workspace.clock.now())
        carried = make_carried_rows(self._carried, self.filter_box.value.strip())
        if carried and rows and isinstance(rows[0], ObservationRow):
            rows = [DateRow("This thread"), *rows]
        return day, [*carried, *rows]

    # --- the past ---------------------------------------------------------------------------------------------

    def action_travel(self, step: int) -> None:
        """Show the previous (-1) or next (1) moment of the log; the current log follows the last."""
        if len(self._moments) < 2:
            return
        # the current log also has corrections made after the newest moment
        at = len(self._moments) if self._past is None else self._moments.index(self._past)
        self.travel_to(max(0, at + step))

    def travel_to(self, index: int | None) -> None:
        """Show the log as of moment `index`; the current log if there is no such moment."""
        if index is None or index >= len(self._moments):
            self._past = None
            self._refresh()
        else:
            self.post_message(self.PastWanted(self._moments[index]))

    def show_past(self, moment: LogChange, lines: Sequence[LogLine]) -> None:
        """Show the log as of `moment`, if that moment still exists."""
        if moment in self._moments:
            self._past, self._past_lines = moment, lines
            self._refresh()

    @on(TimeBar.Picked)
    def _travel_to_pick(self, event: TimeBar.Picked) -> None:
        event.stop()
        self.log_list.focus()
        self.travel_to(event.at)

    def _may_change(self) -> bool:
        """Return whether the log can be changed: not while a past moment is shown."""
        if self._past is not None:
            self.notify("This is an earlier log. Press Esc to return to the current one, then change lines.")
        return self._past is None

    @on(Input.Changed, "#observations-filter")
    def _apply_filter(self) -> None:
        self._refresh()

    @on(Input.Submitted, "#observations-filter")
    def _filter_done(self) -> None:
        self.log_list.focus()

    @on(LineList.Opened, "#observations-list")
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        if isinstance(event.row, ObservationRow):
            self.post_message(self.SourcesWanted(event.row))
        elif isinstance(event.row, CarriedRow):
            self.post_message(self.OriginWanted(event.row.line))

    def _get_current(self) -> ObservationRow | None:
        row = self.log_list.current
        return row if isinstance(row, ObservationRow) else None

    def action_correct(self, action: str) -> None:
        row = self.log_list.current
        if isinstance(row, CarriedRow) and action == "forget":
            self.post_message(self.CarriedRemoved(row.line))
        elif self._may_change() and (row := self._get_current()):
            self.post_message(self.Corrected("unpin" if action == "pin" and row.pinned else action, row.id))

    def action_undo(self) -> None:
        if self._may_change():
            self.post_message(self.Corrected("undo"))

    def action_edit(self) -> None:
        if self._may_change() and (row := self._get_current()):
            self._edited = row.id
            self.edit_box.value = row.content
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

    def action_unfold(self) -> None:
        if row := self._get_current():
            self._unfolded ^= {row.id}
            self._refresh()

    def action_filter(self) -> None:
        self.filter_box.focus()

    def action_leave(self) -> None:
        if self.edit_box.has_class("-open"):
            self._close_edit()
            return
        if self._past is not None:
            self.travel_to(None)
            return
        if self.filter_box.value:
            self.filter_box.value = ""
        self.screen.set_focus(self.screen.query_one("#prompt"))
