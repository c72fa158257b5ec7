"""Answers that are no stream of events, or not wholly: each protocol over real HTTP with the real SDKs."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sakti.core.errors import ProviderError
from sakti.core.types import TextPart, ToolCallPart
from sakti.providers import errors, limits
from sakti.providers.protocol import Completed, TextChunk
from tests.fakes.endpoints import anthropic_provider, chat_provider, responses_provider
from tests.fakes.requests import play, request

KEY = "sk-test-0123456789abcdef"
KINDS = {"anthropic": anthropic_provider, "chat": chat_provider, "responses": responses_provider}


@asynccontextmanager
async def answering(body: bytes, kind: str, status: str = "200 OK") -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives `body` to every request; yields its address and what it was sent."""
    sent: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        sent.append(await reader.readexactly(length))
        lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + body)
        await writer.drain()
        writer.close()

    made = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}", sent
    finally:
        made.close()


async def ask(api: str, body: bytes, kind: str, status: str = "200 OK"):
    async with answering(body, kind, status) as (url, _):
        provider = KINDS[api](KEY, base_url=url, timeout=5)
        try:
            return await play(provider, request())
        finally:
            await provider.close()


async def failure(api: str, body: bytes, kind: str, status: str = "200 OK") -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(api, body, kind, status)
    return caught.value


every = pytest.mark.parametrize("api", KINDS)
PAGE = b"<!doctype html><head><style>p{}</style></head><body><p>Please <b>log in</b> to Hotel Wi-Fi</p></body>"


@every
@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "text/event-stream", "application/json"])
async def test_a_page_is_quoted_and_final(api, kind):
    error = await failure(api, PAGE, kind)
    assert (error.code, error.retryable) == ("not_a_model", False)
    assert "Please log in to Hotel Wi-Fi" in error.message and "127.0.0.1" in error.message


WHOLE = {
    "anthropic": {
        "type": "message",
        "model": "m",
        "content": [{"type": "text", "text": "Hi."}, {"type": "tool_use", "id": "c", "name": "ls", "input": {"a": 1}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 5, "output_tokens": 3},
    },
    "chat": {
        "choices": [
            {
                "message": {
                    "content": "Hi.",
                    "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": '{"a": 1}'}}],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3},
    },
    "responses": {
        "status": "completed",
        "output": [
            {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]},
            {"type": "function_call", "call_id": "c", "name": "ls", "arguments": '{"a": 1}'},
        ],
        "usage": {"input_tokens": 5, "output_tokens": 3},
    },
}


@every
async def test_an_answer_in_one_piece_is_read(api):
    events, done = await ask(api, json.dumps(WHOLE[api], indent=1).encode(), "application/json")
    assert done.parts == (TextPart("Hi."), ToolCallPart("c", "ls", {"a": 1}))
    assert isinstance(done, Completed) and done.stop_reason == "tool_use"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (5, 3)
    assert [e.text for e in events if isinstance(e, TextChunk)] == ["Hi."], "the screen shows it, too"


@every
@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "model not loaded"}, "invalid_request", False),
        ({"message": "bad key", "type": "authentication_error"}, "authentication", False),
        ({"message": "too busy", "type": "overloaded_error"}, "overloaded", True),
    ],
)
async def test_an_error_in_a_success_says_what_it_is(api, error, code, retryable):
    found = await failure(api, json.dumps({"type": "error", "error": error}).encode(), "application/json")
    assert (found.code, found.retryable) == (code, retryable)
    assert error["message"] in found.message


@every
async def test_json_that_is_no_answer_is_no_answer(api):
    error = await failure(api, b'{"hello": "world"}', "application/json")
    assert error.code == "not_a_model" and "hello" in error.message
    error = await failure(api, b'["hello"]', "application/json")
    assert (error.code, error.retryable) == ("not_a_model", False)


STREAMS = {
    "anthropic": [
        '{"type":"message_start","message":{}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"caf?e"}}',
        '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
        '{"type":"message_stop"}',
    ],
    "chat": ['{"choices":[{"delta":{"content":"caf?e"},"finish_reason":"stop"}]}', "[DONE]"],
    "responses": [
        '{"type":"response.output_item.added","output_index":0,"item":{"type":"message"}}',
        '{"type":"response.output_text.delta","output_index":0,"delta":"caf?e"}',
        '{"type":"response.completed","response":{"status":"completed"}}',
    ],
}


@every
async def test_a_broken_byte_loses_its_character_only(api):
    body = "".join(f"data: {event}\n\n" for event in STREAMS[api]).encode().replace(b"?", b"\xff")
    _, done = await ask(api, body, "text/event-stream")
    assert done.parts == (TextPart("caf\ufffde"),)


@every
async def test_a_stream_with_a_wrong_header_is_read(api):
    body = "".join(f"\n: hello\nevent: x\ndata: {event}\n\n" for event in STREAMS[api]).encode()
    _, done = await ask(api, body, "text/plain")
    assert done.parts == (TextPart("caf?e"),)


@every
async def test_too_many_bytes_are_too_long_a_request(api):
    error = await failure(
        api, b'{"error": {"message": "maximum allowed number of bytes"}}', "application/json", "413 X"
    )
    assert (error.code, error.retryable) == ("context_too_long", False)
    assert "larger than" in error.message


@every
async def test_a_text_that_is_no_stream_is_quoted_and_final(api):
    error = await failure(api, b"upstream said: no", "text/plain")
    assert (error.code, error.retryable) == ("not_a_model", False)
    assert "upstream said: no" in error.message


def stream(api: str, old: str = "", new: str = "") -> bytes:
    return "".join(f"data: {event}\n\n" for event in STREAMS[api]).replace(old, new).encode()


@every
async def test_half_a_character_costs_that_character_only(api):
    _, done = await ask(api, stream(api, "caf?e", r"a \ud800 b"), "text/event-stream")
    assert done.parts == (TextPart("a \ufffd b"),)


@every
async def test_a_character_that_came_in_halves_is_whole(api):
    events = STREAMS[api]
    said = next(e for e in events if "caf?e" in e)
    halves = [said.replace("caf?e", r"x\ud83d"), said.replace("caf?e", r"\ude00y")]
    play = [each for e in events for each in (halves if e == said else [e])]
    body = "".join(f"data: {event}\n\n" for event in play).encode()
    events, done = await ask(api, body, "text/event-stream")
    assert done.parts == (TextPart("x\U0001f600y"),)
    assert "".join(e.text for e in events if isinstance(e, TextChunk)) == "x\U0001f600y", "the screen shows it, too"


ABSURD = (
    '{"prompt_tokens":-5,"completion_tokens":"many","input_tokens":"abc","output_tokens":1e30,"cost":"free",'
    '"prompt_tokens_details":[1],"input_tokens_details":"x","completion_tokens_details":7,"output_tokens_details":3,'
    '"cache_read_input_tokens":100000000000000000000000000000}'
)


@every
async def test_absurd_usage_does_not_cost_the_answer(api):
    body = stream(api)
    if api == "anthropic":
        body = body.replace(b'"delta":{"stop_reason"', f'"usage":{ABSURD},"delta":{{"stop_reason"'.encode())
    elif api == "chat":
        body = f'data: {{"usage":{ABSURD}}}\n\n'.encode() + body
    else:
        body = body.replace(b'"status":"completed"', f'"status":"completed","usage":{ABSURD}'.encode())
    _, done = await ask(api, body, "text/event-stream")
    assert done.parts == (TextPart("caf?e"),)
    assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.cached_tokens) == (0, 0, 0)


ODD = {
    "anthropic": '{"type":"content_block_start","index":"x","content_block":{}}',
    "chat": '{"choices":[{"delta":{"tool_calls":[null]}}]}',
    "responses": '{"type":"response.output_item.added","output_index":"q","item":[]}',
}


@every
@pytest.mark.parametrize("nested", [False, True])
async def test_what_is_not_of_the_protocol_is_named(api, nested):
    event = '{"x":' + "[" * 100_000 + "]" * 100_000 + "}" if nested else ODD[api]
    error = await failure(api, f"data: {event}\n\n".encode() + stream(api), "text/event-stream")
    assert error.code == ("stream_cut" if nested else "unreadable") and error.retryable
    assert "unreadable" in error.message or "127.0.0.1" in error.message
    assert "could not be called" not in error.message


async def test_a_refusal_of_chat_is_a_refusal():
    body = b'data: {"choices":[{"delta":{"refusal":"I cannot."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    _, done = await ask("chat", body, "text/event-stream")
    assert (done.parts, done.stop_reason) == ((TextPart("I cannot."),), "refusal")


# --- what a server refuses by name ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "name", "said"),
    [
        ("anthropic", "thinking", "thinking: Extra inputs are not permitted"),
        ("anthropic", "output_config", "output_config: Extra inputs are not permitted"),
        ("chat", "stream_options", "Unknown parameter: 'stream_options'."),
        ("chat", "max_tokens", "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
         "'max_completion_tokens' instead."),
        ("responses", "reasoning", "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
        ("responses", "temperature", "Unsupported parameter: 'temperature' is not supported with this model."),
    ],
)  # fmt: skip
async def test_what_a_server_refuses_by_name_is_left_out(api, name, said):
    sent: list[dict] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = json.loads(await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0])))
        sent.append(body)
        wrong = json.dumps({"error": {"message": said, "type": "invalid_request_error"}}).encode()
        status, kind, text = "400 X", "application/json", wrong
        if name not in body:
            status, kind, text = "200 OK", "text/event-stream", stream(api)
        lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        writer.write(lines.encode() + text)
        await writer.drain()
        writer.close()

    models = {"anthropic": "claude-sonnet-5-5", "chat": "m", "responses": "gpt-6.1"}
    made = await asyncio.start_server(handle, "127.0.0.1", 0)
    provider = KINDS[api](KEY, base_url=f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}", timeout=5)
    extra = {"temperature": 0.5} if name == "temperature" else {}
    asked = request(model=models[api], effort="medium", max_output_tokens=4_000, extra=extra)
    for _ in range(2):
        _, done = await play(provider, asked)
        assert done.parts == (TextPart("caf?e"),)
    await provider.close()
    made.close()
    assert [name in body for body in sent] == [True, False, False], "once, and then never again"
    if name == "max_tokens":
        assert sent[-1]["max_completion_tokens"] == sent[0]["max_tokens"]
    assert sent[0].keys() - sent[1].keys() == {name}, "nothing else is left out"


@every
async def test_a_request_that_is_wrong_in_itself_is_not_asked_again(api):
    wrong = b'{"error": {"message": "messages.3: thinking blocks cannot be modified", "type": "invalid_request_error"}}'
    async with answering(wrong, "application/json", "400 X") as (url, sent):
        provider = KINDS[api](KEY, base_url=url, timeout=5)
        with pytest.raises(ProviderError) as caught:
            await play(provider, request(model="claude-sonnet-5-5", effort="medium"))
        await provider.close()
    assert (caught.value.code, len(sent)) == ("invalid_request", 1)


# --- no connection --------------------------------------------------------------------------------------------


@every
async def test_an_unknown_host_is_named(api, monkeypatch):
    def unknown(*_a, **_k):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    provider = KINDS[api](KEY, base_url="http://no-such-host.invalid/v1", timeout=5)
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    assert (caught.value.code, caught.value.retryable) == ("unknown_host", True)
    assert "no-such-host.invalid" in caught.value.message


@every
async def test_a_certificate_is_never_tried_again(api, monkeypatch):
    def refused(*_a, **_k):
        raise ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")

    monkeypatch.setattr(ssl.SSLContext, "wrap_bio", refused)
    async with answering(b"", "text/plain") as (url, _):
        provider = KINDS[api](KEY, base_url=url.replace("http:", "https:"), timeout=5)
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
    assert (caught.value.code, caught.value.retryable) == ("certificate", False)
    assert "SSL_CERT_FILE" in caught.value.message


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "soon", ""])
def test_an_absurd_wait_is_none(value):
    assert limits.read_retry_after({"retry-after": value}) in (None, 0.0)


def test_an_empty_account_and_a_list_of_faults_are_said_in_words():
    empty = errors.from_status(402, {"error": {"message": "Insufficient credits"}}, {}, errors.ErrorContext("p"))
    assert (empty.code, empty.retryable) == ("authentication", False)
    assert "no credit left: Insufficient credits. Add credit" in empty.message
    listed = {"detail": [{"loc": ["body", "max_tokens"], "msg": "Field required", "type": "missing"}]}
    assert "body.max_tokens: Field required" in errors.from_status(422, listed, {}, errors.ErrorContext("p")).message


@every
async def test_a_proxy_that_is_dead_is_named(api, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://user:secret@127.0.0.1:9")
    provider = KINDS[api](KEY, base_url="http://models.example/v1", timeout=5)
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    assert caught.value.code == "unreachable"
    assert "proxy 127.0.0.1:9" in caught.value.message and "secret" not in caught.value.message


@every
async def test_a_circle_of_addresses_is_final(api):
    error = await failure(api, b"", "text/plain\r\nLocation: /again", "307 X")
    assert (error.code, error.retryable) == ("not_found", False)
    assert "endlessly" in error.message


@every
async def test_what_cannot_be_decompressed_is_said_so(api):
    error = await failure(api, stream(api), "text/event-stream\r\nContent-Encoding: gzip")
    assert error.code == "unreadable" and "decompressed" in error.message


# --- limits that servers name -----------------------------------------------------------------------------------

WHERE = errors.ErrorContext("p")


@pytest.mark.parametrize(
    ("said", "code", "output", "maximum", "window"),
    [
        ("max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-x",
         "output_too_long", 64_000, 64_000, None),
        ("max_tokens is too large: 200000. This model supports at most 16384 completion tokens, whereas you provided "
         "200000.", "output_too_long", 16_384, 16_384, None),
        ("`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the "
         "`context_window` for this model", "output_too_long", 32_768, 32_768, None),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", "output_too_long", 8_192, 8_192, None),
        ("'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum context length is 8192 "
         "tokens and your request has 3470 input tokens (8192 > 8192 - 3470).", "output_too_long", 4_722, None, 8_192),
        ("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or "
         "`max_tokens` and try again", "output_too_long", 10_000, None, 200_000),
        ("This model's maximum context length is 8192 tokens. However, you requested 11662 tokens (3470 in the "
         "messages, 8192 in the completion).", "output_too_long", 4_722, None, 8_192),
        ("max_tokens is too large", "output_too_long", None, None, None),
        ("This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (8100 in the "
         "messages, 900 in the completion).", "context_too_long", 92, None, 8_192),
        ("prompt is too long: 210000 tokens > 200000 maximum", "context_too_long", -10_000, None, 200_000),
        ("the request exceeds the available context size. try increasing the context size", "context_too_long", None,
         None, None),
        ("max_tokens must be an integer", "invalid_request", None, None, None),
    ],
)  # fmt: skip
def test_limits_are_read_from_the_servers_words(said, code, output, maximum, window):
    error = errors.from_status(400, {"error": {"message": said}}, {}, WHERE)
    assert (error.code, error.retryable) == (code, False)
    assert (error.output_limit, error.max_output, error.window) == (output, maximum, window)
