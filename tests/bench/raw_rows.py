"""Read memory's rows in SQL, independently of the functions that memory works with.

A defect in how memory reads or writes its tables cannot hide here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from msgspec import Struct

from sakti.core.types import Json
from sakti.store.connection import Database

BEAT_MS = 30_000  # how long a lease holds after its holder's last beat


class SectionRow(Struct, frozen=True):
    """Part of a reflection in a log of several threads.

    The number of its lines, and (thread, first, last index) of the messages that they cover.
    """

    lines: int
    spans: tuple[tuple[str, int, int], ...]


class GroupRow(Struct, frozen=True):
    """Group of a log, in any state."""

    id: str
    thread_id: str
    kind: str
    state: str
    text: str
    first_index: int | None
    last_index: int | None
    message_ids: tuple[str, ...]
    message_tokens: int
    observation_tokens: int
    merged_group_ids: tuple[str, ...]
    current_task: str | None
    model: str
    sections: tuple[SectionRow, ...] = ()  # none: all of it is of its own thread


class LineRow(Struct, frozen=True):
    """Line of a group, as it was created (`content`) and as corrections have changed it."""

    id: str
    group_id: str
    depth: int
    content: str
    pinned: bool
    edited: str | None
    forgotten: bool

    @property
    def shown(self) -> str:
        """Return the text that the log shows; empty where it is forgotten."""
        return "" if self.forgotten else self.edited or self.content


class RecordRow(Struct, frozen=True):
    scope: str
    generation_count: int
    total_tokens_observed: int
    observation_token_count: int
    metadata: Json


def record(db: Database, record_id: str) -> RecordRow | None:
    row = db.execute_sql(
        "SELECT scope, generation_count, total_tokens_observed, observation_token_count, metadata"
        " FROM observational_memory WHERE id = ?",
        (record_id,),
    ).fetchone()
    return None if row is None else RecordRow(row[0], row[1], row[2], row[3], json.loads(row[4]))


def states(db: Database, record_id: str) -> tuple[tuple[str, str], ...]:
    """Return (id, state) of every group of a record, in the order of creation."""
    sql = "SELECT id, state FROM observation_groups WHERE record_id = ? ORDER BY pk"
    return tuple(db.execute_sql(sql, (record_id,)).fetchall())


def cursors(db: Database, record_id: str) -> dict[str, int]:
    """Return the cursor of each thread: the last index of what is or was in the log.

    A thread that is not observed yet is left out.
    """
    sql = (
        "SELECT thread_id, max(last_index) FROM observation_groups WHERE record_id = ? AND kind = 'observation'"
        " AND state IN ('active', 'superseded') AND last_index IS NOT NULL GROUP BY thread_id"
    )
    return dict(db.execute_sql(sql, (record_id,)).fetchall())


def compactions(db: Database, record_id: str) -> tuple[str, ...]:
    """Return the ids of a record's compactions that were not undone, oldest first."""
    sql = "SELECT id FROM compaction_records WHERE record_id = ? AND undone_at IS NULL ORDER BY pk"
    return tuple(i for (i,) in db.execute_sql(sql, (record_id,)).fetchall())


def groups(db: Database, ids: Sequence[str]) -> list[GroupRow]:
    sql = (
        "SELECT id, thread_id, kind, state, text, first_index, last_index, message_ids, message_tokens,"
        " observation_tokens, merged_group_ids, current_task, model, metadata"
        f" FROM observation_groups WHERE id IN ({_marks(ids)})"
    )
    return [
        GroupRow(
            r[0],
            r[1],
            r[2],
            r[3],
            r[4],
            r[5],
            r[6],
            tuple(json.loads(r[7])),
            r[8],
            r[9],
            tuple(json.loads(r[10])),
            r[11],
            r[12],
            _sections(json.loads(r[13])),
        )
        for r in db.execute_sql(sql, list(ids)).fetchall()
    ]


def _sections(metadata: Json) -> tuple[SectionRow, ...]:
    return tuple(
        SectionRow(rows, tuple((thread, first, last) for thread, first, last, _ in spans))
        for _, rows, spans in metadata.get("sections", ())
    )


def lines(db: Database, group_ids: Sequence[str]) -> dict[str, list[LineRow]]:
    """Return the lines of some groups in order, by group."""
    sql = (
        "SELECT id, group_id, depth, content, pinned, edited, forgotten FROM observations"
        f" WHERE group_id IN ({_marks(group_ids)}) ORDER BY group_id, line"
    )
    out: dict[str, list[LineRow]] = {g: [] for g in group_ids}
    for id_, group, depth, content, pinned, edited, forgotten in db.execute_sql(sql, list(group_ids)).fetchall():
        out[group].append(LineRow(id_, group, depth, content, bool(pinned), edited, bool(forgotten)))
    return out


def unsealed(db: Database, thread_id: str, first: int, last: int) -> list[int]:
    """Return the indexes of messages in a range that may still change: not sealed, and not withheld."""
    rows = db.execute_sql(
        "SELECT message_index FROM messages WHERE thread_id = ? AND message_index BETWEEN ? AND ?"
        " AND sealed_at IS NULL AND state != 'withheld'",
        (thread_id, first, last),
    ).fetchall()
    return [i for (i,) in rows]


def under_way(db: Database, record_id: str, now: int) -> dict[str, str]:
    """Return the owner of each lease of a record that has not expired: kind → owner."""
    sql = "SELECT kind, owner FROM leases WHERE record_id = ? AND expires_at > ?"
    return dict(db.execute_sql(sql, (record_id, now)).fetchall())


def searched(db: Database, record_id: str) -> dict[str, str]:
    """Return what search indexes of a record's lines: line → text."""
    sql = (
        "SELECT d.doc_id, d.text FROM observation_groups g JOIN observations o ON o.group_id = g.id"
        " JOIN search_docs d ON d.kind IN ('observation', 'reflection') AND d.doc_id = o.id WHERE g.record_id = ?"
    )
    return dict(db.execute_sql(sql, (record_id,)).fetchall())


def renew_leases(db: Database, owners: Iterable[str], now: int) -> None:
    """Renew the leases of `owners`, as their heartbeats would."""
    for owner in owners:
        db.execute_sql(
            "UPDATE leases SET heartbeat_at = ?, expires_at = ? WHERE owner = ?", (now, now + BEAT_MS, owner)
        )


def orphan_leases(db: Database, owner: str, nobody: str) -> None:
    """Give an owner's leases to `nobody`, an owner without a process, as if its process had ended."""
    db.execute_sql("UPDATE leases SET owner = ? WHERE owner = ?", (nobody, owner))


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
