"""Talk HTTP to a model server: one connection pool, the key in each request, failures as ProviderErrors.

The makers' SDKs would do no more here, since requests are rendered and streams read by sakti itself; importing one
takes one to three seconds of CPU and 40 to 100 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, cast

from sakti.core.types import Json
from sakti.providers import tls
from sakti.providers.errors import Where, boundary, from_status, not_a_model
from sakti.version import __version__

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

CONNECT_S = 15.0
LONGEST_ERROR = 1 << 20  # bytes of a refusal's body that are read
# A model may think for minutes without a byte: what lies between keeps such a connection only while it is in use.
_KEEP_ALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), 60)
        for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL")
        if hasattr(socket, name)
    ),
)


class Server:
    """Model server at `where.base_url`; `headers` go with every request. Connects at the first one."""

    def __init__(self, where: Where, headers: Mapping[str, str]) -> None:
        self._where = where
        self._headers = {"Accept": "application/json", "User-Agent": f"sakti/{__version__}", **headers}
        self._client: AsyncClient | None = None

    @contextlib.asynccontextmanager
    async def stream(self, path: str, body: Json) -> AsyncGenerator[Response]:
        """Ask for `body` to be answered as a stream and yield the answer. Raises ProviderError, in its body as well."""
        async with self._ask("POST", path, {**body, "stream": True}) as response:
            yield response

    async def post(self, path: str, body: Json) -> Json:
        """Post `body` and return the JSON object that is answered. Raises ProviderError."""
        async with self._ask("POST", path, body) as response:
            return self._object(await response.aread())

    async def get(self, path: str) -> Json:
        """Return the JSON object at `path`. Raises ProviderError."""
        async with self._ask("GET", path) as response:
            return self._object(await response.aread())

    @contextlib.asynccontextmanager
    async def _ask(self, method: str, path: str, body: Json | None = None) -> AsyncGenerator[Response]:
        with boundary(self._where):
            url, sent, headers = f"{self._where.base_url}{path}", None, {}
            if body is not None:
                sent = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
                headers = {"Content-Type": "application/json"}
            async with self.open().stream(method, url, content=sent, headers=headers) as response:
                await self._refuse(response)
                yield response

    def open(self) -> AsyncClient:
        """Return the pool of connections, made at the first call."""
        if self._client is None:
            import httpx2

            timeout = self._where.timeout
            self._client = httpx2.AsyncClient(
                headers=self._headers,
                timeout=httpx2.Timeout(timeout, connect=min(CONNECT_S, timeout)),
                follow_redirects=True,
                transport=httpx2.AsyncHTTPTransport(
                    verify=tls.context(self._where.base_url), socket_options=_KEEP_ALIVE
                ),
            )
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _refuse(self, response: Response) -> None:
        """Raise what a status says that is not a success."""
        if response.is_success:
            return
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
        raise from_status(response.status_code, body, response.headers, self._where)

    def _object(self, data: bytes) -> Json:
        text = data.decode("utf-8", "replace")
        try:
            value: Any = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise not_a_model(self._where, "something else", text)
        return cast("Json", value)


async def warm() -> None:
    """Import what a call needs, in a thread."""
    await asyncio.to_thread(importlib.import_module, "httpx2")
