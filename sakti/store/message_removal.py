"""Deleting single messages: what was said goes for good, that something was said there stays.

A message keeps its place, so that indexes and what was observed of its neighbours hold; its words leave the thread,
search, exports, the sources of the log, what is sent, and the prompt history. Lines of the log that were made of it
stay: they are forgotten one by one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sakti.core.errors import SaktiError, StoreError
from sakti.core.types import MarkerPart, Message
from sakti.store import codec, leases, messages, search_index
from sakti.store.connection import Database

MARK = MarkerPart("deleted", "This message was deleted.")


@dataclass(frozen=True, slots=True)
class Deleted:
    """What went: the messages, and how many lines of logs were made of a range with them in it."""

    thread_id: str
    message_ids: tuple[str, ...]
    lines: int


def is_deleted(message: Message) -> bool:
    return message.state == "withheld" and any(isinstance(p, MarkerPart) and p.kind == MARK.kind for p in message.parts)


def delete(db: Database, message_id: str, now: int) -> Deleted:
    """Delete a message, with a call its result and with a result its call. Raises `StoreError` where there is none,
    `SaktiError` (thread_busy) while a turn is under way in its thread."""
    message = messages.get(db, message_id)
    if message is None or is_deleted(message):
        raise StoreError(f"There is no message {message_id}.", code="not_found")
    leases.clear_dead(db, message.thread_id)
    if any(lease.kind == "turn" for lease in leases.held(db, message.thread_id, now)):
        raise SaktiError(
            "The agent is at work in this thread, perhaps in another window: stop it there, then delete the message.",
            title="Thread in use",
            code="thread_busy",
        )
    unit = _with_its_other_half(db, message)
    for one in unit:
        _empty(db, one)
    first, last = unit[0].index, unit[-1].index
    _drop_summaries(db, message.thread_id, first, last)
    db.execute_sql("DELETE FROM request_blocks WHERE thread_id = ?", (message.thread_id,))  # they may quote it
    _index_behind(db, message.thread_id, last)
    (lines,) = db.execute_sql(
        "SELECT count(*) FROM observations o JOIN observation_groups g ON g.id = o.group_id WHERE g.thread_id = ?"
        " AND g.state IN ('active', 'buffered') AND o.forgotten = 0 AND g.first_index <= ? AND g.last_index >= ?",
        (message.thread_id, last, first),
    ).fetchone()
    return Deleted(message.thread_id, tuple(m.id for m in unit), lines)


def _with_its_other_half(db: Database, message: Message) -> list[Message]:
    around = messages.between(db, message.thread_id, message.index - 1, message.index + 1)
    unit = [message]
    for other in around:
        if message.tool_calls and other.index == message.index + 1 and other.role == "tool":
            unit.append(other)
        elif message.role == "tool" and other.index == message.index - 1 and other.tool_calls:
            unit.insert(0, other)
    return unit


def _empty(db: Database, message: Message) -> None:
    shell = message.metadata.get("shell")
    typed = f"!{shell}" if isinstance(shell, str) else message.text
    if message.role == "user" and typed:
        db.execute_sql("DELETE FROM prompt_history WHERE resource_id = ? AND text = ?", (message.resource_id, typed))
        db.execute_sql("DELETE FROM unsent WHERE resource_id = ? AND draft = ?", (message.resource_id, typed))
    _untitle(db, message)
    search_index.remove(db, "message", message.id)
    db.execute_sql("DELETE FROM task_messages WHERE message_id = ?", (message.id,))
    db.execute_sql(
        "UPDATE messages SET state = 'withheld', parts = ?, raw_content = '', search_text = NULL, summary = NULL,"
        " injection_text = NULL, paths = '[]', metadata = '{}', token_count = 0, part_tokens = '[0]', task_id = NULL"
        " WHERE id = ?",
        (json.dumps([codec.encode(MARK)]), message.id),
    )


def _untitle(db: Database, message: Message) -> None:
    """A thread is called by its first words until it has a title of its own."""
    row = db.execute_sql("SELECT title FROM threads WHERE id = ? AND title_pinned = 0", (message.thread_id,)).fetchone()
    words = row[0].removesuffix("…").strip() if row else ""
    shell = message.metadata.get("shell")
    said = " ".join((f"!{shell}" if isinstance(shell, str) else message.text).split())
    if message.role == "user" and words and said.startswith(words):
        db.execute_sql("UPDATE threads SET title = '' WHERE id = ?", (message.thread_id,))


def _drop_summaries(db: Database, thread_id: str, first: int, last: int) -> None:
    """What stands for messages with these among them: the others are sent as they are again."""
    db.execute_sql(
        "UPDATE messages SET injection_text = NULL, metadata = json_remove(metadata, '$.summary') WHERE thread_id = ?"
        " AND injection_text IS NOT NULL AND message_index <= ?"
        " AND json_extract(metadata, '$.summary.last') >= ?",
        (thread_id, last, first),
    )


def _index_behind(db: Database, thread_id: str, last: int) -> None:
    """The next message is also found by what was said before it: by another message from now on."""
    row = db.execute_sql(
        "SELECT id, message_index FROM messages WHERE thread_id = ? AND message_index > ? AND state = 'saved'"
        " ORDER BY message_index LIMIT 1",
        (thread_id, last),
    ).fetchone()
    if row is None:
        return
    before = db.execute_sql(
        "SELECT coalesce(search_text, raw_content) FROM messages WHERE thread_id = ? AND message_index < ?"
        " AND state = 'saved' ORDER BY message_index DESC LIMIT 1",
        (thread_id, row[1]),
    ).fetchone()
    search_index.set_previous(db, "message", row[0], before[0] if before else "")


def without(found: Sequence[Message]) -> list[Message]:
    """The messages that were not deleted."""
    return [m for m in found if not is_deleted(m)]
