"""Define `Task` and `TaskCard`; query, index and search them, in SQL that runs without peewee.

Neither a million messages nor a word that every task has makes a search slow. Tasks with all words come first, then
tasks where they are prefixes, then tasks with some of them; if nothing matches, the general search with its typing
corrections runs. For a word in more than `COMMON` tasks only the newest `COMMON` are ranked.

Raw SQL: `sakti tasks` runs it without peewee (see the package).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct, field

from sakti.core.lazy import lazy_imports
from sakti.core.text import format_count, to_one_line
from sakti.core.types import Json
from sakti.store.connection import Connection
from sakti.store.search import index as search_index
from sakti.store.search import query as search_query
from sakti.store.text_registry import mask_for_storage

with lazy_imports:
    from sakti.store.search import search as text_search

# Fields computed on reading; metadata without the original stored by an import.
_COMPUTED = {
    "labels": "(SELECT json_group_array(l.label ORDER BY l.label) FROM task_labels l WHERE l.task_id = t.id)",
    "holder_title": "(SELECT th.title FROM threads th WHERE th.id = t.session_id)",
    "metadata": "CASE t.metadata WHEN '{}' THEN '{}' ELSE json_remove(t.metadata, '$.original') END",
}
_OF_THE_GRAPH = ("state", "held", "open_children")  # maintained by `graph` and the schema
State: TypeAlias = Literal["ready", "blocked", "container", "in_progress", "closed"]
OPEN: tuple[State, ...] = ("ready", "blocked", "container")
LIVE: tuple[State, ...] = (*OPEN, "in_progress")
FEW = 1_000
_ORDER = "ORDER BY t.priority, t.created_at, t.pk"
_IN_STATE = f"t.resource_id = ? AND t.state = ? {_ORDER} LIMIT ?"
_COUNTED = 2_000  # most tasks closed today that are counted one by one
_STATES: dict[str | None, tuple[State, ...]] = {
    None: LIVE,
    "all": (*LIVE, "closed"),
    "open": OPEN,
    "ready": ("ready",),
    "blocked": ("blocked",),
    "in_progress": ("in_progress",),
    "closed": ("closed",),
}


class Task(Struct, frozen=True, kw_only=True):
    """One task; `status` is open, in_progress or closed, blocked is computed. Times in Unix ms.

    `session_id` is the holder of its claim: the id of a thread, `shell:NAME` or `user:NAME`; `claim_owner` is the
    process (host:pid:name) that runs that thread, `holder_title` the thread's title (None for other holders). `state`
    is its column: ready, blocked, container, in_progress, closed, deleted; `held` whether it or an ancestor waits for
    an open task.
    """

    id: str
    resource_id: str
    handle: str
    title: str
    description: str = ""
    status: str = "open"
    priority: int = 2
    type: str = "task"
    assignee: str | None = None
    session_id: str | None = None
    claimed_at: int | None = None
    claim_expires_at: int | None = None
    thread_id: str | None = None
    close_reason: str | None = None
    summary: str | None = None
    created_at: int
    updated_at: int
    closed_at: int | None = None
    compaction_level: int = 0
    labels: tuple[str, ...] = ()
    claim_owner: str | None = None
    holder_title: str | None = None
    metadata: Json = field(default_factory=dict[str, Any])
    state: str = "ready"
    held: int = 0
    open_children: int = 0


class TaskCard(NamedTuple):
    """Fields of a task on the board: a named tuple, ten times as fast to create for hundreds of rows."""

    id: str
    handle: str
    title: str
    status: str
    priority: int
    type: str
    assignee: str | None
    session_id: str | None
    claimed_at: int | None
    claim_owner: str | None
    closed_at: int | None
    holder_title: str | None
    held: int
    open_children: int
    created_at: int


NAMES = Task.__struct_fields__
STORED = tuple(name for name in NAMES if name not in _COMPUTED and name not in _OF_THE_GRAPH)
COLUMNS = ", ".join(_COMPUTED.get(name, f"t.{name}") for name in NAMES)
CARD_COLUMNS = ", ".join(_COMPUTED.get(name, f"t.{name}") for name in TaskCard._fields)


def to_task(row: Sequence[Any]) -> Task:
    """Convert a row selected as `COLUMNS` from `tasks t` to a `Task`."""
    values = dict(zip(NAMES, row, strict=True))
    values["labels"] = tuple(json.loads(values["labels"]))
    values["metadata"] = json.loads(values["metadata"])
    return Task(**values)


def to_card(row: Sequence[Any]) -> TaskCard:
    """Convert a row selected as `CARD_COLUMNS` from `tasks t` to a `TaskCard`: its fields, in order."""
    return TaskCard._make(row)


def _read_tasks(db: Connection, selection: str, values: Sequence[object]) -> list[Task]:
    # SQL: runs without peewee, whose import takes 60 ms
    rows = db.execute_sql(f"SELECT {COLUMNS} FROM {selection}", values).fetchall()
    return [to_task(row) for row in rows]


def _read_cards(db: Connection, selection: str, values: Sequence[object]) -> list[TaskCard]:
    # SQL: runs without peewee, whose import takes 60 ms
    rows = db.execute_sql(f"SELECT {CARD_COLUMNS} FROM {selection}", values).fetchall()
    return [to_card(row) for row in rows]


def _count(db: Connection, selection: str, values: Sequence[object]) -> int:
    # SQL: runs without peewee, whose import takes 60 ms
    return db.execute_sql(f"SELECT count(*) FROM {selection}", values).fetchone()[0]


def _has(db: Connection, condition: str, *values: str) -> bool:
    """Return whether a task meets a condition."""
    # SQL: runs without peewee, whose import takes 60 ms
    return db.execute_sql(f"SELECT 1 FROM tasks WHERE {condition} LIMIT 1", values).fetchone() is not None


def _list_ids(db: Connection, sql: str, values: Sequence[object]) -> list[str]:
    # SQL: runs without peewee, whose import takes 60 ms
    return [row[0] for row in db.execute_sql(sql, values)]


def _map_ids(db: Connection, column: str, task_ids: Iterable[str], condition: str = "") -> dict[str, Any]:
    """Map ids of tasks to a column, in one statement."""
    sql = f"SELECT t.id, t.{column} FROM json_each(?) j CROSS JOIN tasks t ON t.id = j.value{condition}"
    # SQL: one statement for all ids, which are one parameter
    return dict(db.execute_sql(sql, (json.dumps(list(task_ids)),)).fetchall())


# --- one task ---------------------------------------------------------------------------------------------


def get(db: Connection, task_id: str) -> Task | None:
    """Return a task that is not deleted."""
    return next(iter(_read_tasks(db, "tasks t WHERE t.id = ? AND t.deleted_at IS NULL", (task_id,))), None)


def find_place(db: Connection, task_id: str) -> tuple[str, str] | None:
    """Return the workspace and the handle of a task, deleted or not."""
    # SQL: runs without peewee, whose import takes 60 ms
    return db.execute_sql("SELECT resource_id, handle FROM tasks WHERE id = ?", (task_id,)).fetchone()


def get_many(db: Connection, task_ids: Iterable[str]) -> dict[str, Task]:
    """Return live tasks by id, in the order of the ids."""
    selection = "json_each(?) j CROSS JOIN tasks t ON t.id = j.value AND t.deleted_at IS NULL ORDER BY j.key"
    return {task.id: task for task in _read_tasks(db, selection, (json.dumps(list(task_ids)),))}


def map_handles(db: Connection, task_ids: Iterable[str]) -> dict[str, str]:
    """Return the handles of tasks, deleted ones too, by id."""
    return _map_ids(db, "handle", task_ids)


def map_titles(db: Connection, task_ids: Iterable[str]) -> dict[str, str]:
    """Return the titles of tasks, deleted ones too, by id."""
    return _map_ids(db, "title", task_ids)


def find_matching(db: Connection, resource_id: str, text: str, *, deleted: bool = False) -> list[Task]:
    """Return at most 20 tasks whose id or handle begins with `text`, in any case; an exact match alone."""
    alive = "t.deleted_at IS NOT NULL" if deleted else "t.deleted_at IS NULL"
    matches: dict[str, Task] = {}
    for clause, values in (
        ("t.id = ?", (text,)),
        ("t.handle = ?", (text,)),
        ("t.handle >= ? AND t.handle < ?", (text, text + chr(0x10FFFF))),
        ("t.id >= ? AND t.id < ?", (text, text + chr(0x10FFFF))),
        ("lower(t.handle) = ?", (text.lower(),)),
        ("substr(lower(t.handle), 1, ?) = ?", (len(text), text.lower())),
    ):
        if "lower" in clause and matches:  # reads every task
            break
        mine = "t.resource_id = ?" if "handle" in clause else "+t.resource_id = ?"  # by the index on the id alone
        tasks = _read_tasks(db, f"tasks t WHERE {mine} AND {clause} AND {alive} LIMIT 20", (resource_id, *values))
        matches.update((task.id, task) for task in tasks)
        if tasks and len(values) == 1:
            break
    return list(matches.values())[:20]


def exists(db: Connection, task_id: str) -> bool:
    """Return whether the id is taken in any workspace, also by a deleted task."""
    return _has(db, "id = ?", task_id)


def has_handle(db: Connection, resource_id: str, handle: str) -> bool:
    """Return whether a workspace has used the handle, also for a deleted task."""
    return _has(db, "resource_id = ? AND handle = ?", resource_id, handle)


def is_in(db: Connection, resource_id: str, task_id: str) -> bool:
    """Return whether a workspace has the task and it is not deleted."""
    return _has(db, "id = ? AND resource_id = ? AND deleted_at IS NULL", task_id, resource_id)


def list_ids_of_type(db: Connection, resource_id: str, type: str) -> set[str]:
    """Return the ids of a workspace's tasks of a type; an import checks each edge by it."""
    sql = "SELECT id FROM tasks WHERE resource_id = ? AND type = ? AND deleted_at IS NULL"
    return set(_list_ids(db, sql, (resource_id, type)))


def map_states(db: Connection, task_ids: Iterable[str]) -> dict[str, str]:
    return _map_ids(db, "state", task_ids)


def list_waiting(db: Connection, resource_id: str, priority: int, limit: int) -> list[tuple[str, int]]:
    """Return (id, priority) of tasks of at least this urgency that wait for others; `limit` per state."""
    out: list[tuple[str, int]] = []
    for state in ("blocked", "container", "in_progress"):
        # SQL: runs without peewee, whose import takes 60 ms
        out += db.execute_sql(
            "SELECT t.id, t.priority FROM tasks t WHERE t.resource_id = ? AND t.state = ? AND t.priority <= ?"
            f" AND (t.held OR t.open_children) {_ORDER} LIMIT ?",
            (resource_id, state, priority, limit),
        )
    return sorted(out, key=lambda task: task[1])


def map_row_order(db: Connection, task_ids: Iterable[str]) -> dict[str, int]:
    """Map tasks to numbers in the order of storing, for tasks of the same time."""
    return _map_ids(db, "pk", task_ids)


def map_ready_priorities(db: Connection, task_ids: Iterable[str]) -> dict[str, int]:
    """Return the priorities of those of these tasks that are ready."""
    return _map_ids(db, "priority", task_ids, " AND t.state = 'ready'")


# --- many of them -----------------------------------------------------------------------------------------


def list_column(db: Connection, resource_id: str, state: State, limit: int) -> list[Task]:
    """Return the first tasks of a column: most urgent first, then oldest."""
    return _read_tasks(db, f"tasks t WHERE {_IN_STATE}", (resource_id, state, limit))


def read_counts(db: Connection, resource_id: str, type: str | None = None) -> dict[str, int]:
    """Return the number of tasks (of one type) by state; it is stored, not counted (see the migration)."""
    # SQL: runs without peewee, whose import takes 60 ms
    rows = db.execute_sql(
        "SELECT state, sum(count) FROM task_counts WHERE resource_id = ?1 AND (?2 IS NULL OR type = ?2) GROUP BY state",
        (resource_id, type),
    )
    return dict.fromkeys((*LIVE, "closed"), 0) | dict(rows)


def describe_board(db: Connection, resource_id: str, thread_id: str) -> str:
    """Describe the board in a line: the task in progress, preferably the thread's, and how many are ready."""
    by_state = read_counts(db, resource_id)
    # SQL: reads JSON inside a column
    row = db.execute_sql(
        "SELECT t.handle, t.title FROM threads th CROSS JOIN tasks t"
        " ON t.id = json_extract(th.metadata, '$.active_task_id')"
        " WHERE th.id = ? AND t.status = 'in_progress' AND t.deleted_at IS NULL",
        (thread_id,),
    ).fetchone()
    parts: list[str] = []
    if row is not None:
        parts.append(f"Task in progress: {row[0]} {to_one_line(row[1])}")
    elif by_state["in_progress"]:
        card = list_cards(db, resource_id, "in_progress", 1)[0]
        parts.append(f"Task in progress, claimed elsewhere: {card.handle} {to_one_line(card.title)}")
    if by_state["ready"]:
        parts.append(f"{format_count(by_state['ready'], 'task')} ready")
    return ". ".join(parts)


def list_cards(db: Connection, resource_id: str, state: State, limit: int) -> list[TaskCard]:
    """Return the first tasks of a column as cards, in the order of `list_column`."""
    return _read_cards(db, f"tasks t WHERE {_IN_STATE}", (resource_id, state, limit))


def list_closed_since(db: Connection, resource_id: str, since: int, limit: int) -> tuple[list[TaskCard], int]:
    """Return tasks closed at or after `since` (Unix ms), newest first, and their number."""
    where = "t.resource_id = ? AND t.status = 'closed' AND t.deleted_at IS NULL AND t.closed_at >= ?"
    # in the order of the index, so that many tasks of the same time need no sorting
    order = "t.closed_at DESC, t.compaction_level DESC, t.pk DESC"
    shown = _read_cards(db, f"tasks t WHERE {where} ORDER BY {order} LIMIT ?", (resource_id, since, limit))
    if len(shown) < limit:
        return shown, len(shown)
    counted = "(SELECT 1 FROM tasks t WHERE {} LIMIT ?)"
    total = _count(db, counted.format(where), (resource_id, since, _COUNTED))
    if total == _COUNTED:  # mostly fewer tasks were closed earlier: subtract those from the stored total
        total = read_counts(db, resource_id)["closed"]
        for other in ("t.closed_at < ?", "t.closed_at IS NULL AND ? IS NOT NULL"):
            others = counted.format(where.replace("t.closed_at >= ?", other))
            total -= _count(db, others, (resource_id, since, -1))
    return shown, total


def list_claimed(db: Connection, resource_id: str) -> list[Task]:
    """Return the tasks in progress whose claim belongs to a process and ends with it."""
    claimed = "t.session_id IS NOT NULL AND t.claim_owner IS NOT NULL AND +t.state = 'in_progress'"
    return _read_tasks(db, f"tasks t WHERE t.resource_id = ? AND {claimed} {_ORDER}", (resource_id,))


class TaskFilter(Struct, frozen=True):
    """Conditions for tasks; None: any.

    `status` None: not closed; "all": any; "ready" and "blocked": open ones in that state.
    """

    status: str | None = None
    type: str | None = None
    label: str | None = None
    assignee: str | None = None


def select(
    db: Connection, resource_id: str, wanted: TaskFilter, *, limit: int = 20, offset: int = 0
) -> tuple[list[Task], int]:
    """Return a page of the tasks that match a filter, most urgent first, and the number of all."""
    states, where = _STATES[wanted.status], ["t.resource_id = ?"]
    label, assignee = wanted.label, wanted.assignee
    values: list[object] = [resource_id]
    for name, value in (("type", wanted.type), ("assignee", assignee)):
        if value is not None:
            where.append(f"t.{name} = ?")
            values.append(value)
    source = "tasks t"
    if label is not None:
        source = "task_labels l CROSS JOIN tasks t ON t.id = l.task_id AND l.label = ?"
        values.insert(0, label)
    clause = " AND ".join(where)
    if label is None and assignee is None:
        state_counts = read_counts(db, resource_id, wanted.type)
        total = sum(state_counts[state] for state in states)
    else:
        some = f"{clause} AND +t.state IN ({', '.join('?' * len(states))})"
        total = _count(db, f"{source} WHERE {some}", (*values, *states))
        if assignee is not None or total <= FEW:  # few match: read these and sort them
            few = f"{source} WHERE {some} {_ORDER} LIMIT ? OFFSET ?"
            return _read_tasks(db, few, (*values, *states, limit, offset)), total
        source = "tasks t CROSS JOIN task_labels l ON l.task_id = t.id AND l.label = ?"
    if total <= offset:
        return [], total
    return _load_first_of_each(db, states, source, clause, values, limit, offset), total


def _load_first_of_each(
    db: Connection,
    states: Sequence[State],
    source: str,
    clause: str,
    values: Sequence[object],
    limit: int,
    offset: int,
) -> list[Task]:
    """Return the first tasks of several states.

    The index has each state in this order, so the first tasks of each are read and merged.
    """
    first = (
        f"SELECT * FROM (SELECT t.pk, t.priority, t.created_at FROM {source} WHERE {clause} AND t.state = ?"
        f" {_ORDER} LIMIT ?)"
    )
    selection = (
        f"(SELECT pk FROM ({' UNION ALL '.join([first] * len(states))})"
        f" ORDER BY priority, created_at, pk LIMIT ? OFFSET ?) x CROSS JOIN tasks t ON t.pk = x.pk {_ORDER}"
    )
    of_each = [v for state in states for v in (*values, state, offset + limit)]
    return _read_tasks(db, selection, (*of_each, limit, offset))


def list_due_to_shrink(db: Connection, resource_id: str, first: int, second: int, limit: int) -> list[Task]:
    """Return tasks to shrink: closed before `first` and complete, or before `second` and summarized.

    It runs after every close; the first lines are those of the partial index.
    """
    selection = (
        "tasks t WHERE t.resource_id = ?1 AND t.status = 'closed' AND t.deleted_at IS NULL"
        " AND t.closed_at < ?2 AND (t.compaction_level = 0 AND coalesce(t.compacted_at, 0) < ?2"
        " OR t.compaction_level = 1 AND t.closed_at < ?3) LIMIT ?4"
    )
    return _read_tasks(db, selection, (resource_id, first, second, limit))


def list_live(db: Connection, resource_id: str) -> list[Task]:
    """Return every task of the workspace, oldest first, for exports and tests."""
    return [task for task, _ in read_with_originals(db, resource_id)]


def read_with_originals(db: Connection, resource_id: str) -> Iterator[tuple[Task, Json | None]]:
    """Yield every task, oldest first, with its original texts if it was shrunk (description, summary)."""
    # SQL: runs without peewee, whose import takes 60 ms
    for row in db.execute_sql(
        f"SELECT {COLUMNS}, t.original FROM tasks t WHERE t.resource_id = ? AND t.deleted_at IS NULL"
        " ORDER BY t.created_at, t.pk",
        (resource_id,),
    ).fetchall():
        yield to_task(row[:-1]), json.loads(row[-1]) if row[-1] else None


# --- what belongs to a task -------------------------------------------------------------------------------


def list_linked_messages(db: Connection, task_id: str, limit: int = 50) -> list[Json]:
    """Return the messages linked to a task, oldest first, each with the beginning of its text."""
    names = ("id", "thread_id", "role", "index", "relation", "text")
    # SQL: calls a function of this program on packed texts
    rows = db.execute_sql(
        "SELECT m.id, m.thread_id, m.role, m.message_index, tm.relation,"
        " substr(sakti_text(m.raw_content, m.parts), 1, 200)"
        " FROM task_messages tm JOIN messages m ON m.id = tm.message_id WHERE tm.task_id = ?"
        " ORDER BY m.created_at, m.message_index LIMIT ?",
        (task_id, limit),
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def list_history(db: Connection, task_id: str, limit: int = 20) -> list[Json]:
    """Return the history of a task, newest first: action, actor, time."""
    # SQL: runs without peewee, whose import takes 60 ms
    rows = db.execute_sql(
        "SELECT action, actor, created_at FROM task_events WHERE task_id = ? ORDER BY pk DESC LIMIT ?",
        (task_id, limit),
    )
    return [dict(zip(("action", "actor", "time"), row, strict=True)) for row in rows]


def read_last_event(db: Connection, resource_id: str) -> int:
    """Return the number of the workspace's newest event (one step in an index); 0 without events."""
    # SQL: runs without peewee, whose import takes 60 ms
    return db.execute_sql(
        "SELECT coalesce(max(pk), 0) FROM task_events WHERE resource_id = ?", (resource_id,)
    ).fetchone()[0]


# --- the index of tasks -----------------------------------------------------------------------------------

COMMON = 1_000
COMMON_WORDS = 4  # of a query without other words


def index_task(db: Connection, task_id: str, title: str, text: str) -> None:
    """Index a task, secrets masked, replacing its former entry."""
    title = mask_for_storage("task_words", "title", title)
    body = mask_for_storage("task_words", "body", text[: search_index.TEXT_LIMIT])
    # SQL: a row of an FTS5 index
    db.execute_sql(
        "INSERT OR REPLACE INTO task_words (rowid, title, body, idents) SELECT pk, ?, ?, ? FROM tasks WHERE id = ?",
        (title, body, search_index.list_identifier_parts(f"{title}\n{body}"), task_id),
    )


def search(db: Connection, resource_id: str, text: str, limit: int) -> list[str]:
    """Return the ids of the best tasks, best first; any input is a valid query."""
    query = search_query.parse_query(text, partial(_occurs, db))
    without = "".join(f" NOT {_quote(e)}" for e in query.excluded)
    hits: list[str] = []
    for match in _iter_matches(db, query):
        if len(hits) < limit:
            hits.extend(i for i in _rank(db, resource_id, f"({match}){without}", limit) if i not in hits)
    if not hits and not _is_one_letter(text.strip()):
        hits = [h.id for h in search_texts(db, resource_id, text, "task", limit)]
    return hits[:limit]


def search_texts(
    db: Connection, resource_id: str, text: str, kind: Literal["task", "message"], limit: int
) -> Sequence[text_search.Hit]:
    """Return the best hits of the full search of one kind; its modules are imported on the first call."""
    return text_search.search(db, text, text_search.Scope(resource_id, kinds=(kind,)), limit=limit).hits


def _iter_matches(db: Connection, query: search_query.Query) -> Iterator[str]:
    """Yield the queries to match, the strictest first: all words, all as prefixes, some of them."""
    words = _list_words(query.text)
    quoted_words = [
        *map(_quote, (*query.phrases, *words[: search_query.MAX_TERMS])),
        *map(_quote_prefix, query.prefixes),
    ]
    if quoted_words:
        yield " AND ".join(quoted_words)
    if 0 < len(words) <= 4 and all(len(w) >= 3 for w in words):
        yield " AND ".join([*map(_quote, query.phrases), *map(_quote_prefix, (*words, *query.prefixes))])
    some = [*quoted_words, *map(_quote, search_query.list_terms(query.text))]
    if len(set(some)) > 1:
        yield " OR ".join([q for q in dict.fromkeys(some) if _find_newest(db, q) is None] or some[:COMMON_WORDS])


def _list_words(text: str) -> list[str]:
    """Return distinct words of a query in lower case, without stop words if there are others."""
    plain = [w.lower() for w in search_query.WORD.findall(text[: search_query.MAX_TEXT])]
    return list(dict.fromkeys(w for w in plain if w not in search_query.STOP_WORDS)) or list(dict.fromkeys(plain))


def _is_one_letter(text: str) -> bool:
    """Return whether a query is one ASCII letter or digit, which is in nearly every task."""
    return len(text) == 1 and text.isalnum() and text.isascii()


def _quote(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _quote_prefix(word: str) -> str:
    return f"{_quote(word)} *"


def _occurs(db: Connection, phrase: str) -> bool:
    sql = "SELECT 1 FROM task_words WHERE task_words MATCH ? LIMIT 1"
    # SQL: FTS5, for which peewee has no operator
    return db.execute_sql(sql, (_quote(phrase),)).fetchone() is not None


def _find_newest(db: Connection, match: str) -> int | None:
    """Return the row from which `COMMON` matches follow; None if there are not more."""
    # SQL: FTS5, for which peewee has no operator
    row = db.execute_sql(
        "SELECT rowid FROM task_words WHERE task_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?", (match, COMMON)
    ).fetchone()
    return None if row is None else row[0]


def _rank(db: Connection, resource_id: str, match: str, limit: int) -> list[str]:
    newest = _find_newest(db, match) or 0
    return _list_ids(
        db,
        "SELECT t.id FROM (SELECT rowid AS pk, bm25(task_words, 3.0, 1.0, 0.5) AS score FROM task_words"
        " WHERE task_words MATCH ? AND rowid >= ?) w JOIN tasks t ON t.pk = w.pk"
        " WHERE t.resource_id = ? AND t.deleted_at IS NULL ORDER BY w.score, t.status = 'closed', t.pk DESC LIMIT ?",
        (match, newest, resource_id, limit),
    )
