"""HTTP proxy on a socket bound into the sandbox, by which commands reach only allowed hosts.

A name is checked, resolved once, and its address checked; the connection goes to that very address. TLS is passed
through unread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, field

from sakti.core import network
from sakti.core.network import resolve_host
from sakti.core.text import to_one_line

log = logging.getLogger(__name__)

HEAD_LIMIT, HEAD_S = 16_384, 10.0  # bytes and seconds of the part before a body
CONNECT_S, IDLE_S = 15.0, 300.0  # seconds until a host answers; without a byte in either direction
MOST = 64  # connections at once
MOST_ADDRESSES = 8  # of a name that are tried
CHUNK = 65_536
MOST_REFUSED = 20  # hosts that a result names
_HOP_BY_HOP = frozenset("connection keep-alive proxy-connection proxy-authorization te trailer upgrade".split())
_REASONS = {400: "Bad Request", 403: "Forbidden", 431: "Request Header Fields Too Large", 502: "Bad Gateway",
            503: "Service Unavailable"}  # fmt: skip

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class RefusedRequest(Exception):
    """A request that is answered by the proxy itself."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ProxyRequest(Struct, frozen=True):
    """Request of a client: the host, and the first bytes sent to it (none for a tunnel).

    `body` is the length of the body in bytes, None for chunks, which state their own. No second request follows: it
    could name another host to a server that has several.
    """

    name: str
    port: int
    head: bytes = b""
    body: int | None = 0


class Proxy:
    """Proxy for one set of hosts. `refused` names requested hosts outside of that set."""

    def __init__(
        self,
        allowed: Sequence[str],
        *,
        resolve: Resolve = resolve_host,
        may_reach: Callable[[str], bool] = network.is_public,
    ) -> None:
        self._allowed, self._resolve, self._may_reach = tuple(allowed), resolve, may_reach
        self.refused: list[str] = []
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self.folder: Path | None = None

    async def start(self) -> Path:
        """Listen in a private folder; return the socket's path."""
        self.folder = Path(tempfile.mkdtemp(prefix="sakti-net-"))  # 0700
        path = self.folder / "proxy"
        self._server = await asyncio.start_unix_server(self._accept, path=path, limit=HEAD_LIMIT)
        return path

    async def close(self) -> None:
        """End all connections, and remove the socket."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MOST:
            writer.write(_make_answer(503, f"{MOST} connections are open already."))
            writer.close()
            return
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                request = await _read_request(reader)
                far_reader, far_writer = await self._open(request)
            except RefusedRequest as e:
                writer.write(_make_answer(e.status, str(e)))
                await writer.drain()
                return
            try:
                alive = _Activity()
                if request.head:
                    far_writer.write(request.head)
                    there = _send_body(reader, far_writer, request.body, alive)
                else:
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    there = _copy(reader, far_writer, alive)
                await _copy_both_ways(there, _copy(far_reader, writer, alive), alive, both=not request.head)
            finally:
                far_writer.close()
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError) as e:
            log.info("a connection of the sandbox ended: %s", e)
        finally:
            writer.close()

    async def _open(self, asked: ProxyRequest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to an allowed host by the address that was checked. Raises `RefusedRequest`."""
        if not network.is_allowed(self._allowed, asked.name, asked.port):
            host = to_one_line(
                str(network.NetworkHost(asked.name, None if asked.port in network.USUAL_PORTS else asked.port)), 100
            )
            if host not in self.refused and len(self.refused) < MOST_REFUSED:
                self.refused.append(host)
            raise RefusedRequest(403, f"{host} is not allowed.")
        try:
            async with asyncio.timeout(CONNECT_S):
                addresses = await self._resolve(asked.name, asked.port)
                public = [a for a in addresses if self._may_reach(a)][:MOST_ADDRESSES]
                if not public:
                    raise RefusedRequest(403, f"{asked.name} has no public address.")
                return await _connect(public, asked.port)
        except (OSError, TimeoutError) as e:
            raise RefusedRequest(
                502, f"{asked.name} cannot be reached: {to_one_line(str(e) or 'no answer', 100)}."
            ) from e


async def _connect(public: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. Raises `OSError`.

    All but the last have half of the time, since one without a route may never answer.
    """
    problem: Exception = OSError("no address")
    for number, address in enumerate(public):
        try:
            async with asyncio.timeout(CONNECT_S / 2 if number < len(public) - 1 else None):
                return await asyncio.open_connection(address, port)
        except (OSError, TimeoutError) as e:
            problem = e
    raise problem


async def _read_request(reader: asyncio.StreamReader) -> ProxyRequest:
    """Read the request of a client. Raises `RefusedRequest`."""
    try:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as e:
        raise RefusedRequest(431, "The head of the request is too long.") from e
    except asyncio.IncompleteReadError as e:
        raise EOFError("nothing was asked") from e
    return parse_request(head)


def parse_request(head: bytes) -> ProxyRequest:
    """Read the head of a request to a proxy. Raises `RefusedRequest` if it is ambiguous."""
    try:
        first, *rest = head.decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    except UnicodeDecodeError as e:
        raise RefusedRequest(400, "The head of the request is not ASCII.") from e
    method, target = _parse_request_line(first)
    headers = [_parse_header(line) for line in rest]
    names = [name for name, _ in headers]
    if any(names.count(name) > 1 for name in ("host", "content-length", "transfer-encoding")):
        raise RefusedRequest(400, "A header occurs twice.")
    if "content-length" in names and "transfer-encoding" in names:
        raise RefusedRequest(400, "The length of the request is ambiguous.")
    body = _parse_length(dict(headers))
    return _parse_tunnel(target) if method.upper() == "CONNECT" else _forward_request(method, target, headers, body)


def _parse_request_line(line: str) -> tuple[str, str]:
    """Return method and target. Raises `RefusedRequest`."""
    words = line.split(" ")
    if any(not "!" <= c <= "~" for word in words for c in word):
        raise RefusedRequest(400, "The request line cannot be read.")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[0].isalpha():
        raise RefusedRequest(400, "The request line cannot be read.")
    return words[0], words[1]


def _parse_tunnel(target: str) -> ProxyRequest:
    name, colon, port = target.rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65_536:
        raise RefusedRequest(400, "CONNECT needs host:port.")
    return ProxyRequest(_parse_host(name), int(port))


def _parse_address(target: str) -> tuple[str, int]:
    """Return the host and the port of an http:// address. Raises `RefusedRequest`."""
    try:
        url = urlsplit(target)
        port, name = url.port or 80, url.hostname or ""
    except ValueError as e:
        raise RefusedRequest(400, "The address cannot be read.") from e
    if url.scheme.lower() != "http" or not name or url.username is not None:
        raise RefusedRequest(400, "Only http:// addresses and CONNECT are passed on.")
    return name, port


def _cut_path(target: str) -> str:
    """Return the path and query of an address as they are written: urlsplit would take `//` for a host."""
    rest = target.partition("://")[2].partition("#")[0]
    before, slash, path = rest.partition("/")
    if not slash or "?" in before:
        path = f"?{rest.partition('?')[2]}" if "?" in rest else ""
    return f"/{path}"


def _forward_request(method: str, target: str, headers: Sequence[tuple[str, str]], body: int | None) -> ProxyRequest:
    """Write the head of a request for http:// as its server expects it. Raises `RefusedRequest`."""
    name, port = _parse_address(target)
    path = _cut_path(target)
    host = name if port == 80 else f"{name}:{port}"
    passed = [(n, v) for n, v in headers if n not in _HOP_BY_HOP and n != "host"]
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}", *(f"{n}: {v}" for n, v in passed), "connection: close"]
    return ProxyRequest(_parse_host(name), port, ("\r\n".join(lines) + "\r\n\r\n").encode("ascii"), body)


def _parse_length(headers: Mapping[str, str]) -> int | None:
    """Return the length of a body, None for chunks. Raises `RefusedRequest`."""
    if "transfer-encoding" in headers:
        if headers["transfer-encoding"].lower() != "chunked":
            raise RefusedRequest(400, "The length of the request cannot be read.")
        return None
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdigit() or len(length) > 15:
        raise RefusedRequest(400, "The length of the request cannot be read.")
    return int(length)


def _parse_header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or not all("!" <= c <= "~" for c in name):
        raise RefusedRequest(400, "A header cannot be read.")
    if any((ord(c) < 32 and c != "\t") or c == "\x7f" for c in value):
        raise RefusedRequest(400, "A header cannot be read.")
    return name.lower(), value.strip()


def _parse_host(text: str) -> str:
    host = network.parse_host(text.strip("[]") if text.startswith("[") else text)
    if host is None or host.port is not None or "*" in host.name:
        raise RefusedRequest(403, f"{to_one_line(text, 100)} is not a host name.")
    return host.name


def _make_answer(status: int, message: str) -> bytes:
    body = f"sakti: {message}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode("ascii") + body


class _Activity(Struct):
    """Time of the last data on a connection, in either direction (s of the loop's clock)."""

    at: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    def now(self) -> None:
        self.at = asyncio.get_running_loop().time()

    async def wait_end(self) -> None:
        """Wait until no data went through for `IDLE_S`."""
        while (remaining := self.at + IDLE_S - asyncio.get_running_loop().time()) > 0:  # noqa: ASYNC110 - no event each byte
            await asyncio.sleep(remaining)


async def _copy_both_ways(
    there: Coroutine[None, None, None], back: Coroutine[None, None, None], alive: _Activity, *, both: bool
) -> None:
    """Copy in both directions until the answer has ended, and with `both` until the request has."""
    sending, answering = asyncio.ensure_future(there), asyncio.ensure_future(back)
    idle = asyncio.ensure_future(alive.wait_end())
    ways = (sending, answering, idle)
    try:
        waiting = {sending, answering}
        while waiting:
            done, _ = await asyncio.wait({*waiting, idle}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if idle in done or (answering in done and not both):
                return
            waiting -= done
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, goal: asyncio.StreamWriter, alive: _Activity) -> None:
    """Copy to the end, and say so to the other side."""
    while data := await source.read(CHUNK):
        alive.now()
        goal.write(data)
        await goal.drain()
    with contextlib.suppress(OSError, RuntimeError):
        goal.write_eof()


async def _send_body(
    source: asyncio.StreamReader, goal: asyncio.StreamWriter, length: int | None, alive: _Activity
) -> None:
    """Copy the body of one request; the rest is dropped."""
    if length is None:
        while (size := await _copy_chunk_size(source, goal)) > 0:
            await _copy_part(source, goal, size, alive)
            if await source.readexactly(2) != b"\r\n":
                raise EOFError("a chunk is longer than it says")
            goal.write(b"\r\n")
        while (line := await source.readuntil(b"\r\n")) != b"\r\n":
            goal.write(line)
        goal.write(line)
    else:
        await _copy_part(source, goal, length, alive)
    await goal.drain()
    while await source.read(CHUNK):
        continue


async def _copy_chunk_size(source: asyncio.StreamReader, goal: asyncio.StreamWriter) -> int:
    """Copy the line before a chunk; return the chunk's size."""
    line = await source.readuntil(b"\r\n")
    digits = line[:-2].partition(b";")[0]
    if not 0 < len(digits) <= 12 or digits.strip(b"0123456789abcdefABCDEF"):
        raise EOFError("the size of a chunk cannot be read")
    goal.write(line)
    return int(digits, 16)


async def _copy_part(source: asyncio.StreamReader, goal: asyncio.StreamWriter, size: int, alive: _Activity) -> None:
    while size > 0:
        data = await source.read(min(size, CHUNK))
        if not data:
            raise EOFError("a request was cut")
        size -= len(data)
        alive.now()
        goal.write(data)
        await goal.drain()


class Network:
    """Hosts that commands of a session may reach, and their proxies, started when needed."""

    def __init__(self, allowed: Sequence[str] = (), *, make: Callable[[Sequence[str]], Proxy] = Proxy) -> None:
        self.allowed = tuple(allowed)
        self._make = make
        self._running: dict[frozenset[str], tuple[Proxy, Path]] = {}
        self._starting = asyncio.Lock()  # two commands may want the same one at once

    async def socket(self, hosts: Sequence[str]) -> Path:
        """Return the socket of a proxy for these hosts. Raises `OSError`."""
        key = frozenset(hosts)
        async with self._starting:
            if key not in self._running:
                proxy = self._make(tuple(sorted(key)))
                self._running[key] = proxy, await proxy.start()
            return self._running[key][1]

    def list_refused(self, hosts: Sequence[str]) -> list[str]:
        """Return the hosts that were refused since this was asked, for commands that may reach `hosts`."""
        running = self._running.get(frozenset(hosts))
        if running is None:
            return []
        refusals, running[0].refused = running[0].refused, []
        return refusals

    async def close(self) -> None:
        """End all proxies."""
        for proxy, _ in self._running.values():
            await proxy.close()
        self._running.clear()
