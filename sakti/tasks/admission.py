"""Admit the edges of an import into the graph one by one, except those that would break it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from sakti.store.connection import Connection
from sakti.store.tasks import graph, questions
from sakti.store.tasks.deadlocks import Edge, WaitGraph
from sakti.tasks import graph as g


class RefusedEdge(Struct, frozen=True):
    """Reason for leaving out an edge.

    `cycle` are the handles `a, …, a` of the tasks that would wait for each other.
    """

    reason: str
    cycle: tuple[str, ...] = ()


class Gate:
    """Edges of a workspace, checked one by one; `coming` are the edges that will be checked."""

    def __init__(self, db: Connection, resource_id: str, coming: Iterable[Edge]) -> None:
        self._db = db
        self._waiting = WaitGraph(graph.edges(db, resource_id), coming)
        self._epics = questions.of_type(db, resource_id, "epic")

    def admit(self, edge: Edge) -> RefusedEdge | None:
        """Return the reason to refuse an edge, or admit it and return None."""
        task, on, kind = edge
        if kind not in (g.BLOCKS, g.PARENT):
            return RefusedEdge("a task cannot depend on itself") if task == on else None
        if kind == g.PARENT and task in self._epics and on not in self._epics:
            return RefusedEdge("an epic can only be part of another epic")
        cycle = self._waiting.add(edge)
        if cycle is None:
            return None
        names = questions.handles(self._db, cycle)
        path = tuple(names[t] for t in cycle)
        return RefusedEdge(f"it would create a cycle: {' → '.join(path)}", path)
