"""Find statements that a later one replaces: the same subject, and words of retraction or replacement. Pure.

A clause is replaced where a later statement names its value as past, or gives another value of the same kind to
(nearly) the same subject. An uncertain case is doubtful: to be marked and dropped early, but not at once.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct

from sakti.memory.statements.comparing import Found, Frequency, Pair, Verdict, compared
from sakti.memory.statements.lexicon import ANAPHORA, MEASURES, MONTHS, RENAMES, TITLES, WONDERS
from sakti.memory.statements.reading import EXACT, Clause, Statement, Value, head, narrates, read
from sakti.memory.statements.supplanting import supplanted
from sakti.memory.statements.values import alike, distinct, near, pattern

NEAR = 6  # statements back that "make that 36px" may mean
SHORT = 8  # words of a statement that may mean one before without naming it
LISTED = 200  # older clauses of one word that are looked at, the newest
COMPARED = 40  # of all that are looked at: those that have most in common with the new one
CLOSE = 0.75  # share of the best score that others must have

May: TypeAlias = Callable[[int, int], bool]


class Replaced(Struct, frozen=True):
    """Replaced text: `start` to `end` of statement `old`, by statement `new` (positions in the input).

    `whole`: the clause says nothing else.
    """

    old: int
    new: int
    start: int
    end: int
    verdict: Verdict
    whole: bool


class _Known(Struct, frozen=True):
    """Clause of statement `place`."""

    place: int
    clause: Clause
    statement: Statement


def is_gone(statement: str, parts: Iterable[Replaced]) -> bool:
    """Return whether all clauses of a statement are replaced for certain."""
    sure = {one.start for one in parts if one.verdict == "replaced" and one.whole}
    return sure >= {c.start for c in read(statement).clauses if c.keys}


def replaced(
    statements: Sequence[str],
    *,
    since: int = 0,
    may: May = lambda _old, _new: True,
    follows: Callable[[int], bool] = lambda _place: False,
    heard: Heard | None = None,
) -> Iterator[Replaced]:
    """Yield what later statements replace or may replace, of statements given oldest first.

    Only replacements by statements from `since` on. `may(old, new)`: whether the speaker of one may retract the
    other; `follows`: whether a statement is of the same message as the one before. `heard`: the first of the
    statements, indexed before.
    """
    index = Heard(heard)
    for place in range(index.places, len(statements)):
        new = read(statements[place])
        found: list[Replaced] = []
        if place >= since and not new.asks:
            before = read(statements[place - 1]) if follows(place) else None
            found = list(_found(new, before, index, place, may))
        index.gone |= {(one.old, one.start) for one in found if one.verdict == "replaced" and one.whole}
        yield from found
        index.add(new)


class Heard:
    """Clauses so far, by the words and values in them.

    With an `earlier` one it goes on behind that, which stays as it is: a log is indexed once, however often new lines
    are compared with it.
    """

    def __init__(self, earlier: Heard | None = None) -> None:
        self.places = earlier.places if earlier else 0  # statements so far
        self.gone: set[tuple[int, int]] = set()  # (place, start) of clauses that are replaced already
        self.frequency = Frequency(earlier.frequency if earlier else None)
        self._earlier = earlier
        self._before = earlier.count if earlier else 0
        self._clauses: list[_Known] = []
        self._having: dict[str, list[int]] = {}

    @property
    def count(self) -> int:
        return self._before + len(self._clauses)

    def add(self, statement: Statement) -> None:
        for clause in statement.clauses:
            if not clause.keys:
                continue
            number = self.count
            for key in clause.terms:
                self.frequency.add(key)
                for other in {key, head(key), pattern(key)} - {""}:
                    self._having.setdefault(other, []).append(number)
            self._clauses.append(_Known(self.places, clause, statement))
        self.places += 1

    def newest(self, limit: int) -> list[_Known]:
        """Return the last clauses, oldest first."""
        own = self._clauses[-limit:]
        left = limit - len(own)
        return [*self._earlier.newest(left), *own] if self._earlier and left > 0 else own

    def sharing(self, keys: Iterable[str]) -> Iterator[_Known]:
        """Yield older clauses that share keys, those that share most first."""
        common: Counter[int] = Counter()
        for key in {*keys, *(pattern(key) for key in keys if len(pattern(key)) > 4)}:
            common.update(self._with(key, LISTED))
        most = (self._clause(n) for n in sorted(common, key=lambda n: (-common[n], -n)))
        return itertools.islice((k for k in most if (k.place, k.clause.start) not in self.gone), COMPARED)

    def _with(self, key: str, limit: int) -> list[int]:
        own = self._having.get(key, [])[-limit:]
        left = limit - len(own)
        return [*self._earlier._with(key, left), *own] if self._earlier and left > 0 else own

    def _clause(self, number: int) -> _Known:
        if self._earlier is not None and number < self._before:
            return self._earlier._clause(number)
        return self._clauses[number - self._before]


def _judge(new: Statement, index: Heard, place: int, may: May) -> Iterator[Replaced]:
    """Yield what a statement replaces of earlier ones."""
    out: dict[tuple[int, Clause], tuple[Found, frozenset[str]]] = {}
    for part in _parts(new):
        found: list[tuple[_Known, Found]] = []
        for known in index.sharing(part.terms):
            shared = known.clause.keys & part.keys
            if any(shared < other.keys & part.keys for other in known.statement.clauses):
                continue  # of something else in that sentence
            confirmed = any(v.key in new.stays for v in known.clause.values)
            stays = new.stays and (confirmed or 2 * len(known.clause.words & new.stays) > len(known.clause.words))
            if stays or not may(known.place, place) or narrates(known.clause.text):
                continue
            if judged := compared(Pair(known.clause, known.statement, part, new, index.frequency)):
                found.append((known, judged))
        best = max((judged.score for _, judged in found), default=0.0)
        for known, judged in found:
            key = (known.place, known.clause)
            if judged.score >= CLOSE * best and (key not in out or out[key][0].verdict == "doubtful"):
                out[key] = judged, known.clause.keys & part.keys
    if not out:
        supplants = list(_supplants(new, index, place, may))
        yield from supplants
        if supplants:
            return
    changes = new.replaces or new.corrects or RENAMES.search(new.text)
    if not out and changes and (meant := _meant(new, index, place, may)):
        out[meant[0].place, meant[0].clause] = meant[1], frozenset()
    for (old, clause), (judged, shared) in out.items():
        yield _replaced(old, place, clause, judged, shared)


def _replaced(old: int, new: int, clause: Clause, found: Found, shared: frozenset[str]) -> Replaced:
    """Build a replacement up to the last replaced value, with its unit; whole clauses without another value."""
    ends = [
        next((e for k, s, e in clause.tokens if s >= end and k in clause.units), end)
        for key, _, end in clause.tokens
        if key in found.values
    ]
    end = max(ends, default=clause.end)
    months = (e for k, s, e in clause.tokens if 0 < s - end <= 2 and MONTHS.fullmatch(k))
    end = next(months, end)  # "14. Mai"
    behind = {k for k, start, _ in clause.tokens if start >= end} - shared
    exact = found.values <= {v.key for v in clause.values if v.shape in EXACT}
    cut = bool(found.values and behind) and (exact or (len(behind) > 1 and clause.tokens[0][0] not in found.values))
    kept = cut or any(found.values and v.key not in found.values | shared for v in clause.values)
    end = end if kept else clause.end
    return Replaced(old, new, clause.start, end, found.verdict, not kept)


def _found(new: Statement, before: Statement | None, index: Heard, place: int, may: May) -> list[Replaced]:
    """Return what a statement replaces, alone or together with the sentence before it in its message.

    Examples: "2 is too few. Take 5", "The rate was wrong. It is 5".
    """
    if before is None or before.asks or max(len(before.whole.keys), len(new.whole.keys)) > 2 * SHORT:
        return list(_judge(new, index, place, may))
    both = read(f"{before.text.rstrip('.!')}; {new.text}")
    if found := [x for x in _supplants(both, index, place, may, len(before.text)) if x.old != place - 1]:
        return found
    if found := list(_judge(new, index, place, may)):
        return found
    says = [v for v in before.whole.values if index.frequency[v.key] <= sum(v.key in c.keys for c in before.clauses)]
    if not before.points_back or says or len(new.whole.keys) > SHORT:
        return []
    return [x for x in _judge(both, index, place, may) if x.old != place - 1]


def _supplants(new: Statement, index: Heard, place: int, may: May, behind: int = 0) -> Iterator[Replaced]:
    """Yield what a statement names and then, after an offset in it, gives something else for."""
    for known in index.sharing(new.whole.keys):
        pair = Pair(known.clause, known.statement, new.whole, new, index.frequency)
        if may(known.place, place) and not pair.denial and (gone := supplanted(pair, behind)):
            yield _replaced(known.place, place, known.clause, Found("replaced", 1.0, gone), gone)


def _parts(new: Statement) -> list[Clause]:
    """Return the parts of a statement to compare: clauses, adjacent pairs, and a short one whole."""
    parts = [c for c in new.clauses if c.keys and not WONDERS.search(c.text) and not narrates(c.text)]
    pairs = [a.joined(b) for a, b in itertools.pairwise(parts)]
    short = len(parts) > 2 and len(new.whole.keys) <= SHORT
    return [*parts, *pairs, *([new.whole] if short else [])]


def _meant(new: Statement, index: Heard, place: int, may: May) -> tuple[_Known, Found] | None:
    """Resolve a short correction that names no subject.

    It is about the newest clause with a value like its own, the newest name where it gives one, or the only thing
    counted in that way so far.
    """
    part = next((c for c in (new.whole, *new.clauses) if len(c.words) <= 1 and len(c.keys) <= SHORT and c.values), None)
    values = [v for v in part.values if v.key not in part.past and v.shape != "word"] if part else []
    if part is None or not values or WONDERS.search(new.text):
        return None
    renames = bool(RENAMES.search(new.text)) and not part.words
    points = new.corrects or bool(ANAPHORA.search(new.text))
    points = points or (not part.words and all(v.shape in EXACT and v.unit for v in part.values))
    for known in reversed(index.newest(LISTED) if renames or points else []):
        titles = renames and TITLES.search(known.clause.text)
        if place - known.place > NEAR and not renames:
            break
        if not all(map(known.clause.speaks_of, part.words)) or not may(known.place, place):
            continue
        near_by = known.place == place - 1
        every = titles or near_by
        for value in known.clause.values if every else (v for v in known.clause.values if v.unit):
            same = any(alike(value, v) and v.key != value.key and _counts(v, value, near_by) for v in values)
            if same and (not renames or any(near(value, v) for v in values)):
                return known, Found("replaced", 1.0, frozenset({value.key}))
    return _only(new, index, place, may)


def _counts(given: Value, value: Value, near_by: bool) -> bool:
    """Return whether two values have the same unit, or may have where one has none."""
    return given.unit == value.unit or (not given.unit and (near_by or value.unit not in MEASURES))


def _only(new: Statement, index: Heard, place: int, may: May) -> tuple[_Known, Found] | None:
    """Find the only clause with a value of the same distinct kind as a change without another known subject."""
    for part in (c for c in new.clauses if c.values and not narrates(c.text)):
        kinds = {kind for v in part.values if v.key not in part.past and (kind := distinct(v))}
        found = [
            (known, value)
            for known in index.newest(LISTED)
            for value in known.clause.values
            if distinct(value) in kinds and (known.place, known.clause.start) not in index.gone and known.place < place
        ]
        if kinds and not new.adds and len(found) == 1 and may(found[0][0].place, place):
            known, value = found[0]
            same = sum(distinct(v) == distinct(value) for v in part.values)
            others = {v.key for v in part.values if distinct(v) != distinct(value)}
            if (
                same == 1
                and part.words | others <= known.statement.whole.keys
                and value.key not in new.whole.keys - new.whole.past
            ):
                return known, Found("replaced", 1.0, frozenset({value.key}))
    return None
