"""Store messages, appended once, and requests: blocks by the hash of their text, messages by index.

Memory never changes or deletes the text of a message. A block that was sent before is stored as its hash only, so that
a step takes some hundred bytes however long its request is.

Ten older messages may have a summary, stored in the first of them with its last index; search finds each of them by the
part of the summary that was taken from it. The thread's metadata has the first indexes without levels 1 and 2.

Raw SQL: statements of every step (appending, pages, seals), because building the query costs more than running it, and
the search for literal text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, structs
from peewee import fn

from sakti.core.errors import StoreError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import compile_phrase
from sakti.core.types import (
    Json,
    Message,
    ModelCall,
    Part,
    Request,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    join_plain_text,
)
from sakti.store.connection import Database
from sakti.store.models import MessageRow, RequestBlockRow, StepRow
from sakti.store.rows import Shape, fetch_first, insert, insert_many, update
from sakti.store.search import index as search_index
from sakti.store.search.index import find_text_before
from sakti.store.tasks import rows
from sakti.store.threads import codec, threads

HASH = 16  # characters of a SHA-256
# tools of sakti, and those that other agents call over MCP
_READS_MEMORY = lazy_pattern(r"memory-search|task-query|.*sakti.*(memory_search|memory_read|task_query)")

MESSAGE = Shape(MessageRow, Message, index="message_index", tokens="token_count")
_SELECT = f"SELECT {MESSAGE.columns} FROM messages WHERE"
_PLACE = (
    "SELECT coalesce(max(message_index), -1) + 1, EXISTS (SELECT 1 FROM threads WHERE id = ?) FROM messages"
    " WHERE thread_id = ?"
)


class SentRequest(Struct, frozen=True):
    """Request in the form of a step row (`described`, JSON), and the texts that it references by hash."""

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


class LastRequest(Struct, frozen=True):
    """Beginning of a thread's last request: texts of the system prompt with their kinds, and tools."""

    model: str
    sent_at: int
    blocks: tuple[tuple[str, str], ...]
    tools: tuple[ToolSpec, ...]


@lru_cache(256)
def hash_text(text: str) -> str:
    """Return the hash that identifies a text; most of a request repeats the texts of the previous step."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:HASH]


def _describe_messages(messages: Iterable[Message], name: Callable[[str], str]) -> list[list[int] | list[str]]:
    """Return ranges of stored messages, and the role and named text of the others."""
    described: list[list[int] | list[str]] = []
    for message in messages:
        last = described[-1] if described else None
        if message.index < 0 or "synthetic" in message.metadata:
            described.append([message.role, name(join_plain_text(message.parts))])
        elif last is not None and last[-1] == message.index - 1:
            last[-1] = message.index  # pyright: ignore[reportArgumentType, reportCallIssue]
        else:
            described.append([message.index, message.index])
    return described


def describe_request(request: Request) -> SentRequest:
    """Return the stored description of a request.

    `{blocks: [[kind, hash]], messages: [[first, last] | [role, hash]], tools, tail, …}`: stored messages as ranges of
    indices, those that memory inserted by their text.
    """
    texts: dict[str, str] = {}

    def name(text: str) -> str:
        texts[digest := hash_text(text)] = text
        return digest

    description: Json = {
        "blocks": [[b.kind, name(b.text)] for b in request.system],
        "messages": _describe_messages(request.messages, name),
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


def store_request(db: Database, thread_id: str, texts: dict[str, str]) -> None:
    """Store the texts of a request that the thread has not sent before."""
    blocks = [{"thread_id": thread_id, "hash": name, "text": text} for name, text in texts.items()]
    insert_many(db, RequestBlockRow, blocks, unless_there=True)


def list_steps(db: Database, thread_id: str) -> list[ModelStep]:
    """Return the model calls of a thread's turns, oldest first."""
    row = StepRow
    columns = row.id, row.model, row.created_at, row.input_tokens, row.output_tokens, row.request
    calls = row.select(*columns).where(row.thread_id == thread_id, row.purpose == "actor").order_by(row.pk)
    return [ModelStep(number, *call) for number, call in enumerate(calls.tuples().execute(db), 1)]


def find_newest_accepted(db: Database, thread_id: str, model: str) -> int:
    """Return the index of the newest message in a request that `model` answered; -1: none."""
    sent = [step.request["messages"] for step in list_steps(db, thread_id) if step.model == model and step.request]
    indexes = [entry[1] for messages in sent for entry in messages if isinstance(entry[1], int)]
    return max(indexes, default=-1)


def read_last_request(db: Database, thread_id: str) -> LastRequest | None:
    """Return the beginning of a thread's last request; None if it is not stored, or no longer."""
    row = StepRow
    calls = row.select(row.model, row.created_at, row.request).where(row.thread_id == thread_id, row.purpose == "actor")
    newest = next(iter(calls.order_by(row.pk.desc()).limit(1).tuples().execute(db)), None)
    if newest is None or newest[2] is None:
        return None
    model, sent_at, request = newest
    names = [name for _, name in request["blocks"]] + [request[k] for k in ("tools",) if k in request]
    block = RequestBlockRow
    where = block.thread_id == thread_id, block.hash.in_(names)
    texts = dict(block.select(block.hash, block.text).where(*where).tuples().execute(db))
    if not texts.keys() >= set(names):
        return None
    tools = json.loads(texts[request["tools"]]) if "tools" in request else []
    blocks = tuple((kind, texts[name]) for kind, name in request["blocks"])
    return LastRequest(model, sent_at, blocks, tuple(ToolSpec(**tool) for tool in tools))


def read_request_texts(db: Database, thread_id: str) -> dict[str, str]:
    """Return the texts of a thread's requests by hash."""
    row = RequestBlockRow
    return dict(row.select(row.hash, row.text).where(row.thread_id == thread_id).tuples().execute(db))


def append(db: Database, message: Message, *, index_text: str | None = None, paths: Sequence[str] = ()) -> Message:
    """Append `message` to its thread and index it; return it with its index.

    A provisional message is stored but not indexed until `confirm`. `index_text` replaces the plain text in the index;
    calls and results of tools that read memory are left out of it, or a search would find earlier searches first.
    Raises `StoreError` (gone) if the thread does not exist.
    """
    message = codec.mask_message(message)
    if index_text is None:
        indexed = [part for part in message.parts if not _reads_memory(part)]
        index_text = join_plain_text(indexed) if len(indexed) < len(message.parts) else None
    # SQL: each step runs it; building a query takes 80-300 µs
    index, exists = db.execute_sql(_PLACE, (message.thread_id, message.thread_id)).fetchone()
    if not exists:
        raise StoreError("This thread was removed in another window.", code="gone")
    values = MESSAGE.values(message) | {"message_index": index, "sealed_at": None}
    insert(db, MessageRow, **values, format=codec.FORMAT, search_text=index_text, paths=paths)
    connection: Any = db.connection()
    pk = connection.last_insert_rowid()
    threads.touch(db, message.thread_id, message.created_at)
    if message.task_id is not None:
        rows.add_link(db, message.task_id, message.id, "output", message.created_at)
    if message.state == "saved":
        _index(db, message, index, pk, index_text, paths)
    return structs.replace(message, index=index)


def _reads_memory(part: Part) -> bool:
    return isinstance(part, (ToolCallPart, ToolResultPart)) and _READS_MEMORY.fullmatch(part.name) is not None


def add_context(db: Database, message: Message) -> bool:
    """Store the changed parts and tokens of `message` after context was added to it.

    Return False if the message is sealed for observation and may not change any more.
    """
    changed = (
        MessageRow.update(parts=message.parts, part_tokens=message.part_tokens, token_count=message.tokens)
        .where(MessageRow.id == message.id, MessageRow.sealed_at.is_null())
        .execute(db)
    )
    return bool(changed)


def confirm(db: Database, message_ids: Sequence[str]) -> None:
    """Mark provisional messages as saved and index them."""
    for message in get_many(db, message_ids):
        if message.state != "provisional":
            continue
        row = MessageRow
        update(db, row, message.id, state="saved")
        pk, text, paths = fetch_first(db, row.select(row.pk, row.search_text, row.paths).where(row.id == message.id))
        _index(db, message, message.index, pk, text, paths)


def _index(db: Database, message: Message, index: int, pk: int, text: str | None, paths: Sequence[str]) -> None:
    """Index a message; `text` replaces its own."""
    text = join_plain_text(message.parts) if text is None else text
    if not text.strip():
        return
    before, prev = find_text_before(db, message.thread_id, index)
    search_index.put(
        db,
        kind="message",
        doc_id=message.id,
        resource_id=message.resource_id,
        thread_id=message.thread_id,
        task_id=message.task_id,
        role="assistant" if message.is_by_agent else message.role,
        position=index,
        created_at=message.created_at,
        text=text,
        prev=prev,
        paths=paths,
        message_pk=pk,
        prev_pk=before,
    )


def _read_messages(db: Database, condition: str, values: Sequence[Any]) -> list[Message]:
    # SQL: each step runs it; building a query takes 80-300 µs
    return [MESSAGE.of(row) for row in db.execute_sql(f"{_SELECT} {condition}", values).fetchall()]


def list_page(db: Database, thread_id: str, *, before: int | None = None, limit: int = 200) -> list[Message]:
    """Return the `limit` newest messages of a thread with an index below `before`, oldest first."""
    condition = "thread_id = ? AND message_index < ? ORDER BY message_index DESC LIMIT ?"
    return _read_messages(db, condition, (thread_id, 1 << 62 if before is None else before, limit))[::-1]


def read_data_version(db: Database) -> int:
    """Return a number that changes with every commit of another connection, in any process."""
    return db.connection().pragma("data_version")


def list_after(db: Database, thread_id: str, index: int, *, limit: int = 1 << 30) -> list[Message]:
    """Return the messages of a thread with an index above `index`, oldest first."""
    condition = "thread_id = ? AND message_index > ? ORDER BY message_index LIMIT ?"
    return _read_messages(db, condition, (thread_id, index, limit))


def list_states_after(db: Database, thread_id: str, index: int) -> list[tuple[str, int, str]]:
    """Return (id, index, state) of the messages above an index that were not withheld, oldest first."""
    # SQL: each step runs it; building a query takes 80-300 µs
    return db.execute_sql(
        "SELECT id, message_index, state FROM messages WHERE thread_id = ? AND message_index > ?"
        " AND state != 'withheld' ORDER BY message_index",
        (thread_id, index),
    ).fetchall()


def list_between(
    db: Database, thread_id: str, first: int, last: int, *, most_tokens: int | None = None
) -> list[Message]:
    here = (MessageRow.thread_id == thread_id) & MessageRow.message_index.between(first, last)
    if most_tokens is not None:
        here &= MessageRow.token_count <= most_tokens
    return list(MESSAGE.select().where(here).order_by(MessageRow.message_index).execute(db))


def get(db: Database, message_id: str) -> Message | None:
    matches = get_many(db, [message_id])
    return matches[0] if matches else None


def get_many(db: Database, ids: Sequence[str]) -> list[Message]:
    """Return those of `ids` that exist, in the order of their threads and indexes."""
    messages: list[Message] = []
    for start in range(0, len(ids), 500):
        some = list(ids[start : start + 500])
        marks = ",".join("?" * len(some))
        messages += _read_messages(db, f"id IN ({marks}) ORDER BY thread_id, message_index", some)
    return messages


def get_last_of_user(db: Database, thread_id: str) -> Message | None:
    here = (MessageRow.thread_id == thread_id) & (MessageRow.role == "user")
    return MESSAGE.select().where(here).order_by(MessageRow.message_index.desc()).limit(1).get_or_none(db)


def seal(db: Database, ids: Sequence[str], now: int) -> None:
    """Seal messages that an observation is about to read: from then on they never change."""
    for start in range(0, len(ids), 500):
        some = ids[start : start + 500]
        marks = ",".join("?" * len(some))
        # SQL: each step runs it; building a query takes 80-300 µs
        db.execute_sql(f"UPDATE messages SET sealed_at = ? WHERE id IN ({marks}) AND sealed_at IS NULL", (now, *some))


def add_metadata(db: Database, message_id: str, changes: Json) -> None:
    """Merge `changes` into a message's metadata."""
    message = get(db, message_id)
    if message is not None:
        update(db, MessageRow, message_id, metadata={**message.metadata, **changes})


# --- model calls ------------------------------------------------------------------------------------------


def add_step(
    db: Database,
    thread_id: str,
    purpose: str,
    call: ModelCall,
    *,
    id: str,
    now: int,
    sent: SentRequest | None = None,
) -> None:
    """Record a model call of a thread, with the request if it was `sent` for the chat."""
    usage = call.usage
    if sent is not None:
        store_request(db, thread_id, sent.texts)
    insert(
        db,
        StepRow,
        id=id,
        thread_id=thread_id,
        purpose=purpose,
        model=call.model,
        counted_tokens=call.counted_tokens,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_usd=usage.cost_usd,
        duration_ms=call.duration_ms,
        stop_reason=call.stop_reason,
        created_at=now,
        request=sent.described if sent is not None else None,
    )


class MessageMatch(Struct, frozen=True):
    """Message that contains the text, and how often."""

    message_id: str
    index: int
    count: int


def find_text(db: Database, thread_id: str, text: str) -> list[MessageMatch]:
    """Return the messages of a thread with `text` in them, oldest first."""
    words = text.split()
    if not words:
        return []
    # LIKE ignores case in ASCII only: any other character matches here, and `pattern` decides
    like = "%" + "%".join("".join(_to_like_pattern(c) for c in word) for word in words) + "%"
    pattern = compile_phrase(text)
    # SQL: calls a function of this program on packed texts
    matches = db.execute_sql(
        "SELECT id, message_index, text FROM (SELECT id, message_index, sakti_text(raw_content, parts) AS text"
        " FROM messages WHERE thread_id = ?) WHERE text LIKE ? ESCAPE '\\' ORDER BY message_index",
        (thread_id, like),
    )
    counted = ((id, index, sum(1 for _ in pattern.finditer(raw))) for id, index, raw in matches)
    return [MessageMatch(id, index, count) for id, index, count in counted if count]


def _to_like_pattern(character: str) -> str:
    if character in "%_\\":
        return "\\" + character
    return character if character.isascii() else "_"


# --- summaries of older messages -----------------------------------------------------------------------------

LEVELS_KEY = "levels"  # of a thread's metadata
_COUNT = "SELECT coalesce(max(message_index), -1) + 1 FROM messages WHERE thread_id = ?"
_SUMMARIES = (
    "SELECT message_index, json_extract(metadata, '$.summary.last'),"
    " json_extract(metadata, '$.summary.message_tokens'), injection_text FROM messages"
    " WHERE thread_id = ? AND injection_text IS NOT NULL AND json_extract(metadata, '$.summary.message_tokens') > ?"
    " ORDER BY message_index DESC LIMIT ?"
)


class SummarisedRange(Struct, frozen=True):
    """Messages `first` to `last` of a thread, their tokens and their summary."""

    first: int
    last: int
    message_tokens: int
    text: str


def read_levels(metadata: Mapping[str, object]) -> tuple[int, int]:
    """Return the index of a thread's first message without level 1, and without level 2."""
    marks = metadata.get(LEVELS_KEY)
    return (int(marks[0]), int(marks[1])) if isinstance(marks, list | tuple) else (0, 0)  # pyright: ignore


def count_messages(db: Database, thread_id: str) -> int:
    # SQL: each step runs it; building a query takes 80-300 µs
    return db.execute_sql(_COUNT, (thread_id,)).fetchone()[0]


def put_summaries(
    db: Database,
    messages: Sequence[Message],
    level: int,
    text: str,
    extracts: Mapping[str, str],
    marks: tuple[int, int],
) -> None:
    """Store the summary of consecutive messages; `extracts`: message id → text taken from it."""
    first, last = messages[0], messages[-1]
    for message in messages:
        part = extracts.get(message.id, "")
        update(db, MessageRow, message.id, compaction_level=level, summary=part or None)
        search_index.summarize(db, "message", message.id, part)
    summary = {"last": last.index, "message_tokens": sum(m.tokens for m in messages)}
    metadata = fn.json_set(MessageRow.metadata, "$.summary", fn.json(json.dumps(summary)))
    MessageRow.update(injection_text=text, metadata=metadata).where(MessageRow.id == first.id).execute(db)
    threads.update_metadata(db, first.thread_id, {LEVELS_KEY: list(marks)})


def list_summaries(db: Database, thread_id: str, *, above: int, limit: int) -> list[SummarisedRange]:
    """Return the newest `limit` summaries of a thread for more than `above` tokens each, oldest first."""
    # SQL: reads JSON inside a column
    newest = db.execute_sql(_SUMMARIES, (thread_id, above, limit)).fetchall()
    return [SummarisedRange(*r) for r in reversed(newest)]
