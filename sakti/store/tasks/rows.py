"""Write the rows of tasks: labels, search entries, edges, links to messages, claims, change log.

The holder of a claim is a thread, a shell's actor or the user (`session_id`). A thread's claim also has an owner, the
process that runs the thread: when that process ends, others may claim the task at once; if nobody does, the thread
still has it when it is opened again. A claim without an owner, or of another machine, lasts until its lease ends.

Raw SQL: a list of ids as one parameter, JSON in the log of changes, and `find_active_task`, which runs with every
message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from peewee import SQL, Case, fn

from sakti.core.types import Json
from sakti.store import files, rows
from sakti.store.connection import Connection, Database
from sakti.store.models import MessageRow, TaskEdgeRow, TaskEventRow, TaskLabelRow, TaskMessageRow, TaskRow
from sakti.store.rows import insert_new
from sakti.store.search import index as search_index
from sakti.store.tasks import graph, questions
from sakti.store.tasks.questions import STORED, Task

_GRAPH = {"status", "deleted_at"}  # columns that the readiness of other tasks depends on
_SEARCHED = {"title", "description", "summary", "deleted_at"}

SOURCE_KEYS = ("source", "source_id", "original")  # keys of the metadata that belong to the import
CLOSED, IN_PROGRESS, OPEN = "closed", "in_progress", "open"


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
        ((resource_id,),) = rows.select(db, TaskRow, ("resource_id",), id=task_id)
        (task,) = questions.find_matching(db, resource_id, task_id, deleted=True)
    return task


def delete_many(db: Database, resource_id: str, task_ids: Sequence[str], now: int) -> None:
    """Delete many tasks of a workspace at once."""
    # SQL: one statement for all ids, which are one parameter
    db.execute_sql(
        "UPDATE tasks SET deleted_at = ? WHERE id IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL",
        (now, json.dumps(list(task_ids))),
    )
    for task_id in task_ids:
        search_index.remove(db, "task", task_id)
    graph.refresh_all(db, resource_id)


def find_resource(db: Database, task_id: str) -> str | None:
    """Return the workspace of a task, None if it does not exist."""
    return TaskRow.select(TaskRow.resource_id).where(TaskRow.id == task_id).scalar(db)


def set_labels(db: Database, task_id: str, labels: Sequence[str]) -> None:
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


# --- imported tasks ---------------------------------------------------------------------------------------


class ImportedTask(Struct, frozen=True):
    """Task imported from another program, with its `original`."""

    task_id: str
    deleted: bool
    original: Json


def set_metadata(db: Database, task_id: str, metadata: Json) -> None:
    """Replace a task's metadata, except for the source kept by an import."""
    original = {k: v for k, v in _load_metadata(db, task_id).items() if k == "original"}
    TaskRow.update(metadata={**original, **metadata}).where(TaskRow.id == task_id).execute(db)


def set_source(db: Database, task_id: str, source: str, name: str, original: Json) -> None:
    """Store a task's source: the program, its id there, and the original."""
    source_metadata = {"source": source, "source_id": name, "original": original}
    TaskRow.update(metadata={**_load_metadata(db, task_id), **source_metadata}).where(TaskRow.id == task_id).execute(db)


def _load_metadata(db: Database, task_id: str) -> Json:
    row = TaskRow.select(TaskRow.metadata).where(TaskRow.id == task_id).dicts().get(db)
    return row["metadata"]


def map_by_source(db: Database, resource_id: str, source: str) -> dict[str, ImportedTask]:
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
    questions.index_task(db, task.id, task.title, rest)
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


def add_edge(db: Database, task_id: str, depends_on: str, kind: str, now: int, *, count: bool = True) -> bool:
    """Add an edge; False if it exists. Without `count` the caller runs `graph.refresh` afterwards."""
    edge = {"task_id": task_id, "depends_on": depends_on, "type": kind}
    is_new = insert_new(db, TaskEdgeRow, **edge, created_at=now)
    if is_new and count:
        graph.refresh(db, (task_id, depends_on))
    return is_new


def remove_edge(
    db: Database, task_id: str, depends_on: str, kind: str, *, count: bool = True
) -> tuple[bool, dict[str, bool]]:
    """Remove an edge; return whether it existed, and the tasks held or freed by that."""
    edge = (TaskEdgeRow.task_id == task_id) & (TaskEdgeRow.depends_on == depends_on) & (TaskEdgeRow.type == kind)
    removed = TaskEdgeRow.delete().where(edge).execute(db) == 1
    return removed, graph.refresh(db, (task_id, depends_on)) if removed and count else {}


def add_link(db: Database, task_id: str, message_id: str, relation: str, now: int) -> bool:
    """Link a message (relation: output or reference); False if it was linked."""
    link = {"task_id": task_id, "message_id": message_id, "relation": relation}
    return insert_new(db, TaskMessageRow, **link, created_at=now)


def remove_link(db: Database, task_id: str, message_id: str) -> bool:
    """Unlink a message; False if it was not linked."""
    link = (TaskMessageRow.task_id == task_id) & (TaskMessageRow.message_id == message_id)
    return TaskMessageRow.delete().where(link).execute(db) == 1


def list_linked_messages(db: Database, task_id: str, limit: int = 500) -> list[str]:
    """Return the ids of the messages linked to a task, oldest first.

    Each tool call comes with its results, even if those are not linked.
    """
    message, result = MessageRow, MessageRow.alias()
    linked = (TaskMessageRow.message_id == message.id) & (TaskMessageRow.task_id == task_id)
    follows = (result.thread_id == message.thread_id) & (result.message_index == message.message_index + 1)
    linked_messages = TaskMessageRow.select(message.id, message.created_at, message.message_index).join(
        message, on=linked
    )
    results = (
        TaskMessageRow.select(result.id, result.created_at, result.message_index)
        .join(message, on=linked)
        .join(result, on=follows)
        .where(message.role == "assistant", result.role == "tool")
    )
    both = (linked_messages | results).order_by(SQL("2"), SQL("3")).limit(limit)
    return [row[0] for row in both.tuples().execute(db)]


def is_claim_live(task: Task, now: int) -> bool:
    """Return whether the claim's lease and its owner, if any, are alive."""
    if task.status != IN_PROGRESS or task.session_id is None:
        return False
    if task.claim_expires_at is None or task.claim_expires_at < now:
        return False
    return task.claim_owner is None or files.is_owner_running(task.claim_owner)


def claim(
    db: Database, task: Task, holder: str, owner: str | None, thread_id: str | None, now: int, expires: int
) -> bool:
    """Claim by one conditional UPDATE; return whether the holder has the task afterwards."""
    row = TaskRow
    is_holder = (row.session_id == holder) & (row.status == IN_PROGRESS)
    is_free = row.session_id.is_null() | (row.session_id == holder) | (row.status == OPEN)
    is_free |= row.claim_expires_at.is_null() | (row.claim_expires_at < now)
    if task.claim_owner is not None and not files.is_owner_running(task.claim_owner):
        is_free |= row.claim_owner == task.claim_owner
    claimed = (
        row.update(
            status=IN_PROGRESS,
            session_id=holder,
            claim_owner=owner,
            thread_id=fn.COALESCE(thread_id, row.thread_id),
            claimed_at=Case(None, [(is_holder, row.claimed_at)], now),
            claim_expires_at=expires,
            updated_at=now,
        )
        .where(row.id == task.id, row.deleted_at.is_null(), row.status != CLOSED, row.held == 0, is_free)
        .execute(db)
    )
    return claimed == 1


def find_active_task(db: Database, thread_id: str, holder: str, owner: str | None = None) -> str | None:
    """Return the thread's active task: claimed by this holder and in progress; else None.

    It runs with every message, so it is one statement in SQL. A new process of the thread becomes the claim's owner.
    """
    # SQL: reads JSON inside a column
    row = db.execute_sql(
        "SELECT t.id, t.claim_owner FROM threads th CROSS JOIN tasks t"
        " ON t.id = json_extract(th.metadata, '$.active_task_id') WHERE th.id = ? AND t.status = 'in_progress'"
        " AND t.session_id = ? AND t.deleted_at IS NULL",
        (thread_id, holder),
    ).fetchone()
    if row is None:
        return None
    task_id, before = row
    if owner is not None and owner != before:
        TaskRow.update(claim_owner=owner).where(TaskRow.id == task_id).execute(db)
    return task_id


def find_latest_task(db: Database, resource_id: str, holder: str) -> str | None:
    """Return the task that the holder claimed last and still has in progress."""
    mine = (TaskRow.resource_id == resource_id) & (TaskRow.session_id == holder)
    mine &= (TaskRow.status == IN_PROGRESS) & TaskRow.deleted_at.is_null()
    query = TaskRow.select(TaskRow.id).where(mine).order_by(TaskRow.claimed_at.desc(), TaskRow.pk.desc())
    row = query.limit(1).tuples().get_or_none(db)
    return None if row is None else row[0]


def find_orphaned_tasks(db: Database, resource_id: str, holder: str) -> list[str]:
    """Return the tasks held by a thread whose process has ended."""
    mine = (TaskRow.resource_id == resource_id) & (TaskRow.session_id == holder)
    mine &= (TaskRow.status == IN_PROGRESS) & TaskRow.claim_owner.is_null(False)
    claimed = TaskRow.select(TaskRow.id, TaskRow.claim_owner).where(mine).tuples().execute(db)
    return [task_id for task_id, owner in claimed if not files.is_owner_running(owner)]


def adopt_claims(db: Database, resource_id: str, holder: str, owner: str) -> None:
    """Make a process the owner of a thread's claims that no other process owns."""
    for task_id in find_orphaned_tasks(db, resource_id, holder):
        TaskRow.update(claim_owner=owner).where(TaskRow.id == task_id).execute(db)


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


def add_event(
    db: Database,
    task: Task,
    action: str,
    actor: str,
    now: int,
    values: tuple[Json | None, Json | None] = (None, None),
    *,
    batch: str | None = None,
) -> None:
    """Log a change; `values`: the changed fields before and after."""
    before, after = values
    change: dict[str, Any] = {"before": before, "after": after, "created_at": now, "batch": batch}
    who = {"task_id": task.id, "resource_id": task.resource_id, "action": action, "actor": actor}
    rows.insert(db, TaskEventRow, **who, **change)


def list_newest_events(db: Database, resource_id: str, actions: Iterable[str], limit: int) -> list[TaskEvent]:
    """Return the newest events of these actions that were not undone, newest first."""
    events = _select_events(TaskEventRow.resource_id == resource_id, TaskEventRow.action.in_(list(actions)))
    return [TaskEvent(*row) for row in events.limit(limit).execute(db)]


def list_events_of_batch(db: Database, batch: str) -> list[TaskEvent]:
    """Return the events of one command that were not undone, newest first."""
    return [TaskEvent(*row) for row in _select_events(TaskEventRow.batch == batch).execute(db)]


def _select_events(*where: Any) -> Any:
    row = TaskEventRow
    columns = (row.pk, row.task_id, row.action, row.actor, row.before, row.after, row.created_at, row.batch)
    return row.select(*columns).where(*where, row.undone_at.is_null()).order_by(row.pk.desc()).tuples()


def map_versions(db: Connection, resource_id: str) -> dict[str, int]:
    """Map tasks to the `updated_at` of the last imported version."""
    # SQL: reads JSON inside a column
    rows = db.execute_sql(
        "SELECT task_id, json_extract(after, '$.version') FROM task_events WHERE resource_id = ? AND batch IS NOT NULL"
        " AND undone_at IS NULL AND json_extract(after, '$.version') IS NOT NULL ORDER BY pk",
        (resource_id,),
    )
    return dict(rows.fetchall())


def is_imported(db: Database, task_id: str) -> bool:
    """Return whether the last change of a task was an import."""
    last = _select_events(TaskEventRow.task_id == task_id, TaskEventRow.action != "link").limit(1).execute(db)
    return any(e.action == "import" or "version" in (e.after or {}) for e in (TaskEvent(*row) for row in last))


def mark_events_undone(db: Database, event: TaskEvent, now: int) -> None:
    """Mark an event, and those of its batch, as undone."""
    same = TaskEventRow.pk == event.pk if event.batch is None else TaskEventRow.batch == event.batch
    TaskEventRow.update(undone_at=now).where(same).execute(db)
