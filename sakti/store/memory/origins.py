"""Find the message that a line of the log comes from.

Raw SQL: run for each hit of a list.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from sakti.store.connection import Database
from sakti.store.memory.group_rows import groups_by_id
from sakti.store.memory.sections import spans_of_row
from sakti.store.search.query import STOP_WORDS, WORD

LOOKED_AT = 2_000  # messages of one group
HEAD = 4_000  # characters of each


class Origin(Struct, frozen=True):
    """Source of a line of the log.

    The messages `first` to `last` (indexes in their thread), and the one of them that shares most words with it.
    """

    group_id: str
    thread_id: str
    first: int
    last: int
    message_id: str
    index: int


def origin(db: Database, line_id: str) -> Origin | None:
    """Return the origin of a line of the log; None if it names no messages, or none remains."""
    row = db.execute_sql("SELECT group_id, line, content FROM observations WHERE id = ?", (line_id,)).fetchone()
    if row is None:
        return None
    group_id, line, content = row
    messages = [
        (span, *message)
        for group in groups_by_id(db, [group_id])
        for span in spans_of_row(group, line)
        for message in db.execute_sql(
            f"SELECT id, message_index, substr(sakti_text(raw_content, parts), 1, {HEAD}) FROM messages"
            " WHERE thread_id = ? AND message_index BETWEEN ? AND ? ORDER BY message_index LIMIT ?",
            (span.thread_id, span.first, span.last, LOOKED_AT),
        ).fetchall()
    ]
    if not messages:
        return None
    span, message_id, index, _ = messages[_closest(content, (text for *_, text in messages))]
    return Origin(group_id, span.thread_id, span.first, span.last, message_id, index)


def _closest(content: str, texts: Iterable[str]) -> int:
    """Return the index of the text that shares most words with `content`; the earliest of equals."""
    words = _words(content)
    shared = [len(words & _words(text)) for text in texts]
    return shared.index(max(shared))


def _words(text: str) -> set[str]:
    return {w for w in WORD.findall(text.lower()) if len(w) > 2 and w not in STOP_WORDS}
