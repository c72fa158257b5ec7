"""Observing and reflecting without a model: lines are taken from the messages word for word, nothing is
invented.

Milliseconds, deterministic, about an eighth of the input's tokens: the lines with the highest weight that
fit, in the order in which they happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sakti.core.errors import MemoryFailure
from sakti.core.text import clean_surrogates
from sakti.core.tokens import Counter
from sakti.core.types import FilePart, ImagePart, Json, Message, TextPart, ToolCallPart, ToolResultPart
from sakti.memory import dates
from sakti.memory.lines import SIGNS, references
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult

NAME = "extractive"
SHARE, LEAST_TOKENS = 0.12, 40
LINE_CHARACTERS, COMMAND_CHARACTERS = 260, 120

_SENTENCE = re.compile(r"(?<=[.!?…])\s+(?=[\"'`(\[]?[A-Z0-9`])|\n+|(?<=[。！？])")
_CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_LIST_SIGN = re.compile(r"^\s*(?:[-*•+]|\d+[.)])\s+")
_QUESTION = re.compile(
    r"\?\s*$|^(?:how|what|why|where|when|which|who|can|could|does|do|is|are|should)\b[^.!]*\?", re.IGNORECASE
)
# What someone says of themselves and their code, or lays down.
_ASSERTION = re.compile(
    r"\b(?:i'm|i am|i've|i have|i use|i prefer|i like|i hate|i want|i need|we're|we are|we've|we have|we use|"
    r"we need|we want|my|our|ours|always|never|must|mustn't|should not|shouldn't|don't|do not|no longer|"
    r"instead of|rather than|decided|decision|let's|prefer|important|remember|note that|actually|"
    r"correct(?:ion)?|deadline|requires?)\b",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    r"\b(?:root cause|because|decid\w+|conclu\w+|the (?:problem|issue|bug|error|cause|fix) (?:is|was)|"
    r"turns out|found|fixed|implemented|created|added|renamed|removed|moved|replaced|migrated|installed|"
    r"updated|blocked|cannot|failed|passes|passed|next step|remaining|recommend\w*|plan)\b",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"\b(?:[A-Z]\w*(?:Error|Exception)\b|error(?:\[\w+\])?:|fatal:|panic:|traceback|E\d{3,}\b|FAILED|FAIL\b|"
    r"command not found|no such file|permission denied|segmentation fault|undefined reference)",
    re.IGNORECASE,
)
_TESTS = re.compile(
    r"\b\d+\s+(?:passed|failed|passing|failing|errors?|skipped|tests?)\b|\btests?:\s*\d+|\btest result: |"
    r"\bcoverage[: ]|\b\d+ problems?\b|\bBUILD (?:SUCCESSFUL|FAILED)\b",
    re.IGNORECASE,
)
_COMMAND_KEYS = ("command", "cmd", "script")
_PATH_KEYS = ("path", "file_path", "file", "filename", "pattern", "query", "url")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that could be kept: higher `weight` first. `group` joins what one action wrote."""

    order: int
    weight: float
    sign: str
    time: int
    text: str
    tokens: int = 0


class ExtractiveObserver:
    name = NAME

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    async def observe(self, request: ObserveInput) -> ObserveResult:
        return self.extract(request)

    def extract(self, request: ObserveInput) -> ObserveResult:
        """The observations of the request's messages; never raises."""
        count = self._counter.count
        size = sum(m.tokens for m in request.messages) or sum(count(m.text) for m in request.messages)
        limit = max(LEAST_TOKENS, int(size * SHARE))
        seen: set[str] = set()
        candidates: list[Candidate] = []
        for found in _candidates(request.messages):
            text = _clip(found.text, LINE_CHARACTERS)
            if text and text.casefold() not in seen:
                seen.add(text.casefold())
                candidates.append(replace(found, text=text, tokens=count(text) + 8))  # sign, time and newline
        chosen: list[Candidate] = []
        used = 0
        for candidate in sorted(candidates, key=lambda c: (-c.weight, -c.order)):
            if used + candidate.tokens <= limit or not chosen:
                chosen.append(candidate)
                used += candidate.tokens
        chosen.sort(key=lambda c: c.order)
        return ObserveResult(_log(chosen, request.timezone), _task(request), model=NAME, prompt_hash=NAME)


def _candidates(messages: Sequence[Message]) -> Iterator[Candidate]:
    calls: dict[str, ToolCallPart] = {}
    order = 0
    for message in messages:
        for part in message.parts:
            found: Iterator[tuple[float, str, str]]
            match part:
                case TextPart(text) if message.role == "user":
                    found = _of_user(text)
                case TextPart(text) if message.role == "assistant":
                    found = _of_agent(text)
                case ToolCallPart(id=identifier):
                    calls[identifier] = part
                    continue
                case ToolResultPart(call_id=identifier):
                    found = _of_tool(calls.pop(identifier, None), part)
                case FilePart(path, _):
                    found = iter([(3.0, "🟡", f"User attached {path}")])
                case ImagePart(name=name):
                    found = iter([(3.0, "🟡", f"User attached the image {name}".rstrip())])
                case _:
                    continue
            for weight, sign, text in found:
                yield Candidate(order, weight, sign, message.created_at, text)
                order += 1


def _sentences(text: str) -> list[str]:
    plain = _CODE_BLOCK.sub("\n", clean_surrogates(text))
    return [t for s in _SENTENCE.split(plain) if (t := _LIST_SIGN.sub("", s).strip()) and any(map(str.isalnum, t))]


def _of_user(text: str) -> Iterator[tuple[float, str, str]]:
    sentences = _sentences(text)
    for number, sentence in enumerate(sentences):
        place = 1.0 if number == 0 else 0.0 if number < len(sentences) - 1 else 0.5
        if _QUESTION.search(sentence):
            yield 6.0 + place, "🟡", f"User asked: {sentence}"
        elif _ASSERTION.search(sentence):
            yield 8.0 + place, "🔴", f"User stated: {sentence}"
        else:
            yield 5.0 + place, "🟡", f"User said: {sentence}"
    for block in _CODE_BLOCK.findall(text):
        for line in str(block).split("\n"):
            if _ERROR.search(line):
                yield 6.5, "🟡", f"User quoted: {line.strip()}"
                break


def _of_agent(text: str) -> Iterator[tuple[float, str, str]]:
    sentences = _sentences(text)
    for number, sentence in enumerate(sentences):
        weight = 1.0
        if _CONCLUSION.search(sentence):
            weight += 2.0
        if references(sentence)[0] or "`" in sentence:
            weight += 1.0
        if number == len(sentences) - 1:
            weight += 0.5
        if weight > 1.5 or number == 0:
            yield weight, "🟡" if weight > 2 else "🟢", f"Agent: {sentence}"


def _of_tool(call: ToolCallPart | None, result: ToolResultPart) -> Iterator[tuple[float, str, str]]:
    arguments: Json = (call.arguments if call else None) or {}
    command = next((str(arguments[k]) for k in _COMMAND_KEYS if arguments.get(k)), "")
    target = next((str(arguments[k]) for k in _PATH_KEYS if arguments.get(k)), "")
    lines = [line.strip() for line in result.content.split("\n") if line.strip()]
    error = next((line for line in lines if _ERROR.search(line)), "")
    last_error = next((line for line in reversed(lines) if re.match(r"\w*(?:Error|Exception)\b", line)), error)
    tests = next((line for line in reversed(lines) if _TESTS.search(line)), "")
    outcome = tests or last_error
    failed = result.is_error or bool(result.details.get("exit_code")) or (bool(error) and not tests)
    if not outcome and result.is_error and lines:
        outcome = lines[0]
    what = (
        f"ran `{_clip(' '.join(command.split()), COMMAND_CHARACTERS)}`"
        if command
        else (f"used {result.name}{f' {_clip(target, COMMAND_CHARACTERS)}' if target else ''}")
    )
    said = f"Agent {what}" + (f": {_clip(outcome, 160)}" if outcome else " (failed)" if failed else "")
    yield (5.5 if tests or failed else 3.0 if command else 2.0), "🟡", said


def _task(request: ObserveInput) -> str | None:
    """What the user last asked for, in their words."""
    for message in reversed(request.messages):
        if message.role == "user" and (sentences := _sentences(message.text)):
            wish = next((s for s in sentences if not _QUESTION.search(s)), sentences[0])
            return f"Primary: {_clip(wish, LINE_CHARACTERS)}"
    return request.current_task


def _log(chosen: Sequence[Candidate], timezone: str) -> str:
    out: list[str] = []
    day = ""
    for candidate in chosen:
        if (today := dates.day_text(candidate.time, timezone)) != day:
            day = today
            out.append(f"Date: {day}")
        out.append(f"* {candidate.sign} ({dates.clock_text(candidate.time, timezone)}) {candidate.text}")
    return "\n".join(out)


def _clip(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


# --- reflection -----------------------------------------------------------------------------------------

_COMMAND_LINE = re.compile(r"Agent (?:ran `[^`]*`|used \S+(?: \S+)?)")
_TIME = re.compile(r"\(\d{1,2}:\d{2}\)\s*")
_ORDER = {"low": 0, "none": 1, "medium": 2, "done": 3, "high": 4}


@dataclass(slots=True)
class _Line:
    text: str
    rank: int
    tokens: int
    position: int
    header: str
    pinned: bool = False
    dropped: bool = False


class ExtractiveReflector:
    name = NAME

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """Repeated lines and superseded outcomes go first, then 🟢, nested and 🟡 lines, oldest first, until
        the target is met; pinned lines stay. Raises `MemoryFailure` (not_smaller) where nothing could go."""
        text = "\n".join(t for _, t in request.groups)
        before = sum(self._counter.count(t) for _, t in request.groups)
        rows = self._rows(text, {_bare(p) for p in request.pinned})
        _drop_repeated(rows)
        total = sum(r.tokens for r in rows if not r.dropped)
        for row in sorted(rows, key=lambda r: (r.rank, r.position)):
            if total <= request.target_tokens:
                break
            if row.dropped or row.pinned:
                continue
            if row.rank == _ORDER["high"] and total < before * 0.9:
                break  # what the user stated goes last, and only as far as it must
            row.dropped = True
            total -= row.tokens
        out = _write(rows)
        if not out or self._counter.count(out) >= before:
            raise MemoryFailure("The log cannot be condensed further without a model: it stays.", code="not_smaller")
        return ReflectResult(out, model=NAME, prompt_hash=NAME, level=request.start_level)

    def _rows(self, text: str, pinned: set[str]) -> list[_Line]:
        out: list[_Line] = []
        header = ""
        for raw in text.split("\n"):
            line = raw.rstrip()
            if not line.strip():
                continue
            if line.startswith("Date:"):
                header = line
                continue
            sign = next((name for s, name in SIGNS.items() if s in line[:16]), "none")
            rank = _ORDER["low"] if sign == "none" and line.startswith((" ", "\t")) else _ORDER[sign]
            out.append(_Line(line, rank, self._counter.count(line) + 1, len(out), header, _bare(line) in pinned))
        return out


def _bare(line: str) -> str:
    text = line.strip().lstrip("*- ")
    for sign in SIGNS:
        text = text.replace(sign, "")
    return _TIME.sub("", text).strip().casefold()


def _drop_repeated(rows: list[_Line]) -> None:
    """Of equal lines the first stays; of outcomes of the same command or tool the newest."""
    seen: dict[str, _Line] = {}
    newest: dict[str, _Line] = {}
    for row in rows:
        key = _bare(row.text)
        if key in seen and not row.pinned:
            row.dropped = True
            continue
        seen[key] = row
        if match := _COMMAND_LINE.search(row.text):
            older = newest.get(match[0])
            if older is not None and not older.pinned:
                older.dropped = True
            newest[match[0]] = row


def _write(rows: list[_Line]) -> str:
    out: list[str] = []
    header = ""
    for row in rows:
        if row.dropped:
            continue
        if row.header != header:
            header = row.header
            out.append(header)
        out.append(row.text)
    return "\n".join(out)
