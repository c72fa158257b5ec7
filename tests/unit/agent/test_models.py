"""What a session learns of its model before the first request, from servers over real HTTP."""

from __future__ import annotations

import pytest

from sakti.agent.session.models import Models
from sakti.core.config import load
from sakti.core.events import ModelChanged, Notice
from sakti.providers.facts import ASSUMED_ON_LOOPBACK
from tests.contract.test_serving import server


def made(*overrides: str):
    events: list[object] = []
    return Models(load(overrides=overrides).config, {}, events.append), events


async def test_a_served_window_is_asked_for_once() -> None:
    listed = {"data": [{"id": "m", "max_model_len": 8_192, "max_completion_tokens": 500}]}
    async with server({"/v1/models": listed}) as (url, asked):
        models, events = made(f"providers.mine.base_url={url}/v1")
        await models.select("mine/m")
        for _ in range(3):
            info = await models.learn()
        await models.close()
    assert (info.context_window, info.max_output, info.assumed) == (8_192, 500, False)
    assert asked == ["/v1/models"]
    assert [e.context_window for e in events if isinstance(e, ModelChanged)] == [None, 8_192]


async def test_where_nobody_knows_little_is_assumed_and_said_once() -> None:
    async with server({"/v1/models": {"data": [{"id": "m"}]}}) as (url, asked):
        models, events = made(f"providers.mine.base_url={url}/v1")
        await models.select("mine/m")
        for _ in range(2):
            info = await models.learn()
        await models.close()
    assert (info.context_window, info.assumed) == (ASSUMED_ON_LOOPBACK, True)
    (notice,) = [e for e in events if isinstance(e, Notice)]
    assert "providers.mine.context_window" in notice.message and f"{ASSUMED_ON_LOOPBACK:,}" in notice.message
    assert asked.count("/v1/models") == 1


async def test_what_the_settings_say_is_not_asked_for() -> None:
    async with server({}) as (url, asked):
        models, _ = made(f"providers.mine.base_url={url}/v1", "providers.mine.context_window=32000")
        await models.select("mine/m")
        assert (await models.learn()).context_window == 32_000
        await models.close()
    assert asked == []


async def test_a_server_that_is_not_there_yet_is_asked_again() -> None:
    models, events = made("providers.mine.base_url=http://127.0.0.1:9/v1")
    await models.select("mine/m")
    assert (await models.learn()).assumed
    assert not [e for e in events if isinstance(e, Notice)], "the turn itself will say it"
    async with server({"/v1/models": {"data": [{"id": "m", "max_model_len": 4_096}]}}) as (url, _):
        models._config = load(overrides=(f"providers.mine.base_url={url}/v1",)).config
        from sakti.providers import registry

        models.provider = registry.create_provider("mine/m", models._config.providers, {}, lambda _n: None)
        assert (await models.learn()).context_window == 4_096
        await models.close()


async def test_known_models_are_not_asked_for() -> None:
    models, _ = made()
    await models.select("anthropic/claude-sonnet-5-5")
    info = await models.learn()
    assert (info.context_window, info.max_output, info.thinking) == (1_000_000, 128_000, "adaptive")
    assert models.provider is not None and models.provider._server._client is None, "nothing was opened"
    await models.close()


async def test_the_fallback_is_known_as_well_as_the_actor() -> None:
    models, _ = made("fallback_model=openai/gpt-6-luna")
    await models.select("anthropic/claude-sonnet-5-5")
    found = await models.fallback()
    assert found is not None
    assert (found[0].name, found[1].full_name, found[1].max_output) == ("openai", "openai/gpt-6-luna", 128_000)
    await models.close()
    models, _ = made("fallback_model=anthropic/claude-sonnet-5-5")
    await models.select("anthropic/claude-sonnet-5-5")
    assert await models.fallback() is None, "the same is no other"
    await models.close()


@pytest.mark.parametrize(
    ("actor", "fit"), [("ollama/qwen2.5-coder-1.5b", False), ("ollama/qwen3:32b", True), ("openai/gpt-6-luna", True)]
)
async def test_an_unfit_actor_does_not_observe(actor: str, fit: bool) -> None:
    models, _ = made()
    await models.select(actor)
    assert models.can_observe(models.choose_observer()) is fit
    await models.close()
