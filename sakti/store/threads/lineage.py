"""Find the threads that share messages.

A fork, also one made by an undo, begins with copies of another thread's messages. A copy keeps the index, role and time
of its message. Threads are related if they share their first message.
"""

from __future__ import annotations

from collections.abc import Mapping

from peewee import fn

from sakti.core.types import Message, Thread
from sakti.store.connection import Database
from sakti.store.models import MessageRow, ThreadRow
from sakti.store.threads import messages, threads


def get_lineage(thread: Thread) -> Mapping[str, int | None]:
    """Return the threads that are this one's past: those that it was forked from, then itself.

    The oldest comes first. The value is the last message index of the thread that counts; None: all.
    """
    metadata = thread.metadata
    past: dict[str, int | None] = dict(metadata.get("lineage", ()))
    if not past and "forked_from" in metadata:
        past = {metadata["forked_from"]: metadata["forked_at"]}
    return {**past, thread.id: None}


def find_origin(thread: Thread, index: int) -> str:
    """Return the id of the thread in which the message at an index was written. Pure."""
    return next(i for i, last in get_lineage(thread).items() if last is None or index <= last)


def list_relatives(db: Database, thread: Thread) -> list[Thread]:
    """Return the other threads, also deleted ones, that share the first messages of a thread."""
    row, first = ThreadRow, find_origin(thread, 0)
    is_named = (row.id == first) | (fn.instr(row.metadata, first) > 0)
    named = threads.THREAD.select().where(row.resource_id == thread.resource_id, row.id != thread.id, is_named)
    return [t for t in named.order_by(row.pk).execute(db) if find_origin(t, 0) == first]


def find_copies(db: Database, message: Message) -> list[Message]:
    """Return the same message in other threads: copied by an undo or a fork, not typed again."""
    thread = threads.get(db, message.thread_id)
    if thread is None:
        return []
    origin = find_origin(thread, message.index)
    sharing = [t.id for t in list_relatives(db, thread) if find_origin(t, message.index) == origin]
    if not sharing:
        return []
    row = MessageRow
    is_same = (row.message_index == message.index) & (row.role == message.role) & (row.created_at == message.created_at)
    copies = row.select(row.id).where(row.thread_id.in_(sharing), is_same).tuples().execute(db)
    return messages.get_many(db, [message_id for (message_id,) in copies])
