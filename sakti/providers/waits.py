"""Read how long a server asks to wait: from headers, error texts and error details."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_UNIT = r"(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)"
_PIECE = re.compile(rf"(\d+(?:\.\d+)?)\s*{_UNIT}(?![a-z])", re.I)
_IN_WORDS = lazy_pattern(
    rf"(?:try(?:ing)? again|retry(?:ing)?|please wait|wait)(?: (?:in|after|for|at least|about|your request|another))*"
    rf"[\s:]+((?:\d+(?:\.\d+)?\s*{_UNIT}(?![a-z])[\s,]*(?:and )?)+)",
    re.I,
)
_RESET = re.compile(
    r"^(?:anthropic-ratelimit-(?P<anthropic>.+)-reset|x-ratelimit-reset(?:-(?P<openai>.+))?|ratelimit-reset)$"
)
_EPOCH_S, _EPOCH_MS = 1e9, 1e12  # larger numbers are times, not durations


def retry_after(headers: Mapping[str, str], text: str = "", body: Any = None, *, limited: bool = False) -> float | None:
    """Return the seconds that the server asks to wait, None if it does not say.

    `retry-after-ms` and `retry-after` come first, then Gemini's RetryInfo in `body`, then the error text ("try again
    in 8.2s"); the headers with the time of a rate limit's reset only if the request was `limited` by it.
    """
    sources = (_stated_header(headers), _retry_info(body), _in_words(text), _reset(headers) if limited else None)
    return next((max(0.0, s) for s in sources if s is not None and math.isfinite(s)), None)


def _stated_header(headers: Mapping[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds: float | None = float(value) * scale
        except ValueError:
            seconds = _until_date(value)
        if seconds is not None and math.isfinite(seconds):
            return seconds
    return None


def _until_date(date: str) -> float | None:
    """Return the seconds until an HTTP date."""
    import email.utils

    try:
        return _until(email.utils.parsedate_to_datetime(date))
    except ValueError:
        return None


def _until(time: datetime) -> float:
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0.0, (time - datetime.now(UTC)).total_seconds())


def _retry_info(body: Any) -> float | None:
    """Return the `retryDelay` of a google.rpc.RetryInfo among the details of an error."""
    node: Any = body
    if isinstance(node, list) and node:
        node = cast("list[Any]", node)[0]
    error: Any = cast("Json", node).get("error", cast("Json", node)) if isinstance(node, dict) else None
    details: Any = cast("Json", error).get("details") if isinstance(error, dict) else None
    for detail in cast("list[Any]", details) if isinstance(details, list) else []:
        delay: Any = cast("Json", detail).get("retryDelay") if isinstance(detail, dict) else None
        if delay is not None:
            return _duration(str(delay))
    return None


def _in_words(text: str) -> float | None:
    match = _IN_WORDS.search(text)
    return _duration(match[1]) if match else None


def _duration(text: str) -> float | None:
    """Return the seconds of "8.2s", "1m2s", "350ms" or "6 minutes"."""
    pieces = _PIECE.findall(text)
    return sum(float(number) * _scale(unit.lower()) for number, unit in pieces) if pieces else None


def _scale(unit: str) -> float:
    return _UNITS["ms"] if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]


def _reset(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the used-up rate limit is reset.

    Servers list several limits; those with nothing remaining decide, and the last of them. If all have some
    remaining, the first reset may be enough.
    """
    used_up: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        match = _RESET.match(name.lower())
        seconds = _reset_value(value) if match else None
        if match is None or seconds is None or not math.isfinite(seconds):
            continue
        has_room = any(_is_positive(headers.get(n)) for n in _remaining_names(match))
        (others if has_room else used_up).append(seconds)
    return max(used_up) if used_up else min(others, default=None)


def _remaining_names(match: re.Match[str]) -> Iterable[str]:
    if match["anthropic"]:
        return (f"anthropic-ratelimit-{match['anthropic']}-remaining",)
    if match["openai"]:
        return (f"x-ratelimit-remaining-{match['openai']}",)
    return ("x-ratelimit-remaining", "ratelimit-remaining")


def _is_positive(value: str | None) -> bool:
    try:
        return float(value or 0) > 0
    except ValueError:
        return False


def _reset_value(value: str) -> float | None:
    """Return the seconds of a reset header: a duration, a number of seconds, a Unix time, or an ISO date."""
    try:
        number = float(value)
    except ValueError:
        return _duration(value) if _PIECE.match(value) else _until_iso(value)
    if number >= _EPOCH_MS:
        number /= 1_000
    return number - datetime.now(UTC).timestamp() if number >= _EPOCH_S else number


def _until_iso(value: str) -> float | None:
    try:
        return _until(datetime.fromisoformat(value))
    except ValueError:
        return None
