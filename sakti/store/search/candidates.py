"""Find the candidates of a query, measure and rank them (steps 1 to 3 of `rank.py`)."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.connection import Connection
from sakti.store.search import rank as ranking
from sakti.store.search import retrieve, spelling
from sakti.store.search.dates import asks_when, find_named_times, names_time
from sakti.store.search.features import SHORT, TEXT, TOOL, Features, Pattern, build_pattern, is_document, measure
from sakti.store.search.folding import fold_text
from sakti.store.search.index import split_identifier
from sakti.store.search.occurrences import Sizes, find_occurrences, load_sizes
from sakti.store.search.query import (
    MAX_TERMS,
    PASTED,
    STOP_WORDS,
    Query,
    is_cjk,
    is_identifier,
    list_terms,
    list_words_and_joined,
)
from sakti.store.search.rank import Ranked
from sakti.store.search.retrieve import IndexLookup, Matches
from sakti.store.search.rows import Row, find_excluded, find_having, find_quoting_exclusion, is_unindexed, load_texts
from sakti.store.search.spelling import PartMatches, find_parts, is_in_trigrams
from sakti.store.search.terms import Term, list_irregular_phrases, list_spellings, make_phrase, make_terms

ENTERING = 20  # best hits by matching words whose neighbours may enter the list
QUESTION = 3  # queries of at least this many words: the answer may be next to a match
FEW_WORDS = 4  # up to this many words, texts with all of them come first; long texts contain more by chance
FEW = 5  # with fewer hits than this, parts of words are searched too
RAREST = 16  # words of a longer text that are looked up: its rarest
ASKING = frozenset("who whom whose what when where which why how".split())
BEGINS = 2  # a question has its question word among this many first words: "how", "in which"
DIFF = ("diff ", "--- ", "Index: ")  # first characters of diffs


class Candidates(Struct, frozen=True):
    """Ranked candidates, the unmeasured rows after them, the parsed terms, and a suggestion.

    `avoided`: too many texts had an unwanted word, so the search excluded it. `more`: the list is incomplete.
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

    def and_behind(self, other: Candidates, more: bool) -> Candidates:
        """Return these results with the rows found after folding copies; `more`: others remain."""
        ranked = ranking.sort_ranked([*self.ranked, *other.ranked])
        return replace(self, ranked=ranked, rest=[*self.rest, *other.rest], more=more)


class _ReadQuery(Struct, frozen=True):
    """Query as it is searched.

    `query` lacks the phrases that occur in no text (`unquoted`). `words` include the `joined` ones; `terms` are made
    from them, and `similar` replaces words that occur in no text. `required`: alternatives that can only be checked
    in the texts, since the index lacks some of their words. `asks`: it is a question.
    """

    query: Query
    unquoted: tuple[str, ...]
    words: list[str]
    joined: list[str]
    terms: list[Term]
    similar: dict[str, list[str]]
    required: list[tuple[str, ...]]
    asks: bool

    @property
    def strict(self) -> bool:
        """Return whether words or phrases are required."""
        return bool(self.query.alternatives or self.query.phrases)


class _FoundRows(Struct, frozen=True):
    """Rows that contain words or parts of words.

    `parts_asked`: parts of words were searched. The other fields are those of `Candidates`.
    """

    matches: Matches
    parts: PartMatches
    parts_asked: bool
    avoided: bool
    partial: bool
    more: bool


def find_candidates(look: IndexLookup, query: Query, *, first: bool, now: int | None) -> Candidates:
    """Return the candidates of a query, best first; `first`: only those found quickly."""
    reading = _read(look, query)
    rows = _find_by_reading(look, reading, _find_by_index(look, reading, first=first))
    pattern = _build_query_pattern(reading, rows.parts)
    ranked, rest = _measure(look, reading, pattern, rows, _find_named_times(look, reading.query, now))
    suggestion = _suggest_query(look, reading, rows.parts, ranked)
    return Candidates(ranked, rest, pattern, suggestion, rows.partial, reading.unquoted, rows.avoided, rows.more)


# --- reading the query --------------------------------------------------------------------------------------


def _read(look: IndexLookup, query: Query) -> _ReadQuery:
    words, joined = list_words_and_joined(query.text)
    words = [*words, *list_terms(" ".join(query.phrases)), *joined]
    if look.newest > spelling.LARGE:
        words = list(map(join_words, words))
    words = list(dict.fromkeys(words))[:MAX_TERMS]
    unquoted = _find_missing_phrases(look.db, query)
    query = _split_phrases(query, unquoted)
    known_terms, similar = _select_terms(look, words, joined, query)
    return _ReadQuery(query, unquoted, words, joined, known_terms, similar, _to_be_read(query), _is_question(query))


def join_words(word: str) -> str:
    """Return `readfile` for `read_file`.

    The index has both forms, but the second only as a phrase of possibly common words.
    """
    return "".join(split_identifier(word)) if "_" in word and word.isascii() else word


def _find_missing_phrases(db: Connection, query: Query) -> tuple[str, ...]:
    """Return phrases within a longer query that occur in no text: Revert "fix the build".

    A phrase also counts as missing if no text has all of them together.
    """
    if not query.phrases or not query.text:
        return ()
    phrases = [p for p in query.phrases if not is_unindexed(p)]
    existing = retrieve.find_known_phrases(db, chain.from_iterable(map(list_spellings, phrases)))
    required = tuple(p for p in phrases if not existing.isdisjoint(list_spellings(p)))
    is_met = required and retrieve.find_known_phrases(db, [retrieve.match_required(Query("", phrases=required))])
    return tuple(p for p in phrases if not is_met or p not in required)


def _split_phrases(query: Query, phrases: Sequence[str]) -> Query:
    """Return the query with the words of some of its phrases as words."""
    if not phrases:
        return query
    return replace(
        query,
        text=" ".join((query.text, *phrases)),
        phrases=tuple(p for p in query.phrases if p not in phrases),
    )


def _select_terms(
    look: IndexLookup, words: Sequence[str], joined: Sequence[str], query: Query
) -> tuple[list[Term], dict[str, list[str]]]:
    """Return the terms that occur in the texts, and likely corrections for words that do not."""
    db, newest = look.db, look.newest
    plain = chain.from_iterable(map(list_spellings, (*words, *query.phrases)))
    begun = chain.from_iterable(list_spellings(p, prefix=True) for p in query.prefixes)
    irregular = chain.from_iterable(map(list_irregular_phrases, words)) if _is_question(query) else ()
    documents = retrieve.count(db, [*plain, *begun, *irregular], newest)
    existing = {w for w in words if any(map(documents.get, list_spellings(w)))}
    similar = spelling.find_corrections(db, words, query.text, newest, existing)
    documents |= retrieve.count(db, map(make_phrase, chain.from_iterable(similar.values())), newest)
    every = make_terms(words, similar, documents, max(newest, 1), joined=joined, query=query)
    return sorted(sorted(every, key=lambda t: t.documents)[:RAREST], key=every.index), similar


def _to_be_read(query: Query) -> list[tuple[str, ...]]:
    """Return the alternatives and phrases that must be checked in the texts; else [].

    The index cannot check some words.

    """
    groups = [(*query.phrases, *group) for group in query.alternatives or [()]]
    return groups if any(map(is_unindexed, chain.from_iterable(groups))) and query.text else []


def _is_question(query: Query) -> bool:
    """Return whether the answer may be next to a match; False if words or a phrase are required.

    In a sentence, a quoted name need not be repeated in the answer.
    """
    words = query.text.lower().split()
    strict = bool(query.alternatives) or (bool(query.phrases) and STOP_WORDS.isdisjoint(words))
    asks = "?" in query.text or not ASKING.isdisjoint(words[:BEGINS])
    return asks and len(words) >= QUESTION and not strict and not is_identifier(query.text)


# --- finding ------------------------------------------------------------------------------------------------


def _find_by_index(look: IndexLookup, reading: _ReadQuery, *, first: bool) -> _FoundRows:
    """Return the rows that contain the words or parts of words, and meet the requirements."""
    matches, avoided = _find_by_words(look, reading)
    wanting = _may_have_parts(reading, matches)
    unfinished = first and look.is_over() and bool(look.budget.unread or (wanting and matches.rows))
    parts = _find_by_parts(look, reading) if wanting and not unfinished else PartMatches()
    more = parts.more or len(matches.rows) >= retrieve.CANDIDATES
    if reading.required:
        more = parts.more or (more and not all(any(map(is_unindexed, group)) for group in reading.required))
        matches, parts = _check_required(look, reading, matches, parts)
    matches = replace(matches, required=reading.strict)
    return _FoundRows(matches, parts, wanting, avoided, unfinished, more)


def _find_by_reading(look: IndexLookup, reading: _ReadQuery, rows: _FoundRows) -> _FoundRows:
    """Return the rows; if the indexes cannot find any, search the texts for the complete input."""
    query = reading.query
    if rows.matches.rows or rows.parts.texts or rows.partial or query.alternatives:
        return rows
    needles = [w for w in (query.text, *query.phrases, *query.prefixes) if w]
    if (rows.parts_asked and is_in_trigrams(query)) or not (needles or look.place.narrow):
        return rows
    read = retrieve.find_by_reading(look, needles)
    more = len(read) >= (retrieve.CANDIDATES if needles else retrieve.LISTED)
    return replace(rows, matches=Matches(read, required=reading.strict), more=more)


def _find_by_words(look: IndexLookup, reading: _ReadQuery) -> tuple[Matches, bool]:
    """Return the rows with the words, and whether rows with unwanted words were excluded."""
    query = reading.query
    indexed = replace(query, alternatives=(), phrases=()) if reading.required else query
    matches = retrieve.find_by_words(look, reading.terms, indexed, own=not reading.asks)
    if len(matches.rows) < retrieve.CANDIDATES or not find_unwanted_keys(look.db, matches.rows, query):
        return matches, False
    others = replace(indexed, avoided=query.excluded)
    return retrieve.find_by_words(look, reading.terms, others, own=not reading.asks), True


def _may_have_parts(reading: _ReadQuery, matches: Matches) -> bool:
    """Return whether to search parts of words: few texts have the words, or words are not enough."""
    if not reading.query.text or (reading.strict and not reading.required):
        return False
    return len(matches.rows) < FEW or bool(reading.required) or _has_parts_alone(reading.query.text)


def _has_parts_alone(text: str) -> bool:
    """Return whether words are not enough: an identifier, a script without spaces, an emoji."""
    if is_identifier(text) or is_cjk(text):
        return True
    typed = text.split()
    return not text.isascii() and len(typed) <= QUESTION and any(unicodedata.category(w[0]) == "So" for w in typed)


def _find_by_parts(look: IndexLookup, reading: _ReadQuery) -> PartMatches:
    query, required = reading.query, reading.required
    signs = dict.fromkeys(filter(is_unindexed, chain.from_iterable(required)))
    typed = signs if signs and not is_cjk(query.text) else (query.text, *(query.phrases if required else ()))
    return find_parts(look, " ".join(typed), reading.similar)


def _check_required(
    look: IndexLookup, reading: _ReadQuery, matches: Matches, parts: PartMatches
) -> tuple[Matches, PartMatches]:
    """Return the rows whose texts meet the requirements that the index cannot check."""
    keys = find_having(look.db, [*matches.rows, *parts.texts], reading.required)
    texts = {row: text for row, text in parts.texts.items() if row.pk in keys}
    return replace(matches, rows=[r for r in matches.rows if r.pk in keys]), replace(parts, texts=texts)


def find_unwanted_keys(db: Connection, rows: Sequence[Row], query: Query) -> set[int]:
    """Return the keys of rows with an excluded word, or without an exclusion-only query's text."""
    if query.only_excludes:
        return {r.pk for r in rows} - find_quoting_exclusion(db, rows, query.excluded)
    return find_excluded(db, rows, query.excluded, retrieve.match_any_word(query.excluded)) if query.excluded else set()


def _suggest_query(look: IndexLookup, reading: _ReadQuery, parts: PartMatches, ranked: Sequence[Ranked]) -> str:
    """Return the query with likely corrections; "" if every word is known."""
    text = " OR ".join(map(" AND ".join, reading.query.alternatives)) or reading.query.text
    lower = typed_text = text.lower()
    for typed, words in {**_find_written_forms(look.db, reading.similar, ranked), **parts.meant}.items():
        at = lower.find(typed)
        if at >= 0 and words:
            text = text[:at] + words[0] + text[at + len(typed) :]
            lower = text.lower()
    return " ".join(text.split()) if lower != typed_text else ""


def _find_written_forms(
    db: Connection, similar: Mapping[str, list[str]], ranked: Sequence[Ranked]
) -> Mapping[str, list[str]]:
    """Map unknown words to the known form used in one of the best texts."""
    texts = load_texts(db, [r.features.row.pk for r in ranked[:FEW]]).values() if similar else ()
    if not texts:
        return similar
    return {
        typed: [form for word in near if (form := spelling.find_written_form(word, texts))]
        for typed, near in similar.items()
    }


# --- measuring ----------------------------------------------------------------------------------------------


def _build_query_pattern(reading: _ReadQuery, parts: PartMatches) -> Pattern:
    query, words = reading.query, reading.words
    implied = {*reading.joined, *list_terms(" ".join(query.phrases))}  # all texts have the phrases
    return build_pattern(
        reading.terms,
        parts.rarity,
        words,
        [w for w in words if w not in implied] if _may_have_all(reading) else [],
        asks=reading.asks,
        when=reading.asks and asks_when(query.text),
        meant=frozenset(fold_text(w).lower() for near in parts.meant.values() for w in near),
    )


def _may_have_all(reading: _ReadQuery) -> bool:
    """Return whether to rank texts with all words first: few words, not all required anyway."""
    query = reading.query
    count = len(query.text.split()) + len(query.phrases)
    return bool(query.text) and 1 < count <= FEW_WORDS and not (query.alternatives or is_cjk(query.text))


def _find_named_times(look: IndexLookup, query: Query, now: int | None) -> list[tuple[int, int]]:
    if not (QUESTION <= len(query.text.split()) <= PASTED and names_time(query.text)):
        return []
    return find_named_times(query.text, now or retrieve.time_of(look.db, look.newest) or 1)


def _measure(
    look: IndexLookup, reading: _ReadQuery, pattern: Pattern, rows: _FoundRows, times: Sequence[tuple[int, int]]
) -> tuple[list[Ranked], list[Row]]:
    """Return the measured candidates in ranked order, and the others in the order of the index."""
    matches, by_parts = rows.matches, rows.parts.texts
    chosen = _select_rows_to_measure(look.db, pattern, matches, by_parts)
    pattern, features, means = _measure_all(look, pattern, chosen, by_parts)
    if pattern.terms or pattern.parts:
        from_words = {r.pk for r in matches.rows}
        features = [f for f in features if f.row.pk in from_words or f.has_words]
    words = ranking.score_words(features, pattern, means)
    ranked = ranking.rank(features, words, _measure_neighbours(look, reading, features, words, pattern), pattern, times)
    listed_keys = {*chosen, *(r.features.row.pk for r in ranked)}
    listed, unowned = _split_off_unowned(ranked, by_words=bool(pattern.terms))
    return listed, [*(r for r in matches.rows if r.pk not in listed_keys), *unowned]


def _select_rows_to_measure(
    db: Connection, pattern: Pattern, matches: Matches, by_parts: Collection[Row]
) -> dict[int, Row]:
    """Return the keys of rows to measure: the likely ones, and those with all words.

    Texts with none of the typed parts come after texts that have one.
    """
    chosen = {r.pk: r for r in (*matches.worth_measuring(len(by_parts)), *by_parts)}
    if pattern.required:
        others = {r.pk: r for r in matches.rows if r.pk not in chosen}
        every = retrieve.with_all(db, [pattern.terms[i] for i in pattern.required], list(others))
        chosen |= {pk: others[pk] for pk in every}
    return chosen


def _measure_all(
    look: IndexLookup, pattern: Pattern, chosen: Mapping[int, Row], by_parts: Mapping[Row, str]
) -> tuple[Pattern, list[Features], Sequence[float]]:
    """Return the pattern with code forms, the features of the chosen rows, and the mean text sizes."""
    sizes = load_sizes(look.db, list(chosen))
    texts = {r.pk: text for r, text in by_parts.items()}
    unread = (k for k in chosen if k not in texts and (pattern.parts or is_short(sizes.get(k))))
    texts |= load_texts(look.db, list(unread))
    documents = {k for k, r in chosen.items() if is_document(r.role, sizes.get(k), texts.get(k, ""))}
    if documents:
        pattern = pattern.with_code(partial(retrieve.find_known_phrases, look.db))
    forms = [(form.phrase, form.documents) for form, _ in pattern.forms]
    code = {k for k in documents if chosen[k].role != TOOL and not texts.get(k, "").startswith(DIFF)}
    places = find_occurrences(look.db, chosen.keys(), forms, pattern.whole, code, look.newest)
    features = [
        measure(r, sizes.get(k), places.rows.get(k, ()), texts.get(k, ""), pattern, document=k in documents)
        for k, r in chosen.items()
    ]
    return pattern, features, places.means


def _split_off_unowned(ranked: Sequence[Ranked], *, by_words: bool) -> tuple[list[Ranked], list[Row]]:
    """Split off texts without any of the words if the message that lends them the words is no candidate."""
    unowned = [r for r in ranked if by_words and not r.features.has_words and not r.lent]
    return [r for r in ranked if r not in unowned] if unowned else list(ranked), [r.features.row for r in unowned]


def _measure_neighbours(
    look: IndexLookup, reading: _ReadQuery, features: Sequence[Features], words: Mapping[int, float], pattern: Pattern
) -> list[Features]:
    """Return the messages beside the best hits if the query is a question."""
    if not reading.asks:
        return []
    best = sorted(features, key=lambda f: -words[f.row.pk])[:ENTERING]
    listed_keys = {f.row.pk for f in features}
    rows = [r for r in retrieve.load_neighbours(look, [f.row for f in best]) if r.pk not in listed_keys]
    return _measure_alone(look.db, rows, pattern)


def _measure_alone(db: Connection, rows: Sequence[Row], pattern: Pattern) -> list[Features]:
    """Return the features of rows listed for their neighbours' words; long texts are not read."""
    sizes = load_sizes(db, [r.pk for r in rows])
    texts = load_texts(db, [r.pk for r in rows if is_short(sizes.get(r.pk))])
    measured: list[Features] = []
    for r in rows:
        size, text = sizes.get(r.pk), texts.get(r.pk, "")
        measured.append(measure(r, size, (), text, pattern, document=is_document(r.role, size, text)))
    return measured


def is_short(sizes: Sizes | None) -> bool:
    """Return whether a text is short enough to read."""
    return sizes is None or sizes[TEXT] <= SHORT
