"""Short ways to write messages and requests for provider tests, and to play a stream to its end."""

from __future__ import annotations

from contextlib import aclosing
from itertools import count
from typing import Any

from sakti.core.types import Block, Message, Part, Request, TextPart, ToolCallPart, ToolResultPart, ToolSpec
from sakti.providers.protocol import Completed, Provider, StreamEvent

_numbers = count()
READ = ToolSpec(
    "read",
    "Read a file. Lines are numbered.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)


def message(role: Any, *parts: Part | str) -> Message:
    made = tuple(TextPart(p) if isinstance(p, str) else p for p in parts)
    return Message(f"m{next(_numbers)}", "thread", "resource", role, made, 0)


def call(call_id: str = "c1", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(call_id, "read", arguments or {"path": "a.py"})


def result(call_id: str = "c1", content: str = "1\tx = 1") -> ToolResultPart:
    return ToolResultPart(call_id, "read", content)


def request(*messages: Message, **fields: Any) -> Request:
    fields.setdefault("model", "test-model")
    fields.setdefault("system", (Block("system", "You help.", edge=True),))
    return Request(messages=messages or (message("user", "hello"),), **fields)


async def play(provider: Provider, asked: Request) -> tuple[list[StreamEvent], Completed]:
    events: list[StreamEvent] = []
    async with aclosing(provider.stream(asked)) as stream:  # type: ignore[type-var]
        async for event in stream:
            events.append(event)
    last = events.pop()
    assert isinstance(last, Completed)
    assert not any(isinstance(e, Completed) for e in events)
    return events, last
