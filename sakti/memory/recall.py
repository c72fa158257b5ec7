"""Recall raw messages: pages from an observation group or a message, or the passage around one.

Observed messages stay stored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from sakti.core.errors import MemoryFailure
from sakti.core.lazy import lazy_pattern
from sakti.core.text import format_minute, to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    Json,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.memory.observe.transcript import cut
from sakti.memory.shared import make_thread_alias
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.log import lines as memory_log
from sakti.store.threads import messages as message_store
from sakti.store.threads import removal

PAGE_MESSAGES = 20
PAGE_TOKENS = 4_000
PART_TOKENS = 2_000
LOW_CHARACTERS = 240
PASSAGE_TOKENS = 200  # of a message and its neighbours: .github/decisions has the measurements
REACH = 6  # messages on each side at most


class AskingThread(Struct, frozen=True):
    """Thread that recalls messages of its workspace."""

    resource_id: str
    thread_id: str


class RecallRequest(Struct, frozen=True):
    """Place to recall, and how many details.

    `id` is the id of a group or a message, its short form, or THREAD/FIRST-LAST as in the tags of a shared log. Page
    0 begins there, 1, 2 … follow, -1, -2 … precede it. Low detail cuts texts and names parts by index; high detail
    returns complete parts, or one of them with `part_index`, from `char_offset` on.
    """

    id: str
    page: int = 0
    detail: Literal["low", "high"] = "low"
    part_index: int | None = None
    char_offset: int = 0
    limit_tokens: int = PAGE_TOKENS


async def recall(store: Store, counter: Counter, asking: AskingThread, request: RecallRequest) -> Json:
    """Return a page of messages.

    For a group that covers several threads, the messages of the open thread are returned, else those of the last one;
    the others are named. Raises `MemoryFailure` (not_found, bad_request).
    """
    if not request.id.strip():
        raise MemoryFailure("Say what to recall: the id of an observation group or of a message.", code="bad_request")
    (thread, first, last), others = await _resolve_place(store, asking, request.id.strip())
    if request.part_index is not None:
        messages = await store.read(message_store.list_between, thread, first, first)
        return _read_part(messages, request.part_index, request.char_offset, counter)
    rows = await _read_page(store, thread, first, request.page)
    total = await store.read(message_store.count_messages, thread)
    shown = _select_fitting_rows(rows, request, counter)
    indexes = [int(r["index"]) for r in shown]
    out: Json = {
        "thread_id": thread,
        "range": [first, last],
        "page": request.page,
        "messages": shown,
        "has_next": bool(indexes) and max(indexes) < total - 1,
        "has_prev": bool(indexes) and min(indexes) > 0,
        "cut": len(shown) < len(rows),
    }
    if len(shown) < len(rows):
        out["note"] = "The page was longer than its limit; continue from the last message's id."
    if thread != asking.thread_id:
        out["other_thread"] = True
    if others:
        out["other_threads"] = others
    return out


async def _read_page(store: Store, thread_id: str, first: int, page: int) -> Sequence[Message]:
    """Return the messages of a page in order; page 0 starts at index `first`."""
    if page < 0:
        before = first + (page + 1) * PAGE_MESSAGES
        return await store.read(message_store.list_page, thread_id, before=before, limit=PAGE_MESSAGES)
    start = first + page * PAGE_MESSAGES
    return await store.read(message_store.list_between, thread_id, start, start + PAGE_MESSAGES - 1)


def _select_fitting_rows(messages: Sequence[Message], request: RecallRequest, counter: Counter) -> list[Json]:
    """Return the rows nearest to the place that fit the limit, at least one, in order."""
    shown: list[Json] = []
    tokens = 0
    for message in messages if request.page >= 0 else reversed(messages):
        row = _make_row(message, request.detail, counter)
        size = counter.count(json.dumps(row, ensure_ascii=False))
        if shown and tokens + size > request.limit_tokens:
            break
        shown.append(row)
        tokens += size
    return shown if request.page >= 0 else shown[::-1]


_RANGE = lazy_pattern(r"([0-9a-f]{8})/(\d+)(?:-(\d+))?")


async def _resolve_alias(store: Store, resource_id: str, alias: str) -> str:
    """Return the id of the thread with that alias in a shared log."""
    threads = await store.read(memory_log.list_thread_ids, resource_id)
    thread = next((t for t in threads if make_thread_alias(t) == alias), None)
    if thread is None:
        raise MemoryFailure(f"No thread of this workspace has the id {alias}.", code="not_found")
    return thread


async def _resolve_place(store: Store, asking: AskingThread, text: str) -> tuple[tuple[str, int, int], list[str]]:
    """Resolve a place to (thread, first and last index), and to the places of the group's other threads."""
    if tag := _RANGE.fullmatch(text):
        thread = await _resolve_alias(store, asking.resource_id, tag[1])
        return (thread, int(tag[2]), int(tag[3] or tag[2])), []
    spans = await store.read(memory_log.find_group, asking.resource_id, text)
    if spans:
        meant = next((s for s in spans if s.thread_id == asking.thread_id), spans[-1])
        others = [f"{make_thread_alias(s.thread_id)}/{s.first}-{s.last}" for s in spans if s is not meant]
        return (meant.thread_id, meant.first, meant.last), others
    message = await store.read(memory_log.find_message, asking.resource_id, text)
    if message is None:
        raise MemoryFailure(f"No observation group and no message has the id {text}.", code="not_found")
    return (message[1], message[2], message[2]), []


def _make_row(message: Message, detail: str, counter: Counter) -> Json:
    parts: list[Json] = []
    for index, part in enumerate(message.parts):
        kind, text = _describe_part(part)
        if not kind:
            continue
        shown = to_one_line(text, LOW_CHARACTERS) if detail == "low" else cut(text, PART_TOKENS, counter.count)
        entry: Json = {"part": index, "kind": kind, "text": shown}
        if shown != text:
            entry["characters"] = len(text)
        parts.append(entry)
    return {
        "id": message.id,
        "index": message.index,
        "role": message.role,
        "time": format_minute(message.created_at),
        "parts": parts,
    }


def _describe_part(part: Part) -> tuple[str, str]:
    """Return (kind, text) of a part; the kind is empty for parts that are not recalled."""
    match part:
        case TextPart(text):
            return "text", text
        case ToolCallPart(name=name, arguments=arguments, raw=raw):
            body = raw if arguments is None else json.dumps(arguments, ensure_ascii=False)
            return f"call {name}", body
        case ToolResultPart(name=name, content=content):
            return f"result {name}", content
        case FilePart(path, text):
            return f"file {path}", text
        case OutputPart(command, text):
            return f"output {command}", text
        case ImagePart(name=name):
            return "image", name
        case MarkerPart(kind, text):
            return f"marker {kind}", text
        case ThinkingPart() | ContextPart():
            return "", ""


def _read_part(messages: list[Message], index: int, offset: int, counter: Counter) -> Json:
    if not messages or not 0 <= index < len(messages[0].parts):
        raise MemoryFailure(f"That message has no part {index}.", code="not_found")
    kind, text = _describe_part(messages[0].parts[index])
    rest = text[max(0, offset) :]
    low, high = 0, len(rest)
    if counter.count(rest) > PAGE_TOKENS:
        while high - low > 16:
            middle = (low + high) // 2
            low, high = (middle, high) if counter.count(rest[:middle]) <= PAGE_TOKENS else (low, middle)
        rest = rest[:low]
    end = max(0, offset) + len(rest)
    out: Json = {"id": messages[0].id, "part": index, "kind": kind, "text": rest, "characters": len(text)}
    if end < len(text):
        out["next_offset"] = end
    return out


def list_passage(db: Database, thread_id: str, index: int) -> list[Message]:
    """Return a short message and those around it, in order.

    Neighbours come whole, the nearest first, until one does not fit on that side. Empty if the message has more than
    `PASSAGE_TOKENS`.
    """
    near = message_store.list_between(db, thread_id, index - REACH, index + REACH, most_tokens=PASSAGE_TOKENS)
    short = {m.index: m for m in removal.skip_deleted(near) if m.state == "saved"}
    if index not in short:
        return []
    passage = [short[index]]
    room = PASSAGE_TOKENS - short[index].tokens
    sides = [-1, 1]
    for distance in range(1, REACH + 1):
        for side in list(sides):
            message = short.get(index + side * distance)
            if message is None or message.tokens > room:
                sides.remove(side)
                continue
            passage.append(message)
            room -= message.tokens
    return sorted(passage, key=lambda message: message.index)
