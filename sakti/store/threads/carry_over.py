"""Store the summary of earlier work that a new thread begins with, with the source of each piece.

It stays as it was when the thread began, so that a prompt's prefix is stable, except for what was removed since: a
deleted thread or task, a forgotten or corrected line. `text` is raw SQL: it runs for every window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, to_builtins

from sakti.store import rows
from sakti.store.connection import Database
from sakti.store.log import replaced
from sakti.store.models import CarryOverRow
from sakti.store.text_registry import entering
from sakti.store.threads import threads

Kind: TypeAlias = Literal["thread", "line", "task"]
KEY = "carry_over"  # of a thread's metadata: what stands above the pieces; there where it was looked for some
LINE = "* "


class Piece(Struct, frozen=True):
    """One line of the block, and the thread, log line or task it is about."""

    kind: Kind
    source_id: str
    text: str


def keep(db: Database, thread_id: str, head: str, pieces: Sequence[Piece]) -> None:
    """Store what a thread begins with: `head` above the pieces; without pieces, that there is nothing."""
    threads.update_metadata(db, thread_id, {KEY: head})
    values = [{"thread_id": thread_id, "position": n, **to_builtins(piece)} for n, piece in enumerate(pieces)]
    if values:
        CarryOverRow.replace_many(values).execute(db)


def copy(db: Database, thread_id: str, new: str) -> None:
    """Copy a thread's carried-over block to its fork."""
    rows.copy(db, CarryOverRow, {"thread_id": thread_id}, thread_id=new)


_TOLD = (
    "SELECT c.kind, c.text, coalesce(o.edited, o.content), json_extract(own.metadata, '$.carry_over')"
    " FROM carry_over c JOIN threads own ON own.id = c.thread_id"
    " LEFT JOIN observations o ON c.kind = 'line' AND o.id = c.source_id"
    " LEFT JOIN threads t ON t.id = CASE c.kind WHEN 'line' THEN o.thread_id WHEN 'thread' THEN c.source_id END"
    " LEFT JOIN tasks k ON c.kind = 'task' AND k.id = c.source_id"
    " WHERE c.thread_id = ? AND CASE c.kind WHEN 'task' THEN k.id IS NOT NULL AND k.deleted_at IS NULL"
    " ELSE t.id IS NOT NULL AND t.deleted_at IS NULL AND coalesce(o.forgotten, 0) = 0 END ORDER BY c.position"
)


def text(db: Database, thread_id: str) -> str:
    """Return the current block, "" if it is missing or empty."""
    lines = db.execute_sql(_TOLD, (thread_id,)).fetchall()
    if not lines:
        return ""
    return "\n".join(
        [str(lines[0][3] or ""), *(_current_text(kind, then, now) for kind, then, now, _ in lines)]
    ).strip()


def _current_text(kind: str, then: str, now: str | None) -> str:
    """Return a line's text, in its corrected form if it was corrected since."""
    if kind != "line" or now is None:
        return then
    now = entering("carry_over", "text", now)
    return then if replaced.unmarked(now) in replaced.unmarked(then) else f"{LINE}{now}"
