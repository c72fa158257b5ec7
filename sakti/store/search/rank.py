"""Rank the candidates of a search. Pure; this page is the whole ranking.

1. *Retrieve* (`retrieve.py`): two lists from FTS5. Words: stemmed, OR-ed, with the pieces of identifiers
   (`getUserId` → get, user, id, getuserid). Parts of words: trigrams, for what looks like an identifier, finds
   little, or is written without spaces. For a question the messages beside the best hits are candidates, too.
2. *Measure* (`features.py`): a frozen record for each candidate that may come up: its score in the index is at least
   0.4 of the best one's (0.3 if it is one of the best 20), or another one of its thread is of the best 20 (a quarter
   less time; to measure the first hundred buys nothing on any set). How often each term stands in the text, in its
   identifiers, in the previous message; how long they are; where the words stand: all from the index, for the whole
   text however long. Texts are of two kinds, told by the text alone: a *document* begins like code, a diff or a log,
   has more than 220 words, or was printed by a tool; all else is *talk*. In a document length counts fully (a long one
   has any word by chance), its first words count twice (they say what it is), and the messages around it count little
   (around what a tool prints, not at all). In talk a long message says more, and half of what it says is in the message
   before. Words as code has them (`dict` for dictionary, del for delete: `terms.py`, `code_words.py`) count in
   documents only, and find none.
3. *Score* (`score`, below): BM25 (Robertson and Zaragoza 2009) as a share of the best possible, plus how much of the
   query stands together in the text (bigrams and windows, Metzler and Croft 2005), plus what stands around it in its
   thread. Talk gains by saying what the question asks for: a text of the one who is named (`Ann: …`), a time where the
   question is for one; and loses by asking itself. With the first hits that the model said or a tool printed comes the
   request of the user that they answer, a little behind them. Equal scores: the newest first. That is all recency
   does, unless the question names a date.
4. *Page* (`search.py`): copies fold into one row, snippets are cut, each hit says why it is there.

`sakti search --explain` prints the parts of every score. A weight stays only if no set of the benchmarks gets worse
with it, of conversations or of code (upper end of the paired 95 % bootstrap interval below 0); what each buys stands
beside it, as the change of R@10 / MRR in points where it is set to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.search.dates import is_of
from sakti.store.search.features import TOOL, Features, Pattern
from sakti.store.search.rows import Row

Place = tuple[str | None, int]  # of a message: its thread, and its position there
Span = tuple[int, int]  # Unix ms: from, to


class Weights(Struct, frozen=True):
    """What the parts of a score count.

    `k1`, `b`: BM25's. `neighbour`, `exchange`: share of the messages before and after, the second only of another
    role's. `answer`: of the question before. `thread`: of the mean of the thread's three best.
    """

    k1: float
    b: float
    neighbour: float
    exchange: float
    answer: float
    thread: float


TALK = Weights(k1=1.1, b=0.45, neighbour=0.3, exchange=0.0, answer=0.35, thread=0.9)
DOCUMENT = Weights(k1=1.5, b=0.9, neighbour=0.0, exchange=0.4, answer=0.0, thread=0.6)
PART = 3.0  # a part of an identifier as it was typed, against a word (ident: MRR +2.4)
ADJACENT = 0.3  # all neighbouring words of the query are neighbours in the text (commits: MRR +3.6, mixed +1.0)
NEAR = 0.5  # all words of the query are near each other (commits: R@10 +2.1, mixed +0.8)
QUESTION = 0.2  # what a text loses that asks itself: its answer is meant (locomo: R@10 and MRR +2.4)
LABELLED = 0.2  # its label is named, mostly who says it (locomo: R@10 +1.5, MRR +4.1)
TIMED = 0.2  # it says when, as the question asks (locomo: R@10 +0.6, MRR +1.3)
REQUEST = 0.8  # of an answer's score, for the request that it answers (aider: R@10 +22.4, one store +1.1)
ANSWERS = 3  # of the first hits, with which their requests come up
DATED = 0.3  # it was said in the time that the question names, or in the week after (locomo: R@10 +2.0, MRR +1.7)
ASIDE = 0.2  # of what stands around it, where an identifier is looked for: a place (ident: MRR +0.3)
THREAD_BEST = 3
MESSAGE = "message"  # the kind of what is said
MODEL = "assistant"  # the role of what the model says
EQUAL = 3  # decimals by which scores differ


class Parts(Struct, frozen=True):
    """Parts of a score, each as it is added."""

    words: float
    adjacent: float = 0.0
    near: float = 0.0
    neighbours: float = 0.0
    thread: float = 0.0
    dated: float = 0.0
    labelled: float = 0.0
    timed: float = 0.0
    request: float = 0.0
    question: float = 0.0


NO_PARTS = Parts(0.0)


class Ranked(Struct, frozen=True):
    """Candidate with its score; `answers`: it has none of the words, but the message before it has."""

    features: Features
    parts: Parts
    score: float
    answers: bool


def score(parts: Parts) -> float:
    """Return the sum of the parts of a score."""
    beside = parts.neighbours + parts.thread
    told = parts.dated + parts.labelled + parts.timed + parts.request - parts.question
    return parts.words + parts.adjacent + parts.near + beside + told


def words_of(candidates: Iterable[Features], pattern: Pattern, means: Sequence[float]) -> dict[int, float]:
    """Return the first part of each score by the key of its row; `means`: mean tokens of all texts, by kind."""
    possible = sum(t.rarity for t in pattern.terms) + PART * sum(rarity for _, rarity in pattern.parts) or 1.0
    return {f.row.pk: _words(f, pattern, means) / possible for f in candidates}


def rank(
    candidates: Sequence[Features],
    words: Mapping[int, float],
    entering: Sequence[Features],
    dates: Iterable[Span] = (),
    *,
    aside: bool = False,
) -> list[Ranked]:
    """Sort candidates, best first; `entering` are there only for the messages beside them.

    `words`: see `words_of`. `dates`: the times that the question names. `aside`: a place is looked for.
    """
    at = {(f.row.thread_id, f.row.position): f for f in candidates if f.row.kind == MESSAGE}
    threads: dict[str | int, list[float]] = {}
    for f in candidates:
        threads.setdefault(f.row.thread_id or f.row.pk, []).append(words[f.row.pk])
    around = ASIDE if aside else 1.0
    best = {t: around * sum(sorted(found)[-THREAD_BEST:]) / THREAD_BEST for t, found in threads.items()}
    spans = tuple(dates)
    ranked: list[Ranked] = []
    for f in (*candidates, *entering):
        row, weights = f.row, DOCUMENT if f.document else TALK
        alone = row.kind != MESSAGE or row.role == TOOL  # (tools: aider R@5 +6.6, one store +0.7)
        parts = Parts(
            words.get(row.pk, 0.0),
            ADJACENT * f.adjacent,
            NEAR * f.near,
            0.0 if alone else around * _neighbours(f, weights, at, words),
            weights.thread * best.get(row.thread_id or row.pk, 0.0),
            DATED * is_of(row.created_at, spans) if spans else 0.0,
            labelled=LABELLED * f.labelled,
            timed=TIMED * f.timed,
            question=QUESTION * f.asks,
        )
        ranked.append(Ranked(f, parts, score(parts), not f.has_words and (row.thread_id, row.position - 1) in at))
    return in_order(ranked)


def in_order(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Return candidates best first, equals newest first."""
    return sorted(ranked, key=lambda r: (-round(r.score, EQUAL), -r.features.row.created_at, -r.features.row.pk))


def first_answers(ranked: Sequence[Ranked]) -> list[Row]:
    """Return those of the first hits that answer a request: what the model says or a tool prints."""
    rows = (r.features.row for r in ranked[:ANSWERS])
    return [row for row in rows if row.kind == MESSAGE and row.role in (MODEL, TOOL)]


def with_requests(ranked: Sequence[Ranked], requests: Mapping[int, Features]) -> list[Ranked]:
    """Return the hits with the requests of the first ones a little behind them; `requests` by the key of the answer."""
    by_key = {r.features.row.pk: r for r in ranked}
    for answer in [r for r in ranked[:ANSWERS] if r.features.row.pk in requests]:
        request = requests[answer.features.row.pk]
        own = by_key.get(request.row.pk) or Ranked(request, NO_PARTS, 0.0, answers=False)
        if (missing := REQUEST * answer.score - own.score) > 0:
            parts = replace(own.parts, request=own.parts.request + missing)
            by_key[request.row.pk] = replace(own, parts=parts, score=score(parts))
    return in_order(by_key.values())


def _neighbours(f: Features, weights: Weights, at: Mapping[Place, Features], words: Mapping[int, float]) -> float:
    """Return what the messages before and after a message say of it; `at`: those with words by their places."""
    total = 0.0
    thread, position = f.row.thread_id, f.row.position
    for place in ((thread, position - 1), (thread, position + 1)):
        if other := at.get(place):
            share = weights.neighbour + weights.exchange * (other.row.role != f.row.role)
            share += weights.answer * (other.asks and place[1] < position)
            total += share * words[other.row.pk]
    return total


def _words(f: Features, pattern: Pattern, means: Sequence[float]) -> float:
    """Return BM25 of the terms; a part of a word that was looked for counts as itself, however long the text is."""
    weights, mean = (DOCUMENT, means[1]) if f.document else (TALK, means[0])
    norm = weights.k1 * (1 - weights.b + weights.b * f.length / (mean or 1.0))
    found = sum([t.rarity * n / (n + norm) for t, n in zip(pattern.terms, f.counts, strict=False) if n])
    if not pattern.parts:
        return found
    parts = zip(pattern.parts, f.counts[len(pattern.terms) :], strict=True)
    return found + PART * sum([rarity * n / (n + 1) for (_, rarity), n in parts])
