"""Store compactions: what each /compact did, so that it can be undone."""

from __future__ import annotations

from msgspec import Struct
from peewee import fn

from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.models import CompactionRow, GroupRow, ObservationRow
from sakti.store.rows import Shape, first, insert


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
    lines, doubtful = first(db, new_lines.where(line.forgotten == 0))
    return lines, pinned, doubtful


def last_compaction(db: Database, thread_id: str) -> Compaction | None:
    """Return the newest compaction of a thread that was not undone."""
    row = CompactionRow
    here = (row.thread_id == thread_id) & row.undone_at.is_null()
    return COMPACTION.select().where(here).order_by(row.pk.desc()).limit(1).get_or_none(db)


def mark_undone(db: Database, compaction_id: str, now: int) -> None:
    CompactionRow.update(undone_at=now).where(CompactionRow.id == compaction_id).execute(db)
