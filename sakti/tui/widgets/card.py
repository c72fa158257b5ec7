"""Cards above the prompt that the user answers: questions with choices, and plans."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct
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

from sakti.core.clock import Clock
from sakti.core.config import SessionMode
from sakti.core.events import ApprovalAnswer, ApprovalRequested, CardAnswer, CardQuestion, FreeQuestion
from sakti.core.text import format_count, sanitize_text, to_one_line
from sakti.tui.host import get_host
from sakti.tui.palette import Palette
from sakti.tui.transcript.wrap import Line, Span, draw_plain, indent, shorten, wrap
from sakti.tui.widgets.approval import GUARD_S, LINE_KEYS, MAX_SHARE, PROMPT_KEYS, Keyboard, name_keys
from sakti.tui.widgets.safe_input import SafeInput

QUESTION_LINES, MOST_LINES = 4, 10  # minimum and maximum lines of a question


class QuestionForm(Struct):
    """Answers so far: the chosen options and the text of each question."""

    questions: tuple[CardQuestion, ...]
    chosen: list[set[int]]
    texts: list[str]
    at: int = 0  # index of the current question
    cursor: int = 0  # index of the option under the cursor
    hint: str = ""  # hint after Enter without an answer

    @property
    def question(self) -> CardQuestion:
        return self.questions[self.at]

    def toggle(self, option: int) -> None:
        """Choose an option of the current question, or clear the choice."""
        if option >= len(self.question.options):
            return
        self.cursor = option
        chosen = self.chosen[self.at]
        if self.question.multiple:
            chosen ^= {option}
        else:
            self.chosen[self.at] = set() if chosen == {option} else {option}
            self.texts[self.at] = ""

    def write(self, text: str) -> None:
        """Answer the current question with a text."""
        self.texts[self.at] = text
        if not text and isinstance(self.question, FreeQuestion) and self.question.options:
            self.chosen[self.at] = {0}
        elif text and not self.question.multiple:
            self.chosen[self.at] = set()

    def turn_to(self, at: int) -> None:
        if 0 <= at < len(self.questions) and at != self.at:
            self.at, self.cursor, self.hint = at, 0, ""

    def is_answered(self, at: int) -> bool:
        return bool(self.chosen[at] or self.texts[at])

    @property
    def is_written(self) -> bool:
        """Return whether the current question takes a text instead of a choice."""
        return isinstance(self.question, FreeQuestion)

    @property
    def is_last(self) -> bool:
        """Return whether all other questions are answered."""
        return all(self.is_answered(i) for i in range(len(self.questions)) if i != self.at)

    def find_open_question(self) -> int | None:
        """Return the first unanswered question from the current one on, else the first earlier one."""
        order = [*range(self.at, len(self.questions)), *range(self.at)]
        return next((i for i in order if not self.is_answered(i)), None)

    def answers(self) -> tuple[CardAnswer, ...]:
        return tuple(
            CardAnswer(q.header, tuple(q.options[i].label for i in sorted(chosen)), text)
            for q, chosen, text in zip(self.questions, self.chosen, self.texts, strict=True)
        )


def make_form(questions: tuple[CardQuestion, ...]) -> QuestionForm:
    """Return a form without answers."""
    return QuestionForm(questions, [set() for _ in questions], ["" for _ in questions])


def lay_out_form(
    form: QuestionForm, width: int, palette: Palette, height: int, *, keyboard: Keyboard = "question"
) -> list[Line]:
    """Lay out the current question in at most `height` lines, always including the keys."""
    room = max(4, width - 2)
    tabs = _draw_tabs(form, room, palette)
    hint = wrap([(form.hint, palette.warn)], room) if form.hint else []
    keys = [*hint, *wrap(_make_keys(form, palette, keyboard), room)]
    options = [line for lines in _draw_options(form, room, palette, described=True) for line in lines]
    free = height - len(tabs) - len(options) - len(keys)
    most = max(QUESTION_LINES, min(MOST_LINES, free))
    head = [*tabs, *draw_plain(sanitize_text(form.question.question), palette.bold, room, most)]
    if len(head) + len(options) + len(keys) > height:
        head = head[: max(1, height - len(keys) - 1)]
        options = _draw_options_at_cursor(form, room, palette, height - len(head) - len(keys))
    body = [*head, *options][: max(1, height - len(keys))]
    return indent([*body, *keys], Segment("┃ ", palette.agent))


def _draw_options_at_cursor(form: QuestionForm, room: int, palette: Palette, height: int) -> list[Line]:
    """Return one line per option, with the one under the cursor in full and in view."""
    options = _draw_options(form, room, palette, described=False)
    first = 0
    while first < form.cursor and sum(map(len, options[first : form.cursor + 1])) > height:
        first += 1
    return [line for lines in options[first:] for line in lines]


def _draw_tabs(form: QuestionForm, room: int, palette: Palette) -> list[Line]:
    """Return the headers of the questions, the current one highlighted and answered ones marked."""
    spans: list[Span] = []
    for index, question in enumerate(form.questions):
        sign = "✓ " if form.is_answered(index) else ""
        style = palette.heading if index == form.at else palette.muted
        spans += [(" · " if index else "", palette.faint)]
        spans += [(f"{sign}{to_one_line(question.header, 20)}", style + Style(meta={"question": index}))]
    return wrap(spans, room)


def _draw_options(form: QuestionForm, room: int, palette: Palette, *, described: bool) -> list[list[Line]]:
    """Return the lines of each option and of the written answer."""
    out = [_draw_option(form, index, room, palette, described=described) for index in range(len(form.question.options))]
    if text := form.texts[form.at]:
        words = Segment(shorten(to_one_line(text, 500), room - 4), palette.text)
        out.append([[Segment("o ● ", palette.agent), words]])
    return out


def _draw_option(form: QuestionForm, index: int, room: int, palette: Palette, *, described: bool) -> list[Line]:
    """Return an option: its number, its mark, its label and, if `described`, its description."""
    option, meta = form.question.options[index], Style(meta={"option": index})
    chosen, at_cursor = index in form.chosen[form.at], index == form.cursor
    sign = ("■" if chosen else "□") if form.question.multiple else ("●" if chosen else "○")
    label = to_one_line(option.label, 200)
    label = label if described or at_cursor else shorten(label, max(1, room - 4))
    first, *rest = wrap([(label, (palette.bold if at_cursor else palette.text) + meta)], max(4, room - 4))
    if option.description and described:
        lines = wrap([(to_one_line(option.description, 1_000), palette.muted + meta)], max(4, room - 4))
        rest += lines if at_cursor else lines[:2]
    return [[Segment(f"{index + 1} {sign} ", palette.agent + meta), *first], *indent(rest, Segment("    "))]


def _ask_to_choose(form: QuestionForm) -> str:
    return f"Choose an option first: 1 to {len(form.question.options)}, or o to write another answer."


def _make_keys(form: QuestionForm, palette: Palette, keyboard: Keyboard) -> list[Span]:
    go_on = "Send" if form.is_last else "Next"
    if keyboard == "line":
        return name_keys((("enter", go_on if form.is_written else "Keep the answer"), ("esc", "Back")), palette)
    if keyboard == "prompt":
        return name_keys((*PROMPT_KEYS, ("esc", "Decline")), palette)
    keys = [("1-6", "Choose"), ("space", "Toggle")] if form.question.options else []
    keys.append(("o", "Write the answer" if form.is_written else "Another answer"))
    keys.append(("enter", go_on))
    keys += [("←→", "Question")] if len(form.questions) > 1 else []
    return name_keys((*keys, ("esc", "Decline")), palette)


class PlanForm(Struct):
    """A plan as Markdown with the user's changes; `way` is "", "approve" or "fresh".

    `draft`: the user's last text if it is not a valid plan.
    """

    text: str
    edited: bool = False
    draft: str = ""
    may_auto: bool = False
    way: str = ""

    @property
    def modes(self) -> tuple[SessionMode, ...]:
        """Return the approval modes in which the plan may be carried out."""
        return ("ask", "edits", "auto") if self.may_auto else ("ask", "edits")

    def answer(self, mode: SessionMode) -> ApprovalAnswer:
        return ApprovalAnswer(True, edited=self.changes, mode=mode, fresh=self.way == "fresh")

    @property
    def changes(self) -> str | None:
        """Return the plan if the user changed it."""
        return self.text if self.edited else None


def lay_out_plan(
    form: PlanForm, width: int, palette: Palette, height: int, *, keyboard: Keyboard = "question"
) -> list[Line]:
    """Lay out a plan in at most `height` lines, always including the keys."""
    room = max(4, width - 2)
    head: list[Line] = [[Segment("Approve this plan?", palette.heading)]]
    keys = wrap(_make_plan_keys(form, palette, keyboard), room)
    rows = [line for text in sanitize_text(form.text).split("\n") for line in _draw_plan_line(text, room, palette)]
    free = max(1, height - len(head) - len(keys))
    if len(rows) > free:
        rows = [
            *rows[: free - 1],
            [Segment(f"… {format_count(len(rows) - free + 1, 'more line')}, v shows all", palette.muted)],
        ]
    return indent([*head, *rows, *keys], Segment("┃ ", palette.agent))


def _draw_plan_line(text: str, room: int, palette: Palette) -> list[Line]:
    if not text.strip():
        return []
    if text.startswith("# "):
        return wrap([(text[2:], palette.bold)], room)
    lead = len(text) - len(text.lstrip())
    style = palette.muted if lead else palette.text
    return indent(wrap([(text.strip(), style)], max(4, room - lead)), Segment(" " * lead))


def _make_plan_keys(form: PlanForm, palette: Palette, keyboard: Keyboard) -> list[Span]:
    if keyboard != "question":
        return name_keys(LINE_KEYS if keyboard == "line" else (*PROMPT_KEYS, ("esc", "Decline")), palette)
    if form.way:
        modes = [(f"{n}", f"Approval {mode}") for n, mode in enumerate(form.modes, start=1)]
        return name_keys((*modes, ("esc", "Back")), palette)
    keys = (("a", "Approve"), ("f", "Approve, fresh thread"), ("e", "Edit"), ("v", "View"), ("n", "Keep planning"))
    return name_keys(keys, palette)


class CardView(Widget, can_focus=True):
    """Draws the card and takes its keys."""

    HELP = (
        "Digits choose an option, up and down move between options and space toggles one; o writes another answer, "
        "left and right change the question, enter sends the answers, esc declines to answer. A plan: a approves it, f "
        "in a fresh thread, e edits it, v shows all of it, n keeps planning, with a note."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(f"{n}", f"press('{n}')", f"Option {n}", show=False, id=f"card.{n}") for n in range(1, 7)),
        Binding("space", "press('space')", "Toggle the option", show=False, id="card.toggle"),
        Binding("o", "press('o')", "Write another answer", show=False, id="card.other"),
        Binding("enter", "press('enter')", "Send the answers", show=False, id="card.send"),
        Binding("up", "press('up')", "Previous option", show=False, id="card.up"),
        Binding("down", "press('down')", "Next option", show=False, id="card.down"),
        Binding("left", "press('left')", "Previous question", show=False, id="card.left"),
        Binding("right", "press('right')", "Next question", show=False, id="card.right"),
        Binding("a", "press('a')", "Approve the plan", show=False, id="card.approve"),
        Binding("f", "press('f')", "Approve the plan in a fresh thread", show=False, id="card.fresh"),
        Binding("e", "press('e')", "Edit the plan", show=False, id="card.edit"),
        Binding("v", "press('v')", "View the plan", show=False, id="card.view"),
        Binding("n", "press('n')", "Keep planning, with a note", show=False, id="card.keep-planning"),
    ]

    class CardKey(Message):
        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    form: QuestionForm | PlanForm | None = None
    writing = False  # whether the input line is open
    active = False  # whether it or its input line has the focus

    def mark_keyboard(self, *, has_it: bool) -> None:
        """Show the keys of the card, or the key that focuses it."""
        if has_it != self.active:
            self.active = has_it
            self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._build_lines(width))

    def _build_lines(self, width: int) -> list[Line]:
        host = get_host(self)
        if self.form is None:
            return []
        height = max(2, int((host.size.height - 4) * MAX_SHARE) - self.writing)
        lay_out = lay_out_plan if isinstance(self.form, PlanForm) else lay_out_form
        keyboard: Keyboard = "line" if self.writing else "question" if self.active else "prompt"
        return lay_out(self.form, max(4, width), host.palette, height, keyboard=keyboard)  # pyright: ignore[reportArgumentType]

    def render_line(self, y: int) -> Strip:
        lines = self._build_lines(self.size.width)
        base = self.rich_style
        line: Line = lines[y] if y < len(lines) else []
        return Strip(Segment.apply_style(line, base)).crop_extend(0, self.size.width, base)

    def action_press(self, key: str) -> None:
        self.post_message(self.CardKey(key))

    def on_click(self, event: events.Click) -> None:
        meta = event.style.meta
        if isinstance(self.form, QuestionForm) and (at := meta.get("question")) is not None:
            self.form.turn_to(at)
            self.refresh(layout=True)
        elif (option := meta.get("option")) is not None:
            self.action_press(f"{option + 1}")


class CardBox(Vertical):
    """The card, with an input line for a written answer."""

    class CardAnswered(Message):
        def __init__(self, id: str, answer: ApprovalAnswer) -> None:
            super().__init__()
            self.id, self.answer = id, answer

    class EscapeChanged(Message):
        """The effect of Esc has changed."""

    class PlanWanted(Message):
        """Requests the full plan, or the user's editor for it."""

        def __init__(self, form: PlanForm, *, edit: bool) -> None:
            super().__init__()
            self.form, self.edit = form, edit

    line = query_one("#card-line", Input)

    def __init__(self, clock: Clock, may_auto: Callable[[], bool], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = CardView(id="card-view")
        self._clock, self._may_auto = clock, may_auto
        self._since = 0.0
        self.pending: tuple[ApprovalRequested, ...] = ()
        self._place: tuple[str, int] = ("", 0)  # card and question that the input line is for
        self._unsent: dict[tuple[str, int], str] = {}  # unsent text of the input line
        self.display = False

    def compose(self) -> ComposeResult:
        yield self.view
        line = SafeInput(id="card-line", compact=True, select_on_focus=False)
        line.display = False
        yield line

    @property
    def current(self) -> ApprovalRequested | None:
        return self.pending[0] if self.pending else None

    def show(self, pending: tuple[ApprovalRequested, ...], *, take_focus: bool) -> None:
        """Show the oldest card; `take_focus`: focus it, since the user is not typing."""
        before, self.pending = self.current, pending
        now = self.current
        if now != before:
            self._since = self._clock.monotonic()
            self._stop_writing()
            self.view.form = self._make_form(now) if now is not None else None
            self.view.refresh(layout=True)
        self.display = now is not None
        if now is not None and take_focus and not self.view.writing:
            self._begin_answer()

    def _begin_answer(self) -> None:
        """Focus the card, or its input line for a question without options."""
        form = self.view.form
        if isinstance(form, QuestionForm) and form.is_written and not form.is_answered(form.at):
            self._write_answer(form)
        else:
            self.screen.set_focus(self.view)

    def _write_answer(self, form: QuestionForm) -> None:
        question, hint = form.question, "your answer"
        default = question.default if isinstance(question, FreeQuestion) else ""
        if isinstance(question, FreeQuestion) and question.options:
            hint += f" (empty: {to_one_line(question.options[0].label, 40)})"
        self._write(form.texts[form.at] or default, hint)

    def _make_form(self, asked: ApprovalRequested) -> QuestionForm | PlanForm:
        return PlanForm(asked.target, may_auto=self._may_auto()) if asked.is_plan else make_form(asked.questions)

    @on(CardView.CardKey)
    def _press(self, event: CardView.CardKey) -> None:
        event.stop()
        form = self.view.form
        if form is None or self._clock.monotonic() - self._since < GUARD_S:
            return
        if isinstance(form, PlanForm):
            self._press_at_plan(form, event.key)
            self.post_message(self.EscapeChanged())
        else:
            form.hint = ""
            self._press_at_question(form, event.key)
        self.view.refresh(layout=True)

    def _press_at_plan(self, form: PlanForm, key: str) -> None:
        if form.way and key.isdecimal() and int(key) <= len(form.modes):
            self._reply(form.answer(form.modes[int(key) - 1]))
        elif key in ("a", "f"):
            form.way = "approve" if key == "a" else "fresh"
        elif key in ("e", "v"):
            self.post_message(self.PlanWanted(form, edit=key == "e"))
        elif key == "n":
            self._write("", "what to plan differently (optional)")

    def change_plan(self, text: str) -> None:
        """Show the plan as the user edited it."""
        if isinstance(self.view.form, PlanForm) and text.strip() != self.view.form.text.strip():
            self.view.form.text, self.view.form.edited = text, True
            self.view.refresh(layout=True)

    def _press_at_question(self, form: QuestionForm, key: str) -> None:
        if key == "enter":
            self._advance(form)
        elif key == "o":
            self._write_answer(form)
        elif key == "space":
            form.toggle(form.cursor)
        elif key in ("up", "down"):
            form.cursor = (form.cursor + (1 if key == "down" else -1)) % max(1, len(form.question.options))
        elif key in ("left", "right"):
            form.turn_to(form.at + (1 if key == "right" else -1))
        elif key.isdecimal():
            form.toggle(int(key) - 1)

    def _reply(self, answer: ApprovalAnswer) -> None:
        if self.current is not None:
            self.post_message(self.CardAnswered(self.current.id, answer))

    def _advance(self, form: QuestionForm) -> None:
        """Go to the next question without an answer, or send the answers."""
        missing = form.find_open_question()
        if missing is not None:
            if missing == form.at:
                form.hint = "Write an answer first." if form.is_written else _ask_to_choose(form)
            form.turn_to(missing)
            self._begin_answer()
        else:
            self._reply(ApprovalAnswer(True, answers=form.answers()))

    def _write(self, text: str, placeholder: str) -> None:
        form = self.view.form
        self._place = (self.current.id if self.current else "", form.at if isinstance(form, QuestionForm) else 0)
        self.line.display = self.view.writing = True
        self.line.value, self.line.placeholder = self._unsent.pop(self._place, text), placeholder
        self.line.cursor_position = len(self.line.value)
        self.screen.set_focus(self.line)

    def _stop_writing(self) -> None:
        if self.view.writing:
            self._unsent[self._place] = self.line.value
        self.line.display = self.view.writing = False
        self.view.refresh(layout=True)

    @on(Input.Submitted, "#card-line")
    def _submit_line(self, event: Input.Submitted) -> None:
        event.stop()
        form = self.view.form
        if self._clock.monotonic() - self._since < GUARD_S:
            return
        self._stop_writing()
        self._unsent.pop(self._place, None)
        self.screen.set_focus(self.view)
        if isinstance(form, QuestionForm):
            form.hint = ""
            form.write(event.value.strip())
            if form.is_written:
                self._advance(form)
        elif form is not None:
            self._reply(ApprovalAnswer(False, note=event.value.strip(), edited=form.changes))

    @property
    def escape_label(self) -> str:
        """Return the effect of Esc for the status line; "" without a card."""
        is_back = self.view.writing or (isinstance(self.view.form, PlanForm) and self.view.form.way)
        return "back" if is_back else "decline" if self.pending else ""

    def leave(self) -> bool:
        """Handle Esc: close the line, else decline the card. False if there is no card."""
        if self.view.writing:
            self._stop_writing()
            self.screen.set_focus(self.view)
        elif isinstance(self.view.form, PlanForm) and self.view.form.way:
            self.view.form.way = ""
            self.view.refresh(layout=True)
        elif self.current is not None:
            form = self.view.form
            self._reply(ApprovalAnswer(False, edited=form.changes if isinstance(form, PlanForm) else None))
        else:
            return False
        return True
