"""Search tasks with an index for tasks alone.

Neither a million messages nor a word that every task has makes it slow. Tasks with all words come first, then tasks
where they are prefixes, then tasks with some of them; if nothing is found, the general search with its typing
corrections runs. Of a word that more than `COMMON` tasks have only the newest `COMMON` are ranked; rarer words are
always looked up whole.

Raw SQL: MATCH and bm25, without peewee.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sakti.core.lazy import lazy_imports
from sakti.store.connection import Connection
from sakti.store.search import index as search_index
from sakti.store.search import query as search_query
from sakti.store.text_registry import entering

with lazy_imports:
    from sakti.store.search import search as text_search

COMMON = 1_000
COMMON_WORDS = 4  # of a query that has no other words


def put(db: Connection, task_id: str, title: str, text: str) -> None:
    """Index a task, secrets masked, replacing its former entry."""
    title = entering("task_words", "title", title)
    body = entering("task_words", "body", text[: search_index.TEXT_LIMIT])
    # SQL: a row of an FTS5 index
    db.execute_sql(
        "INSERT OR REPLACE INTO task_words (rowid, title, body, idents) SELECT pk, ?, ?, ? FROM tasks WHERE id = ?",
        (title, body, search_index.identifiers(f"{title}\n{body}"), task_id),
    )


def search(db: Connection, resource_id: str, text: str, limit: int) -> list[str]:
    """Return the ids of the best tasks, best first; any input is a valid query."""
    query = search_query.parse_query(text, partial(_is_said, db))
    words = _words(query.text)
    quoted_words = [*map(_quote, (*query.phrases, *words[: search_query.MAX_TERMS])), *map(_beginning, query.prefixes)]
    without = "".join(f" NOT {_quote(e)}" for e in query.excluded)
    hits: list[str] = []

    def add(parts: Sequence[str], glue: str) -> None:
        if parts and len(hits) < limit:
            match = f"({glue.join(parts)}){without}"
            hits.extend(i for i in _rank(db, resource_id, match, limit) if i not in hits)

    add(quoted_words, " AND ")
    if 0 < len(words) <= 4 and all(len(w) >= 3 for w in words):
        add([*map(_quote, query.phrases), *map(_beginning, (*words, *query.prefixes))], " AND ")
    some = [*quoted_words, *map(_quote, search_query.terms(query.text))]
    if len(set(some)) > 1:
        add([q for q in dict.fromkeys(some) if _newest(db, q) is None] or some[:COMMON_WORDS], " OR ")
    if not hits and not _is_one_letter(text.strip()):
        scope = text_search.Scope(resource_id, kinds=("task",))
        hits = [h.id for h in text_search.search(db, text, scope, limit=limit).hits]
    return hits[:limit]


def _words(text: str) -> list[str]:
    """Different words of a query in lower case, without stop words if there are others."""
    plain = [w.lower() for w in search_query.WORD.findall(text[: search_query.MAX_TEXT])]
    return list(dict.fromkeys(w for w in plain if w not in search_query.STOP_WORDS)) or list(dict.fromkeys(plain))


def _is_one_letter(text: str) -> bool:
    """Return whether a query is one ASCII letter or digit, which is in nearly every task."""
    return len(text) == 1 and text.isalnum() and text.isascii()


def _quote(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _beginning(word: str) -> str:
    return f"{_quote(word)} *"


def _is_said(db: Connection, phrase: str) -> bool:
    sql = "SELECT 1 FROM task_words WHERE task_words MATCH ? LIMIT 1"
    # SQL: FTS5, for which peewee has no operator
    return db.execute_sql(sql, (_quote(phrase),)).fetchone() is not None


def _newest(db: Connection, match: str) -> int | None:
    """Return the row from which `COMMON` matches follow; None if there are not more."""
    # SQL: FTS5, for which peewee has no operator
    row = db.execute_sql(
        "SELECT rowid FROM task_words WHERE task_words MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?", (match, COMMON)
    ).fetchone()
    return None if row is None else row[0]


def _rank(db: Connection, resource_id: str, match: str, limit: int) -> list[str]:
    newest = _newest(db, match) or 0
    # SQL: FTS5, for which peewee has no operator
    rows: Sequence[tuple[str]] = db.execute_sql(
        "SELECT t.id FROM (SELECT rowid AS pk, bm25(task_words, 3.0, 1.0, 0.5) AS score FROM task_words"
        " WHERE task_words MATCH ? AND rowid >= ?) w JOIN tasks t ON t.pk = w.pk"
        " WHERE t.resource_id = ? AND t.deleted_at IS NULL ORDER BY w.score, t.status = 'closed', t.pk DESC LIMIT ?",
        (match, newest, resource_id, limit),
    ).fetchall()
    return [r[0] for r in rows]
