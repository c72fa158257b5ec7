"""Compare a part of a new statement with an older clause: replaced, doubtful, or unrelated. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.once import once
from sakti.core.patterns import lazy_pattern
from sakti.memory.statements.lexicon import (
    COPULA,
    GENERIC,
    HANDLES,
    OPPOSITES,
    RENAMES,
    SO,
    STOPS_USING,
    TAKES_BACK,
)
from sakti.memory.statements.reading import EXACT, Clause, Statement, Value, head, is_exact, qualifying
from sakti.memory.statements.values import KINDS, alike, in_use, near, pattern, same_but_number

Verdict: TypeAlias = Literal["replaced", "doubtful"]

# Shares of the older clause's subject that the newer one has, and of the newer one's that is the older one's.
SURE, HALF = 0.74, 0.5
FITS = 0.6
ASIDE = 0.5  # weight of a word that does not belong to the subject: "with the new index the limit is 3"
UNLIKE = 0.7  # score of values that are written in different ways: "1.27", "6 nodes"
_WORD = lazy_pattern(r"[^\W\d_]+")


class Frequency:
    """Number of clauses that contain each key, those counted `before` among them."""

    def __init__(self, before: Frequency | None = None) -> None:
        self._before = before
        self._counts: dict[str, int] = {}

    def __getitem__(self, key: str) -> int:
        found = self._counts.get(key)
        if found is None:
            return self._before[key] if self._before else 0
        return found

    def add(self, key: str) -> None:
        self._counts[key] = self[key] + 1

    def weight(self, keys: Iterable[str]) -> float:
        """Return the weight of keys: common ones, and measures of many things, count less."""
        return sum(0.3 if k in GENERIC or self[k] > 8 else 1.0 if self[k] <= 3 else 0.6 for k in keys)

    def rare(self, keys: Iterable[str], at_most: int = 1) -> bool:
        """Return whether one of the keys is in so few clauses that it identifies the subject."""
        return any(0 < self[k] <= at_most for k in keys)


class Found(Struct, frozen=True):
    """Result of a comparison; `score` is 0–1.

    `values`: the keys of the older clause that are replaced; empty: all of it.
    """

    verdict: Verdict
    score: float
    values: frozenset[str] = frozenset()


class Pair(Struct, frozen=True, dict=True):
    """Older clause in its statement (`context`), and a part of a new statement."""

    old: Clause
    context: Statement
    part: Clause
    new: Statement
    frequency: Frequency

    @once
    def shared(self) -> frozenset[str]:
        """Return the keys that both have; plain figures and units that both count in are no subject."""
        old, part = self.old, self.part
        return (old.terms & part.terms) - (old.units & part.units) - old.figures - part.figures

    @once
    def subject(self) -> frozenset[str]:
        return self.shared - self.part.past

    @once
    def given(self) -> list[Value]:
        """Return the values that only the new part has and affirms."""
        return [v for v in self.part.values if v.key not in self.old.keys | self.part.past | self.part.negated]

    @once
    def lost(self) -> list[Value]:
        """Return the values of the older clause that the new part lacks, or names as past."""
        if self.denial:
            return []
        return [v for v in self.old.values if v.key not in self.part.keys - self.part.past]

    @once
    def denial(self) -> bool:
        """Return whether the older clause only says that something is not so, and measures nothing."""
        past = bool(self.old.past) and self.old.keys <= self.old.past
        return past and not any(v.unit for v in self.old.values)

    @property
    def adds(self) -> bool:
        """Return whether the new part adds something, other than a consequence."""
        start = self.part.start
        return self.new.adds and not SO.search(self.new.text[max(0, start - 12) : start])

    @once
    def foreign(self) -> frozenset[str]:
        """Return the words that only the new part has."""
        return self.part.words - self.old.keys - self.context.whole.keys - self.old.units - self.part.past

    @once
    def fits(self) -> float:
        """Return how much of the new part's subject is the older clause's."""
        beside = qualifying(self.new.text, self.part, self.foreign, self.shared)
        lacks = self.frequency.weight(beside) + ASIDE * self.frequency.weight(self.foreign - beside)
        return _share(self.frequency.weight(self.shared), lacks)

    @once
    def covered(self) -> float:
        """Return how much of the older clause's subject the new part has."""
        return self.covers(self.old.words)

    def covers(self, keys: frozenset[str]) -> float:
        weight = self.frequency.weight
        return _share(weight(self.shared), weight(keys - self.shared))

    @property
    def score(self) -> float:
        return self.covered * self.fits


def compared(pair: Pair) -> Found | None:
    """Compare the pair; None where the new part does not contradict the older clause."""
    turns = bool(pair.part.past or pair.part.negated)
    named = (_past(pair) or _denied(pair)) if turns and not pair.denial else frozenset[str]()
    if named and (found := _named(pair, named)):
        return found
    if twins := _twins(pair):
        return Found("replaced", 1.0, twins)
    if not pair.shared - pair.old.units - pair.part.units or pair.adds or _of_others(pair):
        return None
    pairs = [(a, b) for a in pair.lost for b in pair.given if alike(a, b) and _said_of(pair, b)]
    only = len(pair.lost) == len(pair.given) == 1
    if (
        pairs
        and pair.subject
        and (pair.new.replaces or pair.new.sets or (only and (_same_subject(pair) or _same_measure(pair))))
    ):
        return _changed(pair, pairs)
    return _turned(pair) or (_reworded(pair, bool(named)) if pair.new.replaces else None)


def _of_others(pair: Pair) -> bool:
    """Return whether both say on or off of one thing each: "flag a is off", "flag b is on"."""
    things = [{v.key for v in c.values if v.shape == "place"} for c in (pair.old, pair.part)]
    states = frozenset[str]().union(*OPPOSITES)
    return all(things) and not things[0] & things[1] and all(states & _words(c.text) for c in (pair.old, pair.part))


def _said_of(pair: Pair, given: Value) -> bool:
    """Return whether the new part gives a value to the shared subject, not to something beside it."""
    own = [c for c in pair.new.clauses if given.key in c.keys]
    return not own or any(c.words <= GENERIC or c.keys & pair.shared for c in own)


def _twins(pair: Pair) -> frozenset[str]:
    """Return names of the older clause that the new part gives with another number: "rows_v3.csv", "rows_v4.csv"."""
    if pair.adds or not (pair.new.replaces or pair.new.sets or pair.new.corrects):
        return frozenset()
    new = [v.key for v in pair.given if "v9" in pattern(v.key) or (pair.new.replaces and pair.subject)]
    return frozenset(v.key for v in pair.lost if any(same_but_number(v.key, key) for key in new))


def _past(pair: Pair) -> frozenset[str]:
    """Return the keys of the older clause that the new part names as past.

    Empty where it names another value of that kind.
    """
    past = pair.part.past
    named = {k for k in pair.old.keys if k in past or head(k) in past} if past else None
    if not named:
        return frozenset()
    other = [v for v in pair.part.values if v.key in past and v.key not in named and v.shape in EXACT]
    figures = {v.key: v.unit for v in pair.part.values if v.key in named and v.shape == "number"}
    named -= {v.key for v in pair.old.values if figures.get(v.key, v.unit) != v.unit and v.unit and figures[v.key]}
    units = pair.new.whole.units
    named -= {v.key for v in pair.old.values if v.shape == "number" and v.unit and units and v.unit not in units}
    if other and any(alike(v, o) for v in pair.old.values if v.key not in named for o in other):
        named &= {v.key for v in pair.old.values}
    return frozenset(named)


def _denied(pair: Pair) -> frozenset[str]:
    """Return the values of the older clause that the new part denies and replaces."""
    given = [v for v in pair.new.whole.values if v.key not in pair.old.keys | pair.new.whole.negated]
    denied = [v for v in pair.old.values if v.key in pair.part.negated]
    return frozenset(v.key for v in denied if any(alike(v, other) for other in given))


def _named(pair: Pair, named: frozenset[str]) -> Found | None:
    """Judge a pair in which the new part names something of the older clause as past."""
    old, frequency = pair.old, pair.frequency
    values = {v.key: v for v in (*old.values, *pair.part.values)}
    # what is done to a file says nothing of where things are
    moves = bool(pair.given or pair.subject) or not HANDLES.search(pair.new.text)
    exact = any(is_exact(k) and (moves or "/" not in k) for k in named)
    things = old.words | {v.key for v in old.values if v.shape not in EXACT}
    known = named | pair.subject
    whole = _share(frequency.weight(known), frequency.weight(things - known))
    # "the limit is too low" names no value: all that was said of the limit goes
    stops = bool(STOPS_USING.search(pair.new.text)) and bool(old.words - named)
    gone = named if stops or not old.values or named & {v.key for v in old.values} else frozenset[str]()
    used = 2 * len(named) >= len(pair.part.past) and any(in_use(old, pair.context, k) for k in named & old.words)
    if exact or used or whole >= SURE or (pair.subject and (pair.covered >= HALF or pair.fits >= FITS)):
        return Found("replaced", 1.0, gone)
    meant = frequency.rare(named, 2) and 2 * len(named) >= len(pair.part.past)
    if meant and pair.new.corrects:
        return Found("replaced", 1.0, gone)
    proper = len(named) > 1 or any(k in values and values[k].shape in ("name", "word") for k in named)
    return Found("doubtful", 0.9, gone) if meant and (proper or stops or whole > HALF) else None


def _changed(pair: Pair, pairs: list[tuple[Value, Value]]) -> Found | None:
    """Judge a pair in which the new part gives another value of the same kind."""
    if {KINDS[a.shape] for a, _ in pairs} >= {"number", "date"} and not pair.new.corrects:
        return None  # "2.4 comes in May", "2.5 comes in June": of another one
    close = [a for a, b in pairs if near(a, b)]
    gone = frozenset(a.key for a in close or (a for a, _ in pairs))
    covered, fits = pair.covered, pair.fits
    score = pair.score if close else UNLIKE * pair.score
    if covered >= SURE and fits >= FITS:
        return Found("replaced" if pair.new.replaces or fits >= SURE else "doubtful", score, gone)
    apart = bool(
        pair.foreign - GENERIC and pair.old.words - pair.shared - GENERIC
    )  # each speaks of something that the other does not
    only = len(pair.lost) == len(pair.given) == 1 and covered >= FITS
    counted = fits == 1 and covered >= HALF and any(a.unit == b.unit and (a.unit or only) for a, b in pairs)
    if apart or fits < FITS or not (pair.new.replaces or counted):
        return None
    if covered >= HALF:
        exact = any(a.shape in EXACT for a, _ in pairs)
        return Found("replaced" if exact and pair.new.replaces else "doubtful", score, gone)
    return Found("doubtful", score, gone) if pair.frequency.rare(pair.subject) else None


def _turned(pair: Pair) -> Found | None:
    """Judge a pair in which one says on and the other off, or one denies the other."""
    sides = _words(pair.old.text), _words(pair.part.text)
    opposite = any(sides[0] & one and sides[1] & other for one, other in (OPPOSITES, OPPOSITES[::-1]))
    denied = bool(pair.old.negated) != bool(pair.part.negated) and not pair.given and not pair.lost
    named = any(v.shape == "place" and v.key in pair.shared for v in pair.old.values)  # "new_checkout is on"
    if not (opposite or (denied and pair.new.replaces)) or pair.covered < (HALF if named else SURE) or pair.fits < FITS:
        return None
    return Found("replaced", pair.score) if opposite or pair.fits >= SURE else None


@lru_cache(4_096)
def _words(text: str) -> frozenset[str]:
    return frozenset(w.casefold() for w in _WORD.findall(text))


def _reworded(pair: Pair, named: bool) -> Found | None:
    """Judge a pair in which the new part changes something without a comparable value."""
    new, covered, fits, score = pair.new, pair.covered, pair.fits, pair.score
    exact = any(v.shape in EXACT for v in pair.lost)
    if pair.given and exact and not _stands_for(pair):
        return None  # it says something else of the same subject
    if pair.given and (pair.lost or pair.old.words - pair.part.keys) and covered >= SURE and fits >= FITS:
        return Found("replaced", score) if len(pair.shared) > 1 or fits == 1 else None
    if _other_word(pair):
        return Found("doubtful", score)
    if pair.given and not pair.lost and pair.old.keys <= pair.part.keys and fits >= FITS and RENAMES.search(new.text):
        return Found("replaced", score)
    if new.corrects and pair.lost and not pair.given and covered >= SURE and fits >= SURE:
        return Found("doubtful", score)
    return _taken_back(pair) if new.takes_back and not pair.given and not named else None


def _other_word(pair: Pair) -> bool:
    """Return whether one plain word takes the place of another: "logo top right instead"."""
    words = bool(pair.foreign) and not pair.given and not pair.new.takes_back and len(pair.shared) > 1
    return words and pair.covered >= FITS and pair.fits >= HALF


def _taken_back(pair: Pair) -> Found | None:
    if not TAKES_BACK.search(pair.part.text):
        return None
    covered = pair.covers(pair.old.keys)
    if covered >= SURE and pair.fits >= FITS and len(pair.shared) > 1:
        return Found("replaced", pair.score)
    if pair.fits >= HALF and (covered >= HALF or pair.frequency.rare(pair.shared)):
        return Found("doubtful", pair.score)
    return None


def _stands_for(pair: Pair) -> bool:
    """Return whether a value of another kind takes the place of the only one there was."""
    values = (*pair.lost, *pair.given)
    only = len(pair.lost) == len(pair.given) == 1
    return only and pair.score > HALF and not any(v.unit or v.shape == "date" for v in values)


def _same_subject(pair: Pair) -> bool:
    """Return whether both give a value to the very same subject, as "X is 1" and "X: 2" do."""
    subjects = [c.keys - {v.key for v in values} - GENERIC for c, values in _sides(pair)]
    return bool(subjects[0]) and subjects[0] == subjects[1] and all(_gives(c, values) for c, values in _sides(pair))


def _sides(pair: Pair) -> tuple[tuple[Clause, list[Value]], ...]:
    return (pair.old, pair.lost), (pair.part, pair.given)


def _same_measure(pair: Pair) -> bool:
    """Return whether both count the same: "dumps expire after 30 days", "keep the dumps for 90 days"."""
    a, b = pair.lost[0], pair.given[0]
    return bool(a.unit) and a.unit == b.unit and pair.fits >= SURE and pair.covered >= HALF


def _gives(clause: Clause, values: list[Value]) -> bool:
    """Return whether a clause links its subject with one of the values, or ends with it; "server 2: idle" does not."""
    keys = {v.key for v in values}
    link = COPULA.search(clause.text)
    if link is not None:
        return any(key in keys and start - clause.start >= link.start() for key, start, _ in clause.tokens)
    last = clause.tokens[-1][0]
    return any(last in (v.key, v.unit) for v in values)


def _share(has: float, lacks: float) -> float:
    return has / (has + lacks) if has else 0.0
