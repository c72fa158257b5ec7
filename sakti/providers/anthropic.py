"""Call Anthropic's Messages API and compatible gateways."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, cast

from msgspec import Struct, field

from sakti.core.types import Json, Part, Request, TextPart, ThinkingPart, ToolCallPart, Usage
from sakti.providers import prices, stops
from sakti.providers.anthropic_render import render
from sakti.providers.history import CallIds, read_arguments
from sakti.providers.protocol import StreamEvent, TextChunk, ThinkingChunk, ToolCallChunk
from sakti.providers.refusals import Where, from_event
from sakti.providers.remote import RemoteProvider
from sakti.providers.sse import chunks, protocol_errors, whole_parts
from sakti.providers.usage import table, tokens

# Blocks of tools that the server runs: they go back as they came.
_SERVER_BLOCKS = ("_tool_use", "_tool_result")


class AnthropicProvider(RemoteProvider):
    """Provider for the Messages API."""

    version = "/v1"
    listing = "/v1/models?limit=100"

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        body = render(self._with_extra(request), self.name)
        async with contextlib.aclosing(self._taken.stream(request.model, body, partial(self._once, request))) as events:
            async for event in events:
                yield event

    async def _once(self, request: Request, body: Json) -> AsyncGenerator[StreamEvent]:
        answer = _Answer(self.name, request.model, CallIds(request.messages), self._where)
        async with self._server.events("/v1/messages", body, _as_events) as events:
            async for chunk in chunks(events, self._where, answer):
                yield chunk
        with protocol_errors(self._where):
            parts = whole_parts(answer.parts())
        usage = prices.with_cost(answer.usage(), self.name, request.model)
        yield stops.completed(answer.reason, parts, usage, answer.model or request.model)

    async def count_tokens(self, request: Request) -> int | None:
        """Return the input tokens as the API counts them; None on Bedrock, which does not count."""
        if self._endpoint.client == "bedrock":
            return None
        body = {k: v for k, v in render(request, self.name).items() if k != "max_tokens"}
        counted = await self._server.post("/v1/messages/count_tokens", body)
        with protocol_errors(self._where):
            return int(counted["input_tokens"])


def _as_events(whole: Json) -> list[Json]:
    """Convert an answer that came in one piece to the events of a stream; empty for anything else."""
    content = cast("list[Json]", whole.get("content") or [])
    if whole.get("type") != "message":
        return []
    starts = [{"type": "content_block_start", "index": n, "content_block": block} for n, block in enumerate(content)]
    end = {"type": "message_delta", "delta": {"stop_reason": whole.get("stop_reason")}, "usage": whole.get("usage")}
    return [{"type": "message_start", "message": whole}, *starts, end, {"type": "message_stop"}]


class _Block(Struct):
    """Content block being received; `pieces` are joined once, at the end."""

    kind: str
    call_id: str = ""
    name: str = ""
    start: Json = field(default_factory=dict[str, Any])
    pieces: list[str] = field(default_factory=list[str])
    signature: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class _Answer:
    """Collects the events of one stream into an answer."""

    def __init__(self, provider: str, asked: str, ids: CallIds, where: Where) -> None:
        self.done = False
        self.reason = ""
        self.model = ""
        self._provider, self._asked = provider, asked
        self._ids = ids
        self._where = where
        self._blocks: dict[int, _Block] = {}
        self._usage: Json = {}

    @property
    def complete(self) -> bool:
        return (self.done or bool(self.reason)) and stops.classify(self.reason) != "cut"

    def take(self, event: Json) -> list[StreamEvent]:
        match event.get("type"):
            case "content_block_delta":
                return self._delta(event)
            case "content_block_start":
                return self._start(event)
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
                raise from_event(event, self._where)
            case _:
                pass
        return []

    def _start(self, event: Json) -> list[StreamEvent]:
        content = cast("Json", event.get("content_block") or {})
        block = _Block(str(content.get("type")), start=content)
        self._blocks[int(event.get("index", len(self._blocks)))] = block
        match block.kind:
            case "tool_use":
                block.call_id = self._ids.unique(content.get("id"))
                block.name = str(content.get("name") or "")
                return [ToolCallChunk(block.call_id, block.name, "")]
            case "text" if content.get("text"):
                block.pieces.append(content["text"])
                return [TextChunk(content["text"])]
            case "thinking" if content.get("thinking"):
                block.pieces.append(content["thinking"])
                return [ThinkingChunk(content["thinking"])]
            case _:
                return []

    def _delta(self, event: Json) -> list[StreamEvent]:
        block = self._blocks.get(int(event.get("index", -1)))
        delta = cast("Json", event.get("delta") or {})
        if block is None:
            return []
        match delta.get("type"):
            case "text_delta":
                block.pieces.append(delta["text"])
                return [TextChunk(delta["text"])]
            case "thinking_delta":
                block.pieces.append(delta["thinking"])
                return [ThinkingChunk(delta["thinking"])]
            case "input_json_delta":
                block.pieces.append(delta["partial_json"])
                if block.kind != "tool_use":
                    return []
                return [ToolCallChunk(block.call_id, block.name, delta["partial_json"])]
            case "signature_delta":
                block.signature.append(delta["signature"])
                return []
            case _:
                return []

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.update({k: v for k, v in cast("Json", usage).items() if v is not None})

    def usage(self) -> Usage:
        """Return the usage; the API counts cache reads and writes beside `input_tokens`, ours includes them."""
        u = self._usage
        read, written = tokens(u.get("cache_read_input_tokens")), tokens(u.get("cache_creation_input_tokens"))
        details = table(u.get("output_tokens_details"))
        return Usage(
            tokens(u.get("input_tokens")) + read + written,
            read,
            written,
            tokens(u.get("output_tokens")),
            tokens(details.get("thinking_tokens")),
        )

    def parts(self) -> tuple[Part, ...]:
        return tuple(p for _, b in sorted(self._blocks.items()) if (p := self._part(b)) is not None)

    def _part(self, block: _Block) -> Part | None:
        match block.kind:
            case "text":
                return TextPart(block.text) if block.text else None
            case "thinking":
                signature = "".join(block.signature) or str(block.start.get("signature") or "")
                return ThinkingPart(
                    block.text, self._provider, {"signature": signature} if signature else {}, self._asked
                )
            case "redacted_thinking":
                return ThinkingPart("", self._provider, {"redacted": block.start.get("data", "")}, self._asked)
            case "tool_use":
                # Gateways may send the whole input at the start and no deltas.
                raw = block.text or (json.dumps(block.start["input"]) if block.start.get("input") else "")
                arguments = read_arguments(raw)
                return ToolCallPart(block.call_id, block.name, arguments, raw if arguments is None else "")
            case kind if kind.endswith(_SERVER_BLOCKS):
                sent = {**block.start, "input": read_arguments(block.text)} if block.text else block.start
                return ThinkingPart("", self._provider, {"block": sent}, self._asked)
            case _:
                return None
