"""Is a database's file damaged? What SQLite can tell of its pages, and of the JSON that stands in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import apsw

from sakti.store import failures
from sakti.store.search.index import TABLES as INDEXES
from sakti.store.search.index import TASKS
from sakti.store.text_registry import TABLES
from sakti.store.way import Way

_OF_INDEX = re.compile(r"\bfts5\b.*\btable \"?(?:main\.)?(\w+)", re.IGNORECASE)


def sorted_out(rows: Sequence[str]) -> tuple[list[str], set[str]]:
    """What SQLite's check said, in two: what is wrong with the file itself, and the search indexes that are broken and
    can be made anew. Nothing of either where all is well."""
    broken: set[str] = set()
    rest: list[str] = []
    for row in rows:
        found = _OF_INDEX.search(row)
        if found and found[1] in (*INDEXES, TASKS):
            broken.add(found[1])
        elif row != "ok":
            rest.append(row)
    return rest, broken


def find(way: Way) -> str | None:
    """What is wrong with the file, in a few words; None where nothing is, or where it cannot be told now. Reads all of
    it."""
    try:
        connection = way.connect()
        try:
            connection.set_busy_timeout(1_000)
            rows = [str(r[0]) for r in connection.execute("PRAGMA quick_check(20)").fetchall()]
            rest, _ = sorted_out(rows)
            return rest[0].replace("\n", " ") if rest else unreadable(connection)
        finally:
            connection.close()
    except apsw.Error as e:
        return str(e) if failures.code_of(e) == "damaged" else None


def unreadable(connection: apsw.Connection) -> str | None:
    """The first column with JSON that is none."""
    for table in TABLES:
        for column, _ in table.json:
            (count,) = connection.execute(
                f"SELECT count(*) FROM {table.name} WHERE {column} IS NOT NULL AND NOT json_valid({column})"
            ).fetchall()[0]
            if count:
                return f"{count} of {table.name}: {column} cannot be read"
    return None
