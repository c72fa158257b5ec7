"""Check that a search index matches its texts, and rebuild it in small pieces while in use.

An index is an FTS5 table over the view `search_terms`; its `_docsize` table lists the indexed texts. The triggers
only remove a listed text from an index, so an index may lack texts at any time and can be filled later. Raw SQL: the
tables of the indexes have no models.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import apsw

from sakti.store import database_file
from sakti.store.connection import Database
from sakti.store.search.index import TABLES

T = TypeVar("T")

OLD = "_old"  # suffix of an index that was replaced
_COMPARED = 500  # texts at a time
_SETTINGS = {"automerge": 0, "crisismerge": 200, "secure-delete": 1}  # of every index; migrations use the same
_SMALL = 1_000  # entries of an index that merges completely in 0.1 s (about 9,000 messages)
_SCATTERED = 64  # a larger one merges completely if at least 1/64 is outside its largest segment
_KEPT = 10  # rows of `_data` up to this id hold the structure of an FTS5 table


def count_texts(db: Database) -> int:
    # SQL: looks at a file of which nothing is certain
    return db.execute_sql("SELECT count(*) FROM search_docs").fetchone()[0]


def list_missing(db: Database, table: str) -> list[int]:
    """Return the pks of texts that an index lacks, in order."""
    # SQL: FTS5, for which peewee has no operator
    rows = db.execute_sql(
        f"SELECT pk FROM search_docs d WHERE NOT EXISTS (SELECT 1 FROM {table}_docsize s WHERE s.id = d.pk) ORDER BY pk"
    ).fetchall()
    return [pk for (pk,) in rows]


def count_orphans(db: Database, table: str) -> int:
    """Return how many indexed texts no longer exist."""
    # SQL: FTS5, for which peewee has no operator
    return db.execute_sql(
        f"SELECT count(*) FROM {table}_docsize s WHERE NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.pk = s.id)"
    ).fetchone()[0]


def count_differing(db: Database, table: str) -> int:
    """Count the texts whose word counts in an index are wrong: changes that bypassed the triggers."""
    columns = _list_columns(db, table)
    model = _create_empty_copy(db, table)
    differing = 0
    try:
        for rows in _read_batches(
            db, f"SELECT pk, {columns} FROM search_terms WHERE pk > ? ORDER BY pk LIMIT {_COMPARED}"
        ):
            marks = ", ".join("?" * len(rows[0]))
            with model:
                model.executemany(f"INSERT INTO {table} (rowid, {columns}) VALUES ({marks})", rows)
            expected: list[Any] = model.execute(f"SELECT id, sz FROM {table}_docsize").fetchall()
            sizes = dict(expected)
            # SQL: FTS5, for which peewee has no operator
            held: Sequence[tuple[int, Any]] = db.execute_sql(
                f"SELECT id, sz FROM {table}_docsize WHERE id BETWEEN ? AND ?", (rows[0][0], rows[-1][0])
            ).fetchall()
            differing += sum(i in sizes and sizes[i] != size for i, size in held)
            model.execute(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")
    finally:
        model.close()
    return differing


def _read_batches(db: Database, sql: str) -> Iterator[list[Any]]:
    last = -1
    # SQL: runs over the rows of an FTS5 index
    while rows := db.execute_sql(sql, (last,)).fetchall():
        yield rows
        last = rows[-1][0]


def _list_columns(db: Database, table: str) -> str:
    # SQL: the schema itself, which no model describes
    return ", ".join(r[1] for r in db.execute_sql(f"PRAGMA table_info({table})").fetchall())


def _create_empty_copy(db: Database, table: str) -> apsw.Connection:
    model = apsw.Connection(":memory:")
    model.execute(_read_table_sql(db, table))
    return model


def _read_table_sql(db: Database, name: str) -> str:
    # SQL: the schema itself, which no model describes
    (sql,) = db.execute_sql("SELECT sql FROM sqlite_schema WHERE name = ? AND type = 'table'", (name,)).fetchone()
    return sql


def fill(db: Database, table: str, pks: Sequence[int]) -> None:
    """Add missing texts to an index (pks in ascending order)."""
    columns = _list_columns(db, table)
    for pk in pks:
        # SQL: FTS5, for which peewee has no operator
        db.execute_sql(
            f"INSERT INTO {table} (rowid, {columns}) SELECT pk, {columns} FROM search_terms d WHERE pk = ?"
            f" AND NOT EXISTS (SELECT 1 FROM {table}_docsize WHERE id = d.pk)",
            (pk,),
        )


def replace_by_empty(db: Database, table: str) -> None:
    """Replace an index by an empty one.

    The old table gets another name until `drop_some` removes it.
    """
    sql = _read_table_sql(db, table)
    _rename(db, table, f"{table}{OLD}")
    _create(db, table, sql)


def _create(db: Database, table: str, sql: str) -> None:
    # SQL: FTS5, for which peewee has no operator
    db.execute_sql(sql)
    for name, value in _SETTINGS.items():
        _run_index_command(db, table, name, value)


def _run_index_command(db: Database, table: str, name: str, value: int) -> None:
    # SQL: a command to an FTS5 index, written as an insertion
    db.execute_sql(f"INSERT INTO {table} ({table}, rank) VALUES (?, ?)", (name, value))


def replace(db: Database, table: str, new: str) -> None:
    """Replace an index by the index `new`.

    The old one gets another name until `drop_some` removes it.
    """
    # SQL: FTS5, for which peewee has no operator
    held = [
        db.execute_sql(f"SELECT EXISTS (SELECT 1 FROM {name}_docsize WHERE id > 0)").fetchone()[0]
        for name in (table, new)
    ]
    if not any(held):  # in a new database, renaming both would take longer than all other steps
        sql = _read_table_sql(db, new).replace(new, f'"{table}"', 1)
        for name in (new, table):
            # SQL: the schema itself, which no model describes
            db.execute_sql(f"DROP TABLE {name}")
        _create(db, table, sql)
        return
    _rename(db, table, f"{table}{OLD}")
    _rename(db, new, table)


def _rename(db: Database, table: str, name: str) -> None:
    db.connection().pragma("legacy_alter_table", 1)  # the triggers keep the name of the replacement
    try:
        # SQL: the schema itself, which no model describes
        db.execute_sql(f"ALTER TABLE {table} RENAME TO {name}")
    finally:
        db.connection().pragma("legacy_alter_table", 0)


def clear_index(db: Database, table: str) -> None:
    """Clear an index that stores no texts."""
    # SQL: a command to an FTS5 index, written as an insertion
    db.execute_sql(f"INSERT INTO {table} ({table}) VALUES ('delete-all')")


def list_replaced(db: Database) -> list[str]:
    """Return the replaced indexes that still exist."""
    names = [f"{table}{OLD}" for table in TABLES]
    marks = ", ".join("?" * len(names))
    # SQL: the schema itself, which no model describes
    rows = db.execute_sql(f"SELECT name FROM sqlite_schema WHERE name IN ({marks})", names).fetchall()
    return [name for (name,) in rows]


def drop_some(db: Database, table: str, rows: int = 250) -> bool:
    """Delete about `rows` rows of an unused index; return whether more remain."""
    for part, key in (("data", f"id > {_KEPT}"), ("docsize", "1"), ("idx", "1")):
        name = f"{table}_{part}"
        column = "(segid, term)" if part == "idx" else "id"
        keys = "segid, term" if part == "idx" else "id"
        some = rows if part == "data" else rows * 20
        # SQL: FTS5, for which peewee has no operator
        db.execute_sql(f"DELETE FROM {name} WHERE {column} IN (SELECT {keys} FROM {name} WHERE {key} LIMIT {some})")
        if db.connection().changes():
            return True
    # SQL: the schema itself, which no model describes
    db.execute_sql(f"DROP TABLE {table}")
    return False


@contextmanager
def bypass_triggers(db: Database) -> Generator[None]:
    """Write rows without triggers, if the indexes are correct or will be rebuilt."""
    connection: Any = db.connection()
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    try:
        yield
    finally:
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 1)


def with_deferred_merge(db: Database, do: Callable[[Database], T]) -> T:
    """Run `do(db)`, only marking deleted texts in the indexes.

    The indexes keep their words until a merge (`upkeep.optimize_indexes`). This is thirty times faster than removing
    each word.
    """
    set_mark(db, database_file.UNMERGED, on=True)
    for table in TABLES:
        _run_index_command(db, table, "secure-delete", 0)
    done = do(db)
    # not after a failure: a rollback restores everything
    for table in TABLES:
        _run_index_command(db, table, "secure-delete", 1)
    return done


def may_hold_deleted_words(db: Database) -> bool:
    """Return whether the indexes may hold words of deleted texts."""
    return bool(_read_marks(db) & database_file.UNMERGED)


def set_mark(db: Database, mark: int, *, on: bool) -> None:
    """Set or clear one of the marks of a file (`database_file.CLEAN`, `database_file.UNMERGED`)."""
    before = _read_marks(db)
    after = before | mark if on else before & ~mark
    if after != before:
        db.connection().pragma("user_version", after)


def _read_marks(db: Database) -> int:
    return db.connection().pragma("user_version")


def merge_some(db: Database, table: str, pages: int = 16, *, whole: bool = False) -> bool:
    """Merge about `pages` pages of an index; return whether more remain.

    `whole` starts merging everything into one segment, which later calls continue (FTS5 'merge').
    """
    connection: Any = db.connection()
    before = connection.total_changes()
    _run_index_command(db, table, "merge", -pages if whole else pages)
    return connection.total_changes() - before >= 2


def is_scattered(db: Database, table: str) -> bool:
    """Return whether an index has segments worth merging into one while idle.

    Every search looks up each word in each segment: eight segments cost a fifth to a quarter of its time.
    """
    # SQL: FTS5, for which peewee has no operator
    sizes = [n for (n,) in db.execute_sql(f"SELECT count(*) FROM {table}_idx GROUP BY segid").fetchall()]
    total = sum(sizes)
    return len(sizes) > 1 and (total <= _SMALL or _SCATTERED * (total - max(sizes)) >= total)
