"""Show the past of a thread: its last compaction, and the request of a past step."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from sakti.core.calls import format_parts
from sakti.core.text import sanitize_text
from sakti.core.types import Json, Message
from sakti.store.connection import Database
from sakti.store.threads import messages
from sakti.store.threads.messages import ModelStep

if TYPE_CHECKING:
    from sakti.store.log.lines import LogLine
    from sakti.store.memory.moves import Compaction


from sakti.store import memory as stored_memory
from sakti.store.log import corrections as memory_corrections
from sakti.store.memory import moves

CONTEXT = 3  # unchanged lines round a change


class LastCompaction(Struct, frozen=True):
    """Last /compact of a thread; `before` and `after` are its log then, without forgotten lines."""

    compaction: Compaction
    before: tuple[LogLine, ...]
    after: tuple[LogLine, ...]

    @property
    def pinned(self) -> int:
        return sum(x.pinned for x in self.after)

    @property
    def doubtful(self) -> int:
        """New lines whose claims are not in their source."""
        old = {x.id for x in self.before}
        return sum(bool(x.flags) for x in self.after if x.id not in old)

    def diff(self) -> str:
        """Return a unified diff of the two, safe to show."""
        lines = difflib.unified_diff(
            _format_lines(self.before), _format_lines(self.after), "before", "after", n=CONTEXT, lineterm=""
        )
        return "\n".join(lines)


def _format_lines(lines: Sequence[LogLine]) -> list[str]:
    signs = {"high": "●", "medium": "○", "done": "✓"}
    return [
        " ".join(
            p
            for p in (
                f"{'  ' * x.depth}{signs.get(x.priority, '·')}",
                sanitize_text(f"{x.date} {x.time}").strip(),
                " ".join(sanitize_text(x.marked_text).split()),
                f"?{len(x.flags)}" if x.flags else "",
                "⚑" if x.pinned else "",
            )
            if p
        )
        for x in lines
    ]


def read_compaction(db: Database, thread_id: str) -> LastCompaction | None:
    """Return the last compaction of a thread, or None if there was none or it was uncompaction."""
    compaction = moves.last_compaction(db, thread_id)
    if compaction is None:
        return None
    began = min(
        (g.activated_at or compaction.created_at for g in stored_memory.get_groups(db, compaction.group_ids)),
        default=0,
    )
    return LastCompaction(
        compaction,
        tuple(memory_corrections.read_log_at(db, compaction.record_id, began - 1)),
        tuple(memory_corrections.read_log_at(db, compaction.record_id, compaction.created_at)),
    )


GONE = "(no longer kept: a message of this thread was removed for good)"


class Piece(Struct, frozen=True):
    """Part of a request in its order.

    `kind` is a block's kind, "tools", a message's role or "tail"; `index` that of a stored message.
    """

    kind: str
    text: str
    index: int | None = None


class PastRequest(Struct, frozen=True):
    step: ModelStep
    pieces: tuple[Piece, ...]
    settings: Json


def read_request(db: Database, thread_id: str, number: int | None = None) -> PastRequest | None:
    """Return the request of a thread's step by its number from 1, the newest if None.

    None if there is no such step, or if it was made before requests were kept.
    """
    steps = messages.list_steps(db, thread_id)
    at = len(steps) if number is None else number
    if not 1 <= at <= len(steps) or (request := steps[at - 1].request) is None:
        return None
    settings = {k: request.get(k) for k in ("tool_choice", "effort", "max_output_tokens")}
    return PastRequest(steps[at - 1], tuple(_iter_pieces(db, thread_id, request)), settings)


def explain_no_request(number: int | None) -> str:
    """Say that there is no such request."""
    which = "no step" if number is None else f"no step {number}"
    return f"This thread has {which} whose request is kept."


def _iter_pieces(db: Database, thread_id: str, request: Json) -> Iterator[Piece]:
    texts = messages.read_request_texts(db, thread_id)
    if "tools" in request:
        listed = json.loads(texts.get(request["tools"], "[]"))
        yield Piece("tools", "\n\n".join(map(_format_tool, listed)) or GONE)
    for kind, name in request["blocks"]:
        yield Piece(kind, texts.get(name, GONE))
    for first, last in request["messages"]:
        if isinstance(first, str):
            yield Piece(first, texts.get(last, GONE))
        else:
            for message in messages.list_between(db, thread_id, first, last):
                yield _convert_message(message)
    if "tail" in request:
        yield Piece("tail", texts.get(request["tail"], GONE))


def _format_tool(tool: Json) -> str:
    return f"{tool['name']}: {tool['description']}\n{json.dumps(tool['parameters'], ensure_ascii=False)}"


def _convert_message(message: Message) -> Piece:
    return Piece(message.role, format_parts(message.parts), message.index)
