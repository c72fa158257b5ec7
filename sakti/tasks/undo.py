"""Undo changes, newest first, from the log: only the fields that a change touched."""

from __future__ import annotations

from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.tasks import questions, rows
from sakti.store.tasks.questions import Task
from sakti.store.tasks.rows import TaskEvent
from sakti.tasks.changes import Actor, refuse_cycle, refuse_open_parts, undelete

UNDOABLE = ("create", "update", "claim", "takeover", "release", "close", "reopen", "dep", "link", "delete", "restore",
            "import")  # fmt: skip
_KEPT = ("id", "resource_id", "handle", "created_at", "updated_at", "holder_title", "compaction_level")


def undo(db: Database, actor: Actor, count: int = 1) -> list[tuple[str, Task]]:
    """Undo the last `count` changes of the workspace; return them as (action, task).

    An import is one change, and so is an epic closed with its parts. A change with no effect any more (the deletion of
    a task that was restored since) is passed over. Raises `TaskError`: nothing_to_undo, or what the previous state
    would break.
    """
    out: list[tuple[str, Task]] = []
    while count and (newest := rows.newest_events(db, actor.resource_id, UNDOABLE, 1)):
        event = newest[0]
        done = _take_back(db, actor, event)
        rows.mark_events_undone(db, event, actor.now)
        if done:
            details: Json = {"event": event.pk, "action": event.action, "tasks": len(done)}
            rows.add_event(db, done[0][1], "undo", actor.name, actor.now, None, details)
            out += done
            count -= 1
    if not out:
        raise TaskError("There is nothing to undo.", code="nothing_to_undo")
    return out


def _take_back(db: Database, actor: Actor, event: TaskEvent) -> list[tuple[str, Task]]:
    group = [event] if event.batch is None else rows.events_of_batch(db, event.batch)
    imported = [e.task_id for e in group if e.action == "import" and event.batch is not None]
    action = event.action if event.batch is None or event.action == "close" else "import"
    changed = [e for e in group if e.batch is None or e.action != "import"]
    done = [(action, task) for e in changed if (task := _one(db, actor, e)) is not None]
    added = questions.get_many(db, imported)
    rows.delete_many(db, actor.resource_id, list(added), actor.now)
    refuse_open_parts(db, actor.resource_id, [task.id for _, task in done])
    return done + [("import", task) for task in added.values()]


def _one(db: Database, actor: Actor, event: TaskEvent) -> Task | None:
    """Undo one change; None if nothing changes."""
    values, task_id = event.after or {}, event.task_id
    task = questions.get(db, task_id)
    match event.action:
        case "delete":
            return undelete(db, task_id) if task is None else None
        case _ if task is None:
            return None  # it was deleted since, and not by a change that could be undone first
        case "create" | "import":
            return rows.update(db, task_id, deleted_at=actor.now)[0]
        case "restore":
            return _undo_restore(db, actor, task, event.before or {})
        case "dep":
            return _undo_edge(db, actor, task, values)
        case "link":
            return task if rows.remove_link(db, task_id, values["message"]) else None
        case _:
            return _fields(db, actor, task, event.before or {}, values)


def _undo_edge(db: Database, actor: Actor, task: Task, values: Json) -> Task | None:
    """Remove an added edge, or add a removed one again."""
    on, kind = values["on"], values["type"]
    if values["add"]:
        return task if rows.remove_edge(db, task.id, on, kind)[0] else None
    if not questions.exists(db, on):
        return None  # it was removed for good
    if questions.get(db, on) is not None:
        refuse_cycle(db, task.id, on, kind)
    return task if rows.add_edge(db, task.id, on, kind, actor.now) else None


def _undo_restore(db: Database, actor: Actor, task: Task, before: Json) -> Task | None:
    """Undo the restoring of a deleted task or of a shrunk one's text."""
    if before.get("deleted"):
        return rows.update(db, task.id, deleted_at=actor.now)[0]
    if "compaction_level" not in before or task.compaction_level:
        return None
    text, summary = before.get("description", task.description), before.get("summary", task.summary)
    rows.shrink(db, task, before["compaction_level"], text, summary, actor.now)
    return questions.get(db, task.id)


def _fields(db: Database, actor: Actor, task: Task, before: Json, after: Json) -> Task | None:
    """Put back the fields that a change touched; changes made to other fields since stay."""
    changes = {k: v for k, v in before.items() if k not in _KEPT and (k not in after or after[k] != v)}
    labels, metadata = changes.pop("labels", None), changes.pop("metadata", None)
    if labels is None and metadata is None and not changes:
        return None
    if labels is not None:
        rows.set_labels(db, task.id, labels)
    if metadata is not None:
        rows.set_metadata(db, task.id, metadata)
    rows.unshrink(db, task.id, actor.now)
    return rows.update(db, task.id, **changes, updated_at=actor.now)[0]
