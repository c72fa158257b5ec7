"""Represent the window of an open thread: raw messages, the log, buffered groups; open its record."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from sakti.core.errors import StoreError
from sakti.core.types import Message, Thread
from sakti.memory import policy
from sakti.memory.shared import correct_group
from sakti.store import leases
from sakti.store import memory as memory_store
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import corrections as memory_corrections
from sakti.store.memory import Group, Record, integrity
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads


class Window:
    """Window of an open thread.

    `messages` are those after the cursor, in order; `pending` their tokens. `active` is the log, `buffered` the
    finished groups of this thread outside the log, `reflection` a buffered one. Between two loads only `messages`
    change: newly stored ones are added.
    """

    def __init__(
        self,
        thread: Thread,
        record: Record,
        cursor: int = -1,
        *,
        messages: Sequence[Message] = (),
        groups: Sequence[Group] = (),
        stored: dict[str, Group] | None = None,
    ) -> None:
        self.thread = thread
        self.record = record
        self.cursor = cursor
        self.messages = [m for m in messages if m.state != "withheld"]
        self.pending = sum(m.tokens for m in self.messages)
        self.active = [g for g in groups if g.state == "active"]
        self.buffered = _select_buffered(thread.id, groups)
        self.reflection = next((g for g in groups if g.state == "buffered" and g.kind == "reflection"), None)
        self.stored = stored or {}  # the groups without corrections, by id

    @property
    def revision(self) -> tuple[int, int] | None:
        """Return the value of `memory.read_revision` if current; None while messages are provisional."""
        if any(m.state == "provisional" for m in self.messages):
            return None
        return self.record.revision, self.messages[-1].index if self.messages else self.cursor

    def add(self, message: Message) -> bool:
        """Add a message that was just stored; False for a known one."""
        if message.index <= self.cursor or (self.messages and message.index <= self.messages[-1].index):
            return False
        self.messages.append(message)
        self.pending += message.tokens
        return True

    def amend(self, message: Message) -> None:
        """Replace a message by its version with more context."""
        at = next((i for i, m in enumerate(self.messages) if m.id == message.id), None)
        if at is not None:
            self.pending += message.tokens - self.messages[at].tokens
            self.messages[at] = message

    def forget(self, ids: set[str]) -> None:
        """Remove messages that a guardrail withheld."""
        self.messages = [m for m in self.messages if m.id not in ids]
        self.pending = sum(m.tokens for m in self.messages)

    def ready(self) -> list[Group]:
        """Return buffered groups that can be activated: from the cursor on without a gap."""
        out: list[Group] = []
        position = 0
        for group in self.buffered:
            if position < len(self.messages) and self.messages[position].index < (group.first_index or 0):
                break  # an uncovered message precedes the group
            out.append(group)
            while position < len(self.messages) and self.messages[position].index <= (group.last_index or 0):
                position += 1
        return out

    def find_uncovered_messages(self) -> list[Message]:
        """Return the first run of messages not covered by a buffered group, up to the first unobservable one."""
        ready = self.ready()
        start = ready[-1].last_index if ready else self.cursor
        following = next((g.first_index for g in self.buffered[len(ready) :]), None)
        out: list[Message] = []
        for message in self.messages:
            if message.index <= (start if start is not None else -1):
                continue
            if message.state != "saved" or (following is not None and message.index >= following):
                break
            out.append(message)
        return out

    def observable(self) -> list[Message]:
        """Return the messages that a background observation may read: no running calls, no new prompt."""
        messages = list(policy.select_safe_buffer_prefix(self.find_uncovered_messages()))
        while messages and messages[-1].role == "user" and messages[-1].index == self.messages[-1].index:
            messages.pop()
        return messages


def _select_buffered(thread_id: str, groups: Sequence[Group]) -> list[Group]:
    """Return the observations of a thread that are not in the log yet, in order."""
    buffered = [g for g in groups if g.state == "buffered" and g.observes and g.thread_id == thread_id]
    return sorted(buffered, key=lambda g: g.first_index or 0)


def load(db: Database, old: Window) -> Window:
    """Load the window from the database; unchanged messages and groups of `old` are not read again."""
    record = memory_store.get_record(db, old.record.lookup_key) or old.record
    thread = threads.get(db, old.thread.id) or old.thread
    cursor = memory_store.find_cursor(db, record.id, thread.id)
    same = record.corrections == old.record.corrections  # otherwise tasks of groups may have been cleared
    groups = memory_store.list_current_groups(db, record.id, old.stored if same else {})
    return Window(
        thread,
        record,
        cursor,
        messages=_load_messages(db, thread.id, cursor, old),
        groups=_with_corrections(db, record.id, groups, old) if record.corrections else groups,
        stored={g.id: g for g in groups},
    )


def _load_messages(db: Database, thread_id: str, cursor: int, old: Window) -> list[Message]:
    states = message_store.list_states_after(db, thread_id, cursor)
    loaded = {m.id: m for m in old.messages}
    fresh = [index for id, index, state in states if id not in loaded or loaded[id].state != state]
    if fresh:
        loaded |= {m.id: m for m in message_store.list_between(db, thread_id, fresh[0], fresh[-1])}
    return [loaded[id] for id, _, _ in states]


def _with_corrections(db: Database, record_id: str, groups: Sequence[Group], old: Window) -> list[Group]:
    changes = memory_corrections.read_changed_lines(db, record_id)
    before = {g.id: g for g in (*old.active, *old.buffered)}
    out: list[Group] = []
    for group in groups:
        if group.id in changes:
            group = correct_group(group, changes[group.id])
            group = before[group.id] if before.get(group.id) == group else group  # not rendered again
        out.append(group)
    return out


def split_into_slices(messages: Sequence[Message], limit: int) -> list[list[Message]]:
    """Split messages into consecutive pieces of at most `limit` tokens; a larger exchange stays one piece."""
    cuts = policy.list_safe_cuts(messages)
    if cuts[-1] != len(messages):
        cuts.append(len(messages))
    out: list[list[Message]] = []
    tokens = 0
    for start, end in itertools.pairwise(cuts):
        piece = list(messages[start:end])
        size = sum(m.tokens for m in piece)
        if out and tokens + size <= limit:
            out[-1] += piece
            tokens += size
        else:
            out.append(piece)
            tokens = size
    return out


def sync_cut(messages: Sequence[Message], threshold: int, floor: float) -> int:
    """Return how many of `messages` a step that must wait observes.

    The newest `floor` tokens stay raw, unless more messages must be observed to get below the threshold. The last
    exchange always stays.
    """
    cuts = policy.list_inner_cuts(messages)
    if len(cuts) < 2:
        return 0
    rest = _compute_suffix_sums([m.tokens for m in messages])
    most = max((c for c in cuts if rest[c] >= floor), default=0)
    if most and rest[most] < threshold:
        return most
    return next((c for c in cuts[1:] if rest[c] < threshold), cuts[-1])


def select_newest_fitting(
    messages: Sequence[Message],
    room: int,
    keep: Sequence[Message],
    shorten: Callable[[Message], Message],
    *,
    most: int | None = None,
) -> list[Message]:
    """Return the newest exchanges of at most `room` tokens; one that exceeds the rest is shortened.

    The messages of `keep` are always sent in full, and so is the last exchange up to `most` tokens (None: no limit):
    without them a request could not be answered. A longer last exchange is shortened.
    """
    keep_ids = {m.id for m in keep}
    reserved = _count_tokens(keep)
    room -= reserved
    *older, last = _split_exchanges(messages, keep_ids)
    if most is not None and _count_tokens(last) > most - reserved:
        last = [shorten(m) for m in last]
    sent = {m.id: m for m in last}
    room -= _count_tokens(last)
    for exchange in reversed(older):
        if _count_tokens(exchange) > room:
            exchange = [shorten(m) for m in exchange]
        room -= _count_tokens(exchange)
        if room < 0:
            break
        sent |= {m.id: m for m in exchange}
    return [sent.get(m.id, m) for m in messages if m.id in sent or m.id in keep_ids]


def _split_exchanges(messages: Sequence[Message], without: Collection[str]) -> list[list[Message]]:
    """Return the exchanges of messages, except messages with some ids."""
    bounds = itertools.pairwise([*policy.list_inner_cuts(messages), len(messages)])
    return [[m for m in messages[start:end] if m.id not in without] for start, end in bounds]


def _count_tokens(messages: Iterable[Message]) -> int:
    return sum(m.tokens for m in messages)


def find_first_fitting(sizes: Sequence[int], room: int, before: int) -> int:
    """Return the index of the first log group to send, given the groups' sizes; 0 if all fit `room`.

    The start of the last request (`before`) stays as long as the rest fits. Then half of the room is left free, so
    that the prompt's prefix rarely changes. The newest group is always sent.
    """
    rest = _compute_suffix_sums(sizes)
    if rest[0] <= room:
        return 0
    if 0 < before < len(sizes) and rest[before] <= room:
        return before
    return next((i for i, tokens in enumerate(rest[:-1]) if tokens <= room // 2), len(sizes) - 1)


def select_newest(messages: Sequence[Message], count: int, keep: Sequence[Message]) -> list[Message]:
    """Return the newest `count` messages, more to keep a tool exchange complete, and the prompt."""
    start = max(0, len(messages) - count)
    start = max((c for c in policy.list_safe_cuts(messages) if c <= start), default=0)
    keep_ids = {m.id for m in keep}
    return [m for i, m in enumerate(messages) if i >= start or m.id in keep_ids]


def _compute_suffix_sums(sizes: Sequence[int]) -> list[int]:
    return [*itertools.accumulate(reversed(sizes), initial=0)][::-1]


class OpenedRecord(Struct, frozen=True):
    """Record of a thread's memory, with the leases cleared and the repairs made on opening.

    `failure`: why it could not be written; then a new record has no id.
    """

    record: Record
    stale: tuple[leases.Lease, ...] = ()
    mended: str = ""
    failure: str = ""


async def open_record(
    store: Store, thread: Thread, *, scope: str, timezone: str | None, new_id: str, now: int, read_only: bool
) -> OpenedRecord:
    """Return the thread's record, created as `new_id` if missing, with wrong states repaired.

    `read_only`: nothing is created or repaired.
    """
    owner = memory_store.RecordOwner(thread.resource_id, thread.id if scope == "thread" else None)
    zone = timezone or "UTC"

    def make(db: Database) -> OpenedRecord:
        record = memory_store.get_or_create(db, owner, id=new_id, timezone=zone, now=now)
        if timezone and record.observed_timezone != timezone:
            memory_store.set_timezone(db, record.id, timezone)
        stale = (*leases.clear_expired(db, record.id, now), *leases.clear_dead(db, record.id))
        return OpenedRecord(record, stale, integrity.repair_states(db, record.id, now))

    failure = ""
    if not read_only:
        try:
            return await store.write(make)
        except StoreError as e:
            failure = e.message
    existing = await store.read(memory_store.get_record, owner.lookup_key)
    empty = Record("", owner.lookup_key, scope, thread.id, thread.resource_id, 0, None, None, 0, 0, 0, zone, 0, {})
    return OpenedRecord(existing or empty, failure=failure)


async def load_first_window(store: Store, thread: Thread, record: Record, *, newest: int | None) -> Window:
    """Return the thread's window; with `newest` (nothing is observed), only that many messages."""
    if newest is None:
        return await store.read(load, Window(thread, record))
    messages = await store.read(message_store.list_page, thread.id, limit=newest)
    return Window(thread, record, messages=messages)


async def find_newest_prompt(store: Store, window: Window) -> Message | None:
    """Return the newest prompt, which a turn continued after a crash has in every request."""
    prompt = next((m for m in reversed(window.messages) if m.role == "user"), None)
    if prompt is None and window.cursor >= 0:
        page = await store.read(message_store.list_page, window.thread.id, before=window.cursor + 1, limit=100)
        prompt = next((m for m in reversed(page) if m.role == "user" and m.state == "saved"), None)
    return prompt
