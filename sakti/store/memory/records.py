"""Store memory records, one per thread or workspace, and the pages of working memory.

`get_record`, `read_revision`, `count_corrections` and `read_working_memory` are raw SQL: every step queries them.
"""

from __future__ import annotations

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.core.types import Json
from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.models import MemoryRecordRow, WorkingMemoryRow
from sakti.store.search import index as search_index
from sakti.store.threads import threads

HOLD_REFLECTION = (
    "hold_reflection_until"  # stored log tokens up to which no reflection starts automatically after an undo
)
CORRECTIONS = "corrections"  # in a record's metadata: number of corrections of its log; in a line's: the corrections
PAUSED = "paused"  # the user paused model calls in the background

_REVISION = (
    "SELECT revision, (SELECT coalesce(max(message_index), -1) FROM messages WHERE thread_id = ?)"
    " FROM observational_memory WHERE id = ?"
)
_NEWEST = "SELECT content, version FROM working_memory WHERE scope = ? AND owner_id = ? ORDER BY version DESC LIMIT 1"


class Record(Struct, frozen=True):
    """Memory of a thread or of a workspace."""

    id: str
    lookup_key: str
    scope: str
    thread_id: str | None
    resource_id: str
    generation_count: int
    last_observed_at: int | None
    last_reflection_at: int | None
    total_tokens_observed: int
    observation_token_count: int
    last_buffered_at_tokens: int
    observed_timezone: str
    revision: int
    metadata: Json

    @property
    def corrections(self) -> int:
        """Return the number of corrections of its log, undos included."""
        return self.metadata.get(CORRECTIONS, 0)


RECORD = rows.Shape(MemoryRecordRow, Record)


def get_record(db: Database, lookup_key: str) -> Record | None:
    return next(iter(RECORD.find(db, lookup_key=lookup_key)), None)


class RecordOwner(Struct, frozen=True):
    """Thread or workspace that owns a memory record; `thread_id` is None for a workspace."""

    resource_id: str
    thread_id: str | None = None

    @property
    def scope(self) -> str:
        return "resource" if self.thread_id is None else "thread"

    @property
    def lookup_key(self) -> str:
        """Return the key of the owner's only record."""
        return f"{self.scope}:{self.resource_id if self.thread_id is None else self.thread_id}"


def get_or_create(db: Database, owner: RecordOwner, *, id: str, timezone: str, now: int) -> Record:
    """Get the record of an owner, or create it as `id`.

    Two processes at once both get the first one's record.
    """
    MemoryRecordRow.insert(
        id=id,
        lookup_key=owner.lookup_key,
        scope=owner.scope,
        thread_id=owner.thread_id,
        resource_id=owner.resource_id,
        observed_timezone=timezone,
        created_at=now,
        updated_at=now,
    ).on_conflict_ignore().execute(db)
    record = get_record(db, owner.lookup_key)
    if record is None:
        raise MemoryFailure("The memory record could not be created.", code="record")
    return record


def set_record_metadata(db: Database, record_id: str, changes: Json) -> None:
    """Merge `changes` into a record's metadata (None removes a key) and increase its revision."""
    row = MemoryRecordRow.select(MemoryRecordRow.metadata).where(MemoryRecordRow.id == record_id).dicts().get(db)
    merged = {k: v for k, v in {**row["metadata"], **changes}.items() if v is not None}
    MemoryRecordRow.update(metadata=merged, revision=MemoryRecordRow.revision + 1).where(
        MemoryRecordRow.id == record_id
    ).execute(db)


def read_revision(db: Database, record_id: str, thread_id: str) -> tuple[int, int]:
    """Return (revision of a record, index of a thread's newest message).

    Equal pairs mean an unchanged window.
    """
    # SQL: each step runs it; building a query takes 80-300 µs
    row = db.execute_sql(_REVISION, (thread_id, record_id)).fetchone()
    return (0, -1) if row is None else (row[0], row[1])


def count_corrections(db: Database, record_id: str) -> int:
    """Return the number of corrections of a record's log, undos included.

    It changes with each correction.
    """
    # SQL: reads JSON inside a column
    row = db.execute_sql(
        f"SELECT json_extract(metadata, '$.{CORRECTIONS}') FROM observational_memory WHERE id = ?", (record_id,)
    ).fetchone()
    return 0 if row is None else row[0] or 0


def set_timezone(db: Database, record_id: str, timezone: str) -> None:
    rows.update(db, MemoryRecordRow, record_id, observed_timezone=timezone)


def set_buffered_at(db: Database, record_id: str, tokens: int, now: int) -> None:
    """Store the pending tokens at which the last background observation began."""
    rows.update(db, MemoryRecordRow, record_id, last_buffered_at_tokens=tokens, last_buffered_at_time=now)


def read_working_memory(db: Database, scope: str, owner_id: str) -> tuple[str, int] | None:
    """Return the newest version of a page and its number."""
    # SQL: each step runs it; building a query takes 80-300 µs
    row = db.execute_sql(_NEWEST, (scope, owner_id)).fetchone()
    return None if row is None else (row[0], row[1])


class PageVersion(Struct, frozen=True):
    """New version of a page of working memory; `owner_id` is a thread's, or the workspace's `resource_id`."""

    id: str
    scope: str
    owner_id: str
    resource_id: str
    content: str
    tokens: int
    actor: str
    now: int


def put_working_memory(db: Database, page: PageVersion, *, expected_version: int) -> int:
    """Add a version and return its number; older versions stay.

    Raises `MemoryFailure` (conflict) when `expected_version` (0: none yet) is no longer the newest.
    """
    current = read_working_memory(db, page.scope, page.owner_id)
    if (current[1] if current else 0) != expected_version:
        raise MemoryFailure("The page was changed meanwhile: read it and try again.", code="conflict", retryable=True)
    WorkingMemoryRow.insert(
        id=page.id,
        scope=page.scope,
        owner_id=page.owner_id,
        version=expected_version + 1,
        content=page.content,
        tokens=page.tokens,
        actor=page.actor,
        created_at=page.now,
    ).execute(db)
    if page.scope == "thread" and threads.is_deleted(db, page.owner_id):
        return expected_version + 1  # search adds it when the thread is restored
    search_index.put(
        db,
        kind="working_memory",
        doc_id=f"{page.scope}:{page.owner_id}",
        resource_id=page.resource_id,
        created_at=page.now,
        text=page.content,
        thread_id=page.owner_id if page.scope == "thread" else None,
    )
    return expected_version + 1
