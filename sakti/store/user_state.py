"""Small things of the user's: prompts typed before, rules saved by "always", the state of the panes."""

from __future__ import annotations

from sakti.store.connection import Database

HISTORY_KEPT = 5_000


def history(db: Database, resource_id: str, limit: int) -> list[str]:
    """The newest `limit` prompts, oldest first."""
    rows = db.execute_sql(
        "SELECT text FROM prompt_history WHERE resource_id = ? ORDER BY pk DESC LIMIT ?", (resource_id, limit)
    ).fetchall()
    return [text for (text,) in reversed(rows)]


def add_history(db: Database, resource_id: str, text: str, now: int) -> None:
    """Remember a prompt; one that repeats the last is not kept twice."""
    last = history(db, resource_id, 1)
    if last == [text]:
        return
    db.execute_sql(
        "INSERT INTO prompt_history (resource_id, text, created_at) VALUES (?, ?, ?)", (resource_id, text, now)
    )
    db.execute_sql(
        "DELETE FROM prompt_history WHERE resource_id = ?1 AND pk <="
        " (SELECT pk FROM prompt_history WHERE resource_id = ?1 ORDER BY pk DESC LIMIT 1 OFFSET ?2)",
        (resource_id, HISTORY_KEPT),
    )


def rules(db: Database, resource_id: str) -> list[tuple[str, str]]:
    """(rule, decision) pairs of the workspace."""
    return db.execute_sql("SELECT rule, decision FROM approval_rules WHERE resource_id = ?", (resource_id,)).fetchall()


def save_rule(db: Database, resource_id: str, rule: str, decision: str, now: int) -> None:
    db.execute_sql(
        "INSERT INTO approval_rules (resource_id, rule, decision, created_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (resource_id, rule) DO UPDATE SET decision = excluded.decision",
        (resource_id, rule, decision, now),
    )


def ui_state(db: Database) -> dict[str, str]:
    return dict(db.execute_sql("SELECT key, value FROM ui_state").fetchall())


def set_ui_state(db: Database, key: str, value: str) -> None:
    db.execute_sql(
        "INSERT INTO ui_state (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
