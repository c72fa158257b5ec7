"""No URL leads to this machine or its networks, and every answer is bounded."""

from __future__ import annotations

import gzip
import ipaddress
import itertools
from pathlib import Path

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.core import http
from sakti.core.http import HttpError, HttpLimits, parse_url
from tests.fakes.proxy import HOST, proxying, serving_tls
from tests.fakes.web import PUBLIC, Page, redirect, web

REFUSED = [
    *("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "localhost", "localhost.", "0.0.0.0"),
    *("10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "[::1]"),
    *("[::ffff:127.0.0.1]", "[fd00::1]", "[fe80::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"),
    *("１２７.０.０.１", "user@example.org", "loopback.example.org", "mixed.example.org"),
    *("[fe80::1%25eth0]", "[2606:4700::1%25eth0]", "app.localhost", "LOCALHOST", "0", "1.2.3.4.5", "127.0.0.0x1"),
    *("127。0。0。1", "[2001:0:7f00:1::]", "*.example.org", "me:pw@example.org"),
]  # fmt: skip
NAMES = {"loopback.example.org": ("127.0.0.1",), "mixed.example.org": (PUBLIC, "10.0.0.1")}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def get(client: http.HttpClient, url: str, *open_hosts: str) -> http.HttpAnswer:
    return await client.get(url, lambda target: target.host in open_hosts, {})


async def test_private_addresses_are_refused_literally_and_by_redirect() -> None:
    async with web({"go.example.org/": Page()}) as fake:
        fake.addresses = NAMES
        for host in REFUSED:
            url = f"http://{host}/page"
            for proxied in (url, url.replace("http:", "https:")):
                with pytest.raises(HttpError):
                    await get(fake.client(), proxied)
            assert fake.connected == []
            fake.pages["go.example.org/"] = redirect(url)
            with pytest.raises(HttpError):
                await fake.client().get("http://go.example.org/", lambda _target: True, {})
            assert fake.connected == [PUBLIC], host
            fake.connected.clear()


async def test_the_refusal_of_this_machine_names_curl() -> None:
    for url in ("http://localhost:3000/", "http://127.0.0.1/", "http://[::1]:8080/x"):
        with pytest.raises(HttpError, match="use bash with curl"):
            parse_url(url)


@pytest.mark.parametrize("url", ["ftp://example.org/", "file:///etc/passwd", "//example.org", "x", "http://a b/",
    "http://example.org\\@127.0.0.1/", "http://example.org:99999/", "http://[::1/", "http://a\r\nb/", "http:///x",
    "http://" + "a" * 9_000])  # fmt: skip
def test_other_urls_are_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse_url(url)
    assert caught.value.message.endswith(".") and "\r" not in caught.value.message


V4 = ("0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24"
      " 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4").split()  # fmt: skip
V6 = "::/127 ::7f00:0/104 64:ff9b:1::/48 100::/64 2001::/32 2001:db8::/32 fc00::/7 fe80::/10 fec0::/10 ff00::/8".split()


def draw_address(network: str, bits: int) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    place = ipaddress.ip_network(network)
    return place[bits % place.num_addresses]


def notations(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[str]:
    """Return the ways in which a URL may name an address."""
    if isinstance(address, ipaddress.IPv6Address):
        return [f"[{form}]" for form in (str(address), address.exploded, str(address).upper())]
    number, (a, b, c, d) = int(address), address.packed
    inner = f"{number >> 16:x}:{number & 0xFFFF:x}"
    return [
        str(address), f"{address}.", str(number), hex(number), hex(number).upper(), oct(number).replace("o", ""),
        f"{a}.{number & 0xFFFFFF}", f"{a}.{b}.{number & 0xFFFF}", f"0x{a:x}.{b}.0{c:o}.{d}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        "".join(chr(ord(char) + 0xFEE0) if char != "." else "。" for char in str(address)),
        f"[::ffff:{address}]", f"[::ffff:{inner}]", f"[64:ff9b::{inner}]",
        f"[64:ff9b::{address}]", f"[2002:{inner}::1]",
    ]  # fmt: skip


@given(st.sampled_from([*V4, *V6]), st.integers(0, 2**128 - 1))
async def test_no_address_of_a_refused_range_is_opened_in_any_notation(network: str, bits: int) -> None:
    address = draw_address(network, bits)
    for host in notations(address):
        with pytest.raises(HttpError):
            parse_url(f"http://{host}/")

    async def resolve(_name: str, _port: int) -> list[str]:
        return [PUBLIC, str(address)]

    async def connect(address: str, _port: int, _timeout: float | None) -> None:
        raise AssertionError(f"connected to {address}")

    with pytest.raises(HttpError, match="local or private"):
        await get(http.HttpClient(HttpLimits(), resolve, connect), "http://example.org/")  # pyright: ignore


async def test_a_name_is_resolved_once_and_its_checked_address_is_used() -> None:
    answers = itertools.chain([(PUBLIC,)], itertools.repeat(("127.0.0.1",)))
    async with web({"docs.example.org/a?b=c": Page(b"hello", "text/plain")}) as fake:

        async def rebound(name: str, _port: int) -> tuple[str, ...]:
            fake.lookups.append(name)
            return next(answers)

        client = http.HttpClient(HttpLimits(), rebound, fake.connect)
        answer = await get(client, "http://Docs.Example.ORG./a?b=c#part")
        assert (answer.body, answer.status, answer.url) == (b"hello", 200, "http://docs.example.org/a?b=c")
        assert fake.lookups == ["docs.example.org"] and fake.connected == [PUBLIC]
        assert f"user-agent: {http.USER_AGENT}" in fake.heads[0].lower() and "cookie" not in fake.heads[0].lower()


async def test_redirects_are_bounded_and_stop_at_a_host_to_ask_about() -> None:
    pages = {f"a.example.org/{n}": redirect(f"/{n + 1}", 301 + n % 2) for n in range(9)}
    pages |= {"b.example.org/": redirect("http://c.example.org/x"), "c.example.org/x": Page(b"end")}
    pages["a.example.org/5"] = Page(b"five redirects")
    pages["a.example.org/cookie"] = Page(status=302, headers={"Location": "/5", "Set-Cookie": "a=b"})
    async with web(pages) as fake:
        client = fake.client()
        assert (await get(client, "http://a.example.org/0")).body == b"five redirects"
        fake.pages["a.example.org/5"] = redirect("/6")
        with pytest.raises(HttpError, match="more than 5 times"):
            await get(client, "http://a.example.org/0")
        assert (await get(client, "http://b.example.org/", "c.example.org")).body == b"end"
        fake.connected.clear()
        stopped = await get(client, "http://b.example.org/")
        assert stopped.redirect == "http://c.example.org/x" and len(fake.connected) == 1
        assert (await get(client, "http://a.example.org/cookie")).status == 404
        assert not any("cookie:" in head.lower() for head in fake.heads)


async def test_bombs_endless_bodies_and_silence_end_at_their_limits() -> None:
    bomb = gzip.compress(gzip.compress(bytes(200_000_000), 1), 1)
    pages = {
        "x.org/bomb": Page(bomb, headers={"Content-Encoding": "gzip"}),
        "x.org/twice": Page(bomb, headers={"Content-Encoding": "gzip, gzip"}),
        "x.org/endless": Page(bytes(60_000), endless=True),
        "x.org/gzip": Page(gzip.compress(b"small"), headers={"Content-Encoding": "gzip"}),
        "x.org/damaged": Page(b"small", headers={"Content-Encoding": "gzip"}),
        "x.org/brotli": Page(b"small", headers={"Content-Encoding": "br"}),
        "x.org/slow": Page(b"s", headers={"Content-Length": "2"}, endless=False),
    }
    async with web(pages) as fake:
        client = fake.client(HttpLimits(size=400_000))
        assert (await get(client, "http://x.org/gzip")).body == b"small"
        for path, code in {"bomb": "size", "twice": "encoding", "endless": "size", "damaged": "encoding",
                           "brotli": "encoding", "slow": "connection"}.items():  # fmt: skip
            with pytest.raises(HttpError) as caught:
                await get(client, f"http://x.org/{path}")
            assert caught.value.code == code, path
        with pytest.raises(HttpError, match="did not answer completely within") as caught:
            await get(fake.client(HttpLimits(seconds=0.2, size=10**12)), "http://x.org/endless")
        assert caught.value.retryable
        fake.addresses["x.org"] = ()
        with pytest.raises(HttpError, match="its name has no address"):
            await get(client, "http://x.org/")


async def test_tls_is_checked_for_the_name_with_the_users_certificates(tmp_path: Path, monkeypatch) -> None:
    async with (
        web({f"{HOST.lower()}/": Page(b"private CA")}) as fake,
        serving_tls(fake.handle, tmp_path) as (port, pem),
    ):
        fake.port = port
        with pytest.raises(HttpError) as caught:
            await get(fake.client(), f"https://{HOST}/")
        assert caught.value.code == "certificate"
        monkeypatch.setenv("SSL_CERT_FILE", str(pem))
        assert (await get(fake.client(), f"https://{HOST}/")).body == b"private CA"
        with pytest.raises(HttpError, match="other.example.org failed"):
            await get(fake.client(), "https://other.example.org/")
        assert set(fake.connected) == {PUBLIC}


async def test_a_proxy_gets_names_and_no_private_literal(monkeypatch) -> None:
    async with web({"docs.example.org/": Page(b"by proxy")}) as fake, proxying(fake.port) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        assert (await get(fake.client(), "http://docs.example.org/")).body == b"by proxy"
        assert fake.lookups == [] and proxy.requests == ["GET http://docs.example.org/"]
        for host in ("127.1", "localhost", "[::ffff:10.0.0.1]"):
            with pytest.raises(HttpError):
                await get(fake.client(), f"http://{host}/")
        assert len(proxy.requests) == 1


async def test_a_client_for_libraries_reaches_only_the_private_host_it_was_made_for() -> None:
    async with web({}) as fake:
        fake.pages = {f"127.0.0.1:{fake.port}/mcp": Page(b"x" * 10), f"127.0.0.1:{fake.port}/big": Page(b"x" * 200)}
        url = f"http://127.0.0.1:{fake.port}"
        async with http.make_client(HttpLimits(size=100, private=("127.0.0.1",))) as client:
            assert (await client.get(f"{url}/mcp")).text == "x" * 10
            with pytest.raises(HttpError, match="larger"):
                await client.get(f"{url}/big")
            with pytest.raises(HttpError, match="local or private"):
                await client.get(url.replace("127.0.0.1", "localhost"))
        async with http.make_client(HttpLimits()) as client:
            with pytest.raises(HttpError, match="local or private"):
                await client.get(f"{url}/mcp")
        assert isinstance(client, httpx2.AsyncClient)
