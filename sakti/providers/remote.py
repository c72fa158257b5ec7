"""Share the server, the list of models, warming and closing between providers reached over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from sakti.core.config.providers import ProviderSettings
from sakti.core.errors import ProviderError
from sakti.core.types import ModelInfo, Request
from sakti.providers import facts, network, serving
from sakti.providers.accepts import RefusedParameters
from sakti.providers.endpoint import Endpoint
from sakti.providers.facts import Served
from sakti.providers.history import merged
from sakti.providers.presets import PRESETS
from sakti.providers.refusals import Where
from sakti.providers.server import Server


class RemoteProvider:
    """Base of the providers reached over HTTP."""

    version = ""  # the start of a path that the base URL does not have
    listing = "/models"

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.name
        self.elsewhere = endpoint.elsewhere
        self.loopback = network.is_loopback(endpoint.url)
        self._endpoint = endpoint
        self._server = Server(endpoint)
        self._taken = RefusedParameters()

    @property
    def _where(self) -> Where:
        return self._server.where

    def _with_extra(self, request: Request) -> Request:
        extra = dict(self._endpoint.extra)
        return replace(request, extra=merged(extra, request.extra)) if extra else request

    async def count_tokens(self, request: Request) -> int | None:
        """Return None: these servers do not count tokens in advance."""
        return None

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models that the server lists; a cloud has no list, only those of its preset."""
        preset = PRESETS.get(self.name)
        own = ProviderSettings(context_window=self._endpoint.context_window)
        if preset is not None and preset.cloud is not None:
            await self._server.open()  # raises if something is missing to ask it
            return [facts.known(self.name, name, own) for name in (preset.model, preset.small) if name]
        listing = await self._server.get(self.listing)
        rows = serving.listed(listing)
        return [facts.known(self.name, name, own, serving.from_listing({"data": [row]}, name)) for name, row in rows]

    async def served(self, model: str) -> Served | None:
        """Return what the server says about `model`; None if it does not answer."""
        try:
            headers = await self._server.headers()
        except ProviderError:  # the key command failed, which the first request reports
            return None
        url = f"{self._endpoint.base_url}{self.version}"
        return await serving.served(url, model, headers, elsewhere=self.elsewhere, ollama=self.name == "ollama")

    async def warm(self) -> None:
        """Import the SDK and make its client."""
        try:
            await self._server.open()
        except ProviderError:  # something is missing, which the first request reports
            return

    async def close(self) -> None:
        await self._server.close()
