"""Follow a task through the graph: the shortest chain to a startable task, and its dependency tree."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.store.connection import Connection
from sakti.store.tasks import graph, questions
from sakti.store.tasks.questions import Task
from sakti.tasks import graph as g
from sakti.tasks.describe import describe, find

if TYPE_CHECKING:
    from sakti.core.types import Json

Steps = dict[str, list[tuple[str, str]]]  # a task → what it waits for, each with why


def explain(db: Connection, resource_id: str, text: str) -> Json:
    """Return the shortest chain from a task to one that is ready, or else to one in progress.

    Raises `TaskError`: closed; deadlock where nothing that the task waits for can start.
    """
    task = find(db, resource_id, text)
    if task.status == "closed":
        raise TaskError(f"{task.handle} is closed.", code="closed")
    steps, end = _search_chain(db, task.id)
    if not end:
        raise TaskError(_describe_deadlock(db, task.id, steps), code="deadlock")
    chain: list[tuple[str, str]] = []
    came = {target: (at, why) for at, targets in reversed(steps.items()) for target, why in reversed(targets)}
    while end != task.id:
        before, why = came[end]
        chain.insert(0, (end, why))
        end = before
    names = questions.get_many(db, [task.id, *(t for t, _ in chain)])
    return {
        "task": describe(task),
        "chain": [{**describe(names[t]), "because": why} for t, why in ((task.id, ""), *chain)],
    }


def _search_chain(db: Connection, start: str) -> tuple[Steps, str]:
    """Return what each task waits for, nearest first, and the task in which the shortest chain ends."""
    steps: Steps = {}
    frontier, working = [start], ""
    while frontier:
        states = questions.states(db, frontier)
        if ready := next((t for t in frontier if states[t] == "ready"), ""):
            return steps, ready
        working = working or next((t for t in frontier if states[t] == "in_progress"), "")
        level = _waits_for(db, frontier)
        steps |= level
        targets = dict.fromkeys(target for pairs in level.values() for target, _ in pairs)
        frontier = [t for t in targets if t not in steps]
    return steps, working


def _waits_for(db: Connection, tasks: Sequence[str]) -> Steps:
    """Return what each of these waits for: blockers, its own and its ancestors', then open children."""
    blockers = graph.reasons(db, tasks)
    names = questions.handles(db, {via for pairs in blockers.values() for via, _ in pairs})
    children = graph.open_children(db, tasks)
    return {
        task: [(by, "blocks" if via == task else f"blocks {names[via]}") for via, by in blockers.get(task, ())]
        + [(child, "child") for child in children.get(task, ())]
        for task in tasks
    }


def _describe_deadlock(db: Connection, start: str, steps: Steps) -> str:
    """Describe which tasks wait for each other in a cycle.

    A task that cannot start waits for something, so the first step from each leads into a cycle.
    """
    way = [start]
    while way[-1] not in way[:-1]:
        way.append(steps[way[-1]][0][0])
    ring = way[way.index(way[-1]) :]
    names = questions.handles(db, ring)
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


# (what the edge says, its type, whether it is walked from the task to what it depends on)
_UP = (("waits for", g.BLOCKS, True), ("part of", g.PARENT, True))
_DOWN = (("has part", g.PARENT, False), ("blocks", g.BLOCKS, False))
_BESIDE = (("found while", g.DISCOVERED, True), ("led to", g.DISCOVERED, False), ("related", g.RELATED, True),
           ("related", g.RELATED, False))  # fmt: skip


def tree(db: Connection, resource_id: str, text: str, *, depth: int = 8, limit: int = 200) -> tuple[Branch, ...]:
    """Return the dependency tree of a task, at most `limit` lines.

    First what it waits for or is a part of, then what is a part of it or waits for it, both transitively; then what
    is only related.
    """
    root = find(db, resource_id, text)
    out = [_branch(0, "", root)]
    for relations, levels in ((_UP, depth), (_DOWN, depth), (_BESIDE, 1)):
        seen = {root.id}
        stack = _next(db, root.id, relations, 1)[::-1]
        while stack and len(out) < limit:
            level, relation, task = stack.pop()
            out.append(_branch(level, relation, task, again=task.id in seen))
            if task.id not in seen and level < levels:
                stack += _next(db, task.id, relations, level + 1)[::-1]
            seen.add(task.id)
    return tuple(out)


def _branch(depth: int, relation: str, task: Task, *, again: bool = False) -> Branch:
    return Branch(depth, relation, task, bool(task.held) and task.status != "closed", again)


def _next(
    db: Connection, task_id: str, relations: Sequence[tuple[str, str, bool]], depth: int
) -> list[tuple[int, str, Task]]:
    edges = graph.edges_of(db, task_id)
    neighbours = [
        (relation, on if up else task)
        for relation, edge_kind, up in relations
        for task, on, kind in edges
        if kind == edge_kind and (task if up else on) == task_id
    ]
    tasks = questions.get_many(db, {t for _, t in neighbours})
    return [(depth, relation, tasks[t]) for relation, t in neighbours]
