"""Ask servers for their models and context windows; on this machine, only known ports.

Reads the list of models, and the separate reports of Ollama, llama.cpp and LM Studio. Each answer is optional; a server
without any of them works, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from sakti.core import network
from sakti.core.errors import ProviderError
from sakti.core.lazy import lazy_pattern
from sakti.core.network import is_loopback
from sakti.core.types import Json
from sakti.providers import server_words
from sakti.providers.facts import ServedLimits

PATIENCE = 3.0  # seconds for all questions together
LARGEST = 8 * 1024 * 1024  # bytes of an answer
_NUM_CTX = lazy_pattern(r"^num_ctx\s+(\d+)", re.MULTILINE)


async def get_limits(
    base_url: str, model: str, headers: Mapping[str, str], *, is_custom_server: bool, ollama: bool = False
) -> ServedLimits | None:
    """Return the limits that the server at `base_url` states for `model`; None without an answer.

    `base_url` includes `/v1` if the server has that path. `is_custom_server`: the server is not the provider's own, so
    it may be self-hosted; `ollama`: it is configured as Ollama, so Ollama's API is used at once.
    """
    import httpx2

    root = base_url.rstrip("/").removesuffix("/v1")
    answered = False
    limits = ServedLimits()
    with contextlib.suppress(TimeoutError, ProviderError):
        options = network.build_client_options(base_url)
        client = httpx2.AsyncClient(headers=dict(headers), timeout=PATIENCE, **options)
        async with asyncio.timeout(PATIENCE), client:
            server = _ServerClient(client)
            listing = await server.get(f"{base_url.rstrip('/')}/models")
            limits = read_listing(listing, model)
            if limits.window is None and is_custom_server:
                limits = await _ask_native_apis(server, root, model, limits, ollama=ollama)
            answered = server.answered
    return limits if answered else None


async def _ask_native_apis(
    server: _ServerClient, root: str, model: str, limits: ServedLimits, *, ollama: bool
) -> ServedLimits:
    """Ask the APIs that only one kind of server has."""
    window = None
    shown: Json = {}
    if ollama or await server.get(f"{root}/api/version"):  # other servers might take the request for a question
        shown = await server.post(f"{root}/api/show", {"model": model})
        window = read_show(shown)
    if shown:  # a loaded model may be served with a smaller window than its own
        window = read_listing(await server.get(f"{root}/api/ps"), model).window or window
    if window is None:
        window = read_properties(await server.get(f"{root}/props"))
    if window is None:
        window = read_listing(await server.get(f"{root}/api/v0/models"), model).window
    return ServedLimits(window, limits.max_output)


class _ServerClient:
    """Client of one server; an error counts as no answer, `answered`: there is a server."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.answered = False

    async def get(self, url: str) -> Json:
        return await self._ask("GET", url, None)

    async def post(self, url: str, body: Json) -> Json:
        return await self._ask("POST", url, body)

    async def _ask(self, method: str, url: str, body: Json | None) -> Json:
        try:
            async with self._client.stream(method, url, json=body) as response:
                self.answered = True
                if response.status_code != 200:
                    return {}
                text = b""
                async for chunk in response.aiter_bytes():
                    text += chunk
                    if len(text) > LARGEST:
                        return {}
            value: Any = json.loads(text)
        except Exception:  # the request is optional: no failure of the server or network may end anything
            return {}
        return cast("Json", value) if isinstance(value, dict) else {}


# --- pure -------------------------------------------------------------------------------------------------


def list_models(listing: Json) -> list[tuple[str, Json]]:
    """Return (id, entry) of each listed model that has an id."""
    entries: Any = listing.get("data")
    items = cast("list[Any]", entries) if isinstance(entries, list) else []
    rows = [cast("Json", entry) for entry in items if isinstance(entry, dict)]
    return [(str(row["id"]), row) for row in rows if row.get("id")]


def _find_entry(listing: Json, model: str) -> Json:
    """Return the entry of `model`, else the only one; {} without either."""
    entries: Any = listing.get("data") or listing.get("models") or []
    rows = [cast("Json", e) for e in cast("list[Any]", entries) if isinstance(e, dict)]
    only = rows[0] if len(rows) == 1 else {}
    return next((e for e in rows if model in (e.get("id"), e.get("name"), e.get("model"))), only)


def read_listing(listing: Json, model: str) -> ServedLimits:
    """Read the entry of `model` in a list of models, or the only entry if the names differ."""
    entry = _find_entry(listing, model)
    nested: list[Json] = [cast("Json", v) for k in ("meta", "top_provider") if isinstance(v := entry.get(k), dict)]
    names = server_words.read().listings
    return ServedLimits(_find_number((entry, *nested), names.windows), _find_number((entry, *nested), names.outputs))


def read_show(shown: Json) -> int | None:
    """Read Ollama's description of a model: its configured window, else the largest possible."""
    stated = _NUM_CTX.search(str(shown.get("parameters") or ""))
    if stated:
        return int(stated[1])
    info: Any = shown.get("model_info")
    details = cast("Json", info) if isinstance(info, dict) else {}
    return next((v for k, v in details.items() if k.endswith(".context_length") and isinstance(v, int) and v > 0), None)


def read_properties(properties: Json) -> int | None:
    """Read llama.cpp's properties: the window of one slot."""
    settings: Any = properties.get("default_generation_settings")
    inner = cast("Json", settings) if isinstance(settings, dict) else {}
    return _find_number((inner, properties), ("n_ctx",))


def _find_number(entries: Iterable[Json], names: Iterable[str]) -> int | None:
    keys = tuple(names)
    values = (e.get(n) for e in entries for n in keys)
    return next((v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0), None)


TIMEOUT = 0.3
_LARGEST = 4 * 1024 * 1024


async def fetch_local_models(base_url: str) -> list[str] | None:
    """Return the names of the models at `base_url` (ending in `/v1`); None without an answer in 0.3 s.

    Raises nothing: a port of another program counts as no answer.
    """
    if not is_loopback(base_url):
        return None
    try:
        async with asyncio.timeout(TIMEOUT):
            body = await _fetch_models(base_url)
    except (OSError, TimeoutError, ValueError, EOFError):
        return None
    return _read_names(body)


async def _fetch_models(base_url: str) -> bytes:
    parts = urlsplit(base_url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    reader, writer = await asyncio.open_connection(host, port)
    try:
        # HTTP/1.0: no chunks; the server closes the connection unless it states the length
        line = f"GET {parts.path.rstrip('/')}/models HTTP/1.0"
        close = "Accept: application/json\r\nConnection: close"
        writer.write(f"{line}\r\nHost: {host}:{port}\r\n{close}\r\n\r\n".encode())
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1] != b"200":
            raise ValueError("not a model server")
        stated = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if stated and int(stated[1]) <= _LARGEST:
            return await reader.readexactly(int(stated[1]))
        body = await reader.read(_LARGEST)
        while chunk := await reader.read(_LARGEST):
            body += chunk
            if len(body) > _LARGEST:
                raise ValueError("not a model server")
        return body
    finally:
        writer.close()


def _read_names(body: bytes) -> list[str] | None:
    try:
        value: Any = json.loads(body)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(cast("Json", value).get("data"), list):
        return None
    excluded = server_words.read().listings.not_for_chat
    names = (name for name, _ in list_models(cast("Json", value)))
    return [n for n in names if not any(word in n.lower() for word in excluded)]
