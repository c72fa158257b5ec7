"""Messages: appended once, found for ever. Their text is never changed or deleted by memory."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from sakti.core.errors import StoreError
from sakti.core.types import Json, Message, Usage, plain_text
from sakti.store import codec, requests, search_index
from sakti.store.connection import Database
from sakti.store.models import MessageRow, StepRow
from sakti.store.rows import insert
from sakti.store.tasks import links

_COLUMNS = (
    "id, thread_id, resource_id, role, parts, created_at, message_index, token_count, part_tokens, token_counter,"
    " state, sealed_at, task_id, metadata"
)


def append(db: Database, message: Message, *, index_text: str | None = None, paths: Sequence[str] = ()) -> Message:
    """Put `message` at the end of its thread and into the search index; returns it with its index.

    A provisional message is stored but not indexed until `confirm`. `index_text` replaces the plain text in the index
    where it had to be redacted. Raises `StoreError` (gone) where there is no such thread.
    """
    raw = plain_text(message.parts)
    index, known = db.execute_sql(
        "SELECT coalesce(max(message_index), -1) + 1, EXISTS (SELECT 1 FROM threads WHERE id = ?) FROM messages"
        " WHERE thread_id = ?",
        (message.thread_id, message.thread_id),
    ).fetchone()
    if not known:
        raise StoreError("This thread was removed in another window.", code="gone")
    insert(
        db,
        MessageRow,
        id=message.id,
        thread_id=message.thread_id,
        resource_id=message.resource_id,
        role=message.role,
        message_index=index,
        format=codec.FORMAT,
        parts=[codec.encode(p) for p in message.parts],
        raw_content=raw,
        search_text=index_text,
        paths=list(paths),
        task_id=message.task_id,
        token_count=message.tokens,
        part_tokens=list(message.part_tokens),
        token_counter=message.token_counter,
        state=message.state,
        metadata=message.metadata,
        created_at=message.created_at,
    )
    db.execute_sql("UPDATE threads SET updated_at = ? WHERE id = ?", (message.created_at, message.thread_id))
    if message.task_id is not None:
        links.add(db, message.task_id, message.id, "output", message.created_at)
    if message.state == "saved":
        _index(db, message, index, raw if index_text is None else index_text, paths)
    return dataclasses.replace(message, index=index)


def add_context(db: Database, message: Message) -> bool:
    """Keep the parts and tokens of `message`, which is told something more that is nobody's words; False where it is
    being observed already, and so may not change."""
    changed = (
        MessageRow.update(
            parts=[codec.encode(p) for p in message.parts],
            part_tokens=list(message.part_tokens),
            token_count=message.tokens,
        )
        .where(MessageRow.id == message.id, MessageRow.sealed_at.is_null())
        .execute(db)
    )
    return bool(changed)


def confirm(db: Database, message_ids: Sequence[str]) -> None:
    """Provisional messages have passed: they become saved and searchable."""
    for message in get_many(db, message_ids):
        if message.state != "provisional":
            continue
        MessageRow.update(state="saved").where(MessageRow.id == message.id).execute(db)
        (raw, text, paths) = db.execute_sql(
            "SELECT raw_content, search_text, paths FROM messages WHERE id = ?", (message.id,)
        ).fetchone()
        _index(db, message, message.index, raw if text is None else text, json.loads(paths))


def withhold(db: Database, message_ids: Sequence[str], reason: str) -> None:
    """A guardrail stopped the turn: the text of its messages goes, the reason stays."""
    for message_id in message_ids:
        MessageRow.update(
            state="withheld",
            parts=[{"t": "marker", "kind": "withheld", "text": reason}],
            raw_content="",
            search_text=None,
            token_count=0,
            part_tokens=[0],
        ).where(MessageRow.id == message_id).execute(db)


def _index(db: Database, message: Message, index: int, text: str, paths: Sequence[str]) -> None:
    if not text.strip():
        return
    row = db.execute_sql(
        "SELECT coalesce(search_text, raw_content) FROM messages"
        " WHERE thread_id = ? AND message_index < ? AND state = 'saved' ORDER BY message_index DESC LIMIT 1",
        (message.thread_id, index),
    ).fetchone()
    search_index.put(
        db,
        kind="message",
        doc_id=message.id,
        resource_id=message.resource_id,
        thread_id=message.thread_id,
        task_id=message.task_id,
        role=message.role,
        position=index,
        created_at=message.created_at,
        text=text,
        prev=row[0] if row else "",
        paths=paths,
    )


def page(db: Database, thread_id: str, *, before: int | None = None, limit: int = 200) -> list[Message]:
    """The `limit` newest messages of a thread whose index is below `before`, oldest first."""
    found = db.execute_sql(
        f"SELECT {_COLUMNS} FROM messages WHERE thread_id = ? AND message_index < ?"
        " ORDER BY message_index DESC LIMIT ?",
        (thread_id, 1 << 62 if before is None else before, limit),
    ).fetchall()
    return [from_row(r) for r in reversed(found)]


def version(db: Database) -> int:
    """A number that another connection's commits change, be it of this process or of another one."""
    return db.execute_sql("PRAGMA data_version").fetchone()[0]


def after(db: Database, thread_id: str, index: int, *, limit: int = 1 << 30) -> list[Message]:
    """Messages of a thread with an index above `index`, oldest first."""
    found = db.execute_sql(
        f"SELECT {_COLUMNS} FROM messages WHERE thread_id = ? AND message_index > ? ORDER BY message_index LIMIT ?",
        (thread_id, index, limit),
    ).fetchall()
    return [from_row(r) for r in found]


def states_after(db: Database, thread_id: str, index: int) -> list[tuple[str, int, str]]:
    """(id, index, state) of the messages behind an index that were not withheld, oldest first."""
    return db.execute_sql(
        "SELECT id, message_index, state FROM messages WHERE thread_id = ? AND message_index > ?"
        " AND state != 'withheld' ORDER BY message_index",
        (thread_id, index),
    ).fetchall()


def between(db: Database, thread_id: str, first: int, last: int) -> list[Message]:
    found = db.execute_sql(
        f"SELECT {_COLUMNS} FROM messages WHERE thread_id = ? AND message_index BETWEEN ? AND ? ORDER BY message_index",
        (thread_id, first, last),
    ).fetchall()
    return [from_row(r) for r in found]


def get(db: Database, message_id: str) -> Message | None:
    found = get_many(db, [message_id])
    return found[0] if found else None


def get_many(db: Database, ids: Sequence[str]) -> list[Message]:
    """Those of `ids` that exist, in the order of their threads and indexes."""
    found: list[Any] = []
    for start in range(0, len(ids), 500):
        some = list(ids[start : start + 500])
        marks = ",".join("?" * len(some))
        found += db.execute_sql(
            f"SELECT {_COLUMNS} FROM messages WHERE id IN ({marks}) ORDER BY thread_id, message_index", some
        ).fetchall()
    return [from_row(r) for r in found]


def count(db: Database, thread_id: str) -> int:
    return db.execute_sql("SELECT count(*) FROM messages WHERE thread_id = ?", (thread_id,)).fetchone()[0]


def last_of_user(db: Database, thread_id: str) -> Message | None:
    row = db.execute_sql(
        f"SELECT {_COLUMNS} FROM messages WHERE thread_id = ? AND role = 'user' ORDER BY message_index DESC LIMIT 1",
        (thread_id,),
    ).fetchone()
    return None if row is None else from_row(row)


def seal(db: Database, ids: Sequence[str], now: int) -> None:
    """Messages that a buffering is about to read: from here on they never change."""
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        marks = ",".join("?" * len(some))
        db.execute_sql(f"UPDATE messages SET sealed_at = ? WHERE id IN ({marks}) AND sealed_at IS NULL", (now, *some))


def add_metadata(db: Database, message_id: str, changes: Json) -> None:
    """Merge `changes` into a message's metadata."""
    message = get(db, message_id)
    if message is not None:
        MessageRow.update(metadata={**message.metadata, **changes}).where(MessageRow.id == message_id).execute(db)


def from_row(row: Sequence[Any]) -> Message:
    (
        id_,
        thread_id,
        resource_id,
        role,
        parts,
        created_at,
        index,
        tokens,
        part_tokens,
        counter,
        state,
        sealed_at,
        task_id,
        metadata,
    ) = row
    return Message(
        id=id_,
        thread_id=thread_id,
        resource_id=resource_id,
        role=role,
        parts=tuple(codec.decode(p) for p in json.loads(parts)),
        created_at=created_at,
        index=index,
        tokens=tokens,
        part_tokens=tuple(json.loads(part_tokens)),
        token_counter=counter,
        state=state,
        sealed_at=sealed_at,
        task_id=task_id,
        metadata=json.loads(metadata),
    )


# --- model calls ------------------------------------------------------------------------------------------


def add_step(
    db: Database,
    *,
    id: str,
    thread_id: str,
    purpose: str,
    model: str,
    usage: Usage,
    now: int,
    message_id: str | None = None,
    counted_tokens: int = 0,
    duration_ms: int = 0,
    stop_reason: str = "",
    sent: requests.Sent | None = None,
) -> None:
    """Record one model call: its tokens as the provider reported them, beside our own count of the input, and what was
    sent."""
    if sent is not None:
        requests.keep(db, thread_id, sent.texts)
    insert(
        db,
        StepRow,
        id=id,
        thread_id=thread_id,
        message_id=message_id,
        purpose=purpose,
        model=model,
        counted_tokens=counted_tokens,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=usage.cost_usd,
        duration_ms=duration_ms,
        stop_reason=stop_reason,
        created_at=now,
        request=sent.described if sent is not None else None,
    )


def usage_of(db: Database, thread_id: str, *, purpose: str | None = None) -> Usage:
    """What a thread has used so far, all purposes together or one of them."""
    row = db.execute_sql(
        "SELECT coalesce(sum(input_tokens), 0), coalesce(sum(cached_tokens), 0), coalesce(sum(cache_write_tokens), 0),"
        " coalesce(sum(output_tokens), 0), coalesce(sum(reasoning_tokens), 0), sum(cost_usd)"
        " FROM steps WHERE thread_id = ?" + (" AND purpose = ?" if purpose else ""),
        (thread_id, purpose) if purpose else (thread_id,),
    ).fetchone()
    return Usage(*row)
