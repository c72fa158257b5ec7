"""Read the positions of phrases in complete texts from the word index, without reading a text.

FTS5 calls an auxiliary function for each row of a query; this one keeps what it is called for. Raw SQL: MATCH.
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
SCANNED = 5_000  # texts with a phrase, of all phrases together, that are gone through
GONE_THROUGH = 0.05  # microseconds for one of them
SOUGHT, SOUGHT_PHRASE = 20, 15  # microseconds for a row that is looked up by itself, and for each phrase of it
COLUMNS = 4  # text, pieces of identifiers, previous message, summary
Positions = Sequence[Sequence[int]]  # token offsets in each column
Phrases = Sequence[tuple[int, Positions]]  # number and positions of each phrase that a row has
Sizes = Sequence[int]  # tokens in each column


class Occurrences(Struct):
    """Rows that have one of the phrases by key, and the mean tokens of each column of all rows."""

    rows: dict[int, Phrases] = field(default_factory=dict[int, Phrases])
    means: tuple[float, ...] = (1.0,) * COLUMNS


class _Collector:
    """The auxiliary function. SQLite keeps it as long as the connection, so each connection has one.

    `wide`, `narrow`: the places in MATCH of the phrases to look at, with their numbers, in the rows `documents` and in
    others.
    """

    def __init__(self) -> None:
        self.found = Occurrences()
        self.wide: Sequence[tuple[int, int]] = ()
        self.narrow: Sequence[tuple[int, int]] = ()
        self.documents: Collection[int] = ()

    def look_at(self, phrases: int, whole: int, lead: int) -> None:
        """Look at so many phrases, beginning at place `lead`.

        In rows that are no documents only the first `whole` count.
        """
        self.wide = [(lead + number, number) for number in range(phrases)]
        self.narrow = self.wide[:whole]

    def __call__(self, api: Any) -> int:  # for each of a hundred rows: the fewer calls the better
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

    Those from number `whole` on are read only in the rows `documents`.

    `forms`: FTS5 phrases, each with the number of texts that have it. Those that few texts have are gone through, and
    the common ones only where they are (FTS5 skips to the row); a row with common ones only is looked up by itself.
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
    """Return the function of a connection; register it at the first call."""
    connection = db.connection()
    if connection not in _collectors:
        _collectors[connection] = _Collector()
        connection.register_fts5_function(NAME, _collectors[connection])
    return _collectors[connection]


_SQL = f"SELECT {NAME}(search_words) FROM search_words WHERE search_words MATCH ? AND"


def _go_through(db: Connection, match: str, keys: Collection[int]) -> None:
    among = "rowid BETWEEN ? AND ? AND +rowid IN (SELECT value FROM json_each(?))"  # FTS5 makes a query of each `rowid`
    # SQL: FTS5, for which peewee has no operator
    db.execute_sql(f"{_SQL} {among}", (match, min(keys), max(keys), to_json_list(keys))).fetchall()


def _select_rare_phrases(forms: Sequence[tuple[str, int]], whole: int) -> list[str]:
    """Return the phrases that can be gone through: the rarest, as long as they are in few texts together."""
    budget = SCANNED
    out: list[str] = []
    for phrase, texts in sorted(forms[:whole], key=lambda form: form[1]):
        budget -= texts
        if budget < 0:
            break
        out.append(phrase)
    return out


def load_sizes(db: Connection, keys: Sequence[int]) -> dict[int, Sizes]:
    """Return the sizes of rows."""
    if not keys:
        return {}
    sql = "SELECT id, sz FROM search_words_docsize WHERE id IN (SELECT value FROM json_each(?))"
    # SQL: FTS5, for which peewee has no operator
    rows = db.execute_sql(sql, (to_json_list(keys),))
    return {key: packed if packed.isascii() else _decode_varints(packed) for key, packed in rows}


def list_copy_sizes(db: Connection, keys: Sequence[int]) -> list[bytes]:
    """Return how packed sizes of these rows' copies begin: with the sizes of text and identifiers."""
    sql = "SELECT sz FROM search_words_docsize WHERE id IN (SELECT value FROM json_each(?))"
    # SQL: FTS5, for which peewee has no operator
    ends = (
        (packed, [i for i, byte in enumerate(packed, 1) if byte < 128])
        for (packed,) in db.execute_sql(sql, (to_json_list(keys),))
    )
    return list({packed[: at[1]] for packed, at in ends})


@lru_cache(10_000)
def _decode_varints(packed: bytes) -> tuple[int, ...]:
    """Decode FTS5's list of sizes: SQLite's varints, seven bits a byte, the last one below 128."""
    numbers, number = list[int](), 0
    for byte in packed:
        number = number << 7 | byte & 127
        if byte < 128:
            numbers.append(number)
            number = 0
    return tuple(numbers)
