"""Condense a log without a model: drop repeated sentences and traces of work, keep the rest verbatim.

A mark orders what is dropped, it never drops a sentence by itself: while there is room for work there is room for
what was replaced. A line that replaces another one ranks at least as high and goes after it.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.tokens import Counter as TokenCounter
from sakti.memory.log.lines import SIGNS, share_heads
from sakti.memory.observe.extractive import NAME
from sakti.memory.protocol import ReflectInput, ReflectResult
from sakti.memory.statements.reading import clauses
from sakti.memory.statements.sentences import (
    LEAD,
    SPECIFIC,
    TOOL,
    agent_kind,
    lasts,
    split_sentences,
    telling_words,
    worth_of,
)
from sakti.store.log.replacements import MARK, NOTE, Earlier, add_marks, find_end, format_moment

# What goes first when room is short. Of one rank the oldest goes first, so that of two values the newer one stays; of
# what was stated without any, the one that says least for its length.
TRACE, DOUBTFUL, OUTCOME, ASKED, WORK, DONE, STATED, EXACT = range(8)
# What tells of work, and what was stated, go only as far as they must: to these shares of what the log may hold, so
# that the next reflection is not due at once. Where that is not known, work goes down to the target, and what was
# stated until the input is that much smaller.
ENDED_SHARE, WORK_SHARE, STATED_SHARE = 0.75, 0.9, 0.89

# What a sentence costs beside its own tokens. If that is little, the shortest stay, which say too little to answer a
# question about them: LoCoMo, evidence in the log and the window, any: 6 tokens 61.8 %, 12 63.8 %, 20 to 30 about 65 %.
LINE_TOKENS = 20
OF_AGENT = 0.85  # what the agent's words count against the user's
OF_OTHERS = 0.5  # what a further sentence of a line counts
STATES = 3  # words of a clause without a value that states something

_CLOCK = lazy_pattern(r"\((\d{1,2}:\d{2})\)")
_TIME = lazy_pattern(r"\(\d{1,2}:\d{2}\)\s*")
_DECORATION = lazy_pattern(
    r"[ \t]*(?:[*-][ \t]+)?(?:->[ \t]*)?(?:🔴|🟡|🟢|✅)?\ufe0f?[ \t]*(?:\(\d{1,2}:\d{2}\)[ \t]*)?"
)


class _LogSentence(Struct):
    """Sentence of a line, with the text between it and the next one."""

    text: str
    behind: str
    rank: int
    tokens: int
    worth: float = 0.0  # what it says for its length; only of statements
    dropped: bool = False
    replaced: bool = False

    @property
    def place(self) -> int:
        """Return when it goes: a replaced statement with the traces of work, so only if room is short."""
        return min(self.rank, WORK) if self.replaced else self.rank


class _DigestLine(Struct):
    head: str  # sign, time and speaker
    units: list[_LogSentence]
    tokens: int  # of the head
    header: str  # the date line above it
    sign: str
    user: bool
    notes: list[str]  # the words of older lines that it replaces
    pinned: bool = False

    @property
    def dropped(self) -> bool:
        return all(u.dropped for u in self.units)

    @property
    def lists_files(self) -> bool:
        """Return whether the units are names of files that the agent changed."""
        return self.head.rstrip().endswith("Agent changed")


class _DropTargets(Struct, frozen=True):
    """Tokens of the log down to which sentences are dropped, by their place."""

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
        if sentence.place < WORK:
            return self.trace
        if sentence.place > DONE:
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
        return await asyncio.to_thread(self.condense, request)  # a tenth of a second for a long log: the screen goes on

    def condense(self, request: ReflectInput) -> ReflectResult:
        """Condense as `reflect` does, in the calling thread."""
        before = sum(self._counter.count(t) for _, t in request.groups)
        lines = self._lines("\n".join(t for _, t in request.groups), {_bare(p) for p in request.pinned})
        _value(lines)
        _order_replaced(lines)
        _drop_repeated(lines)
        for unit in (u for line in lines for u in line.units if u.replaced):
            unit.tokens = self._counter.count(unit.text + unit.behind)
        targets = _DropTargets.of(request, before)
        while self._drop_down_to(targets, lines):  # lines share heads with those above: the rest is counted again
            pass
        out = _write(lines)
        if not out or self._counter.count(out) >= before:
            raise MemoryFailure("The log cannot be condensed further without a model: it stays.", code="not_smaller")
        return ReflectResult(out, model=NAME, prompt_hash=NAME, level=request.start_level)

    def _drop_down_to(self, targets: _DropTargets, lines: Sequence[_DigestLine]) -> bool:
        """Drop sentences down to the targets; return whether any was dropped."""
        total = start = self._counter.count(share_heads(_write(lines)))
        units = [(u.place, not u.replaced, u.worth, n, u, line) for n, line in enumerate(lines) for u in line.units]
        for _, _, _, _, unit, line in sorted(units, key=lambda entry: entry[:4]):
            if total <= targets.limit_of(unit) or unit.dropped or line.pinned:
                continue
            unit.dropped = True
            total -= unit.tokens + (line.tokens if line.dropped else 0)
        return total < start

    def _lines(self, text: str, pinned: set[str]) -> list[_DigestLine]:
        out: list[_DigestLine] = []
        header = ""
        for raw in text.split("\n"):
            line = raw.rstrip()
            if not line.strip():
                continue
            if line.startswith("Date:"):
                header = line
                continue
            out.append(self._line(line, header, _bare(line) in pinned))
        return out

    def _line(self, line: str, header: str, pinned: bool) -> _DigestLine:
        count = self._counter.count
        sign = next((name for s, name in SIGNS.items() if s in line[:16]), "none")
        decoration = _DECORATION.match(line)
        start = decoration.end() if decoration else 0
        content = line[start:]
        notes = [match["text"].rstrip("…") for match in NOTE.finditer(content)]
        if notes:
            content = NOTE.sub("", content)
        lead, tool = LEAD.match(content), TOOL.match(content)
        user = content[:5].casefold() == "user " or content[:9].casefold() == "the user "
        head, parts = _divide(content, lead, tool)
        head = line[:start] + head
        nested = line[0] in " \t" and sign == "none"
        units = [_LogSentence(t, b, TRACE if nested else _rank(sign, lead, tool, t), count(t + b)) for t, b in parts]
        return _DigestLine(head, units, count(head) + 1, header, sign, user, notes, pinned)


def _divide(
    content: str, lead: re.Match[str] | None, tool: re.Match[str] | None
) -> tuple[str, Sequence[tuple[str, str]]]:
    """Return the beginning of a line's content, and its sentences or files with the text behind each."""
    if lead is not None:
        return lead[0], list(split_sentences(content[lead.end() :]))
    if tool is not None and tool["files"]:
        *names, last = tool["files"].split(", ")
        return content[: tool.start("files")], [*((name, ", ") for name in names), (last, "")]
    return "", [(content, "")]


def _value(lines: Sequence[_DigestLine]) -> None:
    """Set the worth of statements: of a line's best one in full, of its others half.

    A word counts more the fewer lines have it: what many lines say is dropped sooner than what one line says. One good
    sentence leads to its message, so the log rather covers many messages than few of them completely.
    """
    often = Counter(w for line in lines for w in set[str]().union(*(telling_words(u.text) for u in line.units)))
    for line in lines:
        stated = [u for u in line.units if u.rank == STATED]
        for unit in stated:
            worth = worth_of(unit.text, unit.tokens + LINE_TOKENS, lambda word: math.log(1 + len(lines) / often[word]))
            unit.worth = worth if line.user else worth * OF_AGENT
        best = max(stated, key=lambda u: u.worth, default=None)
        for unit in stated:
            unit.worth *= 1.0 if unit is best else OF_OTHERS


def _rank(sign: str, lead: re.Match[str] | None, tool: re.Match[str] | None, text: str) -> int:
    if sign == "high":
        return EXACT if lasts(text) else STATED
    if lead is not None and lead[1] == "Agent said":
        return STATED
    if sign in ("done", "low"):
        return DONE if sign == "done" else TRACE
    if tool is not None:
        return WORK if tool["files"] else OUTCOME if tool["command"] else TRACE
    if lead is not None and lead[1].startswith("User"):
        return ASKED
    return _rank_of_work(text, is_agents=lead is not None)


def _rank_of_work(text: str, *, is_agents: bool) -> int:
    """Return the rank of a line by the agent, or of one without a speaker."""
    if is_agents and (sentence_kind := agent_kind(text)) != "work":
        return DOUBTFUL if sentence_kind == "intent" else OUTCOME
    return WORK if SPECIFIC.search(text) else OUTCOME


def _bare(line: str) -> str:
    text = line.strip().lstrip("*- ")
    for sign in SIGNS:
        text = text.replace(sign, "")
    return _TIME.sub("", text).strip().casefold()


def _drop_repeated(lines: Sequence[_DigestLine]) -> None:
    """Drop repeats: keep the first of equal sentences, the newest of equal files and commands."""
    seen: set[tuple[bool, str]] = set()
    for line in (line for line in lines if not line.lists_files):
        for unit in line.units:
            if unit.dropped or unit.replaced:  # a statement repeated after a change is current
                continue
            key = (line.user, _bare(unit.text))
            unit.dropped = key in seen and not line.pinned
            seen.add(key)
    newest: set[str] = set()
    for line in reversed(lines):
        for unit in line.units:
            if unit.dropped or not (key := _work_key(line, unit)):
                continue
            unit.dropped = key in newest and not line.pinned
            newest.add(key)


def _work_key(line: _DigestLine, unit: _LogSentence) -> str:
    """Return the file or the command that a unit names; empty for others."""
    if line.lists_files:
        return f"file {unit.text}"
    match = TOOL.match(unit.text)
    return (match["command"] or "") if match else ""


def _order_replaced(lines: Sequence[_DigestLine]) -> None:
    """Mark words replaced by later lines, from their notes; raise those lines to the replaced rank."""
    for number, newer in enumerate(lines):
        for words in newer.notes:
            for older in lines[:number]:
                for unit in older.units if older.sign != "done" and not older.pinned else ():
                    if find_end(unit.text, words) is not None:
                        unit.text = add_marks(unit.text, [Earlier(words, *_moment(newer))], _date(older))
    for number, older in enumerate(lines):
        for unit in older.units:
            times = {match["when"] for match in MARK.finditer(unit.text)}
            unit.replaced = bool(times) and _statements(unit.text) <= len(MARK.findall(unit.text))
            for newer in lines[number + 1 :] if times else ():
                if format_moment(*_moment(newer), _date(older)) in times:
                    _outlive(newer, unit)


def _statements(text: str) -> int:
    """Return how many clauses of a sentence state something by themselves."""
    return sum(bool(c.values) or len(c.words) >= STATES for c in clauses(MARK.sub("", text)))


def _outlive(newer: _DigestLine, older: _LogSentence) -> None:
    """Raise a line of the time that a mark names to the rank of the sentence that it ends.

    The agent's lines of that minute end nothing, and requests end no statement unless a note says so.
    """
    if newer.notes or newer.sign == "high" or (newer.user and older.rank < STATED):
        for unit in newer.units:
            unit.rank, unit.worth = max(unit.rank, older.rank), max(unit.worth, older.worth)


def _moment(line: _DigestLine) -> tuple[str, str]:
    """Return date and time of a line, as marks name them."""
    time = _CLOCK.search(line.head)
    return _date(line), time[1] if time else ""


def _date(line: _DigestLine) -> str:
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
