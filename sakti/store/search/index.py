"""Index messages, observations and tasks: positions of words, and fields to filter by.

Rows are written in the transaction that stores their source; triggers update the FTS5 tables. The text of a message
stays in its row of `messages`: only masked text is stored here. The view `search_texts` has the texts, `search_terms`
their indexed terms. A message is also found by the words of the one before it.

Raw SQL: every message and every line of a log passes here.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.store.connection import Database
from sakti.store.text_registry import mask_for_storage

TEXT_LIMIT = 100_000  # indexed characters of one text; stored text has no limit
PREVIOUS_LIMIT = 1_000
TABLES = ("search_words", "search_trigrams")
TASKS = "task_words"  # separate index of tasks

_TOKEN = lazy_pattern(r"[A-Za-z0-9]+(?:[_.\-/:][A-Za-z0-9]+)*")
_COMPOUND = lazy_pattern(r"[_.\-/:]|[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_PIECE = lazy_pattern(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def split_identifier(token: str) -> list[str]:
    """Split an identifier.

    `getUserId` → get, user, id; `refresh_tokens` → refresh, tokens; `auth.ts` → auth, ts.
    """
    return [p.lower() for p in _PIECE.findall(token)]


def list_identifier_parts(text: str) -> str:
    """Return the pieces and the joined form of every compound token in `text`, each once.

    `getUserId` gives `get user id getuserid`.
    """
    out: dict[str, None] = {}
    words = [w for w in dict.fromkeys(text.split()) if not (w.islower() and w.isalpha())]  # without plain words
    for token in dict.fromkeys(_TOKEN.findall(" ".join(words))):
        if (token.islower() and token.isalpha()) or not _COMPOUND.search(token):
            continue
        parts = split_identifier(token)
        if len(parts) > 1:
            out.update(dict.fromkeys(parts))
            out["".join(parts)] = None
    return " ".join(out)


def matches_path(paths: str, glob: str) -> bool:
    """Return whether one of `paths` (one per line) matches."""
    return any(fnmatch.fnmatchcase(path, glob) for path in paths.split("\n"))


class Doc(Struct, frozen=True, kw_only=True):
    """Text to index, with its metadata.

    `message_pk` and `prev_pk`: the messages (pk) whose text equals `text` and `prev`, if any.
    """

    kind: str
    doc_id: str
    resource_id: str
    created_at: int
    text: str
    thread_id: str | None = None
    task_id: str | None = None
    role: str = ""
    position: int = 0
    prev: str = ""
    paths: Sequence[str] = ()
    message_pk: int | None = None
    prev_pk: int | None = None

    def row(self) -> tuple[Any, ...]:
        """Return the row for the table, secrets masked."""
        head = self.text[:TEXT_LIMIT]
        text, message_pk = _choose_text_or_reference(
            head, mask_for_storage("search_docs", "text", head), self.message_pk
        )
        return (
            self.kind,
            self.doc_id,
            self.resource_id,
            self.thread_id,
            self.task_id,
            self.role,
            self.position,
            self.created_at,
            text,
            message_pk,
            *_choose_previous_text(self.prev, self.prev_pk),
            "\n".join(self.paths),
        )


def _choose_text_or_reference(text: str, kept: str, message_pk: int | None) -> tuple[str, int | None]:
    """Return the text to store and the message to refer to.

    `kept` is stored only if it differs from the message's text, as masked text does.

    """
    return ("", message_pk) if message_pk is not None and kept == text else (kept, None)


def _choose_previous_text(prev: str, prev_pk: int | None) -> tuple[str, int | None]:
    """Return the previous message and the text to store for it."""
    head = prev[:PREVIOUS_LIMIT]
    return _choose_text_or_reference(head, mask_for_storage("search_docs", "prev", head), prev_pk)


_PUT = (
    "INSERT INTO search_docs (kind, doc_id, resource_id, thread_id, task_id, role, position, created_at, text,"
    " message_pk, prev, prev_pk, paths, form) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"
    " ON CONFLICT (kind, doc_id) DO UPDATE SET text = excluded.text, message_pk = excluded.message_pk, idents = '',"
    " prev = excluded.prev, prev_pk = excluded.prev_pk, form = 1, paths = excluded.paths, task_id = excluded.task_id"
)


def put(db: Database, **values: Any) -> None:
    """Index a `Doc` of these values, replacing the entry of the same kind and id."""
    # SQL: every message runs it; building a query takes 80-300 µs
    db.execute_sql(_PUT, Doc(**values).row())


def put_all(db: Database, docs: Iterable[Doc]) -> None:
    """Index many documents at once."""
    connection: Any = db.connection()
    connection.executemany(_PUT, [d.row() for d in docs])


def set_previous(db: Database, kind: str, doc_id: str, prev: str, prev_pk: int | None) -> None:
    """Set the previous message (text and pk), whose words also find this one."""
    # SQL: every message runs it; building a query takes 80-300 µs
    db.execute_sql(
        "UPDATE search_docs SET prev = ?, prev_pk = ? WHERE kind = ? AND doc_id = ?",
        (*_choose_previous_text(prev, prev_pk), kind, doc_id),
    )


def summarize(db: Database, kind: str, doc_id: str, text: str) -> None:
    """Set the summary of a text, whose words also find it; the hit is still the text itself."""
    text = mask_for_storage("search_docs", "summary", text)
    # SQL: every message runs it; building a query takes 80-300 µs
    db.execute_sql(
        "UPDATE search_docs SET summary = ? WHERE kind = ? AND doc_id = ? AND summary != ?", (text, kind, doc_id, text)
    )


def remove(db: Database, kind: str, doc_id: str) -> None:
    # SQL: every message runs it; building a query takes 80-300 µs
    db.execute_sql("DELETE FROM search_docs WHERE kind = ? AND doc_id = ?", (kind, doc_id))


# text written by another agent counts as the agent's
_ROLE = "CASE WHEN json_extract(m.metadata, '$.author') = 'agent' THEN 'assistant' ELSE m.role END"
_TEXT = "coalesce(m.search_text, sakti_text(m.raw_content, m.parts))"
_UNINDEXED = (
    f" FROM messages m WHERE m.state = 'saved' AND trim({_TEXT}) != ''"
    " AND NOT EXISTS (SELECT 1 FROM search_docs d WHERE d.kind = 'message' AND d.doc_id = m.id)"
    " AND NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = m.thread_id AND t.deleted_at IS NOT NULL)"
)


_SAID_BEFORE = (
    "SELECT pk, coalesce(search_text, sakti_text(raw_content, parts)) FROM messages"
    " WHERE thread_id = ? AND message_index < ? AND state = 'saved' ORDER BY message_index DESC LIMIT 1"
)


def find_text_before(db: Database, thread_id: str, index: int) -> tuple[int | None, str]:
    """Return (pk, text to index) of the last saved message before an index, or (None, "")."""
    # SQL: every message runs it, with functions of this program
    return db.execute_sql(_SAID_BEFORE, (thread_id, index)).fetchone() or (None, "")


def list_unindexed(db: Database, thread_id: str | None = None) -> list[int]:
    """Return the messages (of one thread), by pk, that are missing from search."""
    # SQL: every message runs it, with functions of this program
    rows = db.execute_sql(
        f"SELECT m.pk, {_TEXT}{_UNINDEXED}" + (" AND m.thread_id = ?" if thread_id else "") + " ORDER BY m.pk",
        (thread_id,) if thread_id else (),
    ).fetchall()
    return [pk for pk, text in rows if text.strip()]  # SQL's trim only removes spaces


def index_messages(db: Database, pks: Sequence[int]) -> None:
    """Index those of these messages that search lacks."""
    for pk in pks:
        # SQL: reads JSON inside a column
        row = db.execute_sql(
            f"SELECT m.id, m.resource_id, m.thread_id, m.task_id, {_ROLE}, m.message_index, m.created_at,"
            f" {_TEXT}, m.paths, coalesce(m.summary, ''){_UNINDEXED} AND m.pk = ?",
            (pk,),
        ).fetchone()
        if row is None:
            continue
        doc_id, resource_id, thread, task_id, role, position, created_at, text, paths, summary = row
        before, prev = find_text_before(db, thread, position)
        put(
            db,
            kind="message",
            doc_id=doc_id,
            resource_id=resource_id,
            thread_id=thread,
            task_id=task_id,
            role=role,
            position=position,
            created_at=created_at,
            text=text,
            prev=prev,
            paths=json.loads(paths),
            message_pk=pk,
            prev_pk=before,
        )
        summarize(db, "message", doc_id, summary)
