"""Approvals in the flow: what will run, where and why, with the keys that answer. Never a modal."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.getters import query_one
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from sakti.core.clock import Clock
from sakti.core.events import ApprovalRequested
from sakti.core.text import one_line, sanitise
from sakti.tui.palette import Palette, make_palette
from sakti.tui.transcript.diff import diff_lines
from sakti.tui.transcript.wrap import Line, indent, plain_lines, shorten, wrap
from sakti.tui.widgets.lines import app_of

TARGET_LINES = 6
DIFF_LINES = 10
GUARD = 0.4  # seconds during which keys meant for the prompt are not taken for an answer


def approval_lines(pending: tuple[ApprovalRequested, ...], width: int, palette: Palette) -> list[Line]:
    """The first of `pending` in full, the others as a list under it."""
    if not pending:
        return []
    first, *others = pending
    bar = Segment("┃ ", palette.warn)
    room = max(4, width - 2)
    many = f"  (1 of {len(pending)})" if others else ""
    out: list[Line] = [[Segment(f"{one_line(first.tool, 40)} asks to run", palette.warn), Segment(many, palette.muted)]]
    if first.diff:
        out.append([Segment(shorten(one_line(first.target, 300), room), palette.bold)])
        out += diff_lines(sanitise(first.diff), room, palette, DIFF_LINES)
    else:
        rows = plain_lines(sanitise(first.target), palette.bold, room, TARGET_LINES + 1)
        out += rows[:TARGET_LINES]
        if len(rows) > TARGET_LINES:
            out.append([Segment("… (e shows all of it)", palette.faint)])
    why, where = one_line(first.reason, 300), one_line(first.cwd, 200)
    out += wrap([(why, palette.muted), (f"  in {where}", palette.faint)], room)
    keys = [("y", "yes, once")]
    if first.rule:
        keys.append(("a", f"always: {one_line(first.rule, 80)}"))
    keys.append(("n", "no, with a note"))
    if not first.diff:
        keys.append(("e", "edit it"))
    spans = [
        (piece, style)
        for key, text in keys
        for piece, style in ((f"{key} ", palette.agent), (f"{text}   ", palette.muted))
    ]
    out += wrap(spans, room)
    for other in others[:4]:
        out.append(
            [
                Segment("· ", palette.warn),
                Segment(shorten(f"{one_line(other.tool, 40)}  {one_line(other.target, 200)}", room - 2), palette.muted),
            ]
        )
    return indent(out, bar)


class ApprovalView(Widget, can_focus=True):
    """Draws the open questions and takes the keys."""

    HELP = "y runs it once, a always allows what the rule says, n refuses with a note, e edits the command."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Yes", show=False, id="approval.yes"),
        Binding("a", "answer('always')", "Always", show=False, id="approval.always"),
        Binding("n", "answer('no')", "No", show=False, id="approval.no"),
        Binding("e", "answer('edit')", "Edit", show=False, id="approval.edit"),
    ]

    class Key(Message):
        def __init__(self, answer: str) -> None:
            super().__init__()
            self.answer = answer

    pending: tuple[ApprovalRequested, ...] = ()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def _lines(self, width: int) -> list[Line]:
        app = app_of(self)
        return approval_lines(self.pending, max(4, width), make_palette(app.theme_variables, app.current_theme.dark))

    def render_line(self, y: int) -> Strip:
        lines = self._lines(self.size.width)
        base = self.rich_style
        line: Line = lines[y] if y < len(lines) else []
        return Strip(Segment.apply_style(line, base)).crop_extend(0, self.size.width, base)

    def action_answer(self, answer: str) -> None:
        self.post_message(self.Key(answer))


class ApprovalBox(Vertical):
    """The view, and a line to write a note or another command in."""

    class Answered(Message):
        """`edited` replaces what was asked about; `note` goes to the agent with a no."""

        def __init__(self, id: str, approved: bool, always: bool, note: str, edited: str | None) -> None:
            super().__init__()
            self.id, self.approved, self.always, self.note, self.edited = id, approved, always, note, edited

    view = query_one("#approval-view", ApprovalView)
    line = query_one("#approval-line", Input)

    def __init__(self, clock: Clock, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._clock = clock
        self._since = 0.0
        self._writing = ""
        self.display = False

    def compose(self) -> ComposeResult:
        yield ApprovalView(id="approval-view")
        line = Input(id="approval-line", compact=True)
        line.display = False
        yield line

    @property
    def pending(self) -> tuple[ApprovalRequested, ...]:
        return self.view.pending

    def show(self, pending: tuple[ApprovalRequested, ...], *, take_focus: bool) -> None:
        """`take_focus`: the user is not in the middle of typing something else."""
        before = self.view.pending[:1]
        self.view.pending = pending
        self.display = bool(pending)
        self.view.refresh(layout=True)
        if pending[:1] != before:
            self._since = self._clock.monotonic()
            self._stop_writing()
        if pending and take_focus and not self._writing:
            self.view.focus()

    @on(ApprovalView.Key)
    def _key(self, event: ApprovalView.Key) -> None:
        event.stop()
        if not self.pending or self._clock.monotonic() - self._since < GUARD:
            return
        first = self.pending[0]
        match event.answer:
            case "yes":
                self.post_message(self.Answered(first.id, True, False, "", None))
            case "always" if first.rule:
                self.post_message(self.Answered(first.id, True, True, "", None))
            case "no":
                self._write("no", "", "why not (Enter sends, empty is fine)")
            case "edit" if not first.diff:
                self._write("edit", sanitise(first.target), "what to run instead")
            case _:
                pass

    def _write(self, what: str, value: str, placeholder: str) -> None:
        self._writing = what
        self.line.display = True
        self.line.placeholder = placeholder
        self.line.value = value
        self.line.focus()

    def _stop_writing(self) -> None:
        self._writing = ""
        self.line.display = False

    @on(Input.Submitted, "#approval-line")
    def _written(self, event: Input.Submitted) -> None:
        event.stop()
        if not self.pending:
            return
        what, text, first = self._writing, event.value.strip(), self.pending[0]
        self._stop_writing()
        self.view.focus()
        if what == "no":
            self.post_message(self.Answered(first.id, False, False, text, None))
        elif what == "edit" and text:
            self.post_message(self.Answered(first.id, True, False, "", text))

    def leave_line(self) -> bool:
        """Esc in the line: back to the keys. False when the line was not open."""
        if not self._writing:
            return False
        self._stop_writing()
        self.view.focus()
        return True
