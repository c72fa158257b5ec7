"""Delete threads, which are only hidden, and single messages, whose text is erased.

A deleted thread is in no list and no search (a trigger keeps what is still written to it out of the index). Its lines
in a log shared by the workspace stay until it is purged (`purging`).

A deleted message leaves a placeholder at its index, so that indexes and observations of its neighbours stay valid. Its
text is removed from the thread, search, exports, the sources of the log, requests, and the prompt history. Lines of the
log that were made of it stay: they are forgotten one by one. Copies made by an undo or a fork are deleted with it.

Raw SQL: `count_contents`, which runs for each thread of a list, and the rows of search that refer to a message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct, structs, to_builtins
from peewee import fn

from sakti.core.errors import SaktiError, StoreError
from sakti.core.text import format_count, quote
from sakti.core.types import Json, MarkerPart, Message, Thread
from sakti.store import archive_file, leases, rows
from sakti.store.connection import Database
from sakti.store.models import (
    ChildRunRow,
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
from sakti.store.search import reindexing
from sakti.store.search.index import find_text_before
from sakti.store.text_registry import mask_for_storage
from sakti.store.threads import lineage, messages, threads

_OWN = f"SELECT count(*){reindexing.OWN_LINES} AND g.state = 'active'"
_SHARED = (
    "SELECT count(*) FROM observations o JOIN observation_groups g ON g.id = o.group_id"
    " JOIN observational_memory r ON r.id = g.record_id"
    " WHERE g.thread_id = ? AND r.scope = 'resource' AND g.state = 'active'"
)
PURGED = "purged"  # in a thread's metadata: its contents are being removed for good

MARK = MarkerPart("deleted", "This message was deleted.")


class Contents(Struct, frozen=True):
    """Contents of a thread.

    `tokens` are those of its messages, `lines` those of its own log, `shared_lines` those about it in a log of the
    whole workspace. `children` and `branches` are the child threads and undone branches that are deleted, or were,
    together with it. `keepers` are the threads that keep copies of its messages.
    """

    thread: Thread
    messages: int
    tokens: int
    lines: int
    shared_lines: int
    deleted_at: int | None = None
    children: int = 0
    branches: int = 0
    keepers: int = 0

    def in_words(self) -> str:
        """Describe the hidden contents: `'fix login': 12 messages (3,400 tokens) and 5 observations`."""
        lines = format_count(self.shared_lines, "line stays", "lines stay")
        shared = f"; {lines} in the log that the workspace shares until the thread is purged"
        parts = [format_count(self.children, "child thread")] if self.children else []
        parts += [format_count(self.branches, "undone branch", "undone branches")] if self.branches else []
        together = f", with {' and '.join(parts)}" if parts else ""
        return self._describe_own() + together + (shared if self.shared_lines else "") + self._describe_keepers()

    def purged_in_words(self) -> str:
        """Describe the contents removed by a purge, including lines of the workspace's log."""
        lines = format_count(self.shared_lines, "line")
        shared = f"; {lines} of the log that the workspace shares" if self.shared_lines else ""
        return self._describe_own() + shared + self._describe_keepers()

    def _describe_keepers(self) -> str:
        others = format_count(self.keepers, "thread")
        return f"; copies of its messages stay in {others} (forked or undone)" if self.keepers else ""

    def _describe_own(self) -> str:
        text = f"{quote(self.thread.title or 'untitled')}: {format_count(self.messages, 'message')}"
        return f"{text} ({self.tokens:,} tokens) and {format_count(self.lines, 'observation')}"

    def as_json(self) -> Json:
        return to_builtins(self)


def get_with_deletion(db: Database, thread_id: str) -> tuple[Thread, int | None]:
    """Return a thread and its deletion time (Unix ms). Raises StoreError if it does not exist."""
    thread = threads.get(db, thread_id)
    if thread is None:
        raise StoreError("This thread was removed for good.", code="gone")
    return thread, ThreadRow.select(ThreadRow.deleted_at).where(ThreadRow.id == thread_id).scalar(db)


def count_contents(db: Database, thread_id: str) -> Contents:
    """Count a thread's contents. Raises StoreError if it does not exist, not even deleted."""
    thread, deleted_at = get_with_deletion(db, thread_id)
    messages, tokens = threads.measure(db, thread_id)
    # SQL: a list runs it for each thread; building a query takes 80-300 µs
    own_lines, shared = db.execute_sql(f"SELECT ({_OWN}), ({_SHARED})", (thread_id, thread_id)).fetchone()
    children, branches = _list_parts(db, thread, deleted_at)
    return Contents(thread, messages, tokens, own_lines, shared, deleted_at, len(children), len(branches))


def preview_removal(db: Database, thread_id: str, going: Collection[str] | None = None) -> Contents:
    """Count a thread's contents, and the threads that keep copies of its messages.

    `going`: the threads that are removed with it, by default the deleted ones. Raises as `count_contents`.
    """
    contents = count_contents(db, thread_id)
    _, branches = _list_parts(db, contents.thread, contents.deleted_at)
    others = [t.id for t in lineage.list_relatives(db, contents.thread) if t.id not in branches]
    others = [i for i in others if not (threads.is_deleted(db, i) if going is None else i in going)]
    return structs.replace(contents, keepers=len(others))


def _list_parts(db: Database, thread: Thread, deleted_at: int | None) -> tuple[list[str], list[str]]:
    """Return the child threads of a thread, and its undone branches, that share its state.

    They are visible, or deleted together with it.
    """
    row, run = ThreadRow, ChildRunRow
    state = row.deleted_at.is_null() if deleted_at is None else row.deleted_at == deleted_at
    branches = [thread.id]
    for each in branches:  # an undone branch may have undone branches
        undone = (row.resource_id == thread.resource_id) & threads.is_undone_branch_of(each)
        branches += [i for (i,) in row.select(row.id).where(undone, state).tuples().execute(db) if i not in branches]
    started = run.select(run.child_id).where(run.parent_id.in_(branches))
    children = row.select(row.id).where(row.id.in_(started), state).tuples().execute(db)
    return [i for (i,) in children], branches[1:]


def delete_thread(db: Database, thread_id: str, now: int) -> Thread:
    """Delete a thread with its children and undone branches: hide them from lists and search at once.

    `upkeep.reindex` removes their search rows.

    Raises `StoreError` if it does not exist, `SaktiError` (thread_busy) while a turn runs in it.
    """
    thread, deleted_at = get_with_deletion(db, thread_id)
    if deleted_at is not None:
        raise StoreError(f"The thread {quote(thread.title)} is already deleted.")
    children, branches = _list_parts(db, thread, None)
    going = [thread_id, *children, *branches]
    _refuse_busy(db, going, now, "thread")
    for each in going:
        rows.update(db, ThreadRow, each, deleted_at=now)
        reindexing.note(db, each)
    return thread


def _refuse_busy(db: Database, thread_ids: Sequence[str], now: int, what: str) -> None:
    """Raise `SaktiError` (thread_busy) while a turn runs in one of the threads; `what` is to be deleted."""
    for thread_id in thread_ids:
        where = "this thread" if thread_id == thread_ids[0] else f"the related thread {thread_id[-8:]}"
        leases.clear_dead(db, thread_id)
        if any(lease.kind == "turn" for lease in leases.list_leases(db, thread_id, now)):
            raise SaktiError(
                f"The agent is working in {where}, perhaps in another window: stop it there, then delete the {what}.",
                title="Thread in use",
                code="thread_busy",
            )


def restore_thread(db: Database, thread_id: str) -> Thread:
    """Restore a deleted thread; search finds it again when `upkeep.reindex` has added its rows.

    Raises `StoreError` if it does not exist or is not deleted.
    """
    thread, deleted_at = get_with_deletion(db, thread_id)
    if deleted_at is None:
        raise StoreError(f"The thread {quote(thread.title)} is not deleted.")
    if thread.metadata.get(PURGED):
        raise StoreError("This thread is being removed for good: `sakti db purge` completes it.")
    children, branches = _list_parts(db, thread, deleted_at)
    for each in (thread_id, *children, *branches):
        rows.update(db, ThreadRow, each, deleted_at=None)
        reindexing.note(db, each)
    return thread


def list_deleted(db: Database, resource_id: str | None = None, *, before: int | None = None) -> list[Contents]:
    """Return the deleted threads (of one workspace), last deleted first, up to `before` (Unix ms).

    A thread comes before its children, which were deleted with it.
    """
    row = ThreadRow
    query = row.select(row.id).where(row.deleted_at.is_null(False))
    if resource_id is not None:
        query = query.where(row.resource_id == resource_id)
    if before is not None:
        query = query.where(row.deleted_at <= before)
    thread_ids = query.order_by(row.deleted_at.desc(), row.pk).tuples().execute(db)
    return [count_contents(db, i) for (i,) in thread_ids]


def find_deleted(db: Database, resource_id: str, text: str) -> list[Thread]:
    """Return deleted threads of a workspace whose id ends with `text`, or whose title contains it."""
    return [
        c.thread
        for c in list_deleted(db, resource_id)
        if c.thread.id.endswith(text) or text.lower() in c.thread.title.lower()
    ]


class Deleted(Struct, frozen=True):
    """Deleted messages of a thread, and their copies; `lines`: log lines made of ranges with them."""

    thread_id: str
    message_ids: tuple[str, ...]
    lines: int
    copies: tuple[Deleted, ...] = ()


def is_message_deleted(message: Message) -> bool:
    return message.state == "withheld" and any(isinstance(p, MarkerPart) and p.kind == MARK.kind for p in message.parts)


def find_with_copies(db: Database, message_id: str) -> list[list[Message]]:
    """Return a message and its copies in other threads, each as a list with its call or result.

    Raises `StoreError` if it does not exist.
    """
    message = messages.get(db, message_id)
    if message is None or is_message_deleted(message):
        raise StoreError(f"There is no message {message_id}.", code="not_found")
    return [_with_tool_counterpart(db, m) for m in (message, *skip_deleted(lineage.find_copies(db, message)))]


def delete_messages(db: Database, message_id: str, now: int) -> Deleted:
    """Delete a message with its copies (`find_with_copies`).

    Raises `StoreError` if it does not exist, `SaktiError` (thread_busy) while a turn runs in one of the threads.
    """
    units = find_with_copies(db, message_id)
    thread_ids = [unit[0].thread_id for unit in units]
    _refuse_busy(db, thread_ids, now, "message")
    for thread_id in thread_ids:
        archive_file.refuse_missing(db, thread_id)
    deleted, *copies = [_delete_unit(db, unit) for unit in units]
    return structs.replace(deleted, copies=tuple(copies))


def _delete_unit(db: Database, unit: Sequence[Message]) -> Deleted:
    thread_id, first, last = unit[0].thread_id, unit[0].index, unit[-1].index
    _unindex(db, unit)
    for one in unit:
        _erase(db, one)
    _drop_summaries(db, thread_id, first, last)
    rows.delete(db, RequestBlockRow, thread_id=thread_id)  # they may quote it
    line, group = ObservationRow, GroupRow
    made_of = (group.thread_id == thread_id) & group.state.in_(("active", "buffered"))
    made_of &= (group.first_index <= last) & (group.last_index >= first)
    remaining = (
        line.select(fn.COUNT(line.pk)).join(group, on=group.id == line.group_id).where(made_of, line.forgotten == 0)
    )
    return Deleted(thread_id, tuple(m.id for m in unit), remaining.scalar(db))


def withhold_turn(db: Database, message_ids: Sequence[str], reason: str) -> None:
    """Remove the text of messages that a guardrail stopped from every place; the reason stays."""
    withheld = messages.get_many(db, message_ids)
    for one in withheld:
        _unindex(db, [one])
        _erase(db, one, MarkerPart("withheld", reason))
    for thread_id in {m.thread_id for m in withheld}:
        indices = [m.index for m in withheld if m.thread_id == thread_id]
        _drop_summaries(db, thread_id, min(indices), max(indices))
        rows.delete(db, RequestBlockRow, thread_id=thread_id)


def forget_prompts(db: Database, resource_id: str, thread_id: str, text: str) -> bool:
    """Remove a typed text from the prompt history, the drafts, and the title made of it.

    Return whether the history had it.
    """
    row, stored = PromptRow, mask_for_storage("prompt_history", "text", text)
    was_there = (
        rows.fetch_first(db, row.select(row.pk).where(row.resource_id == resource_id, row.text == stored)) is not None
    )
    rows.delete(db, PromptRow, resource_id=resource_id, text=stored)
    rows.delete(db, UnsentRow, resource_id=resource_id, draft=mask_for_storage("unsent", "draft", text))
    _untitle(db, thread_id, text)
    return was_there


def _with_tool_counterpart(db: Database, message: Message) -> list[Message]:
    around = messages.list_between(db, message.thread_id, message.index - 1, message.index + 1)
    unit = [message]
    for other in around:
        if message.tool_calls and other.index == message.index + 1 and other.role == "tool":
            unit.append(other)
        elif message.role == "tool" and other.index == message.index - 1 and other.tool_calls:
            unit.insert(0, other)
    return unit


def _erase(db: Database, message: Message, mark: MarkerPart = MARK) -> None:
    shell = message.metadata.get("shell")
    typed = f"!{shell}" if isinstance(shell, str) else message.text
    if message.role == "user" and typed:
        forget_prompts(db, message.resource_id, message.thread_id, typed)
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


def _untitle(db: Database, thread_id: str, text: str) -> None:
    """Clear a thread's provisional title if it comes from a removed message."""
    thread = threads.get(db, thread_id)
    title = "" if thread is None or thread.title_pinned else thread.title.replace(threads.FORK_SUFFIX, "")
    words = title.removesuffix("…").split()
    if words and all(word.rstrip(":") in text for word in words):  # the last word may be cut
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
    next_row = rows.fetch_first(db, row.select(row.id).where(saved).order_by(row.message_index))
    # one that was confirmed late may be what several others were found by
    # SQL: the next message in the index by one join
    behind = db.execute_sql(
        "SELECT doc_id FROM search_docs WHERE thread_id = ? AND kind = 'message' AND position > ? AND prev_pk IN"
        " (SELECT pk FROM messages WHERE thread_id = ? AND message_index BETWEEN ? AND ?)",
        (last.thread_id, last.index, last.thread_id, first.index, last.index),
    ).fetchall()
    before, text = find_text_before(db, first.thread_id, first.index)
    for message_id in {i for (i,) in (*behind, *([next_row] if next_row else []))}:
        search_index.set_previous(db, "message", message_id, text, before)
    for message in unit:
        search_index.remove(db, "message", message.id)


def skip_deleted(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that were not deleted."""
    return [m for m in messages if not is_message_deleted(m)]
