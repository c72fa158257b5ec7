"""Parse the events of an answer: the base class of all protocols' parsers, and reasons for the end."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from time import monotonic
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from sakti.core.text import join_surrogates
from sakti.core.types import Json, Part, TextPart, ThinkingPart, ToolCallPart, Usage, is_storable
from sakti.providers import server_words, sse
from sakti.providers.errors import ErrorContext, make_incomplete_stream_error, make_no_events_error
from sakti.providers.history import CallIds, read_arguments
from sakti.providers.protocol import (
    Completed,
    StopReason,
    StreamEvent,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
    read_table,
)
from sakti.providers.server_words import end_pattern
from sakti.providers.sse import DONE, OTHER_PROTOCOL, make_protocol_error, protocol_errors

log = logging.getLogger(__name__)

_PINGS = ("ping", "keepalive")

Stop: TypeAlias = StopReason | Literal["cut"]  # "cut": the server failed, the answer must be requested again

_FILTERED, _LENGTH, _FAILED, _LIKE_AN_END = map(end_pattern, ("filtered", "length", "failed", "like_an_end"))


def classify_end(reason: str) -> Stop:
    """Return how an answer ended; a reason that is not known is never taken for a complete answer."""
    name = reason.strip().lower()
    ends = server_words.read().ends
    if name in ends["complete"]:
        return "end"
    if name in ends["calls"]:
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


class StreamedBlock(Struct):
    """Part of an answer being received; `pieces` are joined once, at the end.

    `kind` is text, thinking, call, or the server's word for anything else; `wire` is the server's own data about it,
    apart from the pieces.
    """

    kind: str
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])
    wire: Json = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def has_arguments(self) -> bool:
        """Return whether the arguments received so far are a complete JSON object."""
        return read_arguments(self.text) is not None


class StreamParser(ABC):
    """Base of the parsers, one for each protocol, that collect the events of one answer.

    `provider` and `requested` name the source of the answer; `ids` makes the ids of its calls unique in the thread.
    Blocks are stored by position; `positions` maps the server's own numbers or ids to positions.
    """

    kinds: ClassVar[Mapping[str, str]] = {}  # kinds of blocks by the server's words for them

    def __init__(self, provider: str, requested: str, ids: CallIds, context: ErrorContext) -> None:
        self.done = False  # the last event was received
        self.reason = ""  # why the answer ended, in the server's words
        self.model = ""  # the model that answered
        self.usage = Usage()
        self.blocks: dict[int, StreamedBlock] = {}
        self.positions: dict[int | str, int] = {}
        self._ended = False  # by `[DONE]`
        self._refused = False
        self._counts: Json = {}
        self._provider, self._requested = provider, requested
        self._ids = ids
        self._context = context

    @property
    def complete(self) -> bool:
        """Return whether the events so far make a complete answer."""
        if self.done or self.reason:
            return classify_end(self.reason) != "cut"
        return self._is_complete_without_end()

    @property
    def is_refusal(self) -> bool:
        """Return whether the answer is a refusal."""
        return self._refused

    def take(self, event: Json) -> list[StreamEvent]:
        """Read the next event and return the chunks to show. Raises ProviderError for a reported error."""
        self._ended = self._ended or event is DONE
        return self._read(event)

    def parts(self) -> tuple[Part, ...]:
        """Return the answer's parts, in order."""
        return tuple(part for _, block in sorted(self.blocks.items()) if (part := self._part(block)) is not None)

    @abstractmethod
    def _read(self, event: Json) -> list[StreamEvent]:
        """Read an event: open and extend blocks, count usage, note the reason for the end."""

    @abstractmethod
    def _read_usage(self, counts: Json) -> Usage:
        """Convert the server's counts; each event may carry some of them."""

    def _is_complete_without_end(self) -> bool:
        """Return whether the answer is complete although no event ended it; some servers send none."""
        return False

    def _translate_kind(self, word: Any) -> str:
        return self.kinds.get(str(word), str(word))

    def _count(self, usage: Any) -> None:
        self._counts.update({name: value for name, value in read_table(usage).items() if value is not None})
        self.usage = self._read_usage(self._counts)

    def _block_at(self, position: int, kind: str) -> StreamedBlock:
        """Return the block at a position, a new one of `kind` for its first event."""
        block = self.blocks.get(position)
        if block is None:
            block = self.blocks[position] = StreamedBlock(kind)
        return block

    def _add(self, block: StreamedBlock, text: str) -> list[StreamEvent]:
        """Add a piece to a block and return the chunks to show."""
        block.pieces.append(text)
        match block.kind:
            case "text":
                return [TextChunk(text)]
            case "thinking":
                return [ThinkingChunk(text)]
            case "call":
                return [ToolCallChunk(block.call_id, block.name, text)]
            case _:
                return []

    def _open_call(self, block: StreamedBlock, call_id: Any, name: Any) -> list[StreamEvent]:
        """Name the call of a block; its arguments follow."""
        block.call_id, block.name = self._ids.unique(call_id), str(name or "")
        return [ToolCallChunk(block.call_id, block.name, "")]

    def _part(self, block: StreamedBlock) -> Part | None:
        match block.kind:
            case "text":
                return TextPart(block.text) if block.text else None
            case "thinking":
                return self._make_thinking_part(block.text, {})
            case "call":
                return self._call_part(block, block.text)
            case _:
                return None

    def _make_thinking_part(self, text: str, opaque: Json) -> ThinkingPart:
        return ThinkingPart(text, self._provider, opaque, self._requested)

    def _call_part(self, block: StreamedBlock, raw: str) -> ToolCallPart:
        arguments = read_arguments(raw)
        return ToolCallPart(block.call_id, block.name, arguments, raw if arguments is None else "")


async def read_chunks(
    events: AsyncIterator[Json], context: ErrorContext, parser: StreamParser
) -> AsyncIterator[StreamEvent]:
    """Yield the chunks of an answer as they arrive.

    Raises ProviderError as `answer_events`, unreadable for an event that violates the protocol, and stream_cut for an
    incomplete answer. A complete answer is kept, whatever happens to the rest of its stream.
    """
    try:
        async with contextlib.aclosing(_read_answer(events, context, parser)) as answer:
            async for chunk in answer:
                yield chunk
    except Exception as e:
        if not parser.complete:
            raise
        log.info("the stream of a complete answer broke: %s", type(e).__name__)
    if not parser.complete:
        raise make_incomplete_stream_error(context)


async def _read_answer(
    events: AsyncIterator[Json], context: ErrorContext, parser: StreamParser
) -> AsyncGenerator[StreamEvent]:
    pending = ""  # half of a surrogate pair; the other half comes with the next piece
    last_event = monotonic()
    async for event in events:
        if event.get("type") not in _PINGS:
            last_event = monotonic()
        elif monotonic() - last_event > sse.LONGEST_QUIET_S:
            raise make_no_events_error(context, sse.LONGEST_QUIET_S)
        try:
            new_chunks = parser.take(event)
        except OTHER_PROTOCOL as e:
            raise make_protocol_error(context) from e
        for chunk in new_chunks:
            if not isinstance(chunk, TextChunk | ThinkingChunk) or (not pending and chunk.text.isascii()):
                yield chunk
                continue
            text = pending + chunk.text
            pending = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
            yield replace(chunk, text=join_surrogates(text.removesuffix(pending)))
        if parser.done:
            return


def complete_answer(parser: StreamParser, context: ErrorContext) -> Completed:
    """Build the end of a complete answer, which did not stop because the server failed.

    Calls are run unless the answer ended at a limit or a filter. Raises ProviderError, unreadable.
    """
    with protocol_errors(context):
        parts = tuple(map(_make_storable, parser.parts()))
    stop = classify_end(parser.reason)
    assert stop != "cut"
    unknown = parser.reason if stop == "unknown" else ""
    has_calls = any(isinstance(p, ToolCallPart) for p in parts)
    if stop in ("end", "tool_use", "unknown") and has_calls:
        stop = "tool_use"
    elif stop in ("end", "tool_use"):
        stop = "refusal" if parser.is_refusal else "end"
    return Completed(parts, stop, parser.usage, parser.model, unknown)


def _make_storable(part: Part) -> Part:
    """Replace halves of surrogate pairs, which the store refuses."""
    match part:
        case TextPart(text):
            return TextPart(join_surrogates(text), part.opaque if is_storable(part.opaque) else None)
        case ThinkingPart(text, opaque=opaque):
            clean = join_surrogates(text)
            same = is_storable(opaque) and clean.count("\ufffd") == text.count("\ufffd")
            return replace(part, text=clean, opaque=opaque if same else {})  # the server does not accept it changed
        case _:
            return part
