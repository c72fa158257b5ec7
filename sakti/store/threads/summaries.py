"""Store summaries of ten older messages each, for search and requests. The messages' text stays.

The first of the ten holds the whole summary and where it ends; each message also holds, and is found by, what was
taken from it. The thread's metadata holds the first message that has no level 1, and no level 2, summary. `count` and
`summaries` are raw SQL: every request runs them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from msgspec import Struct
from peewee import fn

from sakti.core.types import Message
from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.models import MessageRow
from sakti.store.search import index as search_index
from sakti.store.threads import threads

KEY = "levels"


class Summarised(Struct, frozen=True):
    """Messages `first` to `last` of a thread, their tokens and their summary."""

    first: int
    last: int
    message_tokens: int
    text: str


def done(metadata: Mapping[str, object]) -> tuple[int, int]:
    """Return the index of a thread's first message without level 1, and without level 2."""
    marks = metadata.get(KEY)
    return (int(marks[0]), int(marks[1])) if isinstance(marks, list | tuple) else (0, 0)  # pyright: ignore


_COUNT = "SELECT coalesce(max(message_index), -1) + 1 FROM messages WHERE thread_id = ?"
_SUMMARIES = (
    "SELECT message_index, json_extract(metadata, '$.summary.last'),"
    " json_extract(metadata, '$.summary.message_tokens'), injection_text FROM messages"
    " WHERE thread_id = ? AND injection_text IS NOT NULL AND json_extract(metadata, '$.summary.message_tokens') > ?"
    " ORDER BY message_index DESC LIMIT ?"
)


def count(db: Database, thread_id: str) -> int:
    """Return the number of messages of a thread."""
    return db.execute_sql(_COUNT, (thread_id,)).fetchone()[0]


def put(
    db: Database,
    messages: Sequence[Message],
    level: int,
    text: str,
    taken: Mapping[str, str],
    marks: tuple[int, int],
) -> None:
    """Store the summary of consecutive messages; `taken`: message id → extracted text."""
    first, last = messages[0], messages[-1]
    for message in messages:
        part = taken.get(message.id, "")
        rows.update(db, MessageRow, message.id, compaction_level=level, summary=part or None)
        search_index.summarise(db, "message", message.id, part)
    summary = {"last": last.index, "message_tokens": sum(m.tokens for m in messages)}
    metadata = fn.json_set(MessageRow.metadata, "$.summary", fn.json(json.dumps(summary)))
    MessageRow.update(injection_text=text, metadata=metadata).where(MessageRow.id == first.id).execute(db)
    threads.update_metadata(db, first.thread_id, {KEY: list(marks)})


def summaries(db: Database, thread_id: str, *, above: int, limit: int) -> list[Summarised]:
    """Return the newest `limit` summaries of a thread for more than `above` tokens each, oldest first."""
    newest = db.execute_sql(_SUMMARIES, (thread_id, above, limit)).fetchall()
    return [Summarised(*r) for r in reversed(newest)]
