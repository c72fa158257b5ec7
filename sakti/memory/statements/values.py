"""Decide which values may replace each other: same kind, same unit, same notation. Pure."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache

from sakti.core.patterns import lazy_pattern
from sakti.memory.statements.lexicon import DIMENSIONS, IN_USE, MEASURES
from sakti.memory.statements.reading import Clause, Statement, Value

KINDS = {"number": "number", "date": "date", "often": "date", "place": "thing", "name": "thing", "word": "thing"}
_HEX = lazy_pattern(r"#[0-9a-f]{3,8}")
_FIGURES = lazy_pattern(r"\d+")


def alike(a: Value, b: Value) -> bool:
    """Return whether one value can replace the other."""
    if {a.shape, b.shape} == {"number", "date"}:
        clock, hour = (a, b) if a.shape == "date" else (b, a)
        return ":" in clock.key and hour.key.isdigit() and int(hour.key) <= 24 and not hour.unit  # "at 11:30", "at 10"
    if KINDS[a.shape] != KINDS[b.shape] or {a.shape, b.shape} == {"word", "place"}:
        return False
    if a.shape != "number" or not a.unit or not b.unit:
        return True
    return DIMENSIONS.get(a.unit, a.unit) == DIMENSIONS.get(b.unit, b.unit)


def near(a: Value, b: Value) -> bool:
    """Return whether two values have the same notation: the same unit, and as many parts."""
    return a.unit == b.unit and form(a.key) == form(b.key)


def same_but_number(a: str, b: str) -> bool:
    """Return whether two names differ in a number alone: "events_v1", "events_v2"."""
    return a != b and len(pattern(a)) > 4 and pattern(a) == pattern(b)


@lru_cache(8_192)
def pattern(key: str) -> str:
    """Return a name with 9 for each number in it; empty without a number, or for no name."""
    return _FIGURES.sub("9", key) if not key[:1].isdigit() and _FIGURES.search(key) else ""


def form(key: str) -> str:
    """Return the notation of a value: "9.9", "9e-9", "#", "/"; empty for a word."""
    if _HEX.fullmatch(key):
        return "#"
    return _FIGURES.sub("9", key) if key[:1].isdigit() else "/" if "/" in key else ""


def distinct(value: Value) -> str:
    """Return what distinguishes values of one thing: the noun they count, or an uncommon notation."""
    if value.unit:
        return value.unit if value.unit not in MEASURES else ""
    written = form(value.key)
    return re.sub(r"\d", "9", value.key) if "." in written or "e" in written else written if written == "#" else ""


def in_use(clause: Clause, statement: Statement, key: str) -> bool:
    """Return whether a word names what is in use, "tests run with cypress", or is all a clause says."""
    listed = clause.keys == frozenset((key,)) and len(statement.clauses) > 2
    if any(a == key and start - end == 1 for (a, _, end), (_, start, _) in itertools.pairwise(clause.tokens)):
        return False  # "on port 80": not what is in use, but what that is of
    return listed or any(k == key and IN_USE.search(statement.text, 0, s) for k, s, _ in clause.tokens)
