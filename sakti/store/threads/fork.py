"""Fork a thread: make a new one that begins with its messages up to a given one.

The fork has a memory record of its own. The log of the copied messages is copied too, so that nothing is observed
twice; a reflection that covers later messages is replaced by its sources. Messages behind the copied log are
unobserved.

A new thread may also begin with a block of earlier work. Each piece stores its source. To keep the prompt's prefix
stable, the block only changes for deleted threads and tasks, and forgotten or corrected lines. A line that the user
removed is dropped when the prefix changes anyway (`drop_removed_lines`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import replace
from peewee import fn

from sakti.core.clock import Ids
from sakti.core.errors import StoreError
from sakti.core.types import Json, Thread
from sakti.store import memory, rows
from sakti.store.connection import Database
from sakti.store.log import replacements
from sakti.store.memory import Group
from sakti.store.memory.group_rows import GROUP
from sakti.store.models import (
    CarryOverRow,
    GroupRow,
    MemoryRecordRow,
    MessageRow,
    ObservationRow,
    SearchDocRow,
    WorkingMemoryRow,
)
from sakti.store.search import index as search_index
from sakti.store.search import reindexing
from sakti.store.text_registry import mask_for_storage
from sakti.store.threads import threads

_OF_THREAD = ("active_task_id", threads.HOLD, threads.HOLD_LIMITED, threads.UNDONE, threads.UNDO_OF)
_LOG = ("away",)  # in a group's metadata: when a reflection, which is not copied, replaced it


def fork(
    db: Database,
    thread_id: str,
    *,
    id: str,
    ids: Ids,
    now: int,
    upto: int | None = None,
    undo: bool = False,
) -> Thread:
    """Create thread `id` from another one's messages up to index `upto`, with log and search rows.

    `undo`: it continues the original under its title. Costs stay with the original. The messages of an unfinished turn
    are left out. Raises `StoreError` if there is no such thread, or no message.
    """
    parent = threads.get(db, thread_id)
    if parent is None:
        raise StoreError("This thread was removed for good.", code="gone")
    last = _find_last_index(db, thread_id, upto)
    if last is None:
        raise StoreError("There is no message to fork from.")
    metadata = _cut_metadata(parent.metadata, last) | ({threads.UNDO_OF: thread_id} if undo else {})
    past = [[t, min(end, last)] for t, end in parent.metadata.get("lineage", ())]
    copy = threads.create(
        db,
        Thread(
            id,
            parent.resource_id,
            parent.title if undo else f"{parent.title}{threads.FORK_SUFFIX}".strip(),
            now,
            now,
            title_pinned=parent.title_pinned,
            mode=parent.mode,
            metadata={**metadata, "forked_from": thread_id, "forked_at": last, "lineage": [*past, [thread_id, last]]},
        ),
    )
    new_ids = _copy_messages(db, thread_id, copy, last, ids)
    reindexing.note_fork(db, thread_id, copy.id)
    record = MemoryRecordRow
    keys = f"thread:{thread_id}", f"resource:{parent.resource_id}"
    records = record.select(record.id, record.lookup_key).where(record.lookup_key.in_(keys)).tuples()
    for record_id, key in records.execute(db):
        if key == f"thread:{thread_id}":
            _copy_memory(db, record_id, copy, last, new_ids, ids)
        else:
            _cover_shared_messages(db, record_id, thread_id, copy, last, ids)
    _copy_page(db, thread_id, copy, ids)
    copy_carry_over(db, thread_id, copy.id)
    return copy


def _cut_metadata(metadata: Json, last: int) -> Json:
    """Return the metadata of a thread without that of messages after index `last`."""
    dropped = set(_OF_THREAD)
    if (metadata.get("task_index") or -1) > last:  # a later message set the task
        dropped |= {"current_task", "suggested_response", "task_index"}
    if (metadata.get("plan") or {}).get("index", -1) > last:
        dropped |= {"plan", threads.PINNED_PLAN}
    if (metadata.get("goal") or {}).get("index", -1) > last:
        dropped |= {"goal", threads.PINNED_GOAL}
    return {k: v for k, v in metadata.items() if k not in dropped}


def _find_last_index(db: Database, thread_id: str, upto: int | None) -> int | None:
    row = MessageRow
    here = row.thread_id == thread_id
    query = row.select(fn.MAX(row.message_index)).where(here)
    if upto is not None:
        query = query.where(row.message_index <= upto)
    waiting = row.select(fn.MIN(row.message_index)).where(here, row.state == "provisional").scalar(db)
    return query.where(row.message_index < waiting).scalar(db) if waiting is not None else query.scalar(db)


# --- messages ---------------------------------------------------------------------------------------------


def _copy_messages(db: Database, thread_id: str, copy: Thread, last: int, ids: Ids) -> dict[str, str]:
    """Copy the messages; return the new id of each."""
    row = MessageRow
    copied = row.select(row.id).where(row.thread_id == thread_id, row.message_index <= last)
    new_ids = {old: ids.new() for (old,) in copied.order_by(row.message_index).tuples().execute(db)}
    for old, new in new_ids.items():
        rows.copy(db, MessageRow, {"id": old}, id=new, thread_id=copy.id, task_id=None)
    copies = row.select(row.pk).where(row.thread_id == copy.id).order_by(row.message_index)
    search_index.index_messages(db, [pk for (pk,) in copies.tuples().execute(db)])
    return new_ids


def _copy_doc(db: Database, kind: str, old: str, new: str, thread_id: str) -> None:
    rows.copy(db, SearchDocRow, {"kind": kind, "doc_id": old}, doc_id=new, thread_id=thread_id, task_id=None)


# --- memory -----------------------------------------------------------------------------------------------


def _cover_shared_messages(db: Database, record_id: str, thread_id: str, copy: Thread, last: int, ids: Ids) -> None:
    """Add an empty group for the messages that the workspace's shared log covers already."""
    end = min(memory.find_cursor(db, record_id, thread_id), last)
    if end >= 0:
        rows.insert(
            db,
            GroupRow,
            id=ids.new(),
            record_id=record_id,
            thread_id=copy.id,
            kind="observation",
            state="active",
            first_index=0,
            last_index=end,
            text="",
            metadata={"forked": True},
            created_at=copy.created_at,
            activated_at=copy.created_at,
        )


def _copy_memory(db: Database, record_id: str, made: Thread, last: int, new_ids: dict[str, str], ids: Ids) -> None:
    """Copy the log up to message `last` into a record of the fork's own."""
    groups = {
        g.id: g for state in ("superseded", "active", "buffered") for g in memory.list_groups(db, record_id, state)
    }  # a reflection's sources are among them
    log, ready = _limit_log(groups, last)
    record = ids.new()
    _copy_record(db, record_id, record, made, log)
    new_group: dict[str, str] = {}
    states = {g.id: "active" for g in log} | {g.id: "buffered" for g in ready}
    for group in _with_sources([*log, *ready], groups):
        new_group[group.id] = ids.new()
        copy = _copy_group(group, states.get(group.id, "superseded"), new_ids | new_group)
        copy = replace(copy, record_id=record, thread_id=made.id)
        rows.insert(db, GroupRow, **GROUP.values(copy))
        _copy_lines(db, group, copy, ids)


def _copy_group(group: Group, state: str, new_ids: dict[str, str]) -> Group:
    """Return a group with the new ids of itself, its messages and its sources."""
    return replace(
        group,
        id=new_ids[group.id],
        state=state,
        first_message_id=new_ids.get(group.first_message_id or ""),
        last_message_id=new_ids.get(group.last_message_id or ""),
        message_ids=tuple(new_ids[m] for m in group.message_ids if m in new_ids),
        merged_group_ids=tuple(new_ids[m] for m in group.merged_group_ids),
        metadata={k: v for k, v in group.metadata.items() if k not in _LOG},
        superseded_at=group.superseded_at if state == "superseded" else None,
    )


def _limit_log(groups: dict[str, Group], last: int) -> tuple[list[Group], list[Group]]:
    """Active groups with the ones they merged, and buffered observations, of messages up to `last`."""
    log = [part for g in groups.values() if g.state == "active" for part in limit_group(g, last, groups)]
    waiting = [g for g in groups.values() if (g.state, g.kind) == ("buffered", "observation")]
    return [part for part in log if part.end is not None], [g for g in waiting if (g.end or 0) <= last]


def limit_group(group: Group, last: int, groups: dict[str, Group]) -> list[Group]:
    """Return `group` if it ends by message `last`, else those of its sources that do. Pure."""
    if group.end is None or group.end <= last:
        return [group]
    return [part for i in group.merged_group_ids if i in groups for part in limit_group(groups[i], last, groups)]


def _with_sources(groups: Iterable[Group], by_id: dict[str, Group]) -> list[Group]:
    """Return the groups and their sources, sources first."""
    group_ids: set[str] = set()

    def add(group: Group) -> None:
        group_ids.add(group.id)
        for source in group.merged_group_ids:
            if source in by_id:
                add(by_id[source])

    for group in groups:
        add(group)
    return sorted(
        (by_id[i] for i in group_ids), key=lambda g: (g.kind == "reflection", g.generation, g.first_index or g.end or 0)
    )


def _copy_record(db: Database, old: str, new: str, copy: Thread, log: Sequence[Group]) -> None:
    parent: Any = MemoryRecordRow.select().where(MemoryRecordRow.id == old).get(db)
    observations = [g for g in log if g.kind == "observation"]
    generation = max((g.generation for g in log if g.kind == "reflection"), default=0)
    rows.insert(
        db,
        MemoryRecordRow,
        id=new,
        lookup_key=f"thread:{copy.id}",
        scope="thread",
        thread_id=copy.id,
        resource_id=copy.resource_id,
        origin_type=_find_origin_type(log),
        generation_count=generation,
        last_observed_at=parent.last_observed_at if log else None,
        last_reflection_at=parent.last_reflection_at if generation else None,
        total_tokens_observed=sum(g.message_tokens for g in observations),
        observation_token_count=sum(g.observation_tokens for g in log),
        observed_timezone=parent.observed_timezone,
        metadata={k: parent.metadata[k] for k in parent.metadata.keys() & {"actor", "corrections", "paused"}},
        created_at=copy.created_at,
        updated_at=copy.created_at,
    )


def _find_origin_type(log: Sequence[Group]) -> str:
    """Return the kind of the newest change of a log."""
    if any(group.kind == "reflection" for group in log):
        return "reflection"
    return "observation" if log else "initialization"


def _copy_lines(db: Database, old: Group, new: Group, ids: Ids) -> None:
    row = ObservationRow
    for (line_id,) in row.select(row.id).where(row.group_id == old.id).order_by(row.pk).tuples().execute(db):
        copied = ids.new()
        rows.copy(db, row, {"id": line_id}, id=copied, group_id=new.id, thread_id=new.thread_id)
        _copy_doc(db, old.kind, line_id, copied, new.thread_id)


def _copy_page(db: Database, thread_id: str, copy: Thread, ids: Ids) -> None:
    """Copy the newest version of the thread's own page of working memory, if it has one."""
    row = WorkingMemoryRow
    pages = row.select(row.id).where(row.scope == "thread", row.owner_id == thread_id).order_by(row.version.desc())
    if newest := pages.limit(1).scalar(db):
        rows.copy(db, row, {"id": newest}, id=ids.new(), owner_id=copy.id, version=1, created_at=copy.created_at)
        _copy_doc(db, "working_memory", f"thread:{thread_id}", f"thread:{copy.id}", copy.id)


# --- carried-over work ----------------------------------------------------------------------------------------

Kind: TypeAlias = Literal["thread", "line", "task"]
CARRY_OVER_KEY = "carry_over"  # in a thread's metadata: the text above the pieces; set once they were chosen
REMOVED = "carry_over_removed"  # in a thread's metadata: positions of the lines that the user removed
LINE = "* "
_CARRIED = (
    "SELECT c.position, c.kind, c.source_id, c.text, coalesce(o.edited, o.content),"
    " json_extract(own.metadata, '$.carry_over'), json_extract(own.metadata, '$.carry_over_removed')"
    " FROM carry_over c JOIN threads own ON own.id = c.thread_id"
    " LEFT JOIN observations o ON c.kind = 'line' AND o.id = c.source_id"
    " LEFT JOIN threads t ON t.id = CASE c.kind WHEN 'line' THEN o.thread_id WHEN 'thread' THEN c.source_id END"
    " LEFT JOIN tasks k ON c.kind = 'task' AND k.id = c.source_id"
    " WHERE c.thread_id = ? AND CASE c.kind WHEN 'task' THEN k.id IS NOT NULL AND k.deleted_at IS NULL"
    " ELSE t.id IS NOT NULL AND t.deleted_at IS NULL AND coalesce(o.forgotten, 0) = 0 END ORDER BY c.position"
)


class CarriedPiece(Struct, frozen=True):
    """Line of the block, and the thread, log line or task that it is about."""

    kind: Kind
    source_id: str
    text: str


class CarriedLine(Struct, frozen=True):
    """One line as it is sent, or as the first turn will send it; `is_removed` by the user.

    A removed line that `is_sent` is dropped at the next change of the prompt's prefix.
    """

    position: int
    kind: Kind
    source_id: str
    text: str
    is_removed: bool = False
    is_sent: bool = True


def store_carry_over(db: Database, thread_id: str, head: str, pieces: Sequence[CarriedPiece]) -> None:
    """Store the block that a thread begins with: `head` above the pieces; no pieces mean no block."""
    threads.update_metadata(db, thread_id, {CARRY_OVER_KEY: head})
    values = [{"thread_id": thread_id, "position": n, **to_builtins(piece)} for n, piece in enumerate(pieces)]
    if values:
        CarryOverRow.replace_many(values).execute(db)


def copy_carry_over(db: Database, thread_id: str, new: str) -> None:
    """Copy a thread's carried-over block to its fork."""
    rows.copy(db, CarryOverRow, {"thread_id": thread_id}, thread_id=new)


def read_carried_text(db: Database, thread_id: str) -> str:
    """Return the current block, "" if it is missing or empty."""
    head, carried = _read_carried(db, thread_id)
    return "\n".join([head, *(line.text for line in carried)]).strip() if carried else ""


def read_carried_lines(db: Database, thread_id: str) -> list[CarriedLine]:
    """Return the lines of the block as it is now."""
    return _read_carried(db, thread_id)[1]


def _read_carried(db: Database, thread_id: str) -> tuple[str, list[CarriedLine]]:
    # SQL: reads JSON inside a column
    stored = db.execute_sql(_CARRIED, (thread_id,)).fetchall()
    if not stored:
        return "", []
    *_, head, removed = stored[0]
    removed_positions = frozenset[int](json.loads(removed or "[]"))
    carried = [
        CarriedLine(position, kind, source_id, _choose_text(kind, text, current), position in removed_positions)
        for position, kind, source_id, text, current, *_ in stored
    ]
    return str(head or ""), carried


def mark_removed(db: Database, thread_id: str, position: int, *, removed: bool) -> None:
    """Store whether the user removed a line."""
    positions = {line.position for line in read_carried_lines(db, thread_id) if line.is_removed} - {position}
    positions |= {position} if removed else set()
    threads.update_metadata(db, thread_id, {REMOVED: sorted(positions) or None})


def has_removed(db: Database, thread_id: str) -> bool:
    """Return whether the user removed lines that are still sent."""
    return any(line.is_removed for line in read_carried_lines(db, thread_id))


def drop_removed_lines(db: Database, thread_id: str) -> None:
    """Delete the lines that the user removed."""
    positions = [line.position for line in read_carried_lines(db, thread_id) if line.is_removed]
    row = CarryOverRow
    row.delete().where(row.thread_id == thread_id, row.position.in_(positions)).execute(db)
    threads.update_metadata(db, thread_id, {REMOVED: None})


def _choose_text(kind: str, carried: str, current: str | None) -> str:
    """Return a line's text, corrected if it was corrected since."""
    if kind != "line" or current is None:
        return carried
    current = mask_for_storage("carry_over", "text", current)
    is_same = replacements.remove_marks(current) in replacements.remove_marks(carried)
    return carried if is_same else f"{LINE}{current}"
