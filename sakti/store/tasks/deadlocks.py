"""Detect deadlocks of the task graph before they are added. Pure, except for `find_deadlocks`.

A task has a begin and an end. It begins after the end of each task that it waits for (blocks), and not before what
its parent's begin waits for; it ends after its own begin, and a container after its children. So in `x part of E, x
waits for y` the edge `y waits for E` is refused, though no arrow leads from E to x: E's end waits for x's.

A node is (task, is_end). The step from an end to its own begin is left out: an end waits for everything that its begin
waits for. Status does not count: a closed task can be reopened.

Raw SQL: one recursive walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec import Struct

from sakti.store.connection import Connection

BLOCKS, PARENT, RELATED, DISCOVERED = EDGE_TYPES = ("blocks", "parent-child", "related", "discovered-from")
Node: TypeAlias = tuple[str, bool]
Edge: TypeAlias = tuple[str, str, str]  # task, depends on, type


def list_waits(edge: Edge) -> tuple[tuple[Node, Node], ...]:
    """Return pairs of nodes: because of this edge the first waits for the second."""
    task, on, kind = edge
    if kind == BLOCKS:
        return ((task, False), (on, True)), ((task, True), (on, True))
    if kind == PARENT:
        return ((task, False), (on, False)), ((task, True), (on, False)), ((on, True), (task, True))
    return ()


class WaitGraph:
    """Acyclic graph to which edges are added one by one.

    A topological order is kept, and repaired only between the ends of an edge that contradicts it (Pearce and Kelly,
    A dynamic topological sort algorithm, 2006); a walk at each edge would make an import of 100,000 of them take
    hours. `existing` are present edges, `coming` those that will be added: an initial order that suits most of them
    needs little repair.
    """

    def __init__(self, existing: Iterable[Edge], coming: Iterable[Edge] = ()) -> None:
        self._ahead: dict[Node, list[Node]] = {}
        self._behind: dict[Node, list[Node]] = {}
        existing = list(existing)
        self._rank = _compute_first_order([*existing, *coming])
        for edge in existing:
            self.add(edge)

    def add(self, edge: Edge) -> tuple[str, ...] | None:
        """Add an edge; return None, or the tasks `a, …, a` of the cycle that it would close."""
        if edge[0] == edge[1]:
            return (edge[0], edge[0])
        done: list[tuple[Node, Node]] = []
        for node, other in list_waits(edge):
            cycle = self._connect(node, other)
            if cycle is not None:
                for a, b in done:
                    self._ahead[a].remove(b)
                    self._behind[b].remove(a)
                return _rotate(edge[0], cycle)
            done.append((node, other))
        return None

    def _connect(self, node: Node, other: Node) -> tuple[str, ...] | None:
        rank = self._rank
        for each in (node, other):
            rank.setdefault(each, len(rank))
        if rank[other] > rank[node]:
            earlier = self._walk(other, self._ahead, lowest=rank[node])
            if node in earlier:
                path = [node]
                while path[-1] != other:
                    path.append(earlier[path[-1]])
                return (node[0], *(task for task, _ in reversed(path)))
            later = self._walk(node, self._behind, highest=rank[other])
            moved = [*sorted(earlier, key=rank.__getitem__), *sorted(later, key=rank.__getitem__)]
            for each, place in zip(moved, sorted(rank[n] for n in moved), strict=True):
                rank[each] = place
        self._ahead.setdefault(node, []).append(other)
        self._behind.setdefault(other, []).append(node)
        return None

    def _walk(
        self, start: Node, steps: dict[Node, list[Node]], *, lowest: int = -1, highest: int = 1 << 62
    ) -> dict[Node, Node]:
        """Return the nodes reached within these ranks, each with its predecessor."""
        predecessors = {start: start}
        stack = [start]
        while stack:
            node = stack.pop()
            for other in steps.get(node, ()):
                if other not in predecessors and lowest <= self._rank[other] <= highest:
                    predecessors[other] = node
                    stack.append(other)
        return predecessors


def _rotate(task: str, cycle: tuple[str, ...]) -> tuple[str, ...]:
    """Rotate a cycle `b, a, c, b` so that it begins and ends with `task`."""
    at = cycle.index(task)
    return (*cycle[at:-1], *cycle[:at], task)


def _build_graph(edges: Iterable[Edge]) -> dict[Node, list[Node]]:
    ahead: dict[Node, list[Node]] = {}
    for edge in edges:
        for node, other in list_waits(edge):
            ahead.setdefault(node, []).append(other)
            ahead.setdefault(other, [])
    return ahead


def _compute_first_order(edges: Iterable[Edge]) -> dict[Node, int]:
    """Return a rank for each node, below those of the nodes waiting for it if possible (depth first)."""
    ahead = _build_graph(edges)
    rank: dict[Node, int] = {}
    entered: set[Node] = set()
    for start in ahead:
        if start in entered:
            continue
        entered.add(start)
        stack: list[tuple[Node, Iterator[Node]]] = [(start, iter(ahead[start]))]
        while stack:
            node, rest = stack[-1]
            following = next((n for n in rest if n not in entered), None)
            if following is None:
                stack.pop()
                rank[node] = len(rank)
            else:
                entered.add(following)
                stack.append((following, iter(ahead[following])))
    return rank


def _find_components(edges: Iterable[Edge]) -> dict[Node, int]:
    """Return the number of each node's strongly connected component (Kosaraju's two walks)."""
    ahead, rank = _build_graph(edges), _compute_first_order(edges)
    behind: dict[Node, list[Node]] = {}
    for node, others in ahead.items():
        for other in others:
            behind.setdefault(other, []).append(node)
    component: dict[Node, int] = {}
    for start in sorted(rank, key=rank.__getitem__, reverse=True):
        if start in component:
            continue
        component[start], stack = rank[start], [start]
        while stack:
            for node in behind.get(stack.pop(), ()):
                if node not in component:
                    component[node] = rank[start]
                    stack.append(node)
    return component


def find_cycles(edges: Iterable[Edge]) -> list[tuple[str, ...]]:
    """Return the cycles among existing edges, one for each edge that closes one.

    Only edges within a component can close one. Components without common edges are handled one by one, so that the
    time stays proportional to their number.
    """
    edges = list(edges)
    component = _find_components(edges)
    within = {e: {component[a] for a, b in list_waits(e) if component[a] == component[b]} for e in edges}
    place = _join_sets(within.values())
    apart: dict[int, WaitGraph] = {}
    all_cycles: list[tuple[str, ...]] = []
    for edge in (e for e in edges if within[e]):
        waiting = apart.setdefault(place(min(within[edge])), WaitGraph(()))
        if (cycle := waiting.add(edge)) is not None:
            all_cycles.append(cycle)
    return all_cycles


def _join_sets(sets: Iterable[set[int]]) -> Callable[[int], int]:
    """Return a function that maps each number to one representative of all that share sets with it."""
    above: dict[int, int] = {}

    def top(number: int) -> int:
        while (higher := above.get(number, number)) != number:
            above[number] = number = above.get(higher, higher)
        return number

    for numbers in sets:
        first, *others = numbers or {-1}
        for other in others:
            above[top(other)] = top(first)
    return top


# --- in a database ----------------------------------------------------------------------------------------


class Deadlock(Struct, frozen=True):
    """Open tasks that wait for each other in a cycle; `path` are handles `a, …, a`."""

    resource_id: str
    path: tuple[str, ...]


def find_deadlocks(db: Connection, resource_id: str | None = None) -> list[Deadlock]:
    """Return the deadlocks of a workspace (None: all), left by versions that did not refuse them."""
    live = "{0}.status != 'closed' AND {0}.deleted_at IS NULL"
    # SQL: runs without peewee, whose import takes 60 ms
    rows = db.execute_sql(
        "SELECT a.resource_id, a.handle, b.handle, d.type FROM task_dependencies d"
        f" CROSS JOIN tasks a ON a.id = d.task_id AND {live.format('a')}"
        f" CROSS JOIN tasks b ON b.id = d.depends_on AND {live.format('b')}"
        " WHERE d.type IN ('blocks', 'parent-child') AND (?1 IS NULL OR a.resource_id = ?1)"
        " ORDER BY d.created_at, a.pk, b.pk",
        (resource_id,),
    )
    edges_of: dict[str, list[Edge]] = {}
    for workspace, task, on, kind in rows:
        edges_of.setdefault(workspace, []).append((task, on, kind))
    return [Deadlock(workspace, path) for workspace, edges in edges_of.items() for path in find_cycles(edges)]
