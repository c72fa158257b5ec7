"""Keep the log of changes of tasks, from which they are undone.

Raw SQL: JSON in the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from sakti.core.types import Json
from sakti.store import rows
from sakti.store.connection import Connection, Database
from sakti.store.models import TaskEventRow
from sakti.store.tasks.row import Task


class TaskEvent(Struct, frozen=True):
    """One change; `before` and `after` hold the changed fields, events of one `batch` are undone together."""

    pk: int
    task_id: str
    action: str
    actor: str
    before: Json | None
    after: Json | None
    created_at: int
    batch: str | None


def add(
    db: Database,
    task: Task,
    action: str,
    actor: str,
    now: int,
    before: Json | None = None,
    after: Json | None = None,
    *,
    batch: str | None = None,
) -> None:
    """Log a change."""
    values: dict[str, Any] = {"before": before, "after": after, "created_at": now, "batch": batch}
    who = {"task_id": task.id, "resource_id": task.resource_id, "action": action, "actor": actor}
    rows.insert(db, TaskEventRow, **who, **values)


def newest(db: Database, resource_id: str, actions: Iterable[str], limit: int) -> list[TaskEvent]:
    """Return the newest events of these actions that were not undone, newest first."""
    events = _events(TaskEventRow.resource_id == resource_id, TaskEventRow.action.in_(list(actions)))
    return [TaskEvent(*row) for row in events.limit(limit).execute(db)]


def of_batch(db: Database, batch: str) -> list[TaskEvent]:
    """Return the events of one command that were not undone, newest first."""
    return [TaskEvent(*row) for row in _events(TaskEventRow.batch == batch).execute(db)]


def _events(*where: Any) -> Any:
    row = TaskEventRow
    columns = (row.pk, row.task_id, row.action, row.actor, row.before, row.after, row.created_at, row.batch)
    return row.select(*columns).where(*where, row.undone_at.is_null()).order_by(row.pk.desc()).tuples()


def versions(db: Connection, resource_id: str) -> dict[str, int]:
    """Return by task the `updated_at` of the version that was imported last."""
    rows = db.execute_sql(
        "SELECT task_id, json_extract(after, '$.version') FROM task_events WHERE resource_id = ? AND batch IS NOT NULL"
        " AND undone_at IS NULL AND json_extract(after, '$.version') IS NOT NULL ORDER BY pk",
        (resource_id,),
    )
    return dict(rows.fetchall())


def is_imported(db: Connection, task_id: str) -> bool:
    """Return whether the last change of a task was an import."""
    row = db.execute_sql(
        "SELECT action = 'import' OR json_extract(after, '$.version') IS NOT NULL FROM task_events"
        " WHERE task_id = ? AND action != 'link' AND undone_at IS NULL ORDER BY pk DESC LIMIT 1",
        (task_id,),
    ).fetchone()
    return bool(row and row[0])


def mark_undone(db: Database, event: TaskEvent, now: int) -> None:
    """Mark an event, and those of its batch, as undone."""
    same = TaskEventRow.pk == event.pk if event.batch is None else TaskEventRow.batch == event.batch
    TaskEventRow.update(undone_at=now).where(same).execute(db)
