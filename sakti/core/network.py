"""Decide how a server is reached: through which proxy, and with which certificates."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from os import environ
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sakti.core.errors import ProviderError

_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_PORTS = {"http": 80, "https": 443}
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def client_options(url: str) -> dict[str, Any]:
    """Return the arguments of an httpx2 client for `url`.

    The proxy is chosen here and not by httpx2, so that an error message can name the proxy that was really used.
    Raises ProviderError: certificate if a variable names certificates that cannot be read, proxy for a kind of proxy
    that is not supported.
    """
    proxy = proxy_for(url)
    parts = urlsplit(proxy)
    if proxy and parts.scheme not in _PROXY_SCHEMES:
        host = parts.netloc.rpartition("@")[2]
        kinds = ", ".join(_PROXY_SCHEMES)
        raise ProviderError(f"The proxy {host} has the scheme {parts.scheme}; use one of {kinds}.", code="proxy")
    return {"proxy": proxy or None, "verify": tls_context(url), "trust_env": False, "follow_redirects": True}


def is_loopback(url: str) -> bool:
    """Return whether `url` names this machine: `localhost` or a loopback address."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_for(url: str) -> str:
    """Return the proxy that the environment names for `url`; empty for a direct connection.

    Loopback is always reached directly. Variables in lower case win over those in upper case.
    """
    import urllib.request

    try:
        target = urlsplit(url)
        host, port = target.hostname or "", target.port or _PORTS.get(target.scheme, 0)
    except ValueError:
        return ""
    proxies = urllib.request.getproxies()
    proxy = proxies.get(target.scheme) or proxies.get("all") or ""
    if not proxy or is_loopback(url) or _is_excluded(host, port, proxies.get("no", "")):
        return ""
    if "no" not in proxies and urllib.request.proxy_bypass(host):  # the settings of macOS and Windows
        return ""
    if proxy.startswith("socks://"):  # the desktop's way to write it, which the client does not know
        return proxy.replace("socks", "socks5", 1)
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_excluded(host: str, port: int, no_proxy: str) -> bool:
    """Return whether NO_PROXY lists a host: by name, domain, address or network, some with a port."""
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


def tls_context(url: str, env: Mapping[str, str] = environ) -> ssl.SSLContext:
    """Return the TLS context for `url`. Reading the certificates takes 50 ms, so it is done once.

    Plain HTTP to this machine needs none; if such a server redirects to HTTPS, its certificate is refused.
    Raises ProviderError (certificate) if a variable names certificates that cannot be read.
    """
    if url.startswith("http:") and is_loopback(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for name in _CERTIFICATES:
        if (path := env.get(name)) and not Path(path).exists():
            raise _certificate_error(name, path, "does not exist")
    try:
        return _verifying(*(env.get(name) for name in _CERTIFICATES))
    except OSError as e:
        name = next((n for n in _CERTIFICATES if env.get(n)), _CERTIFICATES[0])
        raise _certificate_error(name, env.get(name, ""), f"cannot be read ({e.strerror or e})") from e


def _certificate_error(name: str, path: str, problem: str) -> ProviderError:
    return ProviderError(f"{name} names {path}, which {problem}: fix the variable or unset it.", code="certificate")


@functools.cache
def _verifying(*_paths: str | None) -> ssl.SSLContext:
    import httpcore2

    return httpcore2.default_ssl_context()


async def resolve_host(name: str, port: int) -> Sequence[str]:
    """Return the addresses of a name, as this machine resolves it. Raises `OSError`."""
    infos = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))
