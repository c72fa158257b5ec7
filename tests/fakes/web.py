"""A web on loopback: prepared answers by host and path, and a client whose resolver and connector lead there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpcore2

from sakti.core import http

PUBLIC = "93.184.216.34"


@dataclass(frozen=True)
class Page:
    """Answer to a request; `endless` repeats the body for ever."""

    body: bytes = b""
    type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    endless: bool = False


class PlainStream(httpcore2.AsyncNetworkStream):
    """Stream that says it is encrypted and is not."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *_arguments: object, **_options: object) -> httpcore2.AsyncNetworkStream:
        return self

    def get_extra_info(self, info: str) -> object:
        return None if info == "ssl_object" else self._stream.get_extra_info(info)


@dataclass
class FakeWeb:
    """`pages` by host and path; `addresses` of names that are not public; what was asked is in the lists.

    `plain`: https is served without encryption.
    """

    pages: dict[str, Page] = field(default_factory=dict)
    addresses: dict[str, Sequence[str]] = field(default_factory=dict)
    lookups: list[str] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    port: int = 0
    plain: bool = False

    async def resolve(self, name: str, _port: int) -> Sequence[str]:
        self.lookups.append(name)
        return self.addresses.get(name, (PUBLIC,))

    async def connect(self, address: str, _port: int, timeout: float | None) -> httpcore2.AsyncNetworkStream:
        self.connected.append(address)
        stream = await http.connect("127.0.0.1", self.port, timeout)
        return PlainStream(stream) if self.plain else stream

    def client(self, limits: http.HttpLimits | None = None) -> http.HttpClient:
        return http.HttpClient(limits or http.HttpLimits(), self.resolve, self.connect)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lower = head.lower()
            length = int(lower.partition("content-length:")[2].split()[0]) if "content-length:" in lower else 0
            self.bodies.append(await reader.readexactly(length))
            host = lower.partition("\r\nhost: ")[2].partition("\r\n")[0]
            self.heads.append(head)
            self.requests.append(host + head.split()[1])
            page = self.pages.get(self.requests[-1]) or self.pages.get(self.requests[-1].partition("?")[0])
            await self._answer(writer, page or Page(b"no such page", status=404))
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, page: Page) -> None:
        headers = {"Content-Type": page.type, "Connection": "close", **page.headers}
        lines = [f"HTTP/1.1 {page.status} X", *(f"{k}: {v}" for k, v in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode() + page.body)
        await writer.drain()
        while page.endless:
            writer.write(page.body)
            await writer.drain()


@asynccontextmanager
async def web(pages: Mapping[str, Page]) -> AsyncIterator[FakeWeb]:
    """Serve `pages`, by host and path (`docs.example.org/page`)."""
    fake = FakeWeb(dict(pages))
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()


def redirect(url: str, status: int = 302) -> Page:
    return Page(status=status, headers={"Location": url})
