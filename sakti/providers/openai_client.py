"""Share what both OpenAI protocols need: the SDK's client, the list of models, warming and closing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from sakti.core.config.providers import ProviderSettings
from sakti.core.types import Json, ModelInfo, Request
from sakti.providers import facts, prices, serving
from sakti.providers.accepts import RefusedParameters
from sakti.providers.errors import Where, boundary, no_key
from sakti.providers.facts import Served
from sakti.providers.history import merged

BASE_URL = "https://api.openai.com/v1"


class OpenAIClient:
    """Base of the OpenAI providers.

    `key` may be None where the server needs none (`needs_key` false); `timeout` is the longest silence in seconds.
    `elsewhere`: the server is not the provider's own; `extra` goes into every body.
    """

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
        elsewhere: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self._key = key
        self._base_url = base_url.rstrip("/")
        self._needs_key = needs_key
        self._window = context_window
        self.elsewhere = elsewhere
        self._extra = dict(extra or {})
        self._where = Where(name, self._base_url, key_env, key or "", timeout)
        self._client: Any = None
        self._taken = RefusedParameters()

    def _open(self) -> Any:
        """Return the SDK's client, made on first use: importing the SDK takes seconds on a slow machine."""
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

    def _with_extra(self, request: Request) -> Request:
        return replace(request, extra=merged(self._extra, request.extra)) if self._extra else request

    async def count_tokens(self, request: Request) -> int | None:
        """Return None: these servers do not count tokens in advance."""
        return None

    async def models(self) -> Sequence[ModelInfo]:
        with boundary(self._where):
            page = await self._open().models.list()
            listed: list[Any] = list(page.data)
            rows = [(str(m.id), cast("Json", m.model_dump())) for m in listed]
        own = ProviderSettings(context_window=self._window)
        return [facts.known(self.name, name, own, serving.from_listing({"data": [row]}, name)) for name, row in rows]

    async def served(self, model: str) -> Served | None:
        """Return what the server says about `model`; None where it does not answer."""
        headers = {"Authorization": f"Bearer {self._key or 'none'}"}
        return await serving.served(
            self._base_url, model, headers, elsewhere=self.elsewhere, ollama=self.name == "ollama"
        )

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
