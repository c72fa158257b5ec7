"""Threads: the conversations of a workspace."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from peewee import fn

from sakti.core.types import Json, Thread
from sakti.store.connection import Database
from sakti.store.models import MessageRow, ThreadRow
from sakti.store.text_registry import entering, leaving

TITLE_LIMIT = 60
HOLD = "hold_until"  # in a thread's metadata: pending tokens up to which nothing is observed by itself after an undo
HOLD_LIMITED = "hold_limited"  # … and whether requests take only the newest meanwhile, as before what was undone


def create(db: Database, thread: Thread) -> Thread:
    """Store a new thread, and return it as it is stored: its title holds no secret."""
    title = entering("threads", "title", thread.title)
    ThreadRow.insert(
        id=thread.id,
        resource_id=thread.resource_id,
        title=title,
        title_pinned=int(thread.title_pinned),
        metadata=thread.metadata,
        parent_id=thread.parent_id,
        mode=thread.mode,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
    ).execute(db)
    return dataclasses.replace(thread, title=title)


_COLUMNS = "id", "resource_id", "title", "created_at", "updated_at", "title_pinned", "parent_id", "mode", "metadata"


def get(db: Database, thread_id: str) -> Thread | None:
    # written out: memory asks at every turn and commit, and building the query costs ten times as much as running it
    row = db.execute_sql(f"SELECT {', '.join(_COLUMNS)} FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        return None
    values: dict[str, Any] = dict(zip(_COLUMNS, row, strict=True))
    return from_row(values | {"metadata": json.loads(values["metadata"])})


def find(db: Database, resource_id: str, text: str) -> list[Thread]:
    """Threads of the workspace whose id begins or ends with `text`, or whose title contains it."""
    like = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = db.execute_sql(
        "SELECT id FROM threads WHERE resource_id = ? AND deleted_at IS NULL"
        " AND (id LIKE ? ESCAPE '\\' OR id LIKE ? ESCAPE '\\' OR title LIKE ? ESCAPE '\\')"
        " ORDER BY updated_at DESC LIMIT 20",
        (resource_id, f"{like}%", f"%{like}", f"%{like}%"),
    ).fetchall()
    return [t for (i,) in rows if (t := get(db, i)) is not None]


def recent(db: Database, resource_id: str, limit: int = 50) -> list[Thread]:
    """The newest threads of a workspace that hold at least one message."""
    newest = ThreadRow.updated_at.desc(), ThreadRow.pk.desc()
    here = ThreadRow.deleted_at.is_null() & (ThreadRow.resource_id == resource_id)
    query = ThreadRow.select().where(here).order_by(*newest).limit(limit)
    held = MessageRow.select(MessageRow.pk).where(MessageRow.thread_id == ThreadRow.id)
    return [from_row(r) for r in query.where(fn.EXISTS(held)).dicts().execute(db)]


def is_deleted(db: Database, thread_id: str) -> bool:
    row = db.execute_sql("SELECT deleted_at IS NOT NULL FROM threads WHERE id = ?", (thread_id,)).fetchone()
    return bool(row and row[0])


def touch(db: Database, thread_id: str, now: int) -> None:
    ThreadRow.update(updated_at=now).where(ThreadRow.id == thread_id).execute(db)


def rename(db: Database, thread_id: str, title: str, now: int, *, by_user: bool) -> Thread | None:
    """Give the thread a title. One that the user set stays: only the user changes it again."""
    query = ThreadRow.update(title=title, title_pinned=int(by_user), updated_at=now).where(ThreadRow.id == thread_id)
    if not by_user:
        query = query.where(ThreadRow.title_pinned == 0)
    query.execute(db)
    return get(db, thread_id)


def update_metadata(db: Database, thread_id: str, changes: Json) -> None:
    """Merge `changes` into the thread's metadata; a value of None removes its key."""
    row = db.execute_sql("SELECT metadata FROM threads WHERE id = ?", (thread_id,)).fetchone()
    if row is None:
        return
    merged = {k: v for k, v in {**json.loads(row[0]), **changes}.items() if v is not None}
    text = entering("threads", "metadata", json.dumps(merged, ensure_ascii=False))
    db.execute_sql("UPDATE threads SET metadata = ? WHERE id = ?", (text, thread_id))


def set_mode(db: Database, thread_id: str, mode: str) -> None:
    ThreadRow.update(mode=mode).where(ThreadRow.id == thread_id).execute(db)


def from_row(row: dict[str, Any]) -> Thread:
    return Thread(
        id=row["id"],
        resource_id=row["resource_id"],
        title=row["title"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        title_pinned=bool(row["title_pinned"]),
        parent_id=row["parent_id"],
        mode=row["mode"],
        metadata=row["metadata"],
    )


def summaries(db: Database, resource_id: str, limit: int) -> list[tuple[Thread, str, int, int]]:
    """Recent threads that hold messages, each with its last words, its number of messages and their tokens."""
    out: list[tuple[Thread, str, int, int]] = []
    for thread in recent(db, resource_id, limit):
        count, tokens = db.execute_sql(
            "SELECT count(*), coalesce(sum(token_count), 0) FROM messages WHERE thread_id = ?", (thread.id,)
        ).fetchone()
        (preview,) = db.execute_sql(
            "SELECT substr(raw_content, 1, 200) FROM messages WHERE thread_id = ? AND role IN ('user', 'assistant')"
            " ORDER BY message_index DESC LIMIT 1",
            (thread.id,),
        ).fetchone() or ("",)
        out.append((thread, leaving(preview), count, tokens))
    return out
