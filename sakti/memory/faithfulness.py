"""Whether a log says what its source says: what can be checked without a model. Pure.

What a line claims exactly (paths, symbols, addresses, versions, numbers with units, quoted text) must stand in what
it was made from; what a reflection no longer has of important lines and paths is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sakti.memory import lines

_URL = re.compile(r"https?://[^\s)>\]\"'`]+")
_VERSION = re.compile(r"(?<![\w./:-])v?\d+\.\d+(?:\.\d+)*(?:[-+][\w.]+)?(?![\w/%])")
_QUANTITY = re.compile(
    r"(?<![\w.])(\d+(?:[.,]\d+)*)\s?(%|ms|µs|ns|s|sec|seconds?|min|minutes?|h|hours?|days?|[kKMGT]i?B|bytes?|px|tokens?|"
    r"lines?|times|rows?|MHz|GHz|req/s)(?![\w/])"
)
_QUOTED = re.compile(r"`([^`\n]{2,200})`|\"([^\"\n]{3,200})\"|“([^”\n]{3,200})”")
_SYMBOL = re.compile(
    r"(?<![\w./-])(?:_*[a-z0-9]+(?:_[A-Za-z0-9]+)+|[A-Z]{2,}(?:_[A-Z0-9]+)+|[a-z]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*)\b"
)
_MARKS = "`'\"“”.,:;!?()[]{}<>*"
_WORD = re.compile(r"[\w./-]{4,}")
KEPT_SHARE = 0.7  # of a line's words: so many in one line of the reflection, and it was kept in other words
LISTED = 100


class Source:
    """What lines are checked against, made ready once."""

    def __init__(self, *texts: str) -> None:
        self._text = _plain("\n".join(texts))
        words = set(self._text.split())
        self._words = words | {w.strip(_MARKS) for w in words}  # most of what is looked up: no need to read all

    def has(self, claim: str) -> bool:
        """Whether a claim stands there, whatever its case and spaces."""
        wanted = _plain(claim)
        return wanted in self._words or wanted in self._text or wanted.replace(" ", "") in self._close

    @cached_property
    def _close(self) -> str:
        return self._text.replace(" ", "")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def claims(content: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of everything in a line that can be looked up."""
    rest = content
    for match in _URL.finditer(content):
        yield "url", match[0].rstrip(".,;:")
    rest = _URL.sub(" ", rest)
    for match in _QUOTED.finditer(rest):  # whole, before the paths inside it are taken out
        yield "quote", next(g for g in match.groups() if g)
    rest = _QUOTED.sub(" ", rest)
    files, _ = lines.references(rest)
    for path in files:
        yield "path", path
        rest = rest.replace(path, " ")
    for match in _QUANTITY.finditer(rest):
        yield "number", match[0]
    rest = _QUANTITY.sub(" ", rest)
    for match in _VERSION.finditer(rest):
        yield "version", match[0]
    for match in _SYMBOL.finditer(rest):
        yield "symbol", match[0]


def flags(content: str, source: Source) -> tuple[str, ...]:
    """What a line claims that its source does not have, as "path: src/auth.ts"; empty for a faithful line."""
    out: dict[str, None] = {}
    for kind, text in claims(content):
        wanted = text.removeprefix("./") if kind == "path" else text.removeprefix("v") if kind == "version" else text
        if kind == "number":
            match = _QUANTITY.fullmatch(text)
            known = source.has(text) or (match is not None and source.has(match[1]))
        else:
            known = source.has(wanted)
        if not known:
            out[f"{kind}: {text}"] = None
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What of a reflection's input is nowhere in it: important lines and paths, at most a hundred of each."""

    lines: tuple[str, ...]
    paths: tuple[str, ...]


def dropped(inputs: Sequence[str], reflection: str) -> Dropped:
    """What a reflection lost of 🔴 lines (they count as kept when most of their words stand in one line) and
    of paths."""
    have = Source(reflection)
    kept = [set(_WORD.findall(_plain(line))) for line in reflection.split("\n") if line.strip()]
    lost: dict[str, None] = {}
    paths: dict[str, None] = {}
    for text in inputs:
        for row in lines.rows(text):
            if row.priority == "high" and not have.has(row.content) and not _reworded(row.content, kept):
                lost[row.content] = None
            paths.update((p, None) for p in row.metadata["files"] if not have.has(str(p)))
    return Dropped(tuple(lost)[:LISTED], tuple(paths)[:LISTED])


def _reworded(content: str, kept: Sequence[set[str]]) -> bool:
    words = set(_WORD.findall(_plain(content)))
    return bool(words) and any(len(words & other) >= KEPT_SHARE * len(words) for other in kept)
