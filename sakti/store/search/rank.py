"""Rank search results: words, adjacent and near words, the context, recency. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sakti.store.search.query import LANGUAGES
from sakti.store.search.stems import stems

# Chosen by a search over all of them on recorded conversations, issues and functions; near the best, none is touchy.
K1 = 1.1
LENGTH = 0.45  # BM25's b for a message of a conversation: there a long one says more
LENGTH_ALONE = 0.95  # for a text that stands alone
IDENTIFIERS, BEFORE = 0.4, 0.4  # what a word counts in the pieces of identifiers, and in the message before
INSIDE = 0.5  # what a word counts that stands only inside another one (sort in argsort)
SHORTENED, SHORTEST = 0.3, 3  # what a word counts where its first letters stand alone (dict, str), and how many
LEAD, LEADING = 1.0, 12  # what a word counts more among the first of a text that stands alone: they say what it is
SETTING = 0.3  # of the rarity of a language's name: it says where, not what
BEFORE_LENGTH = 1.5  # what a word of the message before adds to the length
PAIR = 0.5  # all adjacent words of the query are adjacent in the text
NEAR = 0.6  # all words of the query are near each other
NEIGHBOUR = 0.3  # of the score of the message before and after
ANSWER = 0.35  # of the score of the question before
QUESTION = 0.3  # what a text loses that asks something itself
THREAD = 0.9  # of the mean of the thread's three best
RANKED = 100  # candidates whose text is read
OCCURRENCES = 60  # of the query's words in one text that are looked at

RRF_K = 60
RECENT = 0.1  # at most, for what was said just now
HALF_LIFE_MS = 30 * 86_400_000


@dataclass(slots=True)
class Candidate:
    """Search result to rank.

    `head` is the beginning of its text, `length` the length of the whole (they identify duplicates); `idents` and
    `before` are indexed beside it: pieces of identifiers, the previous message.
    """

    pk: int
    score: float
    kind: str = ""
    thread_id: str | None = None
    position: int = 0
    created_at: int = 0
    head: str = ""
    length: int = 0
    idents: str = ""
    before: str = ""

    @property
    def place(self) -> tuple[str | None, int] | None:
        return (self.thread_id, self.position) if self.kind == "message" else None

    @property
    def asks(self) -> bool:
        return self.length == len(self.head) and self.head.rstrip().endswith("?")


@dataclass(frozen=True, slots=True)
class Words:
    """Statistics of a query's words.

    The idf of each stem, which words are adjacent, the weight of all being near each other (each pair counts as much
    as the more common of the two), and which stems each prefix belongs to.
    """

    rarity: Mapping[str, float]
    pairs: frozenset[tuple[str, str]]
    nearness: float
    shortened: Mapping[str, tuple[str, ...]]


def query_words(query: Sequence[str], documents: Mapping[str, int], total: int) -> Words:
    """Compute the statistics of a query; `documents`: in how many of `total` texts each word is."""
    rarity: dict[str, float] = {}
    order: list[str] = []
    for word in query:
        for stem in stems(word):
            order.append(stem)
            if documents.get(word):
                rare = max(1e-6, math.log((total - documents[word] + 0.5) / (documents[word] + 0.5)))
                rarity[stem] = rare * SETTING if word in LANGUAGES and len(query) > 1 else rare
    nearness = sum(value * (len(rarity) - 1 - i) for i, value in enumerate(sorted(rarity.values())))
    shortened: dict[str, tuple[str, ...]] = {}
    for stem in rarity:
        for end in range(SHORTEST, len(stem)):
            shortened[stem[:end]] = (*shortened.get(stem[:end], ()), stem)
    pairs = frozenset(p for p in itertools.pairwise(order) if p[0] != p[1])
    return Words(rarity, pairs, nearness, shortened)


@dataclass(slots=True)
class _TextStatistics:
    """Statistics of one text: weighted count of each word, length, shares of adjacent and near words."""

    counts: dict[str, float]
    length: float
    pairs: float
    near: float


def rerank(found: list[Candidate], entering: Iterable[Candidate], words: Words) -> None:
    """Sort `found`, given in index order, and insert `entering` messages that are next to its best.

    score = BM25 (Robertson and Zaragoza 2009) over text, identifiers and previous message, relative to the best = 1 +
    the share of adjacent words that are adjacent, and how near words are (bigrams and windows as in Metzler and Croft
    2005) + the scores of the messages around it and its thread: where much of a thread matches, more of it is
    relevant, and what follows a matching question is its answer.
    """
    if not found:
        return
    ranked = found[:RANKED]
    seen = [_look(c, words) for c in ranked]
    mean = sum(s.length for s in seen) / len(seen) or 1.0
    base = [_bm25(s, words, LENGTH if c.before else LENGTH_ALONE, mean) for c, s in zip(ranked, seen, strict=True)]
    top = max(base) or 1.0
    at: dict[tuple[str | None, int] | None, float] = {}
    threads: dict[str, list[float]] = {}
    for c, s, score in zip(ranked, seen, base, strict=True):
        score /= top
        at[c.place] = score
        threads.setdefault(c.thread_id or f"\0{c.pk}", []).append(score)
        c.score = score + PAIR * s.pairs + NEAR * s.near
    known = {c.pk for c in ranked}
    fresh = [c for c in entering if c.pk not in known]
    for c in fresh:
        c.score = 0.0
    asked = {c.place for c in (*ranked, *fresh) if c.asks}
    best = {thread: sum(sorted(scores, reverse=True)[:3]) / 3 for thread, scores in threads.items()}
    for c in (*ranked, *fresh):
        if c.kind == "message":
            previous = (c.thread_id, c.position - 1)
            c.score += NEIGHBOUR * (at.get(previous, 0.0) + at.get((c.thread_id, c.position + 1), 0.0))
            if previous in asked:
                c.score += ANSWER * at.get(previous, 0.0)
        c.score += THREAD * best.get(c.thread_id or f"\0{c.pk}", 0.0)
        if c.asks:
            c.score -= QUESTION
    rest = [c for c in found[RANKED:] if c.pk not in {f.pk for f in fresh}]
    lowest = min((c.score for c in ranked), default=0.0)
    for number, c in enumerate(rest, 1):  # in the order of the index, behind all that was read
        c.score = lowest - number * 1e-6
    found[:] = sorted([*ranked, *fresh, *rest], key=lambda c: -c.score)


def _look(c: Candidate, words: Words) -> _TextStatistics:
    tokens, idents, before = stems(c.head), stems(c.idents), stems(c.before)
    places = [(i, t) for i, t in enumerate(tokens) if t in words.rarity]
    counts: dict[str, float] = {}
    for _, token in places:
        counts[token] = counts.get(token, 0.0) + 1.0
    for others, weight in ((idents, IDENTIFIERS), (before, BEFORE)):
        for token in others:
            if token in words.rarity:
                counts[token] = counts.get(token, 0.0) + weight
    lower = c.head.lower()
    for token in words.rarity:
        if token not in counts and len(token) >= 4 and token in lower:
            counts[token] = INSIDE
    if not c.before:
        for token in words.shortened.keys() & {*tokens, *idents}:
            for stem in words.shortened[token]:
                counts[stem] = counts.get(stem, 0.0) + SHORTENED
        for i, token in places:
            if i < LEADING:
                counts[token] += LEAD
    length = len(tokens) + len(idents) + BEFORE_LENGTH * len(before)
    return _TextStatistics(counts, length, *_together(places[:OCCURRENCES], words))


def _together(places: Sequence[tuple[int, str]], words: Words) -> tuple[float, float]:
    """Return two shares for a text: the query's adjacent words that are adjacent in it, and their nearness.

    The second is 1 where all words are adjacent; rare words count more.
    """
    adjacent: set[tuple[str, str]] = set()
    nearest: dict[tuple[str, str], int] = {}
    for (i, a), (j, b) in itertools.pairwise(places):
        if a == b:
            continue
        if j - i == 1 and (a, b) in words.pairs:
            adjacent.add((a, b))
        pair = (a, b) if a < b else (b, a)
        nearest[pair] = min(nearest.get(pair, 1 << 30), j - i)
    near = sum(min(words.rarity[a], words.rarity[b]) / distance for (a, b), distance in nearest.items())
    return len(adjacent) / len(words.pairs) if words.pairs else 0.0, near / words.nearness if words.nearness else 0.0


def rank_by_substrings(found: list[Candidate], rarity: Mapping[str, float]) -> None:
    """Sort `found` by BM25 over substrings: each part as often as the text contains it, ignoring case."""
    mean = sum(len(c.head) for c in found) / (len(found) or 1) or 1.0
    for c in found:
        text, norm = c.head.lower(), K1 * (1 - LENGTH + LENGTH * len(c.head) / mean)
        counts = {part: text.count(part) for part in rarity}
        c.score = sum(rarity[part] * n / (n + norm) for part, n in counts.items())
    found.sort(key=lambda c: -c.score)


def _bm25(seen: _TextStatistics, words: Words, b: float, mean: float) -> float:
    norm = K1 * (1 - b + b * seen.length / mean)
    return sum(words.rarity[t] * n / (n + norm) for t, n in seen.counts.items())


def fuse(*lists: list[Candidate]) -> list[Candidate]:
    """Merge ranked lists by reciprocal-rank fusion (Cormack, Clarke and Büttcher 2009, k = 60)."""
    fused: dict[int, Candidate] = {}
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, candidate in enumerate(ranked):
            fused.setdefault(candidate.pk, candidate)
            scores[candidate.pk] = scores.get(candidate.pk, 0.0) + 1 / (RRF_K + rank + 1)
    for pk, candidate in fused.items():
        candidate.score = scores[pk]
    return sorted(fused.values(), key=lambda c: -c.score)


def prefer_recent(found: list[Candidate], now: int) -> None:
    """Multiply scores by 1 + 0.1 · 2^(−age / 30 days) and sort; `now` in Unix ms.

    Equals are newest first; otherwise only scores within a tenth of each other change order.
    """
    for c in found:
        c.score *= 1 + RECENT * 2 ** (-max(0, now - c.created_at) / HALF_LIFE_MS)
    found.sort(key=lambda c: (-c.score, -c.created_at))


def without_duplicates(found: Iterable[Candidate]) -> list[Candidate]:
    """Keep the first of identical texts of a kind."""
    seen: set[tuple[str, int, str]] = set()
    kept: list[Candidate] = []
    for c in found:
        key = (c.kind, c.length, c.head)
        if key not in seen:
            seen.add(key)
            kept.append(c)
    return kept
