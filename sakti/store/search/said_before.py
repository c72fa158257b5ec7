"""Find the message before another one, by whose words it is also found.

Raw SQL: every message passes here.
"""

from __future__ import annotations

from sakti.store.connection import Database

_SAID_BEFORE = (
    "SELECT pk, coalesce(search_text, sakti_text(raw_content, parts)) FROM messages"
    " WHERE thread_id = ? AND message_index < ? AND state = 'saved' ORDER BY message_index DESC LIMIT 1"
)


def said_before(db: Database, thread_id: str, index: int) -> tuple[int | None, str]:
    """Return the last saved message (its pk) before an index, and its text to index, or (None, "")."""
    return db.execute_sql(_SAID_BEFORE, (thread_id, index)).fetchone() or (None, "")
