"""Providers of the three protocols, for a server of the test."""

from __future__ import annotations

from typing import Any

from sakti.providers.anthropic import AnthropicProvider
from sakti.providers.endpoint import Endpoint
from sakti.providers.openai_chat import ChatProvider
from sakti.providers.openai_responses import ResponsesProvider

OPENAI = {"name": "openai", "key_env": "OPENAI_API_KEY", "needs_key": True}


def chat_provider(key: str = "key", *, base_url: str = "https://api.openai.com/v1", **fields: Any) -> ChatProvider:
    return ChatProvider(Endpoint(**{**OPENAI, **fields}, key=key, base_url=base_url))


def responses_provider(
    key: str = "key", *, base_url: str = "https://api.openai.com/v1", **fields: Any
) -> ResponsesProvider:
    return ResponsesProvider(Endpoint(**{**OPENAI, **fields}, key=key, base_url=base_url))


def anthropic_provider(
    key: str = "key", *, base_url: str = "https://api.anthropic.com", **fields: Any
) -> AnthropicProvider:
    genuine = base_url == "https://api.anthropic.com"
    defaults = {"name": "anthropic", "client": "anthropic", "key_env": "ANTHROPIC_API_KEY"}
    defaults |= {"needs_key": genuine, "is_custom_server": not genuine}
    return AnthropicProvider(Endpoint(**{**defaults, **fields}, key=key, base_url=base_url))


PROVIDERS = {"anthropic": anthropic_provider, "chat": chat_provider, "responses": responses_provider}
