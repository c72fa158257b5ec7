"""Which statements a later one replaces: the same subject, and words that take back or put in its place. Pure.

A clause is replaced where a later statement names its value as past, or says another value of the same kind of (nearly)
the same subject. Where that is not certain it is doubtful: to be marked and let go of early, but not at once.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sakti.memory.comparing import Found, Frequency, Pair, Verdict, alike, compared
from sakti.memory.reading import Clause, Statement, read

NEAR = 6  # statements back that "make that 36px" may mean
SHORT = 8  # words of a statement that may mean one before without naming it
LISTED = 200  # older clauses of one word that are looked at, the newest
COMPARED = 40  # of all that are looked at: those that have most in common with the new one
CLOSE = 0.75  # share of the best score that others must have

May: TypeAlias = Callable[[int, int], bool]


@dataclass(frozen=True, slots=True)
class Replaced:
    """What stands from `start` to `end` of statement `old` is replaced by statement `new` (places in what was given).
    `whole`: nothing else is said in that clause."""

    old: int
    new: int
    start: int
    end: int
    verdict: Verdict
    whole: bool


@dataclass(frozen=True, slots=True)
class _Known:
    """A clause of statement `place`."""

    place: int
    clause: Clause
    statement: Statement


def is_gone(statement: str, parts: Iterable[Replaced]) -> bool:
    """Whether what was replaced of a statement is all that it says, and that is sure."""
    sure = {one.start for one in parts if one.verdict == "replaced" and one.whole}
    return sure >= {c.start for c in read(statement).clauses if c.keys}


def replaced(statements: Sequence[str], *, since: int = 0, may: May = lambda _old, _new: True) -> Iterator[Replaced]:
    """All that the statements (oldest first) say and a later one, from place `since` on, replaces or may replace.
    `may(old, new)`: whether the one may take back what the other says."""
    index = _Index()
    for place, text in enumerate(statements):
        new = read(text)
        found = list(_judge(new, index, place, may)) if place >= since and not new.asks else []
        index.gone |= {(one.old, one.start) for one in found if one.verdict == "replaced" and one.whole}
        yield from found
        index.add(place, new)


class _Index:
    """The clauses so far, by the words and values in them."""

    def __init__(self) -> None:
        self.clauses: list[_Known] = []
        self.gone: set[tuple[int, int]] = set()  # (place, start) of clauses that are replaced already
        self.frequency = Frequency()
        self._having: dict[str, list[int]] = defaultdict(list)

    def add(self, place: int, statement: Statement) -> None:
        for clause in statement.clauses:
            for key in clause.keys | clause.units if clause.keys else ():
                self._having[key].append(len(self.clauses))
                self.frequency[key] += 1
            if clause.keys:
                self.clauses.append(_Known(place, clause, statement))

    def sharing(self, keys: Iterable[str]) -> Iterator[_Known]:
        """Older clauses that have some of the keys, those that share most of them first."""
        common: Counter[int] = Counter()
        for key in keys:
            common.update(self._having[key][-LISTED:])
        most = (self.clauses[n] for n in sorted(common, key=lambda n: (-common[n], -n)))
        return itertools.islice((k for k in most if (k.place, k.clause.start) not in self.gone), COMPARED)


def _judge(new: Statement, index: _Index, place: int, may: May) -> Iterator[Replaced]:
    """What a statement replaces of those before."""
    out: dict[tuple[int, Clause], tuple[Found, frozenset[str]]] = {}
    for part in _parts(new):
        found: list[tuple[_Known, Found]] = []
        for known in index.sharing(part.keys | part.units):
            confirmed = any(v.key in new.stays for v in known.clause.values)
            stays = new.stays and (confirmed or 2 * len(known.clause.words & new.stays) > len(known.clause.words))
            if stays or not may(known.place, place):
                continue
            if judged := compared(Pair(known.clause, known.statement, part, new, index.frequency)):
                found.append((known, judged))
        best = max((judged.score for _, judged in found), default=0.0)
        for known, judged in found:
            key = (known.place, known.clause)
            if judged.score >= CLOSE * best and (key not in out or out[key][0].verdict == "doubtful"):
                out[key] = judged, known.clause.keys & part.keys
    if not out and new.corrects and (meant := _meant(new, index, place, may)):
        out[meant[0].place, meant[0].clause] = meant[1], frozenset()
    for (old, clause), (judged, shared) in out.items():
        yield _replaced(old, place, clause, judged, shared)


def _replaced(old: int, new: int, clause: Clause, found: Found, shared: frozenset[str]) -> Replaced:
    """Up to the last value that does not hold any more, with its unit; the whole clause where it has no other one."""
    ends = [
        next((e for k, s, e in clause.tokens if s >= end and k in clause.units), end)
        for key, _, end in clause.tokens
        if key in found.values
    ]
    kept = [v for v in clause.values if found.values and v.key not in found.values | shared]
    end = max(ends, default=clause.end) if kept else clause.end
    return Replaced(old, new, clause.start, end, found.verdict, not kept)


def _parts(new: Statement) -> list[Clause]:
    """What of a statement is compared: its clauses, each with the next, and a short one whole."""
    parts = [c for c in new.clauses if c.keys]
    pairs = [a.joined(b) for a, b in itertools.pairwise(parts)]
    short = len(parts) > 2 and len(new.whole.keys) <= SHORT
    return [*parts, *pairs, *([new.whole] if short else [])]


def _meant(new: Statement, index: _Index, place: int, may: May) -> tuple[_Known, Found] | None:
    """What a short correction means that names no subject: the newest clause with a value like its own."""
    part = new.whole
    values = [v for v in part.values if v.key not in part.past and v.shape != "word"]
    if len(part.keys) > SHORT or len(part.words) > 1 or not values:
        return None
    for known in reversed(index.clauses):
        if place - known.place > NEAR:
            return None
        if not part.words <= known.clause.keys or not may(known.place, place):
            continue
        for value in known.clause.values if known.place == place - 1 else (v for v in known.clause.values if v.unit):
            if any(alike(value, v) and v.key != value.key and value.unit == v.unit for v in values):
                return known, Found("replaced", 1.0, frozenset({value.key}))
    return None
