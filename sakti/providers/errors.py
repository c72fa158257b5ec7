"""Convert refusals of a server, and exceptions of its client, to ProviderErrors.

Refusals are classified by status or by an event of the stream, on the raw text; secrets are masked only in the message
that is shown. Exceptions are recognised by class name, so that nothing has to be imported to catch them.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct

from sakti.core import network
from sakti.core.errors import ProviderError
from sakti.core.types import Json
from sakti.providers import limits, server_words
from sakti.providers.server_words import get_text_pattern

SHORTEST_SECRET = 8  # characters: a shorter key ("x", "test") is part of ordinary words
LONGEST_TEXT = 300  # characters of a server's text in a message
LONGEST_READ = 20_000  # characters of a server's text that are classified

_RETRYABLE = frozenset(
    {
        *("rate_limit", "overloaded", "server", "connection", "unreachable", "unknown_host", "timeout"),
        *("stream_cut", "unreadable", "line_too_long"),
    }
)
_TOO_LONG = get_text_pattern("too_long")
_OUTPUT_TOO_LONG = get_text_pattern("output_too_long")
_QUOTA_KINDS = get_text_pattern("quota_kinds")
_QUOTA_TEXT = get_text_pattern("quota")
_POLICY_KINDS = get_text_pattern("policy_kinds")
NO_IMAGES = get_text_pattern("no_images")
FILTERED = get_text_pattern("filtered")
_REGION = get_text_pattern("region")
_SUSPENDED = get_text_pattern("suspended")

_STATUS_CODES = {
    401: "authentication",
    402: "authentication",
    403: "permission",
    404: "not_found",
    408: "timeout",
    409: "server",
    429: "rate_limit",
    529: "overloaded",
    503: "overloaded",
}
_MAY_OVERFLOW = (400, 404, 413, 422, 500)  # statuses with which servers report a request that is too long


class ErrorContext(Struct, frozen=True):
    """The called server, as error messages name it; `secrets` are removed from them."""

    provider: str
    base_url: str = ""
    key_env: str = ""
    secrets: tuple[str, ...] = ()
    timeout: float = 120.0

    @property
    def host(self) -> str:
        return re.sub(r"^https?://(?:[^@/]*@)?([^/]+).*$", r"\1", self.base_url) or self.provider


class ServerReport(Struct, frozen=True):
    """Error as a server reports it, unmasked: text, types and codes, and the parameter it names."""

    text: str = ""
    kind: str = ""
    param: str = ""

    @property
    def everything(self) -> str:
        return " ".join(filter(None, (self.text, self.kind, self.param)))


def from_success(body: Any, context: ErrorContext) -> ProviderError:
    """Build the error for an error object in an answer with status 200.

    Its content decides; the error is final unless it says that waiting helps.
    """
    error, report = from_event(body, context), read_report(body)
    if error.code == "server" and not re.search(r"overload|rate|timeout|unavailable|5\d\d", report.kind, re.I):
        shown = mask_text(report.text, context) or "it does not say which"
        final = make_error("invalid_request", f"{context.provider} answered with an error: {shown}", status=400)
        final.server_text = report.everything
        return final
    return error


def from_status(status: int, body: Any, headers: Mapping[str, str], context: ErrorContext) -> ProviderError:
    """Build the error for an HTTP status that is not a success."""
    report = read_report(body)
    code = classify_refusal(status, report)
    wait = limits.read_retry_after(headers, report.text, body, limited=status == 429)
    error = _build(code, status, report, context, wait)
    should_retry = str(headers.get("x-should-retry") or "").lower()
    if should_retry in ("true", "false"):
        error.retryable = should_retry == "true"
    return error


def from_event(body: Any, context: ErrorContext) -> ProviderError:
    """Build the error for an error event in a stream that started successfully."""
    report = read_report(body)
    status = next((s for word, s in server_words.read().statuses.items() if word in report.kind.lower()), None)
    if status is None:
        number = re.search(r"\b([45]\d\d)\b", report.kind)
        status = int(number[1]) if number else 500
    return _build(
        classify_refusal(status, report), status, report, context, limits.read_retry_after({}, report.text, body)
    )


def _build(
    code: str, status: int, report: ServerReport, context: ErrorContext, retry_after: float | None
) -> ProviderError:
    sentence = _write_sentence(code, status, report, context)
    error = make_error(code, sentence, status=status, retry_after=retry_after)
    error.server_text = report.everything
    if code in ("context_too_long", "output_too_long"):
        stated = limits.parse_limits(report.text)
        error.output_limit, error.max_output, error.window = stated.output, stated.maximum, stated.window
    return error


def classify_refusal(status: int, report: ServerReport) -> str:
    """Return the code of the error that a server reports with `status`."""
    if _is_quota(status, report):
        return "authentication"  # waiting does not add credit to an account
    if _POLICY_KINDS.search(report.kind):
        return "refused"
    if _refuses_content(status, report):
        return "invalid_request"
    if status in _MAY_OVERFLOW and (code := _classify_length(status, report)):
        return code
    if status in _STATUS_CODES:
        return _STATUS_CODES[status]
    return "server" if status >= 500 else "invalid_request"


def _refuses_content(status: int, report: ServerReport) -> bool:
    """Return whether a request was refused because of an image or filtered text."""
    if status == 403:
        return bool(FILTERED.search(report.everything))
    return status in (400, 404, 415, 422, 500, 501) and bool(NO_IMAGES.search(report.text))


def _is_quota(status: int, report: ServerReport) -> bool:
    return status == 402 or bool(_QUOTA_KINDS.search(report.kind) or _QUOTA_TEXT.search(report.text))


def _classify_length(status: int, report: ServerReport) -> str:
    """Return the code for a request, or a requested answer, that is too long; empty if neither is."""
    if status == 413:
        return "context_too_long"  # too many bytes for the server to count tokens
    too_long = bool(_TOO_LONG.search(report.everything))
    if status in (400, 422):
        stated = limits.parse_limits(report.text)
        if stated.named and (stated.output or 0) >= limits.LEAST_ANSWER:
            return "output_too_long"
        if _OUTPUT_TOO_LONG.search(report.text) and stated.output is None and not too_long:
            return "output_too_long"
    return "context_too_long" if too_long else ""


def _write_account_sentence(code: str, status: int, report: ServerReport, why: str, context: ErrorContext) -> str:
    """Explain that a server rejects this account or key; `why` is the server's reason, as a clause."""
    name = context.provider
    if code == "authentication" and _is_quota(status, report):
        return f"The account at {name} has no credit left{why} Add credit, or choose another model with /model."
    if report.kind != "page" and _SUSPENDED.search(report.text):
        return f"{name} has suspended this account or key ({status}){why} Contact its support, or use another key."
    if code == "permission":
        return _write_permission_sentence(status, report, why, context)
    key = f"check {context.key_env}" if context.key_env else "check its key"
    text = mask_text(report.text, context)
    return f'Invalid API key for "{name}" ({status}): {key}{f" — {text}" if text else "."}'


def _write_sentence(code: str, status: int, report: ServerReport, context: ErrorContext) -> str:
    name, text = context.provider, mask_text(report.text, context)
    why = f": {text}{'' if text[-1] in '.!?…' else '.'}" if text else "."
    match code:
        case "authentication" | "permission":
            return _write_account_sentence(code, status, report, why, context)
        case "not_found":
            return f"{name} does not know this model or address ({context.host}){why} `sakti models` lists its models."
        case "output_too_long":
            return f"{name} allows no answer of that length{why}"
        case "context_too_long" if status == 413:
            return f"The request is larger than {name} takes ({status}){why} Send less at once, or start a new thread."
        case "context_too_long":
            return (
                f"The thread is longer than the model's window{why} Start a new thread, or choose a model with a "
                "larger window with /model."
            )
        case "refused":
            return f"{name} refused the request because of its usage policy{why}"
        case _:
            return _write_status_sentence(code, status, name, why)


def _write_permission_sentence(status: int, report: ServerReport, why: str, context: ErrorContext) -> str:
    if report.kind == "page":
        return f"A firewall or proxy in front of {context.host} blocked the request ({status}){why} Check the network."
    if _REGION.search(report.everything):
        return f"{context.provider} does not serve this country or region ({status}){why}"
    return (
        f"{context.provider} denied access ({status}){why} Check the permissions of key, project and account, or "
        "choose another model with /model."
    )


def _write_status_sentence(code: str, status: int, name: str, why: str) -> str:
    match code:
        case "invalid_request":
            return f"{name} refused the request ({status}){why}"
        case "rate_limit":
            return f"{name} asks to slow down{why}"
        case "overloaded":
            return f"{name} is overloaded at the moment ({status}){why}"
        case "timeout":
            return f"{name} took too long ({status}){why}"
        case _:
            return f"{name} had an internal error ({status}){why}"


def read_report(body: Any) -> ServerReport:
    """Read a server's error: its message in one line, its type and code, and the parameter that it names."""
    outer = limits.get_outer_object(body)
    inner: Any = outer.get("error", outer)
    if isinstance(inner, str):
        return ServerReport(_flatten_text(inner), str(outer.get("code") or ""))
    if not outer or not isinstance(inner, dict):
        return _read_plain_report(body)
    fields = cast("Json", inner)
    message = fields.get("message") or _join_details(fields.get("detail")) or ""
    kind = " ".join(str(fields.get(k) or "") for k in ("type", "code", "status", "__type"))
    return ServerReport(_flatten_text(str(message)), kind.strip(), str(fields.get("param") or ""))


def _read_plain_report(body: Any) -> ServerReport:
    """Read a body that is not JSON: a page, plain text, or nothing."""
    if not isinstance(body, str):
        return ServerReport()
    return ServerReport(read_page_text(body), "page") if "<" in body else ServerReport(_flatten_text(body))


def read_page_text(page: str) -> str:
    """Return the text of a page, in one line."""
    return _flatten_text(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page, flags=re.S | re.I))


def _flatten_text(text: str) -> str:
    return " ".join(text[:LONGEST_READ].split())


def _join_details(value: Any) -> str:
    """Join a validator's list (`[{"loc": ["body", "max_tokens"], "msg": "Field required"}]`) to one text."""
    if not isinstance(value, list):
        return str(value or "")
    listed = cast("list[Any]", value)
    problems = [cast("Json", each) for each in listed if isinstance(each, dict)]
    rows = (f"{'.'.join(map(str, cast('list[Any]', e.get('loc') or [])))}: {e.get('msg') or ''}" for e in problems)
    return "; ".join(rows) or str(listed)


def mask_text(text: str, context: ErrorContext) -> str:
    """Return a server's text for display: one line, masked, at most `LONGEST_TEXT` characters."""
    text = _flatten_text(text)
    for secret in context.secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "•••")
    text = re.sub(r"\b(sk|pk|key|gsk|AIza)[-_]?[A-Za-z0-9_\-*]{12,}", "•••", text)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def make_error(
    code: str, message: str, *, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    return ProviderError(message, code=code, retryable=code in _RETRYABLE, status=status, retry_after=retry_after)


_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException", "TimeoutError"})
_BROKEN = frozenset({"RemoteProtocolError", "ReadError", "StreamError", "JSONDecodeError"})
_UNREACHABLE = frozenset({"APIConnectionError", "HTTPError", "InvalidURL", "OSError"})
# of google.auth, botocore and azure.identity
_LOGIN = frozenset({"GoogleAuthError", "BotoCoreError", "ClientAuthenticationError"})


@contextmanager
def boundary(context: ErrorContext) -> Generator[None]:
    """Convert every exception raised in the context to a ProviderError, except cancellation."""
    try:
        yield
    except ProviderError:
        raise
    except Exception as e:
        raise from_exception(e, context) from e


def from_exception(error: Exception, context: ErrorContext) -> ProviderError:
    """Convert an exception of an SDK, of its HTTP client or of a cloud's login to a ProviderError."""
    wrapped = next((c for c in _list_causes(error) if isinstance(c, ProviderError)), None)
    if wrapped is not None:  # raised while the SDK was sending
        return wrapped
    status: Any = getattr(error, "status_code", None)
    if isinstance(status, int):
        return _convert_status_error(status, error, context)
    names = {c.__name__ for c in type(error).__mro__}
    if names & _LOGIN:
        return make_error(
            "authentication",
            f"The login for {context.provider} failed ({mask_text(str(error), context)}): log in again.",
        )
    if names & _TIMEOUTS:
        return _connect_timeout_error(context) if _is_connecting(error) else make_silence_error(context)
    if "DecodingError" in names:
        why = mask_text(str(error), context)
        return make_error(
            "unreadable",
            f"{context.host} sent an answer that cannot be decompressed ({why}): check the server and its proxy.",
        )
    if names & _BROKEN:
        return make_incomplete_stream_error(context)
    if names & _UNREACHABLE:
        return _convert_connect_failure(error, context)
    return make_error("invalid_request", f"{context.provider} could not be called: {mask_text(str(error), context)}")


def _is_connecting(error: Exception) -> bool:
    return any(type(cause).__name__ == "ConnectTimeout" for cause in _list_causes(error))


def _connect_timeout_error(context: ErrorContext) -> ProviderError:
    """Build the error for a connection that was not made in time."""
    proxy = _find_proxy(context)
    peer = f"The proxy {proxy}" if proxy else context.host
    return make_error("timeout", f"{peer} does not answer: no connection was made in time. Check its address.")


def _convert_status_error(status: int, error: Exception, context: ErrorContext) -> ProviderError:
    """Convert a status error of an SDK; inside a stream it has the stream's own status."""
    body: Any = getattr(error, "body", None)
    if status < 400:
        return from_event(body, context)
    headers = cast("Mapping[str, str]", getattr(getattr(error, "response", None), "headers", {}))
    return from_status(status, body, headers, context)


def _convert_connect_failure(error: Exception, context: ErrorContext) -> ProviderError:
    """Convert a failed connection, by its first cause: waiting fixes few of them."""
    chain = list(_list_causes(error))
    names = {c.__name__ for cause in chain for c in type(cause).__mro__}
    text = " ".join(str(cause) for cause in chain)
    why = mask_text(str(chain[-1]), context) or type(chain[-1]).__name__
    if "SSLCertVerificationError" in names or "CERTIFICATE_VERIFY_FAILED" in text:
        return make_error(
            "certificate",
            f"The certificate of {context.host} is not trusted ({why}): check the address and the clock of this "
            "machine, or name your own authority in SSL_CERT_FILE.",
        )
    if "TooManyRedirects" in names:
        return make_error("not_found", f"{context.host} redirects endlessly: check the server's address.")
    if proxy := _find_proxy(context):
        message = f"The proxy {proxy} cannot reach {context.host} ({why}): check it, or name the host in NO_PROXY."
        return make_proxy_login_error(context) if "407" in text else make_error("unreachable", message)
    return _make_connection_error(names, text, why, context)


def _make_connection_error(names: set[str], text: str, why: str, context: ErrorContext) -> ProviderError:
    """Convert a connection that was never established and uses no proxy."""
    if "gaierror" in names or "Name or service not known" in text or "nodename nor servname" in text:
        return make_error(
            "unknown_host",
            f"Host {context.host} not found ({why}): check the address, the network and its name server.",
        )
    if "ConnectionRefusedError" in names or "Connection refused" in text or "All connection attempts failed" in text:
        return make_error(
            "unreachable", f"Nothing answers at {context.host} ({why}): start the server or check its address."
        )
    return make_error(
        "connection", f"{context.host} cannot be reached ({why}): check the network and the server's address."
    )


def make_unexpected_response_error(context: ErrorContext, kind: str, body: str) -> ProviderError:
    """Build the error for a success that is no model answer (a proxy page, a login); not retryable.

    The message quotes it.
    """
    quoted = mask_text(read_page_text(body), context)
    return make_error(
        "not_a_model",
        f"{context.host} did not answer as a model server but with {kind}{f': “{quoted}”' if quoted else ''}. Check "
        "the address; networks that ask for a login first also answer like this.",
    )


def make_incomplete_stream_error(context: ErrorContext) -> ProviderError:
    """Build the error for a stream that ended, or broke off, before the answer was complete."""
    return make_error("stream_cut", f"The connection to {context.host} was cut before the answer was complete.")


def make_silence_error(context: ErrorContext) -> ProviderError:
    return make_error("timeout", f"{context.host} has been silent for {context.timeout:g} s.")


def make_no_events_error(context: ErrorContext, seconds: float) -> ProviderError:
    """Build the error for a stream that is kept open without an event."""
    return make_error(
        "no_events",
        f"{context.host} held the connection open for {seconds / 60:g} minutes without sending anything: ask again, or "
        "choose another model with /model.",
    )


def make_long_line_error(context: ErrorContext, size: int) -> ProviderError:
    """Build the error for a line of a stream that is longer than any event."""
    return make_error(
        "line_too_long",
        f"{context.host} sent a line of more than {size >> 20} MB: check the server, or choose another model.",
    )


def make_proxy_login_error(context: ErrorContext) -> ProviderError:
    """Build the error for a proxy that requires a user name and a password."""
    return make_error(
        "proxy",
        f"The proxy {_find_proxy(context)} asks for a login: write it as http://USER:PASSWORD@HOST:PORT in "
        "HTTPS_PROXY.",
    )


def _find_proxy(context: ErrorContext) -> str:
    """Return the proxy of requests to the server, as host and port; empty without one."""
    return urlsplit(network.find_proxy(context.base_url)).netloc.rpartition("@")[2]


def _list_causes(error: BaseException) -> Generator[BaseException]:
    """Yield an exception and its causes, the first cause last."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
