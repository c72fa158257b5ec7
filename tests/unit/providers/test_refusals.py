"""Errors of servers: what they mean, how long to wait, and what is shown of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.providers import errors, limits
from sakti.providers.errors import ErrorContext, from_event, from_status

KEYS = ("x", "token", "a", "1", "sk-test-0123456789abcdef")

OVERFLOWS = (
    "Your request exceeded model token limit: 262144 (requested: 300000)",
    "Invalid request: Your request exceeded model token limit: 131072",
    "Prompt exceeds max length",
    "Range of input length should be [1, 129024]",
    "prompt token count of 70000 exceeds the limit of 64000",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 20 "
    "`max_new_tokens`",
    "`inputs` must have less than 1024 tokens. Given: 5000",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192. Make sure that `max_model_len` "
    "is no smaller than the number of text tokens.",
    "Input tokens exceeded: number of tokens is larger than the limit",
    "Too many input tokens. Input is too long for requested model.",
    "the input length exceeds the context length",
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "the request exceeds the available context size. try increasing the context size or enable context shift",
    "Please reduce the length of the messages or completion.",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
    "Input length 9000 exceeds the maximum length 8192",
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("text", OVERFLOWS)
@pytest.mark.parametrize("status", [400, 422, 500, "event"])
def test_overflow_texts_are_recognised(text: str, status: int | str, key: str) -> None:
    where = ErrorContext("p", secrets=(key,))
    body = {"error": {"message": text, "type": "invalid_request_error"}}
    error = from_event(body, where) if status == "event" else from_status(int(status), body, {}, where)
    assert (error.code, error.retryable) == ("context_too_long", False)


@pytest.mark.parametrize(
    ("text", "window"),
    [
        (OVERFLOWS[0], 262_144),
        (OVERFLOWS[3], 129_024),
        (OVERFLOWS[4], 64_000),
        (OVERFLOWS[5], 4_096),
        (OVERFLOWS[7], 8_192),
        (OVERFLOWS[11], 8_192),
        (OVERFLOWS[12], 200_000),
        (OVERFLOWS[13], 1_048_576),
    ],
)
def test_overflow_texts_state_the_window(text: str, window: int) -> None:
    assert from_status(400, {"error": {"message": text}}, {}, ErrorContext("p")).window == window


@pytest.mark.parametrize(
    "text",
    [
        "Too many tokens, please wait before trying again.",
        "Rate limit reached for tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    ],
)
def test_token_rate_limits_are_not_overflows(text: str) -> None:
    error = from_event({"error": {"message": text, "code": "ThrottlingException rate_limit"}}, ErrorContext("p"))
    assert (error.code, error.retryable) == ("rate_limit", True)


@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=30), st.sampled_from(OVERFLOWS))
def test_the_key_never_changes_how_an_error_is_classified(key: str, text: str) -> None:
    body = {"error": {"message": f"{text} (key {key})"}}
    with_key, without = (from_status(400, body, {}, ErrorContext("p", secrets=(s,))) for s in (key, ""))
    assert (with_key.code, with_key.window, with_key.output_limit) == (
        without.code,
        without.window,
        without.output_limit,
    )
    assert (key in with_key.message) == (len(key) < 8 or key in with_key.message.replace(f"(key {key})", ""))


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_not_active", "credit_balance_exhausted"])
@pytest.mark.parametrize("status", [400, 403, 429, "event"])
def test_empty_accounts_are_final(code: str, status: int | str) -> None:
    body = {"error": {"message": "You exceeded your current quota.", "code": code}}
    error = (
        from_event(body, ErrorContext("p"))
        if status == "event"
        else from_status(int(status), body, {}, ErrorContext("p"))
    )
    assert (error.code, error.retryable) == ("authentication", False)
    assert "no credit left" in error.message and "Invalid API key" not in error.message


@pytest.mark.parametrize("code", ["cyber_policy", "bio_policy", "misalignment_policy_violation"])
def test_policy_errors_in_streams_are_final(code: str) -> None:
    error = from_event({"error": {"message": "Not allowed.", "code": code}}, ErrorContext("p"))
    assert (error.code, error.retryable) == ("refused", False)
    assert "usage policy: Not allowed." in error.message


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("rate_limit_exceeded", ("rate_limit", True)),
        ("server_error", ("server", True)),
        ("server_overloaded", ("overloaded", True)),
        ("vector_store_timeout", ("timeout", True)),
        ("invalid_prompt", ("invalid_request", False)),
        ("image_parse_error", ("invalid_request", False)),
        ("image_file_not_found", ("invalid_request", False)),
        ("empty_image_file", ("invalid_request", False)),
        ("context_length_exceeded", ("context_too_long", False)),
        (429, ("rate_limit", True)),
        (502, ("server", True)),
    ],
)
def test_stream_errors_are_classified_by_their_code(code: object, expected: tuple[str, bool]) -> None:
    error = from_event({"error": {"message": "It failed.", "code": code}}, ErrorContext("p"))
    assert (error.code, error.retryable) == expected


CLOUDFLARE = "<!doctype html><title>Attention Required! | Cloudflare</title><h1>Sorry, you have been blocked</h1>"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "Country, region, or territory not supported", "code":
          "unsupported_country_region_territory"}}, "does not serve this country or region"),
        ({"error": {"message": "User location is not supported for the API use."}}, "does not serve this country"),
        (CLOUDFLARE, "A firewall or proxy in front of api.example.com"),
        ({"error": {"message": "Your account has been suspended."}}, "suspended this account"),
        ({"error": {"message": "Consumer 'api_key:1' has been suspended."}}, "suspended this account"),
        ({"error": {"message": "You have insufficient permissions for this operation. Missing scopes: model.request"}},
         "denied access (403): You have insufficient permissions"),
        ({"error": {"message": "API has not been used in project 1 before or it is disabled."}}, "denied access"),
        ("", "denied access (403)."),
    ],
)  # fmt: skip
def test_forbidden_is_not_an_invalid_key(body: object, words: str) -> None:
    error = from_status(403, body, {}, ErrorContext("p", "https://api.example.com/v1", "P_API_KEY"))
    assert (error.code, error.retryable) == ("permission", False)
    assert words in error.message and "Invalid API key" not in error.message
    if "Cloudflare" in str(body):
        assert "Sorry, you have been blocked" in error.message


@pytest.mark.parametrize(
    ("status", "value", "retryable"), [(500, "false", False), (429, "false", False), (400, "true", True)]
)
def test_should_retry_header_decides(status: int, value: str, retryable: bool) -> None:
    assert from_status(status, {}, {"x-should-retry": value}, ErrorContext("p")).retryable is retryable


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached. Please try again in 8.2s. Visit https://x", 8.2),
        ("Please try again in 1m2s.", 62.0),
        ("Please try again in 350ms.", 0.35),
        ("Try again in 20 seconds", 20.0),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Please retry after 2 minutes.", 120.0),
        ("Please wait 10 seconds before trying again", 10.0),
        ("try again in 6h3m12s", 21_792.0),
        ("Please try again later.", None),
        ("Try again in a moment", None),
    ],
)
def test_waits_in_error_texts_are_read(text: str, seconds: float | None) -> None:
    assert limits.read_retry_after({}, text) == (seconds if seconds is None else pytest.approx(seconds))
    error = from_event({"error": {"message": text, "code": "rate_limit_exceeded"}}, ErrorContext("p"))
    assert error.retry_after == (seconds if seconds is None else pytest.approx(seconds))


def test_retry_info_of_gemini_is_read() -> None:
    details = [
        {"@type": "type.googleapis.com/google.rpc.Help"},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"},
    ]
    text = "You exceeded your current quota, please check your plan and billing details."
    body = {"error": {"code": 429, "message": text, "status": "RESOURCE_EXHAUSTED", "details": details}}
    for each in (body, [body]):
        error = from_status(429, each, {}, ErrorContext("p"))
        assert (error.code, error.retryable, error.retry_after) == ("rate_limit", True, 34.0)


def in_seconds(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7", "x-ratelimit-reset-tokens": "6m0s"}, 7.0),
        ({"retry-after-ms": "350"}, 0.35),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-tokens": "1s"}, 1.0),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-reset": "12"}, 12.0),
        ({"x-ratelimit-reset-requests": "24h", "x-ratelimit-remaining-requests": "90",
          "x-ratelimit-reset-tokens": "8s", "x-ratelimit-remaining-tokens": "0"}, 8.0),
        ({"x-ratelimit-reset-requests": "24h", "x-ratelimit-remaining-requests": "90",
          "x-ratelimit-reset-tokens": "8s", "x-ratelimit-remaining-tokens": "100"}, 8.0),
        ({"x-ratelimit-reset-tokens": "soon"}, None),
        ({"x-ratelimit-reset-tokens": "nan"}, None),
    ],
)  # fmt: skip
def test_waits_in_headers_are_read(headers: dict[str, str], seconds: float | None) -> None:
    error = from_status(429, {}, headers, ErrorContext("p"))
    assert error.retry_after == (seconds if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("retry-after", lambda time: format_datetime(time, usegmt=True)),
        ("anthropic-ratelimit-tokens-reset", lambda time: time.isoformat().replace("+00:00", "Z")),
        ("x-ratelimit-reset", lambda time: str(round(time.timestamp()))),
        ("x-ratelimit-reset", lambda time: str(round(time.timestamp() * 1_000))),
    ],
)
def test_times_in_headers_are_relative_to_now(name: str, write: Callable[[datetime], str]) -> None:
    seconds = limits.read_retry_after({name: write(in_seconds(3_600))}, limited=True)
    assert seconds is not None and 3_000 < seconds <= 3_601


def test_reset_headers_count_only_after_a_rate_limit() -> None:
    assert from_status(500, {}, {"x-ratelimit-reset-requests": "6m0s"}, ErrorContext("p")).retry_after is None


def test_only_long_secrets_are_masked() -> None:
    body = {"error": {"message": "the testing model x refused test-key-123"}}
    assert "the testing model x" in from_status(400, body, {}, ErrorContext("p", secrets=("x",))).message
    assert "testing" in from_status(400, body, {}, ErrorContext("p", secrets=("test",))).message
    masked = from_status(400, body, {}, ErrorContext("p", secrets=("test-key-123",)))
    assert "•••" in masked.message and "test-key-123" not in masked.message


@given(st.text(max_size=2_000))
def test_any_text_is_classified(text: str) -> None:
    for body in (text, {"error": text}, {"error": {"message": text, "type": text}}, {"detail": [text]}, [text]):
        assert from_status(400, body, {"retry-after": text, "x-ratelimit-reset": text}, ErrorContext("p")).message
        assert from_event(body, ErrorContext("p")).message
        assert len(from_status(400, body, {}, ErrorContext("p")).message) < 2 * errors.LONGEST_TEXT
