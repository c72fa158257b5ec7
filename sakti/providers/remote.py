"""Base of the providers reached over HTTP: requests, streams, list of models, warming, closing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import ClassVar

from msgspec.structs import replace

from sakti.core import network
from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ProviderError
from sakti.core.types import Json, ModelInfo, Request, Usage
from sakti.providers import facts, prices, serving, stops
from sakti.providers.accepts import RefusedParameters
from sakti.providers.endpoint import Endpoint
from sakti.providers.facts import Served
from sakti.providers.history import CallIds, merged
from sakti.providers.presets import PRESETS
from sakti.providers.protocol import StreamEvent
from sakti.providers.refusals import Where
from sakti.providers.server import EndpointServer
from sakti.providers.sse import StreamParser, chunks, protocol_errors, whole_parts


class RemoteProvider(ABC):
    """Base of the providers reached over HTTP, one for each protocol."""

    path: ClassVar[str]  # of requests
    parser: ClassVar[type[StreamParser]]
    version = ""  # the start of a path that the base URL does not have
    listing = "/models"
    searching = ""  # the provider whose own servers search the web by this protocol

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.name
        self.elsewhere = endpoint.elsewhere
        self.loopback = network.is_loopback(endpoint.base_url)
        self._endpoint = endpoint
        self._server = EndpointServer(endpoint)
        self._taken = RefusedParameters()

    @property
    def _where(self) -> Where:
        return self._server.where

    def _with_extra(self, request: Request) -> Request:
        extra = dict(self._endpoint.extra)
        return replace(request, extra=merged(extra, request.extra)) if extra else request

    @property
    def has_search(self) -> bool:
        """Return whether the server can search the web."""
        return bool(self.searching) and self.name == self.searching and not self.elsewhere

    @abstractmethod
    def _render(self, request: Request) -> Json:
        """Return the JSON body of `request`, without `stream`."""

    @abstractmethod
    def _split(self, answer: Json) -> list[Json]:
        """Convert an answer that came in one piece to the events of a stream; empty for anything else."""

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        body = self._render(self._with_extra(request))
        return self._taken.stream(request.model, body, partial(self._once, request))

    async def _once(self, request: Request, body: Json) -> AsyncGenerator[StreamEvent]:
        parser = self.parser(self.name, request.model, CallIds(request.messages), self._where)
        async with self._server.events(self.path, body, self._split) as events:
            async for chunk in chunks(events, self._where, parser):
                yield chunk
        with protocol_errors(self._where):
            parts = whole_parts(parser.parts())
        usage = prices.with_cost(parser.usage, self.name, request.model)
        yield stops.completed(parser.reason, parts, usage, parser.model or request.model, refused=parser.refused)

    async def complete(self, model: str, body: Json) -> tuple[Json, Usage]:
        """Post a rendered body; return the answer with its usage and cost. Raises ProviderError."""
        answer = await self._server.post(self.path, body)
        parser = self.parser(self.name, model, CallIds(()), self._where)
        with protocol_errors(self._where):
            for event in self._split(answer):
                parser.take(event)
        return answer, prices.with_cost(parser.usage, self.name, model)

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models that the server lists; a cloud has no list, only those of its preset."""
        preset = PRESETS.get(self.name)
        settings = ProviderSettings(context_window=self._endpoint.context_window)
        if preset is not None and preset.cloud is not None:
            await self._server.open()  # raises if something is missing to ask it
            return [facts.known(self.name, name, settings) for name in (preset.model, preset.small) if name]
        listing = await self._server.get(self.listing)
        rows = serving.listed(listing)
        return [
            facts.known(self.name, name, settings, serving.from_listing({"data": [row]}, name)) for name, row in rows
        ]

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
