"""Observational memory in SQL: records, cursors, groups and their lines. The panes' queries are
`memory_log`'s.

Groups are append-only: buffered → active → superseded | discarded, with the times kept. What changes memory
is one transaction whose conditions are inside it; a condition that no longer holds raises `MemoryFailure` and
nothing has happened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from sakti.core.errors import MemoryFailure
from sakti.core.types import Json
from sakti.store import leases, search_index, threads
from sakti.store.connection import Database
from sakti.store.models import GroupRow, MemoryRecordRow
from sakti.store.rows import insert

GroupState: TypeAlias = Literal["buffered", "active", "superseded", "discarded"]


@dataclass(frozen=True, slots=True)
class Record:
    """One memory: of a thread, or of a whole workspace."""

    id: str
    lookup_key: str
    scope: str
    thread_id: str | None
    resource_id: str
    generation_count: int
    last_observed_at: int | None
    last_reflection_at: int | None
    total_tokens_observed: int
    observation_token_count: int
    last_buffered_at_tokens: int
    observed_timezone: str
    metadata: Json


@dataclass(frozen=True, slots=True)
class Group:
    """Some consecutive messages and the log text that stands for them. A reflection's range is that of what
    it merged. Tokens: `message_tokens` of the raw messages, `observation_tokens` of `text` as stored."""

    id: str
    record_id: str
    thread_id: str
    kind: Literal["observation", "reflection"]
    state: GroupState
    text: str
    created_at: int
    mode: str = "default"
    first_message_id: str | None = None
    last_message_id: str | None = None
    first_index: int | None = None
    last_index: int | None = None
    message_ids: tuple[str, ...] = ()
    message_tokens: int = 0
    observation_tokens: int = 0
    generation: int = 0
    merged_group_ids: tuple[str, ...] = ()
    cycle_id: str = ""
    operation_id: str = ""
    model: str = ""
    prompt_hash: str = ""
    current_task: str | None = None
    suggested_response: str | None = None
    metadata: Json = field(default_factory=dict)
    activated_at: int | None = None
    superseded_at: int | None = None
    discarded_at: int | None = None


@dataclass(frozen=True, slots=True)
class NewLine:
    """A line of a group that is about to be stored."""

    id: str
    line: int
    depth: int
    date: str
    time: str
    priority: str
    content: str
    metadata: Json
    pinned: bool = False
    flags: tuple[str, ...] = ()
    category: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """The lease under which a result was made."""

    kind: leases.LeaseKind
    owner: str
    operation_id: str


_GROUP_COLUMNS = ", ".join(f.name for f in fields(Group))
_JSON = {"message_ids", "merged_group_ids", "metadata"}


def _group(row: Sequence[Any]) -> Group:
    values = {f.name: v for f, v in zip(fields(Group), row, strict=True)}
    for name in _JSON:
        values[name] = json.loads(values[name])
    values["message_ids"] = tuple(values["message_ids"])
    values["merged_group_ids"] = tuple(values["merged_group_ids"])
    return Group(**values)


# --- records and cursors --------------------------------------------------------------------------------

_RECORD_COLUMNS = (
    "id, lookup_key, scope, thread_id, resource_id, generation_count, last_observed_at, last_reflection_at,"
    " total_tokens_observed, observation_token_count, last_buffered_at_tokens, observed_timezone, metadata"
)


def get_record(db: Database, lookup_key: str) -> Record | None:
    row = db.execute_sql(
        f"SELECT {_RECORD_COLUMNS} FROM observational_memory WHERE lookup_key = ?", (lookup_key,)
    ).fetchone()
    return None if row is None else Record(*row[:-1], metadata=json.loads(row[-1]))


def get_or_create(
    db: Database,
    *,
    id: str,
    lookup_key: str,
    scope: str,
    thread_id: str | None,
    resource_id: str,
    timezone: str,
    now: int,
) -> Record:
    """The record of that key. Two processes may ask at once: both get the one that was first."""
    MemoryRecordRow.insert(
        id=id,
        lookup_key=lookup_key,
        scope=scope,
        thread_id=thread_id,
        resource_id=resource_id,
        observed_timezone=timezone,
        created_at=now,
        updated_at=now,
    ).on_conflict_ignore().execute(db)
    record = get_record(db, lookup_key)
    if record is None:
        raise MemoryFailure("The memory record could not be made.", code="record")
    return record


def set_record_metadata(db: Database, record_id: str, changes: Json) -> None:
    """Merge `changes` into a record's metadata; None removes a key."""
    row = MemoryRecordRow.select(MemoryRecordRow.metadata).where(MemoryRecordRow.id == record_id).dicts().get(db)
    merged = {k: v for k, v in {**row["metadata"], **changes}.items() if v is not None}
    MemoryRecordRow.update(metadata=merged).where(MemoryRecordRow.id == record_id).execute(db)


def is_marked(db: Database, record_id: str, key: str) -> bool:
    """Whether a record's metadata has that key."""
    row = db.execute_sql(
        "SELECT json_type(metadata, '$.' || ?) IS NOT NULL FROM observational_memory WHERE id = ?", (key, record_id)
    ).fetchone()
    return bool(row and row[0])


def set_timezone(db: Database, record_id: str, timezone: str) -> None:
    MemoryRecordRow.update(observed_timezone=timezone).where(MemoryRecordRow.id == record_id).execute(db)


def set_buffered_at(db: Database, record_id: str, tokens: int, now: int) -> None:
    """Where the last background observation began, in pending tokens."""
    MemoryRecordRow.update(last_buffered_at_tokens=tokens, last_buffered_at_time=now).where(
        MemoryRecordRow.id == record_id
    ).execute(db)


def cursor(db: Database, record_id: str, thread_id: str) -> int:
    """Index of the last observed message of a thread, -1 where none is."""
    row = db.execute_sql(
        "SELECT last_index FROM observation_cursors WHERE record_id = ? AND thread_id = ?",
        (record_id, thread_id),
    ).fetchone()
    return -1 if row is None else row[0]


def move_cursor(db: Database, record_id: str, thread_id: str, expected: int, last_index: int) -> None:
    row = db.execute_sql(
        "INSERT INTO observation_cursors (record_id, thread_id, last_index) VALUES (?, ?, ?)"
        " ON CONFLICT (record_id, thread_id) DO UPDATE SET last_index = excluded.last_index"
        " WHERE last_index = ? RETURNING 1",
        (record_id, thread_id, last_index, expected),
    ).fetchone()
    if row is None:
        raise MemoryFailure("Another sakti has observed this thread further.", code="conflict")


# --- groups ---------------------------------------------------------------------------------------------


def groups(db: Database, record_id: str, state: GroupState) -> list[Group]:
    """The groups of a record in that state, reflections first, each kind in the order it was made."""
    rows = db.execute_sql(
        f"SELECT {_GROUP_COLUMNS} FROM observation_groups WHERE record_id = ? AND state = ?"
        " ORDER BY kind = 'observation', pk",
        (record_id, state),
    ).fetchall()
    return [_group(r) for r in rows]


def current_ids(db: Database, record_id: str, thread_id: str) -> frozenset[str]:
    """Ids of the groups that the window of a thread is made of: the log, and what waits to enter it."""
    rows = db.execute_sql(
        "SELECT id FROM observation_groups WHERE record_id = ? AND state = 'active' UNION ALL"
        " SELECT id FROM observation_groups WHERE record_id = ? AND state = 'buffered'"
        " AND (thread_id = ? OR kind = 'reflection')",
        (record_id, record_id, thread_id),
    ).fetchall()
    return frozenset(i for (i,) in rows)


def groups_by_id(db: Database, ids: Sequence[str]) -> list[Group]:
    marks = ",".join("?" * len(ids))
    rows = db.execute_sql(
        f"SELECT {_GROUP_COLUMNS} FROM observation_groups WHERE id IN ({marks}) ORDER BY pk", list(ids)
    )
    return [_group(r) for r in rows.fetchall()]


def insert_group(
    db: Database,
    group: Group,
    lines: Sequence[NewLine],
    *,
    resource_id: str,
    expected_cursor: int | None,
    held: Held,
) -> None:
    """Store a buffered group with its lines and their search rows. Raises `MemoryFailure` when the lease was
    lost, or when another group covers some of its messages already (`expected_cursor` None: a reflection)."""
    leases.require(db, record_id=group.record_id, kind=held.kind, owner=held.owner, operation_id=held.operation_id)
    if expected_cursor is not None:
        overlap = db.execute_sql(
            "SELECT 1 FROM observation_groups WHERE thread_id = ? AND first_index <= ? AND last_index >= ?"
            " AND record_id = ? AND kind = 'observation' AND state != 'discarded' LIMIT 1",
            (group.thread_id, group.last_index, group.first_index, group.record_id),
        ).fetchone()
        if overlap or cursor(db, group.record_id, group.thread_id) != expected_cursor:
            raise MemoryFailure("These messages were observed by another sakti meanwhile.", code="conflict")
    values = {f.name: getattr(group, f.name) for f in fields(Group)}
    values["message_ids"] = list(group.message_ids)
    values["merged_group_ids"] = list(group.merged_group_ids)
    insert(db, GroupRow, **values)
    previous = ""
    for line in lines:
        # written out: building it for every line costs more than running it
        db.execute_sql(
            "INSERT INTO observations (id, group_id, thread_id, resource_id, line, depth, mode, observed_date, time,"
            " priority, category, content, metadata, pinned, flags, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                line.id,
                group.id,
                group.thread_id,
                resource_id,
                line.line,
                line.depth,
                group.mode,
                line.date,
                line.time,
                line.priority,
                line.category,
                line.content,
                json.dumps(line.metadata, ensure_ascii=False),
                int(line.pinned),
                json.dumps(line.flags, ensure_ascii=False),
                group.created_at,
            ),
        )
        search_index.put(
            db,
            kind=group.kind,
            doc_id=line.id,
            resource_id=resource_id,
            created_at=group.created_at,
            text=line.content,
            thread_id=group.thread_id,
            position=group.first_index or 0,
            prev=previous,
            paths=[str(p) for p in line.metadata.get("files", [])],
        )
        previous = line.content


@dataclass(frozen=True, slots=True)
class Activation:
    """What one activation writes. `group_ids` are the buffered observation groups, oldest first;
    `reflection_id` a buffered reflection that goes in with them. The token figures are those after it."""

    record_id: str
    thread_id: str
    group_ids: tuple[str, ...]
    reflection_id: str | None
    expected_cursor: int
    last_index: int
    tokens_observed: int
    pending_tokens: int
    observation_tokens: int
    buffered_at_tokens: int
    thread_metadata: Json
    title: str | None
    now: int


def activate(db: Database, change: Activation) -> None:
    """Put groups into the log and move the cursor behind them, all or nothing. Raises `MemoryFailure`
    (conflict) when a group is no longer buffered, the cursor has moved, or what a reflection merged is no
    longer active."""
    if change.group_ids:
        _transition(db, change.group_ids, "buffered", "active", time_column="activated_at", now=change.now)
        move_cursor(db, change.record_id, change.thread_id, change.expected_cursor, change.last_index)
    generation = 0
    if change.reflection_id is not None:
        (reflection,) = groups_by_id(db, [change.reflection_id])
        _keep_before(db, reflection, change)
        _transition(db, (reflection.id,), "buffered", "active", time_column="activated_at", now=change.now)
        _transition(
            db,
            reflection.merged_group_ids,
            "active",
            "superseded",
            time_column="superseded_at",
            now=change.now,
        )
        generation = 1
    db.execute_sql(
        "UPDATE observational_memory SET generation_count = generation_count + ?, origin_type = ?,"
        " last_observed_at = CASE WHEN ? THEN ? ELSE last_observed_at END,"
        " last_reflection_at = CASE WHEN ? THEN ? ELSE last_reflection_at END,"
        " pending_message_tokens = ?, total_tokens_observed = total_tokens_observed + ?,"
        " observation_token_count = ?, last_buffered_at_tokens = ?, updated_at = ?,"
        " metadata = CASE WHEN ? THEN json_remove(metadata, '$.hold_reflection_until') ELSE metadata END"
        " WHERE id = ?",
        (
            generation,
            "reflection" if generation else "observation",
            bool(change.group_ids),
            change.now,
            generation,
            change.now,
            change.pending_tokens,
            change.tokens_observed,
            change.observation_tokens,
            change.buffered_at_tokens,
            change.now,
            generation,
            change.record_id,
        ),
    )
    if change.thread_metadata:
        threads.update_metadata(db, change.thread_id, change.thread_metadata)
    if change.title:
        threads.rename(db, change.thread_id, change.title, change.now, by_user=False)


def _keep_before(db: Database, reflection: Group, change: Activation) -> None:
    """What only an undo of this reflection needs: the record's figures, and the thread's task if it writes one."""
    origin, last = db.execute_sql(
        "SELECT origin_type, last_reflection_at FROM observational_memory WHERE id = ?", (change.record_id,)
    ).fetchone()
    before: Json = {"origin_type": origin, "last_reflection_at": last}
    thread = threads.get(db, change.thread_id)
    if thread is not None and not change.group_ids and change.thread_metadata:
        before["task"] = {name: thread.metadata.get(name) for name in change.thread_metadata}
    db.execute_sql(
        "UPDATE observation_groups SET metadata = json_set(metadata, '$.before', json(?)) WHERE id = ?",
        (json.dumps(before, ensure_ascii=False), reflection.id),
    )


def _transition(
    db: Database, ids: Sequence[str], before: GroupState, after: GroupState, *, time_column: str, now: int
) -> None:
    marks = ",".join("?" * len(ids))
    changed = db.execute_sql(
        f"UPDATE observation_groups SET state = ?, {time_column} = ? WHERE id IN ({marks}) AND state = ? RETURNING 1",
        (after, now, *ids, before),
    ).fetchall()
    if len(changed) != len(ids):
        raise MemoryFailure("The log has changed meanwhile.", code="conflict")


def discard(db: Database, ids: Sequence[str], now: int) -> None:
    """Buffered groups that will never be used: kept, with the time, but out of search."""
    _transition(db, ids, "buffered", "discarded", time_column="discarded_at", now=now)
    for group_id in ids:
        for (line_id,) in db.execute_sql("SELECT id FROM observations WHERE group_id = ?", (group_id,)).fetchall():
            for kind in ("observation", "reflection"):
                search_index.remove(db, kind, line_id)


def pinned_lines(db: Database, group_ids: Sequence[str]) -> list[str]:
    """The pinned lines of some groups as the log writes them, oldest first."""
    marks = ",".join("?" * len(group_ids))
    rows = db.execute_sql(
        "SELECT coalesce(edited, content), priority, time FROM observations"
        f" WHERE group_id IN ({marks}) AND pinned = 1 AND forgotten = 0 ORDER BY pk",
        list(group_ids),
    ).fetchall()
    return [as_line(content, priority, time) for content, priority, time in rows]


def categories(db: Database, group_ids: Sequence[str]) -> dict[str, str]:
    """The section of its mode that a line of these groups stands in, by its content; lines without one are left out."""
    marks = ",".join("?" * len(group_ids))
    rows = db.execute_sql(
        f"SELECT content, category FROM observations WHERE group_id IN ({marks}) AND category != ''", list(group_ids)
    )
    return dict(rows.fetchall())


def as_line(content: str, priority: str, time: str) -> str:
    sign = {"high": "🔴 ", "medium": "🟡 ", "low": "🟢 ", "done": "✅ "}.get(priority, "")
    return f"* {sign}{f'({time}) ' if time else ''}{content}"
