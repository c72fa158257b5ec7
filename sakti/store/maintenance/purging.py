"""Remove a deleted thread or task for good: all its rows, by the registry of texts, and all copies.

Rows are removed in pieces, so that other windows can write in between; an interrupted purge continues on the next
request. Removed text is overwritten in the file (`secure_delete`, FTS5 'secure-delete'). Then the indexes are merged,
the write-ahead log is emptied, and an older file, which may have text in its free space, is vacuumed. Copies of
erased texts are found in the packed parts of all messages: search hits, recalled messages, printed logs, and sent
tasks. Raw SQL: conditions of the text registry, for any table.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from msgspec import Struct, structs
from peewee import fn

from sakti.core.clock import shorten_id
from sakti.core.errors import StoreError
from sakti.core.types import ContextPart, Message, OutputPart, Part, ToolResultPart
from sakti.store import archive_file, database_file, files, rows
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import erasure
from sakti.store.log.erasure import ERASED
from sakti.store.maintenance import archiving, upkeep
from sakti.store.models import MessageRow, SearchDocRow, TaskEventRow, TaskRow, ThreadRow
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep
from sakti.store.search.index import find_text_before
from sakti.store.text_registry import list_tables
from sakti.store.threads import codec, lineage, messages, threads
from sakti.store.threads import removal as thread_removal

NESTED = 2  # levels: a result may be JSON that contains an earlier result

log = logging.getLogger(__name__)
ROWS = 10  # rows removed between two checks of the time
UNMISTAKABLE = 20  # characters of a message that are erased in any result that repeats them
COPIES = ("before", "backup", "damaged", "wal")


class Copies(Struct, frozen=True, dict=True):
    """Erased texts, and the ids under which a search or recall shows them or parts of them."""

    texts: Sequence[str]
    ids: frozenset[str]
    tasks: Sequence[str] = ()  # texts of tasks that are erased with the messages

    @cached_property
    def forms(self) -> list[str]:
        """Return the texts, unchanged and in their JSON form, the longest first."""
        out = dict.fromkeys(self.texts)
        for _ in range(NESTED):
            out |= dict.fromkeys(json.dumps(t, ensure_ascii=ascii)[1:-1] for t in tuple(out) for ascii in (True, False))
        return sorted(out, key=len, reverse=True)

    @cached_property
    def shown_ids(self) -> frozenset[str]:
        return self.ids | {shorten_id(id) for id in self.ids}

    def without(self, text: str) -> str:
        """Return a text without these erased texts."""
        for form in self.forms:
            text = text.replace(form, ERASED)
        if not any(i in text for i in self.shown_ids):
            return text
        try:
            shown = json.loads(text)
        except ValueError:
            return text
        clean = self._erase_in_value(shown, is_erased=False)
        return text if clean == shown else json.dumps(clean, ensure_ascii=False)

    def _erase_in_value(self, value: Any, *, is_erased: bool) -> Any:
        """Return a JSON value with the texts of these ids erased; a text may be JSON itself."""
        match value:
            case dict():
                item: dict[str, Any] = value
                is_erased = item["id"] in self.shown_ids if isinstance(item.get("id"), str) else is_erased
                return {
                    key: ERASED if is_erased and key == "text" else self._erase_in_value(one, is_erased=is_erased)
                    for key, one in item.items()
                }
            case list():
                return [self._erase_in_value(one, is_erased=is_erased) for one in value]  # pyright: ignore[reportUnknownVariableType]
            case str():
                return self.without(value)
            case _:
                return value


async def erase_copies(store: Store, copies: Copies) -> list[Message]:
    """Erase texts in all stored results; return the messages that changed.

    Raises `StoreError` (archive) if the archive is missing.
    """
    await store.read(archive_file.refuse_missing)
    ids = await store.read(_find_copies, copies)
    await upkeep.run_in_pieces(store, ids, partial(_rewrite, copies=copies), step=1)
    if ids:
        await archiving.sweep(store)
    return await store.read(messages.get_many, ids)


def _find_copies(db: Database, copies: Copies) -> list[str]:
    """Return the messages whose results repeat erased texts."""
    words = ('"result"', '"output"', "<current-task>", "<suggested-response>")
    stored = _iter_unpacked_parts(db, "role IN ('tool', 'user')", (), words)
    return [i for i, parts in stored if _erase_in_parts([codec.decode(p) for p in parts], copies) is not None]


def _iter_unpacked_parts(
    db: Database, where: str, values: Sequence[str], words: Sequence[str]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield ids and parts of messages whose parts have one of these words."""
    has_word = " OR ".join("instr(parts, ?)" for _ in words)
    # SQL: calls a function of this program on packed texts
    stored = db.execute_sql(
        "SELECT id, parts FROM (SELECT id, sakti_unpacked(parts) AS parts FROM messages"
        f" WHERE {where}) WHERE {has_word}",
        (*values, *words),
    )
    return ((message_id, json.loads(parts)) for message_id, parts in stored)


def _erase_in_parts(parts: Iterable[Part], copies: Copies) -> tuple[Part, ...] | None:
    """Return parts with erased results; None if nothing changes."""
    before = tuple(parts)
    after = tuple(_erase_in_part(part, copies) for part in before)
    return None if after == before else after


def _erase_in_part(part: Part, copies: Copies) -> Part:
    match part:
        case ToolResultPart(content=content):
            return structs.replace(part, content=copies.without(content))
        case OutputPart(text=text):
            return structs.replace(part, text=copies.without(text))
        case ContextPart(facts=facts):
            return ContextPart({n: fact for n, fact in facts.items() if not any(t in fact for t in copies.tasks)})
        case _:
            return part


def _rewrite(db: Database, ids: Sequence[str], *, copies: Copies) -> None:
    """Store cleaned results, and index these messages and the next ones again."""
    for message in messages.get_many(db, ids):
        parts = _erase_in_parts(message.parts, copies)
        if parts is None:
            continue
        if (
            _erase_in_parts(message.parts, structs.replace(copies, tasks=())) is None
        ):  # tasks are neither shown nor searched
            rows.update(db, MessageRow, message.id, parts=parts)
            continue
        row = MessageRow
        pk, text = rows.fetch_first(db, row.select(row.pk, row.search_text).where(row.id == message.id))
        docs = {"thread_id": message.thread_id, "kind": "message", "prev_pk": pk}
        later = rows.select(db, SearchDocRow, ("doc_id", "position"), **docs)
        behind = [(doc_id, position) for doc_id, position in later if position > message.index]
        for doc_id, _ in behind:
            search_index.set_previous(db, "message", doc_id, "", None)
        search_index.remove(db, "message", message.id)
        text = None if text is None else copies.without(text)
        rows.update(db, MessageRow, message.id, parts=parts, raw_content="", search_text=text)
        search_index.index_messages(db, [pk])
        for doc_id, position in behind:
            before, prev = find_text_before(db, message.thread_id, position)
            search_index.set_previous(db, "message", doc_id, prev, before)


def is_clean(db: Database) -> bool:
    """Return whether indexes and free space of the file are free of removed text."""
    return bool(db.connection().pragma("user_version") & database_file.CLEAN)


def begin_purge(db: Database) -> bool:
    """Mark the file as possibly holding removed text until `finish_purge`; return whether it was clean."""
    clean = is_clean(db)
    index_upkeep.set_mark(db, database_file.CLEAN, on=False)
    return clean


def finish_purge(db: Database) -> None:
    index_upkeep.set_mark(db, database_file.CLEAN, on=True)


class DeletedTask(Struct, frozen=True):
    id: str
    handle: str
    title: str
    deleted_at: int


DELETED_TASK = rows.Shape(TaskRow, DeletedTask)


def list_deleted_tasks(db: Database, *, before: int) -> list[DeletedTask]:
    """Return the deleted tasks of all workspaces up to a time (Unix ms), last deleted first."""
    deleted = DELETED_TASK.select().where(TaskRow.deleted_at <= before)
    return list(deleted.order_by(TaskRow.deleted_at.desc(), TaskRow.pk.desc()).execute(db))


def list_copies(path: Path) -> list[Path]:
    """List copies of the database beside it: before migrations, backups, damaged ones.

    They contain the purged rows, too.
    """
    files_beside = [p for kind in COPIES for p in path.parent.glob(f"{path.name}.{kind}-*")]
    return sorted(p for p in files_beside if not p.name.endswith(files.SIDES))


def remove_copies(copies: Iterable[Path]) -> list[Path]:
    """Remove copies with their side files; return those removed."""
    removed: list[Path] = []
    for copy in copies:
        for file in files.list_files(copy):
            with contextlib.suppress(OSError):
                file.unlink()
        if not copy.exists():
            removed.append(copy)
    return removed


def list_named_files(db: Database, thread_id: str) -> list[str]:
    """List the files that a thread's messages own: full tool outputs, pasted images."""
    names: set[str] = set()
    for _, parts in _iter_unpacked_parts(db, "thread_id = ?", (thread_id,), ('"output_file"', "/pasted/")):
        names.update(_find_absolute_paths(parts))
    return sorted(names)


def list_shared_files(db: Database, thread_ids: Sequence[str]) -> set[str]:
    """List the files of these threads that copies of their messages in other threads name."""
    relatives = {r.id for i in thread_ids if (t := threads.get(db, i)) for r in lineage.list_relatives(db, t)}
    return {name for i in relatives.difference(thread_ids) for name in list_named_files(db, i)}


def _find_absolute_paths(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        for word in value.split():
            if word.startswith("/"):
                yield word
    elif isinstance(value, dict):
        for one in value.values():  # pyright: ignore[reportUnknownVariableType]
            yield from _find_absolute_paths(one)
    elif isinstance(value, list):
        for one in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _find_absolute_paths(one)


async def purge_thread(store: Store, thread_id: str) -> None:
    """Remove a deleted thread for good, with its traces in logs, drafts and other threads.

    Tasks that were worked on in it stay. Raises `StoreError` if it is not deleted.
    """
    await store.read(archive_file.refuse_missing, thread_id)
    await upkeep.reindex(store)
    resource_id = await store.write(_mark_purged, thread_id, store.clock.now())
    for find in (erasure.list_reflection_steps, erasure.list_note_steps):
        await upkeep.run_in_pieces(store, await store.read(find, thread_id), _work_off, step=1)
    numbered = await store.read(_list_rowid_tables)
    for table in list_tables():
        if table.thread and table.name in numbered:
            step = partial(_remove_some, table=table.name, where=table.thread, key=thread_id)
            if table.name == "search_docs":
                step = partial(index_upkeep.with_deferred_merge, do=step)
            await upkeep.run_until_done(store, step)
        elif table.thread:
            await store.write(_remove_all, table.name, table.thread, thread_id)
    await store.write(erasure.recount_log, resource_id, store.clock.now())


async def resume_purges(store: Store) -> None:
    """Continue purges that another process did not finish.

    Raises `StoreError`.
    """
    for thread_id in await store.read(_list_begun):
        await purge_thread(store, thread_id)


def _list_begun(db: Database) -> list[str]:
    row = ThreadRow
    is_purged = fn.json_extract(row.metadata, f"$.{thread_removal.PURGED}").is_null(False)
    return [i for (i,) in row.select(row.id).where(row.deleted_at.is_null(False), is_purged).tuples().execute(db)]


async def delete_message(store: Store, message_id: str) -> tuple[thread_removal.Deleted, list[str], Copies]:
    """Remove a message for good (`removal.delete_messages`), also from tool results that repeat it.

    Also return the files no longer named by any message, and the texts that other files may repeat.
    """
    units = await store.read(thread_removal.find_with_copies, message_id)
    thread_ids = [unit[0].thread_id for unit in units]
    before = await _list_files_of(store, thread_ids)

    def delete(db: Database) -> tuple[thread_removal.Deleted, list[str]]:
        gone = thread_removal.delete_messages(db, message_id, store.clock.now())
        tasks = [
            task
            for unit in units
            for task in erasure.erase_tasks(db, unit[0].thread_id, [m.index for m in unit], [m.text for m in unit])
        ]
        return gone, tasks

    gone, tasks = await store.write(delete)
    erased = list(itertools.chain.from_iterable(units))
    texts = dict.fromkeys(m.text for m in erased if len(m.text) >= UNMISTAKABLE)
    copies = Copies(list(texts), frozenset(m.id for m in erased), tasks)
    await erase_copies(store, copies)
    after = await _list_files_of(store, thread_ids)
    await archiving.sweep(store)
    await erase_leftovers(store)
    return gone, [name for name in before if name not in after], copies


async def _list_files_of(store: Store, thread_ids: Sequence[str]) -> list[str]:
    """Return the files named by messages of these threads, each once."""
    named = [await store.read(list_named_files, thread_id) for thread_id in thread_ids]
    return list(dict.fromkeys(itertools.chain.from_iterable(named)))


async def erase_leftovers(store: Store) -> None:
    """Erase removed text from indexes, write-ahead log and copies of the database."""
    if await store.read(index_upkeep.may_hold_deleted_words):
        await upkeep.optimize_indexes(store)
    await store.flush()
    remove_copies(list_copies(store.path))


async def purge_task(store: Store, task_id: str) -> None:
    """Remove a deleted task for good, with its history. Raises StoreError if it is not deleted."""
    await store.write(_remove_task, task_id, store.clock.now())


def _mark_purged(db: Database, thread_id: str, now: int) -> str:
    """Mark a deleted thread as purged, so that it cannot be restored; return its workspace."""
    thread, deleted_at = thread_removal.get_with_deletion(db, thread_id)
    if deleted_at is None:
        raise StoreError("Only a deleted thread can be removed for good.")
    # its title is removed with it: until then the thread is listed as deleted
    rows.update(db, ThreadRow, thread_id, metadata={thread_removal.PURGED: True})
    threads.unmark_branches(db, thread, now)
    erasure.begin_erasure(db, thread_id, now)
    return thread.resource_id


def _work_off(db: Database, steps: Sequence[erasure.Step]) -> None:
    index_upkeep.with_deferred_merge(db, partial(erasure.run_steps, steps=steps))


def _remove_task(db: Database, task_id: str, now: int) -> None:
    row = rows.fetch_first(db, TaskRow.select(TaskRow.resource_id, TaskRow.deleted_at).where(TaskRow.id == task_id))
    if row is None or row[1] is None:
        raise StoreError("Only a deleted task can be removed for good.")
    doc = SearchDocRow
    linked = MessageRow.select(MessageRow.id).where(MessageRow.task_id == task_id)
    doc.update(task_id=None).where(doc.kind == "message", doc.doc_id.in_(linked)).execute(db)
    MessageRow.update(task_id=None).where(MessageRow.task_id == task_id).execute(db)
    thread, key = ThreadRow, "$.active_task_id"
    is_active = fn.json_extract(thread.metadata, key).coerce(False) == task_id
    changed = thread.update(metadata=fn.json_remove(thread.metadata, key))
    changed.where(thread.resource_id == row[0], is_active).execute(db)
    for table in list_tables():
        if table.task:
            _remove_all(db, table.name, table.task, task_id)
    # an open board detects changes by the number of the newest event
    rows.insert(db, TaskEventRow, task_id="", resource_id=row[0], action="purge", created_at=now)


def _remove_some(db: Database, *, table: str, where: str, key: str) -> bool:
    """Remove some rows; False at the end."""
    # SQL: the text registry names table and column
    db.execute_sql(f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE {where} LIMIT {ROWS})", (key,))
    return db.connection().changes() == ROWS


def _remove_all(db: Database, table: str, where: str, key: str) -> None:
    # SQL: the text registry names table and column
    db.execute_sql(f"DELETE FROM {table} WHERE {where}", (key,))


def _list_rowid_tables(db: Database) -> set[str]:
    """Return the tables with a rowid; the others have few rows per thread."""
    # SQL: the schema itself, which no model describes
    return {name for (name,) in db.execute_sql("SELECT name FROM pragma_table_list WHERE wr = 0").fetchall()}


def delete_statistics(db: Database) -> None:
    """Delete SQLite's statistics: they hold samples of indexed values, labels among them."""
    # SQL: the schema itself, which no model describes
    if db.execute_sql("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat4'").fetchone():
        # SQL: the schema itself, which no model describes
        db.execute_sql("DELETE FROM sqlite_stat4")


async def clean(store: Store) -> bool:
    """Remove the leftovers of a purge from the archive, the indexes and the write-ahead log.

    False while another window still reads the log.
    """
    await archiving.sweep(store)
    await store.write(delete_statistics)
    await upkeep.optimize_indexes(store)
    return await store.flush()
