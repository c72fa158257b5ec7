"""Approvals above the prompt (what will run, where and why, the keys) and side questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeAlias

from rich.segment import Segment
from rich.style import Style
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.getters import query_one
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from sakti.agent.judge.policy import describe_rule
from sakti.core.clock import Clock
from sakti.core.events import ApprovalRequested, Grant, SideQuestion
from sakti.core.text import find_lookalikes, sanitize_text, show_hidden, to_one_line
from sakti.core.types import display_name
from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.transcript.code import draw_diff
from sakti.tui.transcript.wrap import Line, Span, draw_plain, indent, shorten, wrap
from sakti.tui.widgets.safe_input import SafeInput

TARGET_LINES = 6
DIFF_LINES = 10
MAX_LISTED = 4  # maximum number of listed questions
NARROW = 50  # columns below which each key has a one-word label
MAX_SHARE = 0.7  # maximum share of the chat's height, as in main.tcss
SEPARATOR, NO_BREAK = " · ", "\ue000"  # between two keys; placeholder for a non-breaking space
GUARD_S = 0.4  # seconds during which keys meant for the prompt are not taken for an answer
Keyboard: TypeAlias = Literal["question", "line", "prompt"]  # the focus: the question, its input line, or the prompt
LINE_KEYS = (("enter", "Send"), ("esc", "Back"))
PROMPT_KEYS = (("tab", "Answer (typing goes to the prompt)"),)


def name_keys(keys: Sequence[tuple[str, str]], palette: Palette) -> list[Span]:
    """Return keys with their labels in one line."""
    spans: list[Span] = []
    for number, (key, text) in enumerate(keys):
        spans += [(SEPARATOR if number else "", palette.muted), (f"{key} ", palette.agent), (text, palette.muted)]
    return spans


def is_command(asked: ApprovalRequested) -> bool:
    """Return whether a question is about a command."""
    return asked.tool == "bash"


def make_question(tool: str) -> str:
    """Return the question about a call of `tool`."""
    return "Run this command?" if tool == "bash" else f"Allow {to_one_line(display_name(tool), 60)}?"


def summarize_question(asked: ApprovalRequested) -> str:
    """Return one line about a question for a notification."""
    if asked.is_card:
        return f"Plan: {asked.target.partition(chr(10))[0].removeprefix('# ')}" if asked.is_plan else asked.target
    return f"{make_question(asked.tool)} {asked.target}"


def list_later(pending: Sequence[ApprovalRequested]) -> list[str]:
    """Return the later calls of the same answers that will also ask."""
    agents = dict.fromkeys(p.agent for p in pending)
    return [call for each in agents for call in max((p.later for p in pending if p.agent == each), key=len)]


def name_call(asked: ApprovalRequested) -> str:
    """Name the call of a question, as in the `later` calls of earlier questions."""
    return f"{display_name(asked.tool)}  {asked.target}"


def count_pending(pending: Sequence[ApprovalRequested]) -> int:
    """Count the open questions and those that later calls will ask."""
    return len(pending) + len(list_later(pending))


def lay_out_approval(
    pending: tuple[ApprovalRequested, ...],
    at: int,
    width: int,
    palette: Palette,
    height: int = 1_000,
    *,
    answered: int = 0,
    keyboard: Keyboard = "question",
) -> tuple[list[Line], bool]:
    """Lay out question `at` in full, then a list if there are several; the count includes `answered` ones.

    Returns at most `height` lines, and whether the body was cut. The keys are always shown; if space is short, the body
    is cut first.
    """
    if not pending:
        return [], False
    now = pending[at]
    room = max(4, width - 2)
    total = answered + count_pending(pending)
    many = f"  ({answered + at + 1} of {total})" if total > 1 else ""
    is_change = bool(now.diff) and not is_command(now)
    head: list[Line] = [_draw_title(now, many, room, palette)]
    if is_change:
        head.append([Segment(shorten(to_one_line(now.target, 300), room), palette.bold)])
    reason = _draw_reason(now, room, palette)
    list_ = _draw_list(pending, at, room, palette)
    keys = _wrap_keys(_make_keys(now, cut=True, many=len(pending) > 1, palette=palette, room=room), room)
    if keyboard != "question":
        keys = wrap(name_keys(PROMPT_KEYS if keyboard == "prompt" else LINE_KEYS, palette), room)
    free = height - len(head) - len(keys)
    body_height = max(1, free - len(reason) - len(list_))
    body, cut = _draw_body(now, room, palette, max(0 if is_change else 1, min(free, body_height)))
    if not cut and keyboard == "question":
        keys = _wrap_keys(_make_keys(now, cut=False, many=len(pending) > 1, palette=palette, room=room), room)
        free = height - len(head) - len(keys)
    reason = reason[: max(0, free - len(body))]
    list_ = list_[: max(0, free - len(body) - len(reason))]
    return indent([*head, *body, *reason, *keys, *list_], Segment("┃ ", palette.warn)), cut


def _draw_title(now: ApprovalRequested, many: str, room: int, palette: Palette) -> Line:
    title = make_question(now.tool)
    line: Line = [Segment(title, palette.warn + Style(bold=True)), Segment(many, palette.muted)]
    if now.asker:
        line.insert(1, Segment(shorten(f"  {now.asker}", max(0, room - len(title) - len(many))), palette.text))
    return line


def _draw_reason(now: ApprovalRequested, room: int, palette: Palette) -> list[Line]:
    """Lay out the reason of a question, a lookalike warning, and the rule that a lasting answer creates."""
    why, where = to_one_line(now.reason, 300), to_one_line(now.cwd, 200)
    like = "".join(f"{to_one_line(word, 30)} contains lookalike letters. " for word in find_lookalikes(now.target)[:2])
    spans = [(like, palette.bad), (why, palette.muted), ("" if where == "." else f"  in {where}", palette.faint)]
    if not now.rule:
        return wrap(spans, room)
    rule = to_one_line(describe_rule(now.rule), 200)
    return wrap(spans, room) + wrap([("Rule for t and a: ", palette.faint), (rule, palette.muted)], room)


def _wrap_keys(keys: list[Span], room: int) -> list[Line]:
    """Wrap between keys, never within a description."""
    held = [(f"{NO_BREAK}· " if text == SEPARATOR else text.replace(" ", NO_BREAK), style) for text, style in keys]
    lines = [[Segment(s.text.replace(NO_BREAK, " "), s.style) for s in line] for line in wrap(held, room)]
    return [line[:-1] if line and line[-1].text.strip() == SEPARATOR.strip() else line for line in lines]


def _draw_body(now: ApprovalRequested, room: int, palette: Palette, limit: int) -> tuple[list[Line], bool]:
    """Return the command or change in at most `limit` lines, and whether part of it is missing."""
    if now.diff and not is_command(now):
        diff = draw_diff(sanitize_text(now.diff), room, palette)
        most = min(limit, DIFF_LINES + 1)
        if len(diff) <= most:
            return diff, False
        return draw_diff(sanitize_text(now.diff), room, palette, most - 1) if most else [], True
    rows = draw_plain(sanitize_text(show_hidden(now.target)), palette.bold, room, TARGET_LINES + 1)
    most = min(limit, TARGET_LINES)
    if len(rows) > most:
        return rows[:most], True
    changed = draw_diff(sanitize_text(now.diff), room, palette) if now.diff else []
    shown = min(DIFF_LINES, max(0, limit - len(rows)))
    return [*rows, *changed[:shown]], len(changed) > shown


def _make_keys(now: ApprovalRequested, *, cut: bool, many: bool, palette: Palette, room: int) -> list[Span]:
    """Return the keys with their labels, shortened if room is scarce; a click acts like the key."""
    short = room < NARROW
    keys = [("v", "View all", "view")] if cut else []
    keys.append(("y", "Allow" if short else "Allow once", "yes"))
    more = _list_lasting_keys(now, short=short)
    deny = [("n", "Deny" if short else "Deny, with a reason", "no")]
    keys += [*deny, *more] if short else [*more, *deny]
    if now.tool == "bash":
        keys.append(("e", "Edit", "edit"))
    if many:
        keys.append(("↑↓", "Next" if short else "Next question", ""))
    return _make_key_spans(keys, palette)


def _make_key_spans(keys: Sequence[tuple[str, str, str]], palette: Palette) -> list[Span]:
    """Return clickable keys with their labels."""
    return [
        (piece, style + Style(meta={"answer": answer}) if answer else style)
        for number, (key, text, answer) in enumerate(keys)
        for piece, style in (
            (SEPARATOR if number else "", palette.muted),
            (f"{key} ", palette.agent),
            (text, palette.muted),
        )
    ]


def _list_lasting_keys(now: ApprovalRequested, *, short: bool) -> list[tuple[str, str, str]]:
    """Return the keys that allow more than the call in question, each with its name and answer."""
    keys = [("s", "All edits" if short else "All edits in this thread", "edits")] if now.is_edit else []
    if now.rule:
        keys += [("t", "Thread" if short else "In this thread", "thread"), ("a", "Always", "workspace")]
    return keys


def _draw_list(pending: tuple[ApprovalRequested, ...], at: int, room: int, palette: Palette) -> list[Line]:
    """Return one line for each question, which a click opens, and for each call that will ask next."""
    lines = _draw_questions(pending, at, room, palette) if len(pending) > 1 else []
    later = list_later(pending)
    for call in later[:MAX_LISTED]:
        lines.append(
            [Segment("then  ", palette.faint), Segment(shorten(to_one_line(call, 300), room - 6), palette.muted)]
        )
    if len(later) > MAX_LISTED:
        lines.append([Segment(f"      and {len(later) - MAX_LISTED} more", palette.faint)])
    return lines


def _draw_questions(pending: tuple[ApprovalRequested, ...], at: int, room: int, palette: Palette) -> list[Line]:
    first = max(0, min(at - 1, len(pending) - MAX_LISTED))
    lines: list[Line] = []
    for index in range(first, min(len(pending), first + MAX_LISTED)):
        one, chosen = pending[index], index == at
        text = shorten(f"{to_one_line(display_name(one.tool), 60)}  {to_one_line(one.target, 200)}", room - 2)
        meta = Style(meta={"question": index})
        style = palette.text if chosen else palette.muted
        lines.append([Segment("▶ " if chosen else "· ", palette.warn + meta), Segment(text, style + meta)])
    if len(pending) > MAX_LISTED:
        lines.append([Segment(f"  {len(pending)} questions in all", palette.faint)])
    return lines


class ApprovalView(Widget, can_focus=True):
    """Draws the open questions and takes the keys."""

    HELP = (
        "y allows it once, s allows all edits in this thread, t in this thread by the rule, a always in this "
        "workspace, n denies it with a reason, e edits a command, v shows the rest of a long question: a "
        "command can be allowed once its end was on the screen. If several wait, up and down choose which is answered."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", "Allow once", show=False, id="approval.yes"),
        Binding("s", "answer('edits')", "Allow all edits in this thread", show=False, id="approval.edits"),
        Binding("t", "answer('thread')", "Allow in this thread", show=False, id="approval.thread"),
        Binding("a", "answer('workspace')", "Always allow", show=False, id="approval.always"),
        Binding("n", "answer('no')", "Deny, with a reason", show=False, id="approval.no"),
        Binding("e", "answer('edit')", "Edit", show=False, id="approval.edit"),
        Binding("v", "answer('view')", "View all", show=False, id="approval.view"),
        Binding("up", "choose(-1)", "Previous question", show=False, id="approval.before"),
        Binding("down", "choose(1)", "Next question", show=False, id="approval.next"),
    ]

    class Key(Message):
        def __init__(self, answer: str) -> None:
            super().__init__()
            self.answer = answer

    pending: tuple[ApprovalRequested, ...] = ()
    at = 0  # index of the question being answered
    answered = 0  # questions of the same calls that are answered
    expected: Sequence[str] = ()  # later calls that will ask
    writing = False  # whether the input line is open
    active = False  # whether it or its input line has the focus

    def mark_keyboard(self, *, has_it: bool) -> None:
        """Show the keys of the question, or the key that focuses it."""
        if has_it != self.active:
            self.active = has_it
            self.refresh(layout=True)

    def show(self, pending: tuple[ApprovalRequested, ...]) -> None:
        """Show the open questions; the selected one stays selected while it is open."""
        looked_at = self.current
        self._count_answered(pending)
        self.pending = pending
        self.at = pending.index(looked_at) if looked_at in pending else 0
        self.refresh(layout=True)

    def _count_answered(self, pending: tuple[ApprovalRequested, ...]) -> None:
        """Count the questions no longer in `pending`; unexpected questions reset the count."""
        if self.pending:
            self.answered += len({p.id for p in self.pending} - {p.id for p in pending})
            self.expected = list_later(self.pending)
        elif pending and name_call(pending[0]) not in self.expected:
            self.answered = 0
        if not pending and not self.expected:
            self.answered = 0

    @property
    def current(self) -> ApprovalRequested | None:
        return self.pending[self.at] if self.at < len(self.pending) else None

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._build_lines(width))

    @property
    def is_cut(self) -> bool:
        """Return whether part of the command in question is off the screen."""
        return self.current is not None and is_command(self.current) and self._layout(self.size.width)[1]

    def _layout(self, width: int) -> tuple[list[Line], bool]:
        host = get_host(self)
        height = max(2, int((host.size.height - 4) * MAX_SHARE) - self.writing)  # minus a row for the input line
        keyboard: Keyboard = "line" if self.writing else "question" if self.active else "prompt"
        return lay_out_approval(
            self.pending, self.at, max(4, width), host.palette, height, answered=self.answered, keyboard=keyboard
        )

    def _build_lines(self, width: int) -> list[Line]:
        return self._layout(width)[0]

    def render_line(self, y: int) -> Strip:
        lines = self._build_lines(self.size.width)
        base = self.rich_style
        line: Line = lines[y] if y < len(lines) else []
        return Strip(Segment.apply_style(line, base)).crop_extend(0, self.size.width, base)

    def action_answer(self, answer: str) -> None:
        self.post_message(self.Key(answer))

    def action_choose(self, step: int) -> None:
        self.choose(self.at + step)

    def choose(self, at: int) -> None:
        if 0 <= at < len(self.pending):
            self.at = at
            self.refresh(layout=True)

    def on_click(self, event: events.Click) -> None:
        if answer := event.style.meta.get("answer"):
            self.action_answer(answer)
        elif (at := event.style.meta.get("question")) is not None:
            self.choose(at)


class ApprovalBox(Vertical):
    """The questions, with an input line for a note or an edited command."""

    class Answered(Message):
        """`edited` replaces the command; `note` goes to the agent with a denial."""

        def __init__(self, id: str, approved: bool, grant: Grant, note: str, edited: str | None) -> None:
            super().__init__()
            self.id, self.approved, self.note, self.edited = id, approved, note, edited
            self.grant: Grant = grant

    class EditWanted(Message):
        """Requests the user's editor for a multi-line command."""

        def __init__(self, asked: ApprovalRequested) -> None:
            super().__init__()
            self.asked = asked

    class ViewWanted(Message):
        """Requests the full text of the question."""

        def __init__(self, asked: ApprovalRequested) -> None:
            super().__init__()
            self.asked = asked

    line = query_one("#approval-line", Input)

    def __init__(self, clock: Clock, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = ApprovalView(id="approval-view")
        self._clock = clock
        self._since = 0.0
        self._read_id = ""  # question whose end has been on the screen
        self._writing = ""
        self._place = ("", "")  # question that the input line is for, and the kind of input
        self._unsent: dict[tuple[str, str], str] = {}  # unsent text of the input line
        self.display = False

    def compose(self) -> ComposeResult:
        yield self.view
        line = SafeInput(id="approval-line", compact=True, select_on_focus=False)
        line.display = False
        yield line

    @property
    def pending(self) -> tuple[ApprovalRequested, ...]:
        return self.view.pending

    def show(self, pending: tuple[ApprovalRequested, ...], *, take_focus: bool) -> None:
        """Show the question; `take_focus`: focus it, since the user is not typing."""
        before = self.view.current
        self.view.show(pending)
        self.display = bool(pending)
        if self.view.current != before:
            self._since = self._clock.monotonic()
            self._stop_writing()
        if pending and take_focus and not self._writing:
            self.screen.set_focus(self.view)

    @on(ApprovalView.Key)
    def _answer(self, event: ApprovalView.Key) -> None:
        event.stop()
        now = self.view.current
        if now is None or self._clock.monotonic() - self._since < GUARD_S:
            return
        match event.answer:
            case "yes" | "edits" | "thread" | "workspace" if self.view.is_cut and now.id != self._read_id:
                self.post_message(self.ViewWanted(now))  # a command can be allowed only after its end was on the screen
            case "yes":
                self.post_message(self.Answered(now.id, True, "once", "", None))
            case "thread" | "workspace" as grant if now.rule:
                self.post_message(self.Answered(now.id, True, grant, "", None))
            case "edits" if now.is_edit:
                self.post_message(self.Answered(now.id, True, "edits", "", None))
            case "no":
                self._write("no", "", "reason for the agent (optional)")
            case "edit" if now.tool == "bash" and "\n" in now.target:
                self.post_message(self.EditWanted(now))
            case "edit" if now.tool == "bash":
                self._write("edit", sanitize_text(now.target), "command to run instead")
            case "view":
                self.post_message(self.ViewWanted(now))
            case _:
                pass

    def mark_read(self, asked: ApprovalRequested) -> None:
        """Note that the end of a question was on the screen, so that it can be allowed."""
        self._read_id = asked.id

    def _write(self, what: str, value: str, placeholder: str) -> None:
        self._writing = what
        self._place = (self.view.current.id if self.view.current else "", what)
        self.line.display = self.view.writing = True
        self.view.refresh(layout=True)
        self.line.placeholder = placeholder
        self.line.value = self._unsent.pop(self._place, value)
        self.line.cursor_position = len(self.line.value)
        self.screen.set_focus(self.line)

    def _stop_writing(self) -> None:
        if self._writing:
            self._unsent[self._place] = self.line.value
        self._writing = ""
        self.line.display = self.view.writing = False
        self.view.refresh(layout=True)

    @on(Input.Submitted, "#approval-line")
    def _submit_line(self, event: Input.Submitted) -> None:
        event.stop()
        now = self.view.current
        if now is None:
            return
        what, text = self._writing, event.value.strip()
        self._stop_writing()
        self._unsent.pop(self._place, None)
        self.screen.set_focus(self.view)
        if what == "no":
            self.post_message(self.Answered(now.id, False, "once", text, None))
        elif what == "edit" and text:
            self.post_message(self.Answered(now.id, True, "once", "", text))

    @property
    def escape_label(self) -> str:
        """Return what Esc does while a question has the focus; else ""."""
        return "back" if self._writing else "prompt" if self.view.active else ""

    def leave_line(self) -> bool:
        """Close the input line on Esc; False if it is not open."""
        if not self._writing:
            return False
        self._stop_writing()
        self.screen.set_focus(self.view)
        return True


_STATES = {"answering": "answering …", "stopped": "stopped", "failed": "no answer", "answered": ""}


def lay_out_aside(
    question: str, text: str, state: str, width: int, palette: Palette, height: int, start: int
) -> tuple[list[Line], int]:
    """Lay out a side question in at most `height` lines, its answer from line `start` on.

    Returns the lines, and the largest start.
    """
    room = max(4, width - 2)
    head: list[Line] = [
        [Segment("btw ", palette.heading), Segment(shorten(to_one_line(question, 300), max(1, room - 4)), palette.bold)]
    ]
    keys = wrap(_make_answer_keys(state, palette), room)
    style = palette.bad if state == "failed" else palette.text
    rows = draw_plain(sanitize_text(text).strip(), style, room) if text.strip() else []
    free = max(1, height - len(head) - len(keys))
    last = max(0, len(rows) - free)
    at = min(start, last)
    return indent([*head, *rows[at : at + free], *keys], Segment("┃ ", palette.agent)), last


def _make_answer_keys(state: str, palette: Palette) -> list[Span]:
    spans: list[Span] = [(f"{_STATES[state]}  ", palette.muted)] if _STATES[state] else []
    named = (("esc", "Close"), ("y", "Copy"), ("^O", "Into the prompt"), ("↑↓", "Scroll"))
    for number, (key, what) in enumerate(named):
        spans += [(" · " if number else "", palette.muted), (f"{key} ", palette.agent), (what, palette.muted)]
    return spans


class AsideView(Widget, can_focus=True):
    """Draws one side question and takes the keys while it has the focus."""

    HELP = "The answer to /btw. Esc closes it, y copies it, ctrl+o puts it into the prompt, up and down scroll."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "use('copy')", "Copy the answer", show=False, id="aside.copy"),
        Binding("ctrl+o", "use('prompt')", "Put the answer into the prompt", show=False, id="aside.prompt"),
        Binding("up", "scroll_by(-1)", "Scroll up", show=False, id="aside.up"),
        Binding("down", "scroll_by(1)", "Scroll down", show=False, id="aside.down"),
        Binding("pageup", "scroll_by(-10)", "Scroll a page up", show=False, id="aside.page-up"),
        Binding("pagedown", "scroll_by(10)", "Scroll a page down", show=False, id="aside.page-down"),
    ]

    class AnswerUsed(Message):
        """Copy the answer, or put it into the prompt."""

        def __init__(self, text: str, how: Literal["copy", "prompt"]) -> None:
            super().__init__()
            self.text, self.how = text, how

    question = ""
    text = ""
    state = "answered"
    start: int | None = None  # first visible line of the answer; None: follow its end

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.display = False

    def handle_event(self, event: SideQuestion) -> None:
        """Show a question, the next piece of its answer, or its end."""
        if not self.display or event.question != self.question or (event.state == "answering" and not event.text):
            self.question, self.text, self.start = event.question, "", None
            self.display = True
        self.state = event.state
        if event.state == "answering":
            self.text += event.text
        elif event.text:
            self.text = event.text
        self.refresh(layout=True)

    def close(self) -> bool:
        """Close the card; False if it is not open."""
        was_open, self.display = bool(self.display), False
        return was_open

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._layout(width)[0])

    def _layout(self, width: int) -> tuple[list[Line], int]:
        host = get_host(self)
        height = max(3, int((host.size.height - 4) * MAX_SHARE))
        start = 1 << 30 if self.start is None else self.start
        return lay_out_aside(self.question, self.text, self.state, max(4, width), host.palette, height, start)

    def render_line(self, y: int) -> Strip:
        lines = self._layout(self.size.width)[0]
        base = self.rich_style
        line: Line = lines[y] if y < len(lines) else []
        return Strip(Segment.apply_style(line, base)).crop_extend(0, self.size.width, base)

    def action_use(self, how: Literal["copy", "prompt"]) -> None:
        if self.text.strip():
            self.post_message(self.AnswerUsed(self.text.strip(), how))

    def action_scroll_by(self, lines: int) -> None:
        last = self._layout(self.size.width)[1]
        at = (last if self.start is None else self.start) + lines
        self.start = None if at >= last else max(0, at)
        self.refresh()
