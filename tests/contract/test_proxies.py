"""Every request to a model goes the way that the environment names, over HTTP, CONNECT with TLS, and SOCKS."""

from __future__ import annotations

import asyncio

import pytest

from sakti.core.errors import ProviderError
from sakti.providers import serving
from tests.fakes.endpoints import PROVIDERS, anthropic_provider, chat_provider
from tests.fakes.http import FakeServer
from tests.fakes.http import serving as serving_events
from tests.fakes.proxy import HOST, proxying, serving_tls
from tests.fakes.requests import play, request

CHAT = [{"choices": [{"delta": {"content": "All good."}, "finish_reason": "stop"}]}, "[DONE]"]
MESSAGES = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "All good."}},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    {"type": "message_stop"},
]
RESPONSES = [
    {"type": "response.output_text.delta", "output_index": 0, "delta": "All good."},
    {"type": "response.completed", "response": {"status": "completed"}},
]
EVENTS = {"anthropic": MESSAGES, "chat": CHAT, "responses": RESPONSES}


def port_of(server: FakeServer) -> int:
    return int(server.url.rpartition(":")[2])


@pytest.mark.parametrize("protocol", PROVIDERS)
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_plain_http_goes_through_the_proxy(protocol: str, variable: str, monkeypatch) -> None:
    async with serving_events(EVENTS[protocol]) as server, proxying(port_of(server)) as proxy:
        monkeypatch.setenv(variable, f"http://{proxy.url}")
        provider = PROVIDERS[protocol](base_url=f"http://{HOST}:9301/v1")
        _, done = await play(provider, request())
        await provider.close()
    assert done.parts[0].text == "All good."
    assert len(proxy.requests) == len(server.bodies) == 1
    assert proxy.requests[0].startswith(f"POST http://{HOST}:9301/v1")


@pytest.mark.parametrize("protocol", PROVIDERS)
async def test_tls_goes_through_the_tunnel_of_the_proxy(protocol: str, tmp_path, monkeypatch) -> None:
    server = FakeServer(EVENTS[protocol])
    async with serving_tls(server.handle, tmp_path) as (port, certificate), proxying(port, login="me:s@t") as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:s%40t@{proxy.url}")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        provider = PROVIDERS[protocol](base_url=f"https://{HOST}/v1")
        _, done = await play(provider, request())
        await provider.close()
    assert done.parts[0].text == "All good."
    assert proxy.requests[-1] == f"CONNECT {HOST}:443"
    assert len(server.bodies) == 1


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks"])
async def test_socks_carries_requests(scheme: str, monkeypatch) -> None:
    async with serving_events(CHAT) as server, proxying(port_of(server)) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"{scheme}://{proxy.url}")
        provider = chat_provider(base_url=f"http://{HOST}:9301/v1")
        _, done = await play(provider, request())
        await provider.close()
    assert done.parts[0].text == "All good."
    assert proxy.requests == [f"SOCKS {HOST}:9301"]


async def test_a_server_on_this_machine_is_reached_directly(monkeypatch) -> None:
    async with serving_events(CHAT) as server, proxying(port_of(server)) as proxy:
        monkeypatch.setenv("ALL_PROXY", f"socks5://{proxy.url}")
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        provider = chat_provider(base_url=f"{server.url}/v1")
        _, done = await play(provider, request())
        await provider.close()
    assert done.parts[0].text == "All good."
    assert proxy.requests == []


async def test_models_are_listed_through_the_proxy(monkeypatch) -> None:
    async with serving_events() as server, proxying(port_of(server)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://{proxy.url}")
        provider = chat_provider(base_url=f"http://{HOST}:9301/v1")
        with pytest.raises(ProviderError):  # an empty stream is no list
            await provider.models()
        await serving.get_limits(f"http://{HOST}:9301/v1", "m", {}, is_custom_server=False)
        await provider.close()
    assert proxy.requests == [f"GET http://{HOST}:9301/v1/models"] * 2


async def test_a_question_about_the_window_raises_nothing_if_the_proxy_is_unusable(monkeypatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks4://p.example:1")
    assert await serving.get_limits(f"http://{HOST}:9301/v1", "m", {}, is_custom_server=False) is None


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_wants_a_login_says_how_to_write_it(scheme: str, monkeypatch) -> None:
    async with serving_events(CHAT) as server, proxying(port_of(server), login="me:secret") as proxy:
        monkeypatch.setenv(f"{scheme.upper()}_PROXY", f"http://{proxy.url}")
        provider = anthropic_provider(base_url=f"{scheme}://{HOST}")
        with pytest.raises(ProviderError) as caught:
            await play(provider, request())
        await provider.close()
    assert proxy.url in caught.value.message and "USER:PASSWORD" in caught.value.message
    assert not caught.value.retryable


async def test_a_dead_proxy_is_blamed_and_its_password_is_not_shown(monkeypatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    provider = chat_provider(base_url=f"https://{HOST}/v1")
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    await provider.close()
    assert "proxy 127.0.0.1:9" in caught.value.message
    assert "secret" not in caught.value.message


async def test_a_proxy_that_was_not_used_is_not_blamed(monkeypatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", ".invalid")
    provider = chat_provider(base_url="https://model.invalid/v1")
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    await provider.close()
    assert caught.value.code == "unknown_host"
    assert "127.0.0.1:9" not in caught.value.message


async def test_a_missing_certificate_file_is_named_and_not_retried(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "gone.pem"))
    provider = chat_provider(base_url=f"https://{HOST}/v1")
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    assert "SSL_CERT_FILE" in caught.value.message and "gone.pem" in caught.value.message
    assert not caught.value.retryable


async def test_a_proxy_that_never_answers_is_named(monkeypatch) -> None:
    """A proxy address with https in front of a port that does not speak TLS."""
    silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(5), "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    monkeypatch.setenv("HTTPS_PROXY", f"https://{address}")
    provider = chat_provider(base_url=f"https://{HOST}/v1", timeout=0.5)
    with pytest.raises(ProviderError) as caught:
        await play(provider, request())
    await provider.close()
    silent.close()
    assert f"proxy {address}" in caught.value.message
