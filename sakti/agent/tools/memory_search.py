"""Search messages, observations and tasks with memory-search, and open the messages of a hit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from sakti.agent.tools.actions import ActionTool, Field, MissingArgument, Run, make_action_tool
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.task_mutate import QUERY, list_schema, make_integer_schema, make_text_schema
from sakti.core.clock import shorten_id
from sakti.core.errors import MemoryFailure
from sakti.core.text import format_minute, show_value
from sakti.core.tokens import Counter
from sakti.core.types import Json, Message, join_plain_text
from sakti.memory import recall as recall_module
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.search import search
from sakti.store.search import search as search_store
from sakti.store.search.search import Hit, Scope
from sakti.store.threads import messages

FULL_HIT_TOKENS = 1_000
NEIGHBOUR_TOKENS = 400
ALL_HITS_TOKENS = 8_000
PASSAGE = 2_000  # characters round the match of a text that is too long to be shown whole
LONGEST_TOKEN = 4  # characters of one, about
NAMED = 3  # hits that the model sees already are named, so many of them

Around = Annotated[int, Meta(ge=0, le=10)]


class MessageRange(Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers of messages to return before and after each hit."""

    before: Around = 0
    after: Around = 0


class HitRequest(Struct, frozen=True):
    """One call of the search action; `around`: None extends a short message to a passage."""

    query: str
    scope: Scope
    limit: int
    offset: int = 0
    around: MessageRange | None = None


def find_hits(db: Database, request: HitRequest, counter: Counter, in_window: set[str]) -> Json:
    """Return `limit` hits that are not in the window, from the `offset`-th on.

    Short texts are returned in full, long ones as the passage around the match; short messages come with those around
    them. A message is shown once. Ends early above 8,000 tokens: `next` is the offset to continue at, `notes` are
    remarks on the search.
    """
    results: list[Json] = []
    visible = set[str]()
    room = ALL_HITS_TOKENS
    new = named = 0
    at = request.offset
    total = 0
    notes: Sequence[str] = ()
    while new < request.limit:
        page = search.search(db, request.query, request.scope, limit=request.limit + NAMED, offset=at)
        total, notes = page.total, page.notes
        for hit in page.hits:
            if new == request.limit:
                break
            if hit.id in in_window:
                named += 1
                results += [_name_hit(hit)] if named <= NAMED else []
            elif hit.id not in visible:
                entry, cost, neighbours = _build_entry(db, hit, request.around, counter, room, in_window | visible)
                if cost > room:
                    return _build_result(results, total, at, notes)
                new += 1
                room -= cost
                results.append(entry)
                visible |= {hit.id, *neighbours}
            at += 1
        if at >= total or not page.hits:
            break
    return _build_result(results, total, at, notes)


def _build_result(results: Sequence[Json], total: int, at: int, notes: Sequence[str]) -> Json:
    more: Json = {"next": at} if at < total else {}
    return {"results": list(results), "totalHits": total} | more | ({"notes": list(notes)} if notes else {})


def _make_head(hit: Hit) -> Json:
    entry: Json = {
        "id": hit.id,
        "source": hit.source,
        "score": hit.score,
        "time": format_minute(hit.time),
        "thread": hit.thread_title or hit.thread_id,
        "role": hit.role,
    }
    entry |= {"origin": hit.origin} if hit.origin else {}
    return entry | ({"task": hit.task_id} if hit.task_id else {})


def _name_hit(hit: Hit) -> Json:
    return _make_head(hit) | {"text": "[already in the conversation above]"}


class _Neighbour(Struct, frozen=True):
    """Message beside a hit, and as much of its text as is shown."""

    message: Message
    text: str
    tokens: int
    is_cut: bool

    def describe(self, position: int) -> Json:
        message = self.message
        place: Json = {"id": shorten_id(message.id), "position": message.index - position}
        return place | {"role": message.role, "text": self.text} | ({"cut": True} if self.is_cut else {})


def _build_entry(
    db: Database, hit: Hit, around: MessageRange | None, counter: Counter, room: int, shown: set[str]
) -> tuple[Json, int, set[str]]:
    """Return a hit for the model, its tokens and the ids of its complete neighbours.

    It has no more tokens than all hits may have. `shown` messages are not repeated as neighbours.
    """
    entry = _make_head(hit) | _cut_hit(hit, counter, room)
    cost = counter.count(entry["text"])
    near = [m for m in _list_near(db, hit, around) if m.id not in shown and m.id != hit.id]
    neighbours = _cut_neighbours(near, hit.position, counter, ALL_HITS_TOKENS - cost)
    if neighbours:
        entry["neighbours"] = [n.describe(hit.position) for n in neighbours]
    cost += sum(n.tokens for n in neighbours)
    return entry, cost, {n.message.id for n in neighbours if not n.is_cut}


def _cut_hit(hit: Hit, counter: Counter, room: int) -> Json:
    """Return the text of a hit; of a long one the passage around the match, and its offset."""
    text = hit.text
    if len(text) <= FULL_HIT_TOKENS * 6 and counter.count(text) <= min(FULL_HIT_TOKENS, room):
        return {"text": text}
    start = max(0, hit.start - PASSAGE // 3)
    return {"charOffset": start, "text": _cut_text(text[start : start + PASSAGE], ALL_HITS_TOKENS, counter)}


def _list_near(db: Database, hit: Hit, around: MessageRange | None) -> list[Message]:
    if hit.kind != "message" or not hit.thread_id:
        return []
    if around is None:
        return recall_module.list_passage(db, hit.thread_id, hit.position)
    rows = messages.list_between(db, hit.thread_id, hit.position - around.before, hit.position + around.after)
    return [row for row in rows if row.state == "saved"]


def _cut_neighbours(near: Sequence[Message], position: int, counter: Counter, room: int) -> list[_Neighbour]:
    """Return the messages around a position in their order; the farthest are left out if there is no room."""
    neighbours: list[_Neighbour] = []
    for message in sorted(near, key=lambda m: abs(m.index - position)):
        full_text = join_plain_text(message.parts)
        if not full_text.strip():
            continue
        text = _cut_text(full_text, NEIGHBOUR_TOKENS, counter)
        size = counter.count(text)
        if size > room:
            break
        room -= size
        neighbours.append(_Neighbour(message, text, size, text != full_text))
    return sorted(neighbours, key=lambda n: n.message.index)


def _cut_text(text: str, tokens: int, counter: Counter) -> str:
    """Return the beginning of a text that has so many tokens at most."""
    text = text[: tokens * LONGEST_TOKEN]
    while (size := counter.count(text)) > tokens:
        text = text[: len(text) * tokens // (size + 1)]
    return text


KINDS = ("message", "observation", "reflection", "task", "working_memory")


def _read_range(value: Any) -> MessageRange:
    """Parse how many messages come with a hit: a number for both sides, or `{before, after}`."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    try:
        return msgspec.convert(value if isinstance(value, dict) else {"before": value, "after": value}, MessageRange)
    except msgspec.ValidationError as e:
        raise ValueError(f"0 to 10, or {{before, after}} with such numbers, not {show_value(value)}.") from e


FIELDS = (
    QUERY,
    Field("limit", make_integer_schema(minimum=1, maximum=20), ("max", "maxResults", "count", "n", "top", "topK")),
    Field("offset", make_integer_schema("continue from an earlier answer's `next`", minimum=0), ("skip", "start")),
    Field("kinds", list_schema(enum=list(KINDS)), ("kind", "types", "type"), {"memory": "working_memory"}),
    Field("scope", make_text_schema(enum=["thread", "workspace"]), (), {"resource": "workspace", "all": "workspace"}),
    Field(
        "messageRange",
        make_integer_schema("messages around each hit", minimum=0, maximum=10),
        ("around", "context"),
        read=_read_range,
    ),
    Field(
        "id",
        make_text_schema("recall: message or group id, or its short form"),
        ("messageId", "groupId", "cursor", "range"),
    ),
    Field("page", make_integer_schema("recall: pages forward (1, 2 …) or back (-1, -2 …); 0 is the place itself")),
    Field("detail", make_text_schema(enum=["low", "high"])),
    Field("partIndex", make_integer_schema("recall: one part, in full", minimum=0), ("part",)),
    Field("charOffset", make_integer_schema("recall: where in that part to start", minimum=0)),
)

MISSING = {
    "query": MissingArgument(
        "needs a query: words that would occur in the text, such as names of functions, files, errors"
    ),
    "id": MissingArgument("needs id, the id of a message or an observation group"),
}


def make_memory_search(
    store: Store, *, resource_id: str, counter: Counter, in_window: Callable[[], set[str]]
) -> ActionTool:
    """Make the tool for one workspace; `in_window` gives the ids of messages that the model sees already."""
    actions = {
        "search": _make_search(store, resource_id, counter, in_window),
        "recall": _make_recall(store, resource_id, counter),
    }
    return make_action_tool("memory-search", FIELDS, actions, parallel=True, missing=MISSING, usual="search")


def _make_search(store: Store, resource_id: str, counter: Counter, in_window: Callable[[], set[str]]) -> Run:

    async def search(
        run: ToolContext,
        *,
        query: str,
        limit: int = 5,
        offset: int = 0,
        kinds: Sequence[str] = (),
        scope: str = "workspace",
        messageRange: MessageRange | None = None,
    ) -> Json:
        if not query.strip():
            raise MemoryFailure(f"search {MISSING['query'].sentence}.", code="invalid")
        where = search_store.Scope(resource_id, run.thread_id if scope == "thread" else None, tuple(kinds))
        request = HitRequest(query, where, limit, offset, messageRange)
        return await store.read(find_hits, request, counter, in_window())

    return search


def _make_recall(store: Store, resource_id: str, counter: Counter) -> Run:
    async def recall(
        run: ToolContext,
        *,
        id: str,
        page: int = 0,
        detail: Literal["low", "high"] = "low",
        partIndex: int | None = None,
        charOffset: int = 0,
    ) -> Json:
        asking = recall_module.AskingThread(resource_id, run.thread_id)
        request = recall_module.RecallRequest(id, page, detail, partIndex, charOffset)
        return await recall_module.recall(store, counter, asking, request)

    return recall
