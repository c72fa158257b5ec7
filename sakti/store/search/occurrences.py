"""Read from the word index where phrases stand in whole texts, without reading a text.

FTS5 calls an auxiliary function for each row of a query; this one keeps what it is called for. Raw SQL: MATCH.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw
from msgspec import Struct, field

from sakti.store.connection import Connection

NAME = "sakti_occurrences"
COLUMNS = 4  # text, pieces of identifiers, previous message, summary
Positions = Sequence[Sequence[int]]  # token offsets in each column


class Occurrence(NamedTuple):
    """Tokens in each column of a row, and of the phrases that it has (by number) the token offsets in each column."""

    sizes: tuple[int, ...]
    phrases: tuple[tuple[int, Positions], ...]


class Occurrences(Struct):
    """Rows that have one of the phrases by key, the mean tokens of each column, and the number of all rows."""

    rows: dict[int, Occurrence] = field(default_factory=dict[int, Occurrence])
    means: tuple[float, ...] = (1.0,) * COLUMNS
    total: int = 0


class _Collector:
    """The auxiliary function. SQLite keeps it as long as the connection, so each connection has one."""

    def __init__(self) -> None:
        self.found = Occurrences()
        self.numbers = range(0)

    def __call__(self, api: Any) -> int:  # for each of a hundred rows: the fewer calls the better
        found, size, locations = self.found, api.column_size, api.phrase_locations
        if not found.rows:
            found.total = api.row_count
            found.means = tuple(api.column_total_size(c) / (api.row_count or 1) for c in range(COLUMNS))
        phrases = [(p, at) for p in self.numbers if any(at := locations(p))]
        found.rows[api.rowid] = Occurrence((size(0), size(1), size(2), size(3)), tuple(phrases))
        return 0


_collectors: weakref.WeakKeyDictionary[apsw.Connection, _Collector] = weakref.WeakKeyDictionary()


def occurrences(db: Connection, keys: Sequence[int], phrases: Sequence[str], *, seek: bool) -> Occurrences:
    """Return where `phrases` (FTS5 phrases) stand in the rows `keys`.

    `seek`: look each row up by itself, for phrases so common that going through all their rows would cost more.
    """
    connection = db.connection()
    collector = _collectors.get(connection)
    if collector is None:
        collector = _collectors[connection] = _Collector()
        connection.register_fts5_function(NAME, collector)
    collector.found, collector.numbers = Occurrences(), range(len(phrases))
    if keys and phrases:
        match = " OR ".join(phrases)
        sql = f"SELECT {NAME}(search_words) FROM search_words WHERE search_words MATCH ?"
        if seek:
            for key in keys:
                db.execute_sql(f"{sql} AND rowid = ?", (match, key)).fetchall()
        else:  # `+`: FTS5 would take `rowid IN` for that many queries of its own
            bounds = (match, min(keys), max(keys))
            some = ",".join(map(str, keys))
            db.execute_sql(f"{sql} AND rowid BETWEEN ? AND ? AND +rowid IN ({some})", bounds).fetchall()
    found, collector.found = collector.found, Occurrences()
    return found


def sizes_of(db: Connection, keys: Sequence[int]) -> dict[int, Occurrence]:
    """Return the sizes of rows in which no phrase is looked for."""
    if not keys:
        return {}
    rows = db.execute_sql(f"SELECT id, sz FROM search_words_docsize WHERE id IN ({','.join(map(str, keys))})")
    return {key: Occurrence(_numbers(sizes), ()) for key, sizes in rows}


def _numbers(packed: bytes) -> tuple[int, ...]:
    """Return the numbers of FTS5's list of sizes: SQLite's varints, seven bits a byte, the last one below 128."""
    numbers, number = list[int](), 0
    for byte in packed:
        number = number << 7 | byte & 127
        if byte < 128:
            numbers.append(number)
            number = 0
    return tuple(numbers)
