"""Search over messages, observations and tasks: whatever is typed is a query, never an error.

Words are looked up in a stemmed index with the pieces of identifiers and a little of the message before; what
looks like an identifier, or finds little, is also looked up by trigrams, and both lists are fused by reciprocal
rank (Cormack, Clarke and Büttcher 2009, k = 60). What no index can hold (`C#`, an emoji, two CJK signs) is found by
LIKE.
"""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sakti.store.connection import Database
from sakti.store.search_index import pieces

CANDIDATES = 300
MAX_TERMS = 32
RRF_K = 60
SNIPPET = 160
KINDS = ("message", "observation", "reflection", "task", "working_memory")

STOP_WORDS = frozenset(
    "a about all also am an and any are as at be because been being but by can could did do does doing done for from"
    " get got had has have having he her here hers him his how i if in into is it its just like me more most my no"
    " nor not of on one only or other our out over own s same she should so some such t than that the their them"
    " then there these they this those through to too up us very was we were what when where which while who whom"
    " why will with would you your".split()
)

_FILTER = re.compile(r"(?<!\S)(path|role|thread|task|kind|before|after):(\"[^\"]*\"|\S+)", re.IGNORECASE)
_PHRASE = re.compile(r"(-?)\"([^\"]+)\"")
_EXCLUDED = re.compile(r"(?<!\S)-(\w[\w.-]*)")
_PREFIX = re.compile(r"(?<!\S)(\w{2,})\*(?!\S)")
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"[^\s\"'`,;:!?()\[\]{}<>]+")
_IDENTIFIER = re.compile(
    r"[A-Za-z0-9]+(?:[_./:\\-][A-Za-z0-9]+)+|[a-z0-9]+[A-Z]\w*|[A-Z][a-z]+[A-Z]\w*|\w*\d\w*[A-Za-z]\w*"
)


@dataclass(frozen=True, slots=True)
class Query:
    """What a search line means. `since` and `until` in Unix ms; everything that is no operator is `text`."""

    text: str
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    path: str = ""
    role: str = ""
    thread: str = ""
    task: str = ""
    kind: str = ""
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """Where to look: one thread, one workspace, or (both None) everywhere."""

    resource_id: str | None = None
    thread_id: str | None = None
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """`marks` are (start, end) in `snippet`; `score` is 0 to 1, `rank` counts from 1; `position` is a message's
    index in its thread; `group_id` the group of an observation line."""

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


@dataclass(frozen=True, slots=True)
class SearchPage:
    query: str
    total: int
    hits: tuple[Hit, ...] = ()


@dataclass(slots=True)
class _Candidate:
    pk: int
    score: float
    row: tuple[object, ...] = field(default=())


def parse_query(text: str) -> Query:
    """Read operators out of `text`; what is not one of them, or makes no sense, stays text."""
    query = Query(text="")
    rest = text

    def take_filter(match: re.Match[str]) -> str:
        nonlocal query
        name, value = match[1].lower(), match[2].strip('"')
        if name in ("before", "after"):
            moment = _moment(value)
            if moment is None:
                return match[0]
            query = replace(query, **{"until" if name == "before" else "since": moment})
        elif name == "kind" and value.rstrip("s") not in KINDS:
            return match[0]
        else:
            query = replace(query, **{name: value.rstrip("s") if name == "kind" else value})
        return " "

    rest = _FILTER.sub(take_filter, rest)
    phrases = [(bool(m[1]), m[2].strip()) for m in _PHRASE.finditer(rest) if _WORD.search(m[2])]
    rest = _PHRASE.sub(" ", rest) if phrases else rest
    excluded = [m[1] for m in _EXCLUDED.finditer(rest)]
    only_exclusions = not _EXCLUDED.sub(" ", rest).strip() and not phrases
    if excluded and not only_exclusions:
        rest = _EXCLUDED.sub(" ", rest)
    else:
        excluded = []
    prefixes = [m[1] for m in _PREFIX.finditer(rest)]
    rest = _PREFIX.sub(" ", rest)
    return replace(
        query,
        text=rest.strip(),
        phrases=tuple(p for minus, p in phrases if not minus),
        excluded=(*excluded, *(p for minus, p in phrases if minus)),
        prefixes=tuple(prefixes),
    )


def _moment(value: str) -> int | None:
    """`2026-01-15`, `2026-01`, `today`, `yesterday`, `7d` (ago) as Unix ms in local time."""
    now = datetime.datetime.now().astimezone()
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if value == "today":
        moment = midnight
    elif value == "yesterday":
        moment = midnight - datetime.timedelta(days=1)
    elif match := re.fullmatch(r"(\d{1,5})([dwh])", value):
        hours = {"h": 1, "d": 24, "w": 168}[match[2]] * int(match[1])
        moment = now - datetime.timedelta(hours=min(hours, 876_000))
    else:
        try:
            moment = datetime.datetime.fromisoformat(f"{value}-01" if re.fullmatch(r"\d{4}-\d\d", value) else value)
        except ValueError:
            return None
    try:
        return int(moment.timestamp() * 1000)
    except (OverflowError, OSError, ValueError):  # years that the platform's clock does not know
        return None


def terms(text: str) -> list[str]:
    """The words to look up: lower case, without stop words unless nothing is left, with the pieces and the joined
    form of identifiers, at most 32."""
    words: dict[str, None] = {}
    for token in _TOKEN.findall(text):
        parts = pieces(token)
        words.update(dict.fromkeys(w.lower() for w in _WORD.findall(token)))
        if len(parts) > 1:
            words.update(dict.fromkeys(parts))
            words["".join(parts)] = None
    kept = [w for w in words if w not in STOP_WORDS]
    return (kept or list(words))[:MAX_TERMS]


def looks_like_identifier(text: str) -> bool:
    tokens = text.split()
    return len(tokens) == 1 or (0 < len(tokens) <= 3 and any(_IDENTIFIER.fullmatch(t) for t in tokens))


def search(db: Database, text: str, scope: Scope, *, limit: int = 20, offset: int = 0) -> SearchPage:
    """The best hits for what was typed, best first; identical texts once. Never raises for a query."""
    query = parse_query(text.encode("utf-8", "replace").decode().replace("\0", " "))
    where, values = _filters(query, scope)
    words = terms(query.text)
    found: list[_Candidate] = []
    match = _word_match(words, query)
    if match:
        found = _candidates(db, "search_words", "bm25(search_words, 1.0, 0.5, 0.2)", match, where, values)
        _rerank(found, words, query)
    if query.text and (looks_like_identifier(query.text) or len(found) < 5):
        trigram = _trigram_match(query)
        if trigram:
            by_trigram = _candidates(db, "search_trigrams", "bm25(search_trigrams)", trigram, where, values)
            found = _fuse(found, by_trigram)
    if not found:
        found = _like(db, query, where, values)
    found = [c for c in found if not _has_excluded(c, query)]
    found = _without_duplicates(found)
    top = max((c.score for c in found), default=1.0) or 1.0
    hits = tuple(
        _hit(c, [*words, *query.prefixes, *query.phrases, query.text], c.score / top, offset + i + 1)
        for i, c in enumerate(found[offset : offset + limit])
    )
    return SearchPage(text, len(found), hits)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _word_match(words: Sequence[str], query: Query) -> str:
    optional = [*map(_quoted, words), *(f"{_quoted(p)}*" for p in query.prefixes)]
    required = [_quoted(p) for p in query.phrases]
    parts = [f"({' OR '.join(optional)})"] if optional and not required else []
    return " AND ".join([*required, *parts]) if required or parts else ""


def _trigram_match(query: Query) -> str:
    tokens = [t for t in dict.fromkeys(_TOKEN.findall(query.text)) if len(t) >= 3 and t.lower() not in STOP_WORDS]
    return " OR ".join(_quoted(t) for t in tokens[:MAX_TERMS])


_COLUMNS = (
    "d.pk, d.kind, d.doc_id, d.thread_id, coalesce(t.title, ''), d.task_id, d.role, d.created_at, d.position, d.text"
)


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
        add("d.task_id IN (SELECT id FROM tasks WHERE id = ? OR handle = ?)", query.task, query.task)
    if query.since is not None:
        add("d.created_at >= ?", query.since)
    if query.until is not None:
        add("d.created_at < ?", query.until)
    if query.path:
        glob = query.path if any(c in query.path for c in "*?[") else f"*{query.path}*"
        add("d.paths GLOB ?", glob)
    return " AND ".join(clauses), values


def _candidates(db: Database, table: str, rank: str, match: str, where: str, values: list[object]) -> list[_Candidate]:
    rows = db.execute_sql(
        f"SELECT {rank} AS score, {_COLUMNS} FROM {table} JOIN search_docs d ON d.pk = {table}.rowid"
        f" LEFT JOIN threads t ON t.id = d.thread_id WHERE {table} MATCH ? AND {where} ORDER BY score LIMIT ?",
        (match, *values, CANDIDATES),
    ).fetchall()
    return [_Candidate(row[1], -row[0], tuple(row[1:])) for row in rows]  # bm25 is the lower the better


def _rerank(found: list[_Candidate], words: Sequence[str], query: Query) -> None:
    """Adjacent words of the query, a hit next to another in its thread, the three best of a thread: each lifts."""
    if not found:
        return
    top = found[0].score or 1.0
    pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)]
    best_of_thread: dict[object, list[float]] = {}
    places = {(c.row[3], c.row[8]) for c in found if c.row[1] == "message"}
    for c in found:
        best_of_thread.setdefault(c.row[3], []).append(c.score / top)
    for c in found:
        c.score /= top
        flat = " ".join(_WORD.findall(str(c.row[9])[:4000].lower()))
        if pairs:
            c.score += 0.3 * sum(p in flat for p in pairs) / len(pairs)
        thread, position = c.row[3], c.row[8]
        if c.row[1] == "message" and isinstance(position, int):
            c.score += 0.1 * ((thread, position - 1) in places or (thread, position + 1) in places)
        c.score += 0.3 * sum(best_of_thread[thread][:3]) / 3
    found.sort(key=lambda c: -c.score)


def _fuse(*lists: list[_Candidate]) -> list[_Candidate]:
    fused: dict[int, _Candidate] = {}
    for ranked in lists:
        for rank, candidate in enumerate(ranked):
            kept = fused.setdefault(candidate.pk, _Candidate(candidate.pk, 0.0, candidate.row))
            kept.score += 1 / (RRF_K + rank + 1)
    return sorted(fused.values(), key=lambda c: -c.score)


def _like(db: Database, query: Query, where: str, values: list[object]) -> list[_Candidate]:
    """Everything newest first where only filters were typed; else texts that contain what was typed."""
    wanted = [query.text, *query.phrases, *query.prefixes]
    needles = [w for w in wanted if w]
    if not needles and where == "1 = 1":
        return []
    clause = "".join(" AND d.text LIKE ? ESCAPE '\\'" for _ in needles)
    escaped = [
        f"%{n[:200].replace(chr(92), chr(92) * 2).replace('%', chr(92) + '%').replace('_', chr(92) + '_')}%"
        for n in needles
    ]
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM search_docs d LEFT JOIN threads t ON t.id = d.thread_id"
        f" WHERE {where}{clause} ORDER BY d.created_at DESC LIMIT ?",
        (*values, *escaped, CANDIDATES // 3),
    ).fetchall()
    return [_Candidate(row[0], 1.0 - i / (len(rows) + 1), tuple(row)) for i, row in enumerate(rows)]


def _has_excluded(candidate: _Candidate, query: Query) -> bool:
    text = str(candidate.row[9]).lower()
    return any(e.lower() in text for e in query.excluded)


def _without_duplicates(found: Iterable[_Candidate]) -> list[_Candidate]:
    seen: set[tuple[object, object]] = set()
    kept: list[_Candidate] = []
    for c in found:
        key = (c.row[1], c.row[9])
        if key not in seen:
            seen.add(key)
            kept.append(c)
    return kept


def _hit(candidate: _Candidate, words: Iterable[str], score: float, rank: int) -> Hit:
    _, kind, doc_id, thread_id, title, task_id, role, created, position, text = candidate.row
    snippet, marks = snippet_of(str(text), words)
    return Hit(
        str(doc_id),
        str(kind),
        None if thread_id is None else str(thread_id),
        str(title),
        None if task_id is None else str(task_id),
        str(role),
        int(str(created)),
        int(str(position)),
        str(text),
        snippet,
        marks,
        round(score, 4),
        rank,
    )


def snippet_of(text: str, words: Iterable[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """About 160 characters of `text` on one line where most of `words` stand, and where they stand in it."""
    wanted = sorted({w.lower() for w in words if w.strip()}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, wanted[:64])), re.IGNORECASE) if wanted else None
    spots = [m.start() for m in pattern.finditer(text[:50_000])] if pattern else []
    start = 0
    if spots:
        best = max(spots[:500], key=lambda s: sum(s <= x < s + SNIPPET for x in spots[:500]))
        start = max(0, best - 30)
    cut = " ".join(text[start : start + SNIPPET].split())
    snippet = ("…" if start else "") + cut + ("…" if start + SNIPPET < len(text) else "")
    marks = tuple((m.start(), m.end()) for m in pattern.finditer(snippet)) if pattern else ()
    return snippet, marks
