"""Condensing a log without a model: what is repeated, replaced or only a trace of work goes, the rest stays word for
word."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sakti.core.errors import MemoryFailure
from sakti.core.tokens import Counter
from sakti.memory.extractive import NAME
from sakti.memory.lines import SIGNS
from sakti.memory.protocol import ReflectInput, ReflectResult
from sakti.memory.sentences import SPECIFIC, agent_kind, lasts
from sakti.memory.superseding import superseded

# What goes first when room is short. Of one rank the oldest goes first.
TRACE, DOUBTFUL, OUTCOME, ASKED, WORK, DONE, STATED, EXACT = range(8)
# What tells of work, and what was stated, go only as far as they must: to these shares of what the log may hold, so
# that the next reflection is not due at once. Where that is not known, work goes down to the target, and what was
# stated until the input is that much smaller.
WORK_SHARE, STATED_SHARE = 0.85, 0.95

_LEAD = re.compile(r"(User (?:stated|said|asked for|asked|quoted)|Agent(?: asked)?):\s+")
_TOOL = re.compile(r"Agent (?:ran (?P<command>`[^`]*`)|used |changed (?P<files>.+))")
_SPOKEN = re.compile(r"^(?:the )?(?:user|agent|assistant)\b(?: \w+ that\b| (?:stated|said)\b)?", re.IGNORECASE)
_BOUNDARY = re.compile(r"(?<=[.!?…])(\s+)(?=[\"'`(\[]?[A-Z0-9`])|(; )|(?<=[。！？])( )")
_TIME = re.compile(r"\(\d{1,2}:\d{2}\)\s*")
_DECORATION = re.compile(r"[ \t]*(?:[*-][ \t]+)?(?:->[ \t]*)?(?:🔴|🟡|🟢|✅)?\ufe0f?[ \t]*(?:\(\d{1,2}:\d{2}\)[ \t]*)?")


@dataclass(slots=True)
class _Unit:
    """A sentence of a line, with what stands between it and the next one."""

    text: str
    behind: str
    rank: int
    tokens: int
    dropped: bool = False


@dataclass(slots=True)
class _Line:
    head: str  # sign, time and speaker
    units: list[_Unit]
    tokens: int  # of the head
    header: str  # the date line above it
    sign: str
    user: bool
    pinned: bool = False
    children: list[_Line] = field(default_factory=list["_Line"])

    @property
    def dropped(self) -> bool:
        return all(u.dropped for u in self.units)


class ExtractiveReflector:
    name = NAME

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    async def reflect(self, request: ReflectInput) -> ReflectResult:
        """Repeated and replaced sentences go at once; then, until the target is met, traces of work, outcomes and
        requests, oldest first, and what the user stated last; pinned lines stay. Raises `MemoryFailure` (not_smaller)
        where nothing could go."""
        return await asyncio.to_thread(self.condense, request)  # a tenth of a second for a long log: the screen goes on

    def condense(self, request: ReflectInput) -> ReflectResult:
        """As `reflect`."""
        before = sum(self._counter.count(t) for _, t in request.groups)
        lines = self._lines("\n".join(t for _, t in request.groups), {_bare(p) for p in request.pinned})
        _drop_repeated(lines)
        _drop_superseded(lines)
        self._drop_down_to(lines, request.target_tokens, request.limit_tokens, before)
        out = _write(lines)
        if not out or self._counter.count(out) >= before:
            raise MemoryFailure("The log cannot be condensed further without a model: it stays.", code="not_smaller")
        return ReflectResult(out, model=NAME, prompt_hash=NAME, level=request.start_level)

    def _drop_down_to(self, lines: list[_Line], target: int, limit: int | None, before: int) -> None:
        kept = [line for line in lines if not line.dropped]
        total = sum(line.tokens + sum(u.tokens for u in line.units if not u.dropped) for line in kept)
        work = max(target, int((limit or 0) * WORK_SHARE))
        least = (*[target] * WORK, work, work, *[max(target, int((limit or before) * STATED_SHARE))] * 2)
        units = [(u.rank, place, u, line) for place, line in enumerate(lines) for u in line.units]
        for rank, _, unit, line in sorted(units, key=lambda found: found[:2]):
            if total <= least[rank]:
                break
            if unit.dropped or line.pinned:
                continue
            unit.dropped = True
            total -= unit.tokens + (line.tokens if line.dropped else 0)

    def _lines(self, text: str, pinned: set[str]) -> list[_Line]:
        out: list[_Line] = []
        header, above = "", None
        for raw in text.split("\n"):
            line = raw.rstrip()
            if not line.strip():
                continue
            if line.startswith("Date:"):
                header = line
                continue
            made = self._line(line, header, _bare(line) in pinned)
            nested = line[0] in " \t"
            if nested and above is not None:
                above.children.append(made)
            else:
                above = made
            out.append(made)
        return out

    def _line(self, line: str, header: str, pinned: bool) -> _Line:
        count = self._counter.count
        sign = next((name for s, name in SIGNS.items() if s in line[:16]), "none")
        decoration = _DECORATION.match(line)
        start = decoration.end() if decoration else 0
        content = line[start:]
        lead = _LEAD.match(content)
        tool = _TOOL.match(content)
        user = content[:5].casefold() == "user " or content[:9].casefold() == "the user "
        parts: list[tuple[str, str]]
        if lead is not None:
            start += lead.end()
            parts = list(_sentences(line[start:]))
        elif tool is not None and tool["files"]:
            start += tool.start("files")
            names = tool["files"].split(", ")
            parts = [(name, ", " if i < len(names) - 1 else "") for i, name in enumerate(names)]
        else:
            parts = [(content, "")]
        nested = line[0] in " \t" and sign == "none"
        units = [_Unit(t, b, TRACE if nested else _rank(sign, lead, tool, t), count(t + b)) for t, b in parts]
        return _Line(line[:start], units, count(line[:start]) + 1, header, sign, user, pinned)


def _rank(sign: str, lead: re.Match[str] | None, tool: re.Match[str] | None, text: str) -> int:
    exact = bool(SPECIFIC.search(text))
    if sign == "high":
        return EXACT if lasts(text) else STATED
    if sign == "done":
        return DONE
    if sign == "low":
        return TRACE
    if tool is not None:
        return WORK if tool["files"] else OUTCOME if tool["command"] else TRACE
    if lead is not None and lead[1].startswith("User"):
        return ASKED
    if lead is not None and (found := agent_kind(text)) != "work":
        return DOUBTFUL if found == "intent" else OUTCOME
    return WORK if exact else OUTCOME


def _sentences(text: str) -> Iterator[tuple[str, str]]:
    """Sentences with what follows them; put together again they are the text."""
    at = 0
    for match in _BOUNDARY.finditer(text):
        yield text[at : match.start()], match[0]
        at = match.end()
    if at < len(text):
        yield text[at:], ""


def _bare(line: str) -> str:
    text = line.strip().lstrip("*- ")
    for sign in SIGNS:
        text = text.replace(sign, "")
    return _TIME.sub("", text).strip().casefold()


def _drop_repeated(lines: Sequence[_Line]) -> None:
    """Of equal sentences the first stays, of equal names of files and of outcomes of one command the newest."""
    seen: set[tuple[bool, str]] = set()
    newest: set[str] = set()
    for line in lines:
        for unit in line.units if not line.head.rstrip().endswith("Agent changed") else ():
            key = (line.user, _bare(unit.text))
            if key in seen and not line.pinned:
                unit.dropped = True
            seen.add(key)
    for line in reversed(lines):
        changed = line.head.rstrip().endswith("Agent changed")
        for unit in line.units:
            match = _TOOL.match(unit.text)
            key = f"file {unit.text}" if changed else match["command"] if match and match["command"] else ""
            if key and key in newest and not line.pinned:
                unit.dropped = True
            newest.add(key)


def _drop_superseded(lines: Sequence[_Line]) -> None:
    """What a later sentence of the same speaker replaces goes, with what is nested under it; what it may replace goes
    early."""
    for user in (True, False):
        said = [
            (line, unit)
            for line in lines
            for unit in line.units
            if line.user == user and not unit.dropped and not _TOOL.match(unit.text)
        ]
        for place, verdict in superseded([_SPOKEN.sub("", unit.text) for _, unit in said]).items():
            line, unit = said[place]
            if line.pinned or line.sign == "done":
                continue
            if verdict == "doubtful":
                unit.rank = min(unit.rank, DOUBTFUL)
                continue
            unit.dropped = True
            if line.dropped:
                for child in line.children:
                    for nested in child.units:
                        nested.dropped = nested.dropped or not child.pinned


def _write(lines: Sequence[_Line]) -> str:
    out: list[str] = []
    header = ""
    for line in lines:
        if line.dropped:
            continue
        if line.header != header:
            header = line.header
            out.append(header)
        kept = [u for u in line.units if not u.dropped]
        last = kept[-1]
        out.append(line.head + "".join(u.text + (u.behind if u is not last else "") for u in kept))
    return "\n".join(out)
