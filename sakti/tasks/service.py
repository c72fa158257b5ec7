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
from sakti.store import tasks as store
from sakti.store import threads as thread_store
from sakti.store.connection import Database
from sakti.store.tasks import Task
from sakti.tasks import graph as g

CLAIM_MS = 60 * 60 * 1000  # a session's claim ends an hour after its last sign of life
STATUSES, TYPES = ("open", "in_progress", "closed"), ("bug", "feature", "task", "epic", "chore")
REASONS = ("completed", "wontfix", "duplicate")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, where and when. `session_id` holds claims; `thread_id` is the conversation it happens in."""

    resource_id: str
    session_id: str
    now: int
    thread_id: str | None = None
    name: str = "agent"


@dataclass(frozen=True, slots=True)
class BoardTask:
    id: str
    handle: str
    title: str
    priority: int
    type: str
    assignee: str | None
    blocked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """The four columns. `blocked_by` names own blockers by handle, inherited ones as "via EPIC by X"."""

    ready: tuple[BoardTask, ...] = ()
    blocked: tuple[BoardTask, ...] = ()
    in_progress: tuple[BoardTask, ...] = ()
    closed_today: tuple[BoardTask, ...] = ()


def load(db: Database, resource_id: str) -> tuple[dict[str, Task], g.Graph]:
    tasks = {t.id: t for t in store.all_live(db, resource_id)}
    nodes = [g.Node(t.id, t.status, t.priority, n) for n, t in enumerate(tasks.values())]
    return tasks, g.build(nodes, [g.Edge(*e) for e in store.edges(db, resource_id)])


def find(db: Database, resource_id: str, text: str) -> Task:
    """The task that an id, a handle or an unambiguous beginning of one names."""
    found = store.matching(db, resource_id, text.strip()) if text.strip() else []
    if not found:
        raise TaskError(f"There is no task {text!r}. `list` shows what there is.", code="not_found")
    if len(found) > 1:
        names = ", ".join(f"{t.handle} ({t.title[:40]})" for t in found[:5])
        raise TaskError(f"{text!r} could be {names}. Write more of it.", code="ambiguous")
    return found[0]


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
    title = " ".join(title.split())
    _check_title(title)
    _one_of("type", type, TYPES)
    _check_priority(priority)
    task = Task(
        id,
        actor.resource_id,
        _new_handle(db, actor.resource_id, id),
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
    )
    store.insert(db, task)
    store.set_labels(db, task.id, labels)
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
    if "type" in changes:
        _one_of("type", changes["type"], TYPES)
    if "priority" in changes:
        _check_priority(changes["priority"])
    if "title" in changes:
        _check_title(str(changes["title"]).strip())
    if "labels" in changes:
        store.set_labels(db, task.id, [str(x) for x in changes["labels"]])
    fields = {k: v for k, v in changes.items() if k in allowed}
    return _changed(db, actor, task, "update", **fields)


def claim(db: Database, actor: Actor, text: str) -> tuple[Task, str | None]:
    """Claim a task; returns it and the handle of the task that was active before, if another was."""
    task = find(db, actor.resource_id, text)
    tasks, graph = load(db, actor.resource_id)
    if task.status == "closed":
        raise TaskError(f"{task.handle} is closed; reopen it first.", code="closed")
    why = g.blocked(graph, task.id)
    if why is not None:
        raise TaskError(f"{task.handle} is blocked by {', '.join(reasons(tasks, why))}.", code="blocked")
    if not store.claim(db, task.id, actor.session_id, actor.thread_id, actor.now, actor.now + CLAIM_MS):
        raise TaskError(f"{task.handle} is already claimed by {task.session_id}.", code="already_claimed")
    previous = None
    if actor.thread_id:
        thread = thread_store.get(db, actor.thread_id)
        active = thread.metadata.get("active_task_id") if thread else None
        if active and active != task.id and active in tasks:
            previous = tasks[active].handle
        thread_store.update_metadata(db, actor.thread_id, {"active_task_id": task.id})
    claimed = store.get(db, task.id)
    assert claimed is not None
    store.add_event(db, claimed, "claim", actor.name, actor.now, _json(task), _json(claimed))
    return claimed, previous


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
    """Close a task; returns it and the tasks that this freed."""
    task = find(db, actor.resource_id, text)
    _one_of("reason", reason, REASONS)
    if not summary.strip():
        raise TaskError("Closing needs a summary: what was done, and in which files.", code="invalid")
    if task.status == "closed":
        raise TaskError(f"{task.handle} is closed already.", code="closed")
    tasks, graph = load(db, actor.resource_id)
    if not force:
        if why := g.blocked(graph, task.id):
            raise TaskError(
                f"{task.handle} is blocked by {', '.join(reasons(tasks, why))}. Close that first, or force it.",
                code="blocked",
            )
        if children := g.open_children(graph, task.id):
            names = ", ".join(tasks[c].handle for c in children)
            raise TaskError(
                f"{task.handle} has open children: {names}. Close them first, or force it.", code="open_children"
            )
    freed = tuple(tasks[t] for t in g.unblocked_by(graph, task.id))
    _clear_active(db, actor, task)
    closed = _changed(
        db,
        actor,
        task,
        "close",
        status="closed",
        close_reason=reason,
        summary=summary.strip(),
        closed_at=actor.now,
        session_id=None,
        claim_expires_at=None,
    )
    return closed, freed


def reopen(db: Database, actor: Actor, text: str) -> Task:
    task = find(db, actor.resource_id, text)
    if task.status != "closed":
        raise TaskError(f"{task.handle} is not closed.", code="invalid")
    return _changed(db, actor, task, "reopen", status="open", closed_at=None, close_reason=None)


def depend(db: Database, actor: Actor, text: str, on: str, kind: str, *, add: bool = True) -> Task:
    task, target = find(db, actor.resource_id, text), find(db, actor.resource_id, on)
    _one_of("type", kind, g.EDGE_TYPES)
    if add:
        _connect(db, actor, task, target, kind)
    elif not store.remove_edge(db, task.id, target.id, kind):
        raise TaskError(f"{task.handle} has no {kind} edge to {target.handle}.", code="not_found")
    store.add_event(db, task, "dep", actor.name, actor.now, None, {"on": target.id, "type": kind, "add": add})
    return task


def link(db: Database, actor: Actor, text: str, message_id: str) -> Task:
    task = find(db, actor.resource_id, text)
    if message_store.get(db, message_id) is None:
        raise TaskError(f"There is no message {message_id!r}.", code="not_found")
    store.link(db, task.id, message_id, "reference", actor.now)
    return task


# --- questions --------------------------------------------------------------------------------------------


def reasons(tasks: dict[str, Task], why: g.Blocked) -> list[str]:
    own = [tasks[b].handle for b in why.by]
    return own + [f"{tasks[b].handle} (via {tasks[a].handle})" for a, b in why.inherited]


def describe(task: Task, labels: Sequence[str] = ()) -> Json:
    """A task as tools and `--json` show it."""
    out: Json = {
        "id": task.id,
        "handle": task.handle,
        "title": task.title,
        "status": task.status,
        "priority": task.priority,
        "type": task.type,
    }
    optional = {
        "description": task.description,
        "assignee": task.assignee,
        "close_reason": task.close_reason,
        "summary": task.summary,
        "labels": list(labels),
    }
    return out | {k: v for k, v in optional.items() if v}


def board(db: Database, resource_id: str, midnight: int) -> Board:
    """The board; `midnight` (Unix ms) is when today began."""
    tasks, graph = load(db, resource_id)
    blocked: list[BoardTask] = []
    for task in tasks.values():
        if task.status == "open" and (why := g.blocked(graph, task.id)):
            blocked.append(_card(task, tuple(reasons(tasks, why))))
    by_priority = sorted(tasks.values(), key=lambda t: (t.priority, t.created_at))
    return Board(
        ready=tuple(_card(tasks[t]) for t in g.ready(graph)),
        blocked=tuple(sorted(blocked, key=lambda c: c.priority)),
        in_progress=tuple(_card(t) for t in by_priority if t.status == "in_progress"),
        closed_today=tuple(
            _card(t)
            for t in sorted(tasks.values(), key=lambda t: -(t.closed_at or 0))
            if t.status == "closed" and (t.closed_at or 0) >= midnight
        ),
    )


def _card(task: Task, blocked_by: tuple[str, ...] = ()) -> BoardTask:
    return BoardTask(task.id, task.handle, task.title, task.priority, task.type, task.assignee, blocked_by)


# --- helpers ----------------------------------------------------------------------------------------------


def _changed(db: Database, actor: Actor, task: Task, action: str, **changes: Any) -> Task:
    after = store.update(db, task.id, **changes, updated_at=actor.now)
    store.add_event(db, after, action, actor.name, actor.now, _json(task), _json(after))
    return after


def _connect(db: Database, actor: Actor, task: Task, target: Task, kind: str) -> None:
    edges = [g.Edge(*e) for e in store.edges(db, actor.resource_id)]
    cycle = g.find_cycle(edges, g.Edge(task.id, target.id, kind))
    if cycle:
        tasks = {t.id: t for t in store.all_live(db, actor.resource_id)}
        raise TaskError(f"That would be a cycle: {' → '.join(tasks[t].handle for t in cycle)}.", code="cycle")
    store.add_edge(db, task.id, target.id, kind, actor.now)


def _clear_active(db: Database, actor: Actor, task: Task) -> None:
    for thread_id in {actor.thread_id, task.thread_id} - {None}:
        thread = thread_store.get(db, str(thread_id))
        if thread and thread.metadata.get("active_task_id") == task.id:
            thread_store.update_metadata(db, thread.id, {"active_task_id": None})


def _new_handle(db: Database, resource_id: str, seed: str) -> str:
    """Three or more easy characters, unique in the workspace."""
    taken, source = store.handles(db, resource_id), random.Random(seed)
    for length in range(3, 12):
        for _ in range(20):
            handle = "t" + "".join(source.choice("23456789abcdefghjkmnpqrstuvwxyz") for _ in range(length))
            if handle not in taken:
                return handle
    raise TaskError("No free handle was found.", code="invalid")


def _check_title(title: str) -> None:
    if not title:
        raise TaskError("A task needs a title.", code="no_title")
    if len(title) > 500:
        raise TaskError(f"The title has {len(title)} characters; at most 500.", code="title_too_long")


def _check_priority(priority: Any) -> None:
    if not isinstance(priority, int) or not 0 <= priority <= 4:
        raise TaskError(f"Priority {priority} is not 0 (most urgent) to 4.", code="bad_priority")


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise TaskError(f"{name} must be one of {', '.join(allowed)}, not {value!r}.", code="invalid")


def _json(task: Task) -> Json:
    return dataclasses.asdict(task)
