"""Keys that commands print, headers and tokens of the user's own, addresses as people copy them, deadlines."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ConfigError, ProviderError
from sakti.providers import endpoint, registry, sse
from sakti.providers.endpoint import split_base_url
from sakti.providers.limits import choose_max_attempts
from sakti.providers.protocol import TextChunk
from tests.contract.test_clouds import CHAT, MESSAGES, Cloud, serving
from tests.contract.test_clouds import sse as stream
from tests.contract.test_proxies import EVENTS
from tests.fakes.endpoints import PROVIDERS
from tests.fakes.requests import play, request


async def answer(name: str, settings: ProviderSettings, env: dict[str, str] | None = None) -> str:
    provider = registry.create_provider(name, {name.partition("/")[0]: settings}, env or {}, keyring=lambda _: None)
    try:
        events, _ = await play(provider, request(model=name.partition("/")[2]))
    finally:
        await provider.close()
    return "".join(e.text for e in events if isinstance(e, TextChunk))


# --- keys ---------------------------------------------------------------------------------------------------


async def test_a_key_command_runs_once_and_again_when_the_key_has_expired(tmp_path) -> None:
    count = tmp_path / "count"
    command = f'printf x >> {count}; printf "token-%s-123456789\\n" "$(wc -c < {count} | tr -d " ")"'
    async with serving(Cloud(stream(CHAT), wanted=("authorization", "Bearer token-1-123456789"))) as cloud:
        settings = ProviderSettings(base_url=f"{cloud.url}/v1", key_command=command)
        provider = registry.create_provider("mine/m", {"mine": settings}, {}, keyring=lambda _: None)
        for _ in range(2):
            await play(provider, request())
        assert count.read_text() == "x"
        cloud.wanted = ("authorization", "Bearer token-2-123456789")
        await play(provider, request())
        assert count.read_text() == "xx"
        cloud.wanted = ("authorization", "Bearer never")
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        await provider.close()
    assert count.read_text() == "xxx", "a refused new key is not asked for again"
    assert caught.value.status == 401 and not caught.value.retryable


async def test_the_key_of_a_command_is_masked_in_errors() -> None:
    cloud = Cloud(b"", wanted=("authorization", "never"))
    cloud.refusal = b'{"error": {"message": "the key plain-words-here is wrong"}}'
    async with serving(cloud):
        settings = ProviderSettings(base_url=f"{cloud.url}/v1", key_command="echo plain-words-here")
        with pytest.raises(ProviderError) as caught:
            await answer("mine/m", settings)
    assert "plain-words-here" not in caught.value.message and "•••" in caught.value.message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo abcdefgh123 >&2; exit 3", ("exit code 3",)),
        ("true", ("must print the key",)),
        ("echo two words", ("must print the key",)),
        ("printf 'a\\nb\\n'", ("must print the key",)),
        ("echo abcdefgh123; echo failed for abcdefgh123 >&2; exit 1", ("exit code 1",)),
        ("printf 'abcdefgh123\\000x'", ("must print the key",)),
        ("printf '\\033[31mabcdefgh123'", ("must print the key",)),
        ("printf 'schlüssel-abcdefgh123'", ("must print the key",)),
        ("no-such-program-here", ("exit code 127",)),
    ],
)
async def test_a_key_command_that_fails_says_so(command: str, words: tuple[str, ...]) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer("mine/m", ProviderSettings(base_url="http://127.0.0.1:9/v1", key_command=command))
    assert "providers.mine.key_command" in caught.value.message
    assert all(word in caught.value.message for word in words), caught.value.message
    assert "abcdefgh123" not in caught.value.message
    assert caught.value.code == "authentication" and not caught.value.retryable


async def test_a_key_command_has_a_time_limit_and_leaves_nothing_behind(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(endpoint, "KEY_COMMAND_S", 0.3)
    mark = tmp_path / "alive"
    command = f"(sleep 1; touch {mark}) & sleep 60"
    started = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        await answer("mine/m", ProviderSettings(base_url="http://127.0.0.1:9/v1", key_command=command))
    assert "did not end within" in caught.value.message
    await asyncio.sleep(max(0.0, 1.2 - (time.monotonic() - started)))
    assert not mark.exists()


async def test_a_key_command_may_leave_an_agent_behind(tmp_path) -> None:
    """As helpers do that start a daemon: it keeps the pipe open."""
    async with serving(Cloud(stream(CHAT), wanted=("authorization", "Bearer good-key-1"))) as cloud:
        command = f"(sleep 3; touch {tmp_path / 'late'}) & echo good-key-1"
        settings = ProviderSettings(base_url=f"{cloud.url}/v1", key_command=command)
        async with asyncio.timeout(2):
            assert await answer("mine/m", settings) == "All good."


async def test_a_key_command_ends_with_the_request_that_waits_for_it(tmp_path) -> None:
    mark = tmp_path / "alive"
    settings = ProviderSettings(base_url="http://127.0.0.1:9/v1", key_command=f"sleep 1; touch {mark}")
    waiting = asyncio.create_task(answer("mine/m", settings))
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(1.0)
    assert not mark.exists()


async def test_a_refused_key_names_the_command_that_printed_it() -> None:
    async with serving(Cloud(b"", wanted=("authorization", "never"))) as cloud:
        with pytest.raises(ProviderError) as caught:
            await answer("openai/m", ProviderSettings(base_url=f"{cloud.url}/v1", key_command="echo abcdefgh123"))
    assert "providers.openai.key_command" in caught.value.message


async def test_a_key_that_no_header_takes_is_refused_before_a_request() -> None:
    with pytest.raises(ProviderError) as caught:
        await answer("mine/m", ProviderSettings(base_url="http://127.0.0.1:9/v1", auth_token="gehört-mir-1"))
    assert "characters" in caught.value.message and "gehört" not in caught.value.message


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_own_headers_and_a_token_go_with_every_request(api: str) -> None:
    async with serving(Cloud(stream([e for e in EVENTS[api] if e != "[DONE]"]))) as cloud:
        settings = ProviderSettings(
            api=api, base_url=f"{cloud.url}/v1", auth_token="gateway-token-1", headers={"X-Team": "blue"}
        )
        await answer("mine/m", settings, {"ANTHROPIC_API_KEY": "unused", "OPENAI_API_KEY": "unused"})
    (call,) = cloud.calls
    assert call.headers["authorization"] == "Bearer gateway-token-1"
    assert call.headers["x-team"] == "blue"
    assert "x-api-key" not in call.headers


async def test_another_provider_learns_nothing_of_an_openai_account(monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-secret")
    async with serving(Cloud(stream(CHAT))) as cloud:
        await answer("mine/m", ProviderSettings(base_url=f"{cloud.url}/v1"))
    assert not any("secret" in value for value in cloud.calls[0].headers.values())


# --- addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example/v1", ("https://a.example/v1", {}, None)),
        ("https://a.example/v1/", ("https://a.example/v1", {}, None)),
        (" https://a.example/v1?api-version=1&x= ", ("https://a.example/v1", {"api-version": "1", "x": ""}, None)),
        ("https://a.example/v1/chat/completions", ("https://a.example/v1", {}, "chat")),
        ("https://a.example/v1/chat/completions/?v=1#top", ("https://a.example/v1", {"v": "1"}, "chat")),
        ("https://a.example/openai/v1/responses", ("https://a.example/openai/v1", {}, "responses")),
        ("https://a.example/anthropic/v1/messages", ("https://a.example/anthropic", {}, "anthropic")),
    ],
)
def test_addresses_are_taken_as_documentation_has_them(url: str, expected: tuple[object, ...]) -> None:
    assert split_base_url(url) == expected


@pytest.mark.parametrize(
    "url", ["http://[::1/v1", "http://127.0.0.1:notaport/v1", "http://", "http:///v1", "ftp://a.example", "a.example"]
)
@pytest.mark.parametrize("in_settings", [True, False])
def test_no_address_is_one_sentence(url: str, in_settings: bool) -> None:
    own = {"openai": ProviderSettings(base_url=url if in_settings else None)}
    with pytest.raises(ConfigError) as caught:
        registry.create_provider(
            "openai/m", own, {} if in_settings else {"OPENAI_BASE_URL": url}, keyring=lambda _: None
        )
    assert url in caught.value.message


@pytest.mark.parametrize(
    ("path", "target", "events"),
    [
        ("/v1?api-version=2024", "/v1/chat/completions?api-version=2024", CHAT),
        ("/v1/chat/completions", "/v1/chat/completions", CHAT),
        ("/v1/chat/completions?k=a.b", "/v1/chat/completions?k=a.b", CHAT),
        ("/v1/responses", "/v1/responses", EVENTS["responses"]),
        ("/gateway/v1/messages?beta=true", "/gateway/v1/messages?beta=true", MESSAGES),
    ],
)
async def test_a_query_and_a_full_endpoint_reach_the_server(path: str, target: str, events) -> None:
    async with serving(Cloud(stream(events))) as cloud:
        assert await answer("mine/m", ProviderSettings(base_url=cloud.url + path)) == "All good."
        assert cloud.calls[0].target == target
        assert await answer("openai/m", ProviderSettings(), {"OPENAI_BASE_URL": cloud.url + path}) == "All good."
        assert cloud.calls[1].target == target


# --- deadlines ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def dripping(piece: bytes):
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        try:
            while True:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize("protocol", PROVIDERS)
@pytest.mark.parametrize("piece", [b"\n\n", b": keepalive\n\n", b'event: ping\ndata: {"type": "ping"}\n\n'])
async def test_a_stream_without_events_ends_with_a_sentence(protocol: str, piece: bytes, monkeypatch) -> None:
    monkeypatch.setattr(sse, "LONGEST_QUIET_S", 0.3)
    async with dripping(piece) as url:
        provider = PROVIDERS[protocol](base_url=f"{url}/v1")
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        await provider.close()
    assert caught.value.code == "no_events" and not caught.value.retryable
    assert "127.0.0.1" in caught.value.message


@pytest.mark.parametrize("protocol", PROVIDERS)
async def test_a_stream_of_comments_can_be_left_at_once(protocol: str) -> None:
    async with dripping(b": keepalive\n\n") as url:
        provider = PROVIDERS[protocol](base_url=f"{url}/v1")
        playing = asyncio.create_task(play(provider, request()))
        await asyncio.sleep(0.2)
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing
        await provider.close()


@pytest.mark.parametrize("protocol", PROVIDERS)
@pytest.mark.parametrize("piece", [b"x" * 1_000_000, b"data: " + b"x" * 1_000_000 + b"\n"])
async def test_a_line_without_end_is_given_up_after_a_second_attempt(protocol: str, piece: bytes) -> None:
    async with dripping(piece) as url:
        provider = PROVIDERS[protocol](base_url=f"{url}/v1")
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        await provider.close()
    assert caught.value.code == "line_too_long" and "4 MB" in caught.value.message
    assert caught.value.retryable and choose_max_attempts(caught.value) == 2
