"""Compactions: what each /compact did, kept so that it can be undone."""

from __future__ import annotations

from dataclasses import dataclass

from sakti.core.types import Json
from sakti.store.connection import Database
from sakti.store.models import CompactionRow


@dataclass(frozen=True, slots=True)
class Compaction:
    """A /compact that was done. `group_ids`: exactly the groups that it made or put into the log, all of its thread.
    `before`: ids of the groups that were buffered, the thread's task, the record's last times."""

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


def add_compaction(db: Database, done: Compaction) -> None:
    CompactionRow.insert(
        id=done.id,
        thread_id=done.thread_id,
        resource_id=done.resource_id,
        record_id=done.record_id,
        focus=done.focus,
        first_index=done.first_index,
        last_index=done.last_index,
        message_count=done.message_count,
        original_message_ids=list(done.message_ids),
        group_ids=list(done.group_ids),
        before=done.before,
        tokens_before=done.tokens_before,
        tokens_after=done.tokens_after,
        created_at=done.created_at,
    ).execute(db)


def noted(db: Database, done: Compaction) -> tuple[int, int, int]:
    """Of the log after it: lines of its own groups, lines that are pinned, and its own with flags."""
    (pinned,) = db.execute_sql(
        "SELECT count(*) FROM observation_groups g JOIN observations o ON o.group_id = g.id"
        " WHERE g.record_id = ? AND g.state = 'active' AND o.pinned AND NOT o.forgotten",
        (done.record_id,),
    ).fetchone()
    marks = ",".join("?" * len(done.group_ids))
    lines, doubtful = db.execute_sql(
        "SELECT count(*), coalesce(sum(json_array_length(flags) > 0), 0) FROM observations"
        f" WHERE group_id IN ({marks}) AND forgotten = 0",
        done.group_ids,
    ).fetchone()
    return lines, pinned, doubtful


def last_compaction(db: Database, thread_id: str) -> Compaction | None:
    """The newest compaction of a thread that was not undone."""
    row = (
        CompactionRow.select()
        .where((CompactionRow.thread_id == thread_id) & CompactionRow.undone_at.is_null())
        .order_by(CompactionRow.pk.desc())
        .dicts()
        .get_or_none(db)
    )
    if row is None:
        return None
    return Compaction(
        row["id"],
        row["thread_id"],
        row["resource_id"],
        row["record_id"],
        row["focus"],
        row["first_index"],
        row["last_index"],
        row["message_count"],
        tuple(row["original_message_ids"]),
        tuple(row["group_ids"]),
        row["before"],
        row["tokens_before"],
        row["tokens_after"],
        row["created_at"],
    )


def mark_undone(db: Database, compaction_id: str, now: int) -> None:
    CompactionRow.update(undone_at=now).where(CompactionRow.id == compaction_id).execute(db)
