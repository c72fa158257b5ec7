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
from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json
from sakti.providers import limits

SHORTEST_SECRET = 8  # characters: a shorter key ("x", "test") is part of ordinary words
LONGEST_TEXT = 300  # characters of a server's text in a message
LONGEST_READ = 20_000  # characters of a server's text that decide

_RETRYABLE = frozenset(
    {
        *("rate_limit", "overloaded", "server", "connection", "unreachable", "unknown_host", "timeout"),
        *("stream_cut", "unreadable", "line_too_long"),
    }
)
# Overflow texts of: OpenAI and servers like it; Anthropic; Gemini; llama.cpp; vLLM; Kimi; GLM; DashScope; Copilot; TGI
# and Together; Bedrock; Ollama; xAI; Mistral.
_TOO_LONG = lazy_pattern(
    r"context[ _-]?(length|window|size)|context_length_exceeded|(prompt|input|request|conversation) is too long|"
    r"too many (input |prompt )?tokens(?! per|, please wait)|model_context_window_exceeded|"
    r"maximum (context|prompt|number of (input )?tokens|input|model length|sequence length|allowed (input|prompt))|"
    r"input (is )?too long|exceed_context_size|max(imum)?[ _]model[ _]len|"
    r"(exceed(s|ed|ing)?|larger than|longer than|greater than) (the |its )?(available |model'?s? )?"
    r"(maximum |max )?(context|model length|prompt length|input length|number of input tokens)|"
    r"(exceed(s|ed|ing)?|over|beyond) (the )?(model'?s? )?(max(imum)? )?(input )?tokens? limit|"
    r"input length and `?max_tokens`? exceed|reduce the (length|size) of (the|your) (messages|prompt|input|context)|"
    r"(prompt|input|messages?)( length| size)?( of)?( \d+)?( tokens)? exceeds? (the )?max(imum)? "
    r"(allowed )?(length|size)|"
    r"range of input length|input tokens? (limit )?(is |was |are )?exceed(s|ed)|"
    r"(prompt|input) token count .*exceeds?|tokens? (in|of) (the|your) (prompt|input) exceeds?|"
    r"`?inputs`? tokens \+|`?inputs`? must have less than|prompt too long|prompt contains \d+ tokens",
    re.I,
)
_OUTPUT_TOO_LONG = lazy_pattern(
    r"max_(completion_|output_)?tokens\W{0,3}( is| value)? ?(too large|too high|exceeds)", re.I
)
_QUOTA_KINDS = lazy_pattern(
    r"insufficient_quota|billing|credit_balance|insufficient_(balance|credits|funds)|spend_limit|arrearage|"
    r"(?<!rate_)usage_limit|exceeded_current_quota|payment_required",
    re.I,
)
_QUOTA_TEXT = lazy_pattern(
    r"credit balance is too low|insufficient (account )?(balance|credits?|funds|quota)|no credits? (left|remaining)|"
    r"account .{0,30}\b(arrears|overdue)|(please )?(recharge|top up)|billing (hard limit|is not active|not active)",
    re.I,
)
_POLICY_KINDS = lazy_pattern(r"(cyber|bio|usage|misalignment)_policy", re.I)
# Servers refuse images with many statuses: OpenRouter with 404, llama.cpp and Ollama with 500.
NO_IMAGES = lazy_pattern(
    r"(not|n't|no endpoints? found that) support (the )?(image|vision|multi-?modal)|image (input|content)s? "
    r"(is|are) not (supported|enabled|allowed)|not a (multi-?modal|vision)|unknown variant `?image|"
    r"\b(image|vision|multi-?modal|picture)\w*( input| content)?s? (is |are )?(un|not )(supported|available|enabled)|"
    r"missing data required for image|only (supports? )?text|content\W.{0,20}must be (a )?string|"
    r"(takes|accepts) no images?",
    re.I,
)
FILTERED = lazy_pattern(
    r"content[ _]?(filter|management|policy|moderation)|responsible ?ai|flagged|inappropriate|moderation|"
    r"data_?inspection|sensitive (content|word|information)|(violat|safety|harmful)|prohibited|risk control|"
    r"invalid_prompt|content exists risk",
    re.I,
)
_REGION = lazy_pattern(
    r"country|territor|(your|this|current|from) (region|location)|user location|region (is )?not|geo", re.I
)
_SUSPENDED = lazy_pattern(
    r"\b(account|organi[sz]ation|user|key|workspace|consumer)\b.{0,60}"
    r"\b(suspended|deactivated|disabled|banned|terminated|locked|blocked)\b",
    re.I,
)

_KINDS = (  # the first word in an error's type or code decides
    ("image_", 400),
    ("_image", 400),
    ("overloaded", 529),
    ("unavailable", 503),
    ("rate_limit", 429),
    ("throttl", 429),
    ("resource_exhausted", 429),
    ("authentication", 401),
    ("invalid_api_key", 401),
    ("permission", 403),
    ("unsupported_country", 403),
    ("not_found", 404),
    ("context_length", 400),
    ("invalid", 400),
    ("content_filter", 400),
    ("policy", 400),
    ("validation", 400),
    ("residency", 400),
    ("timeout", 408),
    ("server", 500),
)
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


class Where(Struct, frozen=True):
    """Called server, for error messages; `secrets` are removed from them."""

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


def from_success(body: Any, where: Where) -> ProviderError:
    """Build the error for an error object in an answer with status 200.

    Its content decides; without a hint that waiting helps it is final.
    """
    error, report = from_event(body, where), read_report(body)
    if error.code == "server" and not re.search(r"overload|rate|timeout|unavailable|5\d\d", report.kind, re.I):
        shown = clean(report.text, where) or "it does not say which"
        final = make_error("invalid_request", f"{where.provider} answered with an error: {shown}", status=400)
        final.server_text = report.everything
        return final
    return error


def from_status(status: int, body: Any, headers: Mapping[str, str], where: Where) -> ProviderError:
    """Build the error for an HTTP status that is not a success."""
    report = read_report(body)
    code = classify(status, report)
    wait = limits.retry_after(headers, report.text, body, limited=status == 429)
    error = _build(code, status, report, where, wait)
    should_retry = str(headers.get("x-should-retry") or "").lower()
    if should_retry in ("true", "false"):
        error.retryable = should_retry == "true"
    return error


def from_event(body: Any, where: Where) -> ProviderError:
    """Build the error for an error event inside a stream that had begun well."""
    report = read_report(body)
    status = next((s for word, s in _KINDS if word in report.kind.lower()), None)
    if status is None:
        number = re.search(r"\b([45]\d\d)\b", report.kind)
        status = int(number[1]) if number else 500
    return _build(classify(status, report), status, report, where, limits.retry_after({}, report.text, body))


def _build(code: str, status: int, report: ServerReport, where: Where, retry_after: float | None) -> ProviderError:
    sentence = _sentence(code, status, report, where)
    error = make_error(code, sentence, status=status, retry_after=retry_after)
    error.server_text = report.everything
    if code in ("context_too_long", "output_too_long"):
        stated = limits.parse_limits(report.text)
        error.output_limit, error.max_output, error.window = stated.output, stated.maximum, stated.window
    return error


def classify(status: int, report: ServerReport) -> str:
    """Return the code of the error that a server reports with `status`."""
    if _is_quota(status, report):
        return "authentication"  # waiting does not fill an account
    if _POLICY_KINDS.search(report.kind):
        return "refused"
    if NO_IMAGES.search(report.text) and status in (400, 404, 415, 422, 500, 501):
        return "invalid_request"
    if status == 403 and FILTERED.search(report.everything):
        return "invalid_request"
    if status in _MAY_OVERFLOW and (code := _length_code(status, report)):
        return code
    if status in _STATUS_CODES:
        return _STATUS_CODES[status]
    return "server" if status >= 500 else "invalid_request"


def _is_quota(status: int, report: ServerReport) -> bool:
    return status == 402 or bool(_QUOTA_KINDS.search(report.kind) or _QUOTA_TEXT.search(report.text))


def _length_code(status: int, report: ServerReport) -> str:
    """Return whether a request or the answer asked for is too long; empty if neither is."""
    if status == 413:
        return "context_too_long"  # so many bytes that the server does not count tokens
    too_long = bool(_TOO_LONG.search(report.everything))
    if status in (400, 422):
        stated = limits.parse_limits(report.text)
        if stated.named and (stated.output or 0) >= limits.LEAST:
            return "output_too_long"
        if _OUTPUT_TOO_LONG.search(report.text) and stated.output is None and not too_long:
            return "output_too_long"
    return "context_too_long" if too_long else ""


def _sentence(code: str, status: int, report: ServerReport, where: Where) -> str:
    name, text = where.provider, clean(report.text, where)
    why = f": {text}{'' if text[-1] in '.!?…' else '.'}" if text else "."
    match code:
        case "authentication" if _is_quota(status, report):
            return f"The account at {name} has no credit left{why} Add credit, or choose another model with /model."
        case "authentication" | "permission" if report.kind != "page" and _SUSPENDED.search(report.text):
            return f"{name} has suspended this account or key ({status}){why} Contact its support, or use another key."
        case "authentication":
            key = f"check {where.key_env}" if where.key_env else "check its key"
            return f'Invalid API key for "{name}" ({status}): {key}{f" — {text}" if text else "."}'
        case "permission":
            return _permission_sentence(status, report, why, where)
        case "not_found":
            return f"{name} does not know this model or address ({where.host}){why} `sakti models` lists its models."
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
            return _passing_sentence(code, status, name, why)


def _permission_sentence(status: int, report: ServerReport, why: str, where: Where) -> str:
    if report.kind == "page":
        return f"A firewall or proxy in front of {where.host} blocked the request ({status}){why} Check the network."
    if _REGION.search(report.everything):
        return f"{where.provider} does not serve this country or region ({status}){why}"
    return (
        f"{where.provider} denied access ({status}){why} Check the permissions of key, project and account, or "
        "choose another model with /model."
    )


def _passing_sentence(code: str, status: int, name: str, why: str) -> str:
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
    node: Any = body
    if isinstance(node, list) and node:
        node = cast("list[Any]", node)[0]
    outer = cast("Json", node) if isinstance(node, dict) else {}
    inner: Any = outer.get("error", outer)
    if isinstance(inner, str):
        return ServerReport(_line(inner), str(outer.get("code") or ""))
    if not outer or not isinstance(inner, dict):
        return _plain_report(body)
    fields = cast("Json", inner)
    message = fields.get("message") or _detail(fields.get("detail")) or ""
    kind = " ".join(str(fields.get(k) or "") for k in ("type", "code", "status", "__type"))
    return ServerReport(_line(str(message)), kind.strip(), str(fields.get("param") or ""))


def _plain_report(body: Any) -> ServerReport:
    """Read a body that is no JSON: a page, a text, or nothing."""
    if not isinstance(body, str):
        return ServerReport()
    return ServerReport(page_text(body), "page") if "<" in body else ServerReport(_line(body))


def page_text(page: str) -> str:
    """Return the text of a page, in one line."""
    return _line(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page, flags=re.S | re.I))


def _line(text: str) -> str:
    return " ".join(text[:LONGEST_READ].split())


def _detail(value: Any) -> str:
    """Join a validator's list (`[{"loc": ["body", "max_tokens"], "msg": "Field required"}]`) to one text."""
    if not isinstance(value, list):
        return str(value or "")
    listed = cast("list[Any]", value)
    problems = [cast("Json", each) for each in listed if isinstance(each, dict)]
    rows = (f"{'.'.join(map(str, cast('list[Any]', e.get('loc') or [])))}: {e.get('msg') or ''}" for e in problems)
    return "; ".join(rows) or str(listed)


def clean(text: str, where: Where) -> str:
    """Return a server's text as it is shown: one line, masked, at most `LONGEST_TEXT` characters."""
    text = _line(text)
    for secret in where.secrets:
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
        return make_error("not_found", f"{where.host} redirects endlessly: check the server's address.")
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
        f"{where.host} did not answer as a model server but with {kind}{f': “{quoted}”' if quoted else ''}. Check the "
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
