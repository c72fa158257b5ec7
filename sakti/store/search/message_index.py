"""Index messages that search lacks, and find the one before, by whose words they are also found.

Raw SQL: every message passes here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sakti.store.connection import Database
from sakti.store.search import index as search_index

# what another agent wrote is nobody's words but the agent's
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


def said_before(db: Database, thread_id: str, index: int) -> tuple[int | None, str]:
    """Return the last saved message (its pk) before an index, and its text to index, or (None, "")."""
    # SQL: every message runs it, with functions of this program
    return db.execute_sql(_SAID_BEFORE, (thread_id, index)).fetchone() or (None, "")


def unindexed(db: Database, thread_id: str | None = None) -> list[int]:
    """Return the messages (of one thread), by pk, that search should have and lacks."""
    # SQL: every message runs it, with functions of this program
    rows = db.execute_sql(
        f"SELECT m.pk, {_TEXT}{_UNINDEXED}" + (" AND m.thread_id = ?" if thread_id else "") + " ORDER BY m.pk",
        (thread_id,) if thread_id else (),
    ).fetchall()
    return [pk for pk, text in rows if text.strip()]  # SQL's trim knows the space alone


def index_messages(db: Database, pks: Sequence[int]) -> None:
    """Index these messages where search lacks them."""
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
        before, prev = said_before(db, thread, position)
        search_index.put(
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
        search_index.summarise(db, "message", doc_id, summary)
