"""Retries, prices, errors, the event stream's lines and the scripted provider."""

from __future__ import annotations

import json

import pytest

from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ConfigError, ProviderError
from sakti.core.types import ThinkingPart, ToolCallPart, Usage
from sakti.providers import errors, facts, limits
from sakti.providers.protocol import TextChunk
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.providers.sse import DONE, iter_json_events
from tests.fakes.requests import play, request


def test_delays_double_up_to_a_limit():
    assert [limits.retry_delay(n, None, lambda: 0.0) for n in range(1, 8)] == [1, 2, 4, 8, 16, 30, 30]
    assert limits.retry_delay(3, None, lambda: 1.0) == 2


def test_what_the_provider_asks_for_is_waited():
    assert limits.retry_delay(1, 17.0, lambda: 0.0) == 17
    assert 17 < limits.retry_delay(9, 17.0, lambda: 0.9) < 18


def test_eight_attempts():
    error = ProviderError("x", retryable=True)
    retries = limits.Retries(lambda: 0.0)
    assert [retries.wait(error) for _ in range(8)] == [1, 2, 4, 8, 16, 30, 30, None]
    assert limits.Retries(lambda: 0.0).wait(ProviderError("x")) is None


def test_waits_have_an_end():
    asked = ProviderError("x", code="rate_limit", retryable=True, retry_after=500)
    retries = limits.Retries(lambda: 0.0)
    assert [retries.wait(asked) for _ in range(2)] == [500, None], "900 s in all"
    assert limits.Retries(lambda: 0.0).wait(asked, at_most=499) is None
    hours = ProviderError("x", code="rate_limit", retryable=True, retry_after=3_601)
    assert limits.Retries(lambda: 0.0).wait(hours) is None
    host = ProviderError("x", code="unknown_host", retryable=True)
    retries = limits.Retries(lambda: 0.0)
    assert [retries.wait(host) for _ in range(3)] == [1, 2, None]


def test_prices():
    usage = Usage(input_tokens=1_000_000, cached_tokens=0, output_tokens=0)
    assert facts.compute_cost(usage, "anthropic", "claude-opus-5-5") == pytest.approx(4.0)
    cached = Usage(input_tokens=1_000_000, cached_tokens=1_000_000)
    assert facts.compute_cost(cached, "anthropic", "claude-opus-5-5") == pytest.approx(0.2)
    assert facts.compute_cost(usage, "local", "x") == 0
    assert facts.compute_cost(usage, "ollama", "x") is None
    assert facts.compute_cost(usage, "openai", "no-such-model") is None


def test_model_info():
    info = facts.get_model_info("anthropic", "claude-opus-5-5")
    assert (info.context_window, info.input_price, info.output_price) == (1_000_000, 4.0, 20.0)
    assert facts.get_model_info("gemini", "gemini-2.5-pro").context_window == 1_048_576
    assert facts.get_model_info("openai", "gpt-6.1-sol").input_price == 2.0
    assert facts.get_model_info("ollama", "x").context_window is None
    assert facts.get_model_info("anthropic", "claude-x", ProviderSettings(context_window=5)).context_window == 5


WHERE = errors.ErrorContext(
    "openai", "https://user:pw@api.example.com/v1", "OPENAI_API_KEY", ("sk-very-secret-0123456789",)
)


@pytest.mark.parametrize(
    "body",
    [
        {
            "error": {
                "message": "prompt is too long: 210000 tokens > 200000 maximum",
                "type": "invalid_request_error",
            }
        },
        {
            "error": {
                "message": "Your input exceeds the context window of this model.",
                "code": "context_length_exceeded",
            }
        },
        {"error": {"message": "This model's maximum context length is 8192 tokens."}},
        {
            "error": {
                "message": "the request exceeds the available context size",
                "type": "exceed_context_size_error",
            }
        },
        {"message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."},
        {"code": "context_length_exceeded", "message": "no"},
    ],
)
def test_too_long_is_recognised(body):
    assert errors.from_status(400, body, {}, WHERE).code == "context_too_long"


def test_keys_never_show():
    body = {
        "error": {"message": "Incorrect API key provided: sk-very-secret-0123456789. Also sk-proj-abcdefghijklmnop"}
    }
    said = errors.from_status(401, body, {}, WHERE).message
    assert "secret" not in said
    assert "abcdefgh" not in said
    assert WHERE.host == "api.example.com"


def test_an_empty_account_is_not_retried():
    body = {"error": {"message": "You exceeded your current quota", "type": "insufficient_quota"}}
    assert not errors.from_status(429, body, {}, WHERE).retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_retry_after(headers, seconds):
    assert limits.read_retry_after(headers) == seconds


async def lines(*chunks):
    async def source():
        for chunk in chunks:
            yield chunk

    return [e async for e in iter_json_events(source(), WHERE)]


async def test_events_cut_anywhere():
    whole = (
        b': hi\r\nevent: x\r\ndata: {"a": "\xc3\xa9"}\r\n\r\ndata: {"b":\ndata: 2}\n\n'
        b'data: [DONE]\n\ndata: {"c": 3}\n\n'
    )
    expected = [{"a": "é"}, {"b": 2}, DONE]
    assert await lines(whole) == expected
    assert await lines(*(whole[i : i + 1] for i in range(len(whole)))) == expected


@pytest.mark.parametrize("data", [b"data: {broken\n\n", b"data: 3\n\n", b"data: {"])
async def test_unreadable_events(data):
    with pytest.raises(ProviderError) as caught:
        await lines(data)
    assert caught.value.retryable


class NoTime:
    def __init__(self):
        self.slept = []

    def now(self):
        return 0

    def monotonic(self):
        return 0.0

    async def sleep(self, seconds):
        self.slept.append(seconds)


async def test_a_script_plays():
    clock = NoTime()
    provider = ScriptedProvider(
        [
            Answer(
                "hello",
                thinking="hm",
                calls=(Call("read", {"path": "a"}), Call("read", raw="{x")),
                delay=2.0,
                chunk=2,
            ),
            "plain",
        ],
        clock=clock,
        count=len,
    )
    asked = request()
    events, done = await play(provider, asked)
    assert [e.text for e in events if isinstance(e, TextChunk)] == ["he", "ll", "o"]
    assert isinstance(done.parts[0], ThinkingPart)
    assert done.parts[2:] == (
        ToolCallPart("call_1", "read", {"path": "a"}),
        ToolCallPart("call_2", "read", None, "{x"),
    )
    assert done.stop_reason == "tool_use"
    assert done.usage.input_tokens == len("You help.") + len("hello")
    assert clock.slept == [2.0]
    assert provider.requests == [asked]
    assert (await play(provider, asked))[1].parts[0].text == "plain"
    with pytest.raises(ProviderError, match="no answer left"):
        await play(provider, asked)


async def test_scripted_faults_and_functions():
    provider = ScriptedProvider([Answer("half", cut=True), Answer(error="rate_limit", retry_after=3)])
    for code in ("stream_cut", "rate_limit"):
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        assert (caught.value.code, caught.value.retryable) == (code, True)
    echo = ScriptedProvider(lambda r: r.messages[-1].text.upper())
    assert (await play(echo, request()))[1].parts[0].text == "HELLO"


def test_scripts_from_files(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('"hi"\n' + json.dumps({"calls": [{"name": "ls"}], "usage": {"input_tokens": 3}}) + "\n")
    provider = ScriptedProvider.from_file(path)
    assert len(provider._left) == 2
    for text in ("{", '{"nonsense": 1}', "3"):
        path.write_text(text)
        with pytest.raises(ConfigError):
            ScriptedProvider.from_file(path)
    with pytest.raises(ConfigError):
        ScriptedProvider.from_file(tmp_path / "none.json")
