"""Decide which hosts and URLs may be reached, by name and by address. Pure."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from sakti.core.errors import HttpError
from sakti.core.text import one_line

USUAL_PORTS = (80, 443)
_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 8_000
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\\ud800-\udfff]")
_UNESCAPED = "/?%:@!$&'()*+,;=~[]|"  # signs of a path and a query that stay as they are
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")  # a last label that makes a host name an IPv4 address
_LOCAL_NAMES = ("localhost.localdomain", "ip6-localhost", "ip6-loopback")
_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # IPv4 addresses in IPv6, by NAT64
_UNICAST = ipaddress.ip_network("2000::/3")  # what of IPv6 is assigned to the internet
# Not of the internet, although not every version of `ipaddress` says so: protocols, relays of 6to4, documentation.
_OTHERS = tuple(map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
_DIFFERENT = frozenset("ßẞςΣ\u200c\u200d")  # the older and the newer IDNA make different names of these
_TRANSLATED_LOCALLY = ipaddress.ip_network("64:ff9b:1::/48")


class NetworkHost(NamedTuple):
    """A host as a rule or a command names it: `port` None for the usual ones."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        return self.name if self.port is None else f"{self.name}:{self.port}"


def read(text: str) -> NetworkHost | None:
    """Read `example.org`, `*.example.org` or `example.org:8443`; None for anything else.

    A name is compared in lower case, as it is resolved (IDNA), without the dot at its end. One that programs resolve
    differently has to be written as it is resolved (xn--…).
    """
    if not _DIFFERENT.isdisjoint(text):
        return None
    name, colon, port = text.strip().partition(":")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return None
    name = name.lower().removesuffix(".")
    try:
        name = name if name.isascii() else name.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return None
    if len(name) > 253 or not _NAME.fullmatch(name):
        return None
    return NetworkHost(name, int(port) if colon else None)


def allows(entries: Iterable[str], name: str, port: int) -> bool:
    """Return whether one of `entries` covers a host at a port.

    Complete labels are compared; `*.` covers one or more before them.
    """
    host = read(name)
    if host is None or host.port is not None or "*" in host.name:
        return False
    return any(_covers(entry, host.name, port) for text in entries if (entry := read(text)) is not None)


def _covers(entry: NetworkHost, name: str, port: int) -> bool:
    if port not in (USUAL_PORTS if entry.port is None else (entry.port,)):
        return False
    if entry.name.startswith("*."):
        return name.endswith(entry.name[1:]) and len(name) > len(entry.name) - 1
    return name == entry.name


def missing(wanted: Iterable[str], allowed: Collection[str]) -> list[str]:
    """Return those hosts of `wanted` that `allowed` does not cover."""
    out: list[str] = []
    for text in wanted:
        host = read(text)
        if host is None or text in allowed or str(host) in allowed:
            continue
        ports = USUAL_PORTS if host.port is None else (host.port,)
        if "*" in host.name or not all(allows(allowed, host.name, port) for port in ports):
            out.append(str(host))
    return list(dict.fromkeys(out))


def is_public(address: str) -> bool:
    """Return whether an address belongs to the public internet: none of this machine and its networks."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        if ip.sixtofour is not None:
            return is_public(str(ip.sixtofour))
        if ip in _TRANSLATED:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        if ip.teredo is not None or ip in _TRANSLATED_LOCALLY or ip not in _UNICAST:
            return False
    if any(ip in network for network in _OTHERS):
        return False
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


# --- URLs --------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """Checked URL, without its fragment; `host` as it is resolved, IPv6 without brackets."""

    url: str
    scheme: str
    host: str
    port: int

    @property
    def rule_host(self) -> str:
        """Return the host as rules name it: with its port, unless that is a usual one."""
        return self.host if self.port in USUAL_PORTS else f"{self.host}:{self.port}"


def parse_url(text: str, private: Sequence[str] = ()) -> Target:
    """Check an absolute URL as far as that goes without a look-up. Raises HttpError."""
    text = text.strip()
    if len(text) > _LONGEST_URL or _FORBIDDEN.search(text):
        raise HttpError("The URL is too long or contains spaces, backslashes or control characters.", code="address")
    try:
        parts = urlsplit(text)
        name, port = parts.hostname or "", parts.port
    except ValueError as e:
        raise HttpError(f"{one_line(text, 100)!r} is not a valid URL.", code="address") from e
    if parts.scheme not in _PORTS:
        raise HttpError("Only http:// and https:// URLs can be opened.", code="address")
    if "@" in parts.netloc:
        raise HttpError("A URL with a user name or password is not opened.", code="address")
    host = _parse_host(name, "[" in parts.netloc)
    if host not in private and _is_local(host):
        raise private_refusal(host)
    return _write_target(parts, host, _PORTS[parts.scheme] if port is None else port)


def _write_target(parts: SplitResult, host: str, port: int) -> Target:
    """Rebuild a URL, so that every later reader finds the host that was checked."""
    shown = f"[{host}]" if ":" in host else host
    where = shown if port == _PORTS[parts.scheme] else f"{shown}:{port}"
    path = quote(parts.path or "/", safe=_UNESCAPED)
    query = f"?{quote(parts.query, safe=_UNESCAPED)}" if parts.query else ""
    return Target(f"{parts.scheme}://{where}{path}{query}", parts.scheme, host, port)


def _parse_host(name: str, is_bracketed: bool) -> str:
    """Return a host as it is resolved; addresses in any notation in their usual form. Raises HttpError."""
    invalid = HttpError(f"{one_line(name, 100)!r} is not a host name.", code="address")
    if is_bracketed:
        try:
            address = ipaddress.IPv6Address(name)
        except ValueError as e:
            raise invalid from e
        if address.scope_id is not None:
            raise invalid
        return str(address)
    host = read(name)
    if host is None or host.port is not None or "*" in host.name:
        raise invalid
    if not _NUMBER.fullmatch(host.name.rpartition(".")[2]):
        return host.name
    try:  # also 127.1, 0x7f000001, 2130706433 and 0177.0.0.1, which resolvers accept
        return str(ipaddress.IPv4Address(socket.inet_aton(host.name)))
    except OSError as e:
        raise invalid from e


def _is_local(host: str) -> bool:
    """Return whether a host is of this machine or its networks, as far as its text tells."""
    if host == "localhost" or host.endswith(".localhost") or host in _LOCAL_NAMES:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return not is_public(host)


def private_refusal(host: str) -> HttpError:
    """Return the error for a host of this machine or its networks."""
    what = f"{host} is a local or private address, which is not opened."
    return HttpError(f"{what} For a server on this machine, use bash with curl.", code="address")
