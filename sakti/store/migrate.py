"""Migrate the schema: numbered SQL files, each applied once in its own transaction, never backwards."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sakti.core.lazy import lazy_imports
from sakti.store.connection import Connection, Database
from sakti.store.maintenance import copying

with lazy_imports:
    from sakti.store import secrets
    from sakti.store.search import index as search_index

if TYPE_CHECKING:
    from sakti.core.clock import Clock

NAME = re.compile(r"(\d{4})_\w+\.sql")


def _files() -> dict[int, str]:
    folder = resources.files("sakti.store.migrations")
    return {int(m[1]): f.name for f in folder.iterdir() if (m := NAME.fullmatch(f.name))}


LATEST = max(_files())


def current_version(db: Connection) -> int:
    """Return the number of the last applied migration; 0 for an empty database."""
    if not db.execute_sql("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migrations'").fetchone():
        return 0
    return db.execute_sql("SELECT max(version) FROM schema_migrations").fetchone()[0] or 0


def upgrade(db: Database, path: Path | None, clock: Clock) -> list[str]:
    """Apply missing migrations and return notices for the user.

    A database with content is copied first, to `<name>.before-<version>` beside it; without a `path` it is a copy
    already. Two processes may start at once: each step checks again under its lock.
    """
    files = _files()
    notices: list[str] = []
    version = current_version(db)
    if version < LATEST:
        lend_functions(db)
    if path is not None and 0 < version < LATEST:
        backup = _keep(db, path.with_name(f"{path.name}.before-{LATEST:04d}"))
        notices.append(f"The database was migrated; a backup from before is {backup}.")
    for number in sorted(n for n in files if n > version):
        script = resources.files("sakti.store.migrations").joinpath(files[number]).read_text("utf-8")
        with db.atomic():
            if current_version(db) >= number:
                continue
            db.execute_sql(
                "CREATE TABLE IF NOT EXISTS schema_migrations"
                " (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL)"
            )
            db.execute_sql(script)
            db.execute_sql("INSERT INTO schema_migrations VALUES (?, ?, ?)", (number, files[number], clock.now()))
    return notices


def lend_functions(db: Database) -> None:
    """Register the Python functions that migrations call."""
    connection: Any = db.connection()
    connection.create_scalar_function("sakti_masked", secrets.masked, 1, deterministic=True)
    connection.create_scalar_function("sakti_identifiers", search_index.identifiers, 1, deterministic=True)


def _keep(db: Database, backup: Path) -> Path:
    """Copy the database as it is before migrating to `backup`.

    Processes that start at the same time each make a copy under a name of their own; the first complete one gets the
    final name, and only then does any of them migrate. A copy left by an interrupted migration is replaced.
    """
    before = current_version(db)
    copying.copy(db, backup, replace=True, wanted=lambda copied: current_version(copied) == before)
    return backup
