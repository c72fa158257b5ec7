"""Answer queries about tasks, reading only the rows that are returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.core.lazy import lazy_imports
from sakti.store.connection import Connection
from sakti.store.tasks import graph, questions
from sakti.store.tasks import search as task_search
from sakti.tasks.board import Board, BoardTask, board
from sakti.tasks.chains import Branch, explain, tree
from sakti.tasks.describe import Urgency, describe, describe_all, find, find_urgent, is_abandoned

if TYPE_CHECKING:
    from sakti.core.types import Json
    from sakti.store.tasks.questions import Task

with lazy_imports:
    from sakti.store.search import search as text_search

__all__ = ["Board", "BoardTask", "Branch", "board", "describe", "explain", "find", "list_tasks", "ready", "search",
           "show", "tree"]  # fmt: skip


def ready(db: Connection, resource_id: str, limit: int) -> Json:
    """Return the ready tasks, most urgent first, by the priority of a task or of one that waits for it.

    `for` is the handle of the more urgent task, `forPriority` its priority. A container is offered once its children
    are done, as ready to close; a task whose chat has ended is offered again, with `claimEnded`.
    """
    tasks, urgent, freed = _startable(db, resource_id, limit)
    finished = graph.containers(db, [t.id for t in tasks if t.status == "open"])
    counts = questions.counts(db, resource_id)
    names = questions.handles(db, {urgent[t.id].waiting for t in tasks if t.id in urgent})
    return {
        "tasks": [
            describe(t)
            | ({"for": names[u.waiting], "forPriority": u.priority} if (u := urgent.get(t.id)) else {})
            | ({"readyToClose": True} if t.id in finished else {})
            for t in tasks
        ],
        "readyCount": counts["ready"] + freed,
        "blockedCount": counts["blocked"],
    }


def startable(db: Connection, resource_id: str, limit: int) -> list[Task]:
    """Return the first claimable tasks in the order of `ready`."""
    return _startable(db, resource_id, limit)[0]


def _startable(db: Connection, resource_id: str, limit: int) -> tuple[list[Task], dict[str, Urgency], int]:
    """Return the first claimable tasks, who waits for them, and how many claims have ended."""
    first = questions.column(db, resource_id, "ready", limit)
    urgent = find_urgent(db, resource_id, first[-1].priority) if len(first) == limit else find_urgent(db, resource_id)
    waited = questions.get_many(db, urgent).values()
    abandoned = [t for t in questions.list_claimed(db, resource_id) if is_abandoned(t)]
    abandoned = [t for t in abandoned if not t.held and not t.open_children]
    tasks = {t.id: t for t in (*first, *waited, *abandoned)}

    stored = questions.row_order(db, tasks)

    def order(task: Task) -> tuple[int, int, int]:
        return urgent[task.id].priority if task.id in urgent else task.priority, task.created_at, stored[task.id]

    return sorted(tasks.values(), key=order)[:limit], urgent, len(abandoned)


def show(db: Connection, resource_id: str, text: str) -> Json:
    """Return one task: its blockers, its edges, linked messages, its history."""
    task = find(db, resource_id, text)
    (described,) = describe_all(db, [task])
    blocking = _blocking(db, task) if "blockedBy" in described else []
    edges = graph.edges_of(db, task.id)
    names = questions.get_many(db, {t for a, b, _ in edges for t in (a, b)})
    return {
        "task": described,
        "isBlocked": bool(blocking),
        "blockingTasks": blocking,
        "dependencies": [
            {"task": names[a].handle, "dependsOn": names[b].handle, "type": kind, "status": names[b].status}
            for a, b, kind in edges
        ],
        "messages": questions.linked_messages(db, task.id),
        "history": questions.history(db, task.id),
    }


def _blocking(db: Connection, task: Task) -> list[Json]:
    """Return the open tasks that block a task; `via` is the ancestor that waits for one."""
    pairs = graph.reasons(db, [task.id])[task.id]
    tasks = questions.get_many(db, {t for pair in pairs for t in pair})
    return [describe(tasks[by]) | ({"via": tasks[via].handle} if via != task.id else {}) for via, by in pairs]


def list_tasks(
    db: Connection,
    resource_id: str,
    *,
    status: str | None = None,
    type: str | None = None,
    label: str | None = None,
    assignee: str | None = None,
    limit: int = 20,
    offset: int = 0,
) -> Json:
    """Return the tasks that match the filters, most urgent first, and their number."""
    tasks, total = questions.select(
        db, resource_id, status=status, type=type, label=label, assignee=assignee, limit=limit, offset=offset
    )
    return {"tasks": describe_all(db, tasks), "total": total}


def search(db: Connection, resource_id: str, query: str, limit: int, include_messages: bool = False) -> Json:
    """Return tasks whose title, description or closing summary match; optionally matching messages too."""
    tasks = list(questions.get_many(db, task_search.search(db, resource_id, query, limit)).values())
    out: Json = {"tasks": describe_all(db, tasks)}
    if include_messages:
        scope = text_search.Scope(resource_id, kinds=("message",))
        out["messages"] = [
            {"id": h.id, "role": h.role, "text": h.snippet} | ({"task": h.task_id} if h.task_id else {})
            for h in text_search.search(db, query, scope, limit=limit).hits
        ]
    return out
