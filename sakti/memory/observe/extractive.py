"""Observe without a model: take lines from the messages word for word.

It takes milliseconds and is deterministic. The user's instructions come first and may take much of the room; traces
of work get the rest. The lines are in chronological order.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from time import thread_time
from typing import TypeVar

from msgspec import Struct, field, structs

from sakti.core.clock import shorten_id
from sakti.core.lazy import lazy_pattern
from sakti.core.text import clean_surrogates
from sakti.core.tokens import Counter as TokenCounter
from sakti.core.types import (
    FilePart,
    ImagePart,
    Json,
    Message,
    OutputPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.memory import modes
from sakti.memory.log import dates
from sakti.memory.log.lines import find_references
from sakti.memory.log.parse import MAX_LINE
from sakti.memory.modes import FieldType
from sakti.memory.observe.quoting import QuotedPiece, iter_pieces, split_shell_report
from sakti.memory.observe.tool_facts import Facts, fill_keys, read_facts
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.memory.statements.sentences import (
    CHANGE,
    SPECIFIC,
    Kind,
    classify_agent_sentence,
    classify_sentence,
    compute_worth,
    is_vague,
    step_by_step,
)

NAME = "extractive"
# (least weight, tokens of the log per token of messages, least room): the room for lines of that weight, together
# with the rest of the room above. The user's statements are noted in full while the log has room.
STATED = 7.0
TALK = 6.0  # weight of the agent's sentences in a conversation without tools
ROOMS = ((STATED, 0.5, 60), (TALK, 0.4, 40), (4.0, 0.15, 40), (0.0, 0.06, 20))
LONG, LONG_SHARE = 400, 0.2
LINE_TOKENS = 12  # symbol, time and speaker of a line
LINE_CHARACTERS = MAX_LINE // 2  # of the texts that share a line: storing cuts lines at MAX_LINE
STATED_CHARACTERS, SENTENCE_CHARACTERS, COMMAND_CHARACTERS, FILES = 2_000, 400, 120, 12
# Of an output: characters and lines at its beginning and at its end, and characters of a line.
OUTPUT, OUTPUT_LINES, OUTPUT_LINE, STEP_LINES = 200_000, 2_000, 2_000, 50
QUOTED_LINES = 300  # most lines of a quotation
OF_THE_MODE = 5.5  # least weight of a call that fills a key of the mode
LABELLED = 3  # number of messages with the same label
CHARACTERS = 4  # characters per token, approximately
TASK_SENTENCES = 200  # most sentences of a message that may state the task
CANDIDATES = 20_000  # most sentences of one observation

_ERROR = lazy_pattern(
    r"\b(?:[A-Z]\w*(?:Error|Exception)\b|error(?:\[\w+\])?:|fatal:|panic:|traceback|E\d{3,}\b|FAILED|FAIL\b|"
    r"command not found|no such file|permission denied|segmentation fault|undefined reference)",
    re.IGNORECASE,
)
_TESTS = lazy_pattern(
    r"\b\d+\s+(?:passed|failed|passing|failing|errors?|skipped|tests?)\b|\btests?:\s*\d+|\btest result: |"
    r"\bcoverage[: ]|\b\d+ problems?\b|\bBUILD (?:SUCCESSFUL|FAILED)\b",
    re.IGNORECASE,
)
_LABEL = lazy_pattern(r"[^\W\d_][\w'’-]{0,30}: ")
_NAMED_ERROR = lazy_pattern(r"\w*(?:Error|Exception)\b")
_ITEM = lazy_pattern(r"\s*(?:[-*•+]|\d{1,3}[.)])\s+\S")
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("path", "file_path", "file", "filename", "pattern", "query", "url")
_CHANGES_FILES = lazy_pattern(r"write|edit|create|patch|replace|insert|save|rename|delete", re.IGNORECASE)


class CandidateLine(Struct, frozen=True):
    """Candidate sentence: higher `weight` first.

    Candidates of one message with the same beginning (`lead`, `sign`) share a line.
    """

    order: int
    message: str
    weight: float
    sign: str
    time: int
    lead: str
    text: str
    tokens: int
    facts: Facts = field(default_factory=dict[str, list[str]])


class ExtractiveObserver:
    name = NAME

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def observe(self, request: ObserveInput) -> ObserveResult:
        """Return the observations of the request's messages; never raises."""
        return await run_in_slices(self.steps(request))

    def steps(self, request: ObserveInput) -> Generator[None, None, ObserveResult]:
        """Do the work of `observe` in steps; each takes a small part of a slice, however long a message is."""
        count = self._counter.count
        size = sum(m.tokens for m in request.messages) or sum(count(m.text) for m in request.messages)
        chosen: list[CandidateLine] = []
        lines: set[tuple[str, str, str]] = set()
        declared = modes.read_numbers(request.mode).fields
        unsorted = yield from self._collect_candidates(request.messages, declared)
        candidates = sorted(unsorted, key=lambda c: (-c.weight, -c.order))
        room, above = 0, float("inf")
        remaining = sys.maxsize if request.limit is None else request.limit
        for least, share, few in ROOMS:
            usual = max(few, int(min(size * share, LONG + size * LONG_SHARE)))
            room = min(room + usual, remaining)
            if least == STATED:
                room = max(room, request.room if request.room is not None else sys.maxsize)
            for candidate in (c for c in candidates if least <= c.weight < above):
                cost = candidate.tokens + (
                    0 if (candidate.message, candidate.lead, candidate.sign) in lines else LINE_TOKENS
                )
                if cost <= room or not chosen:
                    chosen.append(candidate)
                    lines.add((candidate.message, candidate.lead, candidate.sign))
                    room -= cost
                    remaining = max(0, remaining - cost)
            above = least
            room = min(room, usual)  # only the user's statements may exceed the usual room
        chosen.extend(_iter_omitted(candidates, chosen))
        chosen.sort(key=lambda c: c.order)
        task = yield from _find_task(request)
        text, facts = _log(chosen, request.timezone)
        categories, fields = fill_keys(facts, declared, modes.list_sections(request.mode))
        return ObserveResult(text, task, model=NAME, prompt_hash=NAME, categories=categories, fields=fields)

    def _collect_candidates(
        self, messages: Sequence[Message], declared: Mapping[str, FieldType]
    ) -> Generator[None, None, list[CandidateLine]]:
        out: dict[tuple[str, str], CandidateLine] = {}
        order = 0
        for message, step, facts in _read_steps(messages):
            yield
            if step is None or len(out) >= CANDIDATES:
                continue
            weight, sign, lead, text = step
            weight = max(weight, OF_THE_MODE) if facts.keys() & declared else weight
            text = _join_lines(text)
            key = (lead, text.casefold())
            if weight >= STATED:
                out.pop(key, None)  # a repeated statement, perhaps after a change, is current
            if text and key not in out:
                order += 1
                tokens = self._counter.count(text) + 1
                out[key] = CandidateLine(order, message.id, weight, sign, message.created_at, lead, text, tokens, facts)
        return list(out.values())


def _iter_omitted(candidates: Sequence[CandidateLine], chosen: Sequence[CandidateLine]) -> Iterator[CandidateLine]:
    """Yield a line for each message whose own statements were omitted or cut: it can be recalled."""
    ids = {(c.order) for c in chosen}
    missing = [c for c in candidates if c.weight >= STATED and c.order not in ids]
    for message, rest in itertools.groupby(sorted(missing, key=lambda c: c.order), key=lambda c: c.message):
        few = list(rest)
        text = f"{_count_more(len(few), 'statement')}, recall {shorten_id(message)}"
        yield structs.replace(few[0], sign="🟡", lead="User said:", text=text)


def _count_more(count: int, noun: str) -> str:
    return f"… {count} more {noun}{'' if count == 1 else 's'}"


Found = tuple[float, str, str, str]  # weight, symbol, lead, text
Step = Found | None  # None: nothing found


def _read_steps(messages: Sequence[Message]) -> Iterator[tuple[Message, Step, Facts]]:
    """Yield the steps of each part of the messages, with the facts of tool calls."""
    reader = _PartReader(messages)
    for message in messages:
        for part in message.parts:
            steps, facts = reader.read(message, part)
            for step in steps:
                yield message, step, facts


class _PartReader:
    """Reads the parts of messages in order: results follow calls, and answers follow questions."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._calls: dict[str, ToolCallPart] = {}
        self._is_question = False  # whether the agent's last text was a question
        self._labels = {role: _label_of(messages, role) for role in ("user", "assistant")}
        self._only_talks = not any(isinstance(part, ToolCallPart) for message in messages for part in message.parts)

    def read(self, message: Message, part: Part) -> tuple[Iterator[Step], Facts]:
        if isinstance(part, TextPart | OutputPart):
            return self._read_text(message, part), {}
        if isinstance(part, ToolResultPart):
            return self._read_result(part)
        if isinstance(part, FilePart | ImagePart):
            return iter([_describe_attachment(part)]), {}
        if isinstance(part, ToolCallPart):
            self._calls[part.id] = part
        return iter(()), {}

    def _read_text(self, message: Message, part: TextPart | OutputPart) -> Iterator[Step]:
        label = self._labels.get(message.role, "")
        if message.role == "user" and (ran := split_shell_report(message)) is not None:
            self._is_question = False
            return _iter_shell_steps(*ran)
        if isinstance(part, OutputPart):
            return iter(())
        if message.is_by_user:
            answers, self._is_question = self._is_question, False
            return _iter_user_steps(part.text, answers, message.id, label)
        if message.is_by_agent:
            self._is_question = part.text[-100:].rstrip("*_`) ").endswith("?")
            return _iter_talk_steps(part.text, label) if self._only_talks else _iter_agent_steps(part.text)
        return iter(())

    def _read_result(self, part: ToolResultPart) -> tuple[Iterator[Step], Facts]:
        call = self._calls.pop(part.call_id, None)
        if part.name == "agent":  # the findings of a child are already in the log
            return iter(()), {}
        return _iter_tool_steps(call, part), read_facts(call, part)


def _describe_attachment(part: FilePart | ImagePart) -> Step:
    if isinstance(part, FilePart):
        return 4.5, "🟡", "User attached", _clip(part.path, SENTENCE_CHARACTERS)
    return 4.5, "🟡", "User attached the image", part.name or "without a name"


def _label_of(messages: Sequence[Message], role: str) -> str:
    """Return the speaker's name, "Ann: ", if most messages of a role begin with it."""
    texts = [m.text for m in messages if m.role == role and m.text]
    labels = Counter(match[0] for text in texts if (match := _LABEL.match(text)))
    label, count = labels.most_common(1)[0] if labels else ("", 0)
    return label if count >= LABELLED and 2 * count > len(texts) else ""


def _iter_user_steps(text: str, answers: bool, message_id: str, label: str = "") -> Iterator[Step]:
    for piece in iter_pieces(text):
        if piece.own:
            for step in _iter_own_words(piece, answers, label):
                yield from _fit_lines(step, message_id) if step else (None,)
        else:
            yield from ((6.5, "🟡", "User quoted:", line) for line in _shorten_quotation(piece.text, message_id))


def _iter_own_words(piece: QuotedPiece, answers: bool, label: str) -> Iterator[Step]:
    is_list = sum(bool(_ITEM.match(line)) for line in itertools.islice(piece.text.split("\n"), QUOTED_LINES)) > 1
    for sentence, last in _with_last(step_by_step(piece.text)):
        if not sentence:
            yield None
            continue
        bare = sentence.removeprefix(label)
        sentence_kind = "remark" if last and piece.opens else classify_sentence(bare)
        if is_list and not (last and piece.opens) and sentence_kind in ("remark", "chatter"):
            sentence_kind = "statement"  # a list item is a statement
        weight, sign, lead = _weigh_own(bare, sentence_kind, answers=answers, opens=piece.opens)
        yield weight, sign, lead, sentence


def _weigh_own(sentence: str, sentence_kind: Kind, *, answers: bool, opens: bool) -> tuple[float, str, str]:
    """Return weight, symbol and lead of a sentence of the user."""
    exact = 0.5 if SPECIFIC.search(sentence) else 0.0
    match sentence_kind:
        case "statement":
            return 8.0 + exact + (1.0 if CHANGE.search(sentence) else 0.0), "🔴", "User stated:"
        case "request":
            return STATED + exact, "🟡", "User asked for:"
        case "question":
            return 4.5 + exact, "🟡", "User asked:"
        case "remark":
            weight = STATED if not is_vague(sentence) and not opens else 5.0 if answers else 3.5
            return weight + exact, "🟡", "User said:"
        case "chatter":
            return 4.0 if answers else 0.5, "🟢", "User said:"


def _fit_lines(step: Found, message_id: str) -> Iterator[Step]:
    """Yield a sentence of the user cut to lines: a statement in several parts, other sentences shortened."""
    weight, sign, lead, text = step
    while weight >= STATED and len(text) > STATED_CHARACTERS:
        cut = (
            text.rfind("; ", 0, STATED_CHARACTERS) + 1 or text.rfind(" ", 0, STATED_CHARACTERS) + 1 or STATED_CHARACTERS
        )
        yield weight, sign, lead, text[:cut]
        text = text[cut:]
    yield weight, sign, lead, text if weight >= STATED else _begin(text, message_id)


def _begin(text: str, message_id: str) -> str:
    """Return the beginning of a user's text, with a note of how much more can be recalled."""
    text = _join_lines(text)
    left_out = len(text) - SENTENCE_CHARACTERS
    if left_out <= 0:
        return text
    return (
        f"{text[:SENTENCE_CHARACTERS].rstrip()} {_count_more(left_out, 'character')}, recall {shorten_id(message_id)}"
    )


def _shorten_quotation(text: str, message_id: str) -> list[str]:
    """Shorten a quotation: a short one stays, a longer one becomes its error or its beginning.

    The rest can be recalled by the id of its message.
    """
    some = itertools.islice(_select_lines(text), QUOTED_LINES)
    lines = [line.lstrip("> \t").strip() for line in some if not line.lstrip().startswith(("```", "~~~"))]
    lines = [line for line in lines if any(map(str.isalnum, line))]
    if len(lines) <= 2:
        shown = [line[:SENTENCE_CHARACTERS] for line in lines]
        if shown != lines:
            left_out = len(text.strip()) - sum(map(len, shown))
            shown[-1] += f" {_count_more(left_out, 'character')}, recall {shorten_id(message_id)}"
        return shown
    first = [line for line in lines if _ERROR.search(line)][:1] or lines[:1]
    left_out = text.count("\n", 0, len(text.rstrip())) + 1 - len(first)
    return [f"{_clip(first[0], SENTENCE_CHARACTERS)} {_count_more(left_out, 'line')}, recall {shorten_id(message_id)}"]


def _select_lines(text: str) -> Iterator[str]:
    """Return the lines of a text, of a long one the first and the last, each cut to a limit."""
    lines = (text if len(text) <= 2 * OUTPUT else f"{text[:OUTPUT]}\n{text[-OUTPUT:]}").split("\n")
    if len(lines) > 2 * OUTPUT_LINES:
        lines[OUTPUT_LINES:-OUTPUT_LINES] = []
    return (line[:OUTPUT_LINE] for line in lines)


def _iter_shell_steps(command: str, output: str) -> Iterator[Step]:
    """Yield the steps of a command run by the user, in the form of the agent's commands.

    The output is nobody's statement.
    """
    result = ToolResultPart("", "bash", output, is_error="[exit code " in output[-40:])
    for step in _iter_tool_steps(ToolCallPart("", "bash", {"command": command}), result):
        yield step and (step[0], step[1], "User ran", step[3])


def _iter_agent_steps(text: str) -> Iterator[Step]:
    for sentence, last in _with_last(step_by_step(text)):
        yield _weigh_agents(sentence, last=last) if sentence else None


def _weigh_agents(sentence: str, *, last: bool) -> Found:
    """Return the step of a sentence of the agent."""
    if last and sentence.endswith("?"):
        return 4.0, "🟡", "Agent asked:", _clip(sentence, SENTENCE_CHARACTERS)
    sentence = _clip(sentence, SENTENCE_CHARACTERS)
    sentence_kind = classify_agent_sentence(sentence)
    weight = {"work": 4.5, "finding": 2.5, "intent": 1.0}[sentence_kind]
    if sentence_kind == "work" and find_references(sentence)[0]:
        weight += 1.0
    weight += (0.5 if last else 0.0) - (0.0 if SPECIFIC.search(sentence) else 1.0)
    return weight, "🟡" if weight >= 3 else "🟢", "Agent:", sentence


def _iter_talk_steps(text: str, label: str) -> Iterator[Step]:
    """Yield the sentences of an agent that uses no tools; statements weigh more."""
    for sentence, last in _with_last(step_by_step(text)):
        if not sentence:
            yield None
            continue
        bare = sentence.removeprefix(label)
        if (last and sentence.endswith("?")) or not _informs(bare):
            yield _weigh_agents(sentence, last=last)
        else:
            worth = compute_worth(bare, len(bare) // CHARACTERS + LINE_TOKENS)
            yield TALK + min(worth, 0.9), "🟡", "Agent said:", _clip(sentence, SENTENCE_CHARACTERS)


def _informs(sentence: str) -> bool:
    """Return whether a sentence informs the user; sentences about work on files are traces of work."""
    return (
        classify_sentence(sentence) == "statement"
        and classify_agent_sentence(sentence) != "intent"
        and not find_references(sentence)[0]
    )


def _with_last(texts: Iterator[str]) -> Iterator[tuple[str, bool]]:
    """Yield each text with a flag for the last one."""
    before = ""
    for text in texts:
        yield (before, False) if text else ("", False)
        before = text or before
    yield before, True


class _OutputSummary(Struct):
    """Lines of an output that show its outcome."""

    first: str = ""
    error: str = ""
    named_error: str = ""
    tests: str = ""

    def read(self, line: str) -> None:
        self.first = self.first or line
        self.error = self.error or (line if _ERROR.search(line) else "")
        self.named_error = line if _NAMED_ERROR.match(line) else self.named_error
        self.tests = line if _TESTS.search(line) else self.tests


def _iter_tool_steps(call: ToolCallPart | None, result: ToolResultPart) -> Iterator[Step]:
    arguments: Json = (call.arguments if call else None) or {}
    command = next((str(arguments[k]) for k in _COMMAND_KEYS if arguments.get(k)), "")
    target = next((str(arguments[k]) for k in _PATH_KEYS if arguments.get(k)), "")
    output = _OutputSummary()
    for number, raw in enumerate(_select_lines(result.content)):
        if number % STEP_LINES == 0:
            yield None
        output.read(raw.strip())
    bad = result.is_error or bool(result.details.get("exit_code"))
    if command or bad:
        yield _describe_outcome(command, target, result.name, output, bad=bad)
        return
    # the inspected target does not explain the failure
    what = _clip(target, COMMAND_CHARACTERS) or "without a target"
    changes = bool(_CHANGES_FILES.search(result.name)) and bool(target)
    yield (4.5, "🟡", "Agent changed", what) if changes else (2.0, "🟢", f"Agent used {result.name}", what)


def _describe_outcome(command: str, target: str, tool: str, output: _OutputSummary, *, bad: bool) -> Found:
    """Describe the outcome of a command, or of a failed tool call."""
    outcome = output.tests or output.named_error or output.error or (output.first if bad else "")
    failed = bad or (bool(output.error) and not output.tests)
    summary = (
        f"`{_clip(' '.join(command.split()), COMMAND_CHARACTERS)}`" if command else _clip(target, COMMAND_CHARACTERS)
    )
    summary += f": {_clip(outcome, 160)}" if outcome else " (failed)" if failed else ""
    weight = 5.5 if output.tests or failed else 3.0
    return weight, "🟡", "Agent ran" if command else f"Agent used {tool}", summary


def _find_task(request: ObserveInput) -> Generator[None, None, str | None]:
    """Return the user's last request, in their own words."""
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        sentences: list[tuple[str, Kind]] = []
        for sentence in _iter_own_sentences(message):
            yield
            if sentence and len(sentences) < TASK_SENTENCES and not sentence.endswith(":"):
                sentences.append((sentence, classify_sentence(sentence)))
        for wish_kind in ("request", "statement", "question", "remark"):
            if wish := next((s for s, k in sentences if k == wish_kind), None):
                return f"Primary: {_clip(wish, SENTENCE_CHARACTERS)}"
    return request.current_task


def _iter_own_sentences(message: Message) -> Iterator[str]:
    if split_shell_report(message) is None:
        for piece in iter_pieces(message.text):
            yield from step_by_step(piece.text) if piece.own else ("",)


def _log(chosen: Sequence[CandidateLine], timezone: str) -> tuple[str, dict[str, list[Facts]]]:
    """Write the log; sentences of a message with the same beginning share a line.

    So do consecutive files of one tool. Also return the facts of each line, by the line's content.
    """
    lines: dict[tuple[str, str, str, int], list[CandidateLine]] = {}
    sizes: dict[tuple[str, str, str], int] = {}
    run = ""  # key that collects consecutive files of one tool
    for candidate in chosen:
        tool = not candidate.lead.endswith(":")
        listed = candidate.lead == "Agent changed" or (tool and candidate.sign == "🟢")
        run = (run or candidate.message) if listed else "" if candidate.lead.startswith("User") else run
        key = run if listed else f"{candidate.order}" if tool else candidate.message
        shared = (key, candidate.lead, candidate.sign)
        sizes[shared] = sizes.get(shared, 0) + len(candidate.text)
        lines.setdefault((*shared, sizes[shared] // LINE_CHARACTERS), []).append(candidate)
    out: list[str] = []
    facts: dict[str, list[Facts]] = {}
    day = ""
    for (_, lead, _, _), parts in lines.items():
        first = parts[0]
        if (today := dates.format_day(first.time, timezone)) != day:
            day = today
            out.append(f"Date: {day}")
        time = dates.format_clock(first.time, timezone)
        content = f"{lead} {_join_texts(lead, [c.text for c in parts])}"
        line = f"* {first.sign} ({time}) {content}"
        facts[content] = [c.facts for c in parts]
        out.append(_explain_dates(line, lead, first.time, timezone))
    return "\n".join(out), facts


def _explain_dates(line: str, lead: str, time: int, timezone: str) -> str:
    """Add the date that the user's relative words, such as `tomorrow`, mean."""
    if not lead.startswith("User ") or lead.startswith(("User ran", "User quoted")):
        return line
    meant = dates.resolve_relative(line, time, timezone)
    return f"{line} (meaning {meant})" if meant else line


def _join_texts(lead: str, texts: Sequence[str]) -> str:
    if not lead.endswith(":"):
        names = list(dict.fromkeys(texts))
        return ", ".join(names[:FILES]) + (f" and {len(names) - FILES} more" if len(names) > FILES else "")
    out = texts[0]
    for text in texts[1:]:
        out += (" " if out.endswith((".", "!", "?", "…", "。")) else "; ") + text
    return out


def _join_lines(text: str) -> str:
    return " ".join(clean_surrogates(text).split())


def _clip(text: str, limit: int) -> str:
    text = _join_lines(text)
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


# --- beside the event loop ---------------------------------------------------------------------------------

T = TypeVar("T")
SLICE = 0.005  # seconds


async def run_in_slices(work: Generator[None, None, T], now: Callable[[], float] = thread_time) -> T:
    """Return the result of `work`, yielding to the event loop after each slice.

    `work` yields between its steps, each of which should take much less than a slice. `now` returns seconds.
    """
    begun = now()
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value
        if now() - begun >= SLICE:
            await asyncio.sleep(0)
            begun = now()
