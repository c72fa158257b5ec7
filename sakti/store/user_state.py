"""Small things of the user: prompts typed before and not sent yet, rules saved by "always", the state of the panes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sakti.store import leases
from sakti.store.connection import Database
from sakti.store.text_registry import entering

HISTORY_KEPT = 5_000
UNTOUCHED_MS = 24 * 3_600_000  # after this an owner's process id may belong to another program


def history(db: Database, resource_id: str, limit: int) -> list[str]:
    """The newest `limit` prompts, oldest first."""
    rows = db.execute_sql(
        "SELECT text FROM prompt_history WHERE resource_id = ? ORDER BY pk DESC LIMIT ?", (resource_id, limit)
    ).fetchall()
    return [text for (text,) in reversed(rows)]


def add_history(db: Database, resource_id: str, text: str, now: int, thread_id: str | None = None) -> None:
    """Remember a prompt and the thread in which it was typed; one that repeats the last is not kept twice."""
    last = db.execute_sql(
        "SELECT text, thread_id FROM prompt_history WHERE resource_id = ? ORDER BY pk DESC LIMIT 1", (resource_id,)
    ).fetchone()
    if last == (text, thread_id):
        return
    if last and last[0] == text:
        db.execute_sql(
            "DELETE FROM prompt_history WHERE pk = (SELECT max(pk) FROM prompt_history WHERE resource_id = ?)",
            (resource_id,),
        )
    db.execute_sql(
        "INSERT INTO prompt_history (resource_id, text, created_at, thread_id) VALUES (?, ?, ?, ?)",
        (resource_id, entering("prompt_history", "text", text), now, thread_id),
    )
    db.execute_sql(
        "DELETE FROM prompt_history WHERE resource_id = ?1 AND pk <="
        " (SELECT pk FROM prompt_history WHERE resource_id = ?1 ORDER BY pk DESC LIMIT 1 OFFSET ?2)",
        (resource_id, HISTORY_KEPT),
    )


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
    """What `owner`'s window holds that was not sent, in place of what it held before, and the thread that is open in
    it; `left`: the window closes."""
    db.execute_sql("DELETE FROM unsent WHERE resource_id = ? AND owner = ?", (resource_id, owner))
    if draft.strip() or queued:
        db.execute_sql(
            "INSERT INTO unsent (resource_id, owner, draft, queued, updated_at, thread_id) VALUES (?, ?, ?, ?, ?, ?)",
            (
                resource_id,
                "" if left else owner,
                entering("unsent", "draft", draft),
                json.dumps([entering("unsent", "queued", text) for text in queued]),
                now,
                thread_id,
            ),
        )


def take_unsent(db: Database, resource_id: str, owner: str, now: int) -> tuple[str, list[str]]:
    """What windows of this workspace that are gone had not sent: (draft, queued messages, oldest first). It is
    `owner`'s from now on."""
    rows = db.execute_sql(
        "SELECT pk, owner, draft, queued, updated_at, thread_id FROM unsent WHERE resource_id = ? ORDER BY pk",
        (resource_id,),
    ).fetchall()
    gone = [r for r in rows if not r[1] or now - r[4] > UNTOUCHED_MS or not leases.alive(r[1])]
    for pk, *_ in gone:
        db.execute_sql("DELETE FROM unsent WHERE pk = ?", (pk,))
    draft = "\n\n".join(r[2] for r in gone if r[2].strip())
    queued: list[str] = [text for r in gone for text in json.loads(r[3])]
    threads = {r[5] for r in gone}
    keep_unsent(db, resource_id, owner, draft, queued, now, thread_id=threads.pop() if len(threads) == 1 else None)
    return draft, queued


def rules(db: Database, resource_id: str) -> list[tuple[str, str]]:
    """(rule, decision) pairs of the workspace."""
    return db.execute_sql("SELECT rule, decision FROM approval_rules WHERE resource_id = ?", (resource_id,)).fetchall()


def save_rule(db: Database, resource_id: str, rule: str, decision: str, now: int) -> None:
    db.execute_sql(
        "INSERT INTO approval_rules (resource_id, rule, decision, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (resource_id, rule) DO UPDATE SET decision = excluded.decision",
        (resource_id, entering("approval_rules", "rule", rule), decision, now),
    )


def ui_state(db: Database) -> dict[str, str]:
    return dict(db.execute_sql("SELECT key, value FROM ui_state").fetchall())


def set_ui_state(db: Database, key: str, value: str) -> None:
    db.execute_sql(
        "INSERT INTO ui_state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, entering("ui_state", "value", value)),
    )
