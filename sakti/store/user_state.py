"""Store small user data: prompts, unsent drafts, rules, state of the panes, the key of secret marks.

Raw SQL: the key is read before it is known which schema the file has.
"""

from __future__ import annotations

import secrets as randomness
from collections.abc import Sequence

import peewee

from sakti.core.types import TextPart
from sakti.store import leases, rows, secrets
from sakti.store.connection import Database
from sakti.store.models import MessageRow, PromptRow, RuleRow, UiStateRow, UnsentRow
from sakti.store.text_registry import entering

HISTORY_KEPT = 5_000
ANSWER = "answer:"  # before a thread's id, the owner in `unsent` of the answer that is being written there
NEWEST = 100  # messages that may be what was not yet forgotten as unsent
UNTOUCHED_MS = 24 * 3_600_000  # after this an owner's process id may belong to another program


def history(db: Database, resource_id: str, limit: int) -> list[str]:
    """Return the newest `limit` prompts, oldest first."""
    row = PromptRow
    newest = row.select(row.text).where(row.resource_id == resource_id).order_by(row.pk.desc()).limit(limit)
    return [text for (text,) in reversed(newest.tuples().execute(db))]


def add_history(db: Database, resource_id: str, text: str, now: int, thread_id: str | None = None) -> None:
    """Add a prompt and its thread to the history; one that repeats the last is not added."""
    row, text = PromptRow, entering("prompt_history", "text", text)
    newest = row.select(row.pk, row.text, row.thread_id).where(row.resource_id == resource_id).order_by(row.pk.desc())
    last = rows.first(db, newest)
    if last and last[1:] == (text, thread_id):
        return
    if last and last[1] == text:
        rows.delete(db, PromptRow, pk=last[0])
    rows.insert(db, PromptRow, resource_id=resource_id, text=text, created_at=now, thread_id=thread_id)
    here = row.resource_id == resource_id
    oldest = row.select(row.pk).where(here).order_by(row.pk.desc()).limit(1).offset(HISTORY_KEPT)
    row.delete().where(here, row.pk <= oldest).execute(db)


def keep_unsent(
    db: Database,
    resource_id: str,
    owner: str,
    draft: str,
    queued: Sequence[str],
    now: int,
    *,
    left: bool = False,
    thread_id: str | None = None,
) -> None:
    """Persist the draft and queue of `owner`'s window and its open thread; `left`: the window closes."""
    rows.delete(db, UnsentRow, resource_id=resource_id, owner=owner)
    if draft.strip() or queued:
        holder = "" if left else owner
        held = {"draft": draft, "queued": list(queued), "updated_at": now, "thread_id": thread_id}
        rows.insert(db, UnsentRow, resource_id=resource_id, owner=holder, **held)


def forget_unsent(db: Database, resource_id: str, owner: str) -> None:
    """Remove the draft and the queue of `owner`'s window."""
    rows.delete(db, UnsentRow, resource_id=resource_id, owner=owner)


def keep_answer_piece(db: Database, resource_id: str, thread_id: str, piece: str, now: int) -> None:
    """Append to the stored text of the answer that is being written in a thread."""
    owner = f"{ANSWER}{thread_id}"
    piece = entering("unsent", "draft", piece)
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
    unsent = [r for r in unsent if not r.owner.startswith(ANSWER)]
    gone = [r for r in unsent if not r.owner or now - r.updated_at > UNTOUCHED_MS or not leases.alive(r.owner)]
    drafts: list[str] = []
    queued: list[str] = []
    for one in gone:
        rows.delete(db, UnsentRow, pk=one.pk)
        sent = _sent_since(db, resource_id, one.updated_at)
        for text in one.queued:
            if text in sent:
                sent.remove(text)
            else:
                queued.append(text)
        # A draft is kept while it is typed: it may be the beginning of what was sent.
        if one.draft.strip() and not any(text.startswith(one.draft.strip()) for text in sent):
            drafts.append(one.draft)
    draft, threads = "\n\n".join(drafts), {r.thread_id for r in gone}
    keep_unsent(db, resource_id, owner, draft, queued, now, thread_id=threads.pop() if len(threads) == 1 else None)
    return draft, queued


def _sent_since(db: Database, resource_id: str, since: int) -> list[str]:
    """Return the texts of the user's messages since a time: a window may end before it clears its draft."""
    row = MessageRow
    here = row.select(row.parts).where(row.resource_id == resource_id, row.role == "user", row.created_at >= since)
    newest = here.order_by(row.created_at.desc()).limit(NEWEST).execute(db)
    return ["\n".join(p.text for p in one.parts if isinstance(p, TextPart)) for one in newest]


def rules(db: Database, resource_id: str) -> list[tuple[str, str]]:
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


def ui_state(db: Database) -> dict[str, str]:
    row = UiStateRow
    return dict(row.select(row.key, row.value).where(row.key != MARK_KEY).tuples().execute(db))


def set_ui_state(db: Database, key: str, value: str) -> None:
    UiStateRow.insert(key=key, value=value).on_conflict(
        conflict_target=[UiStateRow.key], preserve=[UiStateRow.value]
    ).execute(db)


MARK_KEY = "mark_key"  # in ui_state
_READ = f"SELECT value FROM ui_state WHERE key = '{MARK_KEY}'"


def use_mark_key(db: Database) -> None:
    """Make marks with the database's key, or with a new one if it has none."""
    secrets.use_key(_read_key(db) or randomness.token_bytes(16))


def keep_mark_key(db: Database) -> None:
    """Store the key in use, and go by the one that another process stored first."""
    if _read_key(db) is None:
        value = entering("ui_state", "value", secrets.key().hex())
        db.execute_sql(f"INSERT OR IGNORE INTO ui_state (key, value) VALUES ('{MARK_KEY}', ?)", (value,))
    use_mark_key(db)


def _read_key(db: Database) -> bytes | None:
    try:
        row = db.execute_sql(_READ).fetchone()
        return bytes.fromhex(row[0]) if row else None
    except (peewee.OperationalError, ValueError):  # no such table yet, or no key
        return None
