"""Update search after a thread was deleted or restored, a few rows at a time.

The transaction that deletes or restores a thread only stores a note (`note`); from then on search hides the rows to
remove (`HIDDEN`). `upkeep.reindex` removes them, or adds them back, later; after a crash the next start continues.
Each step checks that its note is still current, and repeats nothing.

Raw SQL: search includes these conditions in its own statements.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct

from sakti.core.types import Thread
from sakti.store import archive_file
from sakti.store.connection import Connection, Database
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.text_registry import mask_for_storage
from sakti.store.threads import threads

# Items to remove or add back: a row of search by kind and id, a message or line by its pk, the thread's page.
Item: TypeAlias = tuple[Literal["row"], str, str] | tuple[Literal["message", "line"], int] | tuple[Literal["page"]]

# Lines of the thread's own record; the record of a workspace is not the thread's.
OWN_LINES = (
    " FROM observations o JOIN observation_groups g ON g.id = o.group_id JOIN observational_memory r"
    " ON r.id = g.record_id WHERE r.lookup_key = 'thread:' || ?"
)
_INDEXED = f"{OWN_LINES} AND g.state != 'discarded' AND o.forgotten = 0"
_SHARED = (
    "EXISTS (SELECT 1 FROM observations o JOIN observation_groups g ON g.id = o.group_id"
    " JOIN observational_memory r ON r.id = g.record_id WHERE o.id = d.doc_id AND r.scope = 'resource')"
)
# Rows `d` of search that go with a deleted thread; lines about it in a log of the workspace stay.
_GOES = f"(d.kind IN ('message', 'working_memory') OR d.kind IN ('observation', 'reflection') AND NOT {_SHARED})"
_DELETED = "FROM reindexing n JOIN threads x ON x.id = n.thread_id WHERE x.deleted_at IS NOT NULL"
# True for rows `d` of search that still exist but must be hidden.
HIDDEN = f"(d.thread_id IS NOT NULL AND d.thread_id IN (SELECT n.thread_id {_DELETED}) AND {_GOES})"


class Note(Struct, frozen=True):
    """Thread whose search rows are to be removed (`deleted`) or added back."""

    thread_id: str
    operation_id: str
    deleted: bool


def note(db: Database, thread_id: str) -> None:
    """Note that a thread was deleted or restored; earlier work on it stops."""
    # SQL: one conditional statement, so that no other process comes between
    db.execute_sql("INSERT OR REPLACE INTO reindexing VALUES (?, lower(hex(randomblob(8))))", (thread_id,))


def note_fork(db: Database, thread_id: str, made: str) -> None:
    """Note that a fork lacks the same rows as its parent."""
    # SQL: one conditional statement, so that no other process comes between
    db.execute_sql(
        "INSERT OR REPLACE INTO reindexing SELECT ?, lower(hex(randomblob(8))) FROM reindexing WHERE thread_id = ?",
        (made, thread_id),
    )


def list_notes(db: Connection) -> list[Note]:
    """Return the pending notes."""
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    rows = db.execute_sql(
        "SELECT n.thread_id, n.operation_id, t.deleted_at IS NOT NULL FROM reindexing n"
        " LEFT JOIN threads t ON t.id = n.thread_id"
    ).fetchall()
    return [Note(thread_id, operation_id, bool(deleted)) for thread_id, operation_id, deleted in rows]


def has_hidden_rows(db: Connection) -> bool:
    """Return whether search holds rows of deleted threads."""
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    return db.execute_sql(f"SELECT EXISTS (SELECT 1 {_DELETED})").fetchone()[0] == 1


def list_items(db: Database, noted: Note) -> list[Item]:
    """Return the items to remove or add back, in order."""
    if noted.deleted:
        # SQL: a background loop runs it for each row; building a query takes 80-300 µs
        rows = db.execute_sql(
            f"SELECT d.kind, d.doc_id FROM search_docs d WHERE d.thread_id = ? AND {_GOES}", (noted.thread_id,)
        ).fetchall()
        return [("row", kind, doc_id) for kind, doc_id in rows]
    messages: list[Item] = [("message", pk) for pk in search_index.list_unindexed(db, noted.thread_id)]
    lines: list[Item] = [("line", pk) for pk in list_log_lines(db, noted.thread_id)]
    return [*messages, *lines, ("page",)]


def work_off(db: Database, some: Sequence[Item], noted: Note) -> None:
    """Remove some items from search, or add them back; none if the thread has changed meanwhile."""
    if _is_noted(db, noted):
        archive_file.refuse_missing(db, noted.thread_id)
        index_upkeep.with_deferred_merge(db, partial(_do, some=some, noted=noted))


def _do(db: Database, some: Sequence[Item], noted: Note) -> None:
    for item in some:
        match item:
            case ("row", kind, doc_id):
                search_index.remove(db, kind, doc_id)
            case ("message", pk):
                search_index.index_messages(db, [pk])
            case ("line", pk):
                index_line(db, pk)
            case _:
                if (thread := threads.get(db, noted.thread_id)) is not None:
                    index_page(db, thread)


def _is_noted(db: Database, noted: Note) -> bool:
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    return (
        db.execute_sql(
            "SELECT 1 FROM reindexing WHERE thread_id = ? AND operation_id = ?", (noted.thread_id, noted.operation_id)
        ).fetchone()
        is not None
    )


def is_done(db: Database, noted: Note) -> None:
    # SQL: one conditional statement, so that no other process comes between
    db.execute_sql(
        "DELETE FROM reindexing WHERE thread_id = ? AND operation_id = ?", (noted.thread_id, noted.operation_id)
    )


def list_log_lines(db: Database, thread_id: str) -> list[int]:
    """Return the lines (pk) of a thread's own log that search should contain, in order."""
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    return [pk for (pk,) in db.execute_sql(f"SELECT o.pk{_INDEXED} ORDER BY g.pk, o.line", (thread_id,)).fetchall()]


def index_line(db: Database, pk: int) -> None:
    """Index a line of a log with its corrections."""
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    row = db.execute_sql(
        "SELECT o.id, g.kind, o.thread_id, o.resource_id, g.created_at, coalesce(o.edited, o.content), g.first_index,"
        " o.metadata, coalesce((SELECT coalesce(p.edited, p.content) FROM observations p WHERE p.group_id = o.group_id"
        " AND p.line < o.line AND p.forgotten = 0 ORDER BY p.line DESC LIMIT 1), '') FROM observations o"
        " JOIN observation_groups g ON g.id = o.group_id WHERE o.pk = ? AND g.state != 'discarded' AND o.forgotten = 0",
        (pk,),
    ).fetchone()
    if row is None:
        return
    line_id, kind, thread_id, resource_id, created_at, text, first, metadata, prev = row
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    stored = db.execute_sql(
        "SELECT text, prev FROM search_docs WHERE kind = ? AND doc_id = ?", (kind, line_id)
    ).fetchone()
    if stored == (
        mask_for_storage("search_docs", "text", text[: search_index.TEXT_LIMIT]),
        mask_for_storage("search_docs", "prev", prev[: search_index.PREVIOUS_LIMIT]),
    ):
        return
    search_index.put(
        db,
        kind=kind,
        doc_id=line_id,
        resource_id=resource_id,
        created_at=created_at,
        text=text,
        thread_id=thread_id,
        position=first or 0,
        prev=prev,
        paths=[str(p) for p in json.loads(metadata).get("files", [])],
    )


def index_page(db: Database, thread: Thread) -> None:
    """Index a thread's own page of working memory."""
    # SQL: a background loop runs it for each row; building a query takes 80-300 µs
    row = db.execute_sql(
        "SELECT content, created_at FROM working_memory WHERE scope = 'thread' AND owner_id = ?"
        " ORDER BY version DESC LIMIT 1",
        (thread.id,),
    ).fetchone()
    if row is not None:
        search_index.put(
            db,
            kind="working_memory",
            doc_id=f"thread:{thread.id}",
            resource_id=thread.resource_id,
            created_at=row[1],
            text=row[0],
            thread_id=thread.id,
        )
