"""Migrate the schema: numbered SQL files, each applied once in its own transaction, never backwards."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from sakti.core.errors import StoreError
from sakti.core.patterns import lazy_pattern
from sakti.store import packing
from sakti.store.connection import Connection, Database
from sakti.store.maintenance import copying

if TYPE_CHECKING:
    from sakti.core.clock import Clock

PACK_S = 2.0  # seconds of packing before a migrated database is used; the rest goes in the background
ROOM = 1.3  # times the file: its copy, and an index that is made beside the old one
NAME = lazy_pattern(r"(\d{4})_\w+\.sql")


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
    already. Two processes may start at once: each step checks again under its lock. What takes long is left to the
    upkeep (`packing`). Raises `StoreError` (full) where there is no room for the copy.
    """
    files = _files()
    notices: list[str] = []
    version = current_version(db)
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
    if max(files) >= packing.MIGRATION:
        if version < LATEST:
            packing.pack_all(db, PACK_S)
        if path is not None and (left := packing.progress(db)):
            notices.append(f"The database is {left}; the rest is packed while you work.")
    return notices


def _keep(db: Database, backup: Path) -> Path:
    """Copy the database as it is before migrating to `backup`.

    Processes that start at the same time each make a copy under a name of their own; the first complete one gets the
    final name, and only then does any of them migrate. A copy left by an interrupted migration is replaced.
    """
    _require_room(db, backup)
    before = current_version(db)
    copying.copy(db, backup, replace=True, wanted=lambda copied: current_version(copied) == before)
    return backup


def _require_room(db: Database, backup: Path) -> None:
    """Raise `StoreError` (full) where the disk cannot hold the copy and what the migration writes meanwhile."""
    (pages,) = db.execute_sql("PRAGMA page_count").fetchone()
    (size,) = db.execute_sql("PRAGMA page_size").fetchone()
    needed, free = int(pages * size * ROOM), shutil.disk_usage(backup.parent).free
    if free < needed:
        raise StoreError(
            f"Migrating the database needs {needed / 1e6:,.0f} MB of free disk space in {backup.parent}, of which"
            f" {free / 1e6:,.0f} MB are there: free some, then start again. Nothing was changed.",
            code="full",
        )
