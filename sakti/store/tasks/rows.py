"""Write the rows of tasks, with their labels and search entries.

Raw SQL where a list of ids is one parameter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from peewee import fn

from sakti.core.types import Json
from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.models import TaskLabelRow, TaskRow
from sakti.store.search import index as search_index
from sakti.store.tasks import graph, questions, search
from sakti.store.tasks.row import STORED, Task

_GRAPH = {"status", "deleted_at"}  # what other tasks' readiness depends on
_SEARCHED = {"title", "description", "summary", "deleted_at"}


def insert(db: Database, task: Task) -> None:
    """Add a task with its labels."""
    values = {name: getattr(task, name) for name in STORED}
    rows.insert(db, TaskRow, **values, metadata=task.metadata)
    _add_labels(db, task.id, task.labels)
    _index(db, task)


def update(db: Database, task_id: str, **changes: Any) -> tuple[Task, dict[str, bool]]:
    """Change columns; return the task, and the tasks that are now held (True) or free (False)."""
    rows.update(db, TaskRow, task_id, **changes)
    moved = graph.refresh_around(db, task_id) if _GRAPH & changes.keys() else {}
    task = _get_with_deleted(db, task_id)
    if changes.get("deleted_at") is not None:
        search_index.remove(db, "task", task_id)
    elif _SEARCHED & changes.keys():
        _index(db, task)
    return task, moved


def _get_with_deleted(db: Database, task_id: str) -> Task:
    task = questions.get(db, task_id)
    if task is None:
        (resource_id,) = db.execute_sql("SELECT resource_id FROM tasks WHERE id = ?", (task_id,)).fetchone()
        (task,) = questions.matching(db, resource_id, task_id, deleted=True)
    return task


def delete_many(db: Database, resource_id: str, task_ids: Sequence[str], now: int) -> None:
    """Delete many tasks of a workspace at once."""
    db.execute_sql(
        "UPDATE tasks SET deleted_at = ? WHERE id IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL",
        (now, json.dumps(list(task_ids))),
    )
    for task_id in task_ids:
        search_index.remove(db, "task", task_id)
    graph.refresh_all(db, resource_id)


def resource_of(db: Database, task_id: str) -> str | None:
    """Return the workspace of a task, None if it does not exist."""
    return TaskRow.select(TaskRow.resource_id).where(TaskRow.id == task_id).scalar(db)


def set_labels(db: Database, task_id: str, labels: Sequence[str]) -> None:
    """Replace the labels of a task."""
    TaskLabelRow.delete().where(TaskLabelRow.task_id == task_id).execute(db)
    _add_labels(db, task_id, labels)


def _add_labels(db: Database, task_id: str, labels: Sequence[str]) -> None:
    for label in dict.fromkeys(labels):
        rows.insert(db, TaskLabelRow, task_id=task_id, label=label)


# --- age --------------------------------------------------------------------------------------------------


def shrink(db: Database, task: Task, level: int, description: str, summary: str | None, now: int) -> None:
    """Shorten a closed task's texts; the original is stored once and stays searchable."""
    original = json.dumps({"description": task.description, "summary": task.summary}, ensure_ascii=False)
    TaskRow.update(
        original=fn.COALESCE(TaskRow.original, original),
        description=description,
        summary=summary,
        compaction_level=level,
        compacted_at=now,
    ).where(TaskRow.id == task.id).execute(db)


def unshrink(db: Database, task_id: str, now: int) -> bool:
    """Restore the full text; False if it was never shrunk."""
    row = TaskRow.select(TaskRow.original).where(TaskRow.id == task_id).tuples().get_or_none(db)
    original: Json | None = row[0] if row else None
    if original is None:
        return False
    TaskRow.update(original=None, compaction_level=0, compacted_at=now, **original).where(
        TaskRow.id == task_id
    ).execute(db)
    return True


# --- where a task came from -------------------------------------------------------------------------------


class ImportedTask(Struct, frozen=True):
    """Task imported from another program, with its `original`."""

    task_id: str
    deleted: bool
    original: Json


SOURCE_KEYS = ("source", "source_id", "original")  # of the metadata: they belong to the import


def set_metadata(db: Database, task_id: str, metadata: Json) -> None:
    """Replace a task's metadata, except for the source kept by an import."""
    original = {k: v for k, v in _metadata(db, task_id).items() if k == "original"}
    TaskRow.update(metadata={**original, **metadata}).where(TaskRow.id == task_id).execute(db)


def set_source(db: Database, task_id: str, source: str, name: str, original: Json) -> None:
    """Store a task's source: the program, its id there, and the original."""
    came = {"source": source, "source_id": name, "original": original}
    TaskRow.update(metadata={**_metadata(db, task_id), **came}).where(TaskRow.id == task_id).execute(db)


def _metadata(db: Database, task_id: str) -> Json:
    row = TaskRow.select(TaskRow.metadata).where(TaskRow.id == task_id).dicts().get(db)
    return row["metadata"]


def by_source(db: Database, resource_id: str, source: str) -> dict[str, ImportedTask]:
    """Return the tasks imported from `source`, deleted ones too, by their id there."""
    imported = (
        TaskRow.select(TaskRow.id, TaskRow.deleted_at, TaskRow.metadata)
        .where(TaskRow.resource_id == resource_id, TaskRow.metadata != {})
        .tuples()
        .execute(db)
    )
    return {
        metadata["source_id"]: ImportedTask(task_id, deleted_at is not None, metadata["original"])
        for task_id, deleted_at, metadata in imported
        if metadata.get("source") == source
    }


# --- search -----------------------------------------------------------------------------------------------


def _index(db: Database, task: Task) -> None:
    rest = "\n".join(t for t in (task.description, task.summary or "") if t)
    search.put(db, task.id, task.title, rest)
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
