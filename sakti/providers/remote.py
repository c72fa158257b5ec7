"""Base of the providers reached over HTTP: requests, streams, ends of answers, list of models.

Requests are rendered and streams are read by sakti itself: the typed events of an SDK cost two to fourteen times the
CPU of a long answer. The SDK makes the connection, finds the proxy, signs the request and knows the clouds.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from msgspec.structs import replace

from sakti.core import network
from sakti.core.config.fields import ProviderSettings
from sakti.core.errors import ProviderError
from sakti.core.types import Json, ModelInfo, Request, Usage
from sakti.providers import endpoint as endpoints
from sakti.providers import facts, serving
from sakti.providers.endpoint import Endpoint
from sakti.providers.errors import (
    ErrorContext,
    boundary,
    from_status,
    make_proxy_login_error,
    make_unexpected_response_error,
)
from sakti.providers.facts import ServedLimits
from sakti.providers.history import CallIds, merge_extra
from sakti.providers.omissions import RefusedParameters
from sakti.providers.parser import StreamParser, complete_answer, read_chunks
from sakti.providers.presets import PRESETS
from sakti.providers.protocol import StreamEvent
from sakti.providers.sse import answer_events, protocol_errors

if TYPE_CHECKING:
    from httpx2 import Response

LONGEST_ERROR = 1 << 20  # bytes of a refusal's body that are read
_RAW = {"headers": {"X-Stainless-Raw-Response": "stream"}}  # the SDK returns the response before its body is read


class EndpointServer:
    """Model server of an endpoint; its client is made in a thread, as the SDK loads slowly."""

    def __init__(self, endpoint: Endpoint) -> None:
        secrets = tuple(s for s in (endpoint.key, *endpoint.headers.values()) if s)
        self.context = ErrorContext(endpoint.name, endpoint.base_url, endpoint.key_env, secrets, endpoint.timeout)
        self._endpoint = endpoint
        self._key = endpoint.key
        self._client: Any = None  # of one of the SDKs: all have the same `post` and `get`
        self._opening = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def events(
        self, path: str, body: Json, split: Callable[[Json], Iterable[Json]]
    ) -> AsyncGenerator[AsyncIterator[Json]]:
        """Request a streamed answer and yield its events; `split` converts an answer that is not streamed.

        Raises ProviderError, in its body as well.
        """
        body = {**body, "stream": True}
        with boundary(self.context):
            if self._endpoint.client == "bedrock":
                async with await self._post_for_decoded_events(path, body) as events:
                    yield events
                return
            response = await self._send("post", path, body=body)
            try:
                yield answer_events(response, self.context, split)
            finally:
                await response.aclose()

    async def post(self, path: str, body: Json) -> Json:
        """Post `body` and return the JSON object of the response. Raises ProviderError."""
        return await self._ask("post", path, body=body)

    async def get(self, path: str) -> Json:
        """Return the JSON object at `path`. Raises ProviderError."""
        return await self._ask("get", path)

    async def headers(self) -> dict[str, str]:
        """Return the headers of requests that bypass the SDK. Raises ProviderError."""
        if self._endpoint.key_command and not self._key:
            await self._run_key_command()
        return {"Authorization": f"Bearer {self._key or 'none'}", **self._endpoint.request_headers(self._key)}

    async def open(self) -> Any:
        """Return the SDK's client. Raises ProviderError if something needed for it is missing."""
        async with self._opening:
            if self._client is None:
                if self._endpoint.key_command and not self._key:
                    await self._run_key_command()
                self._client = await asyncio.to_thread(endpoints.create_client, self._endpoint, self._key, self._refuse)
                self.context = replace(self.context, base_url=str(self._client.base_url).rstrip("/"))
            return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _ask(self, method: str, path: str, **options: Any) -> Json:
        with boundary(self.context):
            response = await self._send(method, path, **options)
            try:
                return self._parse_object(await response.aread())
            finally:
                await response.aclose()

    async def _send(self, method: str, path: str, **options: Any) -> Response:
        """Send a request, again with a new key if the old one expired; the body is not read yet."""
        try:
            return await self._send_once(method, path, **options)
        except ProviderError as e:
            if e.status != 401 or not self._endpoint.key_command:
                raise
        await self.close()
        self._key = ""
        return await self._send_once(method, path, **options)

    async def _send_once(self, method: str, path: str, **options: Any) -> Response:
        import httpx2

        call = getattr(await self.open(), method)
        with boundary(self.context):
            try:
                return await call(path, cast_to=httpx2.Response, options=_RAW, **options)
            except UnicodeEncodeError:  # half of a surrogate pair in an old message
                return await call(path, cast_to=httpx2.Response, options=_RAW, body=_make_encodable(options["body"]))

    async def _post_for_decoded_events(self, path: str, body: Json) -> Any:
        """Post `body` and return the SDK's stream, which decodes the binary frames of Bedrock."""
        from anthropic import AsyncStream

        client = await self.open()
        return await client.post(
            path, cast_to=object, body=_make_encodable(body), stream=True, stream_cls=AsyncStream[object]
        )

    async def _run_key_command(self) -> None:
        command = self._endpoint.key_command
        self._key = await endpoints.run_key_command(command, self._endpoint.name)
        self.context = replace(self.context, secrets=(*self.context.secrets, self._key))

    async def _refuse(self, response: Response) -> None:
        """Raise the error of a failed response; the SDKs would read its body without a limit."""
        if not response.is_error:
            return
        if response.status_code == 407:
            raise make_proxy_login_error(self.context)
        data = b""
        async for piece in response.aiter_bytes():
            data += piece
            if len(data) > LONGEST_ERROR:
                break
        text = data.decode("utf-8", "replace")
        try:
            body: Any = json.loads(text)
        except (ValueError, RecursionError):
            body = text
        raise from_status(response.status_code, body, response.headers, self.context)

    def _parse_object(self, data: bytes) -> Json:
        text = data.decode("utf-8", "replace")
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise make_unexpected_response_error(self.context, "something else", text)
        return cast("Json", value)


def _make_encodable(body: Json) -> Json:
    """Return `body` with lone surrogates replaced, which UTF-8 cannot encode."""
    return cast("Json", json.loads(json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")))


class RemoteProvider(ABC):
    """Base of the providers reached over HTTP, one for each protocol."""

    path: ClassVar[str]  # of requests
    parser: ClassVar[type[StreamParser]]
    version = ""  # the start of a path that the base URL does not have
    listing = "/models"
    searching = ""  # the provider whose own servers offer web search in this protocol

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.name
        self.is_custom_server = endpoint.is_custom_server
        self.loopback = network.is_loopback(endpoint.base_url)
        self._endpoint = endpoint
        self._server = EndpointServer(endpoint)
        self._taken = RefusedParameters()

    @property
    def _context(self) -> ErrorContext:
        return self._server.context

    def _with_extra(self, request: Request) -> Request:
        extra = dict(self._endpoint.extra)
        return replace(request, extra=merge_extra(extra, request.extra)) if extra else request

    @property
    def has_search(self) -> bool:
        """Return whether the server can search the web."""
        return bool(self.searching) and self.name == self.searching and not self.is_custom_server

    @abstractmethod
    def _render(self, request: Request) -> Json:
        """Return the JSON body of `request`, without `stream`."""

    @abstractmethod
    def _split(self, answer: Json) -> list[Json]:
        """Convert an answer that came in one piece to the events of a stream; empty for anything else."""

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        body = self._render(self._with_extra(request))
        return self._taken.stream(request.model, body, partial(self._stream_once, request))

    async def _stream_once(self, request: Request, body: Json) -> AsyncGenerator[StreamEvent]:
        parser = self.parser(self.name, request.model, CallIds(request.messages), self._context)
        async with self._server.events(self.path, body, self._split) as events:
            async for chunk in read_chunks(events, self._context, parser):
                yield chunk
        answer = complete_answer(parser, self._context)
        usage = facts.with_cost(answer.usage, self.name, request.model)
        yield replace(answer, usage=usage, model=answer.model or request.model)

    async def complete(self, model: str, body: Json) -> tuple[Json, Usage]:
        """Post a rendered body; return the answer with its usage and cost. Raises ProviderError."""
        answer = await self._server.post(self.path, body)
        parser = self.parser(self.name, model, CallIds(()), self._context)
        with protocol_errors(self._context):
            for event in self._split(answer):
                parser.take(event)
        return answer, facts.with_cost(parser.usage, self.name, model)

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models that the server lists; a cloud has no list, only the models of its preset."""
        preset = PRESETS.get(self.name)
        settings = ProviderSettings(context_window=self._endpoint.context_window)
        if preset is not None and preset.cloud is not None:
            await self._server.open()  # raises if something needed for the request is missing
            return [facts.get_model_info(self.name, name, settings) for name in (preset.model, preset.small) if name]
        listing = await self._server.get(self.listing)
        rows = serving.list_models(listing)
        return [
            facts.get_model_info(self.name, name, settings, serving.read_listing({"data": [row]}, name))
            for name, row in rows
        ]

    async def fetch_limits(self, model: str) -> ServedLimits | None:
        """Return the limits that the server states for `model`; None if it does not answer."""
        try:
            headers = await self._server.headers()
        except ProviderError:  # the key command failed, which the first request reports
            return None
        url = f"{self._endpoint.base_url}{self.version}"
        return await serving.get_limits(
            url, model, headers, is_custom_server=self.is_custom_server, ollama=self.name == "ollama"
        )

    async def warm(self) -> None:
        """Import the SDK and make its client."""
        try:
            await self._server.open()
        except ProviderError:  # something is missing, which the first request reports
            return

    async def close(self) -> None:
        await self._server.close()
