"""Define the moves of memory and their result; `advance` carries them out in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.core.types import Thread
from sakti.store.connection import Database
from sakti.store.memory import group_rows as rows
from sakti.store.memory.group_rows import Group, GroupState, Held, NewLine


class Add(Struct, frozen=True):
    """Store a finished observation or reflection, made under a lease.

    It is buffered; with `activate` an observation goes into the log at once. `corrections`: how often the log had
    been corrected when a reflection read it. `ends`: it is the last result of its lease, which is released with it.
    """

    group: Group
    lines: Sequence[NewLine]
    held: Held
    activate: bool = False
    corrections: int = 0
    ends: bool = False


class Activate(Struct, frozen=True):
    """Activate buffered groups of one thread, oldest first; with `reflection`, the buffered one too.

    A reflection of a log that has changed since is discarded instead. `revision`: the record's, if the groups were
    chosen by everything that was buffered then and may be activated only as long as that holds.
    """

    group_ids: tuple[str, ...] = ()
    reflection: bool = False
    revision: int | None = None


class UndoCompaction(Struct, frozen=True):
    """Undo a thread's last compaction; nothing is observed automatically for the next `interval` tokens."""

    compaction_id: str
    interval: int


class UndoReflection(Struct, frozen=True):
    """Undo a reflection, the newest where `generation` is None.

    Nothing is condensed automatically for the next `interval` tokens of the log.
    """

    interval: int
    generation: int | None = None


Move: TypeAlias = Add | Activate | UndoCompaction | UndoReflection


class Advanced(Struct, frozen=True):
    """Result of a move.

    The groups that it activated or buffered, the activated reflection, the groups that left the log (superseded,
    discarded or back to buffered), how many corrected lines these had, and the thread if it got a new title.
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


def transition(db: Database, ids: Sequence[str], before: GroupState, after: GroupState, now: int) -> None:
    """Change the state of groups. Raises MemoryFailure (conflict) unless all are in state `before`."""
    marks = ",".join("?" * len(ids))
    # SQL: each step runs it; building a query takes 80-300 µs
    changed = db.execute_sql(
        f"UPDATE observation_groups SET state = ?, {_TIME[after]} = ? WHERE id IN ({marks}) AND state = ? RETURNING 1",
        (after, None if after == "buffered" else now, *ids, before),
    ).fetchall()
    if len(changed) != len(set(ids)):
        raise MemoryFailure("The log has changed meanwhile.", code="conflict")


def all_in_state(db: Database, ids: Sequence[str], state: GroupState) -> bool:
    marks = ",".join("?" * len(ids))
    # SQL: each step runs it; building a query takes 80-300 µs
    (count,) = db.execute_sql(
        f"SELECT count(*) FROM observation_groups WHERE id IN ({marks}) AND state = ?", (*ids, state)
    ).fetchone()
    return count == len(set(ids))


def discard(db: Database, groups: Sequence[Group], now: int) -> None:
    """Discard buffered groups: they are kept, with the time, but removed from search."""
    transition(db, [g.id for g in groups], "buffered", "discarded", now)
    for group in groups:
        rows.unindex(db, group)


def discard_stale(db: Database, record_id: str, group_ids: Sequence[str], now: int) -> None:
    """Discard a buffered reflection made from one of these groups, which have changed since."""
    changed = set(group_ids)
    stale = [
        g
        for g in rows.groups(db, record_id, "buffered")
        if g.kind == "reflection" and not changed.isdisjoint(g.merged_group_ids)
    ]
    if stale:
        discard(db, stale, now)


def figures(db: Database, record_id: str, thread_id: str, now: int) -> None:
    """Update the record's counts from its groups and messages."""
    # SQL: each step runs it; building a query takes 80-300 µs
    db.execute_sql(
        "UPDATE observational_memory SET updated_at = ?1, revision = revision + 1, observation_token_count = (SELECT"
        " coalesce(sum(observation_tokens), 0) FROM observation_groups WHERE record_id = ?2 AND state = 'active'),"
        " pending_message_tokens = (SELECT coalesce(sum(token_count), 0) FROM messages WHERE thread_id = ?3"
        " AND message_index > ?4 AND state != 'withheld'), origin_type = CASE WHEN origin_type = 'initialization'"
        " AND EXISTS (SELECT 1 FROM observation_groups WHERE record_id = ?2 AND state = 'active')"
        " THEN 'observation' ELSE origin_type END WHERE id = ?2",
        (now, record_id, thread_id, rows.cursor(db, record_id, thread_id)),
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
