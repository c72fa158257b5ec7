"""A loopback server that answers with prepared server-sent events and keeps what it was sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeServer:
    """`prefix`, then `events`, each as one `data:` line, are sent to every request; `hold` then keeps the connection
    open. `closed` is set when a client hangs up."""

    events: Sequence[dict[str, Any] | str] = ()
    hold: bool = False
    prefix: bytes = b""
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.paths.append(first.split()[1])
        self.headers.append(headers)
        self.bodies.append(json.loads(body) if body else {})
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        writer.write(self.prefix)
        for event in self.events:
            text = event if isinstance(event, str) else json.dumps(event)
            writer.write(f"data: {text}\n\n".encode())
        await writer.drain()
        if self.hold:
            await reader.read()
            self.closed.set()
        writer.close()


@asynccontextmanager
async def serving(events: Sequence[dict[str, Any] | str] = (), *, hold: bool = False) -> AsyncIterator[FakeServer]:
    fake = FakeServer(events, hold)
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()
