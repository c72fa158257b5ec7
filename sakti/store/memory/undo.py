"""Undo a compaction or a reflection, called by `advance` alone. Nothing is deleted, and nothing else changes."""

from __future__ import annotations

import json
from dataclasses import replace

from sakti.core.errors import MemoryFailure
from sakti.store import search_index, threads
from sakti.store.connection import Database
from sakti.store.memory import compactions
from sakti.store.memory import group_rows as rows
from sakti.store.memory.compactions import Compaction
from sakti.store.memory.group_rows import Group
from sakti.store.memory.moves import Advanced, UndoCompaction, UndoReflection
from sakti.store.memory.records import HOLD_REFLECTION, set_record_metadata
from sakti.store.memory.states import discard_stale, transition
from sakti.store.text_registry import entering
from sakti.store.threads import HOLD

CORRECTIONS = "corrections"  # in a record's metadata how often its log was corrected, in a line's by what


# --- a compaction -----------------------------------------------------------------------------------------


def compaction(db: Database, record_id: str, thread_id: str, move: UndoCompaction, now: int) -> Advanced:
    """Its groups leave the log: what was ready before is ready again, what it made is discarded. Its messages are
    behind the cursor again."""
    done = compactions.last_compaction(db, thread_id)
    if done is None or done.id != move.compaction_id:
        raise MemoryFailure("Only the last compaction of this thread can be undone.", code="conflict")
    own = _own_groups(db, done, record_id, thread_id)
    ready = set(done.before.get("buffered", ()))
    back = [g for g in own if g.id in ready]
    made = [g for g in own if g.id not in ready]
    transition(db, [g.id for g in made], "active", "discarded", now)  # when they were in the log is kept
    transition(db, [g.id for g in back], "active", "buffered", now)
    for group in made:
        rows.unindex(db, group)
    discard_stale(db, record_id, [g.id for g in own], now)
    db.execute_sql(
        "UPDATE observational_memory SET total_tokens_observed = total_tokens_observed - ?,"
        " last_buffered_at_tokens = ?, last_observed_at = ? WHERE id = ?",
        (
            sum(g.message_tokens for g in own),
            done.before["last_buffered_at_tokens"],
            done.before["last_observed_at"],
            record_id,
        ),
    )
    (pending,) = db.execute_sql(
        "SELECT coalesce(sum(token_count), 0) FROM messages WHERE thread_id = ? AND message_index > ?"
        " AND state != 'withheld'",
        (thread_id, rows.cursor(db, record_id, thread_id)),
    ).fetchone()
    threads.update_metadata(db, thread_id, {**done.before["thread"], HOLD: pending + move.interval})
    compactions.mark_undone(db, done.id, now)
    return Advanced(removed=tuple(own))


def _own_groups(db: Database, done: Compaction, record_id: str, thread_id: str) -> list[Group]:
    """The groups of a compaction. Raises `MemoryFailure` (conflict) where undoing it would change anything else."""
    found = rows.groups_by_id(db, done.group_ids)
    if done.record_id != record_id or any(not g.observes or g.thread_id != thread_id for g in found):
        raise MemoryFailure("It cannot be undone: it also covers work outside this thread.", code="conflict")
    if any(g.state == "superseded" for g in found):
        raise MemoryFailure(
            "It cannot be undone: a reflection was made from what it observed; undo that first.", code="conflict"
        )
    if not found or len(found) != len(done.group_ids) or any(g.state != "active" for g in found):
        raise MemoryFailure("It cannot be undone: its observations are no longer in the log.", code="conflict")
    if rows.cursor(db, record_id, thread_id) != max(g.last_index or 0 for g in found):
        raise MemoryFailure("It cannot be undone: more was observed after it.", code="conflict")
    return found


# --- a reflection -----------------------------------------------------------------------------------------


def reflection(db: Database, record_id: str, move: UndoReflection, now: int) -> Advanced:
    """The groups it merged are the log again, with what was observed since behind them. Each keeps in its metadata
    from when to when the reflection stood in its place, so that the log as of any time stays what it was."""
    target = _target(db, record_id, move.generation)
    lines = db.execute_sql("SELECT id, metadata FROM observations WHERE group_id = ?", (target.id,)).fetchall()
    transition(db, [target.id], "active", "discarded", now)
    for line_id, _ in lines:
        search_index.remove(db, "reflection", line_id)
    discard_stale(db, record_id, [target.id], now)
    merged = rows.groups_by_id(db, target.merged_group_ids)
    if any(g.state != "superseded" for g in merged):
        raise MemoryFailure("The log has changed meanwhile.", code="conflict")
    for group in merged:
        away = [*group.metadata.get("away", ()), [group.superseded_at, now]]
        metadata = json.dumps({**group.metadata, "away": away}, ensure_ascii=False)
        db.execute_sql(
            "UPDATE observation_groups SET state = 'active', superseded_at = NULL, metadata = ? WHERE id = ?",
            (entering("observation_groups", "metadata", metadata), group.id),
        )
    before = target.metadata.get("before", {})
    db.execute_sql(
        "UPDATE observational_memory SET generation_count = generation_count - 1, origin_type = ?,"
        " last_reflection_at = ? WHERE id = ?",
        (before.get("origin_type", "observation"), before.get("last_reflection_at"), record_id),
    )
    tokens = sum(g.observation_tokens for g in rows.groups(db, record_id, "active"))
    set_record_metadata(db, record_id, {HOLD_REFLECTION: tokens + move.interval})
    _task_back(db, target)
    # what is being condensed now read a log that is no longer there
    db.execute_sql(
        f"UPDATE observational_memory SET metadata = json_set(metadata, '$.{CORRECTIONS}',"
        f" coalesce(json_extract(metadata, '$.{CORRECTIONS}'), 0) + 1) WHERE id = ?",
        (record_id,),
    )
    changed = sum(CORRECTIONS in json.loads(m) for _, m in lines)
    return Advanced(tuple(replace(g, state="active") for g in merged), removed=(target,), corrected_lines=changed)


def _target(db: Database, record_id: str, generation: int | None) -> Group:
    """The reflection that is meant; it must be in the log."""
    active = [g for g in rows.groups(db, record_id, "active") if g.kind == "reflection"]
    merged = [g for g in rows.groups(db, record_id, "superseded") if g.kind == "reflection"]
    wanted = [g for g in (*merged, *active) if generation is None or g.generation == generation]
    if not wanted or (generation is None and not active):
        text = "There is no reflection" if generation is None else f"There is no generation {generation} in the log"
        raise MemoryFailure(f"{text} to undo.", code="not_found")
    target = wanted[-1]
    if target.state == "superseded":
        above = next(g for g in (*merged, *active) if target.id in g.merged_group_ids)
        raise MemoryFailure(
            f"Generation {target.generation} cannot be undone: generation {above.generation} was made from it;"
            " undo that first.",
            code="conflict",
        )
    return target


def _task_back(db: Database, target: Group) -> None:
    """The thread's task as it was, unless an Observer has written a newer one since."""
    before = target.metadata.get("before", {}).get("task")
    thread = threads.get(db, target.thread_id)
    if before is None or thread is None or thread.metadata.get("task_index") != target.last_index:
        return
    if thread.metadata.get("current_task") == target.current_task:
        threads.update_metadata(db, thread.id, before)
