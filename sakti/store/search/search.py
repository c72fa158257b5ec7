"""Search messages, observations and tasks: any input is a valid query.

Filter (`filters.py`), retrieve (`retrieve.py`), measure (`features.py`), score (`rank.py`, which explains the ranking),
page (here).
"""

from __future__ import annotations

import datetime
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.connection import Connection
from sakti.store.search import filters, retrieve
from sakti.store.search.candidates import Candidates, find_candidates, find_unwanted_keys, is_short
from sakti.store.search.dates import RelativeTime, parse_relative_time
from sakti.store.search.excerpts import Excerpt, SoughtWords, cut_excerpt
from sakti.store.search.features import TEXT, Features
from sakti.store.search.filters import Scope, place_of
from sakti.store.search.occurrences import list_copy_sizes, load_sizes
from sakti.store.search.page import Hit, SearchPage
from sakti.store.search.query import (
    KINDS,
    MAX_TEXT,
    STOP_WORDS,
    Query,
    is_identifier,
    list_terms,
    parse_query,
)
from sakti.store.search.rank import NO_PARTS, Ranked, fold, fold_rest
from sakti.store.search.retrieve import Budget, IndexLookup
from sakti.store.search.rows import Row, Stored, load_hit_fields, load_texts, load_texts_before
from sakti.store.search.terms import make_phrase

__all__ = [
    "KINDS",
    "Hit",
    "Query",
    "Scope",
    "SearchPage",
    "is_identifier",
    "list_terms",
    "parse_query",
    "search",
]  # fmt: skip

TALKING = frozenset(
    "about all anything do doing done everything happen happened happening list messages on said say show talk talked"
    " talking discuss discussed work worked working".split()
)  # words of questions about no particular content
TIME, FIRST_TIME = 0.02, 0.008  # seconds for one query, and for a first page, in which the indexes are read
PAGE = 20  # rows of a page; if folding copies leaves fewer, further rows are searched for so many more seconds
BEHIND_COPIES = 0.08
MANY_COPIES = 20  # of one text; further copies are found by their sizes first
LAST_TIME = 0.5  # seconds after which a query without results ends


def search(
    db: Connection,
    text: str,
    scope: Scope,
    *,
    limit: int = 20,
    offset: int = 0,
    now: int | None = None,
    first: bool = False,
    clock: Callable[[], float] = time.thread_time,
) -> SearchPage:
    """Return the best hits, best first, without copies. Never raises for a query.

    `now` (Unix ms, default the newest text): a month without a year is the last one before it. `first`: return a
    first page quickly; in large stores it may be `partial`. `clock` returns seconds of CPU time of this thread, so
    that other work on the machine does not change the result.
    """
    normalized = unicodedata.normalize("NFC", text[:MAX_TEXT].encode("utf-8", "replace").decode().replace("\0", " "))
    phrases: dict[str, bool] = {}

    def is_said(phrase: str) -> bool:
        phrases[phrase] = bool(retrieve.find_known_phrases(db, [make_phrase(phrase)]))
        return phrases[phrase]

    query = parse_query(normalized, is_said)
    if unknown := filters.find_unknown_filters(db, query):
        query = parse_query(normalized, is_said, unknown=unknown)
    alone = parse_query(normalized, unknown=unknown, needs_words=False)
    if query.text and alone == Query("", excluded=alone.excluded):
        query = replace(query, excluded=alone.excluded, only_excludes=True)
        phrases.clear()
    unread = [(name, value) for name, value in query.unknown if not is_said(f"{name}:{value}")]
    query = replace(query, unknown=(*unknown.items(), *unread))
    said_so = tuple(phrase for phrase, exists in phrases.items() if exists and ":" not in phrase)
    asking = _Asking(text, scope, limit, offset, now, first, clock)
    timed = _find_relative_time(query, now)
    if timed is None:
        return replace(_search(db, query, asking), said=said_so)
    query = _restrict_to_time(query, timed)
    page = _search(db, query, asking)
    if page.total or page.partial:
        return replace(page, said=said_so, when=timed.described)
    if query.text or query.phrases or query.prefixes:
        page = _search(db, replace(query, since=None, until=None), asking)
    return replace(page, said=said_so, empty_time=timed.described)


class _Asking(Struct, frozen=True):
    """Arguments of `search` besides the query."""

    text: str
    scope: Scope
    limit: int
    offset: int
    now: int | None
    first: bool
    clock: Callable[[], float]


def _find_relative_time(query: Query, now: int | None) -> RelativeTime | None:
    """Return the relative time named in the query, if no filter names one."""
    if query.since is not None or query.until is not None or query.alternatives:
        return None
    return parse_relative_time(query.text, datetime.datetime.fromtimestamp(now / 1000 if now else time.time()))


def _restrict_to_time(query: Query, timed: RelativeTime) -> Query:
    """Restrict the query to that time; without other words all texts of it match."""
    words = [w.strip("?.,!'").lower() for w in timed.rest.split()]
    rest = "" if all(not w or w in STOP_WORDS or w in TALKING for w in words) else timed.rest
    return replace(query, text=rest, since=timed.start, until=timed.end)


def _search(db: Connection, query: Query, asking: _Asking) -> SearchPage:
    look = _make_lookup(db, query, asking)
    budget = look.budget
    candidates = find_candidates(look, query, first=asking.first, now=asking.now)
    listed = _list_candidates(db, candidates, query)
    if not asking.first:
        candidates, listed = _look_behind(look, candidates, listed, query, asking.now)
    unfinished = candidates.partial or (asking.first and _is_unfinished(candidates, listed.total, look))
    others = SearchPage(asking.text, 0) if listed.total or unfinished else _search_elsewhere(db, query, asking)
    since = {key: retrieve.time_of(db, key) for key in set(budget.unread.values())}
    return SearchPage(
        asking.text,
        listed.total,
        _build_hits(db, listed, asking, query, candidates),
        more=candidates.more,
        partial=unfinished,
        unread=tuple((name, since[key]) for name, key in budget.unread.items()),
        suggestion="" if query.unknown else candidates.suggestion,
        elsewhere=others.total,
        more_elsewhere=others.more or others.partial,
        without=query.excluded if (listed.gone or candidates.avoided) and not query.only_excludes else (),
        only_excludes=query.only_excludes,
        unquoted=candidates.unquoted,
        unknown=query.unknown,
        with_all=sum(r.features.complete for r, _ in listed.folded) if candidates.pattern.tells_all else None,
    )


def _make_lookup(db: Connection, query: Query, asking: _Asking) -> IndexLookup:
    newest = retrieve.find_newest_key(db)
    place = place_of(db, query, asking.scope, newest)
    start = asking.clock()
    end, last = (FIRST_TIME, FIRST_TIME) if asking.first else (TIME, LAST_TIME)
    budget = Budget(asking.clock, start + end, start + last)
    return IndexLookup(db, place, newest, budget)


def _is_unfinished(candidates: Candidates, total: int, look: IndexLookup) -> bool:
    """Return whether a first page lacks hits that a complete search may have."""
    return (candidates.more and total < PAGE) or (look.is_over() and (not total or bool(look.budget.unread)))


def _search_elsewhere(db: Connection, query: Query, asking: _Asking) -> SearchPage:
    """Count the hits in all workspaces if one was searched."""
    scope = asking.scope
    if scope.resource_id is None or scope.thread_id is not None or not asking.text.strip():
        return SearchPage(asking.text, 0)
    everywhere = replace(scope, resource_id=None)
    return _search(db, query, replace(asking, scope=everywhere, limit=0, offset=0, first=True))


class _ListedRows(Struct, frozen=True):
    """Listed rows, measured and not, each text with its number of copies; keys of excluded rows."""

    folded: list[tuple[Ranked, int]]
    rest: list[tuple[Row, int]]
    gone: set[int]

    @property
    def total(self) -> int:
        return len(self.folded) + len(self.rest)


def _list_candidates(db: Connection, candidates: Candidates, query: Query) -> _ListedRows:
    gone = find_unwanted_keys(db, candidates.rows, query)
    allowed = [r for r in candidates.ranked if r.features.row.pk not in gone]
    return _ListedRows(*_fold_copies(db, allowed, [row for row in candidates.rest if row.pk not in gone]), gone)


def _look_behind(
    look: IndexLookup, candidates: Candidates, listed: _ListedRows, query: Query, now: int | None
) -> tuple[Candidates, _ListedRows]:
    """Find more matches if copies or excluded texts used up the candidates.

    Rows that are probably neither (by sizes and index) come first.
    """
    end = look.budget.end + BEHIND_COPIES
    look = replace(look, budget=replace(look.budget, end=end, last=end))
    copied = [r.features.row.pk for r, copies in listed.folded if copies >= MANY_COPIES]
    likely_first = bool(copied or listed.gone)
    while candidates.more and listed.total < PAGE and not look.is_over():
        others = look.place.without([row.pk for row in candidates.rows])
        if likely_first:
            unwanted = query.excluded if listed.gone else ()
            others = retrieve.exclude_copies(look, others, list_copy_sizes(look.db, copied), unwanted)
        more = find_candidates(replace(look, place=others), query, first=False, now=now)
        candidates = candidates.and_behind(more, likely_first or more.more)
        listed = _list_candidates(look.db, candidates, query)
        if not (more.rows or likely_first):  # none of these rows meet the requirements: they would be found again
            break
        likely_first = False
    return candidates, listed


def _fold_copies(
    db: Connection, ranked: Sequence[Ranked], rest: Sequence[Row]
) -> tuple[list[tuple[Ranked, int]], list[tuple[Row, int]]]:
    """Return each text once, with the number of its copies.

    Among the unmeasured rows only possible copies of measured ones are read.
    """
    folded = fold(ranked, partial(load_texts, db))
    texts: dict[int, str] = {}
    if any(folded.copies):
        sizes = load_sizes(db, [row.pk for row in rest])
        alike = [(r, (r.role, sizes[r.pk][TEXT])) for r in rest if r.pk in sizes and is_short(sizes[r.pk])]
        measured = ((r.features.row.role, r.features.size) for r in folded.kept)
        often = Counter([*(key for _, key in alike), *measured])
        texts = load_texts(db, [r.pk for r, key in alike if often[key] > 1])
    return fold_rest(folded, rest, texts)


# --- hits ---------------------------------------------------------------------------------------------------


def _build_hits(
    db: Connection, listed: _ListedRows, asking: _Asking, query: Query, candidates: Candidates
) -> tuple[Hit, ...]:
    folded, offset, end = listed.folded, asking.offset, asking.offset + asking.limit
    behind = listed.rest[max(0, offset - len(folded)) : max(0, end - len(folded))]
    page = [*folded[offset:end], *((_make_unmeasured(row), copies) for row, copies in behind)]
    top = folded[0][0].score if folded else 1.0
    shown = load_hit_fields(db, [r.features.row.pk for r, _ in page])
    before = load_texts_before(db, [r.features.row for r, _ in page if r.answers])
    sought = SoughtWords((query.text, *query.phrases, *query.prefixes), candidates.pattern)
    hits: list[Hit] = []
    for number, (r, copies) in enumerate(page, offset + 1):
        row = r.features.row
        if (of := shown.get(row.pk)) is None:
            continue
        cut = partial(_cut, of.text, before.get(row.pk), r, sought)
        share = round(max(0.0, min(1.0, r.score / top)), 4) if top > 0 else 0.0
        hits.append(
            Hit(
                of.doc_id, row.kind, row.thread_id, of.title, of.task_id, row.role, row.created_at, row.position, cut,
                share, number, of.source, r.features.complete, copies, r.parts, of.origin,
            )
        )  # fmt: skip
    return tuple(hits)


def _make_unmeasured(row: Row) -> Ranked:
    features = Features(row, False, 0.0, (), (), 0.0, 0.0, False, False, False, False, "", 0)
    return Ranked(features, NO_PARTS, 0.0, False)


def _cut(text: Stored, before: Stored | None, ranked: Ranked, sought: SoughtWords) -> Excerpt:
    return cut_excerpt(text.read(), None if before is None else before.read(), ranked, sought)
