"""Tasks, their edges, labels, links and the log of what was done to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sakti.store import search_index, task_graph, task_search
from sakti.store.connection import Database

if TYPE_CHECKING:
    from sakti.core.types import Json

_FIELDS = (
    "id",
    "resource_id",
    "handle",
    "title",
    "description",
    "status",
    "priority",
    "type",
    "assignee",
    "session_id",
    "claimed_at",
    "claim_expires_at",
    "thread_id",
    "close_reason",
    "summary",
    "created_at",
    "updated_at",
    "closed_at",
    "compaction_level",
)
_LABELS = "(SELECT json_group_array(l.label ORDER BY l.label) FROM task_labels l WHERE l.task_id = t.id)"
_COLUMNS = f"{', '.join(f't.{f}' for f in _FIELDS)}, {_LABELS}"
FEW = 1_000
_STATE = {"status", "deleted_at"}  # what other tasks' readiness depends on


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `status` is open, in_progress or closed; blocked is computed, never stored. Times in Unix ms."""

    id: str
    resource_id: str
    handle: str
    title: str
    description: str
    status: str
    priority: int
    type: str
    assignee: str | None
    session_id: str | None
    claimed_at: int | None
    claim_expires_at: int | None
    thread_id: str | None
    close_reason: str | None
    summary: str | None
    created_at: int
    updated_at: int
    closed_at: int | None
    compaction_level: int = 0
    labels: tuple[str, ...] = ()


def _task(row: Sequence[Any]) -> Task:
    *values, labels = row
    return Task(*values, labels=tuple(json.loads(labels)))


def insert(db: Database, task: Task) -> None:
    """Add a task with its labels."""
    db.execute_sql(
        f"INSERT INTO tasks ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})",
        tuple(getattr(task, f) for f in _FIELDS),
    )
    set_labels(db, task.id, task.labels)
    _index(db, task)


def update(db: Database, task_id: str, **changes: Any) -> tuple[Task, dict[str, bool]]:
    """Change fields; returns the task, and the tasks that are held from now on (True) or no longer (False)."""
    db.execute_sql(
        f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in changes)} WHERE id = ?", (*changes.values(), task_id)
    )
    moved = task_graph.refresh_around(db, task_id) if _STATE & changes.keys() else {}
    row = db.execute_sql(f"SELECT {_COLUMNS} FROM tasks t WHERE t.id = ?", (task_id,)).fetchone()
    task = _task(row)
    if changes.get("deleted_at") is not None:
        search_index.remove(db, "task", task_id)
    elif {"title", "description", "summary", "deleted_at"} & changes.keys():
        _index(db, task)
    return task, moved


def shrink(db: Database, task: Task, level: int, description: str, summary: str | None, now: int) -> None:
    """Show less of a closed task. What it was is kept once; search goes on covering it whole."""
    db.execute_sql(
        "UPDATE tasks SET original = coalesce(original, ?), description = ?, summary = ?, compaction_level = ?,"
        " compacted_at = ? WHERE id = ?",
        (
            json.dumps({"description": task.description, "summary": task.summary}, ensure_ascii=False),
            description,
            summary,
            level,
            now,
            task.id,
        ),
    )


def unshrink(db: Database, task_id: str, now: int) -> bool:
    """Bring the whole text back; False where it was never shrunk."""
    row = db.execute_sql("SELECT original FROM tasks WHERE id = ? AND original IS NOT NULL", (task_id,)).fetchone()
    if row is None:
        return False
    kept = json.loads(row[0])
    db.execute_sql(
        "UPDATE tasks SET original = NULL, description = ?, summary = ?, compaction_level = 0, compacted_at = ?"
        " WHERE id = ?",
        (kept["description"], kept["summary"], now, task_id),
    )
    return True


def due_to_shrink(db: Database, resource_id: str, first: int, second: int, limit: int) -> list[Task]:
    """Tasks closed (or restored) before `first` that show everything, or before `second` that show a summary."""
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM tasks t WHERE t.resource_id = ?1 AND t.status = 'closed' AND t.deleted_at IS NULL"
        " AND t.closed_at < ?2 AND (t.compaction_level = 0 AND coalesce(t.compacted_at, 0) < ?2"
        " OR t.compaction_level = 1 AND t.closed_at < ?3) LIMIT ?4",
        (resource_id, first, second, limit),
    ).fetchall()
    return [_task(r) for r in rows]


def _index(db: Database, task: Task) -> None:
    rest = "\n".join(t for t in (task.description, task.summary or "") if t)
    (pk,) = db.execute_sql("SELECT pk FROM tasks WHERE id = ?", (task.id,)).fetchone()
    task_search.put(db, pk, task.title, rest)
    text = "\n".join(t for t in (task.title, task.description, task.summary or "") if t)
    search_index.put(
        db,
        kind="task",
        doc_id=task.id,
        resource_id=task.resource_id,
        thread_id=task.thread_id,
        task_id=task.id,
        role="task",
        created_at=task.created_at,
        text=text,
    )


def get(db: Database, task_id: str) -> Task | None:
    row = db.execute_sql(
        f"SELECT {_COLUMNS} FROM tasks t WHERE t.id = ? AND t.deleted_at IS NULL", (task_id,)
    ).fetchone()
    return None if row is None else _task(row)


def get_many(db: Database, task_ids: Iterable[str]) -> dict[str, Task]:
    """Live tasks by id, in the order asked for."""
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM json_each(?) j JOIN tasks t ON t.id = j.value AND t.deleted_at IS NULL ORDER BY j.key",
        (json.dumps(list(task_ids)),),
    ).fetchall()
    return {r[0]: _task(r) for r in rows}


def all_live(db: Database, resource_id: str) -> list[Task]:
    """Every task of the workspace, the oldest first. For exports and tests; questions have queries of their own."""
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM tasks t WHERE t.resource_id = ? AND t.deleted_at IS NULL ORDER BY t.created_at, t.pk",
        (resource_id,),
    ).fetchall()
    return [_task(r) for r in rows]


_WHERE = {
    "ready": "t.status = 'open' AND t.held = 0 AND t.open_children = 0 AND t.deleted_at IS NULL",
    "blocked": "t.status = 'open' AND t.held = 1 AND t.deleted_at IS NULL",
    "in_progress": "t.status = 'in_progress' AND t.deleted_at IS NULL",
}
_INDEX = {"ready": "tasks_ready", "blocked": "tasks_blocked", "in_progress": "tasks_by_status"}


def column(db: Database, resource_id: str, name: str, limit: int) -> list[Task]:
    """The first of a column (ready, blocked, in_progress): most urgent first, then the oldest."""
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM tasks t INDEXED BY {_INDEX[name]} WHERE t.resource_id = ? AND {_WHERE[name]}"
        " ORDER BY t.priority, t.created_at, t.pk LIMIT ?",
        (resource_id, limit),
    ).fetchall()
    return [_task(r) for r in rows]


def column_count(db: Database, resource_id: str, name: str) -> int:
    source = f"tasks t INDEXED BY {_INDEX[name]}"
    (count,) = db.execute_sql(
        f"SELECT count(*) FROM {source} WHERE t.resource_id = ? AND {_WHERE[name]}", (resource_id,)
    ).fetchone()
    return count


def closed_since(db: Database, resource_id: str, since: int, limit: int) -> tuple[list[Task], int]:
    """What was closed at or after `since` (Unix ms), the newest first, and how many there are."""
    where = "t.resource_id = ? AND t.status = 'closed' AND t.deleted_at IS NULL AND t.closed_at >= ?"
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM tasks t WHERE {where} ORDER BY t.closed_at DESC, t.pk DESC LIMIT ?",
        (resource_id, since, limit),
    ).fetchall()
    (total,) = db.execute_sql(f"SELECT count(*) FROM tasks t WHERE {where}", (resource_id, since)).fetchone()
    return [_task(r) for r in rows], total


def select(
    db: Database,
    resource_id: str,
    *,
    status: str | None = None,
    type: str | None = None,
    label: str | None = None,
    assignee: str | None = None,
    limit: int = 20,
    offset: int = 0,
) -> tuple[list[Task], int]:
    """Tasks by what they are, most urgent first, and how many there are. `status` None: not closed; "all": any."""
    where, values = ["t.resource_id = ?", "t.deleted_at IS NULL"], list[object]([resource_id])
    if status is None:
        where.append("t.status != 'closed'")
    elif status != "all":
        where.append("t.status = ?")
        values.append(status)
    for name, value in (("type", type), ("assignee", assignee)):
        if value is not None:
            where.append(f"t.{name} = ?")
            values.append(value)
    clause = " AND ".join(where)
    source = ranked = "tasks t INDEXED BY tasks_by_priority"
    if label is not None:
        # few have it: begin at the label; many have it: the first of the order are found soon
        source = "task_labels l CROSS JOIN tasks t ON t.id = l.task_id AND l.label = ?"
        (have,) = db.execute_sql("SELECT count(*) FROM task_labels WHERE label = ?", (label,)).fetchone()
        ranked = source if have <= FEW else f"{ranked} JOIN task_labels l ON l.task_id = t.id AND l.label = ?"
        values.insert(0, label)
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM {ranked} WHERE {clause} ORDER BY t.priority, t.created_at, t.pk LIMIT ? OFFSET ?",
        (*values, limit, offset),
    ).fetchall()
    (total,) = db.execute_sql(f"SELECT count(*) FROM {source} WHERE {clause}", tuple(values)).fetchone()
    return [_task(r) for r in rows], total


def matching(db: Database, resource_id: str, text: str, *, deleted: bool = False) -> list[Task]:
    """Tasks whose id or handle is `text` or begins with it (at most 20); an exact one alone."""
    alive = "t.deleted_at IS NOT NULL" if deleted else "t.deleted_at IS NULL"
    found: dict[str, Task] = {}
    for clause, values in (
        ("t.id = ?", (text,)),
        ("t.handle = ?", (text,)),
        ("t.handle >= ? AND t.handle < ?", (text, text + chr(0x10FFFF))),
        ("t.id >= ? AND t.id < ?", (text, text + chr(0x10FFFF))),
    ):
        mine = "t.resource_id = ?" if "handle" in clause else "+t.resource_id = ?"  # by the index on the id alone
        rows = db.execute_sql(
            f"SELECT {_COLUMNS} FROM tasks t WHERE {mine} AND {clause} AND {alive} LIMIT 20", (resource_id, *values)
        ).fetchall()
        found.update((r[0], _task(r)) for r in rows)
        if rows and len(values) == 1:
            break
    return list(found.values())[:20]


def exists(db: Database, task_id: str) -> bool:
    """Whether the id is taken in any workspace, deleted ones too."""
    return db.execute_sql("SELECT 1 FROM tasks WHERE id = ?", (task_id,)).fetchone() is not None


def has_handle(db: Database, resource_id: str, handle: str) -> bool:
    row = db.execute_sql("SELECT 1 FROM tasks WHERE resource_id = ? AND handle = ?", (resource_id, handle)).fetchone()
    return row is not None


@dataclass(frozen=True, slots=True)
class Sourced:
    """A task that came from another program; `original` is what it came from."""

    task_id: str
    deleted: bool
    original: Json


def set_metadata(db: Database, task_id: str, metadata: Json) -> None:
    db.execute_sql("UPDATE tasks SET metadata = ? WHERE id = ?", (json.dumps(metadata, ensure_ascii=False), task_id))


def by_source(db: Database, resource_id: str, source: str) -> dict[str, Sourced]:
    """The tasks that came from `source`, deleted ones too, by their id there."""
    rows = db.execute_sql(
        "SELECT metadata ->> '$.source_id', id, deleted_at IS NOT NULL, metadata -> '$.original' FROM tasks"
        " WHERE resource_id = ? AND metadata != '{}' AND metadata ->> '$.source' = ?",
        (resource_id, source),
    ).fetchall()
    return {name: Sourced(task, bool(deleted), json.loads(original)) for name, task, deleted, original in rows}


def state(db: Database, task_id: str) -> tuple[bool, int]:
    """Whether a task or an ancestor waits for an open task, and how many open children it has."""
    held, children = db.execute_sql("SELECT held, open_children FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return bool(held), children


def finished_containers(db: Database, task_id: str) -> list[Task]:
    """Open parents of a task whose children are all closed and that nothing blocks."""
    rows = db.execute_sql(
        f"SELECT {_COLUMNS} FROM task_dependencies d JOIN tasks t ON t.id = d.depends_on WHERE d.task_id = ?"
        " AND d.type = 'parent-child' AND t.status != 'closed' AND t.deleted_at IS NULL AND t.open_children = 0"
        " AND t.held = 0 ORDER BY t.created_at",
        (task_id,),
    ).fetchall()
    return [_task(r) for r in rows]


def containers(db: Database, task_ids: Iterable[str]) -> set[str]:
    """Those of these tasks that have children, whatever their state."""
    rows = db.execute_sql(
        "SELECT DISTINCT d.depends_on FROM json_each(?) j JOIN task_dependencies d ON d.depends_on = j.value"
        " AND d.type = 'parent-child' JOIN tasks c ON c.id = d.task_id AND c.deleted_at IS NULL",
        (json.dumps(list(task_ids)),),
    ).fetchall()
    return {r[0] for r in rows}


def edges_of(db: Database, task_id: str) -> list[tuple[str, str, str]]:
    """(task, depends on, type) of the edges at a task, to live tasks, in both directions."""
    return db.execute_sql(
        "SELECT d.task_id, d.depends_on, d.type FROM task_dependencies d"
        " JOIN tasks a ON a.id = d.task_id AND a.deleted_at IS NULL"
        " JOIN tasks b ON b.id = d.depends_on AND b.deleted_at IS NULL WHERE d.task_id = ?1 OR d.depends_on = ?1"
        " ORDER BY d.type, d.task_id, d.depends_on",
        (task_id,),
    ).fetchall()


def edges(db: Database, resource_id: str) -> list[tuple[str, str, str]]:
    """(task, depends on, type) of the workspace's live tasks."""
    return db.execute_sql(
        "SELECT d.task_id, d.depends_on, d.type FROM task_dependencies d"
        " JOIN tasks a ON a.id = d.task_id AND a.deleted_at IS NULL"
        " JOIN tasks b ON b.id = d.depends_on AND b.deleted_at IS NULL WHERE a.resource_id = ?",
        (resource_id,),
    ).fetchall()


def add_edge(db: Database, task_id: str, depends_on: str, kind: str, now: int, *, count: bool = True) -> bool:
    """Add an edge; False where it was there. Without `count` somebody calls `task_graph.refresh` afterwards."""
    db.execute_sql(
        "INSERT OR IGNORE INTO task_dependencies (task_id, depends_on, type, created_at) VALUES (?, ?, ?, ?)",
        (task_id, depends_on, kind, now),
    )
    added = db.execute_sql("SELECT changes()").fetchone()[0] == 1
    if added and count:
        task_graph.refresh(db, (task_id, depends_on))
    return added


def remove_edge(db: Database, task_id: str, depends_on: str, kind: str) -> tuple[bool, dict[str, bool]]:
    """Remove an edge; returns whether it was there, and what that holds or frees."""
    db.execute_sql(
        "DELETE FROM task_dependencies WHERE task_id = ? AND depends_on = ? AND type = ?", (task_id, depends_on, kind)
    )
    removed = db.execute_sql("SELECT changes()").fetchone()[0] == 1
    return removed, task_graph.refresh(db, (task_id, depends_on)) if removed else {}


def set_labels(db: Database, task_id: str, labels: Sequence[str]) -> None:
    db.execute_sql("DELETE FROM task_labels WHERE task_id = ?", (task_id,))
    for label in dict.fromkeys(labels):
        db.execute_sql("INSERT INTO task_labels (task_id, label) VALUES (?, ?)", (task_id, label))


def claim(db: Database, task_id: str, session_id: str, thread_id: str | None, now: int, expires: int) -> bool:
    """One conditional UPDATE: true where this session holds the task afterwards."""
    db.execute_sql(
        "UPDATE tasks SET status = 'in_progress', session_id = ?1, thread_id = coalesce(?2, thread_id),"
        " claimed_at = CASE WHEN session_id = ?1 AND status = 'in_progress' THEN claimed_at ELSE ?3 END,"
        " claim_expires_at = ?4, updated_at = ?3"
        " WHERE id = ?5 AND deleted_at IS NULL AND status != 'closed' AND held = 0"
        " AND (session_id IS NULL OR session_id = ?1 OR status = 'open' OR claim_expires_at < ?3)",
        (session_id, thread_id, now, expires, task_id),
    )
    return db.execute_sql("SELECT changes()").fetchone()[0] == 1


def active(db: Database, thread_id: str, session_id: str) -> str | None:
    """The task that the thread works on: claimed by this session and in progress; else None."""
    row = db.execute_sql(
        "SELECT t.id FROM threads th JOIN tasks t ON t.id = json_extract(th.metadata, '$.active_task_id')"
        " WHERE th.id = ? AND t.status = 'in_progress' AND t.session_id = ? AND t.deleted_at IS NULL",
        (thread_id, session_id),
    ).fetchone()
    return None if row is None else row[0]


def link(db: Database, task_id: str, message_id: str, relation: str, now: int) -> None:
    db.execute_sql(
        "INSERT OR IGNORE INTO task_messages (task_id, message_id, relation, created_at) VALUES (?, ?, ?, ?)",
        (task_id, message_id, relation, now),
    )


def unlink(db: Database, task_id: str, message_id: str) -> None:
    db.execute_sql("DELETE FROM task_messages WHERE task_id = ? AND message_id = ?", (task_id, message_id))


def linked_messages(db: Database, task_id: str, limit: int = 50) -> list[Json]:
    rows = db.execute_sql(
        "SELECT m.id, m.thread_id, m.role, m.message_index, tm.relation, substr(m.raw_content, 1, 200)"
        " FROM task_messages tm JOIN messages m ON m.id = tm.message_id WHERE tm.task_id = ?"
        " ORDER BY m.created_at, m.message_index LIMIT ?",
        (task_id, limit),
    ).fetchall()
    return [
        {"id": i, "thread_id": t, "role": r, "index": n, "relation": rel, "text": text}
        for i, t, r, n, rel, text in rows
    ]


def said_about(db: Database, task_id: str, limit: int = 500) -> list[str]:
    """The ids of the messages linked to a task, oldest first, each call with its results though these be unlinked."""
    rows = db.execute_sql(
        "WITH linked AS (SELECT m.* FROM task_messages tm JOIN messages m ON m.id = tm.message_id WHERE tm.task_id = ?)"
        " SELECT id, created_at, message_index FROM linked UNION"
        " SELECT r.id, r.created_at, r.message_index FROM linked a JOIN messages r ON r.thread_id = a.thread_id"
        " AND r.message_index = a.message_index + 1 AND r.role = 'tool' WHERE a.role = 'assistant'"
        " ORDER BY 2, 3 LIMIT ?",
        (task_id, limit),
    ).fetchall()
    return [r[0] for r in rows]


def add_event(
    db: Database, task: Task, action: str, actor: str, now: int, before: Json | None, after: Json | None
) -> None:
    db.execute_sql(
        "INSERT INTO task_events (task_id, resource_id, action, actor, before, after, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (task.id, task.resource_id, action, actor, _text(before), _text(after), now),
    )


def _text(values: Json | None) -> str | None:
    return None if values is None else json.dumps(values, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class TaskEvent:
    pk: int
    task_id: str
    action: str
    actor: str
    before: Json | None
    after: Json | None
    created_at: int


def last_events(db: Database, resource_id: str, actions: Iterable[str], limit: int) -> list[TaskEvent]:
    """The newest events of these actions that were not taken back, newest first."""
    names = list(actions)
    rows = db.execute_sql(
        "SELECT pk, task_id, action, actor, before, after, created_at FROM task_events WHERE resource_id = ?"
        f" AND undone_at IS NULL AND action IN ({','.join('?' * len(names))}) ORDER BY pk DESC LIMIT ?",
        (resource_id, *names, limit),
    ).fetchall()
    return [
        TaskEvent(pk, task, action, actor, json.loads(b) if b else None, json.loads(a) if a else None, at)
        for pk, task, action, actor, b, a, at in rows
    ]


def events_of(db: Database, task_id: str, limit: int = 20) -> list[TaskEvent]:
    """What happened to a task, the newest first; without what it was before and after."""
    rows = db.execute_sql(
        "SELECT pk, task_id, action, actor, created_at FROM task_events WHERE task_id = ? ORDER BY pk DESC LIMIT ?",
        (task_id, limit),
    ).fetchall()
    return [TaskEvent(pk, task, action, actor, None, None, at) for pk, task, action, actor, at in rows]


def mark_undone(db: Database, pk: int, now: int) -> None:
    db.execute_sql("UPDATE task_events SET undone_at = ? WHERE pk = ?", (now, pk))


def rows_of(db: Database, resource_id: str) -> Iterator[tuple[Task, str | None]]:
    """Live tasks with the text that was shrunk away (JSON), the oldest first: for an export."""
    for row in db.execute_sql(
        f"SELECT {_COLUMNS}, t.original FROM tasks t WHERE t.resource_id = ? AND t.deleted_at IS NULL"
        " ORDER BY t.created_at, t.pk",
        (resource_id,),
    ).fetchall():
        yield _task(row[:-1]), row[-1]


def last_event(db: Database, resource_id: str) -> int:
    """The number of the newest event of the workspace, one step in an index; 0 where nothing ever happened."""
    return db.execute_sql(
        "SELECT coalesce(max(pk), 0) FROM task_events WHERE resource_id = ?", (resource_id,)
    ).fetchone()[0]
