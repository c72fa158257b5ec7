"""Read thread names for shell completion. Raw SQL: such a program has no time for peewee."""

from __future__ import annotations

from sakti.store.connection import Connection

_HERE = "SELECT id, title FROM threads WHERE resource_id = ? AND deleted_at"


def newest(db: Connection, resource_id: str, limit: int, deleted: bool) -> list[tuple[str, str]]:
    """Return ids and titles of a workspace's threads, the newest first, or of those that were deleted."""
    which = "IS NOT NULL ORDER BY deleted_at" if deleted else "IS NULL ORDER BY updated_at"
    return list(db.execute_sql(f"{_HERE} {which} DESC LIMIT ?", (resource_id, limit)))
