"""Read the messages of a user from JSON Lines, as `--input-format stream-json` gets them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

from sakti.core.errors import ConfigError
from sakti.core.text import one_line

LONGEST = 10_000_000  # bytes of a line
CHUNK = 1 << 16
FORM = '{"type": "user", "message": {"role": "user", "content": "TEXT"}}'


def text_of(line: bytes, number: int) -> str:
    """Return the text of one message; `content` is a text or a list of text parts. Raises `ConfigError`."""
    where = f"line {number} of standard input"
    if len(line) > LONGEST:
        raise ConfigError(f"{where} has more than {LONGEST:,} bytes.")
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{where} is not JSON: {one_line(str(e), 120)}. Write {FORM}.") from e
    table = _table(value)
    content = _table(table.get("message")).get("content") if table.get("type") == "user" else None
    if isinstance(content, list):
        parts = [_table(p) for p in cast("list[Any]", content)]
        texts = [p.get("text") for p in parts if p.get("type") == "text"]
        content = "\n".join(t for t in texts if isinstance(t, str)) if len(texts) == len(parts) else None
    if not isinstance(content, str) or not content.strip():
        raise ConfigError(f"{where} is not a user message with text. Write {FORM}.")
    return content


async def messages(descriptor: int) -> AsyncGenerator[str, None]:
    """Yield the messages that come by a file descriptor. Raises `ConfigError` for a line that is none."""
    queue: asyncio.Queue[bytes | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    # a thread of its own that nobody waits for: a signal ends the run while no line comes
    threading.Thread(target=_read, args=(descriptor, loop, queue), daemon=True).start()
    number = 0
    while (line := await queue.get()) is not None:
        number += 1
        if line.strip():
            yield text_of(line, number)


def _read(descriptor: int, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[bytes | None]) -> None:
    """Put each line into the queue, None at the end.

    Without a buffered reader: its lock, held by this thread while no line comes, would abort the program at its end.
    """
    rest = b""
    try:
        while piece := _read_piece(descriptor):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                loop.call_soon_threadsafe(queue.put_nowait, line)
            if len(rest) > LONGEST:
                break
        if rest:
            loop.call_soon_threadsafe(queue.put_nowait, rest)
        loop.call_soon_threadsafe(queue.put_nowait, None)
    except RuntimeError:  # the run has ended
        return


def _read_piece(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except OSError:  # closed, or open for writing only
        return b""


def _table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}
