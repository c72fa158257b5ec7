"""Condense a log without a model: drop repeated sentences and traces of work, keep the rest verbatim.

Marks affect the order in which sentences are dropped, but never drop a sentence by themselves: while there is room
for work there is room for replaced statements. A line that replaces another one ranks at least as high and is dropped
later.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.tokens import Counter as TokenCounter
from sakti.memory.log.lines import PRIORITY_SYMBOLS, share_heads
from sakti.memory.observe.extractive import NAME
from sakti.memory.protocol import ReflectInput, ReflectResult
from sakti.memory.statements.reading import split_clauses
from sakti.memory.statements.sentences import (
    LEAD,
    SPECIFIC,
    TOOL,
    classify_agent_sentence,
    collect_content_words,
    compute_worth,
    is_lasting,
    split_sentences,
)
from sakti.store.log.replacements import MARK, NOTE, Earlier, add_marks, find_end, format_moment

# Ranks, in the order in which sentences are dropped. Within a rank the oldest is dropped first, so that the newer of
# two values stays; for statements without an exact value, the one with the fewest meaningful words per token.
TRACE, DOUBTFUL, OUTCOME, ASKED, WORK, DONE, STATED, EXACT = range(8)
# Work and statements are dropped only down to these shares of the log's limit, so that the next reflection is not due
# at once. If no limit is known, work is dropped down to the target, and statements down to that share of the input.
ENDED_SHARE, WORK_SHARE, STATED_SHARE = 0.75, 0.9, 0.89

# Cost of a sentence besides its own tokens. If it is low, the shortest sentences stay, which say too little to answer
# a question about them: LoCoMo, evidence in the log and the window, any: 6 tokens 61.8 %, 12 63.8 %, 20 to 30 about
# 65 %.
LINE_TOKENS = 20
OF_AGENT = 0.85  # weight of the agent's words relative to the user's
OF_OTHERS = 0.5  # weight of a line's sentences besides the best one
STATES = 3  # words of a clause that can be a statement without a value

_CLOCK = lazy_pattern(r"\((\d{1,2}:\d{2})\)")
_TIME = lazy_pattern(r"\(\d{1,2}:\d{2}\)\s*")
_DECORATION = lazy_pattern(
    r"[ \t]*(?:[*-][ \t]+)?(?:->[ \t]*)?(?:🔴|🟡|🟢|✅)?\ufe0f?[ \t]*(?:\(\d{1,2}:\d{2}\)[ \t]*)?"
)


class _LogSentence(Struct):
    """Sentence of a line, with the text up to the next one."""

    text: str
    behind: str
    rank: int
    tokens: int
    worth: float = 0.0  # meaningful words per token; only for statements
    dropped: bool = False
    replaced: bool = False

    @property
    def order(self) -> int:
        """Return its rank for dropping; a replaced statement ranks like work."""
        return min(self.rank, WORK) if self.replaced else self.rank


class _DigestLine(Struct):
    head: str  # symbol, time and speaker
    units: list[_LogSentence]
    tokens: int  # of the head
    header: str  # the date line above it
    sign: str
    is_users: bool
    notes: list[str]  # words of older lines that the line replaces
    pinned: bool = False

    @property
    def dropped(self) -> bool:
        return all(u.dropped for u in self.units)

    @property
    def lists_files(self) -> bool:
        """Return whether its units are names of files changed by the agent."""
        return self.head.rstrip().endswith("Agent changed")


class _DropTargets(Struct, frozen=True):
    """Sizes of the log, in tokens, down to which sentences of each rank are dropped."""

    trace: int
    ended: int
    work: int
    stated: int

    @classmethod
    def of(cls, request: ReflectInput, before: int) -> _DropTargets:
        target, limit = request.target_tokens, request.limit_tokens or 0
        ended, work = (max(target, int(limit * share)) for share in (ENDED_SHARE, WORK_SHARE))
        return cls(target, ended, work, max(target, int((limit or before) * STATED_SHARE)))

    def limit_of(self, sentence: _LogSentence) -> int:
        if sentence.order < WORK:
            return self.trace
        if sentence.order > DONE:
            return self.stated
        return self.ended if sentence.replaced else self.work


class ExtractiveReflector:
    name = NAME

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """Condense the log.

        Repeated sentences are dropped first; then, until the target is met, traces of work, outcomes and requests,
        oldest first, and the user's statements last. Pinned lines stay. Raises `MemoryFailure` (not_smaller) if
        nothing could be dropped.
        """
        return await asyncio.to_thread(self.condense, request)  # a long log takes a tenth of a second

    def condense(self, request: ReflectInput) -> ReflectResult:
        """Condense like `reflect`, in the calling thread."""
        before = sum(self._counter.count(t) for _, t in request.groups)
        lines = self._read_lines("\n".join(t for _, t in request.groups), {_strip_line(p) for p in request.pinned})
        _set_worth(lines)
        _rank_replaced(lines)
        _drop_repeated(lines)
        for unit in (u for line in lines for u in line.units if u.replaced):
            unit.tokens = self._counter.count(unit.text + unit.behind)
        targets = _DropTargets.of(request, before)
        while self._drop_down_to(targets, lines):  # dropping changes which lines share a speaker: count again
            pass
        out = _write(lines)
        if not out or self._counter.count(out) >= before:
            raise MemoryFailure("The log cannot be condensed further without a model: it stays.", code="not_smaller")
        return ReflectResult(out, model=NAME, prompt_hash=NAME, level=request.start_level)

    def _drop_down_to(self, targets: _DropTargets, lines: Sequence[_DigestLine]) -> bool:
        """Drop sentences down to the targets; return whether any was dropped."""
        total = start = self._counter.count(share_heads(_write(lines)))
        units = [(u.order, not u.replaced, u.worth, n, u, line) for n, line in enumerate(lines) for u in line.units]
        for _, _, _, _, unit, line in sorted(units, key=lambda entry: entry[:4]):
            if total <= targets.limit_of(unit) or unit.dropped or line.pinned:
                continue
            unit.dropped = True
            total -= unit.tokens + (line.tokens if line.dropped else 0)
        return total < start

    def _read_lines(self, text: str, pinned: set[str]) -> list[_DigestLine]:
        out: list[_DigestLine] = []
        header = ""
        for raw in text.split("\n"):
            line = raw.rstrip()
            if not line.strip():
                continue
            if line.startswith("Date:"):
                header = line
                continue
            out.append(self._line(line, header, _strip_line(line) in pinned))
        return out

    def _line(self, line: str, header: str, pinned: bool) -> _DigestLine:
        count = self._counter.count
        sign = next((name for s, name in PRIORITY_SYMBOLS.items() if s in line[:16]), "none")
        decoration = _DECORATION.match(line)
        start = decoration.end() if decoration else 0
        content = line[start:]
        notes = [match["text"].rstrip("…") for match in NOTE.finditer(content)]
        if notes:
            content = NOTE.sub("", content)
        lead, tool = LEAD.match(content), TOOL.match(content)
        is_users = content.casefold().startswith(("user ", "the user "))
        head, parts = _divide(content, lead, tool)
        head = line[:start] + head
        nested = line[0] in " \t" and sign == "none"
        units = [_LogSentence(t, b, TRACE if nested else _rank(sign, lead, tool, t), count(t + b)) for t, b in parts]
        return _DigestLine(head, units, count(head) + 1, header, sign, is_users, notes, pinned)


def _divide(
    content: str, lead: re.Match[str] | None, tool: re.Match[str] | None
) -> tuple[str, Sequence[tuple[str, str]]]:
    """Return the beginning of a line's content, and its sentences or files with the text after each."""
    if lead is not None:
        return lead[0], list(split_sentences(content[lead.end() :]))
    if tool is not None and tool["files"]:
        *names, last = tool["files"].split(", ")
        return content[: tool.start("files")], [*((name, ", ") for name in names), (last, "")]
    return "", [(content, "")]


def _set_worth(lines: Sequence[_DigestLine]) -> None:
    """Set the worth of statements: the best one of a line counts fully, the others half.

    A word counts more the fewer lines have it, so that repeated topics are dropped before single ones. One good
    sentence is enough to find its message, so a log covers many messages rather than a few of them completely.
    """
    frequency = Counter(word for line in lines for word in collect_content_words(" ".join(u.text for u in line.units)))

    def rarity(word: str) -> float:
        return math.log(1 + len(lines) / frequency[word])

    for line in lines:
        stated = [u for u in line.units if u.rank == STATED]
        for unit in stated:
            worth = compute_worth(unit.text, unit.tokens + LINE_TOKENS, rarity)
            unit.worth = worth if line.is_users else worth * OF_AGENT
        best = max(stated, key=lambda u: u.worth, default=None)
        for unit in (u for u in stated if u is not best):
            unit.worth *= OF_OTHERS


def _rank(sign: str, lead: re.Match[str] | None, tool: re.Match[str] | None, text: str) -> int:
    speech = lead[1] if lead is not None else ""
    if sign == "high":
        return EXACT if is_lasting(text) else STATED
    if speech == "Agent said":
        return STATED
    if sign in ("done", "low"):
        return DONE if sign == "done" else TRACE
    if tool is not None:
        return WORK if tool["files"] else OUTCOME if tool["command"] else TRACE
    return ASKED if speech.startswith("User") else _rank_of_work(text, is_agents=bool(speech))


def _rank_of_work(text: str, *, is_agents: bool) -> int:
    """Return the rank of a line by the agent or without a speaker."""
    if is_agents and (sentence_kind := classify_agent_sentence(text)) != "work":
        return DOUBTFUL if sentence_kind == "intent" else OUTCOME
    return WORK if SPECIFIC.search(text) else OUTCOME


def _strip_line(line: str) -> str:
    text = line.strip().lstrip("*- ")
    for sign in PRIORITY_SYMBOLS:
        text = text.replace(sign, "")
    return _TIME.sub("", text).strip().casefold()


def _drop_repeated(lines: Sequence[_DigestLine]) -> None:
    """Drop repeats: keep the first of equal sentences, the newest of equal files and commands."""
    statements = ((x, u, (x.is_users, _strip_line(u.text))) for x in lines if not x.lists_files for u in x.units)
    # a statement repeated after a change is current
    _drop_seen((line, unit, key) for line, unit, key in statements if not unit.replaced)
    work = ((line, u, _work_key(line, u)) for line in reversed(lines) for u in line.units if not u.dropped)
    _drop_seen((line, unit, key) for line, unit, key in work if key)


def _drop_seen(keyed: Iterable[tuple[_DigestLine, _LogSentence, object]]) -> None:
    """Drop each sentence whose key an earlier one has, except in pinned lines."""
    seen: set[object] = set()
    for line, unit, key in keyed:
        unit.dropped = key in seen and not line.pinned
        seen.add(key)


def _work_key(line: _DigestLine, unit: _LogSentence) -> str:
    """Return the file or command named in a unit; empty for others."""
    if line.lists_files:
        return f"file {unit.text}"
    match = TOOL.match(unit.text)
    return (match["command"] or "") if match else ""


def _rank_replaced(lines: Sequence[_DigestLine]) -> None:
    """Mark sentences replaced by later lines, and rank those lines at least as high."""
    for number, newer in enumerate(lines):
        for words in newer.notes:
            _mark_words(lines[:number], Earlier(words, *_get_moment(newer)))
    for number, older in enumerate(lines):
        for unit in older.units:
            times = [match["when"] for match in MARK.finditer(unit.text)]
            if times:
                unit.replaced = _count_statements(unit.text) <= len(times)
                _raise_newer(lines[number + 1 :], unit, _get_date(older), times)


def _mark_words(lines: Sequence[_DigestLine], replaced: Earlier) -> None:
    """Mark replaced words in older lines; finished and pinned lines stay as they are."""
    for line in (line for line in lines if line.sign != "done" and not line.pinned):
        for unit in line.units:
            if find_end(unit.text, replaced.text) is not None:
                unit.text = add_marks(unit.text, [replaced], _get_date(line))


def _count_statements(text: str) -> int:
    """Count the clauses of a sentence that are statements by themselves."""
    return sum(bool(c.values) or len(c.words) >= STATES for c in split_clauses(MARK.sub("", text)))


def _raise_newer(lines: Sequence[_DigestLine], older: _LogSentence, date: str, times: Sequence[str]) -> None:
    """Raise the lines at the times named in marks to the rank of the sentences that they replace.

    The agent's lines of such a minute replace nothing, and requests replace no statement unless a note says so.
    """
    for newer in (line for line in lines if format_moment(*_get_moment(line), date) in times):
        if newer.notes or newer.sign == "high" or (newer.is_users and older.rank < STATED):
            for unit in newer.units:
                unit.rank, unit.worth = max(unit.rank, older.rank), max(unit.worth, older.worth)


def _get_moment(line: _DigestLine) -> tuple[str, str]:
    """Return date and time of a line, as marks name them."""
    time = _CLOCK.search(line.head)
    return _get_date(line), time[1] if time else ""


def _get_date(line: _DigestLine) -> str:
    return line.header.removeprefix("Date:").strip()


def _write(lines: Sequence[_DigestLine]) -> str:
    out: list[str] = []
    header = ""
    for line in lines:
        if line.dropped:
            continue
        if line.header != header:
            header = line.header
            out.append(header)
        units = [u for u in line.units if not u.dropped]
        out.append(line.head + "".join(u.text + (u.behind if u is not units[-1] else "") for u in units))
    return "\n".join(out)
