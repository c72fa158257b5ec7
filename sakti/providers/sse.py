"""Server-sent events read as JSON objects, straight from the bytes.

The SDKs build a typed model for every event, which costs several times as much CPU as the JSON itself; a
long answer has 20,000 of them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, cast

from sakti.core.errors import ProviderError

LONGEST_EVENT = 32 * 1024 * 1024


async def json_events(chunks: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Every `data:` of the stream as an object, until `[DONE]` or the end of the bytes.

    Raises ProviderError (stream_cut) for data that is not a JSON object, which is what a broken proxy sends.
    """
    data: list[bytes] = []
    async for line in _lines(chunks):
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line and data:
            text = b"\n".join(data)
            data = []
            if text == b"[DONE]":
                return
            yield _read(text)
    if data and (text := b"\n".join(data)) != b"[DONE]":
        yield _read(text)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        lines = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = lines.pop()
        if len(rest) > LONGEST_EVENT:
            raise ProviderError("The server sent a line without end.", code="stream_cut", retryable=True)
        for line in lines:
            yield line.rstrip(b"\r")
    if rest:
        yield rest.rstrip(b"\r")


def _read(text: bytes) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except ValueError as e:
        raise ProviderError(
            "The answer broke off: the server sent something unreadable.", code="stream_cut", retryable=True
        ) from e
    if not isinstance(value, dict):
        raise ProviderError(
            "The answer broke off: the server sent something unexpected.", code="stream_cut", retryable=True
        )
    return cast("dict[str, Any]", value)
