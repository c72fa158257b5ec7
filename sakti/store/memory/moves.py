"""Define the moves of memory; change states of groups; store compactions and undo them.

`advance` carries the moves out. No row is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace
from peewee import fn

from sakti.core.errors import MemoryFailure
from sakti.core.types import Json, Thread
from sakti.store.connection import Database
from sakti.store.memory import group_rows as rows
from sakti.store.memory.group_rows import Group, GroupState, NewLine, ResultLease
from sakti.store.memory.records import CORRECTIONS, HOLD_REFLECTION, count_corrections, set_record_metadata
from sakti.store.models import CompactionRow, GroupRow, MemoryRecordRow, MessageRow, ObservationRow
from sakti.store.rows import Shape, fetch_first, insert, update
from sakti.store.search import index as search_index
from sakti.store.threads import threads
from sakti.store.threads.threads import HOLD


class Add(Struct, frozen=True):
    """Store a finished observation or reflection, made under a lease.

    It is buffered; with `activate` an observation goes into the log at once. `corrections`: number of corrections of
    the log when a reflection read it. `ends`: this is the last result of its lease, which is then released.
    """

    group: Group
    lines: Sequence[NewLine]
    held: ResultLease
    activate: bool = False
    corrections: int = 0
    ends: bool = False


class Activate(Struct, frozen=True):
    """Activate buffered groups of one thread, oldest first; with `reflection`, the buffered one too.

    A reflection of a log that has changed since is discarded instead. `revision`: that of the record when the groups
    were chosen; if set, a different revision prevents the activation.
    """

    group_ids: tuple[str, ...] = ()
    reflection: bool = False
    revision: int | None = None


class UndoCompaction(Struct, frozen=True):
    """Undo a thread's last compaction; nothing is observed automatically for the next `interval` tokens."""

    compaction_id: str
    interval: int


class UndoReflection(Struct, frozen=True):
    """Undo a reflection, the newest if `generation` is None.

    Nothing is condensed automatically for the next `interval` tokens of the log.
    """

    interval: int
    generation: int | None = None


Move: TypeAlias = Add | Activate | UndoCompaction | UndoReflection


class MoveResult(Struct, frozen=True):
    """Result of a move.

    The groups that it activated or buffered, the activated reflection, the groups that left the log (superseded,
    discarded or back to buffered), the number of their corrected lines, and the thread if it got a new title.
    """

    groups: tuple[Group, ...] = ()
    reflection: Group | None = None
    removed: tuple[Group, ...] = ()
    corrected_lines: int = 0
    retitled: Thread | None = None


_TIME = {
    "buffered": "activated_at",
    "active": "activated_at",
    "superseded": "superseded_at",
    "discarded": "discarded_at",
}


def change_state(db: Database, ids: Sequence[str], before: GroupState, after: GroupState, now: int) -> None:
    """Change the state of groups. Raises MemoryFailure (conflict) unless all are in state `before`."""
    marks = ",".join("?" * len(ids))
    # SQL: each step runs it; building a query takes 80-300 µs
    changed = db.execute_sql(
        f"UPDATE observation_groups SET state = ?, {_TIME[after]} = ? WHERE id IN ({marks}) AND state = ? RETURNING 1",
        (after, None if after == "buffered" else now, *ids, before),
    ).fetchall()
    if len(changed) != len(set(ids)):
        raise MemoryFailure("The log has changed meanwhile.", code="conflict")


def are_in_state(db: Database, ids: Sequence[str], state: GroupState) -> bool:
    marks = ",".join("?" * len(ids))
    # SQL: each step runs it; building a query takes 80-300 µs
    (count,) = db.execute_sql(
        f"SELECT count(*) FROM observation_groups WHERE id IN ({marks}) AND state = ?", (*ids, state)
    ).fetchone()
    return count == len(set(ids))


def discard_groups(db: Database, groups: Sequence[Group], now: int) -> None:
    """Discard buffered groups: they are kept, with the time, but removed from search."""
    change_state(db, [g.id for g in groups], "buffered", "discarded", now)
    for group in groups:
        rows.unindex_group(db, group)


def discard_stale(db: Database, record_id: str, group_ids: Sequence[str], now: int) -> None:
    """Discard a buffered reflection made from one of these groups, which have changed since."""
    changed = set(group_ids)
    stale = [
        g
        for g in rows.list_groups(db, record_id, "buffered")
        if g.kind == "reflection" and not changed.isdisjoint(g.merged_group_ids)
    ]
    if stale:
        discard_groups(db, stale, now)


def update_figures(db: Database, record_id: str, thread_id: str, now: int) -> None:
    """Update the record's counts from its groups and messages."""
    # SQL: each step runs it; building a query takes 80-300 µs
    db.execute_sql(
        "UPDATE observational_memory SET updated_at = ?1, revision = revision + 1, observation_token_count = (SELECT"
        " coalesce(sum(observation_tokens), 0) FROM observation_groups WHERE record_id = ?2 AND state = 'active'),"
        " pending_message_tokens = (SELECT coalesce(sum(token_count), 0) FROM messages WHERE thread_id = ?3"
        " AND message_index > ?4 AND state != 'withheld'), origin_type = CASE WHEN origin_type = 'initialization'"
        " AND EXISTS (SELECT 1 FROM observation_groups WHERE record_id = ?2 AND state = 'active')"
        " THEN 'observation' ELSE origin_type END WHERE id = ?2",
        (now, record_id, thread_id, rows.find_cursor(db, record_id, thread_id)),
    )


def has_messages_between(db: Database, thread_id: str, after: int, before: int) -> bool:
    """Return whether observable messages lie strictly between two indexes of a thread."""
    if before - after <= 1:
        return False
    # SQL: each step runs it; building a query takes 80-300 µs
    row = db.execute_sql(
        "SELECT 1 FROM messages WHERE thread_id = ? AND message_index > ? AND message_index < ?"
        " AND state != 'withheld' LIMIT 1",
        (thread_id, after, before),
    ).fetchone()
    return row is not None


# --- compactions ----------------------------------------------------------------------------------------------


class Compaction(Struct, frozen=True):
    """Completed /compact.

    `group_ids`: exactly the groups that it made or activated, all of its thread. `before`: ids of the groups that
    were buffered, the thread's task, the record's last times.
    """

    id: str
    thread_id: str
    resource_id: str
    record_id: str
    focus: str
    first_index: int
    last_index: int
    message_count: int
    message_ids: tuple[str, ...]
    group_ids: tuple[str, ...]
    before: Json
    tokens_before: int
    tokens_after: int
    created_at: int


COMPACTION = Shape(CompactionRow, Compaction, message_ids="original_message_ids")


def add_compaction(db: Database, done: Compaction) -> None:
    insert(db, CompactionRow, **COMPACTION.values(done))


def count_lines(db: Database, done: Compaction) -> tuple[int, int, int]:
    """Count lines of the log after a compaction: its own, the pinned ones, and its own with flags."""
    line, group = ObservationRow, GroupRow
    in_log = (group.record_id == done.record_id) & (group.state == "active")
    pinned_lines = group.select(fn.COUNT(line.pk)).join(line, on=line.group_id == group.id).where(in_log)
    pinned = pinned_lines.where(line.pinned == 1, line.forgotten == 0).scalar(db)
    flagged = fn.COALESCE(fn.SUM(fn.json_array_length(line.flags) > 0), 0)
    new_lines = line.select(fn.COUNT(line.pk), flagged.coerce(False)).where(line.group_id.in_(done.group_ids))
    lines, doubtful = fetch_first(db, new_lines.where(line.forgotten == 0))
    return lines, pinned, doubtful


def last_compaction(db: Database, thread_id: str) -> Compaction | None:
    """Return the newest compaction of a thread that was not undone."""
    row = CompactionRow
    here = (row.thread_id == thread_id) & row.undone_at.is_null()
    return COMPACTION.select().where(here).order_by(row.pk.desc()).limit(1).get_or_none(db)


def mark_compaction_undone(db: Database, compaction_id: str, now: int) -> None:
    update(db, CompactionRow, compaction_id, undone_at=now)


def undo_compaction(db: Database, record_id: str, thread_id: str, move: UndoCompaction, now: int) -> MoveResult:
    """Undo a compaction: formerly buffered groups are buffered again, its new groups are discarded.

    Its messages are unobserved again.
    """
    done = last_compaction(db, thread_id)
    if done is None or done.id != move.compaction_id:
        raise MemoryFailure("Only the last compaction of this thread can be undone.", code="conflict")
    groups = _load_own_groups(db, done, record_id, thread_id)
    ready = set(done.before.get("buffered", ()))
    buffered = [g.id for g in groups if g.id in ready]
    created = [g for g in groups if g.id not in ready]
    change_state(db, [g.id for g in created], "active", "discarded", now)  # the time in the log is kept
    change_state(db, buffered, "active", "buffered", now)
    for group in created:
        rows.unindex_group(db, group)
    end = rows.find_cursor(db, record_id, thread_id)
    reports = _take_back_reports(db, record_id, thread_id, end, now)
    discard_stale(db, record_id, [*(g.id for g in groups), *reports], now)
    record = MemoryRecordRow
    record.update(
        total_tokens_observed=record.total_tokens_observed - sum(g.message_tokens for g in groups),
        last_buffered_at_tokens=done.before["last_buffered_at_tokens"],
        last_observed_at=done.before["last_observed_at"],
    ).where(record.id == record_id).execute(db)
    pending = _count_pending_tokens(db, thread_id, end)
    threads.update_metadata(db, thread_id, {**done.before["thread"], HOLD: pending + move.interval})
    mark_compaction_undone(db, done.id, now)
    return MoveResult(removed=tuple(groups))


def _count_pending_tokens(db: Database, thread_id: str, end: int) -> int:
    """Return the tokens of the messages after index `end`."""
    row = MessageRow
    behind = (row.thread_id == thread_id) & (row.message_index > end) & (row.state != "withheld")
    return row.select(fn.COALESCE(fn.SUM(row.token_count), 0)).where(behind).scalar(db)


def _take_back_reports(db: Database, record_id: str, thread_id: str, end: int, now: int) -> list[str]:
    """Buffer the reports again whose messages are back in the context; return their group ids."""
    active = [g for g in rows.list_groups(db, record_id, "active") if g.origin == "report" and g.thread_id == thread_id]
    reports = [g.id for g in active if (g.end or 0) > end]
    change_state(db, reports, "active", "buffered", now)
    return reports


def _load_own_groups(db: Database, done: Compaction, record_id: str, thread_id: str) -> list[Group]:
    """Return a compaction's groups. Raises MemoryFailure (conflict) if undo would change others."""
    groups = rows.get_groups(db, done.group_ids)
    reason = ""
    if done.record_id != record_id or any(not g.observes or g.thread_id != thread_id for g in groups):
        reason = "it also covers work outside this thread"
    elif change := _describe_change(groups, len(done.group_ids)):
        reason = change
    elif rows.find_cursor(db, record_id, thread_id) != max(g.last_index or 0 for g in groups):
        reason = "more was observed after it"
    if reason:
        raise MemoryFailure(f"Cannot be undone: {reason}.", code="conflict")
    return groups


def _describe_change(groups: Sequence[Group], number: int) -> str:
    """Describe the change since a compaction that made `number` groups, all active; "" for none."""
    states = {g.state for g in groups}
    if "superseded" in states:
        return "a reflection was made from its observations; undo that first"
    return "" if states == {"active"} and len(groups) == number else "its observations are no longer in the log"


# --- a reflection -----------------------------------------------------------------------------------------


def undo_reflection(db: Database, record_id: str, move: UndoReflection, now: int) -> MoveResult:
    """Undo a reflection: its merged groups are active again, before later observations.

    Each stores in its metadata the period in which the reflection replaced it, so that the log as of any time stays
    the same.
    """
    target = _find_reflection(db, record_id, move.generation)
    line, record = ObservationRow, MemoryRecordRow
    lines = list(line.select(line.id, line.metadata).where(line.group_id == target.id).tuples().execute(db))
    change_state(db, [target.id], "active", "discarded", now)
    for line_id, _ in lines:
        search_index.remove(db, "reflection", line_id)
    discard_stale(db, record_id, [target.id], now)
    merged = rows.get_groups(db, target.merged_group_ids)
    if any(g.state != "superseded" for g in merged):
        raise MemoryFailure("The log has changed meanwhile.", code="conflict")
    for group in merged:
        replaced_during = [*group.metadata.get("away", ()), [group.superseded_at, now]]
        metadata = {**group.metadata, "away": replaced_during}
        update(db, GroupRow, group.id, state="active", superseded_at=None, metadata=metadata)
    before = target.metadata.get("before", {})
    record.update(
        generation_count=record.generation_count - 1,
        origin_type=before.get("origin_type", "observation"),
        last_reflection_at=before.get("last_reflection_at"),
    ).where(record.id == record_id).execute(db)
    tokens = sum(g.observation_tokens for g in rows.list_groups(db, record_id, "active"))
    # counted as a correction: a running reflection has read an obsolete log
    corrections = count_corrections(db, record_id) + 1
    set_record_metadata(db, record_id, {HOLD_REFLECTION: tokens + move.interval, CORRECTIONS: corrections})
    _restore_task(db, target)
    changed = sum(CORRECTIONS in metadata for _, metadata in lines)
    return MoveResult(tuple(replace(g, state="active") for g in merged), removed=(target,), corrected_lines=changed)


def _find_reflection(db: Database, record_id: str, generation: int | None) -> Group:
    """Return the reflection to undo; it must be in the log."""
    merged, active = _list_reflections(db, record_id, "superseded"), _list_reflections(db, record_id, "active")
    target = next(reversed(active), None)
    if generation is not None:
        target = next((g for g in (*reversed(active), *reversed(merged)) if g.generation == generation), None)
    if target is None:
        text = "There is no reflection" if generation is None else f"There is no generation {generation} in the log"
        raise MemoryFailure(f"{text} to undo.", code="not_found")
    if target.state == "superseded":
        above = next(g for g in (*merged, *active) if target.id in g.merged_group_ids)
        raise MemoryFailure(
            f"Generation {target.generation} cannot be undone: generation {above.generation} was made from it;"
            " undo that first.",
            code="conflict",
        )
    return target


def _list_reflections(db: Database, record_id: str, state: GroupState) -> list[Group]:
    return [g for g in rows.list_groups(db, record_id, state) if g.kind == "reflection"]


def _restore_task(db: Database, target: Group) -> None:
    """Restore the thread's former task, unless an Observer has set a newer one since."""
    before = target.metadata.get("before", {}).get("task")
    thread = threads.get(db, target.thread_id)
    if before is None or thread is None or thread.metadata.get("task_index") != target.last_index:
        return
    if thread.metadata.get("current_task") == target.current_task:
        threads.update_metadata(db, thread.id, before)
