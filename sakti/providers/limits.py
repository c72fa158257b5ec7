"""Parse limits and waits that a server states when it refuses a request; decide on retries. Pure.

The caller waits, and shows the wait.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct

from sakti.core.errors import ProviderError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json

LEAST_ANSWER = 256  # tokens: if less room is left for an answer, the conversation itself is too long

LONGEST_ANSWER = 4_000_000  # characters: more than any model writes in one answer

_NUMBER = r"`?(\d[\d,_]*)`?"
# The model's maximum output, in the wordings of Anthropic, OpenAI, Groq and DeepSeek.
_MAXIMUM = (
    re.compile(rf"max_tokens: \d+ > {_NUMBER}, which is the maximum", re.I),
    re.compile(rf"supports at most {_NUMBER} (completion|output) tokens", re.I),
    re.compile(rf"max_(completion_|output_)?tokens`?'? must be less than or equal to {_NUMBER}", re.I),
    re.compile(rf"valid range of max_(completion_|output_)?tokens is \[\d+, ?{_NUMBER}\]", re.I),
    re.compile(rf"max_(completion_|output_)?tokens.{{0,60}}maximum( value)?( of| is|:) {_NUMBER}", re.I),
)
_NAMES_ANSWER = lazy_pattern(
    r"max_(completion_|output_|new_)?tokens|(completion|output) tokens|in the completion", re.I
)
_WINDOW = lazy_pattern(
    rf"context (length|window|size|limit)( is| of|:)?( only)? {_NUMBER}|n_ctx[^\d]{{0,6}}(\d+)|"
    rf"tokens > {_NUMBER} maximum|token limit(?: of|:| is)? {_NUMBER}|token count .{{0,40}}the limit of {_NUMBER}|"
    rf"input length should be \[\d+, ?{_NUMBER}\]|maximum model length (?:of|is) {_NUMBER}|"
    rf"`?inputs`? tokens \+ .{{0,40}}must be <= ?{_NUMBER}|"
    rf"maximum number of (?:input )?tokens(?: allowed)? \(?{_NUMBER}",
    re.I,
)
_PROMPT = lazy_pattern(
    rf"{_NUMBER} (in the messages|in your prompt|input tokens|prompt tokens|tokens in the (messages|prompt))|"
    rf"input (?:has|length is|of) {_NUMBER}|token count of {_NUMBER}|{_NUMBER} `?inputs`? tokens|"
    rf"prompt is too long: {_NUMBER} tokens|prompt \(length {_NUMBER}\)|\(requested: {_NUMBER}\)",
    re.I,
)
_SUM = lazy_pattern(rf"{_NUMBER} \+ {_NUMBER} > {_NUMBER}")  # Anthropic: prompt + max_tokens > window


class StatedLimits(Struct, frozen=True):
    """Limits in tokens that an error text states; None for those it does not.

    `output` is the limit of this answer, `maximum` the model's largest answer. `named`: the text mentions the answer's
    limit, not just the conversation's length.
    """

    output: int | None = None
    maximum: int | None = None
    window: int | None = None
    named: bool = False


def parse_limits(text: str) -> StatedLimits:
    """Parse the limits in a server's refusal."""
    named = bool(_NAMES_ANSWER.search(text))
    if match := _SUM.search(text):
        prompt, _, window = (_parse_int(g) for g in match.groups())
        return StatedLimits(window - prompt, None, window, True)
    for pattern in _MAXIMUM:
        if match := pattern.search(text):
            most = _parse_int(next(g for g in reversed(match.groups()) if g and g[:1].strip("`").isdigit()))
            return StatedLimits(most, most, None, True)
    window, prompt = _find_number(_WINDOW, text), _find_number(_PROMPT, text)
    room = window - prompt if window is not None and prompt is not None else None
    return StatedLimits(room, None, window, named)


def check_answer_length(written: int) -> None:
    """Raise `ProviderError` (endless) for an answer of more characters than any model writes."""
    if written > LONGEST_ANSWER:
        raise ProviderError(
            f"The answer exceeded {LONGEST_ANSWER:,} characters, more than any model writes: stopped. Check the "
            "server, or choose another model with /model.",
            code="endless",
        )


def _find_number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return next((_parse_int(g) for g in match.groups() if g and g.strip("`")[:1].isdigit()), None) if match else None


def _parse_int(text: str) -> int:
    return int(text.strip("`").replace(",", "").replace("_", ""))


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


def read_retry_after(
    headers: Mapping[str, str], text: str = "", body: Any = None, *, limited: bool = False
) -> float | None:
    """Return how many seconds the server asks to wait, None if it does not say.

    `retry-after-ms` and `retry-after` come first, then Gemini's RetryInfo in `body`, then the error text ("try again in
    8.2s"); the headers with a rate limit's reset time count only if the request was `limited` by it.
    """
    sources = (
        _read_retry_headers(headers),
        _read_retry_info(body),
        _read_wait_text(text),
        _read_reset_headers(headers) if limited else None,
    )
    return next((max(0.0, s) for s in sources if s is not None and math.isfinite(s)), None)


def _read_retry_headers(headers: Mapping[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds: float | None = float(value) * scale
        except ValueError:
            seconds = _parse_http_date(value)
        if seconds is not None and math.isfinite(seconds):
            return seconds
    return None


def _parse_http_date(date: str) -> float | None:
    """Return the seconds until an HTTP date."""
    import email.utils

    try:
        return _compute_seconds_until(email.utils.parsedate_to_datetime(date))
    except ValueError:
        return None


def _compute_seconds_until(time: datetime) -> float:
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return max(0.0, (time - datetime.now(UTC)).total_seconds())


def get_outer_object(body: Any) -> Json:
    """Return the object of a server's error, the first one of a list; {} without one."""
    node: Any = body
    if isinstance(node, list) and node:
        node = cast("list[Any]", node)[0]
    return cast("Json", node) if isinstance(node, dict) else {}


def _read_retry_info(body: Any) -> float | None:
    """Return the `retryDelay` of a google.rpc.RetryInfo among the details of an error."""
    outer = get_outer_object(body)
    error: Any = outer.get("error", outer)
    details: Any = cast("Json", error).get("details") if isinstance(error, dict) else None
    for detail in cast("list[Any]", details) if isinstance(details, list) else []:
        delay: Any = cast("Json", detail).get("retryDelay") if isinstance(detail, dict) else None
        if delay is not None:
            return _parse_duration(str(delay))
    return None


def _read_wait_text(text: str) -> float | None:
    match = _IN_WORDS.search(text)
    return _parse_duration(match[1]) if match else None


def _parse_duration(text: str) -> float | None:
    """Return the seconds of "8.2s", "1m2s", "350ms" or "6 minutes"."""
    pieces = _PIECE.findall(text)
    return sum(float(number) * _get_unit_seconds(unit.lower()) for number, unit in pieces) if pieces else None


def _get_unit_seconds(unit: str) -> float:
    return _UNITS["ms"] if unit.startswith(("ms", "milli")) else _UNITS[unit[0]]


def _read_reset_headers(headers: Mapping[str, str]) -> float | None:
    """Return the seconds until the used-up rate limit is reset.

    Servers list several limits. The last reset of the exhausted ones counts; if none is exhausted, the first reset may
    be enough.
    """
    used_up: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        match = _RESET.match(name.lower())
        seconds = _parse_reset(value) if match else None
        if match is None or seconds is None or not math.isfinite(seconds):
            continue
        has_room = any(_is_positive(headers.get(n)) for n in _list_remaining_names(match))
        (others if has_room else used_up).append(seconds)
    return max(used_up) if used_up else min(others, default=None)


def _list_remaining_names(match: re.Match[str]) -> Iterable[str]:
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


def _parse_reset(value: str) -> float | None:
    """Return the seconds of a reset header: a duration, a number of seconds, a Unix time, or an ISO date."""
    try:
        number = float(value)
    except ValueError:
        return _parse_duration(value) if _PIECE.match(value) else _parse_iso_date(value)
    if number >= _EPOCH_MS:
        number /= 1_000
    return number - datetime.now(UTC).timestamp() if number >= _EPOCH_S else number


def _parse_iso_date(value: str) -> float | None:
    try:
        return _compute_seconds_until(datetime.fromisoformat(value))
    except ValueError:
        return None


MAX_ATTEMPTS = 8
# Total attempts for failures that waiting seldom fixes.
FEWER_ATTEMPTS = {"unknown_host": 3, "unreachable": 4, "empty": 2, "unreadable": 2, "line_too_long": 2}
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
LONGEST_RETRY_AFTER = 600.0
LONGEST_WAIT = 900.0  # total seconds of waiting for one turn, or one call of memory


def retry_delay(attempt: int, retry_after: float | None, random: Callable[[], float]) -> float:
    """Return the seconds to wait after failed attempt number `attempt` (1 is the first call).

    Doubles from 1 s up to 30 s; `random()` in [0, 1) subtracts up to half of it, so that many clients do not retry at
    the same time. The wait is never shorter than the provider's Retry-After, and only slightly longer.
    """
    ceiling = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (max(1, attempt) - 1))
    if retry_after is not None and retry_after >= 0:
        return retry_after + 0.25 * random()
    return ceiling * (1 - 0.5 * random())


def choose_max_attempts(error: ProviderError) -> int:
    """Return the maximum number of attempts for a call that fails with `error`."""
    return FEWER_ATTEMPTS.get(error.code, MAX_ATTEMPTS)


class Retries(Struct):
    """Failures of one call; `seconds_left` is the remaining waiting time of all calls that share it."""

    random: Callable[[], float]
    seconds_left: float = LONGEST_WAIT
    attempt: int = 0

    def wait(self, error: ProviderError, at_most: float | None = None) -> float | None:
        """Return the seconds until the retry; None if there is no retry.

        There is none if `error` is final, the attempts are used up, or the wait exceeds the longest one allowed,
        `at_most` or the time left.
        """
        self.attempt += 1
        if not error.retryable or self.attempt >= choose_max_attempts(error):
            return None
        seconds = retry_delay(self.attempt, error.retry_after, self.random)
        if (error.retry_after or 0.0) > LONGEST_RETRY_AFTER or seconds > min(
            self.seconds_left, self.seconds_left if at_most is None else at_most
        ):
            return None
        self.seconds_left -= seconds
        return seconds
