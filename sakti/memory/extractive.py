"""Observing and reflecting without a model: lines are taken from the messages word for word, nothing is
invented.

Milliseconds, deterministic. What the user lays down goes first and may take much of the room, what is only the trace of
work gets what is left; all of it in the order in which it happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sakti.core.text import clean_surrogates
from sakti.core.tokens import Counter
from sakti.core.types import FilePart, ImagePart, Json, Message, TextPart, ToolCallPart, ToolResultPart
from sakti.memory import dates
from sakti.memory.lines import references
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.memory.sentences import CHANGE, CODE_BLOCK, SPECIFIC, agent_kind, kind, sentences

NAME = "extractive"
# (least weight, tokens of the log per token of messages, room where there are few): what lines of that weight may take,
# with what those above them left. What a user lays down is seldom much; a long text of theirs gets a smaller share.
ROOMS = ((7.0, 0.5, 60), (4.0, 0.15, 40), (0.0, 0.06, 20))
LONG, LONG_SHARE = 400, 0.2
LINE_TOKENS = 12  # sign, time and speaker of a line
SENTENCE_CHARACTERS, COMMAND_CHARACTERS, FILES = 400, 120, 12

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
_CHANGES_FILES = re.compile(r"write|edit|create|patch|replace|insert|save|rename|delete", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence that could be kept: higher `weight` first. Those of one message that begin alike (`lead`, `sign`)
    share a line."""

    order: int
    message: str
    weight: float
    sign: str
    time: int
    lead: str
    text: str
    tokens: int


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
        chosen: list[Candidate] = []
        lines: set[tuple[str, str, str]] = set()
        candidates = sorted(self._candidates(request.messages), key=lambda c: (-c.weight, -c.order))
        room, above = 0, float("inf")
        for least, share, few in ROOMS:
            room += max(few, int(min(size * share, LONG + size * LONG_SHARE)))
            for found in (c for c in candidates if least <= c.weight < above):
                cost = found.tokens + (0 if (found.message, found.lead, found.sign) in lines else LINE_TOKENS)
                if cost <= room or not chosen:
                    chosen.append(found)
                    lines.add((found.message, found.lead, found.sign))
                    room -= cost
            above = least
        chosen.sort(key=lambda c: c.order)
        return ObserveResult(_log(chosen, request.timezone), _task(request), model=NAME, prompt_hash=NAME)

    def _candidates(self, messages: Sequence[Message]) -> list[Candidate]:
        seen: set[tuple[str, str]] = set()
        out: list[Candidate] = []
        for message, weight, sign, lead, text in _found(messages):
            text = _clip(text, SENTENCE_CHARACTERS)
            if text and (lead, text.casefold()) not in seen:
                seen.add((lead, text.casefold()))
                tokens = self._counter.count(text) + 1
                out.append(Candidate(len(out), message.id, weight, sign, message.created_at, lead, text, tokens))
        return out


Found = tuple[float, str, str, str]  # weight, sign, lead, text


def _found(messages: Sequence[Message]) -> Iterator[tuple[Message, float, str, str, str]]:
    calls: dict[str, ToolCallPart] = {}
    asked = False  # whether the agent's last words were a question
    for message in messages:
        for part in message.parts:
            found: Iterator[Found]
            match part:
                case TextPart(text) if message.role == "user":
                    found, asked = _of_user(text, asked), False
                case TextPart(text) if message.role == "assistant":
                    found, asked = _of_agent(text), text.rstrip("*_`) ").endswith("?")
                case ToolCallPart(id=identifier):
                    calls[identifier] = part
                    continue
                case ToolResultPart(call_id=identifier):
                    found = _of_tool(calls.pop(identifier, None), part)
                case FilePart(path, _):
                    found = iter([(4.5, "🟡", "User attached", path)])
                case ImagePart(name=name):
                    found = iter([(4.5, "🟡", "User attached the image", name or "without a name")])
                case _:
                    continue
            for weight, sign, lead, text in found:
                yield message, weight, sign, lead, text


def _of_user(text: str, answers: bool) -> Iterator[Found]:
    for sentence in sentences(text):
        exact = 0.5 if SPECIFIC.search(sentence) else 0.0
        match kind(sentence):
            case "statement":
                yield 8.0 + exact + (1.0 if CHANGE.search(sentence) else 0.0), "🔴", "User stated:", sentence
            case "request":
                yield 5.0 + exact, "🟡", "User asked for:", sentence
            case "question":
                yield 4.5 + exact, "🟡", "User asked:", sentence
            case "remark":
                yield (5.0 if answers else 3.5) + exact, "🟡", "User said:", sentence
            case "chatter":
                yield 4.0 if answers else 0.5, "🟢", "User said:", sentence
    for block in CODE_BLOCK.findall(text):
        lines = [line for line in str(block).split("\n") if line.strip()]
        wanted = lines if len(lines) <= 2 else [line for line in lines if _ERROR.search(line)][:1]
        for line in wanted:
            yield 6.5, "🟡", "User quoted:", line


def _of_agent(text: str) -> Iterator[Found]:
    said = sentences(text)
    for number, sentence in enumerate(said):
        last = number == len(said) - 1
        if last and sentence.endswith("?"):
            yield 4.0, "🟡", "Agent asked:", sentence
            continue
        found = agent_kind(sentence)
        weight = {"work": 4.5, "finding": 2.5, "intent": 1.0}[found]
        if found == "work" and references(sentence)[0]:
            weight += 1.0
        weight += (0.5 if last else 0.0) - (0.0 if SPECIFIC.search(sentence) else 1.0)
        yield weight, "🟡" if weight >= 3 else "🟢", "Agent:", sentence


def _of_tool(call: ToolCallPart | None, result: ToolResultPart) -> Iterator[Found]:
    arguments: Json = (call.arguments if call else None) or {}
    command = next((str(arguments[k]) for k in _COMMAND_KEYS if arguments.get(k)), "")
    target = next((str(arguments[k]) for k in _PATH_KEYS if arguments.get(k)), "")
    lines = [line.strip() for line in result.content.split("\n") if line.strip()]
    error = next((line for line in lines if _ERROR.search(line)), "")
    last_error = next((line for line in reversed(lines) if re.match(r"\w*(?:Error|Exception)\b", line)), error)
    tests = next((line for line in reversed(lines) if _TESTS.search(line)), "")
    bad = result.is_error or bool(result.details.get("exit_code"))
    if not command and not bad:  # what was looked at says nothing about what went wrong
        changes = bool(_CHANGES_FILES.search(result.name)) and bool(target)
        what = _clip(target, COMMAND_CHARACTERS) or "without a target"
        yield (4.5, "🟡", "Agent changed", what) if changes else (2.0, "🟢", f"Agent used {result.name}", what)
        return
    outcome = tests or last_error or (lines[0] if bad and lines else "")
    failed = bad or (bool(error) and not tests)
    said = f"`{_clip(' '.join(command.split()), COMMAND_CHARACTERS)}`" if command else _clip(target, COMMAND_CHARACTERS)
    said += f": {_clip(outcome, 160)}" if outcome else " (failed)" if failed else ""
    yield 5.5 if tests or failed else 3.0, "🟡", "Agent ran" if command else f"Agent used {result.name}", said


def _task(request: ObserveInput) -> str | None:
    """What the user last asked for, in their words."""
    for message in reversed(request.messages):
        if message.role != "user":
            continue
        found = [(s, kind(s)) for s in sentences(message.text)]
        for wanted in ("request", "statement", "question", "remark"):
            if wish := next((s for s, k in found if k == wanted), None):
                return f"Primary: {_clip(wish, SENTENCE_CHARACTERS)}"
    return request.current_task


def _log(chosen: Sequence[Candidate], timezone: str) -> str:
    """Sentences of a message that begin alike in one line, the files of one tool in a row as well."""
    lines: dict[tuple[str, str, str], list[Candidate]] = {}
    run = ""  # the key under which files of the same tool still gather
    for candidate in chosen:
        tool = not candidate.lead.endswith(":")
        listed = candidate.lead == "Agent changed" or (tool and candidate.sign == "🟢")
        run = (run or candidate.message) if listed else "" if candidate.lead.startswith("User") else run
        key = run if listed else f"{candidate.order}" if tool else candidate.message
        lines.setdefault((key, candidate.lead, candidate.sign), []).append(candidate)
    out: list[str] = []
    day = ""
    for (_, lead, _), parts in lines.items():
        first = parts[0]
        if (today := dates.day_text(first.time, timezone)) != day:
            day = today
            out.append(f"Date: {day}")
        time = dates.clock_text(first.time, timezone)
        out.append(f"* {first.sign} ({time}) {lead} {_joined(lead, [c.text for c in parts])}")
    return "\n".join(out)


def _joined(lead: str, texts: Sequence[str]) -> str:
    if not lead.endswith(":"):
        names = list(dict.fromkeys(texts))
        return ", ".join(names[:FILES]) + (f" and {len(names) - FILES} more" if len(names) > FILES else "")
    out = texts[0]
    for text in texts[1:]:
        out += (" " if out.endswith((".", "!", "?", "…", "。")) else "; ") + text
    return out


def _clip(text: str, limit: int) -> str:
    text = " ".join(clean_surrogates(text).split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"
