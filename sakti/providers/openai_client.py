"""Share what both OpenAI protocols need: the server, the list of models, warming and closing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from sakti.core.config.providers import ProviderSettings
from sakti.core.types import ModelInfo, Request
from sakti.providers import facts, server, serving
from sakti.providers.accepts import RefusedParameters
from sakti.providers.errors import Where, no_key
from sakti.providers.facts import Served
from sakti.providers.history import merged
from sakti.providers.server import Server

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
        self._server = Server(self._where, _headers(name, key))
        self._taken = RefusedParameters()

    def _open(self) -> Server:
        """Return the server. Raises ProviderError (authentication) where it needs a key and there is none."""
        if not self._key and self._needs_key:
            raise no_key(self._where)
        return self._server

    def _with_extra(self, request: Request) -> Request:
        return replace(request, extra=merged(self._extra, request.extra)) if self._extra else request

    async def count_tokens(self, request: Request) -> int | None:
        """Return None: these servers do not count tokens in advance."""
        return None

    async def models(self) -> Sequence[ModelInfo]:
        listing = await self._open().get("/models")
        rows = serving.listed(listing)
        own = ProviderSettings(context_window=self._window)
        return [facts.known(self.name, name, own, serving.from_listing({"data": [row]}, name)) for name, row in rows]

    async def served(self, model: str) -> Served | None:
        """Return what the server says about `model`; None where it does not answer."""
        headers = {"Authorization": f"Bearer {self._key or 'none'}"}
        return await serving.served(
            self._base_url, model, headers, elsewhere=self.elsewhere, ollama=self.name == "ollama"
        )

    async def warm(self) -> None:
        await server.warm()
        self._server.open()

    async def close(self) -> None:
        await self._server.close()


def _headers(name: str, key: str | None) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {key or 'none'}"}
    if name == "openai":  # whose account pays, for keys that belong to several
        for header, variable in (("OpenAI-Organization", "OPENAI_ORG_ID"), ("OpenAI-Project", "OPENAI_PROJECT_ID")):
            if value := os.environ.get(variable):
                headers[header] = value
    return headers
