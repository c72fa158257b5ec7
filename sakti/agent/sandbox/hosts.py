"""Decide which hosts a command may reach, by name and by address. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

USUAL_PORTS = (80, 443)
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
