"""Detect damage of a database file: by SQLite's check of its pages, and of the JSON in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import apsw

from sakti.core.patterns import lazy_pattern
from sakti.store import failures
from sakti.store.database_file import DatabaseFile
from sakti.store.search.index import TABLES as INDEXES
from sakti.store.search.index import TASKS
from sakti.store.text_registry import tables

_OF_INDEX = lazy_pattern(r"\bfts5\b.*\btable \"?(?:main\.)?(\w+)", re.IGNORECASE)


def split_faults(rows: Sequence[str]) -> tuple[list[str], set[str]]:
    """Split the rows of SQLite's check into faults of the file and search indexes that can be rebuilt.

    Both are empty where all is well.
    """
    broken: set[str] = set()
    rest: list[str] = []
    for row in rows:
        match = _OF_INDEX.search(row)
        if match and match[1] in (*INDEXES, TASKS):
            broken.add(match[1])
        elif row != "ok":
            rest.append(row)
    return rest, broken


def find(database: DatabaseFile) -> str | None:
    """Describe the file's damage in a few words; None if it is intact or cannot be checked now.

    Reads the whole file.
    """
    try:
        connection = database.connect()
        try:
            connection.set_busy_timeout(1_000)
            rows = [str(r[0]) for r in connection.execute("PRAGMA quick_check(20)").fetchall()]
            rest, _ = split_faults(rows)
            return rest[0].replace("\n", " ") if rest else unreadable(connection)
        finally:
            connection.close()
    except apsw.Error as e:
        return str(e) if failures.code_of(e) == "damaged" else None


def unreadable(connection: apsw.Connection) -> str | None:
    """Return the first column that should hold JSON and does not."""
    for table in tables():
        for column, _ in table.json:
            text = f"sakti_unpacked({column})" if column in table.packed else column
            (count,) = connection.execute(
                f"SELECT count(*) FROM {table.name} WHERE {column} IS NOT NULL AND NOT json_valid({text})"
            ).fetchall()[0]
            if count:
                return f"{count} of {table.name}: {column} cannot be read"
    return None
