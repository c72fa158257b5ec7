"""The task graph, pure: what is blocked and why, what is ready, what would be a cycle.

Semantics. A task waits for the target of each of its `blocks` edges until that is closed. A `parent-child` edge
makes the task a child of its target: a child of a blocked parent is blocked too, for the parent's reasons, and a
parent with an open child is not ready. `related` and `discovered-from` never count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

BLOCKS, PARENT, RELATED, DISCOVERED = "blocks", "parent-child", "related", "discovered-from"
EDGE_TYPES = (BLOCKS, PARENT, RELATED, DISCOVERED)
Steps: TypeAlias = Callable[[str], list[tuple[str, str]]]  # a task → (what it waits for, why)


@dataclass(frozen=True, slots=True)
class Node:
    """`order` sorts equal priorities: the older first."""

    id: str
    status: str
    priority: int
    order: int


@dataclass(frozen=True, slots=True)
class Edge:
    """`task` waits for `on` (type blocks), or is a child of it (parent-child)."""

    task: str
    on: str
    type: str = BLOCKS


@dataclass(frozen=True, slots=True)
class Blocked:
    """`by` are the task's own open blockers, `inherited` pairs (blocked ancestor, what blocks that)."""

    by: tuple[str, ...] = ()
    inherited: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Graph:
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


def blocked(graph: Graph, task: str) -> Blocked | None:
    """Why `task` cannot be worked on; None where nothing blocks it. A closed task is never blocked."""
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
    own = open_blockers(graph, task)
    return Blocked(own, tuple(sorted(inherited))) if own or inherited else None


def ready(graph: Graph) -> list[str]:
    """Open, unclaimed, unblocked tasks without an open child: the most urgent first, then the oldest."""
    found = [
        n
        for n in graph.nodes.values()
        if n.status == "open" and not open_children(graph, n.id) and blocked(graph, n.id) is None
    ]
    return [n.id for n in sorted(found, key=lambda n: (n.priority, n.order))]


def find_cycle(edges: Iterable[Edge], new: Edge) -> tuple[str, ...] | None:
    """The cycle that `new` would close over blocks and parent-child edges, as `a, b, …, a`; None if it is fine."""
    if new.type not in (BLOCKS, PARENT):
        return None
    if new.task == new.on:
        return (new.task, new.task)
    after: dict[str, list[str]] = {}
    for edge in edges:
        if edge.type in (BLOCKS, PARENT):
            after.setdefault(edge.task, []).append(edge.on)
    came_from: dict[str, str] = {new.on: new.task}
    queue = [new.on]
    for task in queue:
        for target in after.get(task, ()):
            if target == new.task:
                path = [task]
                while path[-1] != new.on:
                    path.append(came_from[path[-1]])
                return (new.task, *reversed(path), new.task)
            if target not in came_from:
                came_from[target] = task
                queue.append(target)
    return None


def any_cycle(edges: Iterable[Edge]) -> tuple[str, ...] | None:
    """A cycle over blocks and parent-child edges, as `a, b, …, a`; None where there is none."""
    after: dict[str, list[str]] = {}
    for edge in edges:
        if edge.type in (BLOCKS, PARENT):
            after.setdefault(edge.task, []).append(edge.on)
    done: set[str] = set()
    for start in after:
        path: dict[str, None] = {}  # what is being walked, in its order
        stack = [(start, iter(after[start]))] if start not in done else []
        path.update(dict.fromkeys(t for t, _ in stack))
        while stack:
            task, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                stack.pop()
                del path[task]
                done.add(task)
            elif target in path:
                walked = list(path)
                return (*walked[walked.index(target) :], target)
            elif target not in done:
                path[target] = None
                stack.append((target, iter(after.get(target, ()))))
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
    return tuple(sorted(t for t in touched if is_open(graph, t) and blocked(closed, t) is None))


def shortest_chain(start: str, goal: Callable[[str], bool], steps: Steps) -> list[tuple[str, str]] | None:
    """The shortest way from a task over what it waits for to one that meets `goal`: pairs of a task and why the one
    before waits for it ("" for the first). None where no way leads there."""
    came: dict[str, tuple[str, str]] = {start: ("", "")}
    queue = [start]
    for task in queue:
        if goal(task):
            chain = [task]
            while chain[-1] != start:
                chain.append(came[chain[-1]][0])
            return [(t, came[t][1]) for t in reversed(chain)]
        for target, why in steps(task):
            if target not in came:
                came[target] = (task, why)
                queue.append(target)
    return None
