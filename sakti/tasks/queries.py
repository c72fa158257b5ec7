"""Answer queries about tasks, reading only the rows returned: lists, board, chains to startable tasks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.store.connection import Connection
from sakti.store.tasks import graph, questions
from sakti.store.tasks.deadlocks import BLOCKS, DISCOVERED, PARENT, RELATED
from sakti.store.tasks.questions import Task, TaskCard, TaskFilter
from sakti.tasks.describe import (
    Urgency,
    describe,
    describe_all,
    describe_blockers,
    find,
    find_urgent,
    is_abandoned,
    list_blocker_titles,
    name_claimant,
)

if TYPE_CHECKING:
    from sakti.core.types import Json


COLUMN_LIMIT = 100  # most cards read per column; its title counts all
CONTAINER_LIMIT = 50  # shown below the blocked tasks

Steps = dict[str, list[tuple[str, str]]]  # a task → the tasks that it waits for, each with the reason
# (relation, type of edge, whether it leads from a task to the one that it depends on)
_UP = (("waits for", BLOCKS, True), ("part of", PARENT, True))
_DOWN = (("has part", PARENT, False), ("blocks", BLOCKS, False))
_BESIDE = (("found while", DISCOVERED, True), ("led to", DISCOVERED, False), ("related", RELATED, True),
           ("related", RELATED, False))  # fmt: skip
__all__ = [
    "Board",
    "BoardTask",
    "Branch",
    "build_tree",
    "describe",
    "explain",
    "find",
    "list_ready",
    "list_tasks",
    "load_board",
    "search",
    "show_task",
]  # fmt: skip


class BoardTask(Struct, frozen=True):
    """Row of the board. `held_by` names the holder; `since`: start of work or closing time (Unix ms).

    `blocked_by` has handles of blockers, and inherited ones as "X (via EPIC)"; `blocker_titles` are all their titles;
    `waits_for_children` counts the open ones. `abandoned`: the process that worked on it has ended; `urgent_for`
    names a more urgent task that waits for it, as `P0 t4k`.
    """

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
    waits_for_children: int = 0
    abandoned: bool = False
    urgent_for: str = ""
    blocker_titles: tuple[str, ...] = ()


class Board(Struct, frozen=True):
    """Columns of the board.

    `counts` are those of all tasks: ready, blocked, in progress, closed today; None if the columns contain all of
    them. `containers` are open, unblocked tasks that wait for their open children.
    """

    ready: tuple[BoardTask, ...] = ()
    blocked: tuple[BoardTask, ...] = ()
    in_progress: tuple[BoardTask, ...] = ()
    closed_today: tuple[BoardTask, ...] = ()
    counts: tuple[int, int, int, int] | None = None
    containers: tuple[BoardTask, ...] = ()
    container_count: int = 0


def load_board(db: Connection, resource_id: str, midnight: int, limit: int = COLUMN_LIMIT) -> Board:
    """Return the board; `midnight` (Unix ms) is the start of today.

    Each column has up to `limit` cards.
    """
    ready, blocked, working = (
        questions.list_cards(db, resource_id, state, limit) for state in ("ready", "blocked", "in_progress")
    )
    urgent = find_urgent(db, resource_id)
    names = questions.map_handles(db, {u.waiting for u in urgent.values()}) if urgent else {}
    if urgent:
        stored = questions.map_row_order(db, [t.id for t in ready])
        ready.sort(key=lambda t: (urgent[t.id].priority if t.id in urgent else t.priority, t.created_at, stored[t.id]))
    containers = questions.list_cards(db, resource_id, "container", min(limit, CONTAINER_LIMIT))
    closed, closed_count = questions.list_closed_since(db, resource_id, midnight, limit)
    held = [t.id for t in (*blocked, *working) if t.held]
    why, titles = describe_blockers(db, held), list_blocker_titles(db, held)
    finished = graph.find_containers(db, [t.id for t in ready])
    counts = questions.read_counts(db, resource_id)

    def to_board_tasks(cards: list[TaskCard]) -> tuple[BoardTask, ...]:
        return tuple(
            BoardTask(
                id=task.id,
                handle=task.handle,
                title=task.title,
                priority=task.priority,
                type=task.type,
                assignee=task.assignee,
                blocked_by=why.get(task.id, ()),
                held_by=name_claimant(task) if task.session_id is not None else None,
                since=task.closed_at if task.status == "closed" else task.claimed_at,
                ready_to_close=task.id in finished,
                waits_for_children=0 if task.status == "closed" else task.open_children,
                urgent_for=f"P{u.priority} {names[u.waiting]}" if (u := urgent.get(task.id)) else "",
                abandoned=is_abandoned(task),
                blocker_titles=titles.get(task.id, ()),
            )
            for task in cards
        )

    return Board(
        ready=to_board_tasks(ready),
        blocked=to_board_tasks(blocked),
        in_progress=to_board_tasks(working),
        closed_today=to_board_tasks(closed),
        counts=(counts["ready"], counts["blocked"], counts["in_progress"], closed_count),
        containers=to_board_tasks(containers),
        container_count=counts["container"],
    )


def explain(db: Connection, resource_id: str, text: str) -> Json:
    """Return the shortest chain from a task to one that is ready, or else to one in progress.

    Raises `TaskError`: closed; deadlock if nothing that the task waits for can start.
    """
    task = find(db, resource_id, text)
    if task.status == "closed":
        raise TaskError(f"{task.handle} is closed.", code="closed")
    steps, end = _search_chain(db, task.id)
    if not end:
        raise TaskError(_describe_deadlock(db, task.id, steps), code="deadlock")
    chain: list[tuple[str, str]] = []
    predecessors = {target: (at, why) for at, targets in reversed(steps.items()) for target, why in reversed(targets)}
    while end != task.id:
        before, why = predecessors[end]
        chain.insert(0, (end, why))
        end = before
    names = questions.get_many(db, [task.id, *(t for t, _ in chain)])
    return {
        "task": describe(task),
        "chain": [{**describe(names[t]), "because": why} for t, why in ((task.id, ""), *chain)],
    }


def _search_chain(db: Connection, start: str) -> tuple[Steps, str]:
    """Return the tasks that each task waits for, nearest first, and the end of the shortest chain."""
    steps: Steps = {}
    frontier, working = [start], ""
    while frontier:
        by_state = {state: task for task, state in reversed(questions.map_states(db, frontier).items())}
        if "ready" in by_state:
            return steps, by_state["ready"]
        working = working or by_state.get("in_progress", "")
        level = _find_blockers(db, frontier)
        steps |= level
        targets = dict.fromkeys(target for pairs in level.values() for target, _ in pairs)
        frontier = [t for t in targets if t not in steps]
    return steps, working


def _find_blockers(db: Connection, tasks: Sequence[str]) -> Steps:
    """Return the obstacles of each task: its blockers, those of its ancestors, then open children."""
    blockers = graph.find_reasons(db, tasks)
    names = questions.map_handles(db, {via for pairs in blockers.values() for via, _ in pairs})
    children = graph.list_open_children(db, tasks)
    return {
        task: [(by, "blocks" if via == task else f"blocks {names[via]}") for via, by in blockers.get(task, ())]
        + [(child, "child") for child in children.get(task, ())]
        for task in tasks
    }


def _describe_deadlock(db: Connection, start: str, steps: Steps) -> str:
    """Describe which tasks wait for each other in a cycle.

    A task that cannot start waits for something, so the first step from each leads into a cycle.
    """
    path = [start]
    while path[-1] not in path[:-1]:
        path.append(steps[path[-1]][0][0])
    ring = path[path.index(path[-1]) :]
    names = questions.map_handles(db, ring)
    waits: list[str] = []
    for task, other in itertools.pairwise(ring):
        why = steps[task][0][1]
        via = why.removeprefix("blocks").strip()
        what = f"its child {names[other]}" if why == "child" else f"{names[other]}{f' (via {via})' if via else ''}"
        waits.append(f"{names[task]} waits for {what}")
    return f"nothing here can start: {', '.join(waits)}. Remove one of these dependencies (dep … --remove)."


# --- the tree ---------------------------------------------------------------------------------------------


class Branch(Struct, frozen=True):
    """Line of a task's dependency tree.

    Depth, the relation to the line above it ("" for the task itself), and whether an open task blocks it. `again`:
    the task and its branch are already listed above.
    """

    depth: int
    relation: str
    task: Task
    held: bool
    again: bool = False


def build_tree(db: Connection, resource_id: str, text: str, *, depth: int = 8, limit: int = 200) -> tuple[Branch, ...]:
    """Return the dependency tree of a task, up to `limit` lines.

    First the tasks that it waits for or is a part of, then its parts and the tasks waiting for it, all transitively;
    then merely related ones.
    """
    root = find(db, resource_id, text)
    out = [_branch(0, "", root)]
    for relations, levels in ((_UP, depth), (_DOWN, depth), (_BESIDE, 1)):
        seen = {root.id}
        stack = _find_neighbours(db, root.id, relations, 1)[::-1]
        while stack and len(out) < limit:
            level, relation, task = stack.pop()
            out.append(_branch(level, relation, task, again=task.id in seen))
            if task.id not in seen and level < levels:
                stack += _find_neighbours(db, task.id, relations, level + 1)[::-1]
            seen.add(task.id)
    return tuple(out)


def _branch(depth: int, relation: str, task: Task, *, again: bool = False) -> Branch:
    return Branch(depth, relation, task, bool(task.held) and task.status != "closed", again)


def _find_neighbours(
    db: Connection, task_id: str, relations: Sequence[tuple[str, str, bool]], depth: int
) -> list[tuple[int, str, Task]]:
    edges = graph.list_edges_of(db, task_id)
    neighbours = [
        (relation, on if up else task)
        for relation, edge_kind, up in relations
        for task, on, kind in edges
        if kind == edge_kind and (task if up else on) == task_id
    ]
    tasks = questions.get_many(db, {t for _, t in neighbours})
    return [(depth, relation, tasks[t]) for relation, t in neighbours]


def list_ready(db: Connection, resource_id: str, limit: int) -> Json:
    """List the ready tasks, most urgent first, by their own priority or that of a waiting task.

    `for` is the handle of the more urgent task, `forPriority` its priority. A container is listed as ready to close
    once its children are done. A task whose chat has ended is listed again, with `claimEnded`.
    """
    tasks, urgent, freed = _find_startable(db, resource_id, limit)
    finished = graph.find_containers(db, [t.id for t in tasks if t.status == "open"])
    counts = questions.read_counts(db, resource_id)
    names = questions.map_handles(db, {urgent[t.id].waiting for t in tasks if t.id in urgent})
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


def list_startable(db: Connection, resource_id: str, limit: int) -> list[Task]:
    return _find_startable(db, resource_id, limit)[0]


def _find_startable(db: Connection, resource_id: str, limit: int) -> tuple[list[Task], dict[str, Urgency], int]:
    """Return the first claimable tasks, more urgent ones waiting for them, and the number of ended claims."""
    first = questions.list_column(db, resource_id, "ready", limit)
    urgent = find_urgent(db, resource_id, first[-1].priority) if len(first) == limit else find_urgent(db, resource_id)
    waited = questions.get_many(db, urgent).values()
    abandoned = [t for t in questions.list_claimed(db, resource_id) if is_abandoned(t)]
    abandoned = [t for t in abandoned if not t.held and not t.open_children]
    tasks = {t.id: t for t in (*first, *waited, *abandoned)}

    stored = questions.map_row_order(db, tasks)

    def order(task: Task) -> tuple[int, int, int]:
        return urgent[task.id].priority if task.id in urgent else task.priority, task.created_at, stored[task.id]

    return sorted(tasks.values(), key=order)[:limit], urgent, len(abandoned)


def show_task(db: Connection, resource_id: str, text: str) -> Json:
    """Return one task: its blockers, its edges, linked messages, its history."""
    task = find(db, resource_id, text)
    (described,) = describe_all(db, [task])
    blocking = _find_blocking(db, task) if "blockedBy" in described else []
    edges = graph.list_edges_of(db, task.id)
    names = questions.get_many(db, {t for a, b, _ in edges for t in (a, b)})
    return {
        "task": described,
        "isBlocked": bool(blocking),
        "blockingTasks": blocking,
        "dependencies": [
            {"task": names[a].handle, "dependsOn": names[b].handle, "type": kind, "status": names[b].status}
            for a, b, kind in edges
        ],
        "messages": questions.list_linked_messages(db, task.id),
        "history": questions.list_history(db, task.id),
    }


def _find_blocking(db: Connection, task: Task) -> list[Json]:
    """Return the open tasks that block a task; `via` is the ancestor that waits for one of them."""
    pairs = graph.find_reasons(db, [task.id])[task.id]
    tasks = questions.get_many(db, {t for pair in pairs for t in pair})
    return [describe(tasks[by]) | ({"via": tasks[via].handle} if via != task.id else {}) for via, by in pairs]


def list_tasks(
    db: Connection,
    resource_id: str,
    *,
    limit: int = 20,
    offset: int = 0,
    **conditions: str | None,
) -> Json:
    """Return the tasks that meet the conditions of a `TaskFilter`, most urgent first, and their number."""
    tasks, total = questions.select(db, resource_id, TaskFilter(**conditions), limit=limit, offset=offset)
    return {"tasks": describe_all(db, tasks), "total": total}


def search(db: Connection, resource_id: str, query: str, limit: int, include_messages: bool = False) -> Json:
    """Return tasks whose title, description or closing summary match; optionally matching messages too."""
    tasks = list(questions.get_many(db, questions.search(db, resource_id, query, limit)).values())
    out: Json = {"tasks": describe_all(db, tasks)}
    if include_messages:
        out["messages"] = [
            {"id": h.id, "role": h.role, "text": h.snippet} | ({"task": h.task_id} if h.task_id else {})
            for h in questions.search_texts(db, resource_id, query, "message", limit)
        ]
    return out
