"""Search messages, observations and tasks: any input is a valid query.

Filter (`filters.py`), retrieve (`retrieve.py`), measure (`features.py`), score (`rank.py`, which explains the ranking),
page (here).
"""

from __future__ import annotations

import datetime
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.connection import Connection
from sakti.store.search import filters, retrieve, spelling
from sakti.store.search import rank as ranking
from sakti.store.search.copies import fold, fold_rest
from sakti.store.search.dates import RelativeTime, asks_when, named_times, names_time, relative_time
from sakti.store.search.excerpts import Excerpt, Sought, excerpt_of
from sakti.store.search.features import (
    SHORT,
    TEXT,
    TOOL,
    USER,
    Features,
    Pattern,
    is_document,
    measure,
    pattern_of,
)
from sakti.store.search.filters import Place, Scope, place_of
from sakti.store.search.folding import folded
from sakti.store.search.index import pieces
from sakti.store.search.occurrences import Sizes, likely_copies, occurrences, sizes_of
from sakti.store.search.page import Hit, SearchPage
from sakti.store.search.parts import PartMatches, find_parts, is_in_trigrams
from sakti.store.search.query import (
    KINDS,
    MAX_TERMS,
    MAX_TEXT,
    PASTED,
    STOP_WORDS,
    Query,
    is_cjk,
    looks_like_identifier,
    parse_query,
    terms,
    words_and_joined,
)
from sakti.store.search.rank import NO_PARTS, Ranked
from sakti.store.search.retrieve import Budget, Matches
from sakti.store.search.rows import Row, Stored, excluded, having, is_unindexed, shown_of, texts_before, texts_of
from sakti.store.search.terms import Term, make_terms, phrase_of, spellings

__all__ = [
    "KINDS", "Hit", "Query", "Scope", "SearchPage", "looks_like_identifier", "parse_query", "search", "terms",
]  # fmt: skip

ENTERING = 20  # hits, those with most of the words, whose neighbours may enter the list
ANSWERS = 3  # best hits whose requests become candidates without a question
QUESTION = 3  # from so many words on, the answer may be next to a match
FEW_WORDS = 4  # up to so many, texts with all of them come first; long texts have more of them by chance
FEW = 5  # fewer hits than that: look for parts of words, too
RAREST = 16  # words that are looked up of a longer text
ASKING = frozenset("who whom whose what when where which why how".split())
BEGINS = 2  # words among which a question has its word: "how", "in which"
TALKING = frozenset(
    "about all anything do doing done everything happen happened happening list messages on said say show talk talked"
    " talking discuss discussed work worked working".split()
)  # words of questions about any content
TIME, FIRST_TIME = 0.02, 0.008  # seconds for one query, and for a first page, in which the indexes are read
PAGE = 20  # rows; where copies leave fewer, what stands behind them is looked for, so many seconds
BEHIND_COPIES = 0.1
MANY_COPIES = 20  # of a text; others are looked for by their sizes first
DIFF = ("diff ", "--- ", "Index: ")  # how diffs begin
LAST_TIME = 0.5  # seconds after which a query ends that has found nothing yet


class _Found(Struct, frozen=True):
    """Ranked candidates, unmeasured rows behind them, how terms were read, and a suggestion.

    `avoided`: there were so many with an unwanted word that it was looked for others. `more`: these are not all.
    """

    ranked: list[Ranked]
    rest: list[Row]
    pattern: Pattern
    suggestion: str
    partial: bool
    unquoted: tuple[str, ...]
    avoided: bool
    more: bool

    @property
    def rows(self) -> list[Row]:
        return [*(r.features.row for r in self.ranked), *self.rest]

    def and_behind(self, other: _Found, more: bool) -> _Found:
        """Return these results with those found behind copies; `more`: there still are others."""
        ranked = ranking.in_order([*self.ranked, *other.ranked])
        return replace(self, ranked=ranked, rest=[*self.rest, *other.rest], more=more)


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

    `now` (Unix ms, default the newest text): a month without a year is the last before it. `first`: a first page
    soon; in large stores it may be `partial`. `clock` in seconds: of this thread, so that other work
    on the machine changes no result.
    """
    normalized = unicodedata.normalize("NFC", text[:MAX_TEXT].encode("utf-8", "replace").decode().replace("\0", " "))
    phrases: dict[str, bool] = {}

    def is_said(phrase: str) -> bool:
        phrases[phrase] = bool(retrieve.are_known(db, [phrase_of(phrase)]))
        return phrases[phrase]

    query = parse_query(normalized, is_said)
    if unknown := filters.unknown(db, query):
        query = parse_query(normalized, is_said, unknown=unknown)
    unread = [(name, value) for name, value in query.unknown if not is_said(f"{name}:{value}")]
    query = replace(query, unknown=(*unknown.items(), *unread))
    said_so = tuple(phrase for phrase, exists in phrases.items() if exists and ":" not in phrase)
    asking = _Asking(text, scope, limit, offset, now, first, clock)
    if timed := _relative_time(query, now):
        page = _search(db, _in_time(query, timed), asking)
        if page.total or page.partial:
            return replace(page, said=said_so, when=timed.described)
    page = _search(db, query, asking)
    has_all = page.total > 0 and page.with_all != 0
    return replace(page, said=said_so, empty_time=timed.described if timed and not has_all else "")


class _Asking(Struct, frozen=True):
    """Arguments of `search` besides the query."""

    text: str
    scope: Scope
    limit: int
    offset: int
    now: int | None
    first: bool
    clock: Callable[[], float]


def _relative_time(query: Query, now: int | None) -> RelativeTime | None:
    """Return the time that the query names relative to now, if no filter names one."""
    if query.since is not None or query.until is not None or query.alternatives:
        return None
    return relative_time(query.text, datetime.datetime.fromtimestamp(now / 1000 if now else time.time()))


def _in_time(query: Query, timed: RelativeTime) -> Query:
    """Return the query for the texts of that time; all of them if it asks for nothing else."""
    words = [w.strip("?.,!'").lower() for w in timed.rest.split()]
    rest = "" if all(not w or w in STOP_WORDS or w in TALKING for w in words) else timed.rest
    return replace(query, text=rest, since=timed.start, until=timed.end)


def _search(db: Connection, query: Query, asking: _Asking) -> SearchPage:
    first, clock = asking.first, asking.clock
    newest = retrieve.newest_key(db)
    place = place_of(db, query, asking.scope, newest)
    start = clock()
    budget = Budget(clock, start + (FIRST_TIME if first else TIME), start + (FIRST_TIME if first else LAST_TIME))
    candidates = _find(db, query, place, newest, budget, first=first, now=asking.now)
    listed = _list_candidates(db, candidates, query)
    if candidates.more and not first and listed.total < PAGE:
        longer = Budget(clock, start + BEHIND_COPIES, start + BEHIND_COPIES, budget.unread)
        candidates, listed = _look_behind(db, candidates, listed, query, place, newest, longer, asking.now)
    total = listed.total
    unfinished = candidates.partial or (first and _is_unfinished(candidates, total, budget))
    others = SearchPage(asking.text, 0) if total or unfinished else _search_elsewhere(db, query, asking)
    since = {key: retrieve.time_of(db, key) for key in set(budget.unread.values())}
    return SearchPage(
        asking.text,
        total,
        _hits(db, listed, asking, query, candidates),
        more=candidates.more,
        partial=unfinished,
        unread=tuple((name, since[key]) for name, key in budget.unread.items()),
        suggestion="" if query.unknown else candidates.suggestion,
        elsewhere=others.total,
        more_elsewhere=others.more or others.partial,
        without=query.excluded if listed.gone or candidates.avoided else (),
        unquoted=candidates.unquoted,
        unknown=query.unknown,
        with_all=sum(r.features.complete for r, _ in listed.folded) if candidates.pattern.tells_all else None,
    )


def _is_unfinished(found: _Found, total: int, budget: Budget) -> bool:
    """Return whether a first page lacks hits that a complete search may have."""
    return (found.more and total < PAGE) or (budget.over and (not total or bool(budget.unread)))


def _search_elsewhere(db: Connection, query: Query, asking: _Asking) -> SearchPage:
    """Count the hits in all workspaces, if one was searched."""
    scope = asking.scope
    if scope.resource_id is None or scope.thread_id is not None or not asking.text.strip():
        return SearchPage(asking.text, 0)
    everywhere = replace(scope, resource_id=None)
    return _search(db, query, replace(asking, scope=everywhere, limit=0, offset=0, first=True))


class _Listed(Struct, frozen=True):
    """Listed rows, measured and not, each text with its number of copies; keys of those left out."""

    folded: list[tuple[Ranked, int]]
    rest: list[tuple[Row, int]]
    gone: set[int]

    @property
    def total(self) -> int:
        return len(self.folded) + len(self.rest)


def _list_candidates(db: Connection, found: _Found, query: Query) -> _Listed:
    gone = _unwanted_keys(db, found.rows, query)
    allowed = [r for r in found.ranked if r.features.row.pk not in gone]
    return _Listed(*_fold_copies(db, allowed, [row for row in found.rest if row.pk not in gone]), gone)


def _look_behind(
    db: Connection,
    candidates: _Found,
    listed: _Listed,
    query: Query,
    place: Place,
    newest: int,
    budget: Budget,
    now: int | None,
) -> tuple[_Found, _Listed]:
    """Find more matches if copies or excluded texts took the places of the candidates.

    What is likely neither (by sizes and index) comes first.
    """
    copied = [r.features.row.pk for r, copies in listed.folded if copies >= MANY_COPIES]
    likely_first = bool(copied or listed.gone)
    while candidates.more and listed.total < PAGE and not budget.over:
        others = place.without([row.pk for row in candidates.rows])
        if likely_first:
            unwanted = query.excluded if listed.gone else ()
            others = retrieve.without_likely(db, others, likely_copies(db, copied), unwanted)
        more = _find(db, query, others, newest, budget, first=False, now=now)
        candidates = candidates.and_behind(more, likely_first or more.more)
        listed = _list_candidates(db, candidates, query)
        if not (more.rows or likely_first):  # none of these meet the requirements: they would be found again
            break
        likely_first = False
    return candidates, listed


def _fold_copies(
    db: Connection, ranked: Sequence[Ranked], rest: Sequence[Row]
) -> tuple[list[tuple[Ranked, int]], list[tuple[Row, int]]]:
    """Return each text once, with the number of its copies.

    Of those that were not measured the ones that may be copies are read, if there are any among those that were.
    """
    folded = fold(ranked, partial(texts_of, db))
    texts: dict[int, str] = {}
    if any(folded.copies):
        sizes = sizes_of(db, [row.pk for row in rest])
        alike = [(r, (r.role, sizes[r.pk][TEXT])) for r in rest if r.pk in sizes and _is_short(sizes[r.pk])]
        measured = ((r.features.row.role, r.features.size) for r in folded.kept)
        often = Counter([*(key for _, key in alike), *measured])
        texts = texts_of(db, [r.pk for r, key in alike if often[key] > 1])
    return fold_rest(folded, rest, texts)


# --- candidates ---------------------------------------------------------------------------------------------


def _find(
    db: Connection, query: Query, place: Place, newest: int, budget: Budget, *, first: bool, now: int | None
) -> _Found:
    words, joined = words_and_joined(query.text)
    words = [*words, *terms(" ".join(query.phrases)), *joined]
    if newest > spelling.LARGE:
        words = list(map(_as_one_word, words))
    words = list(dict.fromkeys(words))[:MAX_TERMS]
    unquoted = _phrases_of_no_text(db, query)
    query = _without_phrases(query, unquoted)
    found_terms, similar = _terms(db, words, joined, query, newest)
    question = _is_question(query)
    required = _to_be_read(query)
    indexed = replace(query, alternatives=(), phrases=()) if required else query  # what the index of words can answer
    matches = retrieve.by_words(db, found_terms, indexed, place, newest, budget, own=not question)
    avoided = len(matches.rows) >= retrieve.CANDIDATES and bool(_unwanted_keys(db, matches.rows, query))
    if avoided:
        others = replace(indexed, avoided=query.excluded)
        matches = retrieve.by_words(db, found_terms, others, place, newest, budget, own=not question)
    few = len(matches.rows) < FEW or bool(required) or _has_parts_alone(query.text)
    wanting = bool(query.text) and not (indexed.alternatives or indexed.phrases) and few
    unfinished = first and budget.over and bool(budget.unread or (wanting and matches.rows))
    parts = PartMatches()
    if wanting and not unfinished:
        signs = dict.fromkeys(filter(is_unindexed, chain.from_iterable(required)))
        typed = signs if signs and not is_cjk(query.text) else (query.text, *(query.phrases if required else ()))
        parts = find_parts(db, " ".join(typed), similar, place, newest, budget)
    more = parts.more or len(matches.rows) >= retrieve.CANDIDATES
    if required:
        more = parts.more or (more and not all(any(map(is_unindexed, group)) for group in required))
        held = having(db, [*matches.rows, *parts.texts], required)
        matches = replace(matches, rows=[r for r in matches.rows if r.pk in held])
        parts = replace(parts, texts={r: text for r, text in parts.texts.items() if r.pk in held})
    read = not (matches.rows or parts.texts or unfinished or query.alternatives or (wanting and is_in_trigrams(query)))
    if read and _readable(query, place):
        needles = _needles(query, place)
        matches = Matches(retrieve.by_reading(db, needles, place, newest, budget))
        more = len(matches.rows) >= (retrieve.CANDIDATES if needles else retrieve.LISTED)
    not_typed = frozenset(folded(w).lower() for near in parts.meant.values() for w in near)
    when = question and asks_when(query.text)
    typed_words = [w for w in words if w not in joined] if _may_have_all(query) else []
    pattern = pattern_of(found_terms, parts.rarity, words, typed_words, asks=question, when=when, meant=not_typed)
    around = place if question or _has_requests(query) else None
    matches = replace(matches, required=bool(query.alternatives or query.phrases))
    ranked, rest = _measure(db, pattern, matches, parts.texts, around, _times(db, query, newest, now), newest)
    typed = " OR ".join(map(" AND ".join, query.alternatives)) or query.text
    likely = _suggestion(typed, {**_written_forms(db, similar, ranked), **parts.meant})
    return _Found(ranked, rest, pattern, likely, unfinished, unquoted, avoided, more)


def _to_be_read(query: Query) -> list[tuple[str, ...]]:
    """Return the alternatives with the phrases if texts must be read to check them; else [].

    The index cannot check some words.
    """
    groups = [(*query.phrases, *group) for group in query.alternatives or [()]]
    return groups if any(map(is_unindexed, chain.from_iterable(groups))) and query.text else []


def _has_parts_alone(text: str) -> bool:
    """Return whether words do not suffice: an identifier, Chinese and the like, an emoji."""
    if looks_like_identifier(text) or is_cjk(text):
        return True
    typed = text.split()
    return not text.isascii() and len(typed) <= QUESTION and any(unicodedata.category(w[0]) == "So" for w in typed)


def _is_question(query: Query) -> bool:
    """Return whether an answer may be next to a match: not if words or a phrase are required.

    In a sentence a quote names something, of which an answer need not repeat the name.
    """
    words = query.text.lower().split()
    strict = bool(query.alternatives) or (bool(query.phrases) and STOP_WORDS.isdisjoint(words))
    asks = "?" in query.text or not ASKING.isdisjoint(words[:BEGINS])
    return asks and len(words) >= QUESTION and not strict and not looks_like_identifier(query.text)


def _has_requests(query: Query) -> bool:
    """Return whether the requests are listed that the best texts answer."""
    strict = query.alternatives or query.phrases
    return not strict and len(query.text.split()) >= QUESTION and not looks_like_identifier(query.text)


def _may_have_all(query: Query) -> bool:
    """Return whether texts with all words come first: for a few words, if nothing is required anyway."""
    return 1 < len(query.text.split()) <= FEW_WORDS and not (query.alternatives or query.phrases or is_cjk(query.text))


def _unwanted_keys(db: Connection, rows: Sequence[Row], query: Query) -> set[int]:
    return excluded(db, rows, query.excluded, retrieve.any_word_of(query.excluded)) if query.excluded else set()


def _as_one_word(word: str) -> str:
    """Return `readfile` for `read_file`.

    The index has both, the second as a phrase of perhaps common words.
    """
    return "".join(pieces(word)) if "_" in word and word.isascii() else word


def _phrases_of_no_text(db: Connection, query: Query) -> tuple[str, ...]:
    """Return the phrases among other words that no text has, or has together: Revert "fix the build"."""
    if not query.phrases or not query.text:
        return ()
    phrases = [p for p in query.phrases if not is_unindexed(p)]
    existing = retrieve.are_known(db, chain.from_iterable(map(spellings, phrases)))
    required = tuple(p for p in phrases if not existing.isdisjoint(spellings(p)))
    is_met = required and retrieve.are_known(db, [retrieve.required_of(Query("", phrases=required))])
    return tuple(p for p in phrases if not is_met or p not in required)


def _without_phrases(query: Query, phrases: Sequence[str]) -> Query:
    """Return the query with the words of some of its phrases as words."""
    if not phrases:
        return query
    return replace(
        query,
        text=" ".join((query.text, *phrases)),
        phrases=tuple(p for p in query.phrases if p not in phrases),
    )


def _terms(
    db: Connection, words: Sequence[str], joined: Sequence[str], query: Query, newest: int
) -> tuple[list[Term], dict[str, list[str]]]:
    """Return the terms that some text has, and for words that none has those that may be meant."""
    plain = chain.from_iterable(map(spellings, (*words, *query.phrases)))
    begun = chain.from_iterable(spellings(p, prefix=True) for p in query.prefixes)
    phrases = dict.fromkeys([*plain, *begun])
    documents = retrieve.count(db, phrases, newest)
    existing = {w for w in words if any(map(documents.get, spellings(w)))}
    similar = spelling.corrections(db, words, query.text, newest, existing)
    documents |= retrieve.count(db, dict.fromkeys(map(phrase_of, chain.from_iterable(similar.values()))), newest)
    terms = make_terms(
        words,
        similar,
        documents,
        max(newest, 1),
        joined=joined,
        prefixes=query.prefixes,
        phrases=query.phrases,
    )
    return sorted(sorted(terms, key=lambda t: t.documents)[:RAREST], key=terms.index), similar


def _readable(query: Query, place: Place) -> bool:
    return place.narrow or bool(query.text or query.phrases or query.prefixes)


def _needles(query: Query, place: Place) -> list[str]:
    return [w for w in (query.text, *query.phrases, *query.prefixes) if w]


def _times(db: Connection, query: Query, newest: int, now: int | None) -> list[tuple[int, int]]:
    if not (QUESTION <= len(query.text.split()) <= PASTED and names_time(query.text)):
        return []
    return named_times(query.text, now or retrieve.time_of(db, newest) or 1)


def _written_forms(
    db: Connection, similar: Mapping[str, Sequence[str]], ranked: Sequence[Ranked]
) -> dict[str, list[str]]:
    """Return the known words for unknown ones in the form that one of the best texts has."""
    texts = texts_of(db, [r.features.row.pk for r in ranked[:FEW]]).values() if similar else ()
    return {typed: [spelling.as_written(word, texts) for word in near] for typed, near in similar.items()}


def _suggestion(text: str, meant: Mapping[str, Sequence[str]]) -> str:
    """Return the query with the words that were probably meant; "" if all are known."""
    lower = typed_text = text.lower()
    for typed, words in meant.items():
        at = lower.find(typed)
        if at >= 0 and words:
            text = text[:at] + words[0] + text[at + len(typed) :]
            lower = text.lower()
    return " ".join(text.split()) if lower != typed_text else ""


# --- measuring ----------------------------------------------------------------------------------------------


def _measure(
    db: Connection,
    pattern: Pattern,
    matches: Matches,
    by_parts: Mapping[Row, str],
    around: Place | None,
    times: Sequence[tuple[int, int]],
    newest: int,
) -> tuple[list[Ranked], list[Row]]:
    """Return the candidates that were measured, ranked, and the rest of them, as the index ordered it.

    `around`: messages beside the best are candidates, too, where they pass this filter.
    """
    chosen = {r.pk: r for r in (*matches.worth_measuring(), *by_parts)}
    if pattern.required:
        others = {r.pk: r for r in matches.rows if r.pk not in chosen}
        every = retrieve.with_all(db, [pattern.terms[i] for i in pattern.required], list(others))
        chosen |= {pk: others[pk] for pk in every}
    sizes = sizes_of(db, list(chosen))
    texts = {r.pk: text for r, text in by_parts.items()}
    unread = (k for k in chosen if k not in texts and (pattern.parts or _is_short(sizes.get(k))))
    texts |= texts_of(db, list(unread))
    documents = {k for k, r in chosen.items() if is_document(r.role, sizes.get(k), texts.get(k, ""))}
    if documents:
        pattern = pattern.with_code(partial(retrieve.are_known, db))
    forms = [(form.phrase, form.documents) for form, _ in pattern.forms]
    code = {k for k in documents if chosen[k].role != TOOL and not texts.get(k, "").startswith(DIFF)}
    places = occurrences(db, chosen.keys(), forms, pattern.whole, code, newest)
    features = {
        k: measure(r, sizes.get(k), places.rows.get(k, ()), texts.get(k, ""), pattern, document=k in documents)
        for k, r in chosen.items()
    }
    looked_for = bool(pattern.terms or pattern.parts)
    from_words = {r.pk for r in matches.rows}
    candidates = [features[k] for k in chosen if k in from_words or features[k].has_words or not looked_for]
    words = ranking.words_of(candidates, pattern, places.means)
    beside = _beside(db, candidates, words, pattern, around) if around is not None else []
    ranked = ranking.rank(candidates, words, beside, pattern, times)
    listed_keys = {*chosen, *(r.features.row.pk for r in ranked)}
    listed, unowned = _split_off_unowned(ranked, by_words=bool(pattern.terms))
    return listed, [*(r for r in matches.rows if r.pk not in listed_keys), *unowned]


def _split_off_unowned(ranked: Sequence[Ranked], *, by_words: bool) -> tuple[list[Ranked], list[Row]]:
    """Split off the texts without any of the words, where the message that lends them is no candidate."""
    unowned = [r for r in ranked if by_words and not r.features.has_words and not r.lent]
    return [r for r in ranked if r not in unowned] if unowned else list(ranked), [r.features.row for r in unowned]


def _beside(
    db: Connection, kept: Sequence[Features], words: Mapping[int, float], pattern: Pattern, place: Place
) -> list[Features]:
    """Return the messages beside the best; without a question, the requests that they answer."""
    best = sorted(kept, key=lambda f: -words[f.row.pk])
    owners = best[:ENTERING] if pattern.asks else [f for f in best[:ANSWERS] if f.is_answer]
    rows = retrieve.neighbours(db, [f.row for f in owners], place)
    requests = {(f.row.thread_id, f.row.position - 1) for f in owners}
    listed_keys = {f.row.pk for f in kept}
    rows = [r for r in rows if r.pk not in listed_keys]
    if not pattern.asks:
        rows = [r for r in rows if r.role == USER and (r.thread_id, r.position) in requests]
    return _measured_alone(db, rows, pattern)


def _measured_alone(db: Connection, rows: Sequence[Row], pattern: Pattern) -> list[Features]:
    """Return the features of rows listed for their neighbours' words; long ones are not read."""
    sizes = sizes_of(db, [r.pk for r in rows])
    texts = texts_of(db, [r.pk for r in rows if _is_short(sizes.get(r.pk))])
    measured: list[Features] = []
    for r in rows:
        size, text = sizes.get(r.pk), texts.get(r.pk, "")
        measured.append(measure(r, size, (), text, pattern, document=is_document(r.role, size, text)))
    return measured


def _is_short(sizes: Sizes | None) -> bool:
    return sizes is None or sizes[TEXT] <= SHORT


def _unmeasured_row(row: Row) -> Ranked:
    features = Features(row, False, 0.0, (), (), 0.0, 0.0, False, False, False, False, "", 0)
    return Ranked(features, NO_PARTS, 0.0, False)


# --- hits ---------------------------------------------------------------------------------------------------


def _hits(db: Connection, listed: _Listed, asking: _Asking, query: Query, found: _Found) -> tuple[Hit, ...]:
    folded, offset, end = listed.folded, asking.offset, asking.offset + asking.limit
    behind = listed.rest[max(0, offset - len(folded)) : max(0, end - len(folded))]
    page = [*folded[offset:end], *((_unmeasured_row(row), copies) for row, copies in behind)]
    top = folded[0][0].score if folded else 1.0
    shown = shown_of(db, [r.features.row.pk for r, _ in page])
    before = texts_before(db, [r.features.row for r, _ in page if r.answers])
    sought = Sought((query.text, *query.phrases, *query.prefixes), found.pattern)
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
                share, number, of.source, r.features.complete, copies, r.parts,
            )
        )  # fmt: skip
    return tuple(hits)


def _cut(text: Stored, before: Stored | None, ranked: Ranked, sought: Sought) -> Excerpt:
    return excerpt_of(text.read(), None if before is None else before.read(), ranked, sought)
