"""Asking servers of every kind, over real HTTP, how much of a model they serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sakti.core.config.fields import ProviderSettings
from sakti.providers import registry, serving
from sakti.providers.facts import ServedLimits


@asynccontextmanager
async def server(answers: dict[str, Any]) -> AsyncIterator[tuple[str, list[str]]]:
    """A server that has `answers` by path, 404 else; yields its address and the paths it was asked for."""
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        asked.append(path)
        found = answers.get(path)
        body = json.dumps(found).encode()
        status = "200 OK" if found is not None else "404 Not Found"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    made = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{made.sockets[0].getsockname()[1]}", asked
    finally:
        made.close()


LISTED = {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "object": "model"}]}


@pytest.mark.parametrize(
    ("answers", "window"),
    [
        ({"/v1/models": {"data": [{"id": "m", "max_model_len": 8_192}]}}, 8_192),
        ({"/v1/models": {"data": [{"id": "m", "meta": {"n_ctx": 4_096, "n_ctx_train": 32_768}}]}}, 4_096),
        ({"/v1/models": {"data": [{"id": "m", "context_length": 131_072}]}}, 131_072),
        ({"/v1/models": LISTED, "/api/show": {"model_info": {"qwen3.context_length": 40_960}}}, 40_960),
        ({"/v1/models": LISTED, "/api/show": {"parameters": "top_k 20\nnum_ctx 16384", "model_info": {}}}, 16_384),
        (
            {
                "/v1/models": LISTED,
                "/api/show": {"model_info": {"llama.context_length": 131_072}},
                "/api/ps": {"models": [{"name": "m", "context_length": 4_096}]},
            },
            4_096,
        ),
        ({"/v1/models": LISTED, "/props": {"default_generation_settings": {"n_ctx": 2_048}}}, 2_048),
        ({"/v1/models": LISTED, "/api/v0/models": {"data": [{"id": "m", "max_context_length": 9_000}]}}, 9_000),
        ({"/v1/models": LISTED}, None),
        ({}, None),
    ],
)
async def test_the_window_wherever_it_is_told(answers, window):
    async with server(answers) as (url, _):
        assert await serving.get_limits(f"{url}/v1", "m", {}, is_custom_server=True, ollama=True) == ServedLimits(
            window
        )


async def test_only_ollama_is_asked_in_its_way():
    shown = {"/v1/models": LISTED, "/api/show": {"parameters": "num_ctx 16384"}}
    async with server(shown) as (url, asked):
        assert await serving.get_limits(f"{url}/v1", "m", {}, is_custom_server=True) == ServedLimits(None)
    assert "/api/show" not in asked
    async with server({**shown, "/api/version": {"version": "0.9"}}) as (url, _):
        assert await serving.get_limits(f"{url}/v1", "m", {}, is_custom_server=True) == ServedLimits(16_384)


async def test_the_providers_own_server_is_asked_for_its_list_only():
    async with server({"/v1/models": LISTED}) as (url, asked):
        await serving.get_limits(f"{url}/v1", "m", {}, is_custom_server=False)
    assert asked == ["/v1/models"]


async def test_nobody_there_is_no_answer():
    assert await serving.get_limits("http://127.0.0.1:9/v1", "m", {}, is_custom_server=True) is None


@pytest.mark.parametrize("api", ["chat", "responses", "anthropic"])
async def test_every_protocol_asks(api):
    entry = {"id": "m", "max_model_len": 8_192, "max_completion_tokens": 700}
    async with server({"/v1/models": {"data": [entry]}}) as (url, _):
        own = {"mine": ProviderSettings(api=api, base_url=f"{url}/v1")}
        provider = registry.create_provider("mine/m", own, {}, lambda _name: None)
        assert provider.is_custom_server
        assert await provider.fetch_limits("m") == ServedLimits(8_192, 700)
        await provider.close()
