"""What can be asked about tasks. Each question reads the rows that it answers with, never the whole workspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sakti.core.errors import TaskError
from sakti.store import task_graph, task_search
from sakti.store import tasks as store
from sakti.store.connection import Database
from sakti.store.tasks import Task
from sakti.tasks import graph as g

if TYPE_CHECKING:
    from sakti.core.types import Json

COLUMN_LIMIT = 200  # cards of a column that are drawn; its title counts all


@dataclass(frozen=True, slots=True)
class BoardTask:
    """A card. `held_by` is the session that works on it, `since` when it began or was closed (Unix ms)."""

    id: str
    handle: str
    title: str
    priority: int
    type: str
    assignee: str | None
    blocked_by: tuple[str, ...] = ()
    held_by: str | None = None
    since: int | None = None
    ready_to_close: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """The four columns. `blocked_by` names own blockers by handle, inherited ones as "X (via EPIC)". `counts` are
    those of all tasks: ready, blocked, in progress, closed today; None where the columns hold all of them."""

    ready: tuple[BoardTask, ...] = ()
    blocked: tuple[BoardTask, ...] = ()
    in_progress: tuple[BoardTask, ...] = ()
    closed_today: tuple[BoardTask, ...] = ()
    counts: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of a task's dependency tree: how deep, how it is related to the line above it ("" for the task itself),
    and whether an open task keeps it. `again`: it stands above already, with what hangs on it."""

    depth: int
    relation: str
    task: Task
    held: bool
    again: bool = False


def load(db: Database, resource_id: str) -> tuple[dict[str, Task], g.Graph]:
    """Everything, as the pure graph has it: the reference for what the queries answer."""
    tasks = {t.id: t for t in store.all_live(db, resource_id)}
    nodes = [g.Node(t.id, t.status, t.priority, n) for n, t in enumerate(tasks.values())]
    return tasks, g.build(nodes, [g.Edge(*e) for e in store.edges(db, resource_id)])


def find(db: Database, resource_id: str, text: str, *, deleted: bool = False) -> Task:
    """The task that an id, a handle or an unambiguous beginning of one names. Raises `TaskError`."""
    wanted = text.strip()
    found = store.matching(db, resource_id, wanted, deleted=deleted) if wanted else []
    if not found:
        raise TaskError(f"There is no task {text!r}. `list` shows what there is.", code="not_found")
    if len(found) > 1:
        names = ", ".join(f"{t.handle} ({t.title[:40]})" for t in found[:5])
        more = ", …" if len(found) > 5 else ""
        raise TaskError(f"{text!r} could be {names}{more}. Write more of it.", code="ambiguous")
    return found[0]


def reasons(db: Database, task_ids: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What blocks each of these tasks, by handle: `X`, or `X (via EPIC)` where an ancestor waits for X."""
    found = task_graph.reasons(db, task_ids)
    names = store.get_many(db, {t for pairs in found.values() for pair in pairs for t in pair})

    def name(root: str, via: str, by: str) -> str:
        return names[by].handle if via == root else f"{names[by].handle} (via {names[via].handle})"

    return {root: tuple(name(root, *pair) for pair in pairs) for root, pairs in found.items()}


def describe(task: Task) -> Json:
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
        "claimedBy": task.session_id if task.status == "in_progress" else None,
        "close_reason": task.close_reason,
        "summary": task.summary,
        "labels": list(task.labels),
    }
    return out | {k: v for k, v in optional.items() if v}


def ready(db: Database, resource_id: str, limit: int) -> Json:
    """What can be begun, most urgent first. A container is offered once its children are done, as ready to close."""
    tasks = store.column(db, resource_id, "ready", limit)
    finished = store.containers(db, [t.id for t in tasks])
    return {
        "tasks": [describe(t) | ({"readyToClose": True} if t.id in finished else {}) for t in tasks],
        "readyCount": store.column_count(db, resource_id, "ready"),
        "blockedCount": store.column_count(db, resource_id, "blocked"),
    }


def show(db: Database, resource_id: str, text: str) -> Json:
    """One task: what blocks it, its edges, what was said about it, what was done to it."""
    task = find(db, resource_id, text)
    held, _ = store.state(db, task.id)
    why = reasons(db, [task.id])[task.id] if held and task.status != "closed" else ()
    edges = store.edges_of(db, task.id)
    names = store.get_many(db, {t for a, b, _ in edges for t in (a, b)})
    return {
        "task": describe(task),
        "isBlocked": bool(why),
        "blockingTasks": list(why),
        "dependencies": [
            {"task": names[a].handle, "dependsOn": names[b].handle, "type": kind, "status": names[b].status}
            for a, b, kind in edges
        ],
        "messages": store.linked_messages(db, task.id),
        "history": [{"action": e.action, "actor": e.actor, "time": e.created_at} for e in store.events_of(db, task.id)],
    }


def list_tasks(
    db: Database,
    resource_id: str,
    *,
    status: str | None = None,
    type: str | None = None,
    label: str | None = None,
    assignee: str | None = None,
    limit: int = 20,
    offset: int = 0,
) -> Json:
    tasks, total = store.select(
        db, resource_id, status=status, type=type, label=label, assignee=assignee, limit=limit, offset=offset
    )
    return {"tasks": [describe(t) for t in tasks], "total": total}


def search(db: Database, resource_id: str, query: str, limit: int, include_messages: bool = False) -> Json:
    """Tasks whose title, description or closing summary match; with messages, what was said that matches too."""
    tasks = list(store.get_many(db, task_search.search(db, resource_id, query, limit)).values())
    out: Json = {"tasks": [describe(t) for t in tasks]}
    if include_messages:
        from sakti.store import search as search_store

        scope = search_store.Scope(resource_id, kinds=("message",))
        out["messages"] = [
            {"id": h.id, "role": h.role, "text": h.snippet} | ({"task": h.task_id} if h.task_id else {})
            for h in search_store.search(db, query, scope, limit=limit).hits
        ]
    return out


def explain(db: Database, resource_id: str, text: str) -> Json:
    """The shortest chain from a task to something that can be begun now, or that somebody works on."""
    task = find(db, resource_id, text)
    chain = g.shortest_chain(task.id, _is_ready(db), _waits_for(db))
    if chain is None:
        chain = g.shortest_chain(task.id, _is_worked_on(db), _waits_for(db))
    if task.status == "closed":
        raise TaskError(f"{task.handle} is closed.", code="closed")
    names = store.get_many(db, [t for t, _ in chain or ()])
    steps = [{**describe(names[t]), "because": why} for t, why in chain or ()]
    return {"task": describe(task), "chain": steps}


# (what the edge says, its type, whether it is walked from the task to what it depends on)
_UP = (("waits for", g.BLOCKS, True), ("part of", g.PARENT, True))
_DOWN = (("has part", g.PARENT, False), ("blocks", g.BLOCKS, False))
_BESIDE = (("found while", g.DISCOVERED, True), ("led to", g.DISCOVERED, False), ("related", g.RELATED, True),
           ("related", g.RELATED, False))  # fmt: skip


def tree(db: Database, resource_id: str, text: str, *, depth: int = 8, limit: int = 200) -> tuple[Branch, ...]:
    """What a task waits for and is a part of, all the way; then what is a part of it or waits for it, all the way; then
    what is only related. At most `limit` lines."""
    root = find(db, resource_id, text)
    out = [_branch(db, 0, "", root)]
    for relations, levels in ((_UP, depth), (_DOWN, depth), (_BESIDE, 1)):
        seen = {root.id}
        stack = _next(db, root.id, relations, 1)[::-1]
        while stack and len(out) < limit:
            level, relation, task = stack.pop()
            out.append(_branch(db, level, relation, task, again=task.id in seen))
            if task.id not in seen and level < levels:
                stack += _next(db, task.id, relations, level + 1)[::-1]
            seen.add(task.id)
    return tuple(out)


def _branch(db: Database, depth: int, relation: str, task: Task, *, again: bool = False) -> Branch:
    held, _ = store.state(db, task.id)
    return Branch(depth, relation, task, held and task.status != "closed", again)


def _next(
    db: Database, task_id: str, relations: Sequence[tuple[str, str, bool]], depth: int
) -> list[tuple[int, str, Task]]:
    edges = store.edges_of(db, task_id)
    found = [
        (relation, on if up else task)
        for relation, wanted, up in relations
        for task, on, kind in edges
        if kind == wanted and (task if up else on) == task_id
    ]
    tasks = store.get_many(db, {t for _, t in found})
    return [(depth, relation, tasks[t]) for relation, t in found]


def _is_ready(db: Database) -> Callable[[str], bool]:
    def goal(task_id: str) -> bool:
        task = store.get(db, task_id)
        return task is not None and task.status == "open" and store.state(db, task_id) == (False, 0)

    return goal


def _is_worked_on(db: Database) -> Callable[[str], bool]:
    def goal(task_id: str) -> bool:
        task = store.get(db, task_id)
        return task is not None and task.status == "in_progress"

    return goal


def _waits_for(db: Database) -> g.Steps:
    def steps(task_id: str) -> list[tuple[str, str]]:
        pairs = task_graph.reasons(db, [task_id]).get(task_id, [])
        names = store.get_many(db, [via for via, _ in pairs])
        out = [(by, "blocks" if via == task_id else f"blocks {names[via].handle}") for via, by in pairs]
        return out + [(child, "child") for child in task_graph.open_children(db, task_id)]

    return steps


def board(db: Database, resource_id: str, midnight: int, limit: int = COLUMN_LIMIT) -> Board:
    """The board; `midnight` (Unix ms) is when today began."""
    columns = {n: store.column(db, resource_id, n, limit) for n in ("ready", "blocked", "in_progress")}
    counts = {n: store.column_count(db, resource_id, n) for n in columns}
    closed, closed_count = store.closed_since(db, resource_id, midnight, limit)
    why = reasons(db, [t.id for t in columns["blocked"]])
    finished = store.containers(db, [t.id for t in columns["ready"]])
    return Board(
        ready=tuple(_card(t, ready_to_close=t.id in finished) for t in columns["ready"]),
        blocked=tuple(_card(t, why.get(t.id, ())) for t in columns["blocked"]),
        in_progress=tuple(_card(t) for t in columns["in_progress"]),
        closed_today=tuple(_card(t) for t in closed),
        counts=(counts["ready"], counts["blocked"], counts["in_progress"], closed_count),
    )


def _card(task: Task, blocked_by: tuple[str, ...] = (), *, ready_to_close: bool = False) -> BoardTask:
    since = task.closed_at if task.status == "closed" else task.claimed_at
    holder = task.session_id if task.status == "in_progress" else None
    return BoardTask(
        task.id,
        task.handle,
        task.title,
        task.priority,
        task.type,
        task.assignee,
        blocked_by,
        holder,
        since,
        ready_to_close,
    )
