"""Call Anthropic's Messages API and compatible gateways."""

from __future__ import annotations

import json
from typing import Any, cast

from msgspec import Struct, field

from sakti.core.types import Json, Part, Request, TextPart, ThinkingPart, ToolCallPart, Usage
from sakti.providers import remote
from sakti.providers.anthropic_render import render
from sakti.providers.history import CallIds, read_arguments
from sakti.providers.protocol import StreamEvent, TextChunk, ThinkingChunk, ToolCallChunk, read_table, read_tokens
from sakti.providers.refusals import Where, from_event
from sakti.providers.remote import RemoteProvider
from sakti.providers.sse import StreamParser

# Blocks of tools that the server runs: they go back as they came.
_SERVER_BLOCKS = ("_tool_use", "_tool_result")


class _StreamedBlock(Struct):
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


class AnthropicStreamParser(StreamParser):
    """Collects the events of the Messages API."""

    def __init__(self, provider: str, requested: str, ids: CallIds, where: Where) -> None:
        super().__init__(provider, requested, ids, where)
        self._blocks: dict[int, _StreamedBlock] = {}
        self._counts: Json = {}

    @property
    def complete(self) -> bool:
        return (self.done or bool(self.reason)) and remote.classify(self.reason) != "cut"

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
                return []  # `ping`, `content_block_stop` and what newer servers send carry nothing to show
        return []

    def _start(self, event: Json) -> list[StreamEvent]:
        content = cast("Json", event.get("content_block") or {})
        block = _StreamedBlock(str(content.get("type")), start=content)
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
        self._counts.update({k: v for k, v in read_table(usage).items() if v is not None})
        self.usage = _read_usage(self._counts)

    def parts(self) -> tuple[Part, ...]:
        return tuple(p for _, b in sorted(self._blocks.items()) if (p := self._part(b)) is not None)

    def _part(self, block: _StreamedBlock) -> Part | None:
        match block.kind:
            case "text":
                return TextPart(block.text) if block.text else None
            case "thinking":
                signature = "".join(block.signature) or str(block.start.get("signature") or "")
                return ThinkingPart(
                    block.text, self._provider, {"signature": signature} if signature else {}, self._requested
                )
            case "redacted_thinking":
                return ThinkingPart("", self._provider, {"redacted": block.start.get("data", "")}, self._requested)
            case "tool_use":
                # Gateways may send the whole input at the start and no deltas.
                raw = block.text or (json.dumps(block.start["input"]) if block.start.get("input") else "")
                arguments = read_arguments(raw)
                return ToolCallPart(block.call_id, block.name, arguments, raw if arguments is None else "")
            case kind if kind.endswith(_SERVER_BLOCKS):
                sent = {**block.start, "input": read_arguments(block.text)} if block.text else block.start
                return ThinkingPart("", self._provider, {"block": sent}, self._requested)
            case _:
                return None


def _read_usage(u: Json) -> Usage:
    """Read the usage; the API counts cache reads and writes beside `input_tokens`, ours includes them."""
    read, written = read_tokens(u.get("cache_read_input_tokens")), read_tokens(u.get("cache_creation_input_tokens"))
    details = read_table(u.get("output_tokens_details"))
    return Usage(
        read_tokens(u.get("input_tokens")) + read + written,
        read,
        written,
        read_tokens(u.get("output_tokens")),
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
