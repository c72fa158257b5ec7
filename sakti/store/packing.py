"""Pack data of earlier versions: texts stored several times, long parts, the trigram index.

Migration 0010 only stores what has to be done (`packing`: each step and its next row). The work runs in pieces, in the
background of a session (`upkeep.pack`) or while a small database is opened; a new process continues an interrupted run.
Search finds everything meanwhile: packing changes no text, and the new index replaces the old one once it is complete.

Raw SQL: every row of the file passes here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from sakti.store.connection import Connection, Database
from sakti.store.search import index_upkeep
from sakti.store.search.folding import fold_text
from sakti.store.search.index import PREVIOUS_LIMIT, TEXT_LIMIT, find_text_before, list_identifier_parts
from sakti.store.threads import codec

STEPS = ("rows", "messages", "trigrams")  # in this order: the new index only holds rows in their new form
_ROWS = 50  # read at a time, fewer if their texts are long
_LONG = 10_000  # characters of texts read at a time
_STEP_S = 0.005  # other windows wait for the piece of work that a step belongs to
_TRIGRAMS, _NEW = "search_trigrams", "search_trigrams_new"


class Progress(Struct, frozen=True):
    """Progress of packing: `done` of `total` rows, over all steps."""

    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.done * 100 // max(1, self.total)} % packed"


def read_progress(db: Connection) -> Progress | None:
    """Return the progress of packing, None when it is complete."""
    pending = _read_pending(db)
    if not pending:
        return None
    # SQL: works on a schema of an earlier version
    docs, messages = db.execute_sql(
        "SELECT (SELECT coalesce(max(pk), 0) FROM search_docs), (SELECT coalesce(max(pk), 0) FROM messages)"
    ).fetchone()
    last = {"rows": docs, "messages": messages, "trigrams": docs}
    return Progress(sum(min(pending.get(step, n), n) for step, n in last.items()), sum(last.values()))


def _read_pending(db: Connection) -> dict[str, int]:
    """Return the next row of each step that is not finished."""
    # SQL: works on a schema of an earlier version
    return dict(db.execute_sql("SELECT step, next_pk FROM packing").fetchall())


def pack_some(db: Database) -> bool:
    """Pack some rows of the first unfinished step; False when packing is complete."""
    pending = _read_pending(db)
    for step in STEPS:
        if step in pending:
            _PACK[step](db, pending[step])
            return True
    for table in index_upkeep.list_replaced(db):
        index_upkeep.drop_some(db, table)
        return True
    return False


def pack_all(db: Database, seconds: float) -> bool:
    """Pack for about `seconds`, a transaction for each piece; return whether all is packed."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        with db.atomic():
            if not pack_some(db):
                return True
    return False


def _read_next(db: Database, sql: str, first: int) -> list[Any]:
    """Return the next rows of a query from the pk `first`: at least one, fewer if they are long."""
    batch: list[Any] = []
    length = 0
    # SQL: works on a schema of an earlier version
    for row in db.execute_sql(f"{sql} LIMIT {_ROWS}", (first,)):
        batch.append(row)
        length += sum(len(value) for value in row if isinstance(value, str | bytes))
        if length > _LONG:
            break
    return batch


def _run_for_each(rows: Sequence[Any], do: Callable[[Any], object]) -> Sequence[Any]:
    """Run `do` for at least one row, until the time of a step is over; return the processed rows."""
    end = time.perf_counter() + _STEP_S
    for number, row in enumerate(rows, 1):
        do(row)
        if time.perf_counter() >= end:
            return rows[:number]
    return rows


def _save_progress(db: Database, step: str, packed: Sequence[Any]) -> None:
    """Record the packed rows of a step; a step without further rows is done."""
    sql, values = "DELETE FROM packing WHERE step = ?", (step,)
    if packed:
        sql, values = "UPDATE packing SET next_pk = ? WHERE step = ?", (packed[-1][0] + 1, step)
    # SQL: works on a schema of an earlier version
    db.execute_sql(sql, values)


# --- rows of search ---------------------------------------------------------------------------------------


class _OldRow(Struct, frozen=True):
    """Row of search in the form of an earlier version, with the number and the text of its message."""

    pk: int
    kind: str
    thread_id: str | None
    position: int
    text: str
    idents: str
    prev: str
    summary: str
    message_pk: int | None
    message_text: str | None


_OLD_ROWS = (
    "SELECT r.pk, r.kind, r.thread_id, r.position, r.text, r.idents, r.prev, r.summary, m.pk,"
    " coalesce(m.search_text, sakti_text(m.raw_content, m.parts)), r.form FROM search_texts r"
    " LEFT JOIN messages m ON r.kind = 'message' AND m.id = r.doc_id WHERE r.pk >= ? ORDER BY r.pk"
)


def _pack_rows(db: Database, first: int) -> None:
    batch = _read_next(db, _OLD_ROWS, first)
    done = index_upkeep.with_deferred_merge(db, lambda db: _run_for_each(batch, partial(_pack_row, db)))
    _save_progress(db, "rows", done)


def _pack_row(db: Database, values: Sequence[Any]) -> None:
    *fields, form = values
    if form != 0:
        return
    row = _OldRow(*fields)
    with contextlib.nullcontext() if _changes_terms(row) else index_upkeep.bypass_triggers(db):
        # SQL: works on a schema of an earlier version
        db.execute_sql(_PACK_ROW, _pack_values(db, row))


_PACK_ROW = "UPDATE search_docs SET text = ?, message_pk = ?, prev = ?, prev_pk = ?, idents = '', form = 1 WHERE pk = ?"


def _changes_terms(row: _OldRow) -> bool:
    """Return whether the new form of a row changes its terms in the indexes."""
    return row.idents != list_identifier_parts(row.text) or any(
        fold_text(t) != t for t in (row.text, row.prev, row.summary)
    )


def _pack_values(db: Database, row: _OldRow) -> tuple[str, int | None, str, int | None, int]:
    """Return the row in its new form, which refers to a message with the same text."""
    text, message_pk, prev, prev_pk = row.text, None, row.prev, None
    if row.message_text is not None and row.message_text[:TEXT_LIMIT] == row.text:
        text, message_pk = "", row.message_pk
    if row.kind == "message" and row.prev and row.thread_id is not None:
        before, previous_text = find_text_before(db, row.thread_id, row.position)
        if before is not None and previous_text[:PREVIOUS_LIMIT] == row.prev:
            prev, prev_pk = "", before
    return text, message_pk, prev, prev_pk, row.pk


# --- messages ---------------------------------------------------------------------------------------------


def _pack_messages(db: Database, first: int) -> None:
    batch = _read_next(db, "SELECT pk, raw_content, parts FROM messages WHERE pk >= ? ORDER BY pk", first)
    with index_upkeep.bypass_triggers(db):
        done = _run_for_each(batch, partial(_pack_message, db))
    _save_progress(db, "messages", done)


def _pack_message(db: Database, values: tuple[int, str, str | bytes]) -> None:
    pk, raw, parts = values
    small = codec.pack(parts) if isinstance(parts, str) else parts
    packed_raw = "" if raw and codec.read_text("", parts) == raw else raw
    if (packed_raw, small) != (raw, parts):
        # SQL: works on a schema of an earlier version
        db.execute_sql("UPDATE messages SET raw_content = ?, parts = ? WHERE pk = ?", (packed_raw, small, pk))


# --- trigrams ---------------------------------------------------------------------------------------------


def _pack_trigrams(db: Database, first: int) -> None:
    batch = _read_next(db, "SELECT pk, length(text) FROM search_terms WHERE pk >= ? ORDER BY pk", first)
    done = _run_for_each(batch, lambda row: index_upkeep.fill(db, _NEW, row[:1]))
    # in equal amounts, since FTS5 merges everything at once if too much remains
    end = time.perf_counter() + _STEP_S
    while index_upkeep.merge_some(db, _NEW) and time.perf_counter() < end:
        pass
    if not batch:
        index_upkeep.replace(db, _TRIGRAMS, _NEW)
        for name in _TRIGGERS:
            # SQL: the schema itself, which no model describes
            db.execute_sql(f"DROP TRIGGER packing_{name}")
    _save_progress(db, "trigrams", done)


_TRIGGERS = ("inserted", "deleted", "outdated", "updated", "messages_outdated", "messages_reworded")  # of the new index
_PACK = {"rows": _pack_rows, "messages": _pack_messages, "trigrams": _pack_trigrams}
