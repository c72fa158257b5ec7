"""The order of what was found: adjacent words, neighbours, threads, recency. Pure but for the tokenizer it is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

RRF_K = 60
PAIR = 0.3  # all adjacent words of the query are adjacent in the text
NEIGHBOUR = 0.1  # of the score of the message before or after
THREAD = 0.5  # of the mean of the thread's three best
RECENT = 0.1  # at most, for what was said just now
HALF_LIFE_MS = 30 * 86_400_000
PAIRS_IN = 100  # candidates whose text is read for adjacent words

Tokenize = Callable[[str], Sequence[str]]  # as the word index does: lower case, stems


@dataclass(slots=True)
class Candidate:
    """`head` is the beginning of its text, `length` the length of the whole (they tell duplicates apart)."""

    pk: int
    score: float
    kind: str = ""
    thread_id: str | None = None
    position: int = 0
    created_at: int = 0
    head: str = ""
    length: int = 0

    @property
    def place(self) -> tuple[str | None, int] | None:
        return (self.thread_id, self.position) if self.kind == "message" else None


def rerank(found: list[Candidate], entering: Iterable[Candidate], words: Sequence[str], tokenize: Tokenize) -> None:
    """Sort `found`, which is in bm25 order, and let the `entering` messages next to its best into the list.

    score = bm25 / best + 0.3 · share of the query's adjacent pairs that are adjacent in the text (stems; bigram
    features as in Metzler and Croft 2005) + 0.1 · the neighbours' scores + 0.5 · mean of the thread's three best.
    """
    if not found:
        return
    top = found[0].score or 1.0
    base = {c.pk: c.score / top for c in found}
    at = {c.place: base[c.pk] for c in found if c.kind == "message"}
    best_of_thread: dict[str | None, list[float]] = {}
    for c in found:
        best_of_thread.setdefault(c.thread_id if c.thread_id else f"\0{c.pk}", []).append(base[c.pk])
    stems = [t for w in words for t in tokenize(w)[:1]]
    pairs = {p for p in itertools.pairwise(stems) if p[0] != p[1]}
    for c in found[:PAIRS_IN] if pairs else ():
        tokens = tokenize(c.head)
        c.score = top * (base[c.pk] + PAIR * len(pairs.intersection(itertools.pairwise(tokens))) / len(pairs))
    found.extend(c for c in entering if c.pk not in base)
    for c in found:
        c.score /= top
        if c.kind == "message":
            around = at.get((c.thread_id, c.position - 1), 0.0) + at.get((c.thread_id, c.position + 1), 0.0)
            c.score += NEIGHBOUR * around
        c.score += THREAD * sum(best_of_thread.get(c.thread_id if c.thread_id else f"\0{c.pk}", [])[:3]) / 3
    found.sort(key=lambda c: -c.score)


def fuse(*lists: list[Candidate]) -> list[Candidate]:
    """Reciprocal-rank fusion (Cormack, Clarke and Büttcher 2009, k = 60)."""
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
    """Multiply by 1 + 0.1 · 2^(−age / 30 days), and sort: equals are newest first, nothing else turns round by
    more than a tenth. `now` in Unix ms."""
    for c in found:
        c.score *= 1 + RECENT * 2 ** (-max(0, now - c.created_at) / HALF_LIFE_MS)
    found.sort(key=lambda c: (-c.score, -c.created_at))


def without_duplicates(found: Iterable[Candidate]) -> list[Candidate]:
    """Of identical texts of a kind only the first."""
    seen: set[tuple[str, int, str]] = set()
    kept: list[Candidate] = []
    for c in found:
        key = (c.kind, c.length, c.head)
        if key not in seen:
            seen.add(key)
            kept.append(c)
    return kept
