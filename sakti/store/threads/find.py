"""Find literal text in one thread: every message that has it, however old.

Raw SQL: the rows are read one by one as they are checked.
"""

from __future__ import annotations

from msgspec import Struct

from sakti.core.text import phrase
from sakti.store.connection import Database


class Place(Struct, frozen=True):
    """Message that contains the text, and how often."""

    message_id: str
    index: int
    count: int


def places(db: Database, thread_id: str, text: str) -> list[Place]:
    """Return the messages of a thread with `text` in them, oldest first."""
    words = text.split()
    if not words:
        return []
    # LIKE knows the case of ASCII only: any other character is looked at here
    like = "%" + "%".join("".join(_like(c) for c in word) for word in words) + "%"
    pattern = phrase(text)
    matches = db.execute_sql(
        "SELECT id, message_index, text FROM (SELECT id, message_index, sakti_text(raw_content, parts) AS text"
        " FROM messages WHERE thread_id = ?) WHERE text LIKE ? ESCAPE '\\' ORDER BY message_index",
        (thread_id, like),
    )
    counted = ((id, index, sum(1 for _ in pattern.finditer(raw))) for id, index, raw in matches)
    return [Place(id, index, count) for id, index, count in counted if count]


def _like(character: str) -> str:
    if character in "%_\\":
        return "\\" + character
    return character if character.isascii() else "_"
