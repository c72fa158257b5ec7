"""Search messages, observations and tasks: any input is a valid query.

Words are looked up in a stemmed index with the pieces of identifiers and a little of the previous message; what looks
like an identifier, or finds little, is also looked up by trigrams, and both lists are fused by reciprocal rank. A
word that no text has is corrected by one letter. What no index can hold (`C#`, an emoji, two CJK signs) is found by
LIKE. The work for one query is bounded: common words are looked up where rare ones stand, or among the newest texts
only.

Raw SQL: MATCH and bm25.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sakti.store.connection import Connection
from sakti.store.search import rank as search_rank
from sakti.store.search import reindexing
from sakti.store.search.index import pieces
from sakti.store.search.query import (
    KINDS,
    LANGUAGES,
    MAX_TERMS,
    MAX_TEXT,
    STOP_WORDS,
    TOKEN,
    WORD,
    Query,
    looks_like_identifier,
    parse_query,
    terms,
)
from sakti.store.search.rank import Candidate
from sakti.store.search.snippets import SNIPPET, snippet_of
from sakti.store.search.stems import stems

__all__ = [
    "KINDS", "Hit", "Query", "Scope", "SearchPage", "looks_like_identifier", "parse_query", "search", "terms",
]  # fmt: skip

CANDIDATES = 300
FEW = 5  # fewer hits than that: look by trigrams too
QUESTION = 3  # from so many words on, the answer may stand beside what matches
ENTERING = 50  # hits whose neighbours may enter the list
HEAD = 4_000  # characters of a candidate that are read for ranking
WEIGHTS = "bm25(search_words, 1.0, 0.5, 0.3, 0.3)"  # text, pieces of identifiers, message before, its summary
BUDGET = 9_000  # postings that one query may rank, about 1 µs each
POSTINGS = 6_000  # texts looked up by trigrams for one query
MANY, LARGE = 50_000, 300_000  # texts; from so many on they lie so far apart that a posting costs twice as much
SAMPLE = 10_000  # newest texts from which the number of postings is estimated
LIKE_ROWS = 100_000  # newest texts that LIKE goes through
VOCABULARY = 20_000  # terms with the same beginning that a correction is chosen from
CORRECTED = 3  # words of a query that may be corrected
WIDE = 600  # hits taken without looking at the filters first


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of a search: one thread, one workspace, or (both None) everywhere."""

    resource_id: str | None = None
    thread_id: str | None = None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """Search hit.

    `marks` are (start, end) in `snippet`, which begins at `start` of `text`; `score` is 0 to 1, `rank` counts from 1;
    `position` is a message's index in its thread, the first one behind an observation; `source`: raw or compacted (a
    message), observation, reflection, task, working_memory.
    """

    id: str
    kind: str
    thread_id: str | None
    thread_title: str
    task_id: str | None
    role: str
    time: int
    position: int
    text: str
    snippet: str
    marks: tuple[tuple[int, int], ...]
    score: float
    rank: int
    source: str = "raw"
    start: int = 0


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Page of hits; `total` can be paged through.

    `more`: these are the best of more. `newest_only`: the query was so common that only the newest texts were
    searched. `partial`: substrings were not searched yet.
    """

    query: str
    total: int
    hits: tuple[Hit, ...] = ()
    newest_only: bool = False
    more: bool = False
    partial: bool = False

    @property
    def found(self) -> str:
        """Describe the number of hits."""
        return f"the best {self.total} of more" if self.more else f"{self.total} found"


@dataclass(slots=True)
class _Place:
    """Filter of rows.

    The SQL condition over `d` and `t`, its values, and the lowest key to look at. `narrow`: the user gave a filter or
    scope.
    """

    where: str
    values: list[object]
    narrow: bool
    floor: int = 0


def search(
    db: Connection,
    text: str,
    scope: Scope,
    *,
    limit: int = 20,
    offset: int = 0,
    now: int | None = None,
    first: bool = False,
) -> SearchPage:
    """Return the best hits, best first, without duplicates. Never raises for a query.

    `now` (Unix ms, default the clock) is what recency counts from. `first`: in large stores whole-word hits suffice,
    if there are any; the page is then `partial`.
    """
    query = parse_query(text[:MAX_TEXT].encode("utf-8", "replace").decode().replace("\0", " "))
    place = _place(db, query, scope)
    newest = _newest(db)
    large = newest > MANY
    words = _corrected(db, terms(query.text), query.text, large)
    found, newest_only = _by_words(db, words, query, place)
    wanting = bool(query.text) and (looks_like_identifier(query.text) or len(found) < FEW)
    partial = first and newest > LARGE and wanting and bool(found)
    if wanting and not partial:
        by_trigram, cut = _by_trigrams(db, query, place, large)
        newest_only |= cut
        if by_trigram:
            found = search_rank.fuse(found, by_trigram)
    asked = len(query.text) >= 3 and TOKEN.fullmatch(query.text)  # the trigrams for this very text
    if not found and (newest_only or not asked):
        found = _like(db, query, place)
    more = len(found) >= CANDIDATES
    found = _without_excluded(db, found, query)
    search_rank.prefer_recent(found, int(time.time() * 1000) if now is None else now)
    found = search_rank.without_duplicates(found)
    top = max((c.score for c in found), default=1.0) or 1.0
    marked = (*words, *query.prefixes, *query.phrases, query.text[:SNIPPET])
    page = found[offset : offset + limit]
    rows = _rows(db, [c.pk for c in page])
    hits = tuple(
        _hit(rows[c.pk], marked, min(1.0, c.score / top), offset + i + 1) for i, c in enumerate(page) if c.pk in rows
    )
    return SearchPage(text, len(found), hits, newest_only, more, partial)


# --- words --------------------------------------------------------------------------------------------------


def _by_words(db: Connection, words: list[str], query: Query, place: _Place) -> tuple[list[Candidate], bool]:
    ranked = list(dict.fromkeys([*words, *terms(" ".join(query.phrases))]))[:MAX_TERMS]
    newest, documents = _documents(db, ranked)
    if newest > LARGE:  # get_user is a phrase of common words; getuser stands for it
        words = [w for w in words if "_" not in w.strip("_")]
    looked_up, floor = _within_budget(words, documents, newest, BUDGET)
    telling = _without_languages(looked_up, documents)
    match = _word_match(telling, query)
    if not match:
        return [], False
    if floor and not (query.phrases or query.prefixes):
        known = [w for w in telling if documents[w]]
        found = _of(db, _newest_with(db, "search_words", known, BUDGET)[0], place)
    else:
        found = _candidates(db, "search_words", WEIGHTS, match, replace(place, floor=floor))
    question = len(query.text.split()) >= QUESTION and not query.phrases and not looks_like_identifier(query.text)
    entering = _neighbours(db, found[:ENTERING], place) if question else []
    search_rank.rerank(found, entering, search_rank.query_words(ranked, documents, newest))
    return found, floor > 0


def _newest(db: Connection) -> int:
    return db.execute_sql("SELECT coalesce(max(pk), 0) FROM search_docs").fetchone()[0]


def _documents(
    db: Connection, words: Sequence[str], table: str = "search_words", sample: int = SAMPLE
) -> tuple[int, dict[str, int]]:
    """Return the number of texts, and in how many each word is.

    Estimated from the newest texts: counting all would cost what the figures are to save.
    """
    newest = _newest(db)
    floor = max(0, newest - sample)
    share = max(1.0, newest / sample)
    sql = f"SELECT count(*) FROM {table} WHERE {table} MATCH ? AND rowid > ?"
    counts = {w: db.execute_sql(sql, (_quoted(w), floor)).fetchone()[0] for w in words}
    return newest, {w: round(n * share) or (1 if floor else 0) for w, n in counts.items()}


def _within_budget(words: list[str], documents: Mapping[str, int], newest: int, budget: int) -> tuple[list[str], int]:
    """Return the words to look up within a budget, and the lowest key to look at.

    Rare words are looked up everywhere; where all are common, all of them among the newest texts.
    """
    cost = {w: documents[w] for w in words}
    budget //= 2 if newest > LARGE else 1
    if sum(cost.values()) <= budget:
        return words, 0
    kept: list[str] = []
    spent = 0
    for word in sorted(words, key=lambda w: cost[w]):
        if spent + cost[word] > budget:
            break
        kept.append(word)
        spent += cost[word]
    if any(cost[w] for w in kept):
        return [w for w in words if w in kept], 0
    return words, max(1, newest - newest * budget // max(1, sum(cost.values())))


def _corrected(db: Connection, words: list[str], text: str, large: bool) -> list[str]:
    """Return `words`, each typed word that no text has followed by the nearest known ones.

    Nearest is one letter away (one edit or transposition: 80 % of typing errors, Damerau 1964). The first two letters
    are taken as right (three in large stores); an identifier whose pieces are all known words is not corrected.
    """
    parts = [pieces(token) for token in TOKEN.findall(text)]
    whole = {"".join(p): p for p in parts if len(p) > 1}
    typed = {w.lower() for w in WORD.findall(text)} | {w for p in parts for w in p} | whole.keys()
    out: list[str] = []
    tried = 0
    for word in words:
        out.append(word)
        if tried == CORRECTED or (large and word not in typed) or len(word) < 5 or not re.fullmatch("[a-z]+", word):
            continue
        if _exists(db, word, large) or (word in whole and all(_exists(db, piece, large) for piece in whole[word])):
            continue
        tried += 1
        near = {row for form in {word, *stems(word)[:1]} for row in _near(db, form, 3 if large else 2)}
        out.extend(term for _, term in sorted(near, reverse=True)[:2])
    return list(dict.fromkeys(out))[:MAX_TERMS]


def _near(db: Connection, word: str, right: int) -> list[tuple[int, str]]:
    """Return (texts, term) for the indexed terms one letter away that share the first `right` letters.

    One edit leaves the first or the last half (less one letter, for a swap in the middle) unchanged.
    """
    half = len(word) // 2 - 1
    rows = db.execute_sql(
        "SELECT doc, term FROM (SELECT term, doc FROM search_vocabulary WHERE term >= ? AND term < ? LIMIT ?)"
        " WHERE length(term) BETWEEN ? AND ? AND (substr(term, 1, ?) = ? OR substr(term, -?) = ?)",
        (
            word[:right], word[:right] + "\U0010ffff", VOCABULARY, len(word) - 1, len(word) + 1,
            half, word[:half], half, word[-half:],
        ),
    ).fetchall()  # fmt: skip
    return [(doc, term) for doc, term in rows if _one_edit(word, term)]


def _exists(db: Connection, word: str, large: bool) -> bool:
    """Return whether a text contains the word, or a part of one.

    In large stores substrings cost too much; a part then counts as a typing error, which only adds words to the
    query.
    """
    return any(
        db.execute_sql(f"SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT 1", (_quoted(word),)).fetchone()
        for table in (("search_words",) if large else ("search_words", "search_trigrams"))
    )


def _one_edit(a: str, b: str) -> bool:
    """Return whether inserting, removing, changing or swapping one letter turns `a` into `b`."""
    if abs(len(a) - len(b)) > 1 or a == b:
        return False
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    rest_a, rest_b = a[start:], b[start:]
    if len(a) == len(b):
        return rest_a[1:] == rest_b[1:] or (rest_a[:2] == rest_b[1::-1] and rest_a[2:] == rest_b[2:])
    return rest_a[1:] == rest_b if len(a) > len(b) else rest_a == rest_b[1:]


def _without_languages(words: list[str], documents: Mapping[str, int]) -> list[str]:
    """Return `words` without names of languages, where at least two others are known."""
    others = [w for w in words if w not in LANGUAGES]
    return others if sum(documents[w] > 0 for w in others) > 1 else words


def _word_match(words: Sequence[str], query: Query) -> str:
    optional = [*map(_quoted, words), *(f"{_quoted(p)}*" for p in query.prefixes)]
    required = [f"{{text idents}} : {_quoted(p)}" for p in query.phrases]
    parts = [f"({' OR '.join(optional)})"] if optional and not required else []
    return " AND ".join([*required, *parts]) if required or parts else ""


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


# --- trigrams -----------------------------------------------------------------------------------------------


def _by_trigrams(db: Connection, query: Query, place: _Place, large: bool) -> tuple[list[Candidate], bool]:
    """Return texts that contain the tokens of the query, newest first if there are many.

    Where there are none and the query looks like a misspelt identifier: texts that share three-letter pieces with it.
    """
    tokens = [t for t in dict.fromkeys(TOKEN.findall(query.text)) if len(t) >= 3 and t.lower() not in STOP_WORDS]
    if not tokens:
        return [], False
    found, cut = _containing(db, tokens[:MAX_TERMS], place)
    if found or not looks_like_identifier(query.text) or all(_exists(db, p, large) for t in tokens for p in pieces(t)):
        return found, cut
    letters = "".join(tokens)[: MAX_TERMS + 2].lower()
    return _containing(db, list(dict.fromkeys(letters[i : i + 3] for i in range(len(letters) - 2))), place)


def _containing(db: Connection, parts: Sequence[str], place: _Place) -> tuple[list[Candidate], bool]:
    """Return texts with most of `parts`, by BM25, and whether older ones were not searched."""
    keys, rarity, cut = _newest_with(db, "search_trigrams", parts, POSTINGS)
    candidates = _of(db, keys, place)
    search_rank.rank_by_substrings(candidates, rarity)
    return candidates, cut


def _newest_with(
    db: Connection, table: str, parts: Sequence[str], postings: int
) -> tuple[list[int], dict[str, float], bool]:
    """Return the keys of texts with most of `parts`, the idf of each part, and whether older texts were left out.

    Keys are sorted by summed idf, equals newest first. Common parts are looked up among the newest, and only rank
    what rare ones found if there are any. FTS5's own bm25 goes through every text for each part, however few are
    wanted.
    """
    newest, share = _newest(db), postings // len(parts)
    sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT ?"
    keys = {part.lower(): [row[0] for row in db.execute_sql(sql, (_quoted(part), share))] for part in parts}
    rare = [part for part, found in keys.items() if 0 < len(found) < share]
    scores: dict[int, float] = {}
    rarity: dict[str, float] = {}
    for part, found in keys.items():
        if not found:
            continue
        documents = len(found) if part in rare else len(found) * newest / (newest - found[-1] + 1)
        rarity[part] = weight = math.log(1 + newest / documents)
        if part in rare or not rare:
            for key in found:
                scores[key] = scores.get(key, 0.0) + weight
    best = sorted(sorted(scores, reverse=True), key=scores.__getitem__, reverse=True)
    return best, rarity, bool(scores) and not rare


# --- rows ---------------------------------------------------------------------------------------------------

_RANKED = (
    f"d.pk, d.kind, d.thread_id, d.position, d.created_at, substr(d.text, 1, {HEAD}), length(d.text),"
    f" substr(d.idents, 1, {HEAD}), d.prev"
)
_COLUMNS = (
    "d.pk, d.kind, d.doc_id, d.thread_id, coalesce(t.title, ''), d.task_id, d.role, d.created_at, d.position, d.text,"
    " CASE WHEN d.kind != 'message' THEN d.kind WHEN EXISTS (SELECT 1 FROM compaction_records c"
    " WHERE c.thread_id = d.thread_id AND c.undone_at IS NULL AND d.position BETWEEN c.first_index AND c.last_index)"
    " THEN 'compacted' ELSE 'raw' END"
)
_FROM = "search_docs d LEFT JOIN threads t ON t.id = d.thread_id"


def _of(db: Connection, keys: Sequence[int], place: _Place) -> list[Candidate]:
    """Return those of `keys` that pass the filters, in order, at most 300."""
    found: list[Candidate] = []
    for start in range(0, len(keys), CANDIDATES):
        some = keys[start : start + CANDIDATES]
        rows = db.execute_sql(
            f"SELECT {_RANKED} FROM {_FROM} WHERE d.pk IN ({','.join(map(str, some))}) AND {place.where}",
            tuple(place.values),
        ).fetchall()
        rows = {row[0]: row for row in rows}
        found += (Candidate(key, 0.0, *rows[key][1:]) for key in some if key in rows)
        if len(found) >= CANDIDATES:
            break
    return found[:CANDIDATES]


def _candidates(db: Connection, table: str, rank: str, match: str, place: _Place) -> list[Candidate]:
    """Return the best candidates in bm25 order.

    The filters are applied to the best alone, unless those do not suffice: a join for each of 200,000 rows costs more
    than the ranking itself.
    """
    wide = WIDE if len(place.values) <= 1 else 2 * WIDE
    best = db.execute_sql(
        f"SELECT rowid, {rank} AS score FROM {table} WHERE {table} MATCH ? AND rowid > ? ORDER BY score LIMIT ?",
        (match, place.floor, wide),
    ).fetchall()
    found: list[Candidate] = []
    for start in range(0, len(best), CANDIDATES):
        scores = dict(best[start : start + CANDIDATES])
        rows = db.execute_sql(
            f"SELECT {_RANKED} FROM {_FROM} WHERE d.pk IN ({','.join(map(str, scores))}) AND {place.where}",
            tuple(place.values),
        ).fetchall()
        found += sorted((Candidate(r[0], -scores[r[0]], *r[1:]) for r in rows), key=lambda c: -c.score)
        if len(found) >= search_rank.RANKED:
            return found[:CANDIDATES]
    if len(best) < wide or len(found) >= CANDIDATES // 6:
        return found
    rows = db.execute_sql(
        f"SELECT {rank} AS score, {_RANKED} FROM {table} CROSS JOIN search_docs d ON d.pk = {table}.rowid"
        f" LEFT JOIN threads t ON t.id = d.thread_id WHERE {table} MATCH ? AND {table}.rowid > ? AND {place.where}"
        " ORDER BY score LIMIT ?",
        (match, place.floor, *place.values, CANDIDATES),
    ).fetchall()
    return [Candidate(row[1], -row[0], *row[2:]) for row in rows]  # bm25 is the lower the better


def _neighbours(db: Connection, found: Sequence[Candidate], place: _Place) -> list[Candidate]:
    """Return the messages before and after each of `found` that pass the filters."""
    wanted = {(c.thread_id, c.position + step) for c in found if c.kind == "message" for step in (-1, 1)}
    wanted -= {c.place for c in found}
    wanted = {w for w in wanted if w[0] is not None}
    if not wanted:
        return []
    rows = db.execute_sql(
        f"SELECT {_RANKED} FROM (VALUES {','.join(['(?, ?)'] * len(wanted))}) w CROSS JOIN search_docs d"
        " ON d.thread_id = w.column1 AND d.kind = 'message' AND d.position = w.column2"
        f" LEFT JOIN threads t ON t.id = d.thread_id WHERE {place.where}",
        (*(v for pair in wanted for v in pair), *place.values),
    ).fetchall()
    return [Candidate(row[0], 0.0, *row[1:]) for row in rows]


def _rows(db: Connection, keys: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    if not keys:
        return {}
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM {_FROM} WHERE d.pk IN ({','.join('?' * len(keys))})", tuple(keys)
    ).fetchall()
    return {row[0]: tuple(row) for row in rows}


def _place(db: Connection, query: Query, scope: Scope) -> _Place:
    where, values = _filters(query, scope)
    # rows of a thread that was deleted just now; otherwise none are there, and nothing need be looked at
    hidden = f" AND NOT {reindexing.HIDDEN}" if reindexing.has_hidden_rows(db) else ""
    return _Place(where + hidden, values, where != "1 = 1")


def _filters(query: Query, scope: Scope) -> tuple[str, list[object]]:
    clauses, values = ["1 = 1"], list[object]()

    def add(clause: str, *more: object) -> None:
        clauses.append(clause)
        values.extend(more)

    if scope.resource_id is not None:
        add("d.resource_id = ?", scope.resource_id)
    if scope.thread_id is not None:
        add("d.thread_id = ?", scope.thread_id)
    kinds = (query.kind,) if query.kind else scope.kinds
    if kinds:
        add(f"d.kind IN ({','.join('?' * len(kinds))})", *kinds)
    if query.role:
        add("d.role = ?", query.role.lower())
    if query.thread:
        add(
            "(d.thread_id = ? OR d.thread_id LIKE ? OR t.title LIKE ?)",
            query.thread,
            f"%{query.thread}",
            f"%{query.thread}%",
        )
    if query.task:
        add("EXISTS (SELECT 1 FROM tasks k WHERE k.id = d.task_id AND ? IN (k.id, k.handle))", query.task)
    if query.since is not None:
        add("d.created_at >= ?", query.since)
    if query.until is not None:
        add("d.created_at < ?", query.until)
    if query.path:
        glob = query.path if any(c in query.path for c in "*?[") else f"*{query.path}*"
        add("d.paths GLOB ?", glob)
    return " AND ".join(clauses), values


def _like(db: Connection, query: Query, place: _Place) -> list[Candidate]:
    """Return texts that contain what was typed; with filters alone everything, newest first."""
    needles = [w for w in (query.text, *query.phrases, *query.prefixes) if w]
    if not needles and not place.narrow:
        return []
    clause, values = "", list[str]()
    for needle in (n[:200] for n in needles):
        if len(needle) >= 3:  # the trigrams know it, or know that nothing has it
            clause += " AND d.pk IN (SELECT rowid FROM search_trigrams WHERE search_trigrams MATCH ?)"
            values.append(_quoted(needle))
        else:
            clause += " AND d.text LIKE ? ESCAPE '\\'"
            values.append("%" + re.sub(r"([\\%_])", r"\\\1", needle) + "%")
    rows = db.execute_sql(
        f"SELECT {_RANKED} FROM {_FROM} WHERE {place.where}{clause}"
        " AND d.pk > (SELECT max(pk) FROM search_docs) - ? ORDER BY d.created_at DESC LIMIT ?",
        (*place.values, *values, LIKE_ROWS if needles else 1 << 60, CANDIDATES),
    ).fetchall()
    return [Candidate(row[0], 1.0 - i / (len(rows) + 1), *row[1:]) for i, row in enumerate(rows)]


def _without_excluded(db: Connection, found: list[Candidate], query: Query) -> list[Candidate]:
    if not query.excluded or not found:
        return found
    texts = _rows(db, [c.pk for c in found])
    words = "|".join(map(re.escape, query.excluded))
    unwanted = re.compile(rf"(?<!\w)(?:{words})(?!\w)", re.IGNORECASE)
    return [c for c in found if not unwanted.search(texts[c.pk][9])]


def _hit(row: tuple[Any, ...], words: Sequence[str], score: float, rank: int) -> Hit:
    _, kind, doc_id, thread_id, title, task_id, role, created, position, text, source = row
    snippet, marks, start = snippet_of(text, words)
    return Hit(
        doc_id,
        kind,
        thread_id,
        title,
        task_id,
        role,
        created,
        position,
        text,
        snippet,
        marks,
        round(score, 4),
        rank,
        source,
        start,
    )
