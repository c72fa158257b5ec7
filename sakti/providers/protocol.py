"""Define the provider protocol: one method that streams a model's answer.

Invalid figures from a server never fail the answer.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct

from sakti.core.types import Json, ModelInfo, Part, Request, Usage
from sakti.providers.facts import ServedLimits

# "pause": the server ended the step, not the turn; "unknown": a reason not defined by any protocol
StopReason: TypeAlias = Literal["end", "tool_use", "length", "refusal", "pause", "unknown"]


class TextChunk(Struct, frozen=True):
    text: str


class ThinkingChunk(Struct, frozen=True):
    text: str


class ToolCallChunk(Struct, frozen=True):
    """Next piece of a tool call's arguments; `name` is known from the first chunk on."""

    call_id: str
    name: str
    text: str


class PromptProgress(Struct, frozen=True):
    """The model is reading: `read` of the prompt's `total` tokens so far."""

    read: int
    total: int


class Completed(Struct, frozen=True):
    """Last event of a complete stream: the full answer as parts, in order.

    `unknown_reason` is the server's reason for its end if no protocol defines it, else empty.
    """

    parts: tuple[Part, ...]
    stop_reason: StopReason
    usage: Usage
    model: str = ""
    unknown_reason: str = ""


StreamEvent: TypeAlias = TextChunk | ThinkingChunk | ToolCallChunk | PromptProgress | Completed


class Provider(Protocol):
    """Model provider; `name` is the part before the slash of a model's full name.

    `stream` yields chunks and exactly one `Completed`, last; a stream that ends without it raised a `ProviderError`.
    Close the iterator (contextlib.aclosing) to cancel: it frees the connection. Nothing is retried, except once without
    a parameter that the server refuses by name. `is_custom_server`: the server behind the name is not the provider's
    own; `loopback`: it runs on this machine.
    """

    name: str
    is_custom_server: bool
    loopback: bool

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]: ...

    async def models(self) -> Sequence[ModelInfo]: ...

    async def fetch_limits(self, model: str) -> ServedLimits | None:
        """Return the limits that the server states for `model`, None without an answer. Called once."""
        ...

    async def warm(self) -> None:
        """Import what the first answer needs and open connections, so that it does not wait."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Prepares(Protocol):
    """A provider that can read the beginning of a prompt before anything is asked."""

    async def prepare(self, request: Request) -> None:
        """Start reading the system prompt and tools of `request`; returns at once."""
        ...


@runtime_checkable
class SearchesWeb(Protocol):
    """A provider whose protocol has a web search; `has_search`: its server has it, too."""

    @property
    def has_search(self) -> bool: ...


MOST_TOKENS = 10**9  # tokens; no single answer has more


def read_tokens(value: Any) -> int:
    """Return a stated number of tokens, 0 for an invalid one."""
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return int(value) if is_valid else 0


def read_dollars(value: Any) -> float | None:
    """Return a stated price, None for an invalid one."""
    is_valid = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if is_valid else None


def read_table(value: Any) -> Json:
    """Return a stated object, or {} if it is not one."""
    return cast("Json", value) if isinstance(value, dict) else {}
