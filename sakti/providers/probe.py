"""Ask a server on this machine for its models: loopback only, known ports only, with a short timeout."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, cast
from urllib.parse import urlsplit

from sakti.core.network import is_loopback

TIMEOUT = 0.3
_LARGEST = 4 * 1024 * 1024
_NOT_FOR_CHAT = ("embed", "rerank", "whisper", "bge-", "minilm")


async def served_models(base_url: str) -> list[str] | None:
    """Return the names of the models at `base_url` (ending in `/v1`); None without an answer in 0.3 s.

    Raises nothing: a port of another program counts as no answer.
    """
    if not is_loopback(base_url):
        return None
    try:
        async with asyncio.timeout(TIMEOUT):
            body = await _get(base_url)
    except (OSError, TimeoutError, ValueError, EOFError):
        return None
    return _names(body)


async def _get(base_url: str) -> bytes:
    parts = urlsplit(base_url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    reader, writer = await asyncio.open_connection(host, port)
    try:
        # HTTP/1.0: no chunks, and the server closes, unless it says how long its answer is and stays
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


def _names(body: bytes) -> list[str] | None:
    try:
        value: Any = json.loads(body)
    except ValueError:
        return None
    listed: Any = cast("dict[str, Any]", value).get("data") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return None
    models = cast("list[Any]", listed)
    names = [str(cast("dict[str, Any]", m).get("id") or "") for m in models if isinstance(m, dict)]
    return [n for n in names if n and not any(word in n.lower() for word in _NOT_FOR_CHAT)]
