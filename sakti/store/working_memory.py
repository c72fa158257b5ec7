"""Store the pages of working memory with all versions. Raw SQL: every window runs it."""

from __future__ import annotations

from sakti.core.errors import MemoryFailure
from sakti.store.database import Database
from sakti.store.models import WorkingMemoryRow
from sakti.store.search import index as search_index
from sakti.store.threads import threads

_NEWEST = "SELECT content, version FROM working_memory WHERE scope = ? AND owner_id = ? ORDER BY version DESC LIMIT 1"


def working_memory(db: Database, scope: str, owner_id: str) -> tuple[str, int] | None:
    """Return the newest version of a page and its number."""
    row = db.execute_sql(_NEWEST, (scope, owner_id)).fetchone()
    return None if row is None else (row[0], row[1])


def put_working_memory(
    db: Database,
    *,
    id: str,
    scope: str,
    owner_id: str,
    content: str,
    tokens: int,
    actor: str,
    now: int,
    expected_version: int,
    resource_id: str,
) -> int:
    """Add a version and return its number; older versions stay.

    Raises `MemoryFailure` (conflict) when `expected_version` (0: none yet) is no longer the newest.
    """
    current = working_memory(db, scope, owner_id)
    if (current[1] if current else 0) != expected_version:
        raise MemoryFailure("The page was changed meanwhile: read it and try again.", code="conflict", retryable=True)
    WorkingMemoryRow.insert(
        id=id,
        scope=scope,
        owner_id=owner_id,
        version=expected_version + 1,
        content=content,
        tokens=tokens,
        actor=actor,
        created_at=now,
    ).execute(db)
    if scope == "thread" and threads.is_deleted(db, owner_id):
        return expected_version + 1  # search learns it when the thread is restored
    search_index.put(
        db,
        kind="working_memory",
        doc_id=f"{scope}:{owner_id}",
        resource_id=resource_id,
        created_at=now,
        text=content,
        thread_id=owner_id if scope == "thread" else None,
    )
    return expected_version + 1
