"""Open a thread's memory: its record, its first window and its newest prompt.

Leases of ended processes are cleared.
"""

from __future__ import annotations

from msgspec import Struct

from sakti.core.errors import StoreError
from sakti.core.types import Message, Thread
from sakti.memory.window import Window, load
from sakti.store import leases
from sakti.store import memory as memory_store
from sakti.store.database import Database, Store
from sakti.store.memory import Record, integrity
from sakti.store.threads import messages as message_store


class OpenedRecord(Struct, frozen=True):
    """Record of a thread's memory, with the leases cleared and the repairs made on opening.

    `failure`: why it could not be written; the record has no id then, where there was none before.
    """

    record: Record
    stale: tuple[leases.Lease, ...] = ()
    mended: str = ""
    failure: str = ""


async def open_record(
    store: Store, thread: Thread, *, scope: str, timezone: str | None, new_id: str, now: int, read_only: bool
) -> OpenedRecord:
    """Return the thread's record, created as `new_id` if missing, with wrong states repaired.

    `read_only`: it is read as it is.
    """
    key = f"thread:{thread.id}" if scope == "thread" else f"resource:{thread.resource_id}"
    zone = timezone or "UTC"

    def make(db: Database) -> OpenedRecord:
        record = memory_store.get_or_create(
            db,
            id=new_id,
            lookup_key=key,
            scope=scope,
            thread_id=thread.id if scope == "thread" else None,
            resource_id=thread.resource_id,
            timezone=zone,
            now=now,
        )
        if timezone and record.observed_timezone != timezone:
            memory_store.set_timezone(db, record.id, timezone)
        stale = (*leases.clear_expired(db, record.id, now), *leases.clear_dead(db, record.id))
        return OpenedRecord(record, stale, integrity.mend(db, record.id, now))

    failure = ""
    if not read_only:
        try:
            return await store.write(make)
        except StoreError as e:
            failure = e.message
    existing = await store.read(memory_store.get_record, key)
    empty = Record("", key, scope, thread.id, thread.resource_id, 0, None, None, 0, 0, 0, zone, 0, {})
    return OpenedRecord(existing or empty, failure=failure)


async def first_window(store: Store, thread: Thread, record: Record, *, newest: int | None) -> Window:
    """Return the thread's window; with `newest` (nothing is observed), only that many messages."""
    if newest is None:
        return await store.read(load, Window(thread, record))
    messages = await store.read(message_store.page, thread.id, limit=newest)
    return Window(thread, record, messages=messages)


async def newest_prompt(store: Store, window: Window) -> Message | None:
    """Return the newest prompt, which a turn continued after a crash has in every request."""
    prompt = next((m for m in reversed(window.messages) if m.role == "user"), None)
    if prompt is None and window.cursor >= 0:
        page = await store.read(message_store.page, window.thread.id, before=window.cursor + 1, limit=100)
        prompt = next((m for m in reversed(page) if m.role == "user" and m.state == "saved"), None)
    return prompt
