"""Change tasks. Every change is one transaction with an event in the log.

The functions take the open database first: call them through `Store.write` or `Store.read`. Errors are `TaskError`
with a sentence and a code. A task claimed by another holder is changed only with `force`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.core.text import quote
from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.tasks import graph as store_graph
from sakti.store.tasks import questions, rows
from sakti.store.tasks.deadlocks import BLOCKS, EDGE_TYPES, PARENT
from sakti.store.tasks.questions import Task
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads as thread_store
from sakti.tasks.changes import (
    CLAIM_MS,
    NO_CLAIM,
    REASONS,
    REOPENED,
    SHELL_CLAIM_MS,
    TYPES,
    UPDATABLE,
    Actor,
    CycleError,
    apply_change,
    check_choice,
    check_claim,
    check_priority,
    check_text,
    clean_labels,
    clean_title,
    connect,
    find_difference,
    list_freed,
    log,
    make_handle,
    merge_metadata,
    refuse_closed_parent,
    refuse_new_epic_in_task,
    refuse_open_parts,
    undelete,
    undo_changes,
)
from sakti.tasks.describe import describe, describe_blockers, find, name_holder
from sakti.tasks.queries import Board, BoardTask, list_startable, load_board

__all__ = [
    "CLAIM_MS",
    "SHELL_CLAIM_MS",
    "Actor",
    "Board",
    "BoardTask",
    "CycleError",
    "describe",
    "find",
    "load_board",
    "undo_changes",
]  # fmt: skip

DAY_MS = 24 * 60 * 60 * 1000
FIRST_DECAY_MS, SECOND_DECAY_MS = 30 * DAY_MS, 90 * DAY_MS
DECAY_AT_ONCE = 10  # most old tasks shrunk after a close, since its caller waits


# --- fields -----------------------------------------------------------------------------------------------


class NewTask(Struct, frozen=True):
    """Fields and edges of a task to create.

    `message_id` is the user's message that led to it, or the answer whose tool call creates it.
    """

    id: str
    title: str
    description: str = ""
    priority: int = 2
    type: str = "task"
    labels: Sequence[str] = ()
    assignee: str | None = None
    metadata: Mapping[str, Any] | None = None
    parent: str | None = None
    depends_on: Sequence[str] = ()
    message_id: str | None = None

    def check(self) -> None:
        """Raise `TaskError` if a field has no valid value."""
        check_text("description", self.description)
        check_text("assignee", self.assignee)
        check_choice("type", self.type, TYPES)
        check_priority(self.priority)


def create(db: Database, actor: Actor, new: NewTask) -> Task:
    """Create a task with its edges and link it to the user's message that led to it."""
    new.check()
    title = clean_title(new.title)
    if questions.exists(db, new.id):
        raise TaskError(f"A task {quote(new.id)} already exists.", code="duplicate")
    task = Task(
        id=new.id,
        resource_id=actor.resource_id,
        handle=make_handle(db, actor.resource_id, new.id),
        title=title,
        description=new.description,
        priority=new.priority,
        type=new.type,
        assignee=new.assignee or None,
        thread_id=actor.thread_id,
        created_at=actor.now,
        updated_at=actor.now,
        labels=tuple(clean_labels(new.labels)),
        metadata=merge_metadata({}, dict(new.metadata or {})),
    )
    others = [(new.parent, PARENT)] if new.parent else []
    others += [(other, BLOCKS) for other in new.depends_on]
    targets = [(find(db, actor.resource_id, text), kind) for text, kind in others]  # the new task is not one of them
    rows.insert(db, task)
    _connect_new(db, actor, task, targets)
    if origin := _find_origin(db, new.message_id):
        rows.add_link(db, task.id, origin, "reference", actor.now)
    rows.add_event(db, task, "create", actor.name, actor.now, (None, {"title": title}))
    return task


def _connect_new(db: Database, actor: Actor, task: Task, targets: Sequence[tuple[Task, str]]) -> None:
    for target, kind in targets:
        if kind == PARENT:
            refuse_closed_parent(target)
            if task.type == "epic":
                refuse_new_epic_in_task(target)
        connect(db, actor, task, target, kind, count=False)
    if targets:
        store_graph.refresh(db, [task.id, *(target.id for target, _ in targets)])


def _find_origin(db: Database, message_id: str | None) -> str | None:
    """Return the user's message that a message answers, or the message itself."""
    message = message_store.get(db, message_id) if message_id else None
    if message is None or message.role == "user":
        return message.id if message is not None else None
    question = message_store.get_last_of_user(db, message.thread_id)
    return question.id if question is not None else message.id


def update(db: Database, actor: Actor, text: str, changes: Json, *, force: bool = False) -> Task:
    """Change fields of a task: title, description, priority, type, assignee, labels; metadata is merged."""
    task = find(db, actor.resource_id, text)
    if unknown := sorted(set(changes) - set(UPDATABLE)):
        raise TaskError(f"{', '.join(unknown)} cannot be updated; {', '.join(UPDATABLE)} can.", code="invalid")
    if not changes:
        raise TaskError("Nothing to update: give a field and its new value.", code="invalid")
    check_claim(actor, task, "change", force=force)
    fields = _clean_fields({k: v for k, v in changes.items() if k not in ("labels", "metadata")})
    if "type" in fields:
        _check_epics(db, task, fields["type"])
    if "labels" in changes:
        rows.set_labels(db, task.id, clean_labels(changes["labels"]))
    if "metadata" in changes:
        rows.set_metadata(db, task.id, merge_metadata(task.metadata, changes["metadata"]))
    after = apply_change(db, actor, task, "update", **fields)
    if "type" in fields:
        refuse_open_parts(db, actor.resource_id, [task.id])
    return after


def _clean_fields(fields: Json) -> Json:
    """Return checked values of a task's columns. Raises `TaskError`."""
    check_text("description", fields.get("description"))
    check_text("assignee", fields.get("assignee"))
    if "title" in fields:
        fields["title"] = clean_title(fields["title"])
    if "priority" in fields:
        check_priority(fields["priority"])
    if "assignee" in fields:
        fields["assignee"] = fields["assignee"] or None
    if "type" in fields:
        check_choice("type", fields["type"], TYPES)
    return fields


def _check_epics(db: Database, task: Task, type: str) -> None:
    """Refuse a type change that would make an epic the child of another kind of task."""
    parts = [(a, b) for a, b, kind in store_graph.list_edges_of(db, task.id) if kind == PARENT]
    others = questions.get_many(db, {t for pair in parts for t in pair} - {task.id})
    for child, parent in parts:
        kinds = {t: o.type for t, o in others.items()} | {task.id: type}
        if kinds[child] == "epic" and kinds[parent] != "epic":
            epic, part = (task, others[child]) if parent == task.id else (others[parent], task)
            raise TaskError(
                f"{task.handle} cannot become {type}: {part.handle}, a part of {epic.handle}, would be an epic in a"
                f" {kinds[parent]}. `dep {part.handle} {epic.handle} --type {PARENT} --remove` takes it out first.",
                code="bad_parent",
            )


def set_labels(
    db: Database, actor: Actor, text: str, add: Sequence[str], remove: Sequence[str] = (), *, force: bool = False
) -> Task:
    """Add labels to a task and remove others."""
    task = find(db, actor.resource_id, text)
    remaining = [label for label in task.labels if label not in remove]
    return update(db, actor, task.id, {"labels": [*remaining, *add]}, force=force)


# --- claims -----------------------------------------------------------------------------------------------


def claim(db: Database, actor: Actor, text: str) -> tuple[Task, str | None]:
    """Claim a task; return it and the handle of a different task that was active before."""
    task = find(db, actor.resource_id, text)
    expires = actor.now + actor.lease_ms
    if not rows.claim(db, task, actor.session_id, actor.owner, actor.thread_id, actor.now, expires):
        if task.status == "closed":
            raise TaskError(f"{task.handle} is closed; `reopen {task.handle}` opens it first.", code="closed")
        if why := _list_blockers(db, task):
            raise TaskError(f"{task.handle} is blocked by {', '.join(why)}.", code="blocked")
        raise TaskError(f"{task.handle} is already claimed by {name_holder(task)}.", code="already_claimed")
    previous = _make_active(db, actor, task)
    claimed = questions.get(db, task.id)
    assert claimed is not None
    if task.status == "in_progress" and task.session_id == actor.session_id:
        return claimed, previous  # a renewal does not count as a change
    log(db, actor, task, claimed, "takeover" if task.status == "in_progress" else "claim")
    return claimed, previous


def _make_active(db: Database, actor: Actor, task: Task) -> str | None:
    """Make a task the thread's active one; return the handle of the previous one if it is still claimed."""
    thread = thread_store.get(db, actor.thread_id) if actor.thread_id else None
    if thread is None:
        return None
    before = str(thread.metadata.get("active_task_id") or "")
    thread_store.update_metadata(db, thread.id, {"active_task_id": task.id})
    other = questions.get(db, before) if before and before != task.id else None
    is_claimed = other is not None and other.status == "in_progress" and other.session_id == actor.session_id
    return other.handle if other is not None and is_claimed else None


def claim_next(db: Database, actor: Actor) -> tuple[Task, str | None]:
    """Claim the first ready task in one transaction: N processes get N tasks. Raises TaskError."""
    first = list_startable(db, actor.resource_id, 1)
    if not first:
        raise TaskError("Nothing is ready.", code="nothing_ready")
    return claim(db, actor, first[0].id)


def release(db: Database, actor: Actor, text: str, *, force: bool = False) -> Task:
    """Release a task; the thread's previous claim that is still in progress becomes active."""
    task = find(db, actor.resource_id, text)
    if task.status != "in_progress":
        raise TaskError(f"{task.handle} is {task.status}, not in progress.", code="invalid")
    check_claim(actor, task, "release", force=force)
    released = apply_change(db, actor, task, "release", status="open", **NO_CLAIM)
    before = rows.find_latest_task(db, actor.resource_id, task.session_id) if task.session_id else None
    _end_work(db, actor, task, before)
    return released


def get_active_task(db: Database, thread_id: str, session_id: str) -> Task | None:
    task_id = rows.find_active_task(db, thread_id, session_id)
    return None if task_id is None else questions.get(db, task_id)


def _end_work(db: Database, actor: Actor, task: Task, following: str | None = None) -> None:
    """End the work on a task in the threads where it was active; `following` becomes active there."""
    for thread_id in {actor.thread_id, task.thread_id, task.session_id} - {None}:
        thread = thread_store.get(db, str(thread_id))
        if thread and thread.metadata.get("active_task_id") == task.id:
            thread_store.update_metadata(db, thread.id, {"active_task_id": following})


# --- closing and reopening --------------------------------------------------------------------------------


def close(
    db: Database, actor: Actor, text: str, reason: str, summary: str, *, force: bool = False
) -> tuple[Task, tuple[Task, ...]]:
    """Close a task; return it and the tasks that this unblocked, directly or through a parent.

    With `force` an epic's open parts are closed with it. A few tasks that were closed long ago are shrunk as well
    (`decay`).
    """
    task = find(db, actor.resource_id, text)
    check_choice("reason", reason, REASONS)
    check_text("summary", summary)
    if not summary.strip():
        raise TaskError("Closing needs a summary: what was done, and in which files.", code="invalid")
    if task.status == "closed":
        raise TaskError(f"{task.handle} is already closed.", code="closed")
    if not force:
        _refuse_open_children(db, task)
    check_claim(actor, task, "close", force=force)
    parts = _list_open_parts(db, task) if task.type == "epic" else []
    batch = uuid.uuid4().hex if parts else None
    with_it = f"Closed with {task.handle}: {summary.strip()}"
    moved: dict[str, bool] = {}
    for part in parts:
        moved |= _close_one(db, actor, part, reason, with_it, batch)[1]
    closed, freeing = _close_one(db, actor, task, reason, summary.strip(), batch)
    decay(db, actor.resource_id, actor.now, limit=DECAY_AT_ONCE)
    return closed, list_freed(db, moved | freeing)


def _list_open_parts(db: Database, task: Task) -> list[Task]:
    """Return the open parts of a task, direct and indirect, the innermost first."""
    ids: dict[str, None] = {}
    level = [task.id]
    while level := list(chain.from_iterable(store_graph.list_open_children(db, level).values())):
        ids |= dict.fromkeys(level)
    parts = questions.get_many(db, ids)
    return [parts[i] for i in reversed(ids)]


def _close_one(
    db: Database, actor: Actor, task: Task, reason: str, summary: str, batch: str | None
) -> tuple[Task, dict[str, bool]]:
    """Close a task and log it; return it, and the tasks whose state changed."""
    _end_work(db, actor, task)
    ended = {"status": "closed", "close_reason": reason, "summary": summary, "closed_at": actor.now}
    unclaimed = NO_CLAIM | {"claimed_at": task.claimed_at}
    closed, moved = rows.update(db, task.id, **ended, **unclaimed, updated_at=actor.now)
    log(db, actor, task, closed, "close", batch=batch)
    return closed, moved


def _refuse_open_children(db: Database, task: Task) -> None:
    if why := _list_blockers(db, task):
        raise TaskError(f"{task.handle} is blocked by {', '.join(why)}. Close that first, or force it.", code="blocked")
    if children := store_graph.list_open_children(db, [task.id]).get(task.id):
        handles = questions.map_handles(db, children[:20])
        names = ", ".join(handles[c] for c in children[:20]) + (", …" if len(children) > 20 else "")
        forced = "to close them with it" if task.type == "epic" else "it"
        raise TaskError(
            f"{task.handle} has open children: {names}. Close them first, or force {forced}.", code="open_children"
        )


def list_finished_containers(db: Database, task_id: str) -> list[Task]:
    """Return the task's parents that are ready to close now."""
    return list(questions.get_many(db, store_graph.find_finished_containers(db, task_id)).values())


def reopen(db: Database, actor: Actor, text: str) -> Task:
    """Reopen a closed task; its summary and reason are cleared (the log keeps them).

    Raises `TaskError` (invalid; closed: it is part of a closed epic).
    """
    task = find(db, actor.resource_id, text)
    if task.status != "closed":
        raise TaskError(f"{task.handle} is not closed.", code="invalid")
    parents = [on for child, on, kind in store_graph.list_edges_of(db, task.id) if kind == PARENT and child == task.id]
    for parent in questions.get_many(db, parents).values():
        refuse_closed_parent(parent)
    return apply_change(db, actor, task, "reopen", **REOPENED)


# --- edges and links --------------------------------------------------------------------------------------


def depend(
    db: Database,
    actor: Actor,
    text: str,
    on: str,
    kind: str | None = None,
    *,
    add: bool = True,
    force: bool = False,
) -> Task:
    """Add an edge (default `blocks`), or remove one (without a type: all between the two tasks).

    Adding an existing edge changes nothing.
    """
    task, target = find(db, actor.resource_id, text), find(db, actor.resource_id, on)
    if kind is not None:
        check_choice("type", kind, EDGE_TYPES)
    check_claim(actor, task, "change", force=force)
    if add:
        kind = kind or BLOCKS
        done = [kind] if connect(db, actor, task, target, kind) else []
    else:
        done = _remove_edges(db, task, target, kind)
    for each in done:
        rows.add_event(db, task, "dep", actor.name, actor.now, (None, {"on": target.id, "type": each, "add": add}))
    return task


def _remove_edges(db: Database, task: Task, target: Task, kind: str | None) -> list[str]:
    """Remove the edges of a type, or of all types if None; return their types.

    Raises `TaskError` (not_found).
    """
    kinds = [kind] if kind else EDGE_TYPES
    removed = [k for k in kinds if rows.remove_edge(db, task.id, target.id, k)[0]]
    if not removed:
        what = f"has no {kind} edge to" if kind else "does not depend on"
        raise TaskError(f"{task.handle} {what} {target.handle}.", code="not_found")
    return removed


def depend_all(
    db: Database,
    actor: Actor,
    text: str,
    on: Sequence[str],
    kind: str | None,
    *,
    add: bool = True,
    force: bool = False,
) -> Task:
    """Add or remove edges to several targets: all of them or none."""
    if not on:
        raise TaskError("Name the tasks that it depends on (dependsOn).", code="invalid")
    return [depend(db, actor, text, other, kind, add=add, force=force) for other in on][-1]


def link(db: Database, actor: Actor, text: str, message_id: str) -> Task:
    """Link a past message to a task."""
    task = find(db, actor.resource_id, text)
    if message_store.get(db, message_id) is None:
        raise TaskError(f"There is no message {quote(message_id)}.", code="not_found")
    if rows.add_link(db, task.id, message_id, "reference", actor.now):
        rows.add_event(db, task, "link", actor.name, actor.now, (None, {"message": message_id}))
    return task


# --- deletion and age -------------------------------------------------------------------------------------


def delete(db: Database, actor: Actor, text: str, *, force: bool = False) -> tuple[Task, tuple[Task, ...]]:
    """Delete a task; return it and the tasks that this unblocked.

    The row stays, so undo can restore it.
    """
    task = find(db, actor.resource_id, text)
    check_claim(actor, task, "delete", force=force)
    _end_work(db, actor, task)
    _, moved = rows.update(db, task.id, deleted_at=actor.now)
    rows.add_event(db, task, "delete", actor.name, actor.now)
    return task, list_freed(db, {t: held for t, held in moved.items() if t != task.id})


def restore(db: Database, actor: Actor, text: str) -> Task:
    """Restore a deleted task, or the full text of a shrunk one."""
    try:
        task = find(db, actor.resource_id, text)
    except TaskError:
        task = find(db, actor.resource_id, text, deleted=True)
        rows.add_event(db, task, "restore", actor.name, actor.now, ({"deleted": True}, {"deleted": False}))
        return undelete(db, task.id)
    if not rows.unshrink(db, task.id, actor.now):
        raise TaskError(f"{task.handle} is already shown in full.", code="invalid")
    current = questions.get(db, task.id)
    assert current is not None
    before, _ = find_difference(task, current)
    rows.add_event(db, task, "restore", actor.name, actor.now, (before, {}))
    return current


def decay(db: Database, resource_id: str, now: int, limit: int = 50) -> int:
    """Shrink tasks that were closed long ago; return how many.

    After 30 days the description is cut, after 90 days only the beginning of the summary is shown. The complete text
    is stored, remains searchable, and can be brought back by `restore`.
    """
    due = questions.list_due_to_shrink(db, resource_id, now - FIRST_DECAY_MS, now - SECOND_DECAY_MS, limit)
    for task in due:
        archived = (task.closed_at or 0) < now - SECOND_DECAY_MS
        description = "" if archived else _cut(task.description, 200)
        summary = _cut(task.summary or "", 160 if archived else 600)
        rows.shrink(db, task, 2 if archived else 1, description, summary, now)
    return len(due)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _list_blockers(db: Database, task: Task) -> tuple[str, ...]:
    return describe_blockers(db, [task.id])[task.id] if task.held else ()
