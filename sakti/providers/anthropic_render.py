"""Render a request as the body of Anthropic's Messages API. Pure: prompt caching is measured on it.

There are up to four cache breakpoints: stable edges of the system prompt (the first covers the tools), the last block
of what is stored, and one every fifteen blocks before it, because a lookup goes back twenty blocks only.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from sakti.providers import facts
from sakti.providers.facts import Family
from sakti.providers.history import call_arguments, file_text, merged, turns, valid_id

BREAKPOINTS = 4
BLOCK_DISTANCE = 15
SMALLEST_THINKING = 1024
USUAL_MAXIMUM, LEAST_MAXIMUM = 32_000, 8_192
_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "tool_use", "tool_result"})


def render(request: Request, provider: str = "anthropic") -> Json:
    """Render the JSON body of `request`, without `stream`."""
    messages = _messages(request.messages, provider, request.model)
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

    output = request.max_output_tokens or default_max_tokens(request.model, provider)
    body: Json = {"model": request.model, "max_tokens": output, "messages": messages}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    body |= _thinking(request, facts.family(provider, request.model), output)
    if request.schema is not None:
        schema = {"format": {"type": "json_schema", "schema": request.schema}}
        body["output_config"] = {**body.get("output_config", {}), **schema}
    return merged(body, request.extra)


def _messages(messages: Sequence[Message], provider: str, model: str) -> list[Json]:
    out: list[Json] = []
    for turn in turns(messages, provider, model):
        out.append({"role": turn.role, "content": [_block(p) for p in turn.parts]})
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [_text("(the conversation before this is not shown)")]})
    return out


def _block(part: Part) -> Json:
    match part:
        case TextPart(text):
            return _text(text)
        case ThinkingPart(text, _, opaque):
            if "block" in opaque:
                return dict(opaque["block"])
            if "redacted" in opaque:
                return {"type": "redacted_thinking", "data": opaque["redacted"]}
            return {"type": "thinking", "thinking": text, "signature": opaque.get("signature", "")}
        case ToolCallPart(call_id, name):
            return {"type": "tool_use", "id": valid_id(call_id), "name": name, "input": call_arguments(part)}
        case ToolResultPart(call_id, _, content, is_error):
            block: Json = {"type": "tool_result", "tool_use_id": valid_id(call_id), "content": content or "(no output)"}
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
    """Return the cache breakpoints in the system prompt: at most the first and the last two edges."""
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


def default_max_tokens(model: str, provider: str = "anthropic") -> int:
    """Return the default output limit: 32,000 tokens, or the model's maximum if that is less."""
    return min(facts.family(provider, model).max_output or LEAST_MAXIMUM, USUAL_MAXIMUM)


def _thinking(request: Request, found: Family, output: int) -> Json:
    """Return the thinking parameters.

    Newer models take an effort; older ones a budget, which the API counts into `max_tokens`: half of that is left for
    the answer.
    """
    effort = request.effort or (facts.effort_of(request.thinking_tokens) if request.thinking_tokens else "off")
    kind = found.thinking if found is not facts.UNKNOWN else "budget" if request.thinking_tokens else ""
    if effort == "off":
        return {}
    if kind == "adaptive":
        word = facts.effort_word(found, effort)
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": word}}
    tokens = facts.budget(effort, request.thinking_tokens, output, SMALLEST_THINKING) if kind == "budget" else 0
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens else {}
