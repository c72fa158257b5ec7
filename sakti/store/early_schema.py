"""Bring databases of the first hours of development to the second schema.

Their first migration was still being edited. They say that they have schema 1, but have parts of the second migration
already, or lack parts of the released first one. So they are rebuilt: their rows go into the tables of the released
scripts. Databases of later schemas may lack columns that came into a script afterwards; these are added (`Released`).

Raw SQL: tables of any shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw

from sakti.store.connection import Connection

_TABLES = (
    "SELECT name FROM pragma_table_list JOIN sqlite_schema USING (name, type)"
    " WHERE schema = 'main' AND type = 'table' AND name NOT IN ('schema_migrations', 'sqlite_sequence')"
    " ORDER BY sqlite_schema.rowid"
)


COLUMNS = 294  # of ordinary tables in the latest schema: a database with fewer of them lacks some
_ORDINARY = (  # the indexes for searches are virtual tables: packing replaces them, and they have checks of their own
    "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c"
    " WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT GLOB 'sqlite_*' AND t.name != 'schema_migrations'"
)
_COLUMNS = (
    "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c"
    " WHERE t.schema = 'main' AND t.type IN ('table', 'virtual')"
    " AND t.name NOT IN ('schema_migrations', 'sqlite_schema', 'sqlite_sequence') ORDER BY 1, 2"
)

_DEFINITION = (
    "SELECT type || iif(\"notnull\", ' NOT NULL', '') || coalesce(' DEFAULT ' || dflt_value, '')"
    " FROM pragma_table_info(?) WHERE name = ?"
)


class Released:
    """Database in memory with the tables that the released scripts make."""

    def __init__(self, scripts: Iterable[str] = ()) -> None:
        self._connection = apsw.Connection(":memory:")
        for script in scripts:
            self.apply(script)

    def close(self) -> None:
        self._connection.close()

    def apply(self, script: str) -> None:
        self._connection.execute(script)

    def differs(self, db: Connection) -> bool:
        return db.execute_sql(_COLUMNS).fetchall() != self._connection.execute(_COLUMNS).fetchall()

    def find_missing(self, db: Connection) -> list[str]:
        """Return the tables, and the columns of other tables (`tasks.title`), that a database lacks."""
        tables, columns = self._missing(db)
        return [*tables, *(f"{table}.{column}" for table, column in columns)]

    def _missing(self, db: Connection) -> tuple[list[str], list[tuple[str, str]]]:
        present = set(db.execute_sql(_ORDINARY).fetchall())
        names = {table for table, _ in present}
        expected = [(str(table), str(column)) for table, column in self._connection.execute(_ORDINARY)]
        tables = list(dict.fromkeys(table for table, _ in expected if table not in names))
        return tables, [pair for pair in expected if pair[0] in names and pair not in present]

    def add_missing(self, db: Connection) -> None:
        """Add what a database lacks; runs in the caller's transaction."""
        tables, columns = self._missing(db)
        for table in tables:
            db.execute_sql(self._connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get)
        for table, column in columns:
            definition = self._connection.execute(_DEFINITION, (table, column)).get
            db.execute_sql(f'ALTER TABLE main."{table}" ADD COLUMN "{column}" {definition}')


def is_complete(db: Connection) -> bool:
    """Return whether a database of the latest schema has all its columns, by their number."""
    return len(db.execute_sql(_ORDINARY).fetchall()) >= COLUMNS


def rebuild(db: Connection, scripts: Sequence[str]) -> None:
    """Replace all tables by those of `scripts` and keep the rows; runs in the caller's transaction."""
    db.execute_sql("PRAGMA defer_foreign_keys = 1")
    tables = [name for (name,) in db.execute_sql(_TABLES).fetchall()]
    for table in tables:
        db.execute_sql(f'CREATE TEMP TABLE "early_{table}" AS SELECT * FROM main."{table}"')
    _drop_all(db, tables)
    for script in scripts:
        db.execute_sql(script)
    for table in tables:
        columns = ", ".join(f'"{c}"' for c in _columns(db, table) if c in _columns(db, f"early_{table}"))
        if columns:
            db.execute_sql(f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM temp."early_{table}"')
        db.execute_sql(f'DROP TABLE temp."early_{table}"')
    db.execute_sql(
        "INSERT INTO task_words (rowid, title, body, idents) SELECT pk, title, body,"
        " sakti_identifiers(title || char(10) || body) FROM (SELECT pk, title,"
        " description || char(10) || coalesce(summary, '') AS body FROM tasks WHERE deleted_at IS NULL)"
    )


def _drop_all(db: Connection, tables: Sequence[str]) -> None:
    """Drop triggers and views, then tables, the newest first: they refer to older ones."""
    others = db.execute_sql(
        "SELECT s.type, s.name FROM sqlite_schema s WHERE s.type IN ('trigger', 'view') UNION ALL"
        " SELECT 'table', name FROM pragma_table_list WHERE schema = 'main' AND type = 'virtual'"
    ).fetchall()
    for kind, name in (*others, *(("table", table) for table in reversed(tables))):
        db.execute_sql(f'DROP {kind} main."{name}"')


def _columns(db: Connection, table: str) -> list[str]:
    return [name for (name,) in db.execute_sql("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()]
