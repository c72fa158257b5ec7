"""Format values as lines to be read aloud: calls, questions, tasks, log lines, threads. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sakti.agent.judge.policy import describe_rule
from sakti.agent.reports.memory_report import describe_compaction, describe_event, describe_uncompaction
from sakti.core import calls
from sakti.core import types as core_types
from sakti.core.errors import SaktiError
from sakti.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    CardQuestion,
    CompactionFinished,
    MemoryActivation,
    SideQuestion,
)
from sakti.core.lazy import lazy_pattern
from sakti.core.text import (
    count_k,
    find_lookalikes,
    format_count,
    format_minute,
    sanitize_text,
    show_hidden,
    to_one_line,
)
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.plain.prose import format_all

if TYPE_CHECKING:
    from sakti.agent.project.trust import TrustedFileChange
    from sakti.agent.session.queries import ContextBlock, ThreadSummary
    from sakti.agent.settings import Setting
    from sakti.store.log.events import MemoryEvent
    from sakti.store.log.lines import LogLine
    from sakti.store.search.search import Hit
    from sakti.tasks.queries import Board, BoardTask, Branch


DIFF_LINES = 60
TARGET_LINES = 12
TAIL_LINES = 10
_EXIT = lazy_pattern(r"\[exit code \d+\]")
_ABOUT = lazy_pattern(r"~(?=\$?\d)")
_PLACE = lazy_pattern(r"\+(\d+)")
_DIFF_WORDS = {"+": "add: ", "-": "remove: ", " ": "keep: "}
_SPEAKERS = {"assistant": "sakti", "user": "you"}
_WHY = {"threshold": "the window was full", "idle": "after a pause", "provider_change": "another model"}


def spell_duration(ms: int) -> str:
    if ms < 60_000:
        return f"{ms / 1000:.1f} seconds"
    return f"{format_count(ms // 60_000, 'minute')} {format_count(ms // 1000 % 60, 'second')}"


# --- tools --------------------------------------------------------------------------------------------------


def describe_call(part: ToolCallPart) -> str:
    """Format a call's tool and target: `read src/a.py`."""
    part = core_types.unwrap_call(part)
    if part.arguments is None:
        return f"{to_one_line(part.name, 40)} with arguments that cannot be read"
    return to_one_line(f"{core_types.display_name(part.name)} {calls.summarize_call(part)}", 200)


def describe_result(
    request: ToolCallPart | None, result: ToolResultPart, duration_ms: int, *, own: bool = False
) -> str:
    """Format `tool: read src/a.py, lines 1 to 120, ok, 0.1 seconds`; `own`: the user ran it."""
    about = describe_call(request) if request is not None else to_one_line(result.name, 40)
    details = result.details
    parts = [f"{'command' if own else 'tool'}: {about}", *_list_counts(details)]
    code = details.get("exit_code")
    if isinstance(code, int) and code:
        parts.append(f"exit code {code}")
    if isinstance(denied := details.get("denied"), str):
        return ", ".join([*parts, f"denied: {to_one_line(denied, 200)}" if denied else "denied"])
    outcome = _describe_outcome(result)
    parts += [outcome, spell_duration(duration_ms)]
    if outcome == "failed" and not isinstance(code, int):
        parts.append(to_one_line(result.content, 200))
    return ", ".join(parts)


def _describe_outcome(result: ToolResultPart) -> str:
    """Return the outcome of a call in a few words."""
    if isinstance(result.details.get("denied"), str):
        return "denied"
    if result.details.get("stopped") is True:
        return "stopped"
    return "failed" if result.is_error else "ok"


def _list_counts(details: Mapping[str, object]) -> Iterator[str]:
    """Yield the numbers of lines, matches and entries in a tool's result."""
    lines = details.get("lines")
    if isinstance(lines, str) and "-" in lines:
        yield f"lines {lines.replace('-', ' to ')}"
    if isinstance(fetched := details.get("fetched"), str):
        yield to_one_line(fetched, 60)
    added, removed = details.get("added"), details.get("removed")
    if isinstance(added, int) and isinstance(removed, int):
        yield f"{format_count(added, 'line')} added, {removed} removed"
    for key, singular in (("matches", "match"), ("entries", "entry")):
        if isinstance(number := details.get(key), int):
            yield f"{number} {singular if number == 1 else key}"


def list_tail(result: ToolResultPart) -> list[str]:
    """Return the end of a failed command's output."""
    if result.name != "bash" or not result.is_error or isinstance(result.details.get("denied"), str):
        return []
    lines = [line for line in sanitize_text(result.content).rstrip("\n").split("\n") if not _EXIT.fullmatch(line)]
    cut = [f"  and {format_count(len(lines) - TAIL_LINES, 'line')} before; /output shows all of it"]
    return [*(cut if len(lines) > TAIL_LINES else []), *(f"  {line}" for line in lines[-TAIL_LINES:])]


def announce_calls(message: Message) -> list[str]:
    """Announce the calls of an answer with several calls, before the first question about them."""
    calls = message.tool_calls
    return (
        [f"{format_count(len(calls), 'call')}: {'; '.join(describe_call(c) for c in calls)}"] if len(calls) > 1 else []
    )


def format_question(pending: Sequence[ApprovalRequested], number: int) -> list[str]:
    """Format the first of `pending`: a plan, a card or an approval."""
    first = pending[0]
    if first.is_plan:
        return format_plan(first.target, number)
    return format_card(first.questions, number) if first.is_card else format_approval(pending, number)


def format_approval(pending: Sequence[ApprovalRequested], number: int) -> list[str]:
    """Format the first of `pending` as a question with its answers."""
    first = pending[0]
    request = (
        "run this command?"
        if first.tool == "bash"
        else f"allow {to_one_line(core_types.display_name(first.tool), 60)}?"
    )
    others = f" (1 of {len(pending)})" if len(pending) > 1 else ""
    out = [": ".join(p for p in (f"question {number}", first.asker, f"{request}{others}") if p)]
    out += _format_target_lines(first.target)
    if first.diff:
        out += spell_diff(first.diff, DIFF_LINES)
    where = "" if first.cwd == "." else f"; in {to_one_line(first.cwd, 200)}"
    if doubtful := find_lookalikes(first.target):
        out.append(f"warning: these words contain lookalike letters: {to_one_line(', '.join(doubtful), 100)}")
    reason = to_one_line(first.reason, 300)
    out.append(f"why: {reason[:1].lower()}{reason[1:]}{where}")
    return [*out, *_list_answers(first)]


def _format_target_lines(text: str) -> list[str]:
    """Format the command or file in question, cut after `TARGET_LINES` lines."""
    target = [line for line in sanitize_text(show_hidden(text)).split("\n") if line.strip()]
    out = [f"  {line}" for line in target[:TARGET_LINES]]
    if len(target) > TARGET_LINES:
        out.append(f"  and {format_count(len(target) - TARGET_LINES, 'more line')}; /output shows all of it")
    return out


def _list_answers(first: ApprovalRequested) -> list[str]:
    """List the keys that answer a question, and their effects."""
    out = ["y and Enter: allow once"]
    if first.is_edit:
        out.append("s and Enter: allow all edits in this thread; until /approve ask")
    if first.rule:
        out.append(f"t and Enter: allow in this thread, by the rule {to_one_line(describe_rule(first.rule), 200)}")
        out.append("a and Enter: always allow in this workspace; the rule is saved")
    out.append("n and Enter: deny; words after n give the agent the reason")
    if first.tool == "bash":
        out.append("e, a space and another command: run that instead")
    return out


def format_plan(text: str, number: int) -> list[str]:
    """Format a plan that waits for approval, with the possible answers."""
    lines = [f"  {line}" for line in sanitize_text(text).split("\n") if line.strip()]
    return [
        f"question {number}: approve this plan?",
        *lines,
        "a and an approval mode (ask, edits, auto): approve; f and a mode: approve in a fresh thread",
        "n and Enter: keep planning; words after n say what to plan differently",
    ]


def format_side_answer(event: SideQuestion) -> list[str]:
    """Format the answer to a side question, once it is complete."""
    match event.state:
        case "answering":
            return []
        case "stopped":
            return ["the side question was stopped"]
        case "failed":
            return [f"no answer to the side question: {to_one_line(event.text, 600)}"]
        case "answered":
            return [f"beside: {to_one_line(event.question, 200)}", *sanitize_text(event.text).strip().split("\n")]


def describe_resolution(event: ApprovalResolved, *, was_card: bool) -> str:
    """Describe the end of a question."""
    if event.approved:
        return "answered" if was_card else "allowed"
    denial = "declined" if was_card else "denied"
    return f"{denial}: {to_one_line(event.note, 300)}" if event.note else denial


def list_keys(request: ApprovalRequested) -> str:
    """Name the keys that answer a question."""
    if request.is_plan:
        return "a, f or n"
    return "a number, o or n" if request.questions else "y, s, t, a, n or e"


def format_card(questions: Sequence[CardQuestion], number: int) -> list[str]:
    """Format the questions of a card with their options and the possible answers."""
    out: list[str] = []
    for index, question in enumerate(questions):
        several = f" ({index + 1} of {len(questions)})" if len(questions) > 1 else ""
        out.append(f"question {number}{several}: {to_one_line(question.question, 1_000)}")
        for option, choice in enumerate(question.options, start=1):
            why = f": {to_one_line(choice.description, 300)}" if choice.description else ""
            out.append(f"  {option} {to_one_line(choice.label, 200)}{why}")
        if question.multiple:
            out.append("  several may be chosen, as 1 3")
    out.append("a number and Enter: choose; o and words: another answer; n: decline to answer")
    if len(questions) > 1:
        out.append("separate the answers with semicolons, for example: 1; o never; 2")
    return out


def spell_diff(text: str, limit: int | None = None) -> list[str]:
    """Format a unified diff in words: `add: …`, `remove: …`, `keep: …`."""
    out: list[str] = []
    for line in sanitize_text(text).split("\n"):
        if line.startswith(("--- ", "+++ ")):
            continue
        if line.startswith("@@"):
            place = _PLACE.search(line)
            out.append(f"at line {place[1]}:" if place else "further down:")
        elif line[:1] in _DIFF_WORDS:
            out.append(_DIFF_WORDS[line[0]] + line[1:])
    if limit is not None and len(out) > limit:
        hidden = len(out) - limit
        out = [*out[:limit], f"and {format_count(hidden, 'more line')} of the change; /output shows all of it"]
    return out


def spell_file_changes(changes: Iterable[TrustedFileChange]) -> list[str]:
    """Format the changes of a project's files, each under its name."""
    return [line for c in changes for line in (f"{to_one_line(c.name, 200)}, {c.how}:", *spell_diff(c.diff))]


# --- messages -----------------------------------------------------------------------------------------------


def format_message(message: Message, *, limit: int | None = None) -> list[str]:
    """Format author, time and text, tool calls as one line each. At most `limit` lines."""
    who = "a hook" if "hook" in message.metadata else _SPEAKERS.get(message.role, message.role)
    lines = [f"{who}, {format_minute(message.created_at)}:"]
    lines += [line for part in message.parts for line in _part_lines(part)]
    if limit is not None and len(lines) > limit:
        return [*lines[:limit], f"and {format_count(len(lines) - limit, 'more line')} of this message"]
    return lines


def _part_lines(part: Part) -> list[str]:
    match part:
        case TextPart(text):
            return format_all(text)
        case ToolCallPart():
            return [f"tool: {describe_call(part)}"]
        case ToolResultPart():
            return [
                f"result of {to_one_line(part.name, 40)}, {_describe_outcome(part)}: {to_one_line(part.content, 200)}"
            ]
        case FilePart(path, text):
            return [f"file {to_one_line(path, 200)}, {format_count(text.count(chr(10)) + 1, 'line')}"]
        case OutputPart(command, text):
            return [f"!{to_one_line(command, 200)}", *format_all(text)]
        case ImagePart():
            return [describe_image(part)]
        case MarkerPart(kind, text):
            return [to_one_line(f"{kind.replace('_', ' ')} {text}", 200)]
        case ThinkingPart() | ContextPart():
            return []  # reasoning, only for the model


def describe_image(part: ImagePart) -> str:
    size = f", {part.width} by {part.height} pixels" if part.width else ""
    return f"image {to_one_line(part.name or 'without a name', 200)}{size}"


# --- search, threads, context -------------------------------------------------------------------------------


def format_hit(hit: Hit, number: int) -> str:
    what = hit.kind if hit.kind != "message" else _SPEAKERS.get(hit.role, hit.role)
    where = f", thread {to_one_line(hit.thread_title, 60)}" if hit.thread_title else ""
    return f"{number}. {what}, {format_minute(hit.time)}{where}: {to_one_line(hit.snippet, 300)}"


def format_thread(row: ThreadSummary, number: int, *, current: bool) -> str:
    here = ", open here" if current else ""
    title = to_one_line(row.thread.title, 100) or "without a title"
    messages, time = format_count(row.messages, "message"), format_minute(row.thread.updated_at)
    return f"{number}. {title}, {messages}, last at {time}{here}"


def format_block(block: ContextBlock, number: int) -> str:
    return f"{number}. {to_one_line(block.label, 60)}, {block.tokens:,} tokens, {'cached' if block.cached else 'new'}"


def format_setting(row: Setting) -> str:
    return f"{row.name} is {to_one_line(row.text, 200) or 'not set'}, from {to_one_line(row.origin, 200)}"


def format_rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Format the names and texts of a card."""
    return [spell_signs(f"{name}: {text}") for name, text in pairs]


def spell_signs(text: str) -> str:
    """Return `text` with its symbols in words."""
    return _ABOUT.sub("about ", text.replace(" → ", " to ").replace(" · ", ", "))


def format_event(event: MemoryEvent) -> str:
    return format_rows([(format_minute(event.time), describe_event(event))])[0]


# --- memory -------------------------------------------------------------------------------------------------


def format_log(lines: Iterable[LogLine]) -> Iterator[str]:
    """Format numbered log lines, each with its date if that changes, its priority and its marks."""
    date = ""
    for number, line in enumerate(lines, 1):
        marks = [line.priority] if line.priority in ("high", "done") else []
        marks += ["pinned"] * line.pinned + ["edited"] * line.edited
        marks += [format_count(len(line.flags), "doubt")] * bool(line.flags)
        marks += ["reflection"] * (line.kind == "reflection")
        day = f"{sanitize_text(line.date)} " if line.date != date else ""
        date = line.date
        about = f" ({', '.join(marks)})" if marks else ""
        yield f"{number}. {day}{sanitize_text(line.time)}{about} {to_one_line(line.marked_text, 500)}"


def describe_error(error: SaktiError) -> str:
    return f"error: {f'{error.title}: ' if error.title else ''}{to_one_line(error.message, 600)}"


def describe_activation(event: MemoryActivation) -> str:
    if event.operation_type == "reflection":
        return (
            f"memory: {count_k(event.tokens_activated)} tokens of observations became "
            f"{count_k(event.observation_tokens)}, generation {event.generation_count}"
        )
    messages = format_count(event.messages_activated, "message")
    return (
        f"memory: {messages} of {count_k(event.tokens_activated)} tokens became"
        f" {count_k(event.observation_tokens)} tokens of observations, {_WHY.get(event.triggered_by, 'by itself')}"
    )


def format_compaction(event: CompactionFinished) -> list[str]:
    if event.undone:
        return [f"compaction undone: {describe_uncompaction(event)}"]
    result = format_rows(describe_compaction(event)) or ["it had no result"]
    return [
        f"compacted{', then stopped' if event.stopped else ''}: {format_count(event.messages, 'message')}",
        *result,
        *(f"warning: {to_one_line(w, 300)}" for w in event.warnings),
    ]


# --- tasks --------------------------------------------------------------------------------------------------


def format_board(board: Board) -> list[str]:
    columns = (board.in_progress, board.ready, board.blocked, board.closed_today)
    ready, blocked, busy, done = board.counts or (0, 0, 0, 0)
    counts = (busy, ready, blocked, done) if board.counts else tuple(map(len, columns))
    out: list[str] = []
    for name, rows, count in zip(("in progress", "ready", "blocked", "done today"), columns, counts, strict=True):
        out.append(f"{name}: {format_count(count, 'task') if count else 'none'}")
        out += [format_task(row) for row in rows]
        out += [f"and {count - len(rows)} more"] if count > len(rows) else []
    if board.container_count:
        out.append(f"waiting for their children: {format_count(board.container_count, 'task')}")
        out += [format_task(row) for row in board.containers]
    return out


def format_task(row: BoardTask) -> str:
    parts = [f"{row.handle}, priority {row.priority}, {row.type}: {to_one_line(row.title, 200)}"]
    if row.blocked_by:
        parts.append(f"waits for {', '.join(row.blocked_by)}")
    if row.waits_for_children:
        count = row.waits_for_children
        parts.append("waits for its open child" if count == 1 else f"waits for its {count} open children")
    if row.assignee:
        parts.append(f"for {to_one_line(row.assignee, 40)}")
    if row.held_by:
        held = to_one_line(row.held_by.removeprefix("shell:").removeprefix("user:"), 60)
        parts.append(f"claimed by {held}" + (", whose process has ended" if row.abandoned else ""))
    if row.ready_to_close:
        parts.append("ready to close")
    return "; ".join(parts)


def format_branch(row: Branch) -> str:
    """Format a line of a task's tree, with its depth in words."""
    depth = f"level {row.depth}, {row.relation.strip()}: " if row.relation else ""
    again = ", as above" if row.again else ""
    return f"{depth}{row.task.handle} {to_one_line(row.task.title, 200)}, {row.task.status.replace('_', ' ')}{again}"
