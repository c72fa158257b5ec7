"""Read server-sent events as JSON objects, directly from the bytes.

A typed model for every event would cost several times as much CPU as the JSON itself; a long answer has 20,000 of
them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Generator, Iterable
from contextlib import contextmanager
from time import monotonic
from typing import Any, Literal, cast

from msgspec import MsgspecError
from msgspec.json import Decoder

from sakti.core.errors import ProviderError
from sakti.core.types import Json
from sakti.providers.errors import (
    ErrorContext,
    from_success,
    make_long_line_error,
    make_no_events_error,
    make_unexpected_response_error,
)

BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 4 * 1024 * 1024  # bytes; a line of a stream and an answer in one piece
LONGEST_QUIET_S = 900.0  # seconds without an event; comments and pings only keep the connection alive
_FIELDS = (b"data", b"event", b"id", b"retry", b"")  # beginnings of lines in an event stream, before the colon

# what a parser raises at data that violates its protocol
OTHER_PROTOCOL = (AttributeError, IndexError, KeyError, TypeError, ValueError, OverflowError, RecursionError)
DONE: Json = {"type": "[DONE]"}  # placeholder for the line that ends a stream

_exact, _lenient = Decoder().decode, json.JSONDecoder(strict=False).decode  # the first one takes a third of the time


@contextmanager
def protocol_errors(context: ErrorContext) -> Generator[None]:
    """Convert errors from data that violates the protocol to a ProviderError."""
    try:
        yield
    except OTHER_PROTOCOL as e:
        raise make_protocol_error(context) from e


def make_protocol_error(context: ErrorContext) -> ProviderError:
    """Build the error for data that violates the protocol."""
    return ProviderError(
        f"{context.host} sent an answer of another protocol: check its address and the api of "
        f"providers.{context.provider}, or choose another model with /model.",
        code="unreadable",
        retryable=True,
    )


async def answer_events(
    response: Any, context: ErrorContext, split: Callable[[Json], Iterable[Json]]
) -> AsyncIterator[Json]:
    """Yield the events of an answer: a stream, or one JSON object, which `split` converts.

    Raises ProviderError: the error that the object reports, not_a_model with the text of a page or other content, and
    stream_cut for a stream that cannot be read.
    """
    content_type = str(response.headers.get("content-type") or "").partition(";")[0].strip().lower()
    pieces = cast("AsyncIterator[bytes]", response.aiter_bytes())
    first = await _read_first_bytes(pieces, context)
    kind = _detect_kind(first, content_type)
    if kind == "events":
        async for event in iter_json_events(_prepend(first, pieces), context):
            yield event
    elif kind == "object":
        for event in _split_object(_parse_json(await _read_all(first, pieces)), first, context, split):
            yield event
    else:
        raise make_unexpected_response_error(context, kind, _decode(await _read_all(first, pieces)))


def _detect_kind(first: bytes, content_type: str) -> Literal["object", "events", "a page", "a text"]:
    """Return the kind of an answer by its first bytes, and by its header if they leave it open."""
    sign = first.lstrip()[:1]
    if sign == b"{" or (content_type == "application/json" and sign not in (b"d", b":", b"e", b"i")):
        return "object"
    if sign == b"<" or content_type == "text/html":
        return "a page"
    return "a text" if content_type == "text/plain" and not _may_be_events(first) else "events"


async def _read_first_bytes(pieces: AsyncIterator[bytes], context: ErrorContext) -> bytes:
    """Read until the first non-blank byte, which shows the kind of an answer whatever its header says."""
    first, began = b"", monotonic()
    async for chunk in pieces:
        first = first.lstrip() + chunk
        if first.strip() and not BOM.startswith(first):
            break
        if monotonic() - began > LONGEST_QUIET_S:
            raise make_no_events_error(context, LONGEST_QUIET_S)
    return first.removeprefix(BOM)


def _split_object(
    value: Any, first: bytes, context: ErrorContext, split: Callable[[Json], Iterable[Json]]
) -> list[Json]:
    """Return the events of an answer in one JSON object. Raises `ProviderError`."""
    if not isinstance(value, dict):
        raise make_unexpected_response_error(context, "something else", _decode(first))
    body = cast("Json", value)
    if body.get("error") or body.get("type") == "error":
        raise from_success(body, context)
    with protocol_errors(context):
        events = list(split(body))
    if not events:
        raise make_unexpected_response_error(context, "something else", _decode(first))
    return events


def _may_be_events(first: bytes) -> bool:
    """Return whether a stream of events may begin with `first`, which may be a part of its first line."""
    name, colon, _ = first.lstrip().partition(b":")
    return name in _FIELDS if colon else any(field.startswith(name) for field in _FIELDS)


async def _prepend(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in rest:
        yield chunk


async def _read_all(first: bytes, rest: AsyncIterator[bytes]) -> bytes:
    """Read the body, up to LONGEST_LINE bytes."""
    pieces, size = [first], len(first)
    async for chunk in rest:
        pieces.append(chunk)
        size += len(chunk)
        if size > LONGEST_LINE:
            break
    return b"".join(pieces)


async def iter_json_events(chunks: AsyncIterator[bytes], context: ErrorContext) -> AsyncIterator[dict[str, Any]]:
    """Yield every `data:` of the stream as an object, until `[DONE]` or the end of the bytes.

    The line `[DONE]` is yielded as the object `DONE`. Raises ProviderError: stream_cut for data that is not a JSON
    object, as a broken proxy sends it, line_too_long, and no_events for a stream that is only kept open.
    """
    data: list[bytes] = []
    size = 0  # bytes in `data`
    rest = b""
    last_event = monotonic()
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if size + len(rest) > LONGEST_LINE:
            raise make_long_line_error(context, LONGEST_LINE)
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line[5:].strip())
                size += len(line)
            elif data and line in (b"", b"\r"):
                text = b"\n".join(data)
                data, size = [], 0
                if text == b"[DONE]":
                    yield DONE
                    return
                last_event = monotonic()
                yield _parse_object(text)
        if monotonic() - last_event > LONGEST_QUIET_S:
            raise make_no_events_error(context, LONGEST_QUIET_S)
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip())
    if data:
        text = b"\n".join(data)
        yield DONE if text == b"[DONE]" else _parse_object(text)


def _parse_object(text: bytes) -> dict[str, Any]:
    value = _parse_json(text)
    if value is None:
        raise ProviderError(
            "The answer broke off: the server sent something unreadable.", code="stream_cut", retryable=True
        )
    if not isinstance(value, dict):
        raise ProviderError(
            "The answer broke off: the server sent something unexpected.", code="stream_cut", retryable=True
        )
    return cast("dict[str, Any]", value)


def _decode(data: bytes) -> str:
    """Decode UTF-8; an invalid byte loses only its character."""
    return data.decode("utf-8", "replace")


def _parse_json(data: bytes) -> Any:
    """Parse JSON, replacing invalid characters; None if it is not JSON."""
    try:
        return _exact(data)
    except (MsgspecError, ValueError, RecursionError):
        pass
    try:
        return _lenient(_decode(data))
    except (ValueError, RecursionError):
        return None
