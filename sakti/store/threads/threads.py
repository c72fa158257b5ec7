"""Store threads of a workspace.

`get`, `is_deleted`, `rename` and `update_metadata` are raw SQL: every turn and every commit of memory runs them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from msgspec import structs
from peewee import Expression, fn

from sakti.core.types import Json, RunState, Thread
from sakti.store import files, rows
from sakti.store.connection import Database
from sakti.store.models import ChildRunRow, LeaseRow, MessageRow, TaskRow, ThreadRow
from sakti.store.secrets import mask_secrets, mask_value
from sakti.store.text_registry import mask_for_storage

TITLE_LIMIT = 60
LEFT_OUT = "left_out"  # in a thread's metadata: pieces that are not sent again, and the provider that refused each
HOLD = (
    "hold_until"  # in a thread's metadata: pending tokens up to which nothing is observed automatically after an undo
)
HOLD_LIMITED = "hold_limited"  # … and whether requests contain only the newest messages until then

# In a thread's metadata: texts that stay in requests, each with the index of the first message that contains it (-1:
# none); a plan also has the epic that ends it when it is closed.
PINNED_PLAN, PINNED_GOAL = "pinned_plan", "pinned_goal"
FORK_SUFFIX = " (fork)"  # of the title of a fork
UNDO_OF = "undo_of"  # in the metadata of a thread that an undo made: the id of the thread with the undone turns
UNDONE = "undone"  # in a thread's metadata: when turns of it were undone, and the id of the thread that continues it
_WENT_TO = fn.json_extract(ThreadRow.metadata, f"$.{UNDONE}.went_to")
_UNCHANGED = fn.coalesce(ThreadRow.updated_at <= fn.json_extract(ThreadRow.metadata, f"$.{UNDONE}.at"), 0)


def create(db: Database, thread: Thread) -> Thread:
    """Store a new thread and return it as stored, secrets masked."""
    title = mask_for_storage("threads", "title", thread.title)
    stored = structs.replace(thread, title=title, metadata=mask_value(thread.metadata))
    rows.insert(db, ThreadRow, **THREAD.values(stored))
    return stored


THREAD = rows.Shape(ThreadRow, Thread)


def get(db: Database, thread_id: str) -> Thread | None:
    return next(iter(THREAD.find(db, id=thread_id)), None)


def find(db: Database, resource_id: str | None, text: str) -> list[Thread]:
    """Return threads whose id begins or ends with `text`, or whose title contains it, equal titles first.

    Of all workspaces if `resource_id` is None.
    """
    row = ThreadRow
    condition = (
        rows.make_prefix_condition(row.id, text)
        | rows.make_suffix_condition(row.id, text)
        | rows.make_substring_condition(row.title, text)
    )
    condition &= row.deleted_at.is_null()
    if resource_id is not None:
        condition &= row.resource_id == resource_id
    order = (fn.lower(row.title) == text.lower()).desc(), row.updated_at.desc()
    return list(THREAD.select().where(condition).order_by(*order).limit(20).execute(db))


def list_recent(
    db: Database, resource_id: str | None, limit: int = 50, *, origin: str = "", continued: bool = False
) -> list[Thread]:
    """Return the newest threads of a workspace, of all if None, with at least one message.

    `origin`: only those imported from that program; `continued`: without those that were only imported.

    Undone branches are left out: another thread continues them, and `/redo` or their id opens them. So are children,
    which are listed under their parents.
    """
    newest = ThreadRow.updated_at.desc(), ThreadRow.pk.desc()
    here = ThreadRow.deleted_at.is_null() & ThreadRow.parent_id.is_null() & ~_is_undone_branch()
    if resource_id is not None:
        here &= ThreadRow.resource_id == resource_id
    if origin:
        here &= fn.json_extract(ThreadRow.metadata, "$.origin.program") == origin
    if continued:
        here &= has_own_messages()
    query = THREAD.select().where(here).order_by(*newest).limit(limit)
    messages = MessageRow.select(MessageRow.pk).where(MessageRow.thread_id == ThreadRow.id)
    return list(query.where(fn.EXISTS(messages)).execute(db))


def has_own_messages() -> Expression:
    """Match threads that were not imported, or were continued here after that."""
    began_here = fn.json_extract(ThreadRow.metadata, "$.origin.program").is_null()
    not_imported = fn.json_extract(MessageRow.metadata, "$.imported").is_null()
    added = MessageRow.select(MessageRow.pk).where(MessageRow.thread_id == ThreadRow.id, not_imported)
    return began_here | fn.EXISTS(added)


def list_undone_branches(db: Database, resource_id: str | None) -> dict[str, list[Thread]]:
    """Return undone branches by the listed thread that continues them, the newest first."""
    condition = ThreadRow.deleted_at.is_null() & _is_undone_branch()
    if resource_id is not None:
        condition &= ThreadRow.resource_id == resource_id
    branches = {t.id: t for t in THREAD.select().where(condition).order_by(ThreadRow.updated_at.desc()).execute(db)}
    out: dict[str, list[Thread]] = {}
    for branch in branches.values():
        successor, seen = find_successor(branch), {branch.id}
        while successor in branches and successor not in seen:  # undone again
            seen.add(successor)
            successor = find_successor(branches[successor])
        out.setdefault(successor, []).append(branch)
    return out


def _is_undone_branch() -> Expression:
    """Match threads that were undone, are unchanged since, and are continued by a listed thread."""
    successor = ThreadRow.alias()
    listed = successor.select(successor.pk).where(successor.id == _WENT_TO, successor.deleted_at.is_null())
    messages = MessageRow.select(MessageRow.pk).where(MessageRow.thread_id == _WENT_TO)
    return _UNCHANGED & fn.EXISTS(listed) & fn.EXISTS(messages)


def is_undone_branch_of(successor: str) -> Expression:
    """Match threads that were undone, are unchanged since, and are continued by `successor`."""
    return _UNCHANGED & (_WENT_TO == successor)  # noqa: SIM300


def is_deleted(db: Database, thread_id: str) -> bool:
    return any(deleted_at is not None for (deleted_at,) in rows.select(db, ThreadRow, ("deleted_at",), id=thread_id))


def touch(db: Database, thread_id: str, now: int) -> None:
    rows.update(db, ThreadRow, thread_id, updated_at=now)


def rename(db: Database, thread_id: str, title: str, now: int, *, by_user: bool) -> Thread | None:
    """Rename the thread; only the user changes a title that the user chose."""
    unpinned = {} if by_user else {"title_pinned": False}
    new = mask_for_storage("threads", "title", title)
    rows.change(db, ThreadRow, {"id": thread_id, **unpinned}, title=new, title_pinned=by_user, updated_at=now)
    return get(db, thread_id)


def update_metadata(db: Database, thread_id: str, changes: Json) -> None:
    """Merge `changes` into the thread's metadata; a value of None removes its key."""
    metadata = _load_metadata(db, thread_id)
    if metadata is None:
        return
    merged = {k: v for k, v in {**metadata, **changes}.items() if v is not None}
    rows.update(db, ThreadRow, thread_id, metadata=merged)


def _load_metadata(db: Database, thread_id: str) -> Json | None:
    stored = rows.select(db, ThreadRow, ("metadata",), id=thread_id)
    return json.loads(stored[0][0]) if stored else None


def read_pinned_texts(db: Database, thread: Thread, cursor: int) -> dict[str, str]:
    """Return the plan and the goal, without one whose message is still sent, or that has ended.

    `cursor`: the index of the last message that is no longer sent.
    """
    stored = _load_metadata(db, thread.id)
    metadata = thread.metadata if stored is None else stored
    entries: dict[str, Json] = {"plan": metadata.get(PINNED_PLAN) or {}, "goal": metadata.get(PINNED_GOAL) or {}}
    return {
        name: entry["text"]
        for name, entry in entries.items()
        if entry and entry["index"] <= cursor and not ("epic" in entry and _is_closed(db, entry["epic"]))
    }


def _is_closed(db: Database, task_id: str) -> bool:
    states = rows.select(db, TaskRow, ("status", "deleted_at"), id=task_id)
    return not any(status != "closed" and deleted_at is None for status, deleted_at in states)


def add_left_out(db: Database, thread_id: str, marks: dict[str, str]) -> None:
    """Add pieces of the thread's messages that are not sent again (see `providers.omissions`)."""
    update_metadata(db, thread_id, {LEFT_OUT: {**read_left_out(db, thread_id), **marks}})


def read_left_out(db: Database, thread_id: str) -> dict[str, str]:
    """Return the pieces of the thread's messages that are not sent again."""
    thread = get(db, thread_id)
    return dict(thread.metadata.get(LEFT_OUT, {})) if thread is not None else {}


def mark_undone(db: Database, thread_id: str, went_to: str, now: int) -> None:
    """Mark a thread that the thread `went_to` continues after an undo; "": unmark."""
    update_metadata(db, thread_id, {UNDONE: {"at": now, "went_to": went_to} if went_to else None})


def unmark_branches(db: Database, successor: Thread, now: int) -> None:
    """Make the threads that `successor` continued ordinary threads."""
    row = ThreadRow
    branches = row.select(row.id).where(row.resource_id == successor.resource_id, _WENT_TO == successor.id)  # noqa: SIM300
    for (branch,) in list(branches.tuples().execute(db)):
        mark_undone(db, branch, "", now)


def find_successor(thread: Thread) -> str:
    """Return the id of the thread that continues an undone one; "" if it was not undone."""
    return str(thread.metadata[UNDONE]["went_to"]) if is_undone(thread.metadata, thread.updated_at) else ""


def find_redone_origin(db: Database, thread: Thread) -> str:
    """Return the id of the thread whose undo led to `thread` and was redone; empty without one."""
    origin = get(db, str(thread.metadata.get(UNDO_OF, "")))
    if origin is None or origin.metadata.get(UNDONE) or is_deleted(db, origin.id):
        return ""
    return origin.id if get(db, thread.id) is None or is_deleted(db, thread.id) else ""


def is_undone(metadata: Json, updated_at: int) -> bool:
    """Return whether turns of a thread were undone, and no message was added since."""
    mark = metadata.get(UNDONE)
    return bool(mark) and updated_at <= mark["at"]


def set_mode(db: Database, thread_id: str, mode: str) -> None:
    rows.update(db, ThreadRow, thread_id, mode=mode)


# run for each thread of a list
_SIZE = "SELECT count(*), coalesce(sum(token_count), 0) FROM messages WHERE thread_id = ?"
_PREVIEW = (
    "SELECT substr(sakti_text(raw_content, parts), 1, 200) FROM messages WHERE thread_id = ?"
    " AND role IN ('user', 'assistant') ORDER BY message_index DESC LIMIT 1"
)


Summary: TypeAlias = "tuple[Thread, str, int, int, tuple[Summary, ...], tuple[Summary, ...], RunState | None]"


def list_summaries(db: Database, resource_id: str | None, limit: int, origin: str = "") -> list[Summary]:
    """Return recent threads with last words, counts of messages and tokens, undone branches, and children.

    The last value is the state of a child.
    """
    branches = list_undone_branches(db, resource_id)
    newest = list_recent(db, resource_id, limit, origin=origin)
    return [_make_summary(db, thread, branches.get(thread.id, ())) for thread in newest]


def measure(db: Database, thread_id: str) -> tuple[int, int]:
    """Return the number of a thread's messages, and their tokens."""
    # SQL: a list runs it for each thread; building a query takes 80-300 µs
    return db.execute_sql(_SIZE, (thread_id,)).fetchone()


def _make_summary(db: Database, thread: Thread, branches: Sequence[Thread] = ()) -> Summary:
    count, tokens = measure(db, thread.id)
    # SQL: calls a function of this program on packed texts
    (preview,) = db.execute_sql(_PREVIEW, (thread.id,)).fetchone() or ("",)
    undone = tuple(_make_summary(db, b) for b in branches)
    children = () if thread.parent_id else tuple(_make_summary(db, c) for c in list_children(db, thread.id))
    state = _load_child_state(db, thread) if thread.parent_id else None
    return thread, mask_secrets(preview), count, tokens, undone, children, state


def _load_child_state(db: Database, thread: Thread) -> RunState | None:
    """Return the state of a child; one that a crash left running is interrupted when its parent is opened."""
    row = ChildRunRow
    state: RunState | None = row.select(row.state).where(row.child_id == thread.id).scalar(db)
    if state != "running":
        return state
    ids = thread.id, thread.parent_id or ""
    owners = LeaseRow.select(LeaseRow.owner).where(LeaseRow.record_id.in_(ids), LeaseRow.kind == "turn").tuples()
    return "running" if any(files.is_owner_running(owner) for (owner,) in owners.execute(db)) else "interrupted"


def list_children(db: Database, thread_id: str) -> list[Thread]:
    """Return the children of a thread, oldest first."""
    row, run = ThreadRow, ChildRunRow
    child_ids = [i for (i,) in run.select(run.child_id).where(run.parent_id == thread_id).tuples().execute(db)]
    here = row.id.in_(child_ids) & row.deleted_at.is_null()
    return list(THREAD.select().where(here).order_by(row.pk).execute(db)) if child_ids else []
