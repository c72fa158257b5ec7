"""Migrate the schema: numbered SQL files, each applied once in its own transaction, never backwards."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from sakti.core.errors import StoreError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.store import copies, database_file, failures, packing
from sakti.store.connection import Connection, Database, wrap_connection

if TYPE_CHECKING:
    from sakti.core.clock import Clock


_TABLES = (
    "SELECT name FROM pragma_table_list JOIN sqlite_schema USING (name, type)"
    " WHERE schema = 'main' AND type = 'table' AND name NOT IN ('schema_migrations', 'sqlite_sequence')"
    " ORDER BY sqlite_schema.rowid"
)

COLUMNS = 294  # of ordinary tables in the latest schema: a database with fewer of them lacks some
_ORDINARY = (  # the indexes for searches are virtual tables: packing replaces them, and they have separate checks
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
        # SQL: the schema itself, which no model describes
        return db.execute_sql(_COLUMNS).fetchall() != self._connection.execute(_COLUMNS).fetchall()

    def find_missing(self, db: Connection) -> list[str]:
        """Return the tables, and the columns of other tables (`tasks.title`), that a database lacks."""
        tables, columns = self._find_missing(db)
        return [*tables, *(f"{table}.{column}" for table, column in columns)]

    def _find_missing(self, db: Connection) -> tuple[list[str], list[tuple[str, str]]]:
        # SQL: the schema itself, which no model describes
        present = set(db.execute_sql(_ORDINARY).fetchall())
        names = {table for table, _ in present}
        expected = [(str(table), str(column)) for table, column in self._connection.execute(_ORDINARY)]
        tables = list(dict.fromkeys(table for table, _ in expected if table not in names))
        return tables, [pair for pair in expected if pair[0] in names and pair not in present]

    def add_missing(self, db: Connection) -> None:
        """Add what a database lacks; runs in the caller's transaction."""
        tables, columns = self._find_missing(db)
        for table in tables:
            _execute(db, str(self._connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get))
        for table, column in columns:
            definition = self._connection.execute(_DEFINITION, (table, column)).get
            _execute(db, f'ALTER TABLE main."{table}" ADD COLUMN "{column}" {definition}')


def _execute(db: Connection, *scripts: str) -> None:
    """Execute statements that change the schema, in the caller's transaction."""
    for script in scripts:
        # SQL: the schema itself, which no model describes
        db.execute_sql(script)


def _fetch_names(db: Connection, sql: str, *values: str) -> list[str]:
    """Return the names selected by a query about the schema."""
    # SQL: the schema itself, which no model describes
    return [name for (name,) in db.execute_sql(sql, values).fetchall()]


def is_complete(db: Connection) -> bool:
    """Return whether a database of the latest schema has all its columns, by their number."""
    # SQL: the schema itself, which no model describes
    return len(db.execute_sql(_ORDINARY).fetchall()) >= COLUMNS


def rebuild_tables(db: Connection, scripts: Sequence[str]) -> None:
    """Replace all tables by those of `scripts` and keep the rows; runs in the caller's transaction."""
    db.connection().pragma("defer_foreign_keys", 1)
    tables = _fetch_names(db, _TABLES)
    _execute(db, *(f'CREATE TEMP TABLE "early_{table}" AS SELECT * FROM main."{table}"' for table in tables))
    _drop_all(db, tables)
    _execute(db, *scripts)
    for table in tables:
        columns = ", ".join(f'"{c}"' for c in _list_columns(db, table) if c in _list_columns(db, f"early_{table}"))
        if columns:
            _execute(db, f'INSERT INTO main."{table}" ({columns}) SELECT {columns} FROM temp."early_{table}"')
        _execute(db, f'DROP TABLE temp."early_{table}"')
    _execute(
        db,
        "INSERT INTO task_words (rowid, title, body, idents) SELECT pk, title, body,"
        " sakti_identifiers(title || char(10) || body) FROM (SELECT pk, title,"
        " description || char(10) || coalesce(summary, '') AS body FROM tasks WHERE deleted_at IS NULL)",
    )


def _drop_all(db: Connection, tables: Sequence[str]) -> None:
    """Drop triggers and views, then tables, the newest first: they refer to older ones."""
    # SQL: the schema itself, which no model describes
    others = db.execute_sql(
        "SELECT s.type, s.name FROM sqlite_schema s WHERE s.type IN ('trigger', 'view') UNION ALL"
        " SELECT 'table', name FROM pragma_table_list WHERE schema = 'main' AND type = 'virtual'"
    ).fetchall()
    for kind, name in (*others, *(("table", table) for table in reversed(tables))):
        _execute(db, f'DROP {kind} main."{name}"')


def _list_columns(db: Connection, table: str) -> list[str]:
    return _fetch_names(db, "SELECT name FROM pragma_table_info(?)", table)


PACK_S = 2.0  # seconds of packing before a migrated database is used; the rest runs in the background
ROOM = 1.3  # times the size of the file: its copy, and an index built beside the old one
_PASSING = ("busy", "full", "read_only")  # codes of failures that a step did not cause
NAME = lazy_pattern(r"(\d{4})_\w+\.sql")


class MigrationError(StoreError):
    """Failed step of a migration; `reason` is the error behind it in a few words."""

    code = "migration"

    def __init__(self, name: str, step: str, error: Exception, backup: Path | None) -> None:
        self.step = step
        self.reason = to_one_line(f"{type(error).__name__}: {failures.find_sqlite_error(error) or error}", 300).rstrip(
            "."
        )
        unchanged = f"the backup {backup} is untouched" if backup is not None else "nothing in the file was changed"
        super().__init__(
            f"The database {name} could not be migrated: step {step} failed ({self.reason}); {unchanged}, and"
            " `sakti db recover` copies every readable row into a new database."
        )


def _list_files() -> dict[int, str]:
    folder = resources.files("sakti.store.migrations")
    return {int(m[1]): f.name for f in folder.iterdir() if (m := NAME.fullmatch(f.name))}


LATEST = max(_list_files())


def read_current_version(db: Connection) -> int:
    """Return the number of the last applied migration; 0 for an empty database."""
    # SQL: the schema itself, which no model describes
    if not db.execute_sql("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'").fetchone():
        return 0
    # SQL: the schema itself, which no model describes
    return db.execute_sql("SELECT max(version) FROM schema_migrations").fetchone()[0] or 0


def upgrade(db: Database, path: Path | None, clock: Clock) -> list[str]:
    """Apply missing migrations and return notices for the user.

    A database with content is copied first, to `<name>.before-<version>` beside it; without a `path` it is a copy
    already. Two processes may start at once: each step checks again under its lock. Long work is left to `packing`.
    Raises `StoreError` (full) if there is no room for the copy, and `MigrationError`; then the steps before the failed
    one are done.
    """
    notices: list[str] = []
    version = read_current_version(db)
    backup = None
    if path is not None and 0 < version < LATEST:
        backup = _back_up(db, path.with_name(f"{path.name}.before-{LATEST:04d}"))
        notices.append(f"The database was migrated; a backup from before is {backup}.")
    apply_steps(db, clock, name=str(path or "in memory"), backup=backup)
    if version < LATEST:
        notices += _pack(db)
    if path is not None and (remaining := packing.read_progress(db)):
        notices.append(f"The database is {remaining}; the rest is packed while you work.")
    return notices


def _pack(db: Database) -> list[str]:
    """Pack for a while; a failure leaves the database complete."""
    try:
        packing.pack_all(db, PACK_S)
    except Exception as e:
        return [f"Packing the database stopped ({type(e).__name__}: {e}); `sakti db check` tries again."]
    return []


def apply_steps(db: Database, clock: Clock, *, name: str, backup: Path | None = None) -> None:
    """Apply missing migrations; the error's message names `name` and `backup`.

    Raises `MigrationError`, and errors of SQLite that are no fault of a step (busy, full, read_only).
    """
    files, applied = _list_files(), _load_applied_versions(db)
    missing = sorted(files.keys() - applied)
    if not missing and is_complete(db):
        return
    done = sorted(files.keys() & applied)
    with contextlib.closing(Released(_read_script(files[n]) for n in done)) as released:
        for number in missing:
            with _convert_failures(name, files[number], backup), db.atomic():
                if number not in _load_applied_versions(db):
                    if number > 2:  # the second step rebuilds an early first schema
                        released.add_missing(db)
                    _apply(db, number, files[number], clock)
            released.apply(_read_script(files[number]))
        with _convert_failures(name, files[max(files)], backup), db.atomic():
            released.add_missing(db)


@contextlib.contextmanager
def _convert_failures(name: str, file: str, backup: Path | None) -> Generator[None]:
    """Raise `MigrationError` for a failure caused by the step."""
    try:
        yield
    except Exception as e:
        if failures.classify_error(e) in _PASSING:
            raise
        raise MigrationError(name, file.removesuffix(".sql"), e, backup) from e


def find_missing(db: Connection) -> list[str]:
    """Return the tables and columns that a database of the latest schema lacks."""
    with contextlib.closing(Released(_read_script(file) for _, file in sorted(_list_files().items()))) as released:
        return released.find_missing(db)


def _apply(db: Database, number: int, file: str, clock: Clock) -> None:
    _execute(
        db,
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)",
    )
    if number == 2 and _is_early(db):
        rebuild_tables(db, (_read_script(_list_files()[1]), _read_script(file)))
    else:
        _execute(db, _read_script(file))
    # SQL: the schema itself, which no model describes
    db.execute_sql("INSERT INTO schema_migrations VALUES (?, ?, ?)", (number, file, clock.now()))


def _is_early(db: Connection) -> bool:
    """Return whether a database of schema 1 differs in tables or columns from the released script."""
    with contextlib.closing(Released([_read_script(_list_files()[1])])) as released:
        return released.differs(db)


def _read_script(file: str) -> str:
    return resources.files("sakti.store.migrations").joinpath(file).read_text("utf-8")


def _load_applied_versions(db: Connection) -> dict[int, int]:
    """Return the applied migrations: number and time of each."""
    if not read_current_version(db):
        return {}
    # SQL: the schema itself, which no model describes
    return dict(db.execute_sql("SELECT version, applied_at FROM schema_migrations").fetchall())


def _back_up(db: Database, backup: Path) -> Path:
    """Copy the database to `backup` before migrating it.

    Processes that start at the same time each make a copy under a separate name; the first complete one gets the final
    name, and only then does any of them migrate. The copy of an interrupted or failed migration stays: the database
    itself may have changed since.
    """
    before = _load_applied_versions(db)
    if _is_from_before(backup, before):
        return backup
    _require_room(db, backup)

    def is_wanted(copied: Connection) -> bool:
        return _load_applied_versions(copied) == before and not _is_from_before(backup, before)

    copies.copy_database(db, backup, replace=True, wanted=is_wanted)
    return backup


def _is_from_before(backup: Path, applied: dict[int, int]) -> bool:
    """Return whether `backup` is a copy of this database from before its latest steps."""
    if not backup.exists():
        return False
    try:
        with contextlib.closing(database_file.make_read_only(backup, immutable=True).connect()) as connection:
            copied = _load_applied_versions(wrap_connection(connection))
    except apsw.Error:
        return False
    return bool(copied) and copied.items() < applied.items()


def _require_room(db: Database, backup: Path) -> None:
    """Raise StoreError (full) if the disk cannot hold the backup and the migration's writes."""
    pages = db.connection().pragma("page_count")
    size = db.connection().pragma("page_size")
    needed, free = int(pages * size * ROOM), shutil.disk_usage(backup.parent).free
    if free < needed:
        raise StoreError(
            f"Migrating the database needs {needed / 1e6:,.0f} MB of free disk space in {backup.parent}, of which"
            f" {free / 1e6:,.0f} MB are available: free some space, then start again. Nothing was changed.",
            code="full",
        )
