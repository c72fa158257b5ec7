"""Base of the providers reached over HTTP: requests, streams, ends of answers, list of models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import ClassVar, Literal, TypeAlias

from msgspec.structs import replace

from sakti.core import network
from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ProviderError
from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json, ModelInfo, Part, Request, ToolCallPart, Usage
from sakti.providers import facts, prices, serving
from sakti.providers.accepts import RefusedParameters
from sakti.providers.endpoint import Endpoint
from sakti.providers.facts import Served
from sakti.providers.history import CallIds, merged
from sakti.providers.presets import PRESETS
from sakti.providers.protocol import Completed, StopReason, StreamEvent
from sakti.providers.refusals import Where
from sakti.providers.server import EndpointServer
from sakti.providers.sse import StreamParser, chunks, protocol_errors, whole_parts

Stop: TypeAlias = StopReason | Literal["cut"]  # "cut": the server failed, the answer is to be asked for again

_ENDS = frozenset({"", "stop", "eos", "end_turn", "stop_sequence", "complete", "completed", "done"})
_LIKE_AN_END = lazy_pattern(r"(stop|eos|eot|end)(_\w+)?")  # "eos_token", "end_of_turn"
_CALLS = frozenset({"tool_use", "tool_call", "tool_calls", "function_call", "function_calls"})
_FILTERED = lazy_pattern(
    r"filter|safety|sensitive|refus|moderat|guardrail|prohibit|blocklist|recitation|spii|policy|flagged"
)
_LENGTH = lazy_pattern(r"length|max_.*tokens|context|token_?limit|window")
_FAILED = lazy_pattern(
    r"error|fail|abort|cancel|timeout|timed_out|interrupt|insufficient|overload|unavailable|disconnect|malformed"
)


def classify(reason: str) -> Stop:
    """Return how an answer ended; a reason that is not known is never taken for a complete answer."""
    name = reason.strip().lower()
    if name in _ENDS:
        return "end"
    if name in _CALLS:
        return "tool_use"
    if name == "pause_turn":
        return "pause"
    if _FILTERED.search(name):
        return "refusal"
    if _LENGTH.search(name):
        return "length"
    if _FAILED.search(name):
        return "cut"
    return "end" if _LIKE_AN_END.fullmatch(name) else "unknown"


def complete_answer(
    reason: str, parts: Sequence[Part], usage: Usage, model: str, *, refused: bool = False
) -> Completed:
    """Build the end of an answer that stopped for `reason`, which must not be "cut".

    Calls are run whatever an end says that is neither a limit nor a filter; `refused`: the answer is a refusal.
    """
    stop = classify(reason)
    assert stop != "cut"
    unknown = reason if stop == "unknown" else ""
    has_calls = any(isinstance(p, ToolCallPart) for p in parts)
    if stop in ("end", "tool_use", "unknown") and has_calls:
        stop = "tool_use"
    elif stop in ("end", "tool_use"):
        stop = "refusal" if refused else "end"
    return Completed(tuple(parts), stop, usage, model, unknown)


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
        yield complete_answer(parser.reason, parts, usage, parser.model or request.model, refused=parser.refused)

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
            return [facts.get_facts(self.name, name, settings) for name in (preset.model, preset.small) if name]
        listing = await self._server.get(self.listing)
        rows = serving.listed(listing)
        return [
            facts.get_facts(self.name, name, settings, serving.from_listing({"data": [row]}, name))
            for name, row in rows
        ]

    async def served(self, model: str) -> Served | None:
        """Return what the server says about `model`; None if it does not answer."""
        try:
            headers = await self._server.headers()
        except ProviderError:  # the key command failed, which the first request reports
            return None
        url = f"{self._endpoint.base_url}{self.version}"
        return await serving.get_limits(url, model, headers, elsewhere=self.elsewhere, ollama=self.name == "ollama")

    async def warm(self) -> None:
        """Import the SDK and make its client."""
        try:
            await self._server.open()
        except ProviderError:  # something is missing, which the first request reports
            return

    async def close(self) -> None:
        await self._server.close()
