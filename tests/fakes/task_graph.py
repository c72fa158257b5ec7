"""Reference for the queries about tasks: the graph loaded as a whole, and its answers computed in the plainest way.

A task waits for the target of each of its `blocks` edges until that is closed. A `parent-child` edge makes it a
child of its target: a child of a blocked parent is blocked too, for its reasons, and a parent with an open child
is not ready. `related` and `discovered-from` never count. A cycle is one of begins and ends (`deadlocks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from sakti.store.connection import Database
from sakti.store.tasks import graph as store_graph
from sakti.store.tasks import questions
from sakti.store.tasks.deadlocks import BLOCKS, PARENT, list_waits
from sakti.store.tasks.deadlocks import Node as Moment
from sakti.store.tasks.questions import Task


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


def load(db: Database, resource_id: str) -> tuple[dict[str, Task], Graph]:
    """Load all tasks of a workspace, and the graph of them."""
    tasks = {t.id: t for t in questions.list_live(db, resource_id)}
    nodes = [Node(t.id, t.status, t.priority, n) for n, t in enumerate(tasks.values())]
    return tasks, build(nodes, [Edge(*e) for e in store_graph.list_edges(db, resource_id)])


def find_cycle(edges: Iterable[Edge], new: Edge) -> tuple[str, ...] | None:
    """Return the shortest cycle of waiting that `new` would close, as `a, b, …, a`; None if it is fine."""
    if new.task == new.on and new.type in (BLOCKS, PARENT):
        return (new.task, new.task)
    ahead: dict[Moment, list[Moment]] = {}
    for edge in edges:
        for moment, other in list_waits((edge.task, edge.on, edge.type)):
            ahead.setdefault(moment, []).append(other)
    found: list[tuple[str, ...]] = []
    for moment, other in list_waits((new.task, new.on, new.type)):
        if way := _way(ahead, other, moment):
            cycle = (moment[0], *way)
            at = cycle.index(new.task)
            found.append((*cycle[at:-1], *cycle[:at], new.task))
    return min(found, key=len, default=None)


def _way(ahead: Mapping[Moment, list[Moment]], start: Moment, end: Moment) -> tuple[str, ...] | None:
    """Return the tasks on the shortest way from `start` to `end`, or None."""
    came: dict[Moment, Moment] = {start: start}
    queue = [start]
    for moment in queue:
        if moment == end:
            way = [moment]
            while way[-1] != start:
                way.append(came[way[-1]])
            return tuple(task for task, _ in reversed(way))
        for other in ahead.get(moment, ()):
            if other not in came:
                came[other] = moment
                queue.append(other)
    return None


def unblocked_by(graph: Graph, task: str) -> tuple[str, ...]:
    """Open tasks that wait for `task`, directly or through a parent, and for nothing else: what its closing frees."""
    direct = list(graph.dependants.get(task, ()))
    touched: dict[str, None] = {}
    while direct:
        current = direct.pop()
        if current not in touched:
            touched[current] = None
            direct += graph.children.get(current, ())
    closed = Graph(
        {**graph.nodes, task: Node(task, "closed", 0, 0)},
        graph.blockers,
        graph.parents,
        graph.children,
        graph.dependants,
    )
    return tuple(sorted(t for t in touched if is_open(graph, t) and find_blockers(closed, t) is None))
