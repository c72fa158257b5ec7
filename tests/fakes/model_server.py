"""A model on loopback that speaks three protocols and refuses what a test wants refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sakti.core.types import Json
from tests.fakes.endpoints import anthropic_provider, chat_provider, responses_provider

APIS = {"chat": chat_provider, "responses": responses_provider, "messages": anthropic_provider}


@dataclass
class Reply:
    """Answer to a request: a text, calls as (name, arguments in JSON), or an error.

    An error with status 200 comes inside a stream, behind the text.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    status: int = 200
    error: str | Json = ""
    headers: dict[str, str] = field(default_factory=dict)


Play: TypeAlias = Callable[[Json], Reply]


class ModelServer:
    """Answers every request with `play`; `bodies` are those that were answered, `refused` the others."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.url = ""
        self.bodies: list[Json] = []
        self.refused: list[Json] = []
        self._calls = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        length = (
            int(head.lower().partition("content-length:")[2].split()[0]) if "content-length:" in head.lower() else 0
        )
        body = json.loads(await reader.readexactly(length) or b"{}")
        reply = Reply(status=404, error="no such path")
        if body:
            reply = self.play(body)
            (self.refused if reply.error else self.bodies).append(body)
        kind, text = "application/json", json.dumps(_error(reply))
        if reply.status == 200:
            kind, text = "text/event-stream", "".join(f"data: {json.dumps(e)}\n\n" for e in self._events(path, reply))
        data = text.encode()
        headers = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close", **reply.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{lines}\r\n".encode() + data)
        await writer.drain()
        writer.close()

    def _events(self, path: str, reply: Reply) -> list[Json]:
        calls = [(f"call_{self._calls + n}", *call) for n, call in enumerate(reply.calls)]
        self._calls += len(calls)
        if path.endswith("/chat/completions"):
            return _chat(reply, calls)
        return _responses(reply, calls) if path.endswith("/responses") else _messages(reply, calls)


def _error(reply: Reply) -> Json:
    error = {"message": reply.error, "type": "invalid_request_error"} if isinstance(reply.error, str) else reply.error
    return {"type": "error", "error": error}


def _chat(reply: Reply, calls: list[tuple[str, str, str]]) -> list[Json]:
    deltas = [
        {"index": n, "id": call_id, "function": {"name": name, "arguments": arguments}}
        for n, (call_id, name, arguments) in enumerate(calls)
    ]
    said = {"choices": [{"index": 0, "delta": {"content": reply.text, "tool_calls": deltas}}]}
    if reply.error:
        return [said, _error(reply)]
    return [said, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]}]


def _messages(reply: Reply, calls: list[tuple[str, str, str]]) -> list[Json]:
    blocks: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [{"type": "tool_use", "id": i, "name": name, "input": {}} for i, name, _ in calls]
    events: list[Json] = [{"type": "message_start", "message": {}}]
    for n, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": n, "content_block": block})
        if block["type"] == "tool_use":
            arguments = calls[n - bool(reply.text)][2]
            delta = {"type": "input_json_delta", "partial_json": arguments}
            events.append({"type": "content_block_delta", "index": n, "delta": delta})
    if reply.error:
        return [*events, _error(reply)]
    reason = "tool_use" if calls else "end_turn"
    return [*events, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


def _responses(reply: Reply, calls: list[tuple[str, str, str]]) -> list[Json]:
    content = [{"type": "output_text", "text": reply.text}]
    items: list[Json] = [{"type": "message", "role": "assistant", "content": content}] if reply.text else []
    items += [{"type": "function_call", "call_id": i, "name": name, "arguments": a} for i, name, a in calls]
    events = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)]
    if reply.error:
        return [*events, {"type": "response.failed", "response": {"status": "failed", **_error(reply)}}]
    return [*events, {"type": "response.completed", "response": {"status": "completed"}}]


@asynccontextmanager
async def model_server(play: Play) -> AsyncIterator[ModelServer]:
    model = ModelServer(play)
    server = await asyncio.start_server(model.handle, "127.0.0.1", 0, limit=1 << 26)
    model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield model
    finally:
        server.close()


def provider(api: str, url: str, key: str = "x") -> Any:
    return APIS[api](key, base_url=url, timeout=10)
