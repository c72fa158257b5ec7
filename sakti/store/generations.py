"""Taking a reflection back: the lines it merged are the log again, as if it had never been made.

Nothing is deleted: the reflection is kept as discarded, and each group that is active again keeps in its metadata
from when to when the reflection stood in its place, so that the log as of any time stays what it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sakti.core.errors import MemoryFailure
from sakti.store import memory, memory_corrections, search_index, threads
from sakti.store.connection import Database
from sakti.store.memory import Group

HOLD = "hold_reflection_until"  # stored log tokens up to which nothing is condensed by itself after an undo


@dataclass(frozen=True, slots=True)
class ReflectionUndone:
    """What was taken back: the reflection, its generation, how many groups it had merged, and its lines that
    people had changed (they go with it)."""

    group_id: str
    generation: int
    groups: int
    corrected: int


def undo_reflection(
    db: Database, record_id: str, now: int, *, interval: int, generation: int | None = None
) -> ReflectionUndone:
    """Take back a reflection of a record, the newest by default; what was observed since stays behind it. Then
    nothing is condensed by itself until the log has grown by `interval` tokens. Raises `MemoryFailure`:
    not_found, conflict (a newer reflection was made from it)."""
    target = _target(db, record_id, generation)
    corrected = sum(memory_corrections.KEY in json.loads(m) for _, m in _lines(db, target.id))
    _discard(db, target, now)
    for group in memory.groups(db, record_id, "buffered"):
        if group.kind == "reflection" and target.id in group.merged_group_ids:
            memory.discard(db, [group.id], now)
    for group in memory.groups_by_id(db, target.merged_group_ids):
        if group.state != "superseded":
            raise MemoryFailure("The log has changed meanwhile.", code="conflict")
        away = [*group.metadata.get("away", ()), [group.superseded_at, now]]
        db.execute_sql(
            "UPDATE observation_groups SET state = 'active', superseded_at = NULL, metadata = ? WHERE id = ?",
            (json.dumps({**group.metadata, "away": away}, ensure_ascii=False), group.id),
        )
    _figures(db, target, now, interval)
    _task_back(db, target)
    memory_corrections.next_number(db, record_id)  # other windows read the log anew, what is being made is stale
    return ReflectionUndone(target.id, target.generation, len(target.merged_group_ids), corrected)


def _target(db: Database, record_id: str, generation: int | None) -> Group:
    """The reflection that is meant; it must be in the log."""
    active = [g for g in memory.groups(db, record_id, "active") if g.kind == "reflection"]
    merged = [g for g in memory.groups(db, record_id, "superseded") if g.kind == "reflection"]
    wanted = [g for g in (*merged, *active) if generation is None or g.generation == generation]
    if not wanted or (generation is None and not active):
        text = "There is no reflection" if generation is None else f"There is no generation {generation} in the log"
        raise MemoryFailure(f"{text} to take back.", code="not_found")
    target = wanted[-1]
    if target.state == "superseded":
        above = next(g for g in (*merged, *active) if target.id in g.merged_group_ids)
        raise MemoryFailure(
            f"Generation {target.generation} cannot be taken back: generation {above.generation} was made from it;"
            " take that back first.",
            code="conflict",
        )
    return target


def _lines(db: Database, group_id: str) -> list[tuple[str, str]]:
    rows = db.execute_sql("SELECT id, metadata FROM observations WHERE group_id = ?", (group_id,)).fetchall()
    return [(r[0], r[1]) for r in rows]


def _discard(db: Database, target: Group, now: int) -> None:
    db.execute_sql("UPDATE observation_groups SET state = 'discarded', discarded_at = ? WHERE id = ?", (now, target.id))
    for line_id, _ in _lines(db, target.id):
        search_index.remove(db, "reflection", line_id)


def _figures(db: Database, target: Group, now: int, interval: int) -> None:
    before = target.metadata.get("before", {})
    (tokens,) = db.execute_sql(
        "SELECT coalesce(sum(observation_tokens), 0) FROM observation_groups WHERE record_id = ? AND state = 'active'",
        (target.record_id,),
    ).fetchone()
    db.execute_sql(
        "UPDATE observational_memory SET generation_count = generation_count - 1, origin_type = ?,"
        " last_reflection_at = ?, observation_token_count = ?, updated_at = ? WHERE id = ?",
        (before.get("origin_type", "observation"), before.get("last_reflection_at"), tokens, now, target.record_id),
    )
    memory.set_record_metadata(db, target.record_id, {HOLD: tokens + interval})


def _task_back(db: Database, target: Group) -> None:
    """The thread's task as it was, unless an Observer has written a newer one since."""
    before = target.metadata.get("before", {}).get("task")
    thread = threads.get(db, target.thread_id)
    if before is None or thread is None or thread.metadata.get("task_index") != target.last_index:
        return
    if thread.metadata.get("current_task") == target.current_task:
        threads.update_metadata(db, thread.id, before)
