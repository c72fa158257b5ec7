"""A request as the body of Anthropic's Messages API. Pure, so that prompt caching can be measured on it.

The cache breaks at up to four places: stable edges of the system prompt (the first covers the tools), the
last block of what is stored, and one every fifteen blocks before it, because a lookup goes back twenty blocks
only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sakti.core.types import (
    Block,
    FilePart,
    ImagePart,
    Json,
    Message,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.providers.history import call_arguments, file_text, turns

BREAKPOINTS = 4
BLOCK_DISTANCE = 15
SMALLEST_THINKING = 1024
_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "tool_use", "tool_result"})


def render(request: Request, provider: str = "anthropic") -> Json:
    """The JSON body of `request`, without `stream`."""
    messages = _messages(request.messages, provider)
    system = [_text(b.text) for b in request.system if b.text.strip()]
    tools: list[Json] = [
        {"name": t.name, "description": t.description, "input_schema": _object_schema(t.parameters)}
        for t in request.tools
    ]
    edges = _edges([b for b in request.system if b.text.strip()])
    for index in edges:
        system[index]["cache_control"] = _EPHEMERAL
    used = len(edges)
    if tools and not edges:
        tools[-1]["cache_control"] = _EPHEMERAL
        used = 1
    _mark_messages(messages, BREAKPOINTS - used)
    _append_tail(messages, request.tail)

    body: Json = {"model": request.model, "max_tokens": _max_tokens(request), "messages": messages}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    if request.thinking_tokens:
        body["thinking"] = _thinking(request.model, request.thinking_tokens)
    if request.schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.schema}}
    return body


def _messages(messages: Sequence[Message], provider: str) -> list[Json]:
    out: list[Json] = []
    for turn in turns(messages, provider):
        out.append({"role": turn.role, "content": [_block(p) for p in turn.parts]})
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [_text("(the conversation before this is not shown)")]})
    return out


def _block(part: Part) -> Json:
    match part:
        case TextPart(text):
            return _text(text)
        case ThinkingPart(text, _, opaque):
            if "redacted" in opaque:
                return {"type": "redacted_thinking", "data": opaque["redacted"]}
            return {"type": "thinking", "thinking": text, "signature": opaque.get("signature", "")}
        case ToolCallPart(call_id, name):
            return {"type": "tool_use", "id": call_id, "name": name, "input": call_arguments(part)}
        case ToolResultPart(call_id, _, content, is_error):
            block: Json = {"type": "tool_result", "tool_use_id": call_id, "content": content or "(no output)"}
            if is_error:
                block["is_error"] = True
            return block
        case ImagePart(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case FilePart():
            return _text(file_text(part))
        case _:
            raise TypeError(f"{type(part).__name__} is never sent")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _object_schema(schema: Json) -> Json:
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def _edges(blocks: Sequence[Block]) -> list[int]:
    """Where the system prompt breaks: its stable edges, of more than three the first and the last two."""
    edges = [i for i, b in enumerate(blocks) if b.edge]
    return edges if len(edges) < BREAKPOINTS else [edges[0], *edges[-2:]]


def _mark_messages(messages: Sequence[Json], budget: int) -> None:
    blocks: list[Json] = [block for message in messages for block in message["content"]]
    position = len(blocks) - 1
    while budget > 0 and position >= 0:
        if blocks[position]["type"] not in _CACHEABLE:
            position -= 1
            continue
        blocks[position]["cache_control"] = _EPHEMERAL
        budget -= 1
        position -= BLOCK_DISTANCE


def _append_tail(messages: list[Json], tail: str) -> None:
    if not tail.strip():
        return
    if messages and messages[-1]["role"] == "user":
        messages[-1]["content"].append(_text(tail))
    else:
        messages.append({"role": "user", "content": [_text(tail)]})


def version(model: str) -> tuple[int, int]:
    """Generation of a Claude model, (4, 6) for claude-opus-4-6; (0, 0) for a name that says none."""
    found = re.search(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)", model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def default_max_tokens(model: str) -> int:
    """Output tokens asked for when the request names no limit: below every model's own maximum."""
    generation = version(model)
    if generation >= (4, 0):
        return 32_000
    return 4_096 if (3, 0) <= generation < (3, 5) else 8_192


def _max_tokens(request: Request) -> int:
    limit = request.max_output_tokens or default_max_tokens(request.model)
    # The API counts thinking into this limit and wants it to be larger than the thinking alone.
    return max(limit, request.thinking_tokens + SMALLEST_THINKING) if request.thinking_tokens else limit


def _thinking(model: str, tokens: int) -> Json:
    """Models from 4.6 on decide themselves how much they think; those before it need a budget."""
    generation: Any = version(model)
    if generation >= (4, 6):
        return {"type": "adaptive", "display": "summarized"}
    return {"type": "enabled", "budget_tokens": max(SMALLEST_THINKING, tokens)}
