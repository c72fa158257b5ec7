"""HTTP client for URLs named by a model, a page or a server; providers have their own clients.

A host is resolved once, each of its addresses is checked, and the connection goes to a checked address. Importing this
module imports httpx2; import it inside the function that needs it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urljoin

import httpcore2
import httpx2
from msgspec import Struct, field

from sakti.core import network
from sakti.core.errors import HttpError, SaktiError
from sakti.core.network import Target, make_private_refusal, parse_url
from sakti.core.text import to_one_line
from sakti.version import __version__

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Connect = Callable[[str, int, float | None], Awaitable[httpcore2.AsyncNetworkStream]]

MOST_REDIRECTS = 5
CONNECT_S = 10.0
USER_AGENT = f"sakti/{__version__}"
_MOST_ADDRESSES = 8  # maximum addresses tried per name
_REDIRECTS = (301, 302, 303, 307, 308)
_GZIP_OR_ZLIB = 47  # zlib's window bits for detecting either header


class HttpLimits(Struct, frozen=True):
    """Limits of one caller.

    `seconds`: until the response is complete; `size`: bytes of its decompressed body. Hosts in `private` may have local
    and private addresses; all others must have public ones.
    """

    seconds: float = 20.0
    size: int = 5_000_000
    private: tuple[str, ...] = ()


class HttpAnswer(Struct, frozen=True):
    """Complete response.

    The names of `headers` are in lower case; `redirect` is the next URL, if it was not followed.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    redirect: str = ""


async def connect(address: str, port: int, timeout: float | None) -> httpcore2.AsyncNetworkStream:
    """Connect to an address without a DNS look-up. Raises httpcore2.ConnectError or ConnectTimeout."""
    backend = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())
    return await backend.connect_tcp(address, port, timeout)


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connector that resolves a name once and refuses it if one of its addresses is not public."""

    def __init__(self, private: Sequence[str], resolve: Resolve, connect: Connect) -> None:
        self._private, self._resolve, self._connect = private, resolve, connect

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await self._find_addresses(host, port)
        for address in addresses[:-1]:  # an unreachable address may never answer; the last one gets the remaining time
            try:
                return await self._connect(address, port, (timeout or CONNECT_S) / len(addresses))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._connect(addresses[-1], port, timeout)

    async def _find_addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = await self._resolve(host, port)
        except OSError as e:
            raise httpcore2.ConnectError("its name has no address") from e
        if not addresses:
            raise httpcore2.ConnectError("its name has no address")
        if host not in self._private and not all(map(network.is_public, addresses)):
            raise make_private_refusal(host)
        return addresses[:_MOST_ADDRESSES]


class _DirectTransport(httpx2.AsyncHTTPTransport):
    """Transport of httpx2 over a checked connector, which its own constructor does not accept."""

    def __init__(self, context: ssl.SSLContext, backend: CheckedBackend) -> None:
        self._pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=backend)


class _BoundedStream(httpx2.AsyncByteStream):
    """Response body that raises an error when it exceeds its limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int) -> None:
        self._stream, self._limit = stream, limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._limit:
                raise _make_size_error(self._limit)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Transport that checks the URL and address of each request, and limits each response.

    With a proxy of the environment the proxy resolves names, so only names and literal addresses are checked.
    """

    def __init__(self, limits: HttpLimits, resolve: Resolve = network.resolve_host, connect: Connect = connect) -> None:
        self._limits = limits
        self._backend = CheckedBackend(limits.private, resolve, connect)
        self._transports: dict[tuple[str, str], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        target = parse_url(str(request.url), self._limits.private)
        response = await self._choose_transport(target).handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _BoundedStream(response.stream, self._limits.size)
        return response

    def _choose_transport(self, target: Target) -> httpx2.AsyncHTTPTransport:
        """Return the transport to a host, direct or through a proxy. Raises ProviderError."""
        options = network.build_client_options(target.url)
        proxy, context = options["proxy"] or "", options["verify"]
        if (proxy, target.scheme) not in self._transports:
            self._transports[proxy, target.scheme] = (
                httpx2.AsyncHTTPTransport(verify=context, trust_env=False, proxy=proxy)
                if proxy
                else _DirectTransport(context, self._backend)
            )
        return self._transports[proxy, target.scheme]

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def make_client(
    limits: HttpLimits, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
) -> httpx2.AsyncClient:
    """Make an httpx2 client over the checked transport, for libraries that need one (the MCP SDK).

    It follows no redirects; if the library does, each hop passes the same checks. Bodies are not compressed, so that
    the limit applies to the received bytes. A refused address raises HttpError from the request.
    """
    return httpx2.AsyncClient(
        transport=CheckedTransport(limits),
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity", **(headers or {})},
        auth=auth,
        timeout=httpx2.Timeout(CONNECT_S, read=limits.seconds),
        trust_env=False,
    )


class HttpClient(Struct, frozen=True):
    """Client for complete responses, without cookies or the user's credentials."""

    limits: HttpLimits = field(default_factory=HttpLimits)
    resolve: Resolve = network.resolve_host
    connect: Connect = connect

    async def get(self, url: str, may_open: Callable[[Target], bool], headers: Mapping[str, str]) -> HttpAnswer:
        """Fetch a URL; follow redirects to hosts that `may_open`. Raises HttpError.

        A redirect to another host is returned with `redirect`, so that the user can be asked.
        """
        first = target = parse_url(url, self.limits.private)
        try:
            async with asyncio.timeout(self.limits.seconds):
                for _ in range(MOST_REDIRECTS + 1):
                    answer = await self.send("GET", target.url, headers)
                    if answer.status not in _REDIRECTS or not (location := answer.headers.get("location")):
                        return answer
                    target = self._follow(target, location)
                    if target.rule_host != first.rule_host and not may_open(target):
                        return HttpAnswer(answer.url, answer.status, answer.headers, answer.body, target.url)
        except TimeoutError as e:
            raise _make_timeout_error(target.host, self.limits.seconds) from e
        raise HttpError(f"{first.host} redirects more than {MOST_REDIRECTS} times.", code="redirect")

    def _follow(self, target: Target, location: str) -> Target:
        try:
            return parse_url(urljoin(target.url, location), self.limits.private)
        except (HttpError, ValueError) as e:
            why = e.message if isinstance(e, HttpError) else "The address is not valid."
            raise HttpError(f"{target.host} redirects to {to_one_line(location, 200)}. {why}", code="redirect") from e

    async def send(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> HttpAnswer:
        """Send one request and read the response; follows no redirect. Raises HttpError."""
        target = parse_url(url, self.limits.private)
        sent = {"User-Agent": USER_AGENT, "Accept-Encoding": "gzip", **(headers or {})}
        timeouts = httpx2.Timeout(CONNECT_S, read=self.limits.seconds).as_dict()
        request = httpx2.Request(method, target.url, headers=sent, content=content, extensions={"timeout": timeouts})
        transport = CheckedTransport(self.limits, self.resolve, self.connect)
        try:
            async with asyncio.timeout(self.limits.seconds), transport:
                response = await transport.handle_async_request(request)
                body = await self._read_body(response)
        except (TimeoutError, httpx2.TimeoutException) as e:
            raise _make_timeout_error(target.host, self.limits.seconds) from e
        except SaktiError:
            raise
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as e:
            raise _make_connection_error(target.host, e) from e
        answered = {name.lower(): value for name, value in response.headers.items()}
        return HttpAnswer(target.url, response.status_code, answered, body)

    async def _read_body(self, response: httpx2.Response) -> bytes:
        """Read a body, decompressing pieces that never exceed the limit. Raises HttpError."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "gzip", "x-gzip", "deflate"):
            raise HttpError(
                f"The answer is compressed in an unknown way ({to_one_line(encoding, 40)}).", code="encoding"
            )
        unpack = None if encoding == "identity" else zlib.decompressobj(_GZIP_OR_ZLIB)
        body = bytearray()
        async for chunk in response.aiter_raw():
            try:
                body += unpack.decompress(chunk, self.limits.size + 1 - len(body)) if unpack is not None else chunk
            except zlib.error as e:
                raise HttpError("The answer is damaged: it cannot be decompressed.", code="encoding") from e
            if len(body) > self.limits.size:
                raise _make_size_error(self.limits.size)
        return bytes(body)


def _make_size_error(limit: int) -> HttpError:
    return HttpError(f"The answer is larger than {limit // 1_000_000} MB.", code="size")


def _make_timeout_error(host: str, seconds: float) -> HttpError:
    return HttpError(f"{host} did not answer completely within {seconds:.0f} s.", code="timeout", retryable=True)


def explain_failure(host: str, error: BaseException) -> str:
    """Return why a host could not be reached, without a full stop; "" for other errors."""
    if isinstance(error, httpx2.TimeoutException):
        return f"{host} did not answer in time"
    if not isinstance(error, httpx2.HTTPError | httpx2.InvalidURL):
        return ""
    return _make_connection_error(host, error).message.removesuffix(".")


def _make_connection_error(host: str, error: Exception) -> HttpError:
    """Make the error for a host that could not be reached."""
    why = str(error) or type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            why = to_one_line(getattr(cause, "verify_message", "") or str(cause.reason or cause), 100)
            return HttpError(f"The TLS connection to {host} failed: {why}.", code="certificate")
        if isinstance(cause, ConnectionError):
            why = (os.strerror(cause.errno) if cause.errno else str(cause)).lower()
        cause = cause.__cause__ or cause.__context__
    return HttpError(f"{host} cannot be reached: {to_one_line(why, 100)}.", retryable=True)
