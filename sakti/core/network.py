"""Decide which hosts and URLs may be reached, and with which proxy and certificates."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from os import environ
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.parse import quote as escape_url

from sakti.core.errors import HttpError, ProviderError
from sakti.core.text import quote

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def build_client_options(url: str) -> dict[str, Any]:
    """Return the arguments of an httpx2 client for `url`.

    The proxy is chosen here and not by httpx2, so that error messages can name the proxy that was used.
    Raises ProviderError: certificate if a variable names certificates that cannot be read, proxy for a kind of proxy
    that is not supported.
    """
    proxy = find_proxy(url)
    parts = urlsplit(proxy)
    if proxy and parts.scheme not in _PROXY_SCHEMES:
        host = parts.netloc.rpartition("@")[2]
        kinds = ", ".join(_PROXY_SCHEMES)
        raise ProviderError(f"The proxy {host} has the scheme {parts.scheme}; use one of {kinds}.", code="proxy")
    return {"proxy": proxy or None, "verify": get_tls_context(url), "trust_env": False, "follow_redirects": True}


def is_loopback(url: str) -> bool:
    """Return whether `url` names this machine: `localhost` or a loopback address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def find_proxy(url: str) -> str:
    """Return the proxy that the environment names for `url`; empty for a direct connection.

    Loopback is always reached directly. Variables in lower case win over those in upper case.
    """
    import urllib.request

    try:
        target = urlsplit(url)
        host, port = target.hostname or "", target.port or _DEFAULT_PORTS.get(target.scheme, 0)
    except ValueError:
        return ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all") or ""
    if not proxy or is_loopback(url) or _is_excluded(host, port, proxies.get("no", "")):
        return ""
    if "no" not in proxies and urllib.request.proxy_bypass(host):  # system settings of macOS and Windows
        return ""
    return _complete_proxy(proxy)


def _complete_proxy(proxy: str) -> str:
    """Return the address of a proxy in the form that the client accepts."""
    if proxy.startswith("socks://"):  # the desktop's notation
        return proxy.replace("socks", "socks5", 1)
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excluded(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY lists a host, by name, domain, address or network; a port is optional."""
    return any(_is_named(host, port, entry.strip().lower()) for entry in no_proxy.split(","))


def _is_named(host: str, port: int, entry: str) -> bool:
    if entry in ("", "*"):
        return entry == "*"
    with contextlib.suppress(ValueError):
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    name, colon, number = entry.rpartition(":")
    if colon and number.isdecimal():
        if int(number) != port:
            return False
        entry = name
    domain = entry.strip("[]").removeprefix("*").lstrip(".")
    return host == domain or host.endswith(f".{domain}")


def get_tls_context(url: str, env: Mapping[str, str] = environ) -> ssl.SSLContext:
    """Return the TLS context for `url`. Reading the certificates takes 50 ms, so it is done once.

    Plain HTTP to this machine needs none; if such a server redirects to HTTPS, its certificate is rejected.
    Raises ProviderError (certificate) if a variable names certificates that cannot be read.
    """
    if url.startswith("http:") and is_loopback(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in _CERTIFICATES:
        if (path := env.get(name)) and not Path(path).exists():
            raise _make_certificate_error(name, path, "does not exist")
    try:
        return _make_tls_context(*(env.get(name) for name in _CERTIFICATES))
    except OSError as e:
        name = next((n for n in _CERTIFICATES if env.get(n)), _CERTIFICATES[0])
        raise _make_certificate_error(name, env.get(name, ""), f"cannot be read ({e.strerror or e})") from e


def _make_certificate_error(name: str, path: str, problem: str) -> ProviderError:
    return ProviderError(f"{name} names {path}, which {problem}: fix the variable or unset it.", code="certificate")


@functools.cache
def _make_tls_context(*_paths: str | None) -> ssl.SSLContext:
    import httpcore2

    return httpcore2.default_ssl_context()


async def resolve_host(name: str, port: int) -> Sequence[str]:
    """Resolve a name to its addresses with this machine's resolver. Raises `OSError`."""
    infos = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


USUAL_PORTS = (80, 443)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 8_000
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_UNESCAPED = "/?%:@!$&'()*+,;=~[]|"  # characters of a path and a query that are not escaped
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")  # a last label that makes a host name an IPv4 address
_LOCAL_NAMES = ("localhost.localdomain", "ip6-localhost", "ip6-loopback")
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # IPv4 addresses embedded in IPv6 (NAT64)
_UNICAST = ipaddress.ip_network("2000::/3")  # public IPv6 addresses
# Not public, although some versions of `ipaddress` disagree: protocols, 6to4 relays, documentation.
_OTHERS = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
_DIFFERENT = frozenset("ßẞςΣ\u200c\u200d")  # IDNA 2003 and 2008 encode these differently
_TRANSLATED_LOCALLY = ipaddress.ip_network("64:ff9b:1::/48")


class NetworkHost(NamedTuple):
    """A host as written in a rule or a command; `port` is None for the default ports."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text) < 65_536


def parse_host(text: str) -> NetworkHost | None:
    """Read `example.org`, `*.example.org` or `example.org:8443`; None for anything else.

    Names are compared in lower case, IDNA-encoded, without a trailing dot. A name that programs encode differently must
    be written in its encoded form (xn--…).
    """
    if not _DIFFERENT.isdisjoint(text):
        return None
    name, colon, port = text.strip().partition(":")
    if colon and not _is_port(port):
        return None
    name = name.lower().removesuffix(".")
    try:
        name = name if name.isascii() else name.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return None
    if len(name) > 253 or not _NAME.fullmatch(name):
        return None
    return NetworkHost(name, int(port) if colon else None)


def is_allowed(entries: Iterable[str], name: str, port: int) -> bool:
    """Return whether one of `entries` covers a host at a port.

    Entire labels are compared; `*.` stands for one or more labels.
    """
    host = parse_host(name)
    if host is None or host.port is not None or "*" in host.name:
        return False
    return any(_covers(entry, host.name, port) for text in entries if (entry := parse_host(text)) is not None)


def _covers(entry: NetworkHost, name: str, port: int) -> bool:
    if port not in (USUAL_PORTS if entry.port is None else (entry.port,)):
        return False
    if entry.name.startswith("*."):
        return name.endswith(entry.name[1:]) and len(name) > len(entry.name) - 1
    return name == entry.name


def find_uncovered(wanted: Iterable[str], allowed: Collection[str]) -> list[str]:
    """Return the hosts in `wanted` that `allowed` does not cover."""
    out: list[str] = []
    for text in wanted:
        host = parse_host(text)
        if host is None or text in allowed or str(host) in allowed:
            continue
        ports = USUAL_PORTS if host.port is None else (host.port,)
        if "*" in host.name or not all(is_allowed(allowed, host.name, port) for port in ports):
            out.append(str(host))
    return list(dict.fromkeys(out))


def _get_embedded_address(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address embedded in `ip`: mapped, 6to4 or NAT64."""
    if ip in _TRANSLATED:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.sixtofour if ip.ipv4_mapped is None else ip.ipv4_mapped


def is_public(address: str) -> bool:
    """Return whether an address is on the public internet, not on this machine or its networks."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if (inner := _get_embedded_address(ip)) is not None:
            return is_public(str(inner))
        if ip.teredo is not None or ip in _TRANSLATED_LOCALLY or ip not in _UNICAST:
            return False
    if any(ip in network for network in _OTHERS):
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


# --- URLs --------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """Checked URL without fragment; `host` is IDNA-encoded, IPv6 without brackets."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def rule_host(self) -> str:
        """Return the host as written in rules, with its port unless that is a default one."""
        return self.host if self.port in USUAL_PORTS else f"{self.host}:{self.port}"


def parse_url(text: str, private: Sequence[str] = ()) -> Target:
    """Check an absolute URL without a DNS look-up. Raises HttpError."""
    text = text.strip()
    if len(text) > _LONGEST_URL or _FORBIDDEN.search(text):
        raise HttpError("The URL is too long or contains spaces, backslashes or control characters.", code="address")
    try:
        parts = urlsplit(text)
        name, port = parts.hostname or "", parts.port
    except ValueError as e:
        raise HttpError(f"{quote(text, 100)} is not a valid URL.", code="address") from e
    if parts.scheme not in _DEFAULT_PORTS:
        raise HttpError("Only http:// and https:// URLs can be opened.", code="address")
    if "@" in parts.netloc:
        raise HttpError("A URL with a user name or password is not opened.", code="address")
    host = _parse_host(name, "[" in parts.netloc)
    if host not in private and _is_local(host):
        raise make_private_refusal(host)
    return _make_target(parts, host, _DEFAULT_PORTS[parts.scheme] if port is None else port)


def _make_target(parts: SplitResult, host: str, port: int) -> Target:
    """Rebuild a URL, so that every later parser sees the checked host."""
    shown = f"[{host}]" if ":" in host else host
    where = shown if port == _DEFAULT_PORTS[parts.scheme] else f"{shown}:{port}"
    path = escape_url(parts.path or "/", safe=_UNESCAPED)
    query = f"?{escape_url(parts.query, safe=_UNESCAPED)}" if parts.query else ""
    return Target(f"{parts.scheme}://{where}{path}{query}", parts.scheme, host, port)


def _parse_host(name: str, is_bracketed: bool) -> str:
    """Return a host as it is resolved, with addresses in canonical form. Raises HttpError."""
    invalid = HttpError(f"{quote(name, 100)} is not a host name.", code="address")
    if is_bracketed:
        try:
            address = ipaddress.IPv6Address(name)
        except ValueError as e:
            raise invalid from e
        if address.scope_id is not None:
            raise invalid
        return str(address)
    host = parse_host(name)
    if host is None or host.port is not None or "*" in host.name:
        raise invalid
    if not _NUMBER.fullmatch(host.name.rpartition(".")[2]):
        return host.name
    try:  # also 127.1, 0x7f000001, 2130706433 and 0177.0.0.1, which resolvers accept
        return str(ipaddress.IPv4Address(socket.inet_aton(host.name)))
    except OSError as e:
        raise invalid from e


def _is_local(host: str) -> bool:
    """Return whether the text of a host names this machine or its networks."""
    if host == "localhost" or host.endswith(".localhost") or host in _LOCAL_NAMES:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(host)


def make_private_refusal(host: str) -> HttpError:
    """Return the error for a host on this machine or its networks."""
    what = f"{host} is a local or private address, which is not opened."
    return HttpError(f"{what} For a server on this machine, use bash with curl.", code="address")
