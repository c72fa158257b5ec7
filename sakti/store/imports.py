"""Store the state of imports from other programs: files, entries, and the message of each entry.

Raw SQL: every imported entry passes through here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from peewee import fn

from sakti.core.types import Json
from sakti.store import rows
from sakti.store.connection import Connection, Database
from sakti.store.memory import group_rows, moves
from sakti.store.models import (
    GroupRow,
    ImportSourceRow,
    MemoryRecordRow,
    MessageRow,
    ObservationRow,
    OriginRow,
    SearchDocRow,
    TaskMessageRow,
    ThreadRow,
    WorkingMemoryRow,
)
from sakti.store.threads import removal, threads

IMPORTED = "imported"  # key in a message's metadata: the run that imported it
ORIGIN = "origin"  # key in a thread's metadata: program, version, file and id
THREAD = "thread:"  # prefix of a thread's id in `origins`


_IMPORTED_BY = fn.json_extract(MessageRow.metadata, f"$.{IMPORTED}")


class SourceState(Struct, frozen=True):
    """State of a file when last read, up to `offset`.

    `head` is the hash of its beginning, `counts` the number of messages and threads in it.
    """

    program: str
    path: str
    device: int
    inode: int
    size: int
    mtime: int
    offset: int = 0
    head: str = ""
    counts: Json = field(default_factory=dict[str, Any])
    last_run: str = ""

    def is_same(self, other: SourceState) -> bool:
        """Return whether the file has not changed."""
        return (self.device, self.inode, self.size, self.mtime) == (
            other.device,
            other.inode,
            other.size,
            other.mtime,
        )


SOURCE = rows.Shape(ImportSourceRow, SourceState)


class EntryOrigin(Struct, frozen=True):
    """Thread and message of an imported entry; without a message, the entry is a thread or a line of one."""

    thread_id: str
    message_id: str | None


class Tail(Struct, frozen=True):
    """Position of a message in its thread; `is_last`: no later message of the user or the model."""

    index: int
    is_last: bool


def get_source(db: Connection, program: str, path: str) -> SourceState | None:
    """Return the last read state of a file."""
    return next(iter(SOURCE.find(db, program=program, path=path)), None)


def list_sources(db: Connection) -> list[SourceState]:
    """Return all files that were read."""
    return SOURCE.find(db)


def save_source(db: Database, state: SourceState) -> None:
    """Save the state of a file, and the offset up to which it was read."""
    ImportSourceRow.replace(**SOURCE.values(state)).execute(db)


def find_entries(db: Connection, program: str, ids: Sequence[str]) -> dict[str, EntryOrigin]:
    """Return those of `ids` that are already imported."""
    # SQL: one statement for all ids, which are one parameter
    matches = db.execute_sql(
        "SELECT o.entry_id, o.thread_id, o.message_id FROM json_each(?) j CROSS JOIN origins o"
        " ON o.program = ? AND o.entry_id = j.value",
        (json.dumps(ids), program),
    ).fetchall()
    return {entry: EntryOrigin(thread, message) for entry, thread, message in matches}


def add_origins(db: Database, program: str, run: str, origins: Mapping[str, EntryOrigin]) -> None:
    """Store the thread and the message of new entries."""
    added = [
        {"entry_id": entry, "thread_id": origin.thread_id, "message_id": origin.message_id}
        for entry, origin in origins.items()
    ]
    rows.insert_many(db, OriginRow, added, same={"program": program, "run_id": run}, unless_there=True)


def move_thread(db: Database, program: str, source_thread: str, thread_id: str) -> None:
    """Continue a source thread in another thread."""
    rows.change(db, OriginRow, {"program": program, "entry_id": THREAD + source_thread}, thread_id=thread_id)


def move_threads_back(db: Database, run: str, thread_id: str) -> None:
    """Continue source threads in their previous thread, if a run moved them into a fork."""
    # SQL: reads JSON inside a column
    db.execute_sql(
        "UPDATE origins SET thread_id = t.before FROM (SELECT id, json_extract(metadata, '$.forked_from') AS before"
        " FROM threads) t WHERE t.id = thread_id AND t.before IS NOT NULL AND thread_id = ? AND run_id != ?"
        f" AND entry_id GLOB '{THREAD}*'",
        (thread_id, run),
    )


def find_tail(db: Connection, message_id: str) -> Tail | None:
    """Return the position of a message; None if it is gone."""
    # SQL: both questions about a message in one statement
    row = db.execute_sql(
        "SELECT m.message_index, NOT EXISTS (SELECT 1 FROM messages later WHERE later.thread_id = m.thread_id"
        " AND later.message_index > m.message_index AND later.role IN ('user', 'assistant'))"
        " FROM messages m WHERE m.id = ?",
        (message_id,),
    ).fetchone()
    return None if row is None else Tail(row[0], bool(row[1]))


def find_last_imported(db: Database, thread_id: str) -> str | None:
    """Return the id of the last imported message of a thread."""
    row = MessageRow
    imported = row.select(row.id).where(row.thread_id == thread_id, _IMPORTED_BY.is_null(False))
    return imported.order_by(row.message_index.desc()).limit(1).scalar(db)


def read_last_time(db: Database, thread_id: str) -> int:
    """Return the time of a thread's last message, 0 without one (Unix ms)."""
    row = MessageRow
    times = row.select(row.created_at).where(row.thread_id == thread_id).order_by(row.message_index.desc())
    return times.limit(1).scalar(db) or 0


def is_continued(db: Database, thread_id: str) -> bool:
    """Return whether a thread has messages that were not imported."""
    row = MessageRow
    added = row.select(row.id).where(row.thread_id == thread_id, _IMPORTED_BY.is_null(), row.state != "withheld")
    return rows.fetch_first(db, added) is not None


def remove_entry(db: Database, program: str, entry_id: str) -> None:
    """Remove an entry and its message."""
    origin = find_entries(db, program, [entry_id]).get(entry_id)
    if origin is not None and origin.message_id is not None:
        _remove(db, origin.thread_id, [origin.message_id])
        rows.delete(db, OriginRow, program=program, entry_id=entry_id)


def _remove(db: Database, thread_id: str, message_ids: Sequence[str]) -> None:
    """Remove messages of a thread; a placeholder replaces each one that others follow."""
    indexes = dict(rows.select(db, MessageRow, ("id", "message_index"), thread_id=thread_id))
    last = max((index for i, index in indexes.items() if i not in message_ids), default=-1)
    removed = [i for i in message_ids if i in indexes]
    followed = [i for i in removed if indexes[i] < last]
    removal.withhold_turn(db, followed, "The import of this message was undone.")
    for message_id in [i for i in removed if i not in followed]:
        rows.delete(db, SearchDocRow, kind="message", doc_id=message_id)
        rows.delete(db, TaskMessageRow, message_id=message_id)
        rows.delete(db, MessageRow, id=message_id)


# --- undo ---------------------------------------------------------------------------------------------------


class ImportRun(Struct, frozen=True):
    """A run whose threads are still there, also one that did not end."""

    run: str
    programs: tuple[str, ...]
    threads: int


def list_runs(db: Database) -> list[ImportRun]:
    """Return the runs that can be undone, the newest first."""
    row = OriginRow
    listed = (
        row.select(row.run_id, fn.GROUP_CONCAT(row.program.distinct()), fn.COUNT(row.thread_id.distinct()))
        .join(ThreadRow, on=(ThreadRow.id == row.thread_id) & ThreadRow.deleted_at.is_null())
        .group_by(row.run_id)
        .order_by(row.run_id.desc())
    )
    return [
        ImportRun(run, tuple(programs.split(",")), threads) for run, programs, threads in listed.tuples().execute(db)
    ]


class RunPart(Struct, frozen=True):
    """Messages that one run added to a thread.

    `is_new`: the run created the thread, and no other run added to it; `continued`: the user continued it here.
    """

    thread_id: str
    title: str
    messages: int
    is_new: bool
    continued: bool


def list_run_parts(db: Database, run: str) -> list[RunPart]:
    """Return the threads to which a run added messages, with the numbers of messages."""
    row = OriginRow
    messages = fn.COUNT(row.message_id.distinct())
    listed = row.select(row.thread_id, messages).where(row.run_id == run).group_by(row.thread_id).tuples().execute(db)
    parts: list[RunPart] = []
    for thread_id, count in listed:
        thread = threads.get(db, thread_id)
        if thread is not None:
            is_new = thread.metadata.get(ORIGIN, {}).get("run") == run and not _has_others(db, run, thread_id)
            parts.append(RunPart(thread_id, thread.title, count, is_new, is_continued(db, thread_id)))
    return parts


def _has_others(db: Database, run: str, thread_id: str) -> bool:
    """Return whether a thread has messages of other runs."""
    row = OriginRow
    others = row.select(row.pk).where(row.thread_id == thread_id, row.run_id != run, row.message_id.is_null(False))
    return rows.fetch_first(db, others) is not None


def remove_messages(db: Database, run: str, thread_id: str) -> bool:
    """Remove the messages that a run added to a thread; return whether others remain."""
    added = {i for (i,) in rows.select(db, OriginRow, ("message_id",), run_id=run, thread_id=thread_id)} - {None}
    _remove(db, thread_id, sorted(added))
    rows.delete(db, OriginRow, run_id=run, thread_id=thread_id)
    if added:
        threads.touch(db, thread_id, read_last_time(db, thread_id))
    states = {state for (state,) in rows.select(db, MessageRow, ("state",), thread_id=thread_id)}
    return bool(states - {"withheld"})


def forget_run(db: Database, run: str, stays: Iterable[str]) -> None:
    """Delete the entries of a run, except those of threads that stay, and the offsets of all sources."""
    for thread_id in {i for (i,) in rows.select(db, OriginRow, ("thread_id",), run_id=run)} - {*stays}:
        rows.delete(db, OriginRow, run_id=run, thread_id=thread_id)
    ImportSourceRow.update(offset=0, size=-1).execute(db)


def remove_groups(db: Database, thread_id: str) -> None:
    """Remove the imported groups of a thread, with their lines."""
    _remove_groups(db, [i for (i,) in rows.select(db, GroupRow, ("id",), thread_id=thread_id, origin="import")])


def _remove_groups(db: Database, group_ids: Sequence[str]) -> None:
    for group in group_rows.get_groups(db, group_ids):
        group_rows.unindex_group(db, group)
        rows.delete(db, ObservationRow, group_id=group.id)
        rows.delete(db, GroupRow, id=group.id)


def remove_imported_log(db: Database, record_id: str) -> bool:
    """Remove the groups of a record if all were imported; return whether they were."""
    listed = rows.select(db, GroupRow, ("id", "origin"), record_id=record_id)
    if any(origin != "import" for _, origin in listed):
        return False
    _remove_groups(db, [i for i, _ in listed])
    return True


def set_log_figures(db: Database, record_id: str, thread_id: str, now: int, figures: Mapping[str, Any]) -> None:
    """Set the figures of a record whose groups were imported."""
    rows.update(db, MemoryRecordRow, record_id, **figures)
    moves.update_figures(db, record_id, thread_id, now)


def remove_pages(db: Database, actor: str) -> None:
    """Remove the pages of working memory written by `actor`, unless they were changed since."""
    written = rows.select(db, WorkingMemoryRow, ("scope", "owner_id"), actor=actor)
    for scope, owner in written:
        authors = {a for (a,) in rows.select(db, WorkingMemoryRow, ("actor",), scope=scope, owner_id=owner)}
        if authors <= {actor}:
            rows.delete(db, WorkingMemoryRow, scope=scope, owner_id=owner)
            rows.delete(db, SearchDocRow, kind="working_memory", doc_id=f"{scope}:{owner}")


# --- lists --------------------------------------------------------------------------------------------------


class UnobservedThread(Struct, frozen=True):
    """Imported thread with the tokens of its unobserved messages."""

    id: str
    title: str
    tokens: int


_UNOBSERVED = """
SELECT t.id, t.title, sum(m.token_count) FROM threads t JOIN messages m ON m.thread_id = t.id
WHERE t.resource_id = ? AND t.deleted_at IS NULL AND t.parent_id IS NULL
  AND json_extract(t.metadata, '$.origin.program') IS NOT NULL AND m.role != 'system' AND m.state = 'saved'
  AND m.message_index > coalesce((SELECT max(g.last_index) FROM observation_groups g WHERE g.thread_id = t.id
      AND g.kind = 'observation' AND g.state IN ('active', 'superseded')), -1)
  AND (m.role != 'user' OR EXISTS (SELECT 1 FROM messages later WHERE later.thread_id = t.id
      AND later.message_index > m.message_index))
GROUP BY t.id ORDER BY t.updated_at"""


def list_unobserved_threads(db: Connection, resource_id: str) -> list[UnobservedThread]:
    """Return the imported threads of a workspace with unobserved messages, the oldest first.

    A prompt at the end waits for its answer.
    """
    # SQL: reads JSON inside a column
    return [UnobservedThread(*row) for row in db.execute_sql(_UNOBSERVED, (resource_id,)).fetchall()]


def get_origin(metadata: Json) -> str:
    """Return the program that a thread was imported from, "" if it began here."""
    return str(metadata.get(ORIGIN, {}).get("program", ""))
