"""Delete single messages, or withhold a turn's: the text is erased, a placeholder stays.

A message keeps its index, so that indexes and observations of its neighbours hold; its text is removed from the
thread, search, exports, the sources of the log, requests, and the prompt history. Lines of the log that were made of
it stay: they are forgotten one by one.

Raw SQL: the rows of search that refer to a message.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from peewee import fn

from sakti.core.errors import SaktiError, StoreError
from sakti.core.types import MarkerPart, Message
from sakti.store import archive_file, leases, rows
from sakti.store.connection import Database
from sakti.store.models import (
    GroupRow,
    MessageRow,
    ObservationRow,
    PromptRow,
    RequestBlockRow,
    TaskMessageRow,
    ThreadRow,
    UnsentRow,
)
from sakti.store.search import index as search_index
from sakti.store.search.index import said_before
from sakti.store.text_registry import entering
from sakti.store.threads import messages, threads

MARK = MarkerPart("deleted", "This message was deleted.")


class Deleted(Struct, frozen=True):
    """Deleted messages, and the number of log lines made of ranges that contain them."""

    thread_id: str
    message_ids: tuple[str, ...]
    lines: int


def is_deleted(message: Message) -> bool:
    return message.state == "withheld" and any(isinstance(p, MarkerPart) and p.kind == MARK.kind for p in message.parts)


def delete(db: Database, message_id: str, now: int) -> Deleted:
    """Delete a message; a tool call goes with its result and a result with its call.

    Raises `StoreError` where there is none, `SaktiError` (thread_busy) while a turn runs in its thread.
    """
    message = messages.get(db, message_id)
    if message is None or is_deleted(message):
        raise StoreError(f"There is no message {message_id}.", code="not_found")
    leases.clear_dead(db, message.thread_id)
    if any(lease.kind == "turn" for lease in leases.held(db, message.thread_id, now)):
        raise SaktiError(
            "The agent is working in this thread, perhaps in another window: stop it there, then delete the message.",
            title="Thread in use",
            code="thread_busy",
        )
    archive_file.refuse_missing(db, message.thread_id)
    unit = _with_its_other_half(db, message)
    _unindex(db, unit)
    for one in unit:
        _empty(db, one)
    first, last = unit[0].index, unit[-1].index
    _drop_summaries(db, message.thread_id, first, last)
    rows.delete(db, RequestBlockRow, thread_id=message.thread_id)  # they may quote it
    line, group = ObservationRow, GroupRow
    made_of = (group.thread_id == message.thread_id) & group.state.in_(("active", "buffered"))
    made_of &= (group.first_index <= last) & (group.last_index >= first)
    remaining = (
        line.select(fn.COUNT(line.pk)).join(group, on=group.id == line.group_id).where(made_of, line.forgotten == 0)
    )
    return Deleted(message.thread_id, tuple(m.id for m in unit), remaining.scalar(db))


def withhold(db: Database, message_ids: Sequence[str], reason: str) -> None:
    """Remove the text of messages that a guardrail stopped, wherever it was kept; the reason stays."""
    withheld = messages.get_many(db, message_ids)
    for one in withheld:
        _unindex(db, [one])
        _empty(db, one, MarkerPart("withheld", reason))
    for thread_id in {m.thread_id for m in withheld}:
        indices = [m.index for m in withheld if m.thread_id == thread_id]
        _drop_summaries(db, thread_id, min(indices), max(indices))
        rows.delete(db, RequestBlockRow, thread_id=thread_id)


def forget_typed(db: Database, resource_id: str, thread_id: str, text: str) -> bool:
    """Remove a typed text from the prompt history, the drafts, and the title made of it.

    Return whether the history had it.
    """
    row, stored = PromptRow, entering("prompt_history", "text", text)
    had = rows.first(db, row.select(row.pk).where(row.resource_id == resource_id, row.text == stored)) is not None
    rows.delete(db, PromptRow, resource_id=resource_id, text=stored)
    rows.delete(db, UnsentRow, resource_id=resource_id, draft=entering("unsent", "draft", text))
    _untitle(db, thread_id, text)
    return had


def _with_its_other_half(db: Database, message: Message) -> list[Message]:
    around = messages.between(db, message.thread_id, message.index - 1, message.index + 1)
    unit = [message]
    for other in around:
        if message.tool_calls and other.index == message.index + 1 and other.role == "tool":
            unit.append(other)
        elif message.role == "tool" and other.index == message.index - 1 and other.tool_calls:
            unit.insert(0, other)
    return unit


def _empty(db: Database, message: Message, mark: MarkerPart = MARK) -> None:
    shell = message.metadata.get("shell")
    typed = f"!{shell}" if isinstance(shell, str) else message.text
    if message.role == "user" and typed:
        forget_typed(db, message.resource_id, message.thread_id, typed)
    rows.delete(db, TaskMessageRow, message_id=message.id)
    rows.update(
        db,
        MessageRow,
        message.id,
        state="withheld",
        parts=(mark,),
        raw_content="",
        search_text=None,
        summary=None,
        injection_text=None,
        paths=(),
        metadata={},
        token_count=0,
        part_tokens=(0,),
        task_id=None,
    )


def _untitle(db: Database, thread_id: str, said: str) -> None:
    """Clear a thread's provisional title if it comes from a removed message."""
    thread = threads.get(db, thread_id)
    words = thread.title.removesuffix("…").split() if thread and not thread.title_pinned else []
    if words and all(word.rstrip(":") in said for word in words):  # the last may be cut
        rows.update(db, ThreadRow, thread_id, title="")


def _drop_summaries(db: Database, thread_id: str, first: int, last: int) -> None:
    """Remove summaries of ranges that contain these messages; the others are sent in full again."""
    row = MessageRow
    ends = fn.json_extract(row.metadata, "$.summary.last").coerce(False)
    row.update(injection_text=None, metadata=fn.json_remove(row.metadata, "$.summary")).where(
        row.thread_id == thread_id, row.injection_text.is_null(False), row.message_index <= last, ends >= first
    ).execute(db)


def _unindex(db: Database, unit: Sequence[Message]) -> None:
    """Remove deleted messages from search, and from their neighbours' context, before the text is erased."""
    row = MessageRow
    first, last = unit[0], unit[-1]
    saved = (row.thread_id == last.thread_id) & (row.state == "saved") & (row.message_index > last.index)
    next_row = rows.first(db, row.select(row.id).where(saved).order_by(row.message_index))
    # one that was confirmed late may be what several others were found by
    behind = db.execute_sql(
        "SELECT doc_id FROM search_docs WHERE thread_id = ? AND kind = 'message' AND position > ? AND prev_pk IN"
        " (SELECT pk FROM messages WHERE thread_id = ? AND message_index BETWEEN ? AND ?)",
        (last.thread_id, last.index, last.thread_id, first.index, last.index),
    ).fetchall()
    before, text = said_before(db, first.thread_id, first.index)
    for message_id in {i for (i,) in (*behind, *([next_row] if next_row else []))}:
        search_index.set_previous(db, "message", message_id, text, before)
    for message in unit:
        search_index.remove(db, "message", message.id)


def without(found: Sequence[Message]) -> list[Message]:
    """Return the messages that were not deleted."""
    return [m for m in found if not is_deleted(m)]
