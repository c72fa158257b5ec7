"""Parse a log into rows: one for each line, with its metadata. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json
from sakti.store.log.replacements import MARK, NOTE

Priority: TypeAlias = Literal["high", "medium", "low", "done", "none"]
PRIORITY_SYMBOLS: dict[str, Priority] = {"🔴": "high", "🟡": "medium", "🟢": "low", "✅": "done"}

_HEADER = lazy_pattern(r"Date:\s*(.+)")
_LINE = lazy_pattern(
    r"(?P<indent>[ \t]*)(?:[*-][ \t]+)?(?P<arrow>->[ \t]*)?(?P<sign>🔴|🟡|🟢|✅)?\ufe0f?[ \t]*"
    r"(?:\((?P<time>\d{1,2}:\d{2})\)[ \t]*)?(?P<content>.*)"
)
# A path: something with a slash and an extension, or a bare file name with an extension that code has.
_EXTENSION = (
    "py|pyi|ts|tsx|js|jsx|mjs|cjs|go|rs|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|bash|zsh|sql|html|css|scss|"
    "vue|svelte|md|rst|txt|json|jsonl|toml|yaml|yml|xml|ini|cfg|conf|env|lock|proto|graphql|tf|gradle|ipynb|tcss"
)
_PATH = lazy_pattern(
    rf"(?<![\w./-])((?:[\w.@~-]+/)+[\w.@-]*\.\w{{1,8}}|/?(?:[\w.@~-]+/)+[\w.@-]+\.\w{{1,8}}|[\w@-][\w.@-]*\.(?:{_EXTENSION}))"
    r"(?::(\d+)(?:-(\d+))?)?(?![\w/])"
)
# The beginning of a line noted without a model: symbol, time, and speaker.
_HEAD = lazy_pattern(
    r"(?P<sign>\* (?:(?:🔴|🟡|🟢|✅)\ufe0f? )?)\((?P<hour>\d{1,2}):(?P<minute>\d\d)\) "
    r"(?P<speaker>(?:User|Agent)(?: [a-z]+){0,2}: )"
)
SITTING = 30  # minutes within which the lines share a time
_FIELD = lazy_pattern(r"\s*([A-Za-z][\w -]{0,30}):\s+(\S.*)")
_LINES = lazy_pattern(r"\blines?\s+(\d+)(?:\s*[-–]\s*(\d+))?")


class LogRow(Struct, frozen=True):
    """One line; `date` as in its header, `time` HH:MM or empty, `metadata`: files, line_numbers."""

    line: int
    date: str
    time: str
    priority: Priority
    depth: int
    content: str
    metadata: Json


def iter_rows(text: str) -> Iterator[LogRow]:
    """Yield the lines of a log in order, with the date of their header; skip empty lines."""
    date, number = "", 0
    for raw in text.split("\n"):
        if not raw.strip():
            continue
        if header := _HEADER.fullmatch(raw.strip()):
            date = header[1].strip()
            continue
        if (parsed := _parse_line(raw)) is None:
            continue
        time, priority, depth, content, files, numbers = parsed
        yield LogRow(
            number, date, time, priority, depth, content, {"files": list(files), "line_numbers": list(numbers)}
        )
        number += 1


_Parsed: TypeAlias = tuple[str, Priority, int, str, tuple[str, ...], tuple[str, ...]]


@lru_cache(4_096)  # each observation parses the log again, mostly unchanged
def _parse_line(raw: str) -> _Parsed | None:
    match = _LINE.fullmatch(raw)
    if match is None or not match["content"].strip():
        return None
    content = match["content"].strip()
    files, numbers = find_references(content)
    depth = len(match["indent"].replace("\t", "  ")) // 2
    sign = PRIORITY_SYMBOLS.get(match["sign"] or "", "none")
    return match["time"] or "", sign, depth, content, tuple(files), tuple(numbers)


def apply_corrections(text: str, changes: Mapping[int, str | None]) -> str:
    """Apply corrections to a log: line number → new content, or None for a removed line.

    A date header without lines is removed, too.
    """
    out: list[str] = []
    number = 0
    for raw in text.split("\n"):
        match = _match_numbered(raw)
        if match is None:
            out.append(raw)
            continue
        content = changes.get(number, match["content"])
        if content is not None:
            out.append(raw[: match.start("content")] + content if number in changes else raw)
        number += 1
    remaining = [line for i, line in enumerate(out) if not _is_header(line) or _has_line_below(out[i + 1 :])]
    return "\n".join(remaining).strip("\n")


def _match_numbered(raw: str) -> re.Match[str] | None:
    """Return the parts of a numbered line; None for blank lines and date headers."""
    match = None if _is_header(raw) else _LINE.fullmatch(raw)
    return match if match is not None and match["content"].strip() else None


def _is_header(line: str) -> bool:
    return _HEADER.fullmatch(line.strip()) is not None


def _has_line_below(lines: Sequence[str]) -> bool:
    """Return whether the first non-empty line is no date header."""
    return next((not _is_header(line) for line in lines if line.strip()), False)


def with_high_priority(text: str, numbers: Collection[int]) -> str:
    """Mark the lines of these numbers in a log as important."""
    out = text.split("\n")
    at = [n for n, raw in enumerate(out) if raw.strip() and not _HEADER.fullmatch(raw.strip()) and _parse_line(raw)]
    for number in numbers:
        raw, match = out[at[number]], _LINE.fullmatch(out[at[number]])
        if match is not None and match["sign"]:
            out[at[number]] = raw[: match.start("sign")] + "🔴" + raw[match.end("sign") :]
    return "\n".join(out)


def with_sections(text: str, sections: Iterable[tuple[str, str]]) -> tuple[str, dict[str, str]]:
    """Append the lines of sections (name, line) to a log, except those that it already has.

    Also return the section of each line, by the line's content.
    """
    have = {row.content for row in iter_rows(text)}
    out, names = [text] if text else [], dict[str, str]()
    for name, line in sections:
        row = next(iter_rows(line), None)
        if row is None:
            continue
        if row.content not in have:
            have.add(row.content)
            out.append(line if row.priority != "none" else line.replace("* ", "* 🟡 ", 1))
        names[row.content] = name
    return "\n".join(out), names


def parse_fields(content: str) -> dict[str, str]:
    """Parse the named fields at the end of a section's line: ` | outcome: failed | file: a.py`."""
    _, *pieces = content.split(" | ")
    return {field[1].strip().lower(): field[2].strip() for piece in pieces if (field := _FIELD.fullmatch(piece))}


def share_heads(text: str) -> str:
    """Remove speakers and times from a log that repeat those of the line above.

    The first of several consecutive lines of a speaker keeps the speaker, and the others are nested below it. A time
    holds for half an hour. Marked lines stay, since marks name times; so do those that a model wrote.
    """
    out: list[str] = []
    shown, above = -SITTING, ""
    for line in text.split("\n"):
        match = _HEAD.match(line)
        if match is None:
            shown = -SITTING if _HEADER.match(line) else shown
            above = ""
        else:
            minute, head = 60 * int(match["hour"]) + int(match["minute"]), match["sign"] + match["speaker"]
            if not 0 <= minute - shown < SITTING or MARK.search(line) or NOTE.search(line):
                shown = minute
            else:
                line = ("  * " if head == above else head) + line[match.end() :]
            above = head
        out.append(line)
    return "\n".join(out)


def find_references(text: str) -> tuple[list[str], list[str]]:
    """Return the files named in a line, and the line numbers ("12" or "12-40")."""
    files: dict[str, None] = {}
    numbers: dict[str, None] = {}
    for path, first, last in _PATH.findall(text):
        files[path] = None
        if first:
            numbers[f"{first}-{last}" if last else first] = None
    for first, last in _LINES.findall(text):
        numbers[f"{first}-{last}" if last else first] = None
    return list(files), list(numbers)
