"""Remember the folder of each workspace, and move a workspace's data to another.

Raw SQL: a move rewrites a column of many tables at once.
"""

from __future__ import annotations

import itertools

import msgspec
from msgspec import Struct

from sakti.store import rows, user_state
from sakti.store.connection import Connection, Database
from sakti.store.models import UiStateRow

_KEY = "workspace:"  # of ui_state, before the root
# What belongs to threads, board and page. Approval rules stay: they are part of the trust in a folder.
_MOVED = (
    "threads", "messages", "observations", "compaction_records", "observational_memory", "tasks", "task_events",
    "search_docs", "prompt_history", "unsent",
)  # fmt: skip


class KnownFolder(Struct, frozen=True):
    """Identity of a workspace's folder; `first_commit` is that of its repository, "" if it is not known."""

    root: str
    name: str
    device: int
    inode: int
    first_commit: str = ""

    def is_same(self, other: KnownFolder) -> bool:
        """Return whether another root may be the same folder under an earlier name."""
        if (self.device, self.inode) == (other.device, other.inode):
            return True
        return bool(self.first_commit) and (self.name, self.first_commit) == (other.name, other.first_commit)


class Holdings(Struct, frozen=True):
    """Number of threads and tasks of a workspace, and whether it has a page."""

    root: str
    threads: int
    tasks: int
    page: bool

    @property
    def is_empty(self) -> bool:
        return not (self.threads or self.tasks or self.page)


def get(db: Connection, root: str) -> KnownFolder | None:
    """Return the folder that a workspace was last opened in."""
    row = db.execute_sql("SELECT value FROM ui_state WHERE key = ?", (_KEY + root,)).fetchone()
    return msgspec.json.decode(row[0], type=KnownFolder) if row else None


def remember(db: Database, folder: KnownFolder) -> None:
    """Store the folder of a workspace."""
    user_state.set_ui_state(db, _KEY + folder.root, msgspec.json.encode(folder).decode())


def same_folders(db: Connection, folder: KnownFolder) -> list[Holdings]:
    """Return the other workspaces that may have been this folder, if anything is stored under them."""
    stored = db.execute_sql("SELECT value FROM ui_state WHERE substr(key, 1, ?) = ?", (len(_KEY), _KEY)).fetchall()
    others = [msgspec.json.decode(value, type=KnownFolder) for (value,) in stored]
    same = [holdings(db, other.root) for other in others if other.root != folder.root and folder.is_same(other)]
    return [holding for holding in same if not holding.is_empty]


def holdings(db: Connection, root: str) -> Holdings:
    """Count a workspace's data."""
    row = db.execute_sql(
        "SELECT (SELECT count(*) FROM threads WHERE resource_id = ?1 AND deleted_at IS NULL),"
        " (SELECT count(*) FROM tasks WHERE resource_id = ?1 AND deleted_at IS NULL),"
        " EXISTS (SELECT 1 FROM working_memory WHERE scope = 'resource' AND owner_id = ?1)",
        (root,),
    ).fetchone()
    return Holdings(root, row[0], row[1], bool(row[2]))


def adopt(db: Database, old: str, new: str) -> Holdings:
    """Move threads, tasks and page of one workspace to another in one transaction.

    A task whose handle is taken gets another one. If both have a page, the old one's text is added to the newer.
    """
    moved = holdings(db, old)
    _free_handles(db, old, new)
    db.execute_sql(
        "UPDATE observational_memory SET lookup_key = 'resource:' || ?2 WHERE lookup_key = 'resource:' || ?1"
        " AND NOT EXISTS (SELECT 1 FROM observational_memory WHERE lookup_key = 'resource:' || ?2)",
        (old, new),
    )
    _move_page(db, old, new)
    for table in _MOVED:
        db.execute_sql(f"UPDATE {table} SET resource_id = ? WHERE resource_id = ?", (new, old))
    db.execute_sql("DELETE FROM task_counts WHERE resource_id IN (?, ?)", (old, new))
    db.execute_sql(
        "INSERT INTO task_counts SELECT resource_id, state, type, count(*) FROM tasks WHERE resource_id = ?"
        " GROUP BY 1, 2, 3",
        (new,),
    )
    rows.delete(db, UiStateRow, key=_KEY + old)
    return moved


def _free_handles(db: Database, old: str, new: str) -> None:
    """Give those tasks of `old` another handle whose own is taken in `new`."""
    sql = "SELECT handle FROM tasks WHERE resource_id = ?"
    taken, mine = ({handle for (handle,) in db.execute_sql(sql, (root,)).fetchall()} for root in (new, old))
    for handle in sorted(taken & mine):
        free = next(name for n in itertools.count(2) if (name := f"{handle}-{n}") not in taken | mine)
        mine.add(free)
        db.execute_sql("UPDATE tasks SET handle = ? WHERE resource_id = ? AND handle = ?", (free, old, handle))


def _move_page(db: Database, old: str, new: str) -> None:
    newest = (
        "SELECT content, version FROM working_memory WHERE scope = 'resource' AND owner_id = ?"
        " ORDER BY version DESC LIMIT 1"
    )
    source, target = (db.execute_sql(newest, (root,)).fetchone() for root in (old, new))
    if source is None:
        return
    if target is None:
        db.execute_sql("UPDATE working_memory SET owner_id = ? WHERE scope = 'resource' AND owner_id = ?", (new, old))
        db.execute_sql(
            "UPDATE search_docs SET doc_id = 'resource:' || ?2 WHERE kind = 'working_memory'"
            " AND doc_id = 'resource:' || ?1",
            (old, new),
        )
        return
    content = "\n\n".join(filter(None, (target[0].strip(), source[0].strip())))
    db.execute_sql(
        "UPDATE working_memory SET owner_id = ?, version = version + ? WHERE scope = 'resource' AND owner_id = ?",
        (new, target[1], old),
    )
    db.execute_sql(
        "UPDATE working_memory SET content = ?, tokens = tokens + coalesce((SELECT tokens FROM working_memory"
        " WHERE scope = 'resource' AND owner_id = ?2 AND version = ?3), 0)"
        " WHERE scope = 'resource' AND owner_id = ?2 AND version = ?4",
        (content, new, target[1], target[1] + source[1]),
    )
    db.execute_sql("DELETE FROM search_docs WHERE kind = 'working_memory' AND doc_id = 'resource:' || ?", (old,))
    db.execute_sql(
        "UPDATE search_docs SET text = ? WHERE kind = 'working_memory' AND doc_id = 'resource:' || ?", (content, new)
    )
