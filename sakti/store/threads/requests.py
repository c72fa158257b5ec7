"""Store what each step sent: its blocks by the hash of their text, its messages by index.

A block that was sent before costs its hash only, so that a step takes some hundred bytes however long its request is.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from msgspec import Struct

from sakti.core.types import Json, Request, plain_text
from sakti.store.connection import Database
from sakti.store.models import RequestBlockRow, StepRow
from sakti.store.rows import insert_many

HASH = 16  # characters of a SHA-256


class SentRequest(Struct, frozen=True):
    """Request in the form of a step row (`described`, JSON), and the texts that it names by hash."""

    described: Json
    texts: dict[str, str]


class ModelStep(Struct, frozen=True):
    """Model call of a thread; `number` counts from 1, `request` is None in rows older than this record."""

    number: int
    id: str
    model: str
    created_at: int
    input_tokens: int
    output_tokens: int
    request: Json | None


@lru_cache(256)
def hash_text(text: str) -> str:
    """Return the hash that names a text; most of a request is the same text as in the step before."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH]


def describe(request: Request) -> SentRequest:
    """Return the stored description of a request.

    `{blocks: [[kind, hash]], messages: [[first, last] | [role, hash]], tools, tail, …}`: stored messages as ranges of
    indices, those that memory inserted by their text.
    """
    texts: dict[str, str] = {}

    def name(text: str) -> str:
        texts[digest := hash_text(text)] = text
        return digest

    messages: list[list[int] | list[str]] = []
    for message in request.messages:
        last = messages[-1] if messages else None
        if message.index < 0 or "synthetic" in message.metadata:
            messages.append([message.role, name(plain_text(message.parts))])
        elif last is not None and last[-1] == message.index - 1:
            last[-1] = message.index  # pyright: ignore[reportArgumentType, reportCallIssue]
        else:
            messages.append([message.index, message.index])
    description: Json = {
        "blocks": [[b.kind, name(b.text)] for b in request.system],
        "messages": messages,
        "tool_choice": request.tool_choice,
        "effort": request.effort,
        "max_output_tokens": request.max_output_tokens,
    }
    if request.tools:
        tools = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in request.tools]
        description["tools"] = name(json.dumps(tools, ensure_ascii=False))
    if request.tail:
        description["tail"] = name(request.tail)
    return SentRequest(description, texts)


def keep(db: Database, thread_id: str, texts: dict[str, str]) -> None:
    """Store the texts of a request that the thread did not send before."""
    blocks = [{"thread_id": thread_id, "hash": name, "text": text} for name, text in texts.items()]
    insert_many(db, RequestBlockRow, blocks, unless_there=True)


def steps(db: Database, thread_id: str) -> list[ModelStep]:
    """Return the model calls of a thread's turns, oldest first."""
    row = StepRow
    columns = row.id, row.model, row.created_at, row.input_tokens, row.output_tokens, row.request
    calls = row.select(*columns).where(row.thread_id == thread_id, row.purpose == "actor").order_by(row.pk)
    return [ModelStep(number, *call) for number, call in enumerate(calls.tuples().execute(db), 1)]


def find_newest_accepted(db: Database, thread_id: str, model: str) -> int:
    """Return the index of the newest message that `model` has answered a request with; -1: none."""
    sent = [step.request["messages"] for step in steps(db, thread_id) if step.model == model and step.request]
    indexes = [entry[1] for messages in sent for entry in messages if isinstance(entry[1], int)]
    return max(indexes, default=-1)


def texts(db: Database, thread_id: str) -> dict[str, str]:
    """Return the texts of a thread's requests by hash."""
    row = RequestBlockRow
    return dict(row.select(row.hash, row.text).where(row.thread_id == thread_id).tuples().execute(db))
