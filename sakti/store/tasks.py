"""Tasks, their edges, labels, links and the log of what was done to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sakti.core.types import Json
from sakti.store import search_index
from sakti.store.connection import Database
from sakti.store.models import TaskEventRow, TaskRow

_FIELDS = (
    "id",
    "resource_id",
    "handle",
    "title",
    "description",
    "status",
    "priority",
    "type",
    "assignee",
    "session_id",
    "claimed_at",
    "claim_expires_at",
    "thread_id",
    "close_reason",
    "summary",
    "created_at",
    "updated_at",
    "closed_at",
)


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `status` is open, in_progress or closed; blocked is computed, never stored. Times in Unix ms."""

    id: str
    resource_id: str
    handle: str
    title: str
    description: str
    status: str
    priority: int
    type: str
    assignee: str | None
    session_id: str | None
    claimed_at: int | None
    claim_expires_at: int | None
    thread_id: str | None
    close_reason: str | None
    summary: str | None
    created_at: int
    updated_at: int
    closed_at: int | None


def insert(db: Database, task: Task) -> None:
    TaskRow.insert(**{f: getattr(task, f) for f in _FIELDS}).execute(db)
    _index(db, task)


def update(db: Database, task_id: str, **changes: Any) -> Task:
    TaskRow.update(**changes).where(TaskRow.id == task_id).execute(db)
    task = get(db, task_id)
    assert task is not None
    _index(db, task)
    return task


def _index(db: Database, task: Task) -> None:
    text = "\n".join(t for t in (task.title, task.description, task.summary or "") if t)
    search_index.put(
        db,
        kind="task",
        doc_id=task.id,
        resource_id=task.resource_id,
        thread_id=task.thread_id,
        task_id=task.id,
        role="task",
        created_at=task.created_at,
        text=text,
    )


def get(db: Database, task_id: str) -> Task | None:
    row = db.execute_sql(
        f"SELECT {', '.join(_FIELDS)} FROM tasks WHERE id = ? AND deleted_at IS NULL", (task_id,)
    ).fetchone()
    return None if row is None else Task(*row)


def all_live(db: Database, resource_id: str) -> list[Task]:
    rows = db.execute_sql(
        f"SELECT {', '.join(_FIELDS)} FROM tasks WHERE resource_id = ? AND deleted_at IS NULL ORDER BY pk",
        (resource_id,),
    ).fetchall()
    return [Task(*r) for r in rows]


def matching(db: Database, resource_id: str, text: str) -> list[Task]:
    """Tasks whose id or handle is `text` or begins with it; an exact one alone."""
    rows = db.execute_sql(
        f"SELECT {', '.join(_FIELDS)} FROM tasks WHERE resource_id = ? AND deleted_at IS NULL"
        " AND (substr(id, 1, length(?2)) = ?2 OR substr(handle, 1, length(?2)) = ?2) LIMIT 20",
        (resource_id, text),
    ).fetchall()
    found = [Task(*r) for r in rows]
    return [t for t in found if text in (t.id, t.handle)] or found


def handles(db: Database, resource_id: str) -> set[str]:
    return {h for (h,) in db.execute_sql("SELECT handle FROM tasks WHERE resource_id = ?", (resource_id,)).fetchall()}


def edges(db: Database, resource_id: str) -> list[tuple[str, str, str]]:
    """(task, depends on, type) of the workspace's live tasks."""
    return db.execute_sql(
        "SELECT d.task_id, d.depends_on, d.type FROM task_dependencies d"
        " JOIN tasks a ON a.id = d.task_id AND a.deleted_at IS NULL"
        " JOIN tasks b ON b.id = d.depends_on AND b.deleted_at IS NULL WHERE a.resource_id = ?",
        (resource_id,),
    ).fetchall()


def add_edge(db: Database, task_id: str, depends_on: str, kind: str, now: int) -> None:
    db.execute_sql(
        "INSERT OR IGNORE INTO task_dependencies (task_id, depends_on, type, created_at) VALUES (?, ?, ?, ?)",
        (task_id, depends_on, kind, now),
    )


def remove_edge(db: Database, task_id: str, depends_on: str, kind: str) -> int:
    db.execute_sql(
        "DELETE FROM task_dependencies WHERE task_id = ? AND depends_on = ? AND type = ?", (task_id, depends_on, kind)
    )
    return db.execute_sql("SELECT changes()").fetchone()[0]


def set_labels(db: Database, task_id: str, labels: Sequence[str]) -> None:
    db.execute_sql("DELETE FROM task_labels WHERE task_id = ?", (task_id,))
    for label in dict.fromkeys(labels):
        db.execute_sql("INSERT INTO task_labels (task_id, label) VALUES (?, ?)", (task_id, label))


def labels(db: Database, resource_id: str) -> dict[str, list[str]]:
    out: dict[str, list[str]] = {}
    for task_id, label in db.execute_sql(
        "SELECT l.task_id, l.label FROM task_labels l JOIN tasks t ON t.id = l.task_id"
        " WHERE t.resource_id = ? ORDER BY l.label",
        (resource_id,),
    ).fetchall():
        out.setdefault(task_id, []).append(label)
    return out


def claim(db: Database, task_id: str, session_id: str, thread_id: str | None, now: int, expires: int) -> bool:
    """One conditional UPDATE: true where this session holds the task afterwards."""
    db.execute_sql(
        "UPDATE tasks SET status = 'in_progress', session_id = ?1, thread_id = coalesce(?2, thread_id),"
        " claimed_at = CASE WHEN session_id = ?1 AND status = 'in_progress' THEN claimed_at ELSE ?3 END,"
        " claim_expires_at = ?4, updated_at = ?3"
        " WHERE id = ?5 AND deleted_at IS NULL AND status != 'closed'"
        " AND (session_id IS NULL OR session_id = ?1 OR status = 'open' OR claim_expires_at < ?3)",
        (session_id, thread_id, now, expires, task_id),
    )
    return db.execute_sql("SELECT changes()").fetchone()[0] == 1


def active(db: Database, thread_id: str, session_id: str) -> str | None:
    """The task that the thread works on: claimed by this session and in progress; else None."""
    row = db.execute_sql(
        "SELECT t.id FROM threads th JOIN tasks t ON t.id = json_extract(th.metadata, '$.active_task_id')"
        " WHERE th.id = ? AND t.status = 'in_progress' AND t.session_id = ? AND t.deleted_at IS NULL",
        (thread_id, session_id),
    ).fetchone()
    return None if row is None else row[0]


def link(db: Database, task_id: str, message_id: str, relation: str, now: int) -> None:
    db.execute_sql(
        "INSERT OR IGNORE INTO task_messages (task_id, message_id, relation, created_at) VALUES (?, ?, ?, ?)",
        (task_id, message_id, relation, now),
    )


def linked_messages(db: Database, task_id: str, limit: int = 50) -> list[Json]:
    rows = db.execute_sql(
        "SELECT m.id, m.thread_id, m.role, m.message_index, tm.relation, substr(m.raw_content, 1, 200)"
        " FROM task_messages tm JOIN messages m ON m.id = tm.message_id WHERE tm.task_id = ?"
        " ORDER BY m.created_at, m.message_index LIMIT ?",
        (task_id, limit),
    ).fetchall()
    return [
        {"id": i, "thread_id": t, "role": r, "index": n, "relation": rel, "text": text}
        for i, t, r, n, rel, text in rows
    ]


def add_event(
    db: Database, task: Task, action: str, actor: str, now: int, before: Json | None, after: Json | None
) -> None:
    TaskEventRow.insert(
        task_id=task.id,
        resource_id=task.resource_id,
        action=action,
        actor=actor,
        before=before,
        after=after,
        created_at=now,
    ).execute(db)
