"""Serve a model on loopback that streams what it is told to: Chat Completions over SSE, one event a token."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

ASKED = re.compile(r"BENCH (\w+) (\d+) (\d+)")
PIECES = re.compile(r"\s*\S{1,5}|\s+")  # about what a token is
SECTION = """## Part {n}: draining the queue

The scheduler keeps what is pending in a queue and drains it whenever the budget allows, so that **every turn** stays
below its limit; `drain()` moves one entry after the other, and the [notes](docs/queue.md) say *why* it stops there.

- the first entry carries `code` and a few words
- the second one is **important**
  - something below it

```python
def drain(queue, budget):
    moved = []
    while queue and queue[0].tokens <= budget:
        entry = queue.popleft()
        budget -= entry.tokens
        moved.append(entry)
    return moved
```

| name | tokens | state |
|---|---:|---|
| user | 1200 | kept |
| agent | 53000 | observed |

"""
NOTES = (
    "<observations>\nDate: Jan 15, 2026\n* 🔴 (09:00) User asked how the queue is drained\n</observations>\n"
    "<current-task>Primary: the queue</current-task>\n"
)


def question(mark: str, tokens: int, rate: int = 0) -> str:
    """Return the prompt for an answer of `tokens`, `rate` of them a second (0: as fast as possible).

    The answer stands between `begin(mark)` and `end(mark)`.
    """
    return f"BENCH {mark} {tokens} {rate}"


def begin(mark: str) -> str:
    return f"ZBEGIN{mark}Z"


def end(mark: str) -> str:
    return f"ZEND{mark}Z"


def answer(mark: str, tokens: int) -> list[str]:
    """Return Markdown in `tokens` pieces."""
    pieces = [begin(mark), "\n\n"]
    number = 0
    while len(pieces) < tokens - 2:
        number += 1
        pieces += PIECES.findall(SECTION.format(n=number))
    pieces = pieces[: max(2, tokens - 2)]
    fence = "\n```" if "".join(pieces).count("```") % 2 else ""
    return [*pieces, f"{fence}\n\n", end(mark)]


class FakeModel:
    """Server as an async context manager; `url` is its base."""

    def __init__(self) -> None:
        self.url = ""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> FakeModel:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 24)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"(?i)\r\ncontent-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                if head.startswith("POST"):
                    await _stream(writer, json.loads(body))
                else:
                    data = json.dumps({"object": "list", "data": [{"id": "bench", "object": "model"}]}).encode()
                    size = len(data)
                    writer.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size
                    )
                    writer.write(data)
                await writer.drain()
        writer.close()


async def _stream(writer: asyncio.StreamWriter, body: dict[str, Any]) -> None:
    pieces, rate = _reply(body)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, piece in enumerate(pieces):
        if rate:
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        _send(writer, {"choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
        if rate or number % 64 == 0:
            await writer.drain()
    usage = {"prompt_tokens": 1_000, "completion_tokens": len(pieces), "total_tokens": 1_000 + len(pieces)}
    _send(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage})
    _chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")


def _send(writer: asyncio.StreamWriter, event: dict[str, Any]) -> None:
    whole = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "bench", **event}
    _chunk(writer, f"data: {json.dumps(whole)}\n\n".encode())


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _reply(body: dict[str, Any]) -> tuple[list[str], int]:
    """Return the pieces of the answer, and how many a second. A request without tools is one of memory's."""
    if not body.get("tools"):
        return [NOTES], 0
    said = [json.dumps(m["content"]) for m in body["messages"] if m["role"] == "user"]
    asked = ASKED.findall(said[-1]) if said else []
    if not asked:
        return ["ok"], 0
    mark, tokens, rate = asked[-1]
    return answer(mark, int(tokens)), int(rate)
