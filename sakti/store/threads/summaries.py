"""Store summaries: of ten older messages each, and of earlier work that a new thread begins with.

The first of ten messages holds the summary and where it ends; each message also holds, and is found by, what was
taken from it. The thread's metadata holds the first message without a summary of level 1, and of level 2. The
messages' text stays.

The block carried over to a new thread names the source of each piece. It stays as it was when the thread began, so
that a prompt's prefix is stable, except for deleted threads and tasks, and forgotten or corrected lines. A line that
the user removed leaves when the prefix breaks anyway (`drop_removed`).

Raw SQL: every request and every window runs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, to_builtins
from peewee import fn

from sakti.core.types import Message
from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.log import replaced
from sakti.store.models import CarryOverRow, MessageRow
from sakti.store.search import index as search_index
from sakti.store.text_registry import entering
from sakti.store.threads import threads

LEVELS_KEY = "levels"

_COUNT = "SELECT coalesce(max(message_index), -1) + 1 FROM messages WHERE thread_id = ?"
_SUMMARIES = (
    "SELECT message_index, json_extract(metadata, '$.summary.last'),"
    " json_extract(metadata, '$.summary.message_tokens'), injection_text FROM messages"
    " WHERE thread_id = ? AND injection_text IS NOT NULL AND json_extract(metadata, '$.summary.message_tokens') > ?"
    " ORDER BY message_index DESC LIMIT ?"
)
Kind: TypeAlias = Literal["thread", "line", "task"]
CARRY_OVER_KEY = "carry_over"  # key in a thread's metadata: the text above the pieces; present once they were searched
REMOVED = "carry_over_removed"  # of a thread's metadata: positions of the lines that the user removed
LINE = "* "
_CARRIED = (
    "SELECT c.position, c.kind, c.source_id, c.text, coalesce(o.edited, o.content),"
    " json_extract(own.metadata, '$.carry_over'), json_extract(own.metadata, '$.carry_over_removed')"
    " FROM carry_over c JOIN threads own ON own.id = c.thread_id"
    " LEFT JOIN observations o ON c.kind = 'line' AND o.id = c.source_id"
    " LEFT JOIN threads t ON t.id = CASE c.kind WHEN 'line' THEN o.thread_id WHEN 'thread' THEN c.source_id END"
    " LEFT JOIN tasks k ON c.kind = 'task' AND k.id = c.source_id"
    " WHERE c.thread_id = ? AND CASE c.kind WHEN 'task' THEN k.id IS NOT NULL AND k.deleted_at IS NULL"
    " ELSE t.id IS NOT NULL AND t.deleted_at IS NULL AND coalesce(o.forgotten, 0) = 0 END ORDER BY c.position"
)


class Summarised(Struct, frozen=True):
    """Messages `first` to `last` of a thread, their tokens and their summary."""

    first: int
    last: int
    message_tokens: int
    text: str


def summarised_up_to(metadata: Mapping[str, object]) -> tuple[int, int]:
    """Return the index of a thread's first message without level 1, and without level 2."""
    marks = metadata.get(LEVELS_KEY)
    return (int(marks[0]), int(marks[1])) if isinstance(marks, list | tuple) else (0, 0)  # pyright: ignore


def count_messages(db: Database, thread_id: str) -> int:
    """Return the number of messages of a thread."""
    # SQL: each step runs it; building a query takes 80-300 µs
    return db.execute_sql(_COUNT, (thread_id,)).fetchone()[0]


def put_summaries(
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
    threads.update_metadata(db, first.thread_id, {LEVELS_KEY: list(marks)})


def summaries(db: Database, thread_id: str, *, above: int, limit: int) -> list[Summarised]:
    """Return the newest `limit` summaries of a thread for more than `above` tokens each, oldest first."""
    # SQL: reads JSON inside a column
    newest = db.execute_sql(_SUMMARIES, (thread_id, above, limit)).fetchall()
    return [Summarised(*r) for r in reversed(newest)]


class CarriedPiece(Struct, frozen=True):
    """One line of the block, and the thread, log line or task it is about."""

    kind: Kind
    source_id: str
    text: str


class CarriedLine(Struct, frozen=True):
    """One line as it is sent, or as the first turn will send it; `is_removed` by the user.

    A line that `is_sent` leaves with the next change of the prompt's prefix.
    """

    position: int
    kind: Kind
    source_id: str
    text: str
    is_removed: bool = False
    is_sent: bool = True


def keep_carry_over(db: Database, thread_id: str, head: str, pieces: Sequence[CarriedPiece]) -> None:
    """Store what a thread begins with: `head` above the pieces; without pieces, that there is nothing."""
    threads.update_metadata(db, thread_id, {CARRY_OVER_KEY: head})
    values = [{"thread_id": thread_id, "position": n, **to_builtins(piece)} for n, piece in enumerate(pieces)]
    if values:
        CarryOverRow.replace_many(values).execute(db)


def copy_carry_over(db: Database, thread_id: str, new: str) -> None:
    """Copy a thread's carried-over block to its fork."""
    rows.copy(db, CarryOverRow, {"thread_id": thread_id}, thread_id=new)


def read_carried_text(db: Database, thread_id: str) -> str:
    """Return the current block, "" if it is missing or empty."""
    head, carried = _read(db, thread_id)
    return "\n".join([head, *(line.text for line in carried)]).strip() if carried else ""


def read_carried_lines(db: Database, thread_id: str) -> list[CarriedLine]:
    """Return the lines of the block as it is now."""
    return _read(db, thread_id)[1]


def _read(db: Database, thread_id: str) -> tuple[str, list[CarriedLine]]:
    # SQL: reads JSON inside a column
    stored = db.execute_sql(_CARRIED, (thread_id,)).fetchall()
    if not stored:
        return "", []
    *_, head, removed = stored[0]
    gone = frozenset[int](json.loads(removed or "[]"))
    carried = [
        CarriedLine(position, kind, source_id, _current_text(kind, then, now), position in gone)
        for position, kind, source_id, then, now, *_ in stored
    ]
    return str(head or ""), carried


def mark_removed(db: Database, thread_id: str, position: int, *, removed: bool) -> None:
    """Remember that the user removed a line, or wants it back."""
    gone = {line.position for line in read_carried_lines(db, thread_id) if line.is_removed} - {position}
    gone |= {position} if removed else set()
    threads.update_metadata(db, thread_id, {REMOVED: sorted(gone) or None})


def has_removed(db: Database, thread_id: str) -> bool:
    """Tell whether the user removed lines that are still sent."""
    return any(line.is_removed for line in read_carried_lines(db, thread_id))


def drop_removed(db: Database, thread_id: str) -> None:
    """Delete the lines that the user removed."""
    gone = [line.position for line in read_carried_lines(db, thread_id) if line.is_removed]
    row = CarryOverRow
    row.delete().where(row.thread_id == thread_id, row.position.in_(gone)).execute(db)
    threads.update_metadata(db, thread_id, {REMOVED: None})


def _current_text(kind: str, then: str, now: str | None) -> str:
    """Return a line's text, in its corrected form if it was corrected since."""
    if kind != "line" or now is None:
        return then
    now = entering("carry_over", "text", now)
    return then if replaced.remove_marks(now) in replaced.remove_marks(then) else f"{LINE}{now}"
