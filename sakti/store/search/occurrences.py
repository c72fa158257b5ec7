"""Read from the word index where phrases stand in whole texts, without reading a text.

FTS5 calls an auxiliary function for each row of a query; this one keeps what it is called for. Raw SQL: MATCH.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from typing import Any

import apsw
from msgspec import Struct, field

from sakti.store.connection import Connection

NAME = "sakti_occurrences"
COLUMNS = 4  # text, pieces of identifiers, previous message, summary
Positions = Sequence[Sequence[int]]  # token offsets in each column
Phrases = Sequence[tuple[int, Positions]]  # of the phrases that a row has, the number, and where it stands
Sizes = Sequence[int]  # tokens in each column


class Occurrences(Struct):
    """Rows that have one of the phrases by key, and the mean tokens of each column of all rows."""

    rows: dict[int, Phrases] = field(default_factory=dict[int, Phrases])
    means: tuple[float, ...] = (1.0,) * COLUMNS


class _Collector:
    """The auxiliary function. SQLite keeps it as long as the connection, so each connection has one."""

    def __init__(self) -> None:
        self.found = Occurrences()
        self.some = self.all = range(0)
        self.wide: Collection[int] = ()

    def __call__(self, api: Any) -> int:  # for each of a hundred rows: the fewer calls the better
        rows, key, locations = self.found.rows, api.rowid, api.phrase_locations
        if not rows:
            self.found.means = tuple(api.column_total_size(c) / (api.row_count or 1) for c in range(COLUMNS))
        numbers = self.all if key in self.wide else self.some
        rows[key] = [(p, at) for p in numbers if any(at := locations(p))]
        return 0


_collectors: weakref.WeakKeyDictionary[apsw.Connection, _Collector] = weakref.WeakKeyDictionary()


def occurrences(
    db: Connection, keys: Sequence[int], phrases: Sequence[str], some: int, wide: Collection[int], *, seek: bool
) -> Occurrences:
    """Return where `phrases` (FTS5 phrases) stand in the rows `keys`: the first `some` of them, in the rows `wide` all.

    `seek`: look each row up by itself, for phrases so common that going through all their rows would cost more.
    """
    connection = db.connection()
    collector = _collectors.get(connection)
    if collector is None:
        collector = _collectors[connection] = _Collector()
        connection.register_fts5_function(NAME, collector)
    phrases = phrases if wide else phrases[:some]
    collector.found, collector.wide = Occurrences(), wide
    collector.some, collector.all = range(some), range(len(phrases))
    if keys and phrases:
        match = " OR ".join(phrases)
        sql = f"SELECT {NAME}(search_words) FROM search_words WHERE search_words MATCH ?"
        if seek:
            for key in keys:
                db.execute_sql(f"{sql} AND rowid = ?", (match, key)).fetchall()
        else:  # `+`: FTS5 would take `rowid IN` for that many queries of its own
            bounds = (match, min(keys), max(keys))
            among = ",".join(map(str, keys))
            db.execute_sql(f"{sql} AND rowid BETWEEN ? AND ? AND +rowid IN ({among})", bounds).fetchall()
    found, collector.found = collector.found, Occurrences()
    return found


def sizes_of(db: Connection, keys: Sequence[int]) -> dict[int, Sizes]:
    """Return the sizes of rows."""
    if not keys:
        return {}
    sql = "SELECT id, sz FROM search_words_docsize WHERE id IN (SELECT value FROM json_each(?))"
    rows = db.execute_sql(sql, (f"[{','.join(map(str, keys))}]",))
    return {key: packed if packed.isascii() else _numbers(packed) for key, packed in rows}


def _numbers(packed: bytes) -> tuple[int, ...]:
    """Return the numbers of FTS5's list of sizes: SQLite's varints, seven bits a byte, the last one below 128."""
    numbers, number = list[int](), 0
    for byte in packed:
        number = number << 7 | byte & 127
        if byte < 128:
            numbers.append(number)
            number = 0
    return tuple(numbers)
