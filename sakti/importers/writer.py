"""Turn entries of other programs into threads and messages, one batch per transaction.

The writer has no state between batches: the position of an entry is read from the database, so an import can be
killed at any point and repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.titles import make_first_title
from sakti.core.clock import Ids
from sakti.core.tokens import Counter, count_parts, sum_message_tokens
from sakti.core.types import MarkerPart, Message, Part, Thread, ToolResultPart
from sakti.importers.entries import Entry, ThreadInfo
from sakti.store import imports
from sakti.store.connection import Database
from sakti.store.imports import IMPORTED, ORIGIN, THREAD, EntryOrigin
from sakti.store.threads import fork, messages, threads

BATCH = 200  # entries in one transaction
CALLS_WITHIN = 4  # messages before a result: its call is among them


class Counts(Struct):
    """Figures of an import; `messages` are prompts and answers, without tool results."""

    new: int = 0
    unchanged: int = 0
    raw: int = 0
    masked: int = 0

    def add(self, other: Counts) -> None:
        self.new += other.new
        self.unchanged += other.unchanged
        self.raw += other.raw
        self.masked += other.masked


class ImportWriter(Struct, frozen=True):
    """Writer of one run.

    `workspace_of` maps the folder of a thread to the id of its workspace.
    """

    program: str
    run: str
    ids: Ids
    counter: Counter
    workspace_of: Callable[[str], str]

    def write(self, db: Database, entries: Sequence[Entry]) -> Counts:
        """Store a batch of entries that begins and ends between two messages; known entries are skipped."""
        batch = _Batch(self, db, entries)
        for group in group_entries(entries):
            batch.store(group)
        imports.add_origins(db, self.program, self.run, batch.new)
        return batch.counts

    def preview(self, db: Database, entries: Sequence[Entry]) -> Counts:
        """Count the entries that `write` would store."""
        batch = _Batch(self, db, entries)
        for group in group_entries(entries):
            batch.count(group, [e for e in group if e.id not in batch.origins])
        return batch.counts


def group_entries(entries: Iterable[Entry]) -> Iterable[list[Entry]]:
    """Yield the entries of each message together."""
    group: list[Entry] = []
    for entry in entries:
        if group and not is_continuation(group[-1], entry):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def is_continuation(before: Entry, entry: Entry) -> bool:
    """Return whether an entry belongs to the same message as the one before it."""
    if before.kind != "message" or entry.kind != "message" or before.thread.id != entry.thread.id:
        return False
    if before.role != entry.role:
        return False
    return entry.role == "tool" or (bool(entry.answer) and entry.answer == before.answer)


class _Batch:
    def __init__(self, writer: ImportWriter, db: Database, entries: Sequence[Entry]) -> None:
        self._writer, self._db = writer, db
        keys = {key for e in entries for key in (e.id, e.parent, *_list_thread_keys(e.thread)) if key}
        self.origins = imports.find_entries(db, writer.program, list(keys))
        self.new: dict[str, EntryOrigin] = {}
        self.counts = Counts()
        self._threads: dict[str, Thread] = {}
        self._times: dict[str, int] = {}

    def store(self, group: Sequence[Entry]) -> None:
        """Store the new entries of one message."""
        fresh = [e for e in group if e.id not in self.origins]
        self.count(group, fresh)
        if not fresh:
            return
        info = fresh[0].thread
        if fresh[0].kind == "note":
            self._map_note(fresh[0])
        elif fresh[0].kind == "end":
            return
        elif not any(THREAD + other in self.origins for other in info.unless):
            thread = self._choose_thread(fresh[0])
            if thread is not None:
                message = self._append(thread, fresh)
                for entry in fresh:
                    self._set_origin(entry.id, EntryOrigin(thread.id, message.id))

    def count(self, group: Sequence[Entry], fresh: Sequence[Entry]) -> None:
        first = group[0]
        if first.kind == "message" and first.counted:
            self.counts.new += bool(fresh)
            self.counts.unchanged += not fresh
        self.counts.raw += sum(e.kind == "raw" and is_uninterpreted(e.parts) for e in fresh)

    def _set_origin(self, entry_id: str, origin: EntryOrigin) -> None:
        self.origins[entry_id] = self.new[entry_id] = origin

    def _map_note(self, entry: Entry) -> None:
        """Map a line without a message to the message of its parent."""
        origin = self.origins.get(entry.parent) or self.origins.get(THREAD + entry.thread.id)
        if origin is None:
            return
        thread = self._load(origin.thread_id)
        if entry.title and thread is not None and not thread.title_pinned and thread.title != entry.title:
            self._rename(thread, entry.title)
        if entry.parent in self.origins:
            self._set_origin(entry.id, origin)

    # --- threads --------------------------------------------------------------------------------------------

    def _choose_thread(self, entry: Entry) -> Thread | None:
        """Return the thread that an entry is appended to: its own, a new one or a fork; None if removed."""
        info = entry.thread
        current = self.origins.get(THREAD + info.id)
        before = self.origins.get(entry.parent) if entry.parent else None
        if before is not None and before.message_id is not None:
            return self._continue_thread(info, current, before.thread_id, before.message_id, entry.time)
        if current is None:
            return self._create(entry)
        last = imports.find_last_imported(self._db, current.thread_id)
        tail = imports.find_tail(self._db, last) if last else None
        if tail is None or tail.is_last:
            return self._load(current.thread_id)
        copy = self._fork(info, current.thread_id, tail.index, entry.time)
        if copy is not None:
            imports.move_thread(self._db, self._writer.program, info.id, copy.id)
            self.origins[THREAD + info.id] = EntryOrigin(copy.id, None)
        return copy

    def _continue_thread(
        self, info: ThreadInfo, current: EntryOrigin | None, thread_id: str, message_id: str, time: int
    ) -> Thread | None:
        """Return the thread of the previous message if that is its last one, else a fork at that message."""
        thread, tail = self._load(thread_id), imports.find_tail(self._db, message_id)
        if thread is None or tail is None:
            return None
        if tail.is_last and thread.metadata.get(ORIGIN, {}).get("id") == info.id:
            return thread
        copy = self._fork(info, thread_id, tail.index, time)
        if copy is not None and current is None:
            self._set_origin(THREAD + info.id, EntryOrigin(copy.id, None))
        return copy

    def _create(self, entry: Entry) -> Thread:
        info, writer = entry.thread, self._writer
        parent = self._find_parent(info)
        thread = Thread(
            writer.ids.new(),
            parent.resource_id if parent and not info.cwd else writer.workspace_of(info.cwd),
            info.title or entry.title,
            entry.time,
            entry.time,
            parent_id=parent.id if parent else None,
            metadata={**info.metadata, ORIGIN: self._make_origin(info)},
        )
        stored = threads.create(self._db, thread)
        self.counts.masked += stored.title != thread.title
        self._threads[stored.id] = stored
        self._times[stored.id] = entry.time
        self._set_origin(THREAD + info.id, EntryOrigin(stored.id, None))
        return stored

    def _find_parent(self, info: ThreadInfo) -> Thread | None:
        parent = self.origins.get(THREAD + info.parent) if info.parent else None
        return self._load(parent.thread_id) if parent else None

    def _fork(self, info: ThreadInfo, thread_id: str, index: int, time: int) -> Thread | None:
        if self._load(thread_id) is None:
            return None
        writer = self._writer
        now = max(time, imports.read_last_time(self._db, thread_id))
        copy = fork.fork(self._db, thread_id, id=writer.ids.new(), ids=writer.ids, now=now, upto=index)
        threads.update_metadata(self._db, copy.id, {ORIGIN: self._make_origin(info)})
        return self._load(copy.id)

    def _make_origin(self, info: ThreadInfo) -> dict[str, str]:
        writer = self._writer
        return {
            "program": writer.program,
            "version": info.version,
            "file": info.file,
            "id": info.id,
            "run": writer.run,
        }

    def _load(self, thread_id: str) -> Thread | None:
        if thread_id not in self._threads:
            thread = threads.get(self._db, thread_id)
            if thread is None:
                return None
            self._threads[thread_id] = thread
            self._times[thread_id] = imports.read_last_time(self._db, thread_id) or thread.created_at
        return self._threads[thread_id]

    def _rename(self, thread: Thread, title: str) -> None:
        renamed = threads.rename(self._db, thread.id, title, thread.updated_at, by_user=False)
        if renamed is not None:
            self._threads[thread.id] = renamed

    # --- messages -------------------------------------------------------------------------------------------

    def _append(self, thread: Thread, group: Sequence[Entry]) -> Message:
        first = group[0]
        parts = self._name_results(thread.id, tuple(part for entry in group for part in entry.parts))
        part_tokens = count_parts(self._writer.counter, parts)
        time = max(first.time, self._times[thread.id])
        message = Message(
            self._writer.ids.new(),
            thread.id,
            thread.resource_id,
            first.role,
            parts,
            time,
            tokens=sum_message_tokens(part_tokens),
            part_tokens=part_tokens,
            token_counter=self._writer.counter.name,
            metadata={IMPORTED: self._writer.run},
        )
        text = "\n".join(p.text for p in parts if isinstance(p, MarkerPart)) if first.kind == "raw" else None
        stored = messages.append(self._db, message, index_text=text)
        self.counts.masked += stored.parts is not parts
        self._times[thread.id] = time
        if first.role == "user" and not thread.title and (title := make_first_title(stored.text)):
            self._rename(replace(thread, updated_at=time), title)
        return stored

    def _name_results(self, thread_id: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        """Give results that their program stores without the name of the tool that of their call."""
        if all(part.name for part in parts if isinstance(part, ToolResultPart)):
            return parts
        before = messages.list_page(self._db, thread_id, limit=CALLS_WITHIN)
        names = {call.id: call.name for message in before for call in message.tool_calls}
        return tuple(
            replace(p, name=p.name or names.get(p.call_id, "")) if isinstance(p, ToolResultPart) else p for p in parts
        )


def _list_thread_keys(info: ThreadInfo) -> Iterable[str]:
    yield THREAD + info.id
    if info.parent:
        yield THREAD + info.parent
    yield from (THREAD + other for other in info.unless)


def is_uninterpreted(parts: Sequence[Part]) -> bool:
    return any(isinstance(p, MarkerPart) and p.kind == "raw" for p in parts)
