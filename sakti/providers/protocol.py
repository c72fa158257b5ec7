"""What a provider is: one method that streams a model's answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from sakti.core.types import ModelInfo, Part, Request, Usage
from sakti.providers.facts import Served

StopReason: TypeAlias = Literal["end", "tool_use", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """The model is writing the arguments of a call; `name` is known from the first chunk on."""

    call_id: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event of a stream whose end was seen: the whole answer as parts, in order."""

    parts: tuple[Part, ...]
    stop_reason: StopReason
    usage: Usage
    model: str = ""


StreamEvent: TypeAlias = TextChunk | ThinkingChunk | ToolCallChunk | Completed


class Provider(Protocol):
    """A place where models answer. `name` is what stands before the slash of a model's full name.

    `stream` yields chunks and exactly one `Completed`, last; a stream that ends without it raised a
    `ProviderError`. Close the iterator (contextlib.aclosing) to give up: it frees the connection.
    Nothing is retried inside, but what a server refuses by name is asked for once more without it. `elsewhere`: behind
    the name stands a server that is not the provider's own.
    """

    name: str
    elsewhere: bool

    def stream(self, request: Request) -> AsyncIterator[StreamEvent]: ...

    async def count_tokens(self, request: Request) -> int | None:
        """Input tokens as the provider counts them, None where it cannot."""
        ...

    async def models(self) -> Sequence[ModelInfo]: ...

    async def served(self, model: str) -> Served | None:
        """How much of `model` the server says it serves; None where it does not answer. Asked once."""
        ...

    async def warm(self) -> None:
        """Import the SDK and open what can be opened, so that the first answer does not wait."""
        ...

    async def close(self) -> None: ...
