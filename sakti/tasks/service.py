"""What can be done with tasks. Every change is one transaction with an event in the log.

The functions take the open database first: they run through `Store.write` or `Store.read`. Errors are `TaskError`
with a sentence and a code.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sakti.core.errors import TaskError
from sakti.core.types import Json
from sakti.store import messages as message_store
from sakti.store import task_graph
from sakti.store import tasks as store
from sakti.store import threads as thread_store
from sakti.store.connection import Database
from sakti.store.tasks import Task
from sakti.tasks import graph as g
from sakti.tasks.queries import Board, BoardTask, board, describe, find, load, reasons

__all__ = ["Actor", "Board", "BoardTask", "board", "describe", "find", "load"]

CLAIM_MS = 60 * 60 * 1000  # a session's claim ends an hour after its last sign of life
SHELL_CLAIM_MS = 24 * CLAIM_MS  # a shell gives none
DAY_MS = 24 * 60 * 60 * 1000
FIRST_DECAY_MS, SECOND_DECAY_MS = 30 * DAY_MS, 90 * DAY_MS
STATUSES, TYPES = ("open", "in_progress", "closed"), ("bug", "feature", "task", "epic", "chore")
REASONS = ("completed", "wontfix", "duplicate")
UNDOABLE = ("create", "update", "claim", "takeover", "release", "close", "reopen", "dep", "link", "delete")
_KEPT = ("id", "resource_id", "handle", "compaction_level", "created_at")  # no undo changes these


class CycleError(TaskError):
    """An edge that would close a cycle; `path` are the ids `a, b, …, a` of the tasks on it."""

    code = "cycle"

    def __init__(self, message: str, path: Sequence[str]) -> None:
        super().__init__(message)
        self.path = tuple(path)


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, where and when. `session_id` holds claims for `lease_ms`; `thread_id` is the conversation."""

    resource_id: str
    session_id: str
    now: int
    thread_id: str | None = None
    name: str = "agent"
    lease_ms: int = CLAIM_MS


# --- changes ----------------------------------------------------------------------------------------------


def create(
    db: Database,
    actor: Actor,
    id: str,
    title: str,
    *,
    description: str = "",
    priority: int = 2,
    type: str = "task",
    labels: Sequence[str] = (),
    parent: str | None = None,
    depends_on: Sequence[str] = (),
    message_id: str | None = None,
) -> Task:
    title = clean_title(title)
    check("type", type, TYPES)
    check_priority(priority)
    if store.exists(db, id):
        raise TaskError(f"There is a task {id!r} already.", code="duplicate")
    task = Task(
        id,
        actor.resource_id,
        new_handle(db, actor.resource_id, id),
        title,
        description,
        "open",
        priority,
        type,
        None,
        None,
        None,
        None,
        actor.thread_id,
        None,
        None,
        actor.now,
        actor.now,
        None,
        labels=tuple(clean_labels(labels)),
    )
    store.insert(db, task)
    if parent:
        _connect(db, actor, task, find(db, actor.resource_id, parent), g.PARENT)
    for other in depends_on:
        _connect(db, actor, task, find(db, actor.resource_id, other), g.BLOCKS)
    if message_id and message_store.get(db, message_id) is not None:
        store.link(db, task.id, message_id, "reference", actor.now)
    store.add_event(db, task, "create", actor.name, actor.now, None, _json(task))
    return task


def update(db: Database, actor: Actor, text: str, changes: Json) -> Task:
    task = find(db, actor.resource_id, text)
    allowed = {"title", "description", "priority", "type", "assignee"}
    unknown = set(changes) - allowed - {"labels"}
    if unknown:
        raise TaskError(
            f"{', '.join(sorted(unknown))} cannot be updated; {', '.join(sorted(allowed))}, labels can.", code="invalid"
        )
    if not changes:
        raise TaskError("Nothing to update: give a field and its new value.", code="invalid")
    if "type" in changes:
        check("type", changes["type"], TYPES)
    if "priority" in changes:
        check_priority(changes["priority"])
    fields = {k: v for k, v in changes.items() if k in allowed}
    if "title" in fields:
        fields["title"] = clean_title(fields["title"])
    if "labels" in changes:
        store.set_labels(db, task.id, clean_labels(changes["labels"]))
    return _changed(db, actor, task, "update", **fields)


def claim(db: Database, actor: Actor, text: str) -> tuple[Task, str | None]:
    """Claim a task; returns it and the handle of the task that was active before, if another was."""
    task = find(db, actor.resource_id, text)
    if not store.claim(db, task.id, actor.session_id, actor.thread_id, actor.now, actor.now + actor.lease_ms):
        if task.status == "closed":
            raise TaskError(f"{task.handle} is closed; reopen it first.", code="closed")
        if why := _why_held(db, task):
            raise TaskError(f"{task.handle} is blocked by {', '.join(why)}.", code="blocked")
        raise TaskError(f"{task.handle} is already claimed by {task.session_id}.", code="already_claimed")
    previous = None
    if actor.thread_id:
        thread = thread_store.get(db, actor.thread_id)
        active = thread.metadata.get("active_task_id") if thread else None
        other = store.get(db, active) if active and active != task.id else None
        previous = other.handle if other else None
        thread_store.update_metadata(db, actor.thread_id, {"active_task_id": task.id})
    claimed = store.get(db, task.id)
    assert claimed is not None
    if task.status == "in_progress" and task.session_id == actor.session_id:
        return claimed, previous  # a renewal is no change
    action = "takeover" if task.status == "in_progress" else "claim"
    store.add_event(db, claimed, action, actor.name, actor.now, _json(task), _json(claimed))
    return claimed, previous


def claim_next(db: Database, actor: Actor) -> tuple[Task, str | None]:
    """Claim the first ready task, in one transaction: N processes get N tasks. Raises `TaskError` where none is."""
    first = store.column(db, actor.resource_id, "ready", 1)
    if not first:
        raise TaskError("Nothing is ready.", code="nothing_ready")
    return claim(db, actor, first[0].id)


def release(db: Database, actor: Actor, text: str) -> Task:
    task = find(db, actor.resource_id, text)
    if task.status != "in_progress":
        raise TaskError(f"{task.handle} is {task.status}, not in progress.", code="invalid")
    live = task.claim_expires_at is not None and task.claim_expires_at >= actor.now
    if task.session_id not in (None, actor.session_id) and live:
        raise TaskError(f"{task.handle} is claimed by {task.session_id}.", code="already_claimed")
    _clear_active(db, actor, task)
    return _changed(db, actor, task, "release", status="open", session_id=None, claimed_at=None, claim_expires_at=None)


def close(
    db: Database, actor: Actor, text: str, reason: str, summary: str, *, force: bool = False
) -> tuple[Task, tuple[Task, ...]]:
    """Close a task; returns it and the tasks that this freed, directly or through a parent.

    What was closed long ago shrinks on the way (`decay`).
    """
    task = find(db, actor.resource_id, text)
    check("reason", reason, REASONS)
    if not summary.strip():
        raise TaskError("Closing needs a summary: what was done, and in which files.", code="invalid")
    if task.status == "closed":
        raise TaskError(f"{task.handle} is closed already.", code="closed")
    if not force:
        if why := _why_held(db, task):
            raise TaskError(
                f"{task.handle} is blocked by {', '.join(why)}. Close that first, or force it.", code="blocked"
            )
        if children := task_graph.open_children(db, task.id):
            names = ", ".join(t.handle for t in store.get_many(db, children).values())
            raise TaskError(
                f"{task.handle} has open children: {names}. Close them first, or force it.", code="open_children"
            )
    _clear_active(db, actor, task)
    fields = {
        "status": "closed",
        "close_reason": reason,
        "summary": summary.strip(),
        "closed_at": actor.now,
        "session_id": None,
        "claim_expires_at": None,
    }
    closed, moved = store.update(db, task.id, **fields, updated_at=actor.now)
    store.add_event(db, closed, "close", actor.name, actor.now, _json(task), _json(closed))
    decay(db, actor.resource_id, actor.now)
    return closed, _freed(db, moved)


def finished_containers(db: Database, task_id: str) -> list[Task]:
    """The task's parents that are ready to close now."""
    return store.finished_containers(db, task_id)


def reopen(db: Database, actor: Actor, text: str) -> Task:
    task = find(db, actor.resource_id, text)
    if task.status != "closed":
        raise TaskError(f"{task.handle} is not closed.", code="invalid")
    return _changed(db, actor, task, "reopen", status="open", closed_at=None, close_reason=None, claimed_at=None)


def depend(db: Database, actor: Actor, text: str, on: str, kind: str | None = None, *, add: bool = True) -> Task:
    """Add an edge (`blocks` where no type is given), or remove one (every one between the two). An edge that is there
    already is no change."""
    task, target = find(db, actor.resource_id, text), find(db, actor.resource_id, on)
    if kind is not None:
        check("type", kind, g.EDGE_TYPES)
    if add:
        kind = kind or g.BLOCKS
        changed = [kind] if _connect(db, actor, task, target, kind) else []
    else:
        kinds = [kind] if kind else g.EDGE_TYPES
        changed = [k for k in kinds if store.remove_edge(db, task.id, target.id, k)[0]]
        if not changed:
            what = f"has no {kind} edge to" if kind else "does not depend on"
            raise TaskError(f"{task.handle} {what} {target.handle}.", code="not_found")
    for each in changed:
        store.add_event(db, task, "dep", actor.name, actor.now, None, {"on": target.id, "type": each, "add": add})
    return task


def depend_all(db: Database, actor: Actor, text: str, on: Sequence[str], kind: str | None, *, add: bool = True) -> Task:
    """The same for several targets: all of it or nothing."""
    if not on:
        raise TaskError("Say what it depends on (dependsOn).", code="invalid")
    return [depend(db, actor, text, other, kind, add=add) for other in on][-1]


def link(db: Database, actor: Actor, text: str, message_id: str) -> Task:
    task = find(db, actor.resource_id, text)
    if message_store.get(db, message_id) is None:
        raise TaskError(f"There is no message {message_id!r}.", code="not_found")
    if message_id not in {m["id"] for m in store.linked_messages(db, task.id, limit=100_000)}:
        store.link(db, task.id, message_id, "reference", actor.now)
        store.add_event(db, task, "link", actor.name, actor.now, None, {"message": message_id})
    return task


def set_labels(db: Database, actor: Actor, text: str, add: Sequence[str], remove: Sequence[str] = ()) -> Task:
    task = find(db, actor.resource_id, text)
    kept = [label for label in task.labels if label not in remove]
    return update(db, actor, task.id, {"labels": [*kept, *add]})


def delete(db: Database, actor: Actor, text: str) -> tuple[Task, tuple[Task, ...]]:
    """Take a task from the board; returns it and what that freed. The row stays: undo brings it back."""
    task = find(db, actor.resource_id, text)
    _clear_active(db, actor, task)
    _, moved = store.update(db, task.id, deleted_at=actor.now)
    store.add_event(db, task, "delete", actor.name, actor.now, _json(task), None)
    return task, _freed(db, {t: held for t, held in moved.items() if t != task.id})


def undo(db: Database, actor: Actor, count: int = 1) -> list[tuple[str, Task]]:
    """Take back the last changes of the workspace, the newest first; returns what was undone (action, task)."""
    events = store.last_events(db, actor.resource_id, UNDOABLE, count)
    if not events:
        raise TaskError("There is nothing to undo.", code="nothing_to_undo")
    out: list[tuple[str, Task]] = []
    for event in events:
        task = _undo_one(db, actor, event)
        store.mark_undone(db, event.pk, actor.now)
        store.add_event(db, task, "undo", actor.name, actor.now, None, {"event": event.pk, "action": event.action})
        out.append((event.action, task))
    return out


def _undo_one(db: Database, actor: Actor, event: store.TaskEvent) -> Task:
    values, task_id = event.after or {}, event.task_id
    match event.action:
        case "create":
            return store.update(db, task_id, deleted_at=actor.now)[0]
        case "delete":
            return _bring_back(db, task_id)
        case "dep" if values["add"]:
            store.remove_edge(db, task_id, values["on"], values["type"])
        case "dep":
            _refuse_cycle(db, task_id, values["on"], values["type"])
            store.add_edge(db, task_id, values["on"], values["type"], actor.now)
        case "link":
            store.unlink(db, task_id, values["message"])
        case _:
            before = dict(event.before or {})
            labels = before.pop("labels", None)
            if labels is not None:
                store.set_labels(db, task_id, labels)
            store.unshrink(db, task_id, actor.now)
            return store.update(db, task_id, **{k: v for k, v in before.items() if k not in _KEPT})[0]
    task = store.get(db, task_id)
    assert task is not None
    return task


def decay(db: Database, resource_id: str, now: int, limit: int = 50) -> int:
    """Show less of what was closed long ago: after 30 days the beginning of the description, after 90 days only the
    beginning of the summary. Everything is kept, found by search, and brought back by `restore`. Returns how many."""
    due = store.due_to_shrink(db, resource_id, now - FIRST_DECAY_MS, now - SECOND_DECAY_MS, limit)
    for task in due:
        archived = (task.closed_at or 0) < now - SECOND_DECAY_MS
        description = "" if archived else _beginning(task.description, 200)
        summary = _beginning(task.summary or "", 160 if archived else 600)
        store.shrink(db, task, 2 if archived else 1, description, summary, now)
    return len(due)


def restore(db: Database, actor: Actor, text: str) -> Task:
    """Bring back a deleted task, or the whole text of one that was shrunk."""
    try:
        task = find(db, actor.resource_id, text)
    except TaskError:
        task = find(db, actor.resource_id, text, deleted=True)
        store.add_event(db, task, "restore", actor.name, actor.now, None, None)
        return _bring_back(db, task.id)
    if not store.unshrink(db, task.id, actor.now):
        raise TaskError(f"{task.handle} shows everything it has.", code="invalid")
    store.add_event(db, task, "restore", actor.name, actor.now, None, None)
    whole = store.get(db, task.id)
    assert whole is not None
    return whole


# --- helpers ----------------------------------------------------------------------------------------------


def _why_held(db: Database, task: Task) -> tuple[str, ...]:
    held, _ = store.state(db, task.id)
    return reasons(db, [task.id])[task.id] if held else ()


def _changed(db: Database, actor: Actor, task: Task, action: str, **changes: Any) -> Task:
    store.unshrink(db, task.id, actor.now)
    now, _ = store.update(db, task.id, **changes, updated_at=actor.now)
    store.add_event(db, now, action, actor.name, actor.now, _json(task), _json(now))
    return now


def _bring_back(db: Database, task_id: str) -> Task:
    """Undelete. What was connected while it was gone may close a cycle with its own edges: that is refused."""
    task, _ = store.update(db, task_id, deleted_at=None)
    for waiting, on, kind in store.edges_of(db, task_id):
        if waiting == task_id:
            _refuse_cycle(db, task_id, on, kind)
    return task


def _refuse_cycle(db: Database, task_id: str, on: str, kind: str) -> None:
    if kind in (g.BLOCKS, g.PARENT) and (cycle := task_graph.find_cycle(db, task_id, on)):
        names = store.get_many(db, set(cycle))
        raise CycleError(f"That would be a cycle: {' → '.join(names[t].handle for t in cycle)}.", cycle)


def _connect(db: Database, actor: Actor, task: Task, target: Task, kind: str) -> bool:
    _refuse_cycle(db, task.id, target.id, kind)
    if task.id == target.id:
        raise CycleError(f"{task.handle} cannot be connected to itself.", (task.id, task.id))
    return store.add_edge(db, task.id, target.id, kind, actor.now)


def _freed(db: Database, moved: dict[str, bool]) -> tuple[Task, ...]:
    found = store.get_many(db, sorted(t for t, held in moved.items() if not held))
    return tuple(t for t in found.values() if t.status != "closed")


def _beginning(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def clean_labels(values: Sequence[Any]) -> list[str]:
    """Each once, on one line, sorted."""
    return sorted({label for v in values if (label := " ".join(str(v).split())[:60])})


def _clear_active(db: Database, actor: Actor, task: Task) -> None:
    for thread_id in {actor.thread_id, task.thread_id} - {None}:
        thread = thread_store.get(db, str(thread_id))
        if thread and thread.metadata.get("active_task_id") == task.id:
            thread_store.update_metadata(db, thread.id, {"active_task_id": None})


def new_handle(db: Database, resource_id: str, seed: str) -> str:
    """Three or more easy characters, unique in the workspace."""
    source = random.Random(seed)
    for length in range(3, 12):
        for _ in range(4):
            handle = "t" + "".join(source.choice("23456789abcdefghjkmnpqrstuvwxyz") for _ in range(length))
            if not store.has_handle(db, resource_id, handle):
                return handle
    raise TaskError("No free handle was found.", code="invalid")


def clean_title(value: Any) -> str:
    """One line of 1 to 500 characters. Raises `TaskError`."""
    title = " ".join(str(value or "").split())
    if not title:
        raise TaskError("A task needs a title.", code="empty_title")
    if len(title) > 500:
        raise TaskError(f"The title has {len(title)} characters; at most 500.", code="title_too_long")
    return title


def check_priority(priority: Any) -> None:
    """Raises `TaskError` for what is not 0 to 4."""
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= 4:
        raise TaskError(f"Priority {priority} is not 0 (most urgent) to 4.", code="bad_priority")


def check(name: str, value: Any, allowed: Sequence[str]) -> None:
    """Raises `TaskError` for a value that is not one of those allowed."""
    if value not in allowed:
        raise TaskError(f"{name} must be one of {', '.join(allowed)}, not {value!r}.", code=f"bad_{name}")


def _json(task: Task) -> Json:
    return dataclasses.asdict(task)
