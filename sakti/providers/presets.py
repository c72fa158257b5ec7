"""The providers that are known by name. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Preset:
    """`keys` are the usual variables, the first to win first; `small` is the model that observes.
    A local server needs no key, and its models are asked for."""

    name: str
    api: Literal["anthropic", "responses", "chat"]
    base_url: str
    keys: tuple[str, ...] = ()
    model: str = ""
    small: str = ""
    base_url_env: str = ""
    label: str = ""

    @property
    def local(self) -> bool:
        return not self.keys

    @property
    def title(self) -> str:
        return self.label or self.name


_ALL = (
    Preset(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "ANTHROPIC_BASE_URL",
        "Anthropic",
    ),
    Preset(
        "openai",
        "responses",
        "https://api.openai.com/v1",
        ("OPENAI_API_KEY",),
        "gpt-6.1-terra",
        "gpt-6-luna",
        "OPENAI_BASE_URL",
        "OpenAI",
    ),
    Preset(
        "openrouter",
        "chat",
        "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",),
        "anthropic/claude-sonnet-5.5",
        "anthropic/claude-haiku-5.5",
        label="OpenRouter",
    ),
    Preset(
        "gemini",
        "chat",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        "gemini-3.8-flash",
        "gemini-3.5-flash-lite",
        label="Gemini",
    ),
    Preset(
        "deepseek",
        "chat",
        "https://api.deepseek.com",
        ("DEEPSEEK_API_KEY",),
        "deepseek-v4-pro",
        "deepseek-v4-flash",
        label="DeepSeek",
    ),
    Preset(
        "mistral",
        "chat",
        "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",),
        "mistral-medium-3-5",
        "mistral-small-2603",
        label="Mistral",
    ),
    Preset(
        "groq",
        "chat",
        "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",),
        "openai/gpt-oss-120b",
        "openai/gpt-oss-20b",
        label="Groq",
    ),
    Preset("ollama", "chat", "http://127.0.0.1:11434/v1", label="Ollama"),
    Preset("lmstudio", "chat", "http://127.0.0.1:1234/v1", label="LM Studio"),
    Preset("llamacpp", "chat", "http://127.0.0.1:8080/v1", label="llama.cpp"),
    Preset("vllm", "chat", "http://127.0.0.1:8000/v1", label="vLLM"),
)

PRESETS: Mapping[str, Preset] = {p.name: p for p in _ALL}
