"""Show what a past step sent, from what the store keeps of it."""

from __future__ import annotations

import json
from collections.abc import Iterator

from msgspec import Struct

from sakti.core.types import Json, Message, plain_text
from sakti.store.connection import Database
from sakti.store.threads import messages
from sakti.store.threads.messages import ModelStep

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


def show(db: Database, thread_id: str, number: int | None = None) -> PastRequest | None:
    """Return the request of a thread's step by its number from 1, the newest where None.

    None where there is no such step, or where it was made before requests were kept.
    """
    steps = messages.list_steps(db, thread_id)
    at = len(steps) if number is None else number
    if not 1 <= at <= len(steps) or (request := steps[at - 1].request) is None:
        return None
    settings = {k: request.get(k) for k in ("tool_choice", "effort", "max_output_tokens")}
    return PastRequest(steps[at - 1], tuple(_pieces(db, thread_id, request)), settings)


def none(number: int | None) -> str:
    """Say that there is no such request."""
    which = "no step" if number is None else f"no step {number}"
    return f"This thread has {which} whose request is kept."


def _pieces(db: Database, thread_id: str, told: Json) -> Iterator[Piece]:
    texts = messages.read_request_texts(db, thread_id)
    if "tools" in told:
        listed = json.loads(texts.get(told["tools"], "[]"))
        yield Piece("tools", "\n".join(f"{t['name']}: {t['description']}" for t in listed) or GONE)
    for kind, name in told["blocks"]:
        yield Piece(kind, texts.get(name, GONE))
    for first, last in told["messages"]:
        if isinstance(first, str):
            yield Piece(first, texts.get(last, GONE))
        else:
            for message in messages.list_between(db, thread_id, first, last):
                yield _convert_message(message)
    if "tail" in told:
        yield Piece("tail", texts.get(told["tail"], GONE))


def _convert_message(message: Message) -> Piece:
    return Piece(message.role, plain_text(message.parts), message.index)
