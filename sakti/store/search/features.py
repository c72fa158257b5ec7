"""Measure how a text matches a query: one frozen record for each candidate, from the index. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from sakti.core.patterns import lazy_pattern
from sakti.store.search.folding import folded
from sakti.store.search.occurrences import COLUMNS, Occurrence
from sakti.store.search.retrieve import Row
from sakti.store.search.terms import Term

TEXT, IDENTIFIERS, BEFORE, SUMMARY = range(COLUMNS)
SHORT = 300  # tokens up to which the text itself is looked at, too: for parts of words, and whether it asks
CHARACTERS = 6  # of a token, about
LONG = 220  # tokens above which a text is a document (about 1,500 characters)
BEGINNING = 120  # characters by which code, diffs and logs are told from talk
DENSITY = 0.025  # of code characters among them
LEADING = 12  # tokens at the beginning of a document: they say what it is
WITHIN = 0.5  # what a part counts inside of another word, where some text has it as a word (heron7 in heron78)
INSIDE = 0.5  # what a word counts that stands only inside another one (sort in argsort)
PLACES = 80  # places of the query's words in a text that are looked at for their nearness
OF_A_TERM = 25  # of them, places of one word

_CODE = lazy_pattern(r"[(){}\[\];=<>_/\\|`#*+]")


class Kind(Struct, frozen=True):
    """What matches count in a kind of text.

    `identifiers` and `before`: an occurrence in the pieces of identifiers, in the previous message; `before_length`:
    what a token of that message adds to the length; `leading`: what an occurrence among the first tokens adds.
    """

    identifiers: float
    before: float
    before_length: float
    leading: float


# An answer leaves out the words of its question; with as much of it code by file loses 0.8 R@10 and 1.7 MRR.
TALK = Kind(identifiers=0.4, before=0.4, before_length=1.5, leading=0.0)
DOCUMENT = Kind(identifiers=0.4, before=0.05, before_length=0.1, leading=1.0)


class Features(NamedTuple):
    """How one text matches the terms of a query.

    `counts`: weighted occurrences of each term, `own`: whether the text itself has it, `length` in weighted tokens.
    `adjacent`: share of the query's neighbouring words that are neighbours in the text; `near`: 1 where all of them
    are, less with their distance. `asks`: it ends as a question. `beginning`: its first characters, if it was read.
    """

    row: Row
    document: bool
    length: float
    counts: tuple[float, ...]
    own: tuple[bool, ...]
    adjacent: float
    near: float
    asks: bool
    beginning: str
    size: int

    @property
    def has_words(self) -> bool:
        """Return whether the text itself has any of the terms."""
        return any(self.own)


class Pattern(Struct, frozen=True):
    """What is looked for: the terms, the phrases with their term, and the parts of words, counted in the text."""

    terms: tuple[Term, ...]
    phrases: tuple[str, ...]
    of_term: tuple[int, ...]
    weights: tuple[float, ...]
    short: tuple[bool, ...]
    parts: tuple[tuple[str, float], ...]
    pairs: frozenset[tuple[int, int]]
    nearness: float
    meant: frozenset[str] = frozenset()  # of the parts: what was not typed, and may have been meant

    @property
    def rarities(self) -> tuple[float, ...]:
        """Return the weight of each term, then of each part."""
        return (*(t.rarity for t in self.terms), *(rarity for _, rarity in self.parts))


def pattern_of(
    terms: Sequence[Term], parts: Mapping[str, float], order: Sequence[str], meant: frozenset[str] = frozenset()
) -> Pattern:
    """Return the pattern of terms; `order`: the words as they follow each other in the query."""
    forms = [(form, i) for i, term in enumerate(terms) for form in term.forms]
    index = {term.text: i for i, term in enumerate(terms)}
    known = [index[w] for w in order if w in index]
    rare = sorted(t.rarity for t in terms)
    return Pattern(
        tuple(terms),
        tuple(form.phrase for form, _ in forms),
        tuple(i for _, i in forms),
        tuple(form.weight for form, _ in forms),
        tuple(form.how == "short" for form, _ in forms),
        tuple(parts.items()),
        frozenset(p for p in itertools.pairwise(known) if p[0] != p[1]),
        sum(value * (len(rare) - 1 - i) for i, value in enumerate(rare)),
        meant,
    )


def is_document(size: int, text: str) -> bool:
    """Return whether a text is code, a diff, a log or long prose, rather than what is said in a conversation."""
    head = text[:BEGINNING]
    return size > LONG or len(_CODE.findall(head)) > DENSITY * len(head)


def measure(row: Row, found: Occurrence | None, text: str, pattern: Pattern) -> Features:
    """Return the features of a row; `text` is "" where it is long and nothing in it need be looked for.

    A row without `found` is there for what stands beside it, or for parts of words.
    """
    sizes = found.sizes if found else (len(text) // CHARACTERS, 0, 0, 0)
    document = is_document(sizes[TEXT], text)
    kind = DOCUMENT if document else TALK
    counts, own, places = _count(found, pattern, kind, document)
    if text and (pattern.parts or sizes[TEXT] <= SHORT):
        _count_inside(text, pattern, counts, own)
    length = sizes[TEXT] + sizes[IDENTIFIERS] + kind.before_length * sizes[BEFORE]
    adjacent, near = _together(places, pattern)
    asks = sizes[TEXT] <= SHORT and text.rstrip().endswith("?")
    beginning = text if sizes[TEXT] <= SHORT else text[:BEGINNING]
    return Features(
        row, document, length, tuple(counts), tuple(own), adjacent, near, asks, beginning, sizes[TEXT]
    )  # fmt: skip


def _count(
    found: Occurrence | None, pattern: Pattern, kind: Kind, document: bool
) -> tuple[list[float], list[bool], list[tuple[int, int]]]:
    total = len(pattern.terms) + len(pattern.parts)
    counts, own, places = [0.0] * total, [False] * total, list[tuple[int, int]]()
    if found is None:
        return counts, own, places
    of_term, weights, shorts = pattern.of_term, pattern.weights, pattern.short
    for number, (text, idents, before, summary) in found.phrases:
        i, weight, short = of_term[number], weights[number], shorts[number]
        if short and not document:
            continue
        n = len(text) + kind.identifiers * len(idents) + 0.3 * len(summary)
        if text and not short:
            places += [(p, i) for p in text[:OF_A_TERM]]
            if kind.leading and text[0] < LEADING:
                n += kind.leading * len([p for p in text[:LEADING] if p < LEADING])
        if n:
            own[i] = True
        if before and not short:
            n += kind.before * len(before)
        counts[i] += weight * n
    places.sort()
    return counts, own, places[:PLACES]


def _count_inside(text: str, pattern: Pattern, counts: list[float], own: list[bool]) -> None:
    """Count words that stand inside others, and the parts of words."""
    lower = folded(text).lower()
    whole = {term.text: own[i] for i, term in enumerate(pattern.terms)}
    for i, term in enumerate(pattern.terms):
        if not own[i] and len(term.stem) == 1 and len(term.stem[0]) >= 4 and term.stem[0] in lower:
            counts[i] += INSIDE
            own[i] = True
    for i, (part, _) in enumerate(pattern.parts, len(pattern.terms)):
        counts[i] = lower.count(part) * (1.0 if whole.get(part, True) else WITHIN)
        own[i] = counts[i] > 0


def _together(places: Sequence[tuple[int, int]], pattern: Pattern) -> tuple[float, float]:
    """Return the shares `adjacent` and `near`; rare words count more for the second."""
    if len(places) < 2:
        return 0.0, 0.0
    adjacent: set[tuple[int, int]] = set()
    nearest: dict[tuple[int, int], int] = {}
    terms, pairs = pattern.terms, pattern.pairs
    for (i, a), (j, b) in itertools.pairwise(places):
        if a == b:
            continue
        distance = j - i or 1
        pair = (a, b)
        if distance <= len(terms[a].stem) and pair in pairs:
            adjacent.add(pair)
        if a > b:
            pair = (b, a)
        if distance < nearest.get(pair, 1 << 30):
            nearest[pair] = distance
    near = sum(min(terms[a].rarity, terms[b].rarity) / distance for (a, b), distance in nearest.items())
    return (
        len(adjacent) / len(pattern.pairs) if pattern.pairs else 0.0,
        near / pattern.nearness if pattern.nearness else 0.0,
    )
