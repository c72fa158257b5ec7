"""Draw a tool call: a line with its summary and state, and the relevant output below.

A running command shows its last lines, a failed one the end of its output, a short success all of it; a long success is
folded. The output of a command that the user ran is shown in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, cast

from msgspec import ValidationError, convert, field
from rich.segment import Segment
from rich.style import Style

from sakti.core import calls, types
from sakti.core.events import AgentFinished, AgentProgress, CardQuestion
from sakti.core.text import (
    count_k,
    count_lines,
    count_seconds,
    format_count,
    format_duration,
    sanitize_text,
    to_one_line,
)
from sakti.core.types import ChildState, Json, ToolCallPart, ToolResultPart
from sakti.tui.palette import Palette
from sakti.tui.transcript.blocks import INDENT, SIGN, Block, estimate_lines, limit_column
from sakti.tui.transcript.code import count_changes, draw_diff
from sakti.tui.transcript.links import add_links
from sakti.tui.transcript.wrap import Line, Row, count_cells, draw_plain, fold_words, indent, shorten, to_row

CallState: TypeAlias = Literal["writing", "pending", "waiting", "running", "ok", "error", "denied", "stopped"]

KEEP_OUTPUT = 64_000  # characters kept of a running tool's output
SHOW_OUTPUT = 200  # lines of output shown for an unfolded call
OWN_OUTPUT = 2_000  # lines of output shown for a command of the user
SHORT_OUTPUT = 8  # maximum lines of a successful output shown without unfolding
LIVE_LINES = 5  # lines shown for a running command
OWN_LIVE_LINES = 20  # lines shown for a running command of the user
FAILURE_LINES = 12  # lines shown for a failed call
DIFF_LINES = 14  # lines shown of a folded diff
COMMANDS = ("bash", "bash_output")  # tools whose output is shown
BODY_INDENT = Segment("      ")
PLAN_TOOL = "present_plan"
UNFOLD_KEY = " · ctrl+o"  # key that unfolds from the prompt


def _get_end_state(result: ToolResultPart) -> CallState:
    details = result.details
    if isinstance(details.get("denied"), str) or _name_refusal(result):
        return "denied"
    if details.get("stopped") is True:
        return "stopped"
    return "error" if result.is_error else "ok"


def _name_refusal(result: ToolResultPart) -> str:
    """Name the user's choice that declined a card; "" for an answered card or another call."""
    if result.details.get("declined") is True:
        return "declined"
    return "keep planning" if result.name == PLAN_TOOL and "note" in result.details else ""


class ToolBlock(Block, eq=False):
    """`result_id` is the message of its result.

    `own`: the user ran it; `elapsed`: seconds in its current state, as last drawn. `elsewhere`: another window runs it.
    """

    call_id: str = ""
    result_id: str = ""
    name: str = ""
    summary: str = ""
    state: CallState = "writing"
    arguments: Json = field(default_factory=dict[str, object])
    raw: str = ""
    output: str = ""
    dropped: int = 0  # number of dropped characters of output
    diff: str = ""
    duration_ms: int | None = None
    detail: str = ""
    note: str = ""  # why it was denied
    refusal: str = "denied"
    card: str = ""  # the questions to the user, with options and chosen ones marked
    output_path: str = ""
    size: str = ""  # size of a long output
    own: bool = False
    elsewhere: bool = False
    open: bool = False
    closed: bool = False  # folded by the user
    since: float = 0.0
    elapsed: int = 0
    gap: bool = False
    child_id: str = ""  # id of the child thread that it started
    child_state: ChildState | None = None
    progress: str = ""  # progress of the child, or its end
    calls: Sequence[str] = ()  # last calls of the child

    @property
    def is_foldable(self) -> bool:
        return True

    @property
    def _is_open(self) -> bool:
        return self.open or (self.own and not self.closed)

    def toggle(self) -> None:
        is_full = self._is_open
        self.open, self.closed = not is_full, is_full

    def get_plain_text(self) -> str:
        return self.diff or (self.card if self.state == "ok" else "") or self.output

    def shows_message(self, message_id: str) -> bool:
        return message_id in (self.message_id, self.result_id)

    # --- updates --------------------------------------------------------------------------------------------

    def write(self, text: str) -> None:
        """Show that the model writes its arguments."""
        self.raw = (self.raw + text)[-2_000:]

    def plan(self, call: ToolCallPart) -> None:
        """Show that the call is complete and waits to run."""
        call = types.unwrap_call(call)
        self.name = to_one_line(_get_name(call), 60)
        self.state = "pending"
        self.arguments = call.arguments or {}
        self.raw = sanitize_text(call.raw)[:KEEP_OUTPUT] if call.arguments is None else ""
        self.summary = calls.summarize_call(call)
        self.card = _describe_card(self.arguments, ())

    def start(self, call: ToolCallPart, now: float = 0.0) -> None:
        self.plan(call)
        self.set_state("running", now)

    def set_state(self, state: CallState, now: float) -> None:
        """Change the state and start its clock at `now`."""
        self.state, self.since, self.elapsed = state, now, 0

    def tick(self, now: float) -> bool:
        """Return whether the clock shows another second than when it was last drawn."""
        before, self.elapsed = self.elapsed, count_seconds(self.since, now)
        return self.state in ("running", "waiting") and self.elapsed != before

    def add_output(self, text: str) -> None:
        """Append output; only the newest `KEEP_OUTPUT` characters are kept."""
        text = sanitize_text(text[-KEEP_OUTPUT:])
        joined = self.output + text
        if len(joined) > KEEP_OUTPUT:
            self.dropped += len(joined) - KEEP_OUTPUT
            joined = joined[-KEEP_OUTPUT:]
        self.output = joined

    def finish(self, result: ToolResultPart, duration_ms: int | None) -> None:
        details = result.details
        self.state, self.elsewhere = _get_end_state(result), False
        if result.name == calls.CHILD_TOOL:
            self._take_child(details)
        if self.state == "denied":
            self._take_refusal(result)
        if isinstance(answers := details.get("answers"), list):
            self._take_answers(cast("list[Json]", answers))
        self.dropped = 0
        self.output = sanitize_text(result.content)[:KEEP_OUTPUT]
        self.diff = sanitize_text(str(details.get("diff") or ""))
        stored = details.get("duration_ms")
        self.duration_ms = duration_ms if duration_ms is not None else stored if isinstance(stored, int) else None
        self._take_exit_code(details.get("exit_code"))
        self._take_range(details.get("lines"))
        self.output_path = to_one_line(str(details.get("output_file") or ""), 200)
        self.size = describe_output_size(self.output, details)

    def _take_refusal(self, result: ToolResultPart) -> None:
        """Store who refused a call, and why."""
        self.refusal = _name_refusal(result) or "denied"
        self.note = to_one_line(str(result.details.get("denied") or result.details.get("note") or ""), 300)

    def _take_range(self, lines: object) -> None:
        """Add the range of lines read to the summary, unless it is there already."""
        if isinstance(lines, str) and "-" in lines and "(" not in self.summary:
            self.summary = f"{self.summary}  ({to_one_line(lines, 20)})"

    def _take_answers(self, answers: Sequence[Json]) -> None:
        """Show the user's answers to a card in the head line and mark the chosen options."""
        self.progress = "; ".join(to_one_line(", ".join(_list_chosen(answer)), 200) for answer in answers)
        self.card = _describe_card(self.arguments, answers)

    def _take_child(self, details: Json) -> None:
        """Store the state of the child thread from a result: a report, running or interrupted."""
        if isinstance(child := details.get("child"), str):
            state = details.get("state")
            self.child_id, self.child_state = child, "partial" if state == "partial" else "finished"
            marks = types.describe_state(self.child_state, str(details.get("marks", "")))
            self.progress = self.progress or to_one_line(marks, 200)
            self.calls = self.calls or [to_one_line(str(call), 80) for call in details.get("calls") or ()]
        elif isinstance(child := details.get("background"), str):
            self.child_id, self.child_state = child, self.child_state or "running"
        elif isinstance(child := details.get("unfinished"), str):
            self.child_id, self.child_state = child, "interrupted"

    def show_run(self, state: ChildState, words: str) -> None:
        """Show the current state of the child thread started by a stored call."""
        self.child_state = state
        self.progress = to_one_line(words, 200)

    def _take_exit_code(self, code: object) -> None:
        """Show an exit code in the head line instead of the output."""
        self.detail = f"exit {code}" if isinstance(code, int) and code else ""
        if self.detail:
            self.output = self.output.rstrip("\n").removesuffix(f"[exit code {code}]")
        if self.output.strip() == "[no output]":
            self.output = ""

    def show_progress(self, event: AgentProgress | AgentFinished) -> None:
        """Show the progress of the child thread started by this call."""
        price = "" if event.cost_usd is None else f" · ${event.cost_usd:.2f}"
        took = format_duration(int(event.seconds) * 1000)
        self.child_state = event.state
        if isinstance(event, AgentFinished):
            self.progress = f"{types.describe_state(event.state, event.marks)}{price} · {took}"
            return
        gauge = f"{count_k(event.messages.tokens)} of {count_k(event.messages.threshold)}"
        doing = f"step {event.step} · {event.activity}  {gauge}{price} · {took}"
        self.progress = types.describe_state(event.state, doing)
        self.calls = event.calls

    # --- drawing --------------------------------------------------------------------------------------------

    def render(self, width: int, palette: Palette) -> list[Line]:
        room = max(4, width - len(BODY_INDENT.text))
        body: list[Line] = []
        if self._is_open and not self.own:
            body += self._draw_arguments(room, palette)
            body += [[Segment(shorten(f"▸ {call}", room), palette.muted)] for call in self.calls]
        if self.diff:
            body += draw_diff(self.diff, room, palette, None if self._is_open else DIFF_LINES, UNFOLD_KEY)
        if self._has_output:
            body += self._draw_output(room, palette)
        return [self._draw_head(width, palette), *indent(body, BODY_INDENT)]

    @property
    def _has_output(self) -> bool:
        """Return whether the output adds something to the head, the diff and the card."""
        return self.state != "denied" and (self.state != "ok" or not (self.diff or self.card))

    @property
    def _has_changed(self) -> bool:
        """Return whether the call changed a file, so that its diff replaces the output."""
        return bool(self.diff) and self.state == "ok"

    @property
    def _has_failed(self) -> bool:
        return self.state == "error" or bool(self.detail)

    def _count_shown(self, lines: int) -> int:
        """Return how many of `lines` lines of output are shown, from the end."""
        if self.state in ("running", "waiting", "pending"):
            return self._live_lines
        if self._is_open:
            return OWN_OUTPUT if self.own else SHOW_OUTPUT
        if self.closed:
            return 0
        if self._has_failed or self.state == "stopped":
            return FAILURE_LINES if lines > FAILURE_LINES + 1 else lines
        return lines if self.name in COMMANDS and lines <= SHORT_OUTPUT else 0

    @property
    def _live_lines(self) -> int:
        """Return the number of output lines shown while the call runs."""
        if self.own:
            return OWN_LIVE_LINES
        return SHOW_OUTPUT if self.open else LIVE_LINES

    def _draw_head(self, width: int, palette: Palette) -> Line:
        sign, style = self._get_sign(palette)
        room = limit_column(width) - SIGN
        status = _fit_spans(self._describe_status(palette), room * 2 // 3 if self.progress else room // 2)
        taken = sum(count_cells(t) for t, _ in status)
        name = shorten(self.name or "tool", max(1, room - taken - 2))
        text = self._describe_call(room - count_cells(name) - taken - 4)
        gap = max(2, room - count_cells(name) - count_cells(text) - taken) if status else 0
        line = Row([INDENT, Segment(f"{sign} ", style), Segment(name, palette.bold)], SIGN)
        line += [Segment(text, palette.muted), Segment(" " * gap), *(Segment(t, s) for t, s in status)]
        return line

    def _describe_call(self, room: int) -> str:
        """Return the summary that follows the call's name; "" if it does not fit."""
        raw = "" if self.state == "writing" else to_one_line(self.raw, 200)  # a partial JSON object is of no use
        text = self.summary or raw
        return f"  {shorten(text, room)}" if room > 4 and text else ""

    def _get_sign(self, palette: Palette) -> tuple[str, Style]:
        if self.child_state is not None:
            return types.STATE_SYMBOLS[self.child_state], get_child_style(self.child_state, palette)
        if self._has_failed and self.state != "denied":
            return "✗", palette.bad
        return {
            "writing": ("○", palette.faint),
            "pending": ("○", palette.faint),
            "waiting": ("◌", palette.warn),
            "running": ("●", palette.agent),
            "denied": ("⊘", palette.warn),
            "stopped": ("■", palette.warn),
        }.get(self.state, ("✓", palette.ok))

    def _describe_status(self, palette: Palette) -> list[tuple[str, Style]]:
        clock = f" {format_duration(self.elapsed * 1000)}" if self.elapsed else ""
        clock = " in another window" if self.elsewhere else clock
        match self.state:
            case _ if self.child_state is not None:
                return [self._describe_child(self.child_state, palette), *self._describe_size(palette)]
            case "writing":
                return [("…", palette.faint)]
            case "pending":
                return [("pending", palette.faint)]
            case "waiting":
                return [(f"waiting for you{clock}", palette.warn)]
            case "running":
                return [(self.progress or f"running{clock}", palette.agent)]
            case "stopped":
                return [("stopped", palette.warn), *self._describe_size(palette)]
            case "denied":
                return [(f"{self.refusal}: {self.note}" if self.note else self.refusal, palette.warn)]
            case "error" | "ok":
                return self._describe_result(palette)

    def _describe_child(self, state: ChildState, palette: Palette) -> tuple[str, Style]:
        style = palette.agent if state in ("waiting", "running") else palette.faint
        return self.progress or types.describe_state(state), style

    def _describe_result(self, palette: Palette) -> list[tuple[str, Style]]:
        """Return the end of a finished call's head line: failure, changed lines or time, and size."""
        out: list[tuple[str, Style]] = []
        if self._has_failed:
            out.append((self.detail or "failed", palette.bad))
        if self.progress:
            out.append((f"{' · ' if out else ''}{self.progress}", palette.faint))
        elif self._has_changed:
            added, removed = count_changes(self.diff)
            out += [(f"+{added} ", palette.ok), (f"−{removed}", palette.bad)]
        elif self.duration_ms is not None and self.duration_ms >= 100:
            out.append((f"{' · ' if out else ''}{format_duration(self.duration_ms)}", palette.faint))
        return [*out, *self._describe_size(palette, dot=bool(out))]

    def _describe_size(self, palette: Palette, *, dot: bool = True) -> list[tuple[str, Style]]:
        """Return the size of the output, with the key that unfolds it if it is folded."""
        if self.card or self._has_changed:
            return []
        folded = self._is_folded
        pieces = [self.size] if self.size else []
        pieces += ["ctrl+o"] if folded and self.name in COMMANDS and not self._has_failed else []
        text = " ".join([" · ".join(pieces), "▸"] if folded else pieces).strip()
        return [(f"{' · ' if dot else ''}{text}", palette.faint)] if text else []

    @property
    def _is_folded(self) -> bool:
        lines = count_lines(self.output)
        return not self._is_open and self._count_shown(lines) < lines

    def _draw_arguments(self, width: int, palette: Palette) -> list[Line]:
        out: list[Line] = []
        if self.card:
            return draw_plain(sanitize_text(self.card), palette.text, width, SHOW_OUTPUT)
        if self.raw and not self.arguments:
            return draw_plain(self.raw, palette.muted, width, 40)
        for key, value in self.arguments.items():
            if self.diff and key not in ("path", "file", "file_path"):
                continue  # the diff replaces the output
            out += _draw_argument(to_one_line(str(key), 24), value, width, palette)
        return out

    def _draw_output(self, width: int, palette: Palette) -> list[Line]:
        shown = self._count_shown(count_lines(self.output))
        if not shown:
            return []
        rows = self.output.rstrip("\n").split("\n") if self.output.strip() else []
        note = self._describe_omission(len(rows), shown)
        out: list[Line] = [[Segment(note, palette.faint)]] if note else []
        style = palette.text if self._has_failed or self.own else palette.muted
        for row in rows[-shown:]:
            out += _draw_output_row(row[:4_000], style, width, palette)
        return [*out, *self._draw_output_end(width, palette, is_empty=not rows)]

    def _draw_output_end(self, width: int, palette: Palette, *, is_empty: bool) -> list[Line]:
        """Return the lines below the output: its file, or a note if it is empty."""
        out: list[Line] = []
        if self.output_path and (self._is_open or self._has_failed):
            out += draw_plain(f"whole output: {self.output_path}", palette.faint, width)
        if is_empty and self._is_open and self.state == "ok":
            out.append([Segment("(no output)", palette.faint)])
        return out

    def _describe_omission(self, rows: int, shown: int) -> str:
        """Return the line above the output with the size of the hidden part, or ""."""
        if self.dropped and self._is_open:
            return f"… {self.dropped + len(self.output):,} characters so far, the last {shown} lines:"
        if rows > shown and self.state != "running":
            return f"… {format_count(rows - shown, 'line')} above{'' if self._is_open else UNFOLD_KEY}"
        return ""

    def estimate(self, width: int) -> int:
        if self._has_changed:
            return 1 + self.gap + min(DIFF_LINES, self.diff.count("\n") + 1)
        lines = self._count_shown(count_lines(self.output)) if self.output and self._has_output else 0
        return 1 + self.gap + min(lines, estimate_lines(self.output, width))


def _fit_spans(spans: list[tuple[str, Style]], width: int) -> list[tuple[str, Style]]:
    """Return `spans`, or one shortened span of at most `width` cells if they do not fit."""
    if sum(count_cells(text) for text, _ in spans) <= width:
        return spans
    return [(shorten("".join(text for text, _ in spans), max(0, width)), spans[0][1])]


def _draw_argument(name: str, value: object, width: int, palette: Palette) -> list[Line]:
    """Return a name and argument of a call in at most 12 lines."""
    text = calls.format_value(value)
    out: list[Line] = []
    for number, line in enumerate(draw_plain(sanitize_text(text)[:4_000], palette.text, width - len(name) - 2, 12)):
        lead = f"{name}: " if number == 0 else " " * (len(name) + 2)
        out.append(to_row(line).after_prefix([Segment(lead, palette.faint)], 0 if number == 0 else len(lead)))
    return out


def _draw_output_row(row: str, style: Style, width: int, palette: Palette) -> list[Line]:
    """Return a line of output, with links, wrapped into at most 20 lines."""
    if ":" in row and "\t" not in row:
        return fold_words(add_links(row, style, palette.link), width)[:20]
    return draw_plain(row, style, width, 20)


def get_child_style(state: ChildState, palette: Palette) -> Style:
    """Return the colour of a child thread's symbol."""
    return {"running": palette.agent, "finished": palette.ok, "interrupted": palette.bad}.get(state, palette.warn)


def describe_output_size(output: str, details: Json) -> str:
    """Describe the size of a tool's output; "" if it is short."""
    if isinstance(fetched := details.get("fetched"), str):
        return to_one_line(fetched, 60)
    total = details.get("characters")
    if isinstance(total, int) and total >= 100_000:
        return f"{total / 1_000_000:.1f} MB"
    for key, one in (("matches", "match"), ("entries", "entry")):
        count = details.get(key)
        if isinstance(count, int) and count:
            return format_count(count, one, key)
    lines = count_lines(output)
    return f"{lines:,} lines" if lines > SHORT_OUTPUT and "lines" not in details else ""


def _get_name(call: ToolCallPart) -> str:
    """Return the display name of a call; for a child thread, its mode or custom agent."""
    if call.name == calls.CHILD_TOOL:
        return str((call.arguments or {}).get("mode") or call.name)
    return types.display_name(call.name)


def _describe_card(arguments: Json, answers: Sequence[Json]) -> str:
    """Return the questions of a call with their options, the chosen ones marked; "" for other calls."""
    try:
        questions = convert(arguments.get("questions"), list[CardQuestion])
    except ValidationError:
        return ""
    words = {str(answer.get("question")): _list_chosen(answer) for answer in answers}
    lines: list[str] = []
    for question in questions:
        chosen = words.get(question.question, [])
        labels = [option.label for option in question.options]
        lines += [question.question, *(f"  {'●' if label in chosen else '○'} {label}" for label in labels)]
        lines += [f"  ● {text}" for text in chosen if text not in labels]
    return "\n".join(lines)


def _list_chosen(answer: Json) -> list[str]:
    """Return the chosen options of an answer, and the user's own text."""
    choices = cast("list[object]", answer.get("choices") or [])
    return [str(text) for text in (*choices, answer.get("text")) if text]
