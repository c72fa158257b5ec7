"""Show the last /compact of a thread: the diff of its log, pinned and doubtful lines."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sakti.core.lazy import lazy_imports
from sakti.core.text import sanitise

if TYPE_CHECKING:
    from sakti.agent.session.session import Session
    from sakti.store.connection import Database
    from sakti.store.log.lines import LogLine
    from sakti.store.memory.moves import Compaction

with lazy_imports:
    from sakti.store import memory as stored_memory
    from sakti.store.log import corrections as memory_corrections
    from sakti.store.memory import moves

CONTEXT = 3  # unchanged lines round a change


class Shown(Struct, frozen=True):
    """`before` and `after` are the log then, its forgotten lines left out."""

    done: Compaction
    before: tuple[LogLine, ...]
    after: tuple[LogLine, ...]

    @property
    def pinned(self) -> int:
        return sum(x.pinned for x in self.after)

    @property
    def doubtful(self) -> int:
        """New lines that claim what their source does not have."""
        old = {x.id for x in self.before}
        return sum(bool(x.flags) for x in self.after if x.id not in old)

    def diff(self) -> str:
        """Return a unified diff of the two, safe to show."""
        lines = difflib.unified_diff(_texts(self.before), _texts(self.after), "before", "after", n=CONTEXT, lineterm="")
        return "\n".join(lines)


def _texts(lines: Sequence[LogLine]) -> list[str]:
    signs = {"high": "●", "medium": "○", "done": "✓"}
    return [
        " ".join(
            p
            for p in (
                f"{'  ' * x.depth}{signs.get(x.priority, '·')}",
                sanitise(f"{x.date} {x.time}").strip(),
                " ".join(sanitise(x.marked_text).split()),
                f"?{len(x.flags)}" if x.flags else "",
                "⚑" if x.pinned else "",
            )
            if p
        )
        for x in lines
    ]


async def last(session: Session) -> Shown | None:
    """Return that of the session's thread, or None if there was none or it was undone."""
    if session.thread is None:
        return None
    return await session.workspace.store.read(_read, session.thread.id)


def _read(db: Database, thread_id: str) -> Shown | None:
    done = moves.last_compaction(db, thread_id)
    if done is None:
        return None
    began = min((g.activated_at or done.created_at for g in stored_memory.groups_by_id(db, done.group_ids)), default=0)
    return Shown(
        done,
        tuple(memory_corrections.as_of(db, done.record_id, began - 1)),
        tuple(memory_corrections.as_of(db, done.record_id, done.created_at)),
    )
