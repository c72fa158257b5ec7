"""What the queries answer of cycles and of what a closing frees, worked out in the plainest way from a whole graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sakti.store.tasks.deadlocks import BLOCKS, PARENT, waits
from sakti.store.tasks.deadlocks import Node as Moment
from sakti.tasks.graph import Edge, Graph, Node, find_blockers, is_open


def find_cycle(edges: Iterable[Edge], new: Edge) -> tuple[str, ...] | None:
    """Return the shortest cycle of waiting that `new` would close, as `a, b, …, a`; None if it is fine."""
    if new.task == new.on and new.type in (BLOCKS, PARENT):
        return (new.task, new.task)
    ahead: dict[Moment, list[Moment]] = {}
    for edge in edges:
        for moment, other in waits((edge.task, edge.on, edge.type)):
            ahead.setdefault(moment, []).append(other)
    found: list[tuple[str, ...]] = []
    for moment, other in waits((new.task, new.on, new.type)):
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
