"""Check what the store keeps beside the tasks themselves: for `sakti db check`.

Raw SQL: the checks look at a file without peewee.
"""

from __future__ import annotations

from sakti.store.connection import Connection
from sakti.store.tasks import graph

_LIVE = "{0}.status != 'closed' AND {0}.deleted_at IS NULL"
_COUNTED = f"""
SELECT DISTINCT t.resource_id FROM tasks t WHERE t.own_blockers != (
    SELECT count(*) FROM task_dependencies d JOIN tasks b ON b.id = d.depends_on
    WHERE d.task_id = t.id AND d.type = 'blocks' AND {_LIVE.format("b")})
  OR t.open_children != (
    SELECT count(*) FROM task_dependencies d JOIN tasks c ON c.id = d.task_id
    WHERE d.depends_on = t.id AND d.type = 'parent-child' AND {_LIVE.format("c")})
  OR t.held != (t.own_blockers > 0 OR EXISTS (
    SELECT 1 FROM task_dependencies d JOIN tasks p ON p.id = d.depends_on
    WHERE d.task_id = t.id AND d.type = 'parent-child' AND p.deleted_at IS NULL AND p.held = 1))"""
_TALLIED = """
SELECT resource_id FROM (
  SELECT resource_id, state, type, count(*) AS n FROM tasks GROUP BY 1, 2, 3
  EXCEPT SELECT resource_id, state, type, count FROM task_counts)
UNION SELECT resource_id FROM (
  SELECT resource_id, state, type, count FROM task_counts WHERE count != 0
  EXCEPT SELECT resource_id, state, type, count(*) FROM tasks GROUP BY 1, 2, 3)"""


def find_stale(db: Connection) -> list[str]:
    """Return the workspaces in which a cached column or count differs from the rows."""
    return [r[0] for r in db.execute_sql(f"{_COUNTED} UNION {_TALLIED}").fetchall()]


def task_ids(db: Connection, resource_id: str) -> list[str]:
    """Return the ids of all tasks of a workspace, deleted ones too."""
    return [i for (i,) in db.execute_sql("SELECT id FROM tasks WHERE resource_id = ? ORDER BY pk", (resource_id,))]


def tally(db: Connection, resource_id: str) -> None:
    """Recount the tasks of a workspace by state."""
    db.execute_sql("DELETE FROM task_counts WHERE resource_id = ?", (resource_id,))
    db.execute_sql(
        "INSERT INTO task_counts SELECT resource_id, state, type, count(*) FROM tasks WHERE resource_id = ?"
        " GROUP BY 1, 2, 3",
        (resource_id,),
    )


def count_again(db: Connection, resource_id: str) -> None:
    """Recompute the cached columns and the counts of a workspace in one go."""
    graph.refresh_all(db, resource_id)
    tally(db, resource_id)
