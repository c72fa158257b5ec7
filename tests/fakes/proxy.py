"""Counting proxies on loopback: HTTP with and without CONNECT, and SOCKS5; and a TLS certificate for any test host."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

HOST = "model.corp.example"  # resolved by the proxies only

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class FakeProxy:
    """Connects every host to `upstream`; `requests` are the request lines (`CONNECT host:port`), of SOCKS the hosts."""

    upstream: int
    login: str = ""
    url: str = ""
    requests: list[str] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._handle(reader, writer)
        writer.close()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(1)
        if first == b"\x05":
            return await self._socks(reader, writer)
        head = first + await reader.readuntil(b"\r\n\r\n")
        line, *headers = head.decode().split("\r\n")
        self.requests.append(line.rpartition(" ")[0])
        expected = f"proxy-authorization: basic {base64.b64encode(self.login.encode()).decode()}".lower()
        if self.login and expected not in [h.lower() for h in headers]:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            return await writer.drain()
        if line.startswith("CONNECT"):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            return await self._tunnel(reader, writer)
        method, url, version = line.split(" ")
        path = "/" + url.split("/", 3)[3]
        return await self._tunnel(reader, writer, "\r\n".join((f"{method} {path} {version}", *headers)).encode())

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly((await reader.readexactly(1))[0])
        writer.write(b"\x05\x00")
        kind = (await reader.readexactly(4))[3]
        name = await reader.readexactly((await reader.readexactly(1))[0] if kind == 3 else 4)
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        self.requests.append(f"SOCKS {name.decode()}:{port}")
        writer.write(b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00")
        await self._tunnel(reader, writer)

    async def _tunnel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes = b"") -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        up_writer.write(sent)
        there = asyncio.create_task(_copy(reader, up_writer))
        await _copy(up_reader, writer)
        there.cancel()
        up_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxying(upstream: int, *, login: str = "") -> AsyncIterator[FakeProxy]:
    fake = FakeProxy(upstream, login)
    server = await asyncio.start_server(fake.handle, "127.0.0.1", 0)
    fake.url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()


@asynccontextmanager
async def serving_tls(handler: Handler, folder: Path) -> AsyncIterator[tuple[int, Path]]:
    """Serve TLS as `HOST`; yield the port and the file of its certificate."""
    certificate, key = _write_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(handler, "127.0.0.1", 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], certificate
    finally:
        server.close()


def _write_certificate(folder: Path) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "host.pem", folder / "host.key"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return chain, private
