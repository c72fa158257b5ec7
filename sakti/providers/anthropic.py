"""Call Anthropic's Messages API and compatible gateways.

There are up to four cache breakpoints: stable edges of the system prompt (the first covers the tools), the last stored
block, and one every fifteen blocks before it, because a lookup goes back only twenty blocks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import ClassVar, cast

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
    Usage,
)
from sakti.providers import facts
from sakti.providers.errors import from_event
from sakti.providers.facts import Family
from sakti.providers.history import clean_call_id, format_file, get_arguments, make_turns, merge_extra, read_arguments
from sakti.providers.omissions import ANTHROPIC_LEAST_THINKING
from sakti.providers.parser import StreamedBlock, StreamParser
from sakti.providers.protocol import StreamEvent, read_table, read_tokens
from sakti.providers.remote import RemoteProvider

BREAKPOINTS = 4
BLOCK_DISTANCE = 15
USUAL_MAXIMUM, LEAST_MAXIMUM = 32_000, 8_192
_EPHEMERAL = {"type": "ephemeral"}
_CACHEABLE = frozenset({"text", "image", "tool_use", "tool_result"})


def render(request: Request, provider: str = "anthropic") -> Json:
    """Render the JSON body of `request`, without `stream`."""
    messages = _render_messages(request.messages, provider, request.model)
    blocks = [b for b in request.system if b.text.strip()]
    system = [_render_text(b.text) for b in blocks]
    tools: list[Json] = [
        {"name": t.name, "description": t.description, "input_schema": _make_object_schema(t.parameters)}
        for t in request.tools
    ]
    used = _mark_prefix(system, tools, _select_breakpoints(blocks))
    _mark_messages(messages, BREAKPOINTS - used)
    _append_tail(messages, request.tail)

    output = request.max_output_tokens or compute_max_tokens(request.model, provider)
    body: Json = {"model": request.model, "max_tokens": output, "messages": messages}
    if system:
        body["system"] = system
    if tools:
        body["tools"] = tools
        if request.tool_choice == "none":
            body["tool_choice"] = {"type": "none"}
    body |= _build_thinking_parameters(request, facts.find_family(provider, request.model), output)
    if request.schema is not None:
        schema = {"format": {"type": "json_schema", "schema": request.schema}}
        body["output_config"] = {**body.get("output_config", {}), **schema}
    return merge_extra(body, request.extra)


def _mark_prefix(system: Sequence[Json], tools: Sequence[Json], edges: Sequence[int]) -> int:
    """Mark the edges of the system prompt, or the last tool; return the number of breakpoints used."""
    for index in edges:
        system[index]["cache_control"] = _EPHEMERAL
    if tools and not edges:
        tools[-1]["cache_control"] = _EPHEMERAL
        return 1
    return len(edges)


def _render_messages(messages: Sequence[Message], provider: str, model: str) -> list[Json]:
    out: list[Json] = []
    for turn in make_turns(messages, provider, model):
        out.append({"role": turn.role, "content": [_block(p) for p in turn.parts]})
    if out and out[0]["role"] == "assistant":
        out.insert(0, {"role": "user", "content": [_render_text("(the conversation before this is not shown)")]})
    return out


def _block(part: Part) -> Json:
    match part:
        case TextPart(text):
            return _render_text(text)
        case ThinkingPart():
            return _render_thinking(part)
        case ToolCallPart(call_id, name):
            return {"type": "tool_use", "id": clean_call_id(call_id), "name": name, "input": get_arguments(part)}
        case ToolResultPart(call_id, _, content, is_error):
            block: Json = {
                "type": "tool_result",
                "tool_use_id": clean_call_id(call_id),
                "content": content or "(no output)",
            }
            if is_error:
                block["is_error"] = True
            return block
        case ImagePart(media_type, data):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        case FilePart():
            return _render_text(format_file(part))
        case _:
            raise TypeError(f"{type(part).__name__} is never sent")


def _render_thinking(part: ThinkingPart) -> Json:
    if "block" in part.opaque:
        return dict(part.opaque["block"])
    if "redacted" in part.opaque:
        return {"type": "redacted_thinking", "data": part.opaque["redacted"]}
    return {"type": "thinking", "thinking": part.text, "signature": part.opaque.get("signature", "")}


def _render_text(text: str) -> Json:
    return {"type": "text", "text": text}


def _make_object_schema(schema: Json) -> Json:
    return schema if schema.get("type") == "object" else {"type": "object", **schema}


def _select_breakpoints(blocks: Sequence[Block]) -> list[int]:
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
        messages[-1]["content"].append(_render_text(tail))
    else:
        messages.append({"role": "user", "content": [_render_text(tail)]})


def compute_max_tokens(model: str, provider: str = "anthropic") -> int:
    """Return the default output limit: 32,000 tokens, or the model's maximum if that is less."""
    return min(facts.find_family(provider, model).max_output or LEAST_MAXIMUM, USUAL_MAXIMUM)


def _build_thinking_parameters(request: Request, family: Family, output: int) -> Json:
    """Return the thinking parameters.

    Newer models take an effort, older ones a token budget. The API counts the budget towards `max_tokens`, so half of
    that is left for the answer.
    """
    effort = request.effort or (facts.convert_to_effort(request.thinking_tokens) if request.thinking_tokens else "off")
    kind = family.thinking if family is not facts.UNKNOWN else "budget" if request.thinking_tokens else ""
    if effort == "off":
        return {}
    if kind == "adaptive":
        word = facts.get_effort_word(family, effort)
        return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": word}}
    if kind != "budget":
        return {}
    tokens = facts.compute_thinking_budget(effort, request.thinking_tokens, output, ANTHROPIC_LEAST_THINKING)
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}} if tokens else {}


# Blocks of tools that the server runs are sent back unchanged.
_SERVER_BLOCKS = ("_tool_use", "_tool_result")
# Fields of a delta by its type.
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class AnthropicStreamParser(StreamParser):
    """Collects the events of the Messages API."""

    kinds: ClassVar = {"tool_use": "call"}

    def _read(self, event: Json) -> list[StreamEvent]:
        match event.get("type"):
            case "content_block_delta":
                return self._read_delta(event)
            case "content_block_start":
                return self._open_block(event)
            case "message_start":
                message = cast("Json", event.get("message") or {})
                self.model = str(message.get("model") or "")
                self._count(message.get("usage"))
            case "message_delta":
                delta = cast("Json", event.get("delta") or {})
                self.reason = str(delta.get("stop_reason") or "") or self.reason
                self._count(event.get("usage"))
            case "message_stop":
                self.done = True
            case "error":
                raise from_event(event, self._context)
            case _:
                return []  # `ping`, `content_block_stop` and unknown events carry nothing to show
        return []

    def _open_block(self, event: Json) -> list[StreamEvent]:
        content = cast("Json", event.get("content_block") or {})
        block = StreamedBlock(self._translate_kind(content.get("type")), wire=dict(content))
        self.blocks[int(event.get("index", len(self.blocks)))] = block
        if block.kind == "call":
            return self._open_call(block, content.get("id"), content.get("name"))
        text = content.get(block.kind) if block.kind in ("text", "thinking") else None
        return self._add(block, text) if text else []

    def _read_delta(self, event: Json) -> list[StreamEvent]:
        block = self.blocks.get(int(event.get("index", -1)))
        delta = cast("Json", event.get("delta") or {})
        kind = str(delta.get("type"))
        if block is None:
            return []
        if kind == "signature_delta":
            block.wire.setdefault("signatures", []).append(delta["signature"])
        elif name := _DELTAS.get(kind):
            return self._add(block, delta[name])
        return []

    def _part(self, block: StreamedBlock) -> Part | None:
        match block.kind:
            case "thinking":
                signature = "".join(block.wire.get("signatures", ())) or str(block.wire.get("signature") or "")
                return self._make_thinking_part(block.text, {"signature": signature} if signature else {})
            case "redacted_thinking":
                return self._make_thinking_part("", {"redacted": block.wire.get("data", "")})
            case "call":
                # Gateways may send the whole input at the start and no deltas.
                full_input = block.wire.get("input")
                return self._call_part(block, block.text or (json.dumps(full_input) if full_input else ""))
            case kind if kind.endswith(_SERVER_BLOCKS):
                arguments = {"input": read_arguments(block.text)} if block.text else {}
                return self._make_thinking_part("", {"block": {**block.wire, **arguments}})
            case _:
                return super()._part(block)

    def _read_usage(self, counts: Json) -> Usage:
        read = read_tokens(counts.get("cache_read_input_tokens"))
        written = read_tokens(counts.get("cache_creation_input_tokens"))
        details = read_table(counts.get("output_tokens_details"))
        return Usage(
            read_tokens(counts.get("input_tokens")) + read + written,  # the API counts them beside its `input_tokens`
            read,
            written,
            read_tokens(counts.get("output_tokens")),
            read_tokens(details.get("thinking_tokens")),
        )


class AnthropicProvider(RemoteProvider):
    """Provider for the Messages API."""

    path = "/v1/messages"
    parser = AnthropicStreamParser
    version = "/v1"
    listing = "/v1/models?limit=100"
    searching = "anthropic"

    def _render(self, request: Request) -> Json:
        return render(request, self.name)

    def _split(self, answer: Json) -> list[Json]:
        content = cast("list[Json]", answer.get("content") or [])
        if answer.get("type") != "message":
            return []
        blocks = [{"type": "content_block_start", "index": n, "content_block": b} for n, b in enumerate(content)]
        delta = {"stop_reason": answer.get("stop_reason")}
        end = {"type": "message_delta", "delta": delta, "usage": answer.get("usage")}
        return [{"type": "message_start", "message": answer}, *blocks, end, {"type": "message_stop"}]
