"""Read the positions of phrases from the word index, without reading the texts.

FTS5 calls an auxiliary function for each row of a query; this one collects the positions. Raw SQL: MATCH.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import apsw
from msgspec import Struct, field

from sakti.store.connection import Connection
from sakti.store.search.rows import to_json_list

NAME = "sakti_occurrences"
SCANNED = 5_000  # most texts with a phrase, summed over all phrases, that are scanned
GONE_THROUGH = 0.05  # microseconds to scan one of them
SOUGHT, SOUGHT_PHRASE = 20, 15  # microseconds to look up a single row, and each phrase in it
COLUMNS = 4  # text, pieces of identifiers, previous message, summary
Positions = Sequence[Sequence[int]]  # token offsets in each column
Phrases = Sequence[tuple[int, Positions]]  # number and positions of each phrase in a row
Sizes = Sequence[int]  # tokens in each column


class Occurrences(Struct):
    """Rows with at least one of the phrases, by key, and the mean tokens of each column over all rows."""

    rows: dict[int, Phrases] = field(default_factory=dict[int, Phrases])
    means: tuple[float, ...] = (1.0,) * COLUMNS


class _Collector:
    """Auxiliary function of FTS5.

    SQLite keeps it as long as the connection, so each connection has one. `wide` and `narrow` map the positions of
    phrases in MATCH to their numbers, for the rows `documents` and for other rows.
    """

    def __init__(self) -> None:
        self.found = Occurrences()
        self.wide: Sequence[tuple[int, int]] = ()
        self.narrow: Sequence[tuple[int, int]] = ()
        self.documents: Collection[int] = ()

    def look_at(self, phrases: int, whole: int, lead: int) -> None:
        """Set the phrases to read, starting at position `lead`.

        In rows that are no documents, only the first `whole` count.
        """
        self.wide = [(lead + number, number) for number in range(phrases)]
        self.narrow = self.wide[:whole]

    def __call__(self, api: Any) -> int:  # runs for each of a hundred rows: few calls
        rows, key, columns, locations = self.found.rows, api.rowid, api.phrase_columns, api.phrase_locations
        if not rows:
            self.found.means = tuple(api.column_total_size(c) / (api.row_count or 1) for c in range(COLUMNS))
        phrases = self.wide if key in self.documents else self.narrow
        rows[key] = [(number, locations(place)) for place, number in phrases if columns(place)]
        return 0


_collectors: weakref.WeakKeyDictionary[apsw.Connection, _Collector] = weakref.WeakKeyDictionary()


def find_occurrences(
    db: Connection,
    keys: Collection[int],
    forms: Sequence[tuple[str, int]],
    whole: int,
    documents: Collection[int],
    newest: int,
) -> Occurrences:
    """Return the positions of phrases in the rows `keys`.

    Phrases from number `whole` on are only read in the rows `documents`. `forms`: FTS5 phrases with the number of
    texts that have them. Rare phrases are scanned, and common ones only read in their rows (FTS5 skips to the row); a
    row with common phrases only is looked up separately.
    """
    forms = forms if documents else forms[:whole]
    if not keys or not forms:
        return Occurrences()
    collector = _get_collector(db)
    rare = _select_rare_phrases(forms, whole)
    lead = len(rare) if len(rare) < len(forms) else 0
    every = " OR ".join(phrase for phrase, _ in forms)
    collector.found, collector.documents = Occurrences(), documents
    if rare:
        collector.look_at(len(forms), whole, lead)
        _go_through(db, f"({' OR '.join(rare)}) AND ({every})" if lead else every, keys)
    remaining = [k for k in keys if k not in collector.found.rows] if lead or not rare else []
    if remaining:
        collector.look_at(len(forms), whole, 0)
        texts = sum(n for _, n in forms) * (max(remaining) - min(remaining)) / newest
        if texts * GONE_THROUGH < len(remaining) * (SOUGHT + SOUGHT_PHRASE * len(forms)):
            _go_through(db, every, remaining)
        else:
            _look_up(db, every, remaining)
    result, collector.found = collector.found, Occurrences()
    return result


def _look_up(db: Connection, match: str, keys: Collection[int]) -> None:
    for key in keys:
        # SQL: FTS5, for which peewee has no operator
        db.execute_sql(f"{_SQL} rowid = ?", (match, key)).fetchall()


def _get_collector(db: Connection) -> _Collector:
    """Return the function of a connection; register it on the first call."""
    connection = db.connection()
    if connection not in _collectors:
        _collectors[connection] = _Collector()
        connection.register_fts5_function(NAME, _collectors[connection])
    return _collectors[connection]


_SQL = f"SELECT {NAME}(search_words) FROM search_words WHERE search_words MATCH ? AND"


def _go_through(db: Connection, match: str, keys: Collection[int]) -> None:
    among = "rowid BETWEEN ? AND ? AND +rowid IN (SELECT value FROM json_each(?))"  # else a query per `rowid`
    # SQL: FTS5, for which peewee has no operator
    db.execute_sql(f"{_SQL} {among}", (match, min(keys), max(keys), to_json_list(keys))).fetchall()


def _select_rare_phrases(forms: Sequence[tuple[str, int]], whole: int) -> list[str]:
    """Return the phrases to scan: the rarest, as long as few texts in total have them."""
    budget = SCANNED
    out: list[str] = []
    for phrase, texts in sorted(forms[:whole], key=lambda form: form[1]):
        budget -= texts
        if budget < 0:
            break
        out.append(phrase)
    return out


def load_sizes(db: Connection, keys: Sequence[int]) -> dict[int, Sizes]:
    if not keys:
        return {}
    sql = "SELECT id, sz FROM search_words_docsize WHERE id IN (SELECT value FROM json_each(?))"
    # SQL: FTS5, for which peewee has no operator
    rows = db.execute_sql(sql, (to_json_list(keys),))
    return {key: packed if packed.isascii() else _decode_varints(packed) for key, packed in rows}


def list_copy_sizes(db: Connection, keys: Sequence[int]) -> list[bytes]:
    """Return the beginnings of the packed sizes of copies: the sizes of text and identifiers."""
    sql = "SELECT sz FROM search_words_docsize WHERE id IN (SELECT value FROM json_each(?))"
    # SQL: FTS5, for which peewee has no operator
    ends = (
        (packed, [i for i, byte in enumerate(packed, 1) if byte < 128])
        for (packed,) in db.execute_sql(sql, (to_json_list(keys),))
    )
    return list({packed[: at[1]] for packed, at in ends})


@lru_cache(10_000)
def _decode_varints(packed: bytes) -> tuple[int, ...]:
    """Decode FTS5's list of sizes: SQLite's varints, seven bits per byte, the last one below 128."""
    numbers, number = list[int](), 0
    for byte in packed:
        number = number << 7 | byte & 127
        if byte < 128:
            numbers.append(number)
            number = 0
    return tuple(numbers)
