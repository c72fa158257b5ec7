"""Write the edges of the task graph; `graph` reads them."""

from __future__ import annotations

from sakti.store.connection import Database
from sakti.store.models import TaskEdgeRow
from sakti.store.rows import insert_new
from sakti.store.tasks import graph


def add(db: Database, task_id: str, depends_on: str, kind: str, now: int, *, count: bool = True) -> bool:
    """Add an edge; False if it exists. Without `count` the caller runs `graph.refresh` afterwards."""
    edge = {"task_id": task_id, "depends_on": depends_on, "type": kind}
    is_new = insert_new(db, TaskEdgeRow, **edge, created_at=now)
    if is_new and count:
        graph.refresh(db, (task_id, depends_on))
    return is_new


def remove(
    db: Database, task_id: str, depends_on: str, kind: str, *, count: bool = True
) -> tuple[bool, dict[str, bool]]:
    """Remove an edge; return whether it existed, and which tasks are held or freed by that."""
    edge = (TaskEdgeRow.task_id == task_id) & (TaskEdgeRow.depends_on == depends_on) & (TaskEdgeRow.type == kind)
    removed = TaskEdgeRow.delete().where(edge).execute(db) == 1
    return removed, graph.refresh(db, (task_id, depends_on)) if removed and count else {}
