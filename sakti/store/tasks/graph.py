"""Track blocked tasks: three cached columns in `tasks`, and walks that read only needed rows.

Problem. Whether a task can be started depends on its own blockers and on those of every ancestor. Computed for each
of 50,000 tasks with 100,000 edges that takes seconds, and a board needs it after every change.

Design. Each task carries `own_blockers` (open tasks it waits for), `open_children` and `held` (it or an ancestor
waits for an open task). They are changed in the transaction that changes a status, an edge or a deletion, never
later, so a reader sees a state and its cache together. `state` (a generated column) is the task's column on the
board, an index has each state in its order, and `task_counts` how many there are: a query reads the rows that it
returns and no others.

Semantics. A task waits for the target of each of its `blocks` edges until that is closed. A `parent-child` edge makes
it a child of its target: a child of a blocked parent is blocked too, and a parent with an open child is not ready;
`related` and `discovered-from` never count (a property test compares all that with a plain computation). `held` does
not depend on the task's own status: a closed task is never shown as blocked, but its children still wait for what it
waited for, and reopening it needs no computation.

Edge cases. A task with two parents is held while either is. A deleted task blocks nothing and passes nothing on.
Counts are counted again rather than added to, so a change that is applied twice changes nothing. Spreading stops
where `held` does not change, and edges form no cycle, so it ends.

Numbers (50,000 tasks, 100,000 edges, CPU p50 on two old cores): ready 1.4 ms, list 4.5, search 3.8, create 1.4, close
1.3; a change costs the tasks it touches, so closing a blocker of an epic of thousands costs those thousands. `python
-m tests.bench tasks` measures it here.

Raw SQL: recursive walks, and counts at every change of a task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from sakti.store.connection import Connection
from sakti.store.tasks.deadlocks import BLOCKS, PARENT, Node

_LIVE = "{0}.status != 'closed' AND {0}.deleted_at IS NULL"
_COUNTED = f"""
UPDATE tasks SET
  own_blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks b ON b.id = d.depends_on
    WHERE d.task_id = tasks.id AND d.type = 'blocks' AND {_LIVE.format("b")}),
  open_children = (SELECT count(*) FROM task_dependencies d JOIN tasks c ON c.id = d.task_id
    WHERE d.depends_on = tasks.id AND d.type = 'parent-child' AND {_LIVE.format("c")})
WHERE id IN (SELECT value FROM json_each(?))"""
_FLIPPED = """
UPDATE tasks SET held = 1 - held
WHERE id IN (SELECT value FROM json_each(?)) AND held != (own_blockers > 0 OR EXISTS (
  SELECT 1 FROM task_dependencies d JOIN tasks p ON p.id = d.depends_on
  WHERE d.task_id = tasks.id AND d.type = 'parent-child' AND p.deleted_at IS NULL AND p.held = 1))
RETURNING id, held"""

_WAITED_FOR = f"""
SELECT w.value, b.id, 0 FROM json_each(?1) w
  CROSS JOIN task_dependencies d ON d.task_id = w.value AND d.type = 'blocks'
  CROSS JOIN tasks b ON b.id = d.depends_on AND {_LIVE.format("b")}
UNION ALL SELECT w.value, c.id, 0 FROM json_each(?2) w
  CROSS JOIN task_dependencies d ON d.depends_on = w.value AND d.type = 'parent-child'
  CROSS JOIN tasks c ON c.id = d.task_id AND {_LIVE.format("c")}
UNION ALL SELECT w.value, p.id, 1 FROM json_each(?1) w
  CROSS JOIN task_dependencies d ON d.task_id = w.value AND d.type = 'parent-child'
  CROSS JOIN tasks p ON p.id = d.depends_on AND p.deleted_at IS NULL AND p.held = 1"""
_OF_TASK, _OF_TARGET = "task_id", "depends_on"
_STALE_COUNTS = f"""
SELECT DISTINCT t.resource_id FROM tasks t WHERE t.own_blockers != (
    SELECT count(*) FROM task_dependencies d JOIN tasks b ON b.id = d.depends_on
    WHERE d.task_id = t.id AND d.type = 'blocks' AND {_LIVE.format("b")})
  OR t.open_children != (
    SELECT count(*) FROM task_dependencies d JOIN tasks c ON c.id = d.task_id
    WHERE d.depends_on = t.id AND d.type = 'parent-child' AND {_LIVE.format("c")})
  OR t.held != (t.own_blockers > 0 OR EXISTS (
    SELECT 1 FROM task_dependencies d JOIN tasks p ON p.id = d.depends_on
    WHERE d.task_id = t.id AND d.type = 'parent-child' AND p.deleted_at IS NULL AND p.held = 1))"""
_STALE_TALLIES = """
SELECT resource_id FROM (
  SELECT resource_id, state, type, count(*) AS n FROM tasks GROUP BY 1, 2, 3
  EXCEPT SELECT resource_id, state, type, count FROM task_counts)
UNION SELECT resource_id FROM (
  SELECT resource_id, state, type, count FROM task_counts WHERE count != 0
  EXCEPT SELECT resource_id, state, type, count(*) FROM tasks GROUP BY 1, 2, 3)"""


def _list_ids(db: Connection, sql: str, values: Sequence[object] = ()) -> list[str]:
    """Return the first column of a statement's rows."""
    # SQL: walks edges without peewee, whose import takes 60 ms; one statement for a level
    return [row[0] for row in db.execute_sql(sql, values)]


def refresh(db: Connection, task_ids: Iterable[str]) -> dict[str, bool]:
    """Recount these tasks and spread the result to their descendants.

    The value is what `held` is now.
    """
    frontier = list(dict.fromkeys(task_ids))
    if not frontier:
        return {}
    # SQL: one statement for all ids, which are one parameter
    db.execute_sql(_COUNTED, (json.dumps(frontier),))
    changed: dict[str, bool] = {}
    while frontier:
        # SQL: one statement for all ids, which are one parameter
        flipped = db.execute_sql(_FLIPPED, (json.dumps(frontier),)).fetchall()
        changed.update((task, bool(held)) for task, held in flipped)
        frontier = _find_children(db, [task for task, _ in flipped])
    return changed


def refresh_around(db: Connection, task_id: str) -> dict[str, bool]:
    """Refresh after a task's status or deletion changed: the task, its dependents, parents and children."""
    around = _list_ids(
        db,
        "SELECT task_id FROM task_dependencies WHERE depends_on = ?1 AND type IN ('blocks', 'parent-child')"
        " UNION SELECT depends_on FROM task_dependencies WHERE task_id = ?1 AND type = 'parent-child'",
        (task_id,),
    )
    return refresh(db, [task_id, *around])


def refresh_all(db: Connection, resource_id: str) -> None:
    """Refresh every task of a workspace, after an import."""
    refresh(db, list_task_ids(db, resource_id))


def _find_children(db: Connection, task_ids: list[str]) -> list[str]:
    if not task_ids:
        return []
    return _list_ids(
        db,
        "SELECT DISTINCT d.task_id FROM json_each(?) j CROSS JOIN task_dependencies d ON d.depends_on = j.value"
        " AND d.type = 'parent-child'",
        (json.dumps(task_ids),),
    )


def find_reasons(db: Connection, task_ids: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """Return what blocks each of these tasks: pairs (via, by).

    `via` is the task itself or an ancestor of it that waits for the open task `by`.

    CROSS JOIN fixes the order of the joins: without statistics the planner begins at all edges instead.
    """
    # SQL: a recursive walk over edges
    rows = db.execute_sql(
        "WITH RECURSIVE up (root, id) AS (SELECT value, value FROM json_each(?) UNION"
        " SELECT up.root, d.depends_on FROM up"
        " CROSS JOIN task_dependencies d ON d.task_id = up.id AND d.type = 'parent-child'"
        " CROSS JOIN tasks p ON p.id = d.depends_on AND p.deleted_at IS NULL)"
        " SELECT up.root, up.id, b.id FROM up"
        " CROSS JOIN task_dependencies d ON d.task_id = up.id AND d.type = 'blocks'"
        f" CROSS JOIN tasks b ON b.id = d.depends_on AND {_LIVE.format('b')}"
        " ORDER BY up.root, up.id != up.root, up.id, b.id",
        (json.dumps(list(task_ids)),),
    ).fetchall()
    out: dict[str, list[tuple[str, str]]] = {}
    for root, via, by in rows:
        out.setdefault(root, []).append((via, by))
    return out


def find_waited_for(db: Connection, seeds: Sequence[tuple[str, int]], most: int) -> dict[str, tuple[int, str]]:
    """Return the tasks that `seeds` (id, priority) wait for, with the best priority and the waiting task.

    A task waits for its blockers, those of its ancestors, and its children; so do those that it waits for. Ends after
    about `most` tasks.
    """
    out: dict[str, tuple[int, str]] = {}
    seen: set[tuple[str, int]] = set()
    for priority in sorted({p for _, p in seeds}):
        frontier = {(task, 0): task for task, p in seeds if p == priority}
        while (new := {at: seed for at, seed in frontier.items() if at not in seen}) and len(seen) < most:
            seen.update(new)
            frontier = _step_down(db, new)
            for (task, is_ancestor), seed in frontier.items():
                if not is_ancestor:
                    out.setdefault(task, (priority, seed))
    return out


def _step_down(db: Connection, tasks: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """Return the tasks that tasks wait for, each with the task's seed; for an ancestor (1) only blockers."""
    seeds = {task: seed for (task, _), seed in tasks.items()}
    waiting = [task for task, is_ancestor in tasks if not is_ancestor]
    # SQL: one statement for all ids, which are one parameter
    rows = db.execute_sql(_WAITED_FOR, (json.dumps(list(seeds)), json.dumps(waiting))).fetchall()
    return {(other, is_ancestor): seeds[task] for task, other, is_ancestor in reversed(rows)}


def list_open_children(db: Connection, task_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the open children of tasks that have any, oldest first."""
    # SQL: one statement for all ids, which are one parameter
    rows = db.execute_sql(
        "SELECT d.depends_on, c.id FROM json_each(?) j CROSS JOIN task_dependencies d ON d.depends_on = j.value"
        f" AND d.type = 'parent-child' CROSS JOIN tasks c ON c.id = d.task_id AND {_LIVE.format('c')}"
        " ORDER BY c.created_at, c.pk",
        (json.dumps(list(task_ids)),),
    )
    out: dict[str, list[str]] = {}
    for parent, child in rows:
        out.setdefault(parent, []).append(child)
    return out


def find_epics_to_reopen(db: Connection, resource_id: str, task_ids: Iterable[str] | None = None) -> list[str]:
    """Return the closed epics with an open child: all, or those among `task_ids` and their parents."""
    among, values = "", [resource_id]
    if task_ids is not None:
        among = " AND (e.id IN (SELECT value FROM json_each(?)) OR d.task_id IN (SELECT value FROM json_each(?)))"
        values += [json.dumps(list(task_ids))] * 2
    return _list_ids(
        db,
        "SELECT DISTINCT e.id FROM tasks e CROSS JOIN task_dependencies d ON d.depends_on = e.id"
        f" AND d.type = 'parent-child' CROSS JOIN tasks c ON c.id = d.task_id AND {_LIVE.format('c')}"
        f" WHERE e.resource_id = ? AND e.type = 'epic' AND e.status = 'closed' AND e.deleted_at IS NULL{among}",
        values,
    )


def find_containers(db: Connection, task_ids: Iterable[str]) -> set[str]:
    """Return those of these tasks that have children, whatever their state."""
    parents = _list_ids(
        db,
        "SELECT DISTINCT d.depends_on FROM json_each(?) j CROSS JOIN task_dependencies d ON d.depends_on = j.value"
        " AND d.type = 'parent-child' CROSS JOIN tasks c ON c.id = d.task_id AND c.deleted_at IS NULL",
        (json.dumps(list(task_ids)),),
    )
    return set(parents)


def find_finished_containers(db: Connection, task_id: str) -> list[str]:
    """Return the unblocked open parents of a task whose children are all closed, oldest first."""
    return _list_ids(
        db,
        "SELECT t.id FROM task_dependencies d CROSS JOIN tasks t ON t.id = d.depends_on WHERE d.task_id = ?"
        " AND d.type = 'parent-child' AND t.status != 'closed' AND t.deleted_at IS NULL AND t.open_children = 0"
        " AND t.held = 0 ORDER BY t.created_at",
        (task_id,),
    )


def list_edges_of(db: Connection, task_id: str) -> list[tuple[str, str, str]]:
    """Return (task, depends on, type) of a task's edges to live tasks, in both directions."""
    # SQL: walks edges without peewee; one statement for a level
    return db.execute_sql(
        "SELECT d.task_id, d.depends_on, d.type FROM (SELECT * FROM task_dependencies WHERE task_id = ?1"
        " UNION SELECT * FROM task_dependencies WHERE depends_on = ?1) d"
        " CROSS JOIN tasks a ON a.id = d.task_id AND a.deleted_at IS NULL"
        " CROSS JOIN tasks b ON b.id = d.depends_on AND b.deleted_at IS NULL"
        " ORDER BY d.type, d.task_id, d.depends_on",
        (task_id,),
    ).fetchall()


def list_edges(db: Connection, resource_id: str) -> list[tuple[str, str, str]]:
    """Return (task, depends on, type) of a workspace's live tasks, in the order of creation."""
    # SQL: walks edges without peewee; one statement for a level
    return db.execute_sql(
        "SELECT d.task_id, d.depends_on, d.type FROM tasks a CROSS JOIN task_dependencies d ON d.task_id = a.id"
        " CROSS JOIN tasks b ON b.id = d.depends_on AND b.deleted_at IS NULL"
        " WHERE a.resource_id = ? AND a.deleted_at IS NULL ORDER BY a.pk, d.created_at, d.depends_on",
        (resource_id,),
    ).fetchall()


def list_parts_among(db: Connection, task_ids: Iterable[str]) -> list[tuple[str, str]]:
    """Return (child, parent) of the edges between these tasks."""
    tasks = list(task_ids)
    edges = _load_edges(db, tasks, _OF_TASK)
    return [(task, on) for task, on, kind in edges if kind == PARENT and on in tasks]


# --- who waits for whom -----------------------------------------------------------------------------------


def find_deadlock(db: Connection, task: str, on: str, kind: str) -> tuple[str, ...] | None:
    """Return the shortest cycle `task, …, task` that the edge would close, or None.

    Begins and ends are separate nodes (`deadlocks`). The search runs from both sides, the smaller frontier first: a
    task that nothing waits for ends it at once.
    """
    if task == on:
        return (task, task)
    if kind == BLOCKS:
        path = _find_path(db, (on, True), ((task, False), (task, True)))
        return None if path is None else (task, *path)
    down = _find_path(db, (on, False), ((task, False), (task, True)))
    up = _find_path(db, (task, True), ((on, True),))
    paths = [(task, *p) for p in (down,) if p] + [(*p, task) for p in (up,) if p]
    return min(paths, key=len, default=None)


def find_deadlock_at(db: Connection, task: str) -> tuple[str, ...] | None:
    """Return a cycle `task, …, task` through a task's existing edges, or None."""
    for side in (False, True):
        for first in _list_ahead(db, [(task, side)]):
            if path := _find_path(db, first[1], ((task, side),)):
                return (task, *path)
    return None


def _find_path(db: Connection, start: Node, goals: Sequence[Node]) -> tuple[str, ...] | None:
    """Return the tasks on the shortest path from `start` to one of `goals`, or None."""
    before: dict[Node, Node | None] = {start: None}
    after: dict[Node, Node | None] = dict.fromkeys(goals)
    ahead, behind = [start], list(goals)
    meeting = [n for n in after if n in before]
    while not meeting:
        if not ahead or not behind:
            return None
        # No task waits for a new one, so that walk ends at once.
        if 2 * len(ahead) < len(behind):
            ahead = _visit(_list_ahead(db, ahead), before)
            meeting = [n for n in ahead if n in after]
        else:
            behind = _visit(_list_behind(db, behind), after)
            meeting = [n for n in behind if n in before]
    return min((_join_paths(before, after, n) for n in meeting), key=len)


def _visit(edges: Iterable[tuple[Node, Node]], seen: dict[Node, Node | None]) -> list[Node]:
    """Add the other ends of the edges to `seen`, each with the node before it; return the new ones."""
    frontier: list[Node] = []
    for node, other in edges:
        if other not in seen:
            seen[other] = node
            frontier.append(other)
    return frontier


def _join_paths(before: dict[Node, Node | None], after: dict[Node, Node | None], meeting: Node) -> tuple[str, ...]:
    path: list[Node] = [meeting]
    while (previous := before[path[0]]) is not None:
        path.insert(0, previous)
    while (following := after[path[-1]]) is not None:
        path.append(following)
    return tuple(task for task, _ in path)


def _list_ahead(db: Connection, nodes: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Return pairs of a node and a node that it waits for."""
    out: list[tuple[Node, Node]] = []
    sides = _build_sides(nodes)
    for task, on, kind in _load_edges(db, sides, _OF_TASK):
        out += [((task, side), (on, kind == BLOCKS)) for side in sides[task]]
    ends = {task for task, is_end in nodes if is_end}
    parts = _load_edges(db, ends, _OF_TARGET)
    return out + [((on, True), (task, True)) for task, on, kind in parts if kind == PARENT]


def _list_behind(db: Connection, nodes: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Return pairs of a node and a node that waits for it."""
    out: list[tuple[Node, Node]] = []
    sides = _build_sides(nodes)
    for task, on, kind in _load_edges(db, sides, _OF_TARGET):
        if (kind == BLOCKS) in sides[on]:
            out += [((on, kind == BLOCKS), (task, False)), ((on, kind == BLOCKS), (task, True))]
    ends = {task for task, is_end in nodes if is_end}
    wholes = _load_edges(db, ends, _OF_TASK)
    return out + [((task, True), (on, True)) for task, on, kind in wholes if kind == PARENT]


def _build_sides(nodes: Sequence[Node]) -> dict[str, list[bool]]:
    out: dict[str, list[bool]] = {}
    for task, is_end in nodes:
        out.setdefault(task, []).append(is_end)
    return out


def _load_edges(db: Connection, tasks: Iterable[str], have: str) -> list[tuple[str, str, str]]:
    """Return the edges at these tasks, to live tasks, that make one wait for another."""
    task_list = list(tasks)
    if not task_list:
        return []
    other = _OF_TARGET if have == _OF_TASK else _OF_TASK
    # SQL: one statement for all ids, which are one parameter
    return db.execute_sql(
        "SELECT d.task_id, d.depends_on, d.type FROM json_each(?) j"
        f" CROSS JOIN task_dependencies d ON d.{have} = j.value AND d.type IN ('blocks', 'parent-child')"
        f" CROSS JOIN tasks t ON t.id = d.{other} AND t.deleted_at IS NULL",
        (json.dumps(task_list),),
    ).fetchall()


def find_stale(db: Connection) -> list[str]:
    """Return the workspaces in which a cached column or count differs from the rows."""
    return _list_ids(db, f"{_STALE_COUNTS} UNION {_STALE_TALLIES}")


def list_task_ids(db: Connection, resource_id: str) -> list[str]:
    """Return the ids of all tasks of a workspace, deleted ones too."""
    return _list_ids(db, "SELECT id FROM tasks WHERE resource_id = ? ORDER BY pk", (resource_id,))


def count_states(db: Connection, resource_id: str) -> None:
    """Recount the tasks of a workspace by state."""
    # SQL: runs without peewee, whose import takes 60 ms
    db.execute_sql("DELETE FROM task_counts WHERE resource_id = ?", (resource_id,))
    # SQL: walks edges without peewee; one statement for a level
    db.execute_sql(
        "INSERT INTO task_counts SELECT resource_id, state, type, count(*) FROM tasks WHERE resource_id = ?"
        " GROUP BY 1, 2, 3",
        (resource_id,),
    )


def recount(db: Connection, resource_id: str) -> None:
    """Recompute the cached columns and the counts of a workspace in one go."""
    refresh_all(db, resource_id)
    count_states(db, resource_id)
