"""Task graph, pure: which tasks are blocked, by which others, and which are ready.

Semantics. A task waits for the target of each of its `blocks` edges until that is closed. A `parent-child` edge
makes the task a child of its target: a child of a blocked parent is blocked too, for the parent's reasons, and a
parent with an open child is not ready. `related` and `discovered-from` never count. A cycle is one of begins and ends
(`sakti.store.tasks.deadlocks`): a container ends after its children.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from sakti.store.tasks.deadlocks import BLOCKS, PARENT

RELATED, DISCOVERED = "related", "discovered-from"
EDGE_TYPES = (BLOCKS, PARENT, RELATED, DISCOVERED)


class Node(Struct, frozen=True):
    """Task as a node of the graph; `order` sorts equal priorities, older first."""

    id: str
    status: str
    priority: int
    order: int


class Edge(Struct, frozen=True):
    """Edge: `task` waits for `on` (type blocks), or is a child of it (parent-child)."""

    task: str
    on: str
    type: str = BLOCKS


class TaskBlockers(Struct, frozen=True):
    """Blockers of a task: its own open ones, and `inherited` pairs (blocked ancestor, its blocker)."""

    by: tuple[str, ...] = ()
    inherited: tuple[tuple[str, str], ...] = ()


class Graph(Struct):
    nodes: Mapping[str, Node]
    blockers: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    parents: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    children: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    dependants: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def build(nodes: Iterable[Node], edges: Iterable[Edge]) -> Graph:
    graph = Graph({n.id: n for n in nodes})
    for edge in edges:
        if edge.task not in graph.nodes or edge.on not in graph.nodes:
            continue
        if edge.type == BLOCKS:
            graph.blockers.setdefault(edge.task, []).append(edge.on)
            graph.dependants.setdefault(edge.on, []).append(edge.task)
        elif edge.type == PARENT:
            graph.parents.setdefault(edge.task, []).append(edge.on)
            graph.children.setdefault(edge.on, []).append(edge.task)
    return graph


def is_open(graph: Graph, task: str) -> bool:
    return graph.nodes[task].status != "closed"


def open_blockers(graph: Graph, task: str) -> tuple[str, ...]:
    return tuple(b for b in graph.blockers.get(task, ()) if is_open(graph, b))


def open_children(graph: Graph, task: str) -> tuple[str, ...]:
    return tuple(c for c in graph.children.get(task, ()) if is_open(graph, c))


def find_blockers(graph: Graph, task: str) -> TaskBlockers | None:
    """Return the blockers of `task`, None if it is not blocked. Closed tasks never are."""
    if not is_open(graph, task):
        return None
    inherited: list[tuple[str, str]] = []
    seen, stack = {task}, list(graph.parents.get(task, ()))
    while stack:
        ancestor = stack.pop()
        if ancestor in seen:
            continue
        seen.add(ancestor)
        inherited += [(ancestor, b) for b in open_blockers(graph, ancestor)]
        stack += graph.parents.get(ancestor, ())
    direct = open_blockers(graph, task)
    return TaskBlockers(direct, tuple(sorted(inherited))) if direct or inherited else None


def waits_for(graph: Graph, task: str) -> set[str]:
    """Return the open tasks that a task waits for, directly or through others: blockers and children."""
    out: set[str] = set()
    stack = [task]
    while stack:
        waiting = stack.pop()
        reasons = find_blockers(graph, waiting) or TaskBlockers()
        direct = {*reasons.by, *(by for _, by in reasons.inherited), *open_children(graph, waiting)}
        stack += direct - out
        out |= direct
    return out


def _urgency(graph: Graph) -> dict[str, int]:
    """Return the most urgent priority among each task and those that wait for it."""
    out = {n.id: n.priority for n in graph.nodes.values()}
    for waiting in (n for n in graph.nodes.values() if is_open(graph, n.id)):
        for task in waits_for(graph, waiting.id):
            out[task] = min(out[task], waiting.priority)
    return out


def ready(graph: Graph) -> list[str]:
    """Return open, unclaimed, unblocked tasks without an open child.

    The most urgent first, by their own priority or that of a task that waits for them; then oldest.
    """
    urgency = _urgency(graph)
    startable = [
        n
        for n in graph.nodes.values()
        if n.status == "open" and not open_children(graph, n.id) and find_blockers(graph, n.id) is None
    ]
    return [n.id for n in sorted(startable, key=lambda n: (urgency[n.id], n.order))]
