"""Search messages, observations and tasks with memory-search, and open the messages behind a hit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from sakti.agent.tools.actions import ActionTool, Field, action_tool
from sakti.agent.tools.context import ToolContext
from sakti.agent.tools.hits import MessageRange, find
from sakti.agent.tools.task_fields import MISSING, QUERY, text, texts, whole
from sakti.core.errors import MemoryFailure
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.memory import recall as recall_module
from sakti.store.database import Store
from sakti.store.search import search as search_store

KINDS = ("message", "observation", "reflection", "task", "working_memory")


def _range(value: Any) -> MessageRange:
    """Parse how many messages come with a hit: a number for both sides, or `{before, after}`."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    try:
        return msgspec.convert(value if isinstance(value, dict) else {"before": value, "after": value}, MessageRange)
    except msgspec.ValidationError as e:
        raise ValueError(f"0 to 10, or {{before, after}} with such numbers, not {value!r}.") from e


FIELDS = (
    QUERY,
    Field("limit", whole(minimum=1, maximum=20), ("max", "maxResults", "count", "n", "top", "topK")),
    Field("offset", whole("go on from an earlier answer's `next`", minimum=0), ("skip", "start")),
    Field("kinds", texts(enum=list(KINDS)), ("kind", "types", "type"), {"memory": "working_memory"}),
    Field("scope", text(enum=["thread", "workspace"]), (), {"resource": "workspace", "all": "workspace"}),
    Field(
        "messageRange",
        whole("messages around each hit", minimum=0, maximum=10),
        ("around", "context"),
        read=_range,
    ),
    Field("id", text("recall: message or group id, or its short form"), ("messageId", "groupId", "cursor", "range")),
    Field("page", whole("recall: pages forward (1, 2 …) or back (-1, -2 …); 0 is the place itself")),
    Field("detail", text(enum=["low", "high"])),
    Field("partIndex", whole("recall: one part, whole", minimum=0), ("part",)),
    Field("charOffset", whole("recall: where in that part to begin", minimum=0)),
)


def make(store: Store, *, resource_id: str, counter: Counter, in_window: Callable[[], set[str]]) -> ActionTool:
    """Make the tool for one workspace; `in_window` gives the ids of messages that the model sees already."""

    async def search(
        run: ToolContext,
        *,
        query: str,
        limit: int = 5,
        offset: int = 0,
        kinds: Sequence[str] = (),
        scope: str = "workspace",
        messageRange: MessageRange = MessageRange(),  # noqa: B008
    ) -> Json:
        if not query.strip():
            raise MemoryFailure(
                "search needs a query: words that would stand in the text, as names of functions, files, errors.",
                code="invalid",
            )
        where = search_store.Scope(resource_id, run.thread_id if scope == "thread" else None, tuple(kinds))
        return await store.read(
            find,
            query,
            where,
            limit=limit,
            offset=offset,
            around=messageRange,
            counter=counter,
            in_window=in_window(),
        )

    async def recall(
        run: ToolContext,
        *,
        id: str,
        page: int = 0,
        detail: Literal["low", "high"] = "low",
        partIndex: int | None = None,
        charOffset: int = 0,
    ) -> Json:
        return await recall_module.recall(
            store,
            counter,
            resource_id=resource_id,
            thread_id=run.thread_id,
            id=id,
            page=page,
            detail=detail,
            part_index=partIndex,
            char_offset=charOffset,
        )

    actions = {"search": search, "recall": recall}
    return action_tool("memory-search", FIELDS, actions, parallel=True, missing=MISSING, usual="search")
