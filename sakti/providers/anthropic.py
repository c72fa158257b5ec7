"""Call Anthropic's Messages API and compatible gateways."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.core.config.providers import ProviderSettings
from sakti.core.types import Json, ModelInfo, Part, Request, TextPart, ThinkingPart, ToolCallPart, Usage
from sakti.providers import facts, prices, server, serving, stops
from sakti.providers.accepts import RefusedParameters
from sakti.providers.anthropic_render import render
from sakti.providers.errors import no_key
from sakti.providers.facts import Served
from sakti.providers.history import CallIds, merged, read_arguments
from sakti.providers.protocol import StreamEvent, TextChunk, ThinkingChunk, ToolCallChunk
from sakti.providers.refusals import Where, from_event
from sakti.providers.server import Server
from sakti.providers.sse import chunks, protocol_errors, whole_parts
from sakti.providers.usage import table, tokens

BASE_URL = "https://api.anthropic.com"
API_VERSION, GATEWAY_VERSION = "2026-10-21", "2023-06-01"
# Blocks of tools that the server runs: they go back as they came.
_SERVER_BLOCKS = ("_tool_use", "_tool_result")


class AnthropicProvider:
    """Provider for the Messages API.

    `key` may be None where the server needs none; `timeout` is the longest silence in seconds. `elsewhere`: the
    server is not the provider's own; `extra` goes into every body.
    """

    def __init__(
        self,
        key: str | None,
        *,
        name: str = "anthropic",
        base_url: str = BASE_URL,
        key_env: str = "ANTHROPIC_API_KEY",
        timeout: float = 120.0,
        context_window: int | None = None,
        elsewhere: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._key = key
        self._base_url = base_url.rstrip("/").removesuffix("/v1")
        self._window = context_window
        self.elsewhere = elsewhere
        self._extra = dict(extra or {})
        self._where = Where(name, self._base_url, key_env, key or "", timeout)
        self._server = Server(self._where, _headers(key, own=self._base_url == BASE_URL))
        self._taken = RefusedParameters()

    def _open(self) -> Server:
        """Return the server. Raises ProviderError (authentication) where it needs a key and there is none."""
        if not self._key and self._base_url == BASE_URL:
            raise no_key(self._where)
        return self._server

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        body = render(self._with_extra(request), self.name)
        async with contextlib.aclosing(self._taken.stream(request.model, body, partial(self._once, request))) as events:
            async for event in events:
                yield event

    async def _once(self, request: Request, body: Json) -> AsyncGenerator[StreamEvent]:
        answer = _Answer(self.name, request.model, CallIds(request.messages), self._where)
        async with self._open().stream("/v1/messages", body) as response:
            async for chunk in chunks(response, self._where, _as_events, answer):
                yield chunk
        with protocol_errors(self._where):
            parts = whole_parts(answer.parts())
        usage = prices.with_cost(answer.usage(), self.name, request.model)
        yield stops.completed(answer.reason, parts, usage, answer.model or request.model)

    def _with_extra(self, request: Request) -> Request:
        return replace(request, extra=merged(self._extra, request.extra)) if self._extra else request

    async def count_tokens(self, request: Request) -> int | None:
        body = {k: v for k, v in render(request, self.name).items() if k != "max_tokens"}
        counted = await self._open().post("/v1/messages/count_tokens", body)
        with protocol_errors(self._where):
            return int(counted["input_tokens"])

    async def models(self) -> Sequence[ModelInfo]:
        rows = serving.listed(await self._open().get("/v1/models?limit=100"))
        own = ProviderSettings(context_window=self._window)
        return [facts.known(self.name, name, own, serving.from_listing({"data": [row]}, name)) for name, row in rows]

    async def served(self, model: str) -> Served | None:
        """Return what the server says about `model`; None where it does not answer."""
        headers = _headers(self._key, own=False)
        return await serving.served(f"{self._base_url}/v1", model, headers, elsewhere=self.elsewhere)

    async def warm(self) -> None:
        await server.warm()
        self._server.open()

    async def close(self) -> None:
        await self._server.close()


def _headers(key: str | None, *, own: bool) -> dict[str, str]:
    """Return the headers of every request; gateways look for an older version and for the key under its older name."""
    headers = {"Authorization": f"Bearer {key or 'none'}", "anthropic-version": API_VERSION if own else GATEWAY_VERSION}
    return headers if own else {**headers, "x-api-key": key or "none"}


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
