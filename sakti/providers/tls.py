"""Make the TLS context of a connection: reading the certificates takes 50 ms, so it is done once and where needed."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from os import environ
from urllib.parse import urlsplit

_FILES = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # variables that name certificates


def context(url: str, env: Mapping[str, str] = environ) -> ssl.SSLContext:
    """Return the context for connections to `url`; one for plain HTTP to this machine knows no certificate.

    Where such a server redirects to HTTPS, its certificate is refused.
    """
    if is_local_plain(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _verifying(*(env.get(name) for name in _FILES))


def is_local_plain(url: str) -> bool:
    """Return whether a URL is plain HTTP on the loopback interface."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http":
        return False
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@functools.cache
def _verifying(*_files: str | None) -> ssl.SSLContext:
    import httpx2

    return httpx2.create_ssl_context()
