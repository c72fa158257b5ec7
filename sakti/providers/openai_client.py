"""What both OpenAI protocols share: the SDK's client, the list of models, warming and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from sakti.core.types import ModelInfo, Request
from sakti.providers import prices
from sakti.providers.errors import Where, boundary, no_key

BASE_URL = "https://api.openai.com/v1"


class OpenAIClient:
    """`key` may be None where the server asks for none (`needs_key` false); `timeout` is the longest
    silence in seconds."""

    def __init__(
        self,
        key: str | None,
        *,
        name: str = "openai",
        base_url: str = BASE_URL,
        key_env: str = "OPENAI_API_KEY",
        timeout: float = 120.0,
        needs_key: bool = True,
        context_window: int | None = None,
    ) -> None:
        self.name = name
        self._key = key
        self._base_url = base_url.rstrip("/")
        self._needs_key = needs_key
        self._window = context_window
        self._where = Where(name, self._base_url, key_env, key or "", timeout)
        self._client: Any = None

    def _open(self) -> Any:
        """The SDK's client, made on first use: importing the SDK takes seconds on a slow machine."""
        if self._client is None:
            import httpx2
            from openai import AsyncOpenAI

            if not self._key and self._needs_key:
                raise no_key(self._where)
            self._client = AsyncOpenAI(
                api_key=self._key or "none",
                base_url=self._base_url,
                max_retries=0,
                timeout=httpx2.Timeout(self._where.timeout, connect=min(15.0, self._where.timeout)),
            )
        return self._client

    async def count_tokens(self, request: Request) -> int | None:
        """None: these servers do not count ahead."""
        return None

    async def models(self) -> Sequence[ModelInfo]:
        with boundary(self._where):
            page = await self._open().models.list()
            listed: list[Any] = list(page.data)
        return [prices.model_info(self.name, str(m.id), window=self._window or _window(m)) for m in listed]

    async def warm(self) -> None:
        await asyncio.to_thread(_import)
        if self._key or not self._needs_key:
            self._open()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _import() -> None:
    import openai.resources.chat.completions  # pyright: ignore[reportUnusedImport]
    import openai.resources.responses  # noqa: F401  # pyright: ignore[reportUnusedImport]

    prices.warm()


def _window(model: Any) -> int | None:
    """The window as vLLM, OpenRouter, Groq and llama.cpp tell it, each in its own field."""
    for field in ("max_model_len", "context_length", "context_window", "max_context_length"):
        value = getattr(model, field, None)
        if isinstance(value, int) and value > 0:
            return value
    meta: Any = getattr(model, "meta", None)
    value = meta.get("n_ctx") if isinstance(meta, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return value if isinstance(value, int) else None
