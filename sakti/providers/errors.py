"""Convert failures of a model call to our own errors; the only place that knows the HTTP client's exceptions.

They are told apart by class name, so that nothing has to be imported to catch them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from sakti.core.errors import ProviderError
from sakti.providers.refusals import Where, clean, from_status, make_error, page_text

_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"})
_BROKEN = frozenset({"RemoteProtocolError", "ReadError", "StreamError", "JSONDecodeError"})
_UNREACHABLE = frozenset({"APIConnectionError", "HTTPError", "InvalidURL", "OSError"})


@contextmanager
def boundary(where: Where) -> Generator[None]:
    """Convert everything that is raised inside to a ProviderError; cancellation passes through."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as e:
        raise from_exception(e, where) from e


def from_exception(error: Exception, where: Where) -> ProviderError:
    """Convert whatever the HTTP client raised to a ProviderError."""
    status: Any = getattr(error, "status_code", None)
    if isinstance(status, int):
        response: Any = getattr(error, "response", None)
        headers = cast("Mapping[str, str]", getattr(response, "headers", {}))
        return from_status(status, getattr(error, "body", None), headers, where)
    names = {c.__name__ for c in type(error).__mro__}
    if names & _TIMEOUTS:
        return silent(where)
    if "DecodingError" in names:
        why = clean(str(error), where)
        return make_error(
            "unreadable",
            f"{where.host} sent an answer that cannot be decompressed ({why}): check the server and its proxy.",
        )
    if names & _BROKEN:
        return stream_cut(where)
    if names & _UNREACHABLE:
        return _unreachable(error, where)
    return make_error("invalid_request", f"{where.provider} could not be called: {clean(str(error), where)}")


def _unreachable(error: Exception, where: Where) -> ProviderError:
    """Convert a failed connection, by its first cause: most of them cannot be helped by waiting."""
    chain = list(_causes(error))
    names = {c.__name__ for cause in chain for c in type(cause).__mro__}
    text = " ".join(str(cause) for cause in chain)
    why = clean(str(chain[-1]), where) or type(chain[-1]).__name__
    if "SSLCertVerificationError" in names or "CERTIFICATE_VERIFY_FAILED" in text:
        return make_error(
            "certificate",
            f"The certificate of {where.host} is not trusted ({why}): check the address and the clock of this machine, "
            "or name your own authority in SSL_CERT_FILE.",
        )
    if "TooManyRedirects" in names:
        return make_error("not_found", f"{where.host} redirects without end: check the server's address.")
    if proxy := _proxy(where.base_url):
        return make_error(
            "unreachable",
            f"The proxy {proxy} does not lead to {where.host} ({why}): check it, or name the host in NO_PROXY.",
        )
    if "gaierror" in names or "Name or service not known" in text or "nodename nor servname" in text:
        return make_error(
            "unknown_host",
            f"Host {where.host} not found ({why}): check the address, the network and its name server.",
        )
    if "ConnectionRefusedError" in names or "Connection refused" in text or "All connection attempts failed" in text:
        return make_error(
            "unreachable", f"Nothing answers at {where.host} ({why}): start the server or check its address."
        )
    return make_error(
        "connection", f"{where.host} cannot be reached ({why}): check the network, the proxy and the server's address."
    )


def _proxy(url: str) -> str:
    """Return the host of the proxy that the environment names for `url`, empty where there is none."""
    import urllib.request

    try:
        asked = urlsplit(url)
        host = asked.hostname or ""
        proxies = urllib.request.getproxies()
        proxy = proxies.get(asked.scheme) or proxies.get("all") or ""
        found = urlsplit(proxy if "://" in proxy else f"//{proxy}")
        return "" if not host or urllib.request.proxy_bypass(host) else found.netloc.rpartition("@")[2]
    except ValueError:
        return ""


def not_a_model(where: Where, kind: str, body: str) -> ProviderError:
    """Build the error for a success that is not a model's answer: a proxy's page, a login; not retryable.

    The message quotes it.
    """
    quoted = clean(page_text(body), where)
    return make_error(
        "not_a_model",
        f"{where.host} did not answer as a model server but with {kind}{f': “{quoted}”' if quoted else ''}. Check the "
        "address; a network that wants a login first answers so, too.",
    )


def stream_cut(where: Where) -> ProviderError:
    """Build the error for a stream that ended, or broke, before the answer did."""
    return make_error("stream_cut", f"The connection to {where.host} was cut before the answer was complete.")


def silent(where: Where) -> ProviderError:
    return make_error("timeout", f"{where.host} has been silent for {where.timeout:g} s.")


def no_key(where: Where) -> ProviderError:
    return make_error(
        "authentication",
        f"No key for {where.provider}: set {where.key_env or 'its key'} "
        "in the environment, or store it in the system keyring.",
    )


def _causes(error: BaseException) -> Generator[BaseException]:
    """Yield an exception and its causes, the first cause last."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
