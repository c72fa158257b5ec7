"""Find values that are named again and then replaced: "2048 cuts them off, we need 4096". Pure."""

from __future__ import annotations

import itertools

from sakti.memory.statements.comparing import Pair
from sakti.memory.statements.lexicon import IN_USE, SO, TAKES_OVER, TAKES_UP
from sakti.memory.statements.reading import EXACT, Clause, Value, narrates
from sakti.memory.statements.values import alike, form, in_use

FOREIGN = 2  # words that the clause with the new value may speak of and the older one does not


def supplanted(pair: Pair, least: int = 0) -> frozenset[str]:
    """Return the keys of the older clause that the new statement, from `least` on, names and then replaces."""
    new, old = pair.new, pair.old
    values = {v.key: v for v in old.values}
    told = (new.whole.keys & old.keys) - new.stays
    if not told:
        return frozenset()
    clauses = [c for c in new.clauses if not narrates(c.text)]
    out: set[str] = set()
    for key, start, end in new.whole.tokens:
        if key not in told:
            continue
        value = values.get(key)
        if value is None and not in_use(pair.old, pair.context, key):
            value = _only_alike(pair, key)
        elif value is None:
            value = Value(key, "word")
        if value is None or not _same_figure(pair, value):
            continue
        behind = (c for c in clauses if c.start >= max(end, least))
        again = _restated(pair, key, start)
        if any(_takes_its_place(pair, clause, value, key, end, again) for clause in behind):
            out.add(value.key)
    return frozenset(out)


def _same_figure(pair: Pair, value: Value) -> bool:
    """Return whether a number is the same in both: by its unit, or because it has more than one digit."""
    again = [v.unit for v in pair.new.whole.values if v.key == value.key]
    return value.shape != "number" or (value.unit in again and bool(value.unit)) or (len(value.key) > 1 and "" in again)


def _takes_its_place(pair: Pair, clause: Clause, value: Value, key: str, end: int, again: bool) -> bool:
    """Return whether a clause of the new statement gives another value after it names the old one."""
    new = pair.new
    known = pair.old.keys | pair.context.whole.keys | new.whole.past | new.whole.negated | new.unfit | new.stays
    others = {v.key: v for v in clause.values if v.key not in known}
    foreign = clause.words - pair.old.keys - pair.context.whole.keys - new.unfit - new.whole.past - {key}
    against = key in new.unfit | new.whole.past | new.whole.negated
    says = against or new.replaces or new.corrects or new.sets or bool(SO.search(new.text, end))
    for other, start, stop in clause.tokens:
        given = others.get(other)
        if other in known or (value.shape == "word" and given is not None and given.shape in EXACT):
            continue
        takes = bool(TAKES_UP.search(new.text, end, start) or TAKES_OVER.match(new.text, stop))
        if value.shape == "word":
            fits = takes or (bool(IN_USE.search(new.text, end, start)) and says) or (given is not None and against)
        else:
            fits = (
                given is not None
                and alike(value, given)
                and (_written(value, given) or _named_alike(pair, value, other))
            )
        beside = foreign - {other}
        exact = value.shape in EXACT or value.shape == "place"
        if not fits or not (exact or says) or (again and (not takes or beside)):
            continue
        if takes or against or clause.words & pair.old.words:
            return True
        known_of = any(pair.frequency[w] > sum(w in c.keys for c in new.clauses) for w in beside)
        if not known_of and len(beside) <= FOREIGN:
            return True
    return False


def _named_alike(pair: Pair, value: Value, other: str) -> bool:
    """Return whether the same word stands before both: "Pi 3", "Pi 5"."""
    return bool(_before(pair.new.whole, other) & _before(pair.old, value.key))


def _before(clause: Clause, key: str) -> set[str]:
    """Return the words right before a key."""
    return {a for (a, _, _), (b, _, _) in itertools.pairwise(clause.tokens) if b == key}


def _written(a: Value, b: Value) -> bool:
    return (a.unit == b.unit or not b.unit) and form(a.key) == form(b.key)


def _restated(pair: Pair, key: str, start: int) -> bool:
    """Return whether the new statement only repeats the older one: it also names the rest of it."""
    against = pair.new.unfit | pair.new.whole.past | pair.new.whole.negated
    rest = pair.old.words - {key}
    clause = next((c for c in pair.new.clauses if c.start <= start < c.end), pair.new.whole)
    return key not in against and bool(rest) and 2 * len(rest & clause.words) >= len(rest)


def _only_alike(pair: Pair, key: str) -> Value | None:
    """Return the value beside a plain word that is said to be unsuitable: "teal (#008080)"."""
    if key not in pair.new.unfit:
        return None
    given = [v for v in pair.new.whole.values if v.key not in pair.old.keys | pair.new.unfit]
    same = [v for v in pair.old.values if v.shape != "name" and any(alike(v, g) and _written(v, g) for g in given)]
    return same[0] if len(same) == 1 else None
