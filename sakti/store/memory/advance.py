"""Change the state of memory: the only place where a group is added or changes its state.

`advance` runs inside the caller's transaction and checks the stored rows, not what the caller has read. A move that
would break an invariant raises `MemoryFailure` and changes nothing:

- a group covers only messages behind the cursor, and no index is covered by two groups;
- a group becomes active only right behind the cursor (withheld messages aside), so nothing is skipped;
- the cursor is the end of the groups: it moves forward with them, and back only by the user's undo;
- a reflection replaces only groups that are in the log, and only if the log has not changed since;
- an undo reverses exactly what the undone operation did, else it is refused.

A group without a range of its own thread (a report, an import) is exempt from the rules for ranges.

Raw SQL: every group that memory makes passes here.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs
from peewee import fn

from sakti.core.errors import MemoryFailure
from sakti.core.types import Json, Thread
from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.memory import group_rows as rows
from sakti.store.memory import moves
from sakti.store.memory.group_rows import Group, NewLine
from sakti.store.memory.moves import (
    Activate,
    Add,
    Move,
    MoveResult,
    UndoCompaction,
    UndoReflection,
    are_in_state,
    change_state,
    discard_groups,
    has_messages_between,
    update_figures,
)
from sakti.store.memory.records import HOLD_REFLECTION, count_corrections, read_revision
from sakti.store.models import GroupRow, MemoryRecordRow
from sakti.store.rows import select, update
from sakti.store.threads import threads
from sakti.store.threads.threads import HOLD


def advance(db: Database, record_id: str, thread_id: str, move: Move, now: int) -> MoveResult:
    """Carry out one move of a record's memory, as seen from a thread.

    Raises `MemoryFailure`: conflict (the rows do not allow it), lease_lost, not_found (nothing to undo).
    """
    match move:
        case Add():
            done = _add(db, move, now)
        case Activate():
            done = _activate(db, record_id, thread_id, move, now)
        case UndoCompaction():
            done = moves.undo_compaction(db, record_id, thread_id, move, now)
        case UndoReflection():
            done = moves.undo_reflection(db, record_id, move, now)
    update_figures(db, record_id, thread_id, now)
    return done


# --- a new group ------------------------------------------------------------------------------------------


def _add(db: Database, move: Add, now: int) -> MoveResult:
    group, lease_key = move.group, move.held
    lease: Json = {"record_id": group.record_id, **structs.asdict(lease_key)}
    leases.require(db, **lease)
    if group.kind == "reflection":
        require_condensable(db, group.record_id, group.merged_group_ids, move.corrections)
    elif group.observes:
        _require_coverable(db, group)
    thread = threads.get(db, group.thread_id)
    rows.insert_group(db, group, move.lines, thread.resource_id if thread else "")
    if move.activate:
        _activate_groups(db, [group], now)
    if move.ends:
        leases.release(db, **lease)
    return MoveResult((group,), retitled=_retitle(db, thread, group, now))


def _require_coverable(db: Database, group: Group) -> None:
    # SQL: each step runs it; building a query takes 80-300 µs
    overlap, provisional = db.execute_sql(
        "SELECT EXISTS (SELECT 1 FROM observation_groups WHERE thread_id = ?1 AND first_index <= ?3"
        " AND last_index >= ?2 AND record_id = ?4 AND kind = 'observation' AND state != 'discarded'),"
        " EXISTS (SELECT 1 FROM messages WHERE thread_id = ?1 AND message_index BETWEEN ?2 AND ?3"
        " AND state = 'provisional')",
        (group.thread_id, group.first_index, group.last_index, group.record_id),
    ).fetchone()
    if overlap or (group.first_index or 0) <= rows.find_cursor(db, group.record_id, group.thread_id):
        raise MemoryFailure("These messages were observed in another window meanwhile.", code="conflict")
    if provisional:
        raise MemoryFailure("These messages are not accepted yet.", code="conflict")


def add_report(db: Database, group: Group, lines: Sequence[NewLine]) -> None:
    """Store the findings of a child thread, in the transaction of the message with its report.

    They enter the log when that message (`at` of the group's metadata) leaves the context.
    """
    thread = threads.get(db, group.thread_id)
    rows.insert_group(db, group, lines, thread.resource_id if thread else "")


def require_condensable(db: Database, record_id: str, merged: Sequence[str], corrections: int) -> None:
    """Check that a reflection of these groups may be stored; also called before its model is called.

    `corrections`: their number when the log was read. Raises `MemoryFailure` (conflict).
    """
    if count_corrections(db, record_id) != corrections:
        raise MemoryFailure("The log was corrected meanwhile and will be condensed again.", code="conflict")
    if any(g.kind == "reflection" for g in rows.list_groups(db, record_id, "buffered")):
        raise MemoryFailure("Another window has already prepared a reflection.", code="conflict")
    if not are_in_state(db, merged, "active"):
        raise MemoryFailure("The log has changed meanwhile and will be condensed again.", code="conflict")


def _retitle(db: Database, thread: Thread | None, group: Group, now: int) -> Thread | None:
    """Set the Observer's title, unless the user pinned one or a newer observation gave one."""
    title = str(group.metadata.get("title") or "")
    if not title or thread is None or thread.title_pinned:
        return None
    if thread.metadata.get("title_index", -1) >= (group.last_index or 0):
        return None
    threads.update_metadata(db, thread.id, {"title_index": group.last_index})
    return threads.rename(db, thread.id, title, now, by_user=False)


# --- activation -------------------------------------------------------------------------------------------


def _activate(db: Database, record_id: str, thread_id: str, move: Activate, now: int) -> MoveResult:
    if move.revision is not None and move.revision != read_revision(db, record_id, thread_id)[0]:
        raise MemoryFailure("The log has changed meanwhile; its observations will be chosen again.", code="conflict")
    chosen = _choose_groups(db, record_id, thread_id, move.group_ids)
    if chosen:
        _activate_groups(db, chosen, now)
    activated = tuple(structs.replace(g, state="active", activated_at=now) for g in chosen)
    if not move.reflection:
        return MoveResult(activated)
    reflection, removed = _activate_reflection(db, record_id, thread_id, now, alone=not chosen)
    return MoveResult(activated, reflection, removed)


def _choose_groups(db: Database, record_id: str, thread_id: str, ids: Sequence[str]) -> list[Group]:
    """Return observations of a thread in the order of `ids`.

    Raises `MemoryFailure` (conflict) for any other group.
    """
    by_id = {g.id: g for g in rows.get_groups(db, ids)} if ids else {}
    chosen = [by_id[i] for i in ids if i in by_id]
    places = {(g.record_id, g.thread_id, g.kind) for g in chosen}
    if len(chosen) != len(ids) or places - {(record_id, thread_id, "observation")}:
        raise MemoryFailure("These observations belong to another thread.", code="conflict")
    return chosen


def _activate_groups(db: Database, entering: Sequence[Group], now: int) -> None:
    """Activate groups of one thread, each directly behind the observed messages."""
    first = entering[0]
    end = _require_adjacent(
        db, [g for g in entering if g.observes], rows.find_cursor(db, first.record_id, first.thread_id)
    )
    change_state(db, [g.id for g in entering], "buffered", "active", now)
    _activate_reports(db, first.record_id, first.thread_id, end, now)
    record, observed = MemoryRecordRow, sum(g.message_tokens for g in entering)
    record.update(
        last_observed_at=now,
        total_tokens_observed=record.total_tokens_observed + observed,
        last_buffered_at_tokens=fn.MAX(0, record.last_buffered_at_tokens - observed),
    ).where(record.id == first.record_id).execute(db)
    source = next((g for g in reversed(entering) if g.current_task or g.suggested_response), None)
    threads.update_metadata(
        db, first.thread_id, {"last_observed_at": now, HOLD: None, **(read_task(source) if source else {})}
    )


def _require_adjacent(db: Database, groups: Sequence[Group], end: int) -> int:
    """Return the last message of groups that follow message `end` without a gap.

    Raises `MemoryFailure` (conflict).
    """
    for group in groups:
        assert group.first_index is not None and group.last_index is not None
        if group.first_index <= end or has_messages_between(db, group.thread_id, end, group.first_index):
            raise MemoryFailure("The log has changed meanwhile.", code="conflict")
        end = group.last_index
    return end


def _activate_reports(db: Database, record_id: str, thread_id: str, end: int, now: int) -> None:
    """Activate the reports whose messages have left the context, at the end of the log.

    Groups enter the log in the order of their rows, and a report is stored before the observations of the messages
    around it. Its row moves to the end, and the other buffered groups follow it.
    """
    waiting = [g for g in rows.list_groups(db, record_id, "buffered") if g.kind == "observation"]
    reports = [g for g in waiting if _is_report(g, thread_id) and (g.end or 0) <= end]
    if not reports:
        return
    for group in sorted(waiting, key=lambda g: g not in reports):
        # SQL: sets a key from a subselect over the same table
        db.execute_sql(
            "UPDATE observation_groups SET pk = (SELECT max(pk) + 1 FROM observation_groups) WHERE id = ?", (group.id,)
        )
    change_state(db, [g.id for g in reports], "buffered", "active", now)


def _is_report(group: Group, thread_id: str) -> bool:
    return group.origin == "report" and group.thread_id == thread_id


def _activate_reflection(
    db: Database, record_id: str, thread_id: str, now: int, *, alone: bool
) -> tuple[Group | None, tuple[Group, ...]]:
    """Activate the buffered reflection in place of the groups it merged."""
    waiting = next((g for g in rows.list_groups(db, record_id, "buffered") if g.kind == "reflection"), None)
    if waiting is None:
        return None, ()
    if not are_in_state(db, waiting.merged_group_ids, "active"):
        discard_groups(db, [waiting], now)
        return None, (waiting,)
    record = MemoryRecordRow
    ((origin, last),) = select(db, record, ("origin_type", "last_reflection_at"), id=record_id)
    before: Json = {"origin_type": origin, "last_reflection_at": last}  # data for an undo only
    merged = rows.get_groups(db, waiting.merged_group_ids)
    before |= _write_task(db, waiting, merged, thread_id) if alone else {}
    update(db, GroupRow, waiting.id, metadata={**waiting.metadata, "before": before})
    change_state(db, [waiting.id], "buffered", "active", now)
    change_state(db, waiting.merged_group_ids, "active", "superseded", now)
    record.update(
        generation_count=record.generation_count + 1,
        last_reflection_at=now,
        origin_type="reflection",
        metadata=fn.json_remove(record.metadata, f"$.{HOLD_REFLECTION}"),
    ).where(record.id == record_id).execute(db)
    return rows.get_groups(db, [waiting.id])[0], tuple(merged)


def _write_task(db: Database, reflection: Group, merged: Sequence[Group], thread_id: str) -> Json:
    """Write the reflection's task to the thread; return the previous one.

    It does nothing if a newer Observer has set the task, or if the reflection covers other threads.
    """
    thread = threads.get(db, thread_id)
    if thread is None or not reflection.current_task or any(g.thread_id != thread_id for g in merged):
        return {}
    if thread.metadata.get("task_index", -1) > (reflection.last_index if reflection.last_index is not None else -1):
        return {}
    written = read_task(reflection)
    threads.update_metadata(db, thread_id, written)
    return {"task": {name: thread.metadata.get(name) for name in written}}


def read_task(group: Group) -> Json:
    """Return the task fields of a group, in the form of its thread's metadata."""
    return {
        "current_task": group.current_task,
        "suggested_response": group.suggested_response,
        "task_index": group.last_index,
    }
