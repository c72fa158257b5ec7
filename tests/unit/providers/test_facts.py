"""The one table of models: what is found by a name, and who knows better than whom."""

from __future__ import annotations

import pytest

from sakti.core.config.fields import ProviderSettings
from sakti.providers import anthropic, facts, openai_chat, openai_responses, presets, registry
from sakti.providers.facts import ServedLimits
from sakti.providers.presets import PRESETS, Family, Preset
from tests.fakes.requests import message, request


@pytest.mark.parametrize(
    ("name", "window", "output", "thinking"),
    [
        ("anthropic/claude-sonnet-5-5", 1_000_000, 128_000, "adaptive"),
        ("anthropic/claude-opus-4-1-20250805", 200_000, 32_000, "budget"),
        ("anthropic/claude-sonnet-4-5-20250929", 200_000, 64_000, "budget"),
        ("anthropic/claude-opus-4-6", 1_000_000, 128_000, "adaptive"),
        ("anthropic/claude-3-5-sonnet-20241022", 200_000, 8_192, ""),
        ("openai/gpt-6.1-terra", 1_050_000, 128_000, "effort"),
        ("openai/gpt-4o-mini", 128_000, 16_384, ""),
        ("openai/o3", 200_000, 100_000, "effort"),
        ("openrouter/anthropic/claude-sonnet-5.5", 1_000_000, 128_000, "adaptive"),
        ("gemini/gemini-3.8-flash", 1_000_000, 65_536, "effort"),
        ("groq/openai/gpt-oss-120b", 131_072, 65_536, "effort"),
        ("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", 200_000, 64_000, "budget"),
        ("bedrock/anthropic.claude-opus-4-1-20250805-v1:0", 200_000, 32_000, "budget"),
        ("bedrock/global.anthropic.claude-sonnet-5-5", 1_000_000, 128_000, "adaptive"),
        ("vertex/claude-opus-4-1@20250805", 200_000, 32_000, "budget"),
        ("vertex/claude-haiku-5-5", 1_000_000, 128_000, "adaptive"),
        ("foundry/claude-sonnet-5-5", 1_000_000, 128_000, "adaptive"),
        ("azure/gpt-5.1", 400_000, 128_000, "effort"),
    ],
)
def test_what_is_known_of_models(name, window, output, thinking):
    info = facts.get_model_info(*name.split("/", 1))
    assert (info.context_window, info.max_output, info.thinking) == (window, output, thinking)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("zai-org/GLM-5.3", 1_000_000),
        ("glm-4.7", 200_000),
        ("glm-4.5-air", 131_072),
        ("moonshotai/kimi-k3", 1_000_000),
        ("kimi-k2-0905-preview", 262_144),
        ("qwen3-coder-480b-a35b-instruct", 262_144),
        ("Qwen/Qwen3.8-27B", 262_144),
        ("qwen3-32b", 40_960),
        ("qwen2.5-coder-32b-instruct", 32_768),
        ("deepseek-v3.2", 128_000),
        ("deepseek-v4-pro", 1_000_000),
        ("x-ai/grok-4.6", 500_000),
        ("grok-code-fast-1", 256_000),
        ("MiniMax-M2.7", 196_608),
        ("minimax-m3", 512_000),
        ("openai/gpt-oss-20b", 131_072),
        ("meta-llama/llama-4-maverick", 1_000_000),
        ("llama-3.3-70b-instruct", 131_072),
        ("devstral-2512", 262_144),
        ("mistral-small-2603", 131_072),
        ("google/gemma-4-31b-it", 262_144),
        ("gemma-3-27b-it", 131_072),
    ],
)
def test_open_families_have_a_window_wherever_they_are_served(name: str, window: int) -> None:
    assert facts.get_model_info("mine", name).context_window == window
    here = ProviderSettings(base_url="http://127.0.0.1:9000/v1")
    assert facts.get_model_info("mine", name, here).context_window is None, "a server on this machine decides it"


def test_prices_of_clouds_are_found_by_their_own_names() -> None:
    for name in ("bedrock/eu.anthropic.claude-haiku-5-5", "vertex/claude-sonnet-4-5@20250929", "azure/gpt-5.1"):
        assert facts.get_model_info(*name.split("/", 1)).input_price is not None, name


@pytest.mark.parametrize(
    ("actor", "observer"),
    [
        ("bedrock/us.anthropic.claude-sonnet-5-5", "bedrock/us.anthropic.claude-haiku-5-5"),
        ("bedrock/anthropic.claude-sonnet-4-6", "bedrock/anthropic.claude-haiku-5-5"),
        ("bedrock/arn:aws:bedrock:us-east-1:1:application-inference-profile/x", None),
        ("bedrock/arn:aws:bedrock:eu:1:inference-profile/eu.anthropic.claude-x", None),
        ("vertex/claude-opus-5-5", "vertex/claude-haiku-5-5"),
        ("azure/my-deployment", None),
    ],
)
def test_the_observer_of_a_cloud_is_its_small_model_of_the_same_region(actor: str, observer: str | None) -> None:
    assert registry.choose_small_model(actor) == (observer or actor)


def test_every_preset_has_all_its_facts():
    for preset in PRESETS.values():
        if preset.local:
            continue
        for model in filter(None, (preset.model, preset.small)):
            info = facts.get_model_info(preset.name, model)
            assert info.context_window, model
            assert info.max_output, model
            assert info.input_price is not None, model


def test_who_knows_better():
    told = ServedLimits(window=8_192, max_output=4_096)
    settings = ProviderSettings(context_window=5_000)
    assert facts.get_model_info("openai", "gpt-6.1-terra", served=told).context_window == 8_192
    assert facts.get_model_info("openai", "gpt-6.1-terra", settings, told).context_window == 5_000
    assert facts.get_model_info("openai", "gpt-6.1-terra", settings, told).max_output == 4_096
    assert facts.get_model_info("openai", "gpt-6.1-terra", settings).max_output == 5_000, "never more than the window"
    # how much of a model a server at home serves is nothing that its name says
    assert facts.get_model_info("ollama", "gpt-oss:20b").context_window is None
    assert facts.get_model_info("ollama", "gpt-oss:20b").max_output is None
    assert facts.get_model_info("ollama", "gpt-oss:20b").thinking == "effort"


def test_images_by_model_provider_and_setting():
    assert facts.takes_images("anthropic", "claude-sonnet-5-5")
    assert not facts.takes_images("groq", "openai/gpt-oss-120b")
    assert not facts.takes_images("ollama", "claude-like")
    assert facts.takes_images("ollama", "llava", ProviderSettings(images=True))
    assert not facts.takes_images("openai", "gpt-6.1-terra", ProviderSettings(images=False))


def test_a_new_provider_is_one_entry(monkeypatch):
    new = Preset(
        "xai", "chat", "https://api.x.ai/v1", ("XAI_API_KEY",), "grok-4", "grok-3-mini", prices="x-ai",
        names=r"grok-", images=True, image_rule="openai", cache_ttl=7, families=(Family(r"grok-", 9_000, 500),),
    )  # fmt: skip
    for module in (presets, facts, registry):
        monkeypatch.setattr(module, "PRESETS", {**PRESETS, "xai": new})
    assert registry.resolve_name("grok-5") == "xai/grok-5"
    info = facts.get_model_info("xai", "grok-5")
    assert (info.context_window, info.max_output, info.images, info.cache_ttl) == (9_000, 500, True, 7)
    assert info.image_rule == "openai"
    assert facts.get_model_info("xai", "grok-3").input_price is not None
    assert registry.choose_small_model("xai/grok-5") == "xai/grok-3-mini"


@pytest.mark.parametrize(("name", "fit"), [("qwen2.5-coder-1.5b", False), ("llama3.2:3b", False), ("qwen3:32b", None)])
def test_who_observes_is_dated(name, fit):
    found = facts.find_family("ollama", name)
    assert found.observes is fit
    assert fit is None or found.measured.startswith("20")


def test_effort_as_each_api_takes_it():
    def body(render, model, effort, **fields):
        return render(request(message("user", "hi"), model=model, effort=effort, **fields))

    adaptive = body(anthropic.render, "claude-sonnet-5-5", "high")
    assert adaptive["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert adaptive["output_config"] == {"effort": "high"}
    older = body(anthropic.render, "claude-sonnet-4-5", "high", max_output_tokens=8_000)
    assert older["thinking"] == {"type": "enabled", "budget_tokens": 4_000}, "half is left for the answer"
    assert "thinking" not in body(anthropic.render, "claude-sonnet-4-5", "high", max_output_tokens=1_500)
    assert "thinking" not in body(anthropic.render, "claude-sonnet-5-5", "off")
    assert body(openai_responses.render, "gpt-6.1-terra", "medium")["reasoning"]["effort"] == "medium"
    assert body(openai_responses.render, "gpt-5.1", "off")["reasoning"]["effort"] == "none"
    assert "reasoning" not in body(openai_responses.render, "gpt-4.1", "high")

    def chat(provider, model):
        return openai_chat.render(request(message("user", "hi"), model=model, effort="low"), provider)

    assert chat("gemini", "gemini-3.8-flash")["reasoning_effort"] == "low"
    assert chat("openrouter", "anthropic/claude-sonnet-5.5")["reasoning"] == {"effort": "low"}
    assert not {"reasoning", "reasoning_effort"} & chat("vllm", "some-model").keys()


def test_settings_reach_the_body():
    asked = request(message("user", "hi"), extra={"top_k": 40, "output_config": {"x": 1}}, effort="low")
    for render in (anthropic.render, openai_responses.render, lambda r: openai_chat.render(r, "vllm")):
        assert render(asked)["top_k"] == 40
    sonnet = anthropic.render(request(model="claude-sonnet-5-5", effort="low", extra={"output_config": {"x": 1}}))
    assert sonnet["output_config"] == {"effort": "low", "x": 1}
