"""Rename, fork, delete, restore and export threads, and delete single messages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.agent.threads.export import FORMATS, Format, make_file_name, render
from sakti.agent.threads.reindexing import Indexing
from sakti.core.errors import ConfigError, SaktiError, StoreError
from sakti.core.events import ThreadChanged
from sakti.core.text import format_count, quote, to_one_line
from sakti.core.types import Message, Thread
from sakti.store.secrets import mask_output, mask_secrets

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.core.types import Message
    from sakti.store.connection import Database
    from sakti.store.database import Store
    from sakti.store.log.lines import LogLine
    from sakti.store.threads.removal import Contents, Deleted


from sakti.agent.threads import erasure
from sakti.store import memory as stored_memory
from sakti.store.log import lines as memory_log
from sakti.store.maintenance import purging
from sakti.store.threads import codec
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import messages as stored_messages
from sakti.store.threads import removal as thread_removal
from sakti.store.threads import threads as stored_threads

TITLE_LIMIT = 200


class NoSession(Struct, frozen=True):
    """Workspace without a session: no thread is open, so only the store changes.

    Its owner waits for `indexing` before the store is closed.
    """

    store: Store
    resource_id: str
    root: Path
    indexing: Indexing = field(default_factory=Indexing)


class ThreadActions:
    """Actions of a started session, or without one.

    All of them raise `SaktiError` with a sentence on failure.
    """

    def __init__(self, where: Session | NoSession) -> None:
        self._live = None if isinstance(where, NoSession) else where
        self._place = where if isinstance(where, NoSession) else where.workspace

    def _is_open(self, thread_id: str) -> Session | None:
        """Return the session if it has that thread open."""
        live = self._live
        return live if live is not None and live.thread is not None and live.thread.id == thread_id else None

    def _get_time(self) -> int:
        return self._place.store.clock.now() if self._live is None else self._live.workspace.clock.now()

    async def rename(self, thread_id: str, title: str) -> str:
        """Give a thread a title that stays; return the sentence about it."""
        place = self._place
        title = to_one_line(title, TITLE_LIMIT)
        if not title:
            raise ConfigError("A title cannot be empty.")
        renamed = await place.store.write(stored_threads.rename, thread_id, title, self._get_time(), by_user=True)
        live = self._is_open(thread_id)
        if renamed is None and not (live is not None and live.current.is_new):
            raise StoreError("This thread was removed for good.", code="gone")
        if renamed is not None and live is not None:
            live.emit(ThreadChanged(renamed))
        return f"Renamed to {quote(renamed.title if renamed is not None else title)}."

    async def fork(self, thread_id: str, upto: int | None = None) -> Thread:
        """Make a thread of the messages up to index `upto` (None: all), with the memory of them."""
        place = self._place
        return await place.store.write(
            thread_fork.fork, thread_id, id=place.store.ids.new(), ids=place.store.ids, now=self._get_time(),
            upto=upto,
        )  # fmt: skip

    async def contents(self, thread_id: str) -> Contents:
        """Return the contents that would be deleted with a thread."""
        return await self._place.store.read(thread_removal.preview_removal, thread_id)

    async def delete(self, thread_id: str) -> Contents:
        """Hide a thread; `restore` makes it visible again. If it is the open one, a new one begins."""
        place = self._place
        live = self._is_open(thread_id)
        if live is not None and live.busy:
            raise SaktiError("The agent is working in this thread: stop it with Esc, then delete it.", title="Threads")
        gone = await self.contents(thread_id)
        if self._live is not None:
            await self._live.children.stop_deleted(thread_id)
        await place.store.write(thread_removal.delete_thread, thread_id, self._get_time())
        place.indexing.begin(place.store)
        if live is not None:
            await live.new_thread()
        return gone

    async def restore(self, thread_id: str) -> Thread:
        """Bring a deleted thread back, as it was."""
        place = self._place
        thread = await place.store.write(thread_removal.restore_thread, thread_id)
        place.indexing.begin(place.store)
        return thread

    async def delete_message(self, message_id: str) -> Deleted:
        """Delete one message for good; its call or result and their saved outputs go with it."""
        gone, files, copies = await purging.delete_message(self._place.store, message_id)
        erasure.remove_files(files)
        erasure.rewrite_files(copies.without)
        for one in (gone, *gone.copies):
            if live := self._is_open(one.thread_id):
                live.current.engine.forget(list(one.message_ids))
        return gone

    async def find_last_deleted(self) -> Thread | None:
        """Return the thread of this workspace that was deleted last."""
        deleted = await self._place.store.read(thread_removal.list_deleted, self._place.resource_id)
        return deleted[0].thread if deleted else None

    async def export(self, thread_id: str, form: str, target: Path | None = None) -> Path:
        """Write a thread into a file (in the workspace by default) that must not exist; returns its path."""
        place = self._place
        if target is None:
            thread = (await self.contents(thread_id)).thread
            target = place.root / make_file_name(thread, check_form(form))
        text = await place.store.read(export_text, thread_id, check_form(form))
        await asyncio.to_thread(write_new, target, text)
        return target


def check_form(form: str) -> Format:
    """Refuse a form that threads are not exported in. Raises `ConfigError`."""
    if form not in FORMATS:
        raise ConfigError(f"A thread is exported as {', '.join(FORMATS)}, not as {quote(form)}.")
    return form


def export_text(db: Database, thread_id: str, form: Format) -> str:
    """Return a thread as text in a form, read at once, secrets masked.

    Raises `StoreError` without a thread.
    """
    thread = thread_removal.count_contents(db, thread_id).thread
    thread = replace(thread, title=mask_secrets(thread.title))
    stored = thread_removal.skip_deleted(stored_messages.list_after(db, thread_id, -1))
    messages = [_mask_message(m) for m in stored if m.state != "provisional"]
    log = [replace(x, content=mask_secrets(x.content)) for x in load_own_log(db, thread_id)]
    return render(thread, messages, log, form)


def _mask_message(message: Message) -> Message:
    parts = tuple(codec.decode(mask_output(codec.encode(p))) for p in message.parts)
    return message if parts == message.parts else replace(message, parts=parts)


def load_own_log(db: Database, thread_id: str) -> list[LogLine]:
    """Return the thread's present log without forgotten lines."""
    record = stored_memory.get_record(db, f"thread:{thread_id}")
    if record is None:
        return []
    return [x for x in memory_log.read_lines(db, record.id) if not x.forgotten]


def write_new(path: Path, text: str) -> None:
    """Write a private file that did not exist. Raises `SaktiError`."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
            out.write(text.encode("utf-8", "replace").decode("utf-8"))
    except FileExistsError as e:
        raise SaktiError(f"{path} already exists; name another file.", title="Export") from e
    except OSError as e:
        raise SaktiError(f"{path} cannot be written: {e.strerror}.", title="Export") from e


CONFIRMED = "yes"
NAME = "/delete-message"
_LOOKED_AT = 500  # newest messages that are counted from the end
_NAMED = 5  # threads that are named
_SHOWN = 80  # characters of a message that are shown


class OneMessage:
    """`/delete-message [N | yes]`: N counts messages from the end, 1 is the last."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._named: Message | None = None

    async def run(self, argument: str) -> str:
        """Remove a message; return the sentence about it.

        Raises `SaktiError` without a message, or while a turn is under way.
        """
        argument = argument.strip()
        if argument == CONFIRMED:
            return await self._delete()
        if argument and not (argument.isdecimal() and int(argument)):
            raise SaktiError(f"{NAME} takes a number, 1 for the last message.", title="Delete a message")
        messages = await self._read_messages()
        number = int(argument or 1)
        if number > len(messages):
            raise SaktiError(f"This thread has {format_count(len(messages), 'message')}.", title="Delete a message")
        self._named = messages[-number]
        who = "your message" if self._named.role == "user" else "the answer"
        text = to_one_line(self._named.text, _SHOWN)
        copies = await self._session.workspace.store.read(_list_threads_of_copies, self._named)
        count = format_count(len(copies), "copy", "copies")
        also = f" Also deleted: {count} in {_name_threads(copies)}." if copies else ""
        return f"{NAME} {CONFIRMED} deletes {who} {quote(text)} (a call with its result): this cannot be undone.{also}"

    async def _read_messages(self) -> list[Message]:
        thread = self._session.thread
        page = await self._session.views.transcript(thread.id, limit=_LOOKED_AT) if thread else []
        return [m for m in page if m.role in ("user", "assistant") and m.text.strip()]

    async def _delete(self) -> str:
        named, self._named = self._named, None
        thread = self._session.thread
        if named is None or thread is None or named.thread_id != thread.id:
            raise SaktiError(f"Name a message first: {NAME}, or {NAME} 3 for the third last.", title="Delete a message")
        if self._session.busy:
            raise SaktiError("The agent is working; stop it with Esc first.", title="Delete a message")
        gone = await ThreadActions(self._session).delete_message(named.id)
        await self._session.open_thread(thread.id)
        count = gone.lines + sum(c.lines for c in gone.copies)
        lines = format_count(count, "log line was", "log lines were")
        where = ", in these threads" if gone.copies else ""
        rest = f" {lines} made from it and the messages around it: /observations forget removes them{where}."
        copies = f", with {format_count(len(gone.copies), 'copy', 'copies')}" if gone.copies else ""
        return f"Deleted for good{copies}." + (rest if count else "")


def _list_threads_of_copies(db: Database, message: Message) -> list[Thread]:
    """Return the other threads that a message is deleted from."""
    copies = thread_removal.find_with_copies(db, message.id)[1:]
    return [t for c in copies if (t := stored_threads.get(db, c[0].thread_id)) is not None]


def _name_threads(threads: Sequence[Thread]) -> str:
    """Return the names of the first threads: `'fix login' (undone, 1a2b3c4d), 'new api' (5e6f7a8b)`."""
    names = [
        f"{quote(t.title or 'untitled')} ({'undone, ' if stored_threads.find_successor(t) else ''}{t.id[-8:]})"
        for t in threads[:_NAMED]
    ]
    rest = len(threads) - _NAMED
    return ", ".join([*names, *([f"{rest} more"] if rest > 0 else [])])
