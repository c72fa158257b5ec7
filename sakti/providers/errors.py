"""Convert failures of a model call to ProviderErrors; only this module knows the client's exceptions.

They are told apart by class name, so that nothing has to be imported to catch them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from sakti.core import network
from sakti.core.errors import ProviderError
from sakti.providers.refusals import Where, clean, from_event, from_status, make_error, page_text

_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"})
_BROKEN = frozenset({"RemoteProtocolError", "ReadError", "StreamError", "JSONDecodeError"})
_UNREACHABLE = frozenset({"APIConnectionError", "HTTPError", "InvalidURL", "OSError"})
# of google.auth, botocore and azure.identity
_LOGIN = frozenset({"GoogleAuthError", "BotoCoreError", "ClientAuthenticationError"})


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
    """Convert an exception of an SDK, of its HTTP client or of a cloud's login to a ProviderError."""
    for cause in _causes(error):
        if isinstance(cause, ProviderError):  # raised while the SDK was sending, and wrapped by it
            return cause
    status: Any = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _from_sdk(status, error, where)
    names = {c.__name__ for c in type(error).__mro__}
    if names & _LOGIN:
        return make_error(
            "authentication", f"The login for {where.provider} failed ({clean(str(error), where)}): log in again."
        )
    if names & _TIMEOUTS:
        return _no_connection(where) if _is_connecting(error) else silent(where)
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


def _is_connecting(error: Exception) -> bool:
    return any(type(cause).__name__ == "ConnectTimeout" for cause in _causes(error))


def _no_connection(where: Where) -> ProviderError:
    """Build the error for a connection that was not made in time."""
    proxy = _proxy(where)
    peer = f"The proxy {proxy}" if proxy else where.host
    return make_error("timeout", f"{peer} does not answer: no connection was made in time. Check its address.")


def _from_sdk(status: int, error: Exception, where: Where) -> ProviderError:
    """Convert a status error of an SDK; inside a stream it has the stream's own status."""
    body: Any = getattr(error, "body", None)
    if status < 400:
        return from_event(body, where)
    headers = cast("Mapping[str, str]", getattr(getattr(error, "response", None), "headers", {}))
    return from_status(status, body, headers, where)


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
    if proxy := _proxy(where):
        message = f"The proxy {proxy} cannot reach {where.host} ({why}): check it, or name the host in NO_PROXY."
        return proxy_login(where) if "407" in text else make_error("unreachable", message)
    return _connection_error(names, text, why, where)


def _connection_error(names: set[str], text: str, why: str, where: Where) -> ProviderError:
    """Convert a connection that was never made, without a proxy on the way."""
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
        "connection", f"{where.host} cannot be reached ({why}): check the network and the server's address."
    )


def not_a_model(where: Where, kind: str, body: str) -> ProviderError:
    """Build the error for a success that is not a model's answer: a proxy's page, a login; not retryable.

    The message quotes it.
    """
    quoted = clean(page_text(body), where)
    return make_error(
        "not_a_model",
        f"{where.host} answered not as a model server but with {kind}{f': “{quoted}”' if quoted else ''}. Check the "
        "address; networks that ask for a login first also answer like this.",
    )


def stream_cut(where: Where) -> ProviderError:
    """Build the error for a stream that ended, or broke, before the answer did."""
    return make_error("stream_cut", f"The connection to {where.host} was cut before the answer was complete.")


def silent(where: Where) -> ProviderError:
    return make_error("timeout", f"{where.host} has been silent for {where.timeout:g} s.")


def only_keep_alives(where: Where, seconds: float) -> ProviderError:
    """Build the error for a stream that is kept open without an event."""
    return make_error(
        "no_events",
        f"{where.host} held the connection open for {seconds / 60:g} minutes without sending anything: ask again, or "
        "choose another model with /model.",
    )


def line_too_long(where: Where, size: int) -> ProviderError:
    """Build the error for a line of a stream that is longer than any event."""
    return make_error(
        "line_too_long",
        f"{where.host} sent a line of more than {size >> 20} MB: check the server, or choose another model.",
    )


def proxy_login(where: Where) -> ProviderError:
    """Build the error for a proxy that asks for a user and a password."""
    return make_error(
        "proxy",
        f"The proxy {_proxy(where)} asks for a login: write it as http://USER:PASSWORD@HOST:PORT in HTTPS_PROXY.",
    )


def _proxy(where: Where) -> str:
    """Return the proxy that requests to `where` go through, as host and port; empty for none."""
    return urlsplit(network.proxy_for(where.base_url)).netloc.rpartition("@")[2]


def _causes(error: BaseException) -> Generator[BaseException]:
    """Yield an exception and its causes, the first cause last."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
