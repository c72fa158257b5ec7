"""Search over tasks alone: an index of their own, so that neither a million messages nor a word that every task has
makes it slow.

Words that all stand in a task come first, then tasks with some of them. Of a word that more than `COMMON` tasks have
only the newest `COMMON` are ranked; rarer words are always looked up whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from sakti.store import search_index
from sakti.store.connection import Database

COMMON = 1_000


def put(db: Database, pk: int, title: str, text: str) -> None:
    """Index a task, replacing what was indexed for it."""
    whole = f"{title}\n{text}"[: search_index.TEXT_LIMIT]
    db.execute_sql(
        "INSERT OR REPLACE INTO task_words (rowid, title, body, idents) VALUES (?, ?, ?, ?)",
        (pk, title, text[: search_index.TEXT_LIMIT], search_index.identifiers(whole)),
    )


def search(db: Database, resource_id: str, text: str, limit: int) -> list[str]:
    """The ids of the best tasks, best first. Whatever is typed is a query, never an error."""
    from sakti.store import search as search_store  # costs a program that lists tasks a tenth of its time

    words = search_store.terms(search_store.parse_query(text).text)
    quoted = ['"' + w.replace('"', '""') + '"' for w in words]
    if not quoted:
        return []
    found = _ranked(db, resource_id, " AND ".join(quoted), limit)
    if len(found) < limit and len(quoted) > 1:
        rare = [q for q in quoted if _newest(db, q) is None]
        found += _ranked(db, resource_id, " OR ".join(rare or quoted), limit)
    if not found:
        scope = search_store.Scope(resource_id, kinds=("task",))
        found = [h.id for h in search_store.search(db, text, scope, limit=limit).hits]
    return list(dict.fromkeys(found))[:limit]


def _newest(db: Database, match: str) -> int | None:
    """The row from which on `COMMON` matches are; None where there are no more than that."""
    row = db.execute_sql(
        "SELECT rowid FROM task_words WHERE task_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?", (match, COMMON)
    ).fetchone()
    return None if row is None else row[0]


def _ranked(db: Database, resource_id: str, match: str, limit: int) -> list[str]:
    newest = _newest(db, match) or 0
    rows: Sequence[tuple[str]] = db.execute_sql(
        "SELECT t.id FROM (SELECT rowid AS pk, bm25(task_words, 3.0, 1.0, 0.5) AS score FROM task_words"
        " WHERE task_words MATCH ? AND rowid >= ?) w JOIN tasks t ON t.pk = w.pk"
        " WHERE t.resource_id = ? AND t.deleted_at IS NULL ORDER BY w.score, t.status = 'closed', t.pk DESC LIMIT ?",
        (match, newest, resource_id, limit),
    ).fetchall()
    return [r[0] for r in rows]
