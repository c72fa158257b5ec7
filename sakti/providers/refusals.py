"""Classify the errors that model servers report, by status or inside a stream."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct

from sakti.core.errors import ProviderError
from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json
from sakti.providers import limits

_TOO_LONG = lazy_pattern(
    r"context[ _]?(length|window|size)|context_length_exceeded|prompt is too long|too many (input )?tokens|"
    r"maximum (context|prompt|number of tokens|input)|input (is )?too long|exceed_context_size|"
    r"(exceeds?|larger than|greater than) the (available |model'?s? )?(maximum )?context|"
    r"input length and `?max_tokens`? exceed|reduce the length of (the|your) (messages|prompt|input)|"
    r"input token count .* exceeds",
    re.I,
)
_RETRYABLE = frozenset(
    {
        *("rate_limit", "overloaded", "server", "connection", "unreachable", "unknown_host", "timeout"),
        *("stream_cut", "unreadable"),
    }
)
_OUTPUT_TOO_LONG = lazy_pattern(
    r"max_(completion_|output_)?tokens\W{0,3}( is| value)? ?(too large|too high|exceeds)", re.I
)


class Where(Struct, frozen=True):
    """Called server, for error messages; `secret` is removed from them."""

    provider: str
    base_url: str = ""
    key_env: str = ""
    secret: str = ""
    timeout: float = 120.0

    @property
    def host(self) -> str:
        return re.sub(r"^https?://(?:[^@/]*@)?([^/]+).*$", r"\1", self.base_url) or self.provider


def from_success(body: Any, where: Where) -> ProviderError:
    """Build the error for an error object in an answer with status 200.

    Its content decides; without a hint that waiting helps it is final.
    """
    error = from_event(body, where)
    _, kind = _said(body, where)
    if error.code == "server" and not re.search(r"overload|rate|timeout|unavailable|5\d\d", kind, re.I):
        said, _ = _said(body, where)
        return make_error(
            "invalid_request", f"{where.provider} answered with an error: {said or 'it does not say which'}"
        )
    return error


def from_status(status: int, body: Any, headers: Mapping[str, str], where: Where) -> ProviderError:
    """Build the error for an HTTP status that is not a success."""
    said, kind = _said(body, where)
    code = _code(status, said, kind)
    error = make_error(code, _sentence(code, status, said, where), status=status, retry_after=retry_after(headers))
    if code in ("context_too_long", "output_too_long"):
        told = limits.stated(said)
        error.output_limit, error.max_output, error.window = told.output, told.maximum, told.window
    return error


def from_event(body: Any, where: Where) -> ProviderError:
    """Build the error for an error event inside a stream that had begun well."""
    said, kind = _said(body, where)
    status = next((s for word, s in _KINDS if word in kind.lower()), None)
    if status is None:
        number = re.search(r"\b([45]\d\d)\b", kind)
        status = int(number[1]) if number else 500
    code = _code(status, said, kind)
    return make_error(code, _sentence(code, status, said, where), status=status)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the server asks to wait: `retry-after-ms`, `retry-after` in seconds or as a date."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) * scale
        except ValueError:
            seconds = _until(value)
        if seconds is not None and math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _until(date: str) -> float | None:
    import email.utils

    try:
        then = email.utils.parsedate_to_datetime(date)
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (then - datetime.now(UTC)).total_seconds())


_KINDS = (
    ("overloaded", 529),
    ("rate_limit", 429),
    ("authentication", 401),
    ("permission", 403),
    ("not_found", 404),
    ("invalid_request", 400),
    ("context_length", 400),
    ("invalid_prompt", 400),
    ("timeout", 408),
    ("server", 500),
)
_STATUS_CODES = {
    401: "authentication",
    402: "authentication",
    403: "authentication",
    404: "not_found",
    408: "timeout",
    409: "server",
    429: "rate_limit",
    529: "overloaded",
    503: "overloaded",
}


def _code(status: int, said: str, kind: str) -> str:
    if status == 413:
        return "context_too_long"  # so many bytes that the server does not count tokens
    if status in (400, 422) or (status == 500 and "exceed_context_size" in kind):
        told = limits.stated(said)
        if told.named and (told.output or 0) >= limits.LEAST:
            return "output_too_long"
        if _OUTPUT_TOO_LONG.search(said) and told.output is None and not _TOO_LONG.search(said):
            return "output_too_long"
        return "context_too_long" if _TOO_LONG.search(said) or _TOO_LONG.search(kind) else "invalid_request"
    if status == 429 and "insufficient_quota" in kind:
        return "authentication"  # waiting does not fill an account
    if status in _STATUS_CODES:
        return _STATUS_CODES[status]
    return "server" if status >= 500 else "invalid_request"


def _sentence(code: str, status: int, said: str, where: Where) -> str:
    name = where.provider
    why = f": {said}{'' if said[-1] in '.!?…' else '.'}" if said else "."
    match code:
        case "authentication" if status == 402 or "quota" in said.lower():
            return f"The account at {name} has no credit left{why} Add credit, or choose another model with /model."
        case "authentication":
            key = f"check {where.key_env}" if where.key_env else "check its key"
            return f'Invalid API key for "{name}" ({status}): {key}{f" — {said}" if said else "."}'
        case "not_found":
            return f"{name} does not know this model or address ({where.host}){why} `sakti models` lists what it has."
        case "output_too_long":
            return f"{name} allows no answer of that length{why}"
        case "context_too_long" if status == 413:
            return f"The request is larger than {name} takes ({status}){why} Send less at once, or start a new thread."
        case "context_too_long":
            return (
                f"The thread is longer than the model's window{why} Start a new thread, or choose a model with a "
                "larger window with /model."
            )
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


def _said(body: Any, where: Where) -> tuple[str, str]:
    """Return the server's message (one line, shortened) and its error's type and code."""
    node: Any = body
    if isinstance(node, list) and node:
        node = cast("list[Any]", node)[0]
    outer = cast("dict[str, Any]", node) if isinstance(node, dict) else {}
    inner: Any = outer.get("error", outer)
    if isinstance(inner, str):
        return clean(inner, where), str(outer.get("code") or "")
    if not isinstance(inner, dict):
        return (clean(body, where) if isinstance(body, str) and "<" not in body else ""), ""
    fields = cast("dict[str, Any]", inner)
    message = fields.get("message") or _detail(fields.get("detail")) or ""
    kind = " ".join(str(fields.get(k) or "") for k in ("type", "code", "status"))
    return clean(str(message), where), kind.strip()


def _detail(value: Any) -> str:
    """Join a validator's list (`[{"loc": ["body", "max_tokens"], "msg": "Field required"}]`) to one text."""
    if not isinstance(value, list):
        return str(value or "")
    listed = cast("list[Any]", value)
    found = [cast("Json", each) for each in listed if isinstance(each, dict)]
    rows = (f"{'.'.join(map(str, cast('list[Any]', e.get('loc') or [])))}: {e.get('msg') or ''}" for e in found)
    return "; ".join(rows) or str(listed)


def clean(text: str, where: Where) -> str:
    text = " ".join(text.split())
    if where.secret:
        text = text.replace(where.secret, "•••")
    text = re.sub(r"\b(sk|pk|key|gsk|AIza)[-_]?[A-Za-z0-9_\-*]{12,}", "•••", text)
    return text if len(text) <= 300 else text[:299] + "…"


def make_error(
    code: str, message: str, *, status: int | None = None, retry_after: float | None = None
) -> ProviderError:
    return ProviderError(message, code=code, retryable=code in _RETRYABLE, status=status, retry_after=retry_after)
