"""Bring databases of the first hours of development to the second schema.

Their first migration was still being edited. They say that they have schema 1, but have parts of the second migration
already, or lack parts of the released first one. So they are rebuilt: their rows go into the tables of the released
scripts.

Raw SQL: tables of any shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from sakti.store.connection import Connection

_TABLES = (
    "SELECT name FROM pragma_table_list JOIN sqlite_schema USING (name, type)"
    " WHERE schema = 'main' AND type = 'table' AND name NOT IN ('schema_migrations', 'sqlite_sequence')"
    " ORDER BY sqlite_schema.rowid"
)


def is_early(db: Connection, released: str) -> bool:
    """Return whether a database of schema 1 differs in tables or columns from the `released` script."""
    model = apsw.Connection(":memory:")
    try:
        model.execute(released)
        expected = model.execute(_COLUMNS).fetchall()
    finally:
        model.close()
    return db.execute_sql(_COLUMNS).fetchall() != expected


_COLUMNS = (
    "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c"
    " WHERE t.schema = 'main' AND t.type IN ('table', 'virtual')"
    " AND t.name NOT IN ('schema_migrations', 'sqlite_schema', 'sqlite_sequence') ORDER BY 1, 2"
)


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
