"""Rank the candidates of a search. Pure; this page is the complete ranking.

1. *Retrieve* (`retrieve.py`): two lists from FTS5. Words: stemmed, OR-ed, with the pieces of identifiers
   (`getUserId` → get, user, id, getuserid). Parts of words: trigrams, if the query looks like an identifier, finds
   little, or is written without spaces. A question (it begins with a question word, or has a question mark) adds the
   neighbours of the best hits to the candidates.
2. *Measure* (`features.py`): a frozen record for each promising candidate: its index score is at least 0.4 of the
   best one (0.3 if it is one of the best 20), or one of the best 20 is in the same thread. Counts of each term in
   the text, in its identifiers and in the previous message, lengths, and positions of the words all come from the
   index, for the complete text.
3. *Score* (`score`, below): BM25 (Robertson and Zaragoza 2009) as a share of the best possible score, plus the
   proximity of the query's words in the text (bigrams and windows, Metzler and Croft 2005), plus a share of the best
   score in its sitting: the part of its thread between two pauses of four hours.
   If the query is no question, all texts are ranked alike (`PLAIN`) with three exceptions. Words that a message
   repeats from the one before count less, and make it longer. A *remark*, one line of at most 30 words that no tool
   printed, mostly announces or reports an output: its length is at least the usual one, and its first words get no
   bonus. The output after a remark inherits half of its words. A user's message inherits half of its answer's words.
   Answers to a question leave out its words, so two kinds of texts are distinguished by their content: a *document*
   begins like code, a diff or a log and is no remark, has more than 220 words, or was printed by a tool; everything
   else is *talk*.
   In talk, a long message says more, shares half of its content with the message before, and the messages around it
   count. In a document, length counts fully, talk beside it counts, and its first words count more. So do the words
   of its first identifiers if it begins with one in camel case, which the text index does not split.
   Talk scores higher if it fits the question: a text of the named speaker (`Ann: …`), or a time if the question asks
   for one. It scores lower if it contains questions, in proportion to their share of its text.
   Words used in code (`dict` for dictionary, `del` for delete: `terms.py`) count in functions only, and find no text.
   Length is compared with candidates of the same kind: tools print longer texts than people write.
   A text without any of the words never ranks above the message that lends it the words (`_move_behind_owners`).
   Ties go to the newest. Recency has no other effect, unless the question names a date.
4. *Fold* (`fold`, below): copies become one row, and a message replaces the log lines that quote it.
5. *Page* (`search.py`): snippets are cut, and each hit explains its match.

`sakti search --explain` prints the parts of every score. A weight stays only if it makes no benchmark set of
conversations, code or agent sessions worse (upper end of the paired 95 % bootstrap interval below 0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.core.lazy import lazy_pattern
from sakti.store.search.dates import is_of
from sakti.store.search.features import SHORT, TOOL, USER, Features, Pattern, Weights
from sakti.store.search.rows import LOG_LINES, Row

Place = tuple[str | None, int]  # of a message: its thread and position
Span = tuple[int, int]  # Unix ms: from, to


PART = 3.0  # score of a typed part of an identifier, relative to a word
ADJACENT = 0.3  # score if all adjacent words of the query are adjacent in the text
NEAR = 0.5  # score if all words of the query are near each other
QUESTION = 0.2  # penalty of a text that consists of questions
LABELLED = 0.2  # score if its label is named, mostly the speaker
TIMED = 0.2  # score if it states a time and the query asks for one
DATED = 0.3  # score if written in the time named in the query, or in the week after
ASIDE = 0.2  # share of the neighbours' score if an identifier is searched
THREAD_BEST = 3
PAUSE = 4 * 3_600_000  # ms between two messages of a thread that separate sittings
MESSAGE = "message"  # kind of the messages of a thread
EQUAL = 3  # decimals to which scores are compared
BEHIND = 2 * 10**-EQUAL  # distance of a text without words below the message that lends them


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
    question: float = 0.0
    behind: float = 0.0


NO_PARTS = Parts(0.0)


class Ranked(Struct, frozen=True):
    """Candidate with its score.

    `answers`: it has none of the words, but the previous message has some; `lent`: a neighbour has.
    """

    features: Features
    parts: Parts
    score: float
    answers: bool
    lent: bool = False


def score(parts: Parts) -> float:
    """Return the sum of the parts of a score."""
    beside = parts.neighbours + parts.thread
    answering = parts.dated + parts.labelled + parts.timed - parts.question
    return parts.words + parts.adjacent + parts.near + beside + answering - parts.behind


def score_words(candidates: Sequence[Features], pattern: Pattern, means: Sequence[float]) -> dict[int, float]:
    """Return the word part of each score by the key of its row.

    `means`: mean tokens of all texts in each column.

    """
    possible = sum(t.rarity for t in pattern.terms) + PART * sum(rarity for _, rarity in pattern.parts) or 1.0
    usual = {kind: _compute_usual_length(candidates, pattern, means, document=kind) for kind in (False, True)}
    return {f.row.pk: _score_bm25(f, pattern, usual[f.document]) / possible for f in candidates}


def _compute_usual_length(
    candidates: Sequence[Features], pattern: Pattern, means: Sequence[float], *, document: bool
) -> float:
    """Return the usual length of a kind of text: the mean of all texts, scaled by the candidates."""
    lengths = [f.length for f in candidates if f.document is document]
    if not lengths:
        return 1.0
    text, identifiers, before, _ = means
    mean = text + identifiers + pattern.weights_of(document=document).before_length * before
    every = sum(f.length for f in candidates) / len(candidates) or 1.0
    return mean * sum(lengths) / len(lengths) / every or 1.0


def rank(
    candidates: Sequence[Features],
    words: Mapping[int, float],
    entering: Sequence[Features],
    pattern: Pattern,
    dates: Iterable[Span] = (),
) -> list[Ranked]:
    """Sort candidates, best first; `entering` are candidates only because of their neighbours.

    `words`: see `score_words`. `dates`: the times named in the query.
    """
    at = {(f.row.thread_id, f.row.position): f for f in candidates if f.row.kind == MESSAGE}
    sittings = _group_by_sitting((*candidates, *entering))
    by_sitting: dict[int, list[float]] = {}
    for f in candidates:
        by_sitting.setdefault(sittings[f.row.pk], []).append(words[f.row.pk])
    around = ASIDE if pattern.parts else 1.0
    best = {s: around * sum(sorted(scores)[-THREAD_BEST:]) / THREAD_BEST for s, scores in by_sitting.items()}
    spans = tuple(dates)
    ranked: list[Ranked] = []
    for f in (*candidates, *entering):
        row, weights = f.row, pattern.weights_of(document=f.document)
        parts = Parts(
            words.get(row.pk, 0.0),
            ADJACENT * f.adjacent,
            NEAR * f.near,
            around * _score_neighbours(f, weights, at, words) if row.kind == MESSAGE else 0.0,
            weights.thread * best.get(sittings[row.pk], 0.0),
            DATED * is_of(row.created_at, spans) if spans else 0.0,
            labelled=LABELLED * f.labelled,
            timed=TIMED * f.timed,
            question=QUESTION * f.asks,
        )
        ranked.append(Ranked(f, parts, score(parts), not f.has_words and (row.thread_id, row.position - 1) in at))
    return sort_ranked(_move_behind_owners(ranked))


def _group_by_sitting(candidates: Sequence[Features]) -> dict[int, int]:
    """Map each row to the key of the first candidate of its sitting.

    A sitting is a part of a thread without a long pause: one day of a long thread is treated like a thread.
    """
    rows = sorted((f.row for f in candidates), key=lambda r: (r.kind, r.thread_id or "", r.created_at, r.pk))
    sittings: dict[int, int] = {}
    before: Row | None = None
    for row in rows:
        goes_on = before is not None and _continues_sitting(before, row)
        sittings[row.pk] = sittings[before.pk] if before is not None and goes_on else row.pk
        before = row
    return sittings


def _continues_sitting(before: Row, row: Row) -> bool:
    same = row.kind == before.kind == MESSAGE and row.thread_id == before.thread_id
    return same and row.created_at - before.created_at < PAUSE


def _move_behind_owners(ranked: Sequence[Ranked]) -> Sequence[Ranked]:
    """Return the candidates; texts without any of the words follow the messages that lend theirs."""
    if all(r.features.has_words for r in ranked):
        return ranked
    owners = {_place_of(r): r.score for r in ranked if r.features.has_words and r.features.row.kind == MESSAGE}
    out: list[Ranked] = []
    for r in ranked:
        if not r.features.has_words and r.features.row.kind == MESSAGE:
            thread, position = _place_of(r)
            lent = [owners[place] for step in (-1, 1) if (place := (thread, position + step)) in owners]
            parts = replace(r.parts, behind=max(0.0, r.score - min(lent, default=r.score) + BEHIND))
            r = replace(r, parts=parts, score=score(parts), lent=bool(lent))
        out.append(r)
    return out


def _place_of(r: Ranked) -> Place:
    return r.features.row.thread_id, r.features.row.position


def sort_ranked(ranked: Iterable[Ranked]) -> list[Ranked]:
    """Sort candidates, those with all words first, then by score; ties go to the newest."""
    return sorted(
        ranked,
        key=lambda r: (not r.features.complete, -round(r.score, EQUAL), -r.features.row.created_at, -r.features.row.pk),
    )


def _score_neighbours(f: Features, weights: Weights, at: Mapping[Place, Features], words: Mapping[int, float]) -> float:
    """Return the score from the messages before and after a message; `at`: matches by place."""
    total = 0.0
    thread, position = f.row.thread_id, f.row.position
    for place in ((thread, position - 1), (thread, position + 1)):
        if other := at.get(place):
            share = weights.neighbour + weights.talk_beside * (not other.document)
            share += weights.answer * (other.asks > 0 and place[1] < position)
            share += weights.request * (f.row.role == USER and other.is_answer and place[1] > position)
            total += share * words[other.row.pk]
    return total


def _score_bm25(f: Features, pattern: Pattern, mean: float) -> float:
    """Return BM25 of the terms; a searched part of a word has the same weight in texts of any length."""
    weights = pattern.weights_of(document=f.document)
    length = max(f.length, mean) if f.remark else f.length
    norm = weights.k1 * (1 - weights.b + weights.b * length / mean)
    score = sum([t.rarity * n / (n + norm) for t, n in zip(pattern.terms, f.counts, strict=False) if n])
    if not pattern.parts:
        return score
    parts = zip(pattern.parts, f.counts[len(pattern.terms) :], strict=True)
    return score + PART * sum([rarity * n / (n + 1) for (_, rarity), n in parts])


# --- copies -------------------------------------------------------------------------------------------------

# Prefixes that a log line adds to a sentence: its speaker, and the meaning of a relative date.
_ATTRIBUTION = lazy_pattern(r"^(?:User|Agent)\b[^:]{0,40}: | \(meaning [^()]*\)$")
_BETWEEN_SENTENCES = lazy_pattern(r"; |(?<=[.!?…。]) ")  # a line joins sentences of a message, not always all of them


class Folded(Struct, frozen=True):
    """Distinct texts: the first candidate of each, and the number of its copies."""

    kept: list[Ranked]
    copies: list[int]


def fold(ranked: Sequence[Ranked], read: Callable[[Sequence[int]], Mapping[int, str]]) -> Folded:
    """Fold copies: return each text once.

    Tool outputs that differ only in numbers (times, sizes, addresses) count as copies. `read` returns texts by key:
    long ones that may be copies.
    """
    sizes = Counter((r.features.row.role, r.features.size) for r in ranked)
    keys = [_key(r.features) if sizes[r.features.row.role, r.features.size] > 1 else r.features.row.pk for r in ranked]
    often = Counter(keys)
    long = [
        r.features.row.pk for r, key in zip(ranked, keys, strict=True) if often[key] > 1 and not _is_read(r.features)
    ]
    texts = read(long) if long else {}
    first: dict[Hashable, int] = {}
    uniques: list[Ranked] = []
    copies: list[int] = []
    for r, key in zip(ranked, keys, strict=True):
        pk = r.features.row.pk
        same = (key, _normalize_text(texts[pk], r.features.row.role)) if pk in texts else key
        if same in first:
            copies[first[same]] += 1
        else:
            first[same] = len(uniques)
            uniques.append(r)
            copies.append(0)
    return _fold_quotations(uniques, copies)


def _fold_quotations(uniques: Sequence[Ranked], copies: Sequence[int]) -> Folded:
    """Remove log lines that quote another candidate.

    That candidate takes the better of the two ranks. A log written without a model quotes the messages of its thread
    word for word, so each would be listed twice.
    """
    messages: dict[str | None, list[tuple[int, str]]] = {}
    for at, r in enumerate(uniques):
        if r.features.row.kind == MESSAGE and _is_read(r.features):
            messages.setdefault(r.features.row.thread_id, []).append((at, r.features.beginning))
    place = list(range(len(uniques)))
    gone: set[int] = set()
    for at, r in enumerate(uniques):
        row, text = r.features.row, r.features.beginning
        if row.kind not in LOG_LINES or not text:
            continue
        pieces = _BETWEEN_SENTENCES.split(_ATTRIBUTION.sub("", text))
        listed = messages.get(row.thread_id, ())
        quoted = next((n for n, message in listed if all(piece in message for piece in pieces)), None)
        if quoted is not None:
            gone.add(at)
            place[quoted] = min(place[quoted], at)
    remaining = sorted((at for at in range(len(uniques)) if at not in gone), key=place.__getitem__)
    return Folded([uniques[at] for at in remaining], [copies[at] for at in remaining])


def fold_rest(
    folded: Folded, rest: Sequence[Row], texts: Mapping[int, str]
) -> tuple[list[tuple[Ranked, int]], list[tuple[Row, int]]]:
    """Fold the copies among unmeasured rows with a text in `texts`: keep the first of each.

    Return the candidates with the copies counted, and the other rows with theirs.
    """
    measured = {_key(r.features): i for i, r in enumerate(folded.kept)} if texts else {}
    more = list(folded.copies)
    first: dict[Hashable, int] = {}
    uniques: list[Row] = []
    copies: list[int] = []
    for row in rest:
        key = (row.kind, row.role, _normalize_text(texts[row.pk], row.role)) if row.pk in texts else row.pk
        if key in measured:
            more[measured[key]] += 1
        elif key in first:
            copies[first[key]] += 1
        else:
            first[key] = len(uniques)
            uniques.append(row)
            copies.append(0)
    return list(zip(folded.kept, more, strict=True)), list(zip(uniques, copies, strict=True))


def _is_read(f: Features) -> bool:
    return bool(f.beginning) and f.size <= SHORT


def _normalize_text(text: str, role: str) -> bytes:
    """Normalise a text for comparison: no numbers in tool output, no surrounding white space."""
    encoded = text.encode("utf-8", "replace")
    return (encoded.translate(None, b"0123456789") if role == TOOL else encoded).strip()


def _key(f: Features) -> Hashable:
    """Return the key that copies share.

    Short texts: the text. Long ones, which are not read: their length and the positions of the query's words, without
    the previous message, which `length` and `counts` include.
    """
    row = f.row
    if _is_read(f):
        return (row.kind, row.role, _normalize_text(f.beginning, row.role))
    return (row.kind, row.role, f.size, f.own, f.adjacent, f.near)
