"""What search looks at: for each message, observation and task its text and what code derives from it.

Rows are written in the same transaction as what they describe; triggers keep the FTS5 tables in step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sakti.store.connection import Database
from sakti.store.secrets import masked

TEXT_LIMIT = 100_000  # characters of one text that are indexed; what is stored has no limit
PREVIOUS_LIMIT = 1_000
TABLES = ("search_words", "search_trigrams")
TASKS = "task_words"  # the index that tasks have for themselves

_TOKEN = re.compile(r"[A-Za-z0-9]+(?:[_.\-/:][A-Za-z0-9]+)*")
_COMPOUND = re.compile(r"[_.\-/:]|[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_PIECE = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def pieces(token: str) -> list[str]:
    """`getUserId` → get, user, id; `refresh_tokens` → refresh, tokens; `auth.ts` → auth, ts."""
    return [p.lower() for p in _PIECE.findall(token)]


def identifiers(text: str) -> str:
    """Pieces and joined form of every compound token in `text`, each once: `getUserId` gives
    `get user id getuserid`."""
    out: dict[str, None] = {}
    for token in dict.fromkeys(_TOKEN.findall(text)):
        if (token.islower() and token.isalpha()) or not _COMPOUND.search(token):
            continue
        parts = pieces(token)
        if len(parts) > 1:
            out.update(dict.fromkeys(parts))
            out["".join(parts)] = None
    return " ".join(out)


def put(
    db: Database,
    *,
    kind: str,
    doc_id: str,
    resource_id: str,
    created_at: int,
    text: str,
    thread_id: str | None = None,
    task_id: str | None = None,
    role: str = "",
    position: int = 0,
    prev: str = "",
    paths: Sequence[str] = (),
) -> None:
    """Index a text, secrets masked, replacing what was indexed under the same kind and id."""
    text = masked(text[:TEXT_LIMIT])
    db.execute_sql(
        "INSERT INTO search_docs (kind, doc_id, resource_id, thread_id, task_id, role, position, created_at, text,"
        " idents, prev, paths) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (kind, doc_id) DO UPDATE SET text = excluded.text, idents = excluded.idents,"
        " prev = excluded.prev, paths = excluded.paths, task_id = excluded.task_id",
        (
            kind,
            doc_id,
            resource_id,
            thread_id,
            task_id,
            role,
            position,
            created_at,
            text,
            identifiers(text),
            masked(prev[:PREVIOUS_LIMIT]),
            "\n".join(paths),
        ),
    )


def summarise(db: Database, kind: str, doc_id: str, text: str) -> None:
    """Let a text be found by what a summary took from it, too; a hit is the text itself all the same."""
    db.execute_sql(
        "UPDATE search_docs SET summary = ? WHERE kind = ? AND doc_id = ? AND summary != ?",
        (masked(text), kind, doc_id, masked(text)),
    )


def remove(db: Database, kind: str, doc_id: str) -> None:
    db.execute_sql("DELETE FROM search_docs WHERE kind = ? AND doc_id = ?", (kind, doc_id))
