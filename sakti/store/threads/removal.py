"""Delete threads: hidden, with everything kept.

A deleted thread is in no list and no search (a trigger keeps what is still written to it out of the index). Its lines
in a log shared by the workspace stay until it is purged (`purging`). The counts of `contents` are raw SQL: they run
for each thread of a list.
"""

from __future__ import annotations

from msgspec import Struct, to_builtins

from sakti.core.errors import SaktiError, StoreError
from sakti.core.text import counted
from sakti.core.types import Json, Thread
from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.models import ChildRunRow, ThreadRow
from sakti.store.search import reindexing
from sakti.store.threads import threads

_OWN = f"SELECT count(*){reindexing.OWN_LINES} AND g.state = 'active'"
_SHARED = (
    "SELECT count(*) FROM observations o JOIN observation_groups g ON g.id = o.group_id"
    " JOIN observational_memory r ON r.id = g.record_id"
    " WHERE g.thread_id = ? AND r.scope = 'resource' AND g.state = 'active'"
)
PURGED = "purged"  # of a thread's metadata: what it held is going


class Contents(Struct, frozen=True):
    """Contents of a thread.

    `tokens` are those of its messages, `lines` those of its own log, `shared_lines` those about it in a log of the
    whole workspace. `children` are the child threads that are deleted, or were, together with it.
    """

    thread: Thread
    messages: int
    tokens: int
    lines: int
    shared_lines: int
    deleted_at: int | None = None
    children: int = 0

    def in_words(self) -> str:
        """Describe what a deletion hides: `'fix login': 12 messages (3,400 tokens) and 5 observations`."""
        lines = "1 line stays" if self.shared_lines == 1 else f"{self.shared_lines} lines stay"
        shared = f"; {lines} in the log that the workspace shares until the thread is purged"
        children = f", with {counted(self.children, 'child thread')}" if self.children else ""
        return self._own() + children + (shared if self.shared_lines else "")

    def purged_in_words(self) -> str:
        """Describe what a purge removes, including lines of the workspace's log."""
        lines = f"{self.shared_lines} line{'s' * (self.shared_lines != 1)}"
        return self._own() + (f"; {lines} of the log that the workspace shares" if self.shared_lines else "")

    def _own(self) -> str:
        text = f"{self.thread.title or 'untitled'!r}: {self.messages} message{'s' * (self.messages != 1)}"
        return f"{text} ({self.tokens:,} tokens) and {self.lines} observation{'s' * (self.lines != 1)}"

    def as_json(self) -> Json:
        return to_builtins(self)


def state_of(db: Database, thread_id: str) -> tuple[Thread, int | None]:
    """Return a thread and its deletion time (Unix ms). Raises StoreError if it does not exist."""
    thread = threads.get(db, thread_id)
    if thread is None:
        raise StoreError("This thread was removed for good.", code="gone")
    return thread, ThreadRow.select(ThreadRow.deleted_at).where(ThreadRow.id == thread_id).scalar(db)


def contents(db: Database, thread_id: str) -> Contents:
    """Count a thread's contents. Raises StoreError if it does not exist, not even deleted."""
    thread, deleted_at = state_of(db, thread_id)
    messages, tokens = db.execute_sql(threads.SIZE, (thread_id,)).fetchone()
    (own_lines,) = db.execute_sql(_OWN, (thread_id,)).fetchone()
    (shared,) = db.execute_sql(_SHARED, (thread_id,)).fetchone()
    children = _children(db, thread_id, deleted_at)
    return Contents(thread, messages, tokens, own_lines, shared, deleted_at, len(children))


def _children(db: Database, thread_id: str, deleted_at: int | None) -> list[str]:
    """Return the children of a thread that share its state: visible, or deleted together with it."""
    row, run = ThreadRow, ChildRunRow
    children = run.select(run.child_id).where(run.parent_id == thread_id)
    state = row.deleted_at.is_null() if deleted_at is None else row.deleted_at == deleted_at
    return [i for (i,) in row.select(row.id).where(row.id.in_(children), state).tuples().execute(db)]


def delete(db: Database, thread_id: str, now: int) -> Thread:
    """Delete a thread with its children: hide them from lists and search at once.

    `upkeep.reindex` removes their search rows.

    Raises `StoreError` where there is none, `SaktiError` (thread_busy) while a turn runs in it.
    """
    thread, deleted_at = state_of(db, thread_id)
    if deleted_at is not None:
        raise StoreError(f"The thread {thread.title!r} is deleted already.")
    children = _children(db, thread_id, None)
    if any(_is_busy(db, i, now) for i in (thread_id, *children)):
        raise SaktiError(
            "The agent is working in this thread, perhaps in another window: stop it there, then delete the thread.",
            title="Thread in use",
            code="thread_busy",
        )
    for each in (thread_id, *children):
        ThreadRow.update(deleted_at=now).where(ThreadRow.id == each).execute(db)
        reindexing.note(db, each)
    return thread


def _is_busy(db: Database, thread_id: str, now: int) -> bool:
    leases.clear_dead(db, thread_id)
    return any(lease.kind == "turn" for lease in leases.held(db, thread_id, now))


def restore(db: Database, thread_id: str) -> Thread:
    """Restore a deleted thread; search finds it again as its rows come back (`upkeep.reindex`).

    Raises `StoreError` where there is none, or it is not deleted.
    """
    thread, deleted_at = state_of(db, thread_id)
    if deleted_at is None:
        raise StoreError(f"The thread {thread.title!r} is not deleted.")
    if thread.metadata.get(PURGED):
        raise StoreError("This thread is being removed for good: `sakti db purge` completes it.")
    for each in (thread_id, *_children(db, thread_id, deleted_at)):
        ThreadRow.update(deleted_at=None).where(ThreadRow.id == each).execute(db)
        reindexing.note(db, each)
    return thread


def deleted(db: Database, resource_id: str | None = None, *, before: int | None = None) -> list[Contents]:
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
    return [contents(db, i) for (i,) in thread_ids]


def find_deleted(db: Database, resource_id: str, text: str) -> list[Thread]:
    """Return deleted threads of a workspace whose id ends with `text`, or whose title contains it."""
    return [
        c.thread
        for c in deleted(db, resource_id)
        if c.thread.id.endswith(text) or text.lower() in c.thread.title.lower()
    ]
