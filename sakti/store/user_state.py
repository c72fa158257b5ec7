"""Store small user data: prompts, drafts, rules, pane state, mark key, and workspace folders.

Raw SQL: the key is read before the schema of the file is known.
"""

from __future__ import annotations

import itertools
import secrets as randomness
from collections.abc import Sequence

import msgspec
import peewee
from msgspec import Struct

from sakti.core.types import TextPart
from sakti.store import files, rows, secrets
from sakti.store.connection import Connection, Database
from sakti.store.memory.records import read_working_memory
from sakti.store.models import (
    CompactionRow,
    MemoryRecordRow,
    MessageRow,
    ObservationRow,
    PromptRow,
    RuleRow,
    SearchDocRow,
    TaskEventRow,
    TaskRow,
    ThreadRow,
    UiStateRow,
    UnsentRow,
    WorkingMemoryRow,
)
from sakti.store.tasks import graph
from sakti.store.text_registry import mask_for_storage

HISTORY_LIMIT = 5_000
ANSWER = "answer:"  # prefix of a thread's id: owner in `unsent` of the answer that is being written there
NEWEST = 100  # messages compared with unsent texts: a window may end before it clears its draft
UNTOUCHED_MS = 24 * 3_600_000  # after this time an owner's process id may belong to another program

MARK_KEY = "mark_key"  # in ui_state
_READ = f"SELECT value FROM ui_state WHERE key = '{MARK_KEY}'"
_KEY = "workspace:"  # prefix of the root in ui_state
# Data of threads, board and page. Approval rules stay: they are part of the trust in a folder.
_MOVED = (
    ThreadRow,
    MessageRow,
    ObservationRow,
    CompactionRow,
    MemoryRecordRow,
    TaskRow,
    TaskEventRow,
    SearchDocRow,
    PromptRow,
    UnsentRow,
)


def list_prompts(db: Database, resource_id: str, limit: int) -> list[str]:
    """Return the newest `limit` prompts, oldest first."""
    row = PromptRow
    newest = row.select(row.text).where(row.resource_id == resource_id).order_by(row.pk.desc()).limit(limit)
    return [text for (text,) in reversed(newest.tuples().execute(db))]


def add_prompt(db: Database, resource_id: str, text: str, now: int, thread_id: str | None = None) -> None:
    """Add a prompt and its thread to the history; one that repeats the last is not added."""
    row, text = PromptRow, mask_for_storage("prompt_history", "text", text)
    newest = row.select(row.pk, row.text, row.thread_id).where(row.resource_id == resource_id).order_by(row.pk.desc())
    last = rows.fetch_first(db, newest)
    if last and last[1:] == (text, thread_id):
        return
    if last and last[1] == text:
        rows.delete(db, PromptRow, pk=last[0])
    rows.insert(db, PromptRow, resource_id=resource_id, text=text, created_at=now, thread_id=thread_id)
    here = row.resource_id == resource_id
    oldest = row.select(row.pk).where(here).order_by(row.pk.desc()).limit(1).offset(HISTORY_LIMIT)
    row.delete().where(here, row.pk <= oldest).execute(db)


class Unsent(Struct, frozen=True):
    """Draft and queued messages of a window, and its open thread."""

    draft: str
    queued: Sequence[str] = ()
    thread_id: str | None = None


def save_unsent(
    db: Database, resource_id: str, owner: str, unsent: Unsent, now: int, *, is_closing: bool = False
) -> None:
    """Store the unsent texts of `owner`'s window; a window that closes leaves them to the next one."""
    rows.delete(db, UnsentRow, resource_id=resource_id, owner=owner)
    if unsent.draft.strip() or unsent.queued:
        rows.insert(
            db,
            UnsentRow,
            resource_id=resource_id,
            owner="" if is_closing else owner,
            draft=unsent.draft,
            queued=list(unsent.queued),
            thread_id=unsent.thread_id,
            updated_at=now,
        )


def forget_unsent(db: Database, resource_id: str, owner: str) -> None:
    """Remove the draft and the queue of `owner`'s window."""
    rows.delete(db, UnsentRow, resource_id=resource_id, owner=owner)


def append_answer(db: Database, resource_id: str, thread_id: str, piece: str, now: int) -> None:
    """Append to the stored text of the answer that is being written in a thread."""
    owner = f"{ANSWER}{thread_id}"
    piece = mask_for_storage("unsent", "draft", piece)
    rows.insert(
        db, UnsentRow, resource_id=resource_id, owner=owner, draft=piece, queued=[], updated_at=now, thread_id=thread_id
    )


def read_answer(db: Database, resource_id: str, thread_id: str) -> str:
    """Return the stored text of an answer that was not finished."""
    row = UnsentRow
    pieces = row.select(row.draft).where(row.resource_id == resource_id, row.owner == f"{ANSWER}{thread_id}")
    return "".join(text for (text,) in pieces.order_by(row.pk).tuples().execute(db))


def forget_answer(db: Database, resource_id: str, thread_id: str) -> None:
    """Remove the text of an answer that was saved as a message, or given up."""
    rows.delete(db, UnsentRow, resource_id=resource_id, owner=f"{ANSWER}{thread_id}")


def take_unsent(db: Database, resource_id: str, owner: str, now: int) -> tuple[str, list[str]]:
    """Take over the drafts and queued messages of closed windows of this workspace.

    Return (draft, queued messages, oldest first); they belong to `owner` from now on.
    """
    row = UnsentRow
    unsent = list(row.select().where(row.resource_id == resource_id).order_by(row.pk).execute(db))
    abandoned = [r for r in unsent if _is_abandoned(r.owner, now - r.updated_at)]
    drafts: list[str] = []
    queued: list[str] = []
    for one in abandoned:
        rows.delete(db, UnsentRow, pk=one.pk)
        draft, texts = _subtract_texts(one.draft, one.queued, _load_sent_since(db, resource_id, one.updated_at))
        drafts += filter(None, (draft,))
        queued += texts
    draft, threads = "\n\n".join(drafts), {r.thread_id for r in abandoned}
    unsent = Unsent(draft, queued, threads.pop() if len(threads) == 1 else None)
    save_unsent(db, resource_id, owner, unsent, now)
    return draft, queued


def _is_abandoned(owner: str, age: int) -> bool:
    """Return whether a window is closed whose text was last changed `age` ms ago."""
    if owner.startswith(ANSWER):
        return False
    return not owner or age > UNTOUCHED_MS or not files.is_owner_running(owner)


def _subtract_texts(draft: str, queued: Sequence[str], sent: list[str]) -> tuple[str, list[str]]:
    """Return the draft, "" if it was sent, and the queued texts without those that were."""
    unsent: list[str] = []
    for text in queued:
        if text in sent:
            sent.remove(text)
        else:
            unsent.append(text)
    # drafts are stored while they are typed: this may be the beginning of a text that was sent
    words = draft.strip()
    return "" if not words or any(text.startswith(words) for text in sent) else draft, unsent


def _load_sent_since(db: Database, resource_id: str, since: int) -> list[str]:
    """Return the texts of the user's newest messages since a time."""
    row = MessageRow
    here = row.select(row.parts).where(row.resource_id == resource_id, row.role == "user", row.created_at >= since)
    newest = here.order_by(row.created_at.desc()).limit(NEWEST).execute(db)
    return ["\n".join(p.text for p in one.parts if isinstance(p, TextPart)) for one in newest]


def list_rules(db: Database, resource_id: str) -> list[tuple[str, str]]:
    """Return the workspace's saved rules as (rule, decision)."""
    saved = RuleRow.select(RuleRow.rule, RuleRow.decision).where(RuleRow.resource_id == resource_id)
    saved = saved.order_by(RuleRow.created_at, RuleRow.rule)
    return list(saved.tuples().execute(db))


def save_rule(db: Database, resource_id: str, rule: str, decision: str, now: int) -> None:
    RuleRow.insert(resource_id=resource_id, rule=rule, decision=decision, created_at=now).on_conflict(
        conflict_target=[RuleRow.resource_id, RuleRow.rule], preserve=[RuleRow.decision]
    ).execute(db)


def delete_rule(db: Database, resource_id: str, rule: str) -> None:
    rows.delete(db, RuleRow, resource_id=resource_id, rule=rule)


def load_ui_state(db: Database) -> dict[str, str]:
    row = UiStateRow
    return dict(row.select(row.key, row.value).where(row.key != MARK_KEY).tuples().execute(db))


def set_ui_state(db: Database, key: str, value: str) -> None:
    UiStateRow.insert(key=key, value=value).on_conflict(
        conflict_target=[UiStateRow.key], preserve=[UiStateRow.value]
    ).execute(db)


def use_mark_key(db: Database) -> None:
    """Make marks with the database's key, or with a new one if it has none."""
    secrets.use_key(_read_key(db) or randomness.token_bytes(16))


def store_mark_key(db: Database) -> None:
    """Store the key in use, or use the key stored first by another process."""
    if _read_key(db) is None:
        value = mask_for_storage("ui_state", "value", secrets.key().hex())
        # SQL: runs before the schema of the file is known
        db.execute_sql(f"INSERT OR IGNORE INTO ui_state (key, value) VALUES ('{MARK_KEY}', ?)", (value,))
    use_mark_key(db)


def _read_key(db: Database) -> bytes | None:
    try:
        # SQL: runs before the schema of the file is known
        row = db.execute_sql(_READ).fetchone()
        return bytes.fromhex(row[0]) if row else None
    except (peewee.OperationalError, ValueError):  # no such table yet, or no key
        return None


class WorkspaceFolder(Struct, frozen=True):
    """Identity of a workspace's folder; `first_commit` is that of its repository, "" if it is not known."""

    root: str
    name: str
    device: int
    inode: int
    first_commit: str = ""

    def is_same(self, other: WorkspaceFolder) -> bool:
        """Return whether another root may be the same folder under an earlier name."""
        if (self.device, self.inode) == (other.device, other.inode):
            return True
        return bool(self.first_commit) and (self.name, self.first_commit) == (other.name, other.first_commit)


class Holdings(Struct, frozen=True):
    """Number of threads and tasks of a workspace, and whether it has a page."""

    root: str
    threads: int
    tasks: int
    page: bool

    @property
    def is_empty(self) -> bool:
        return not (self.threads or self.tasks or self.page)


def get_folder(db: Connection, root: str) -> WorkspaceFolder | None:
    """Return the folder that a workspace was last opened in."""
    stored = rows.select(db, UiStateRow, ("value",), key=_KEY + root)
    return msgspec.json.decode(stored[0][0], type=WorkspaceFolder) if stored else None


def remember_folder(db: Database, folder: WorkspaceFolder) -> None:
    set_ui_state(db, _KEY + folder.root, msgspec.json.encode(folder).decode())


def find_same_folders(db: Connection, folder: WorkspaceFolder) -> list[Holdings]:
    """Return the other workspaces that may have been this folder, if anything is stored under them."""
    # SQL: a range of keys by their beginning, on a bare connection too
    stored = db.execute_sql("SELECT value FROM ui_state WHERE substr(key, 1, ?) = ?", (len(_KEY), _KEY)).fetchall()
    others = [msgspec.json.decode(value, type=WorkspaceFolder) for (value,) in stored]
    same = [count_holdings(db, other.root) for other in others if other.root != folder.root and folder.is_same(other)]
    return [holding for holding in same if not holding.is_empty]


def count_holdings(db: Connection, root: str) -> Holdings:
    """Count a workspace's data."""
    # SQL: three counts in one statement
    row = db.execute_sql(
        "SELECT (SELECT count(*) FROM threads WHERE resource_id = ?1 AND deleted_at IS NULL),"
        " (SELECT count(*) FROM tasks WHERE resource_id = ?1 AND deleted_at IS NULL),"
        " EXISTS (SELECT 1 FROM working_memory WHERE scope = 'resource' AND owner_id = ?1)",
        (root,),
    ).fetchone()
    return Holdings(root, row[0], row[1], bool(row[2]))


def adopt_workspace(db: Database, old: str, new: str) -> Holdings:
    """Move threads, tasks and page of one workspace to another in one transaction.

    A task whose handle is taken gets another one. If both have a page, the old one's text is added to the newer.
    """
    moved = count_holdings(db, old)
    _free_handles(db, old, new)
    if not rows.select(db, MemoryRecordRow, ("id",), lookup_key=f"resource:{new}"):
        rows.change(db, MemoryRecordRow, {"lookup_key": f"resource:{old}"}, lookup_key=f"resource:{new}")
    _move_page(db, old, new)
    for model in _MOVED:
        rows.change(db, model, {"resource_id": old}, resource_id=new)
    for root in (old, new):
        graph.count_states(db, root)
    rows.delete(db, UiStateRow, key=_KEY + old)
    return moved


def _free_handles(db: Database, old: str, new: str) -> None:
    """Give tasks of `old` a new handle if theirs is taken in `new`."""
    taken, own_handles = (
        {h for (h,) in rows.select(db, TaskRow, ("handle",), resource_id=root)} for root in (new, old)
    )
    for handle in sorted(taken & own_handles):
        free = next(name for n in itertools.count(2) if (name := f"{handle}-{n}") not in taken | own_handles)
        own_handles.add(free)
        rows.change(db, TaskRow, {"resource_id": old, "handle": handle}, handle=free)


def _move_page(db: Database, old: str, new: str) -> None:
    source, target = (read_working_memory(db, "resource", root) for root in (old, new))
    if source is None:
        return
    if target is None:
        rows.change(db, WorkingMemoryRow, {"scope": "resource", "owner_id": old}, owner_id=new)
        rows.change(db, SearchDocRow, {"kind": "working_memory", "doc_id": f"resource:{old}"}, doc_id=f"resource:{new}")
        return
    content = "\n\n".join(filter(None, (target[0].strip(), source[0].strip())))
    page, newest = WorkingMemoryRow, target[1] + source[1]
    here = {"scope": "resource", "owner_id": new}
    ((tokens,),) = rows.select(db, page, ("tokens",), **here, version=target[1])
    is_old_page = (page.scope == "resource") & (page.owner_id == old)
    page.update(owner_id=new, version=page.version + target[1]).where(is_old_page).execute(db)
    ((added,),) = rows.select(db, page, ("tokens",), **here, version=newest)
    rows.change(db, page, {**here, "version": newest}, content=content, tokens=tokens + added)
    rows.delete(db, SearchDocRow, kind="working_memory", doc_id=f"resource:{old}")
    rows.change(db, SearchDocRow, {"kind": "working_memory", "doc_id": f"resource:{new}"}, text=content)
