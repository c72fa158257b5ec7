"""Replay prepared answers for tests, demos and the tour. Never selected automatically."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from msgspec import Struct

from sakti.core.clock import Clock, SystemClock
from sakti.core.errors import ConfigError, ProviderError
from sakti.core.types import (
    Json,
    ModelInfo,
    Part,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
    join_plain_text,
)
from sakti.providers.errors import make_error
from sakti.providers.facts import ServedLimits
from sakti.providers.history import CallIds
from sakti.providers.protocol import (
    Completed,
    StopReason,
    StreamEvent,
    TextChunk,
    ThinkingChunk,
    ToolCallChunk,
)


class Call(Struct, frozen=True):
    """Tool call of an answer; an empty id gets a new one. `raw` plays arguments that are not JSON."""

    name: str
    arguments: Json | None = None
    id: str = ""
    raw: str = ""

    def as_json(self) -> str:
        return self.raw or json.dumps(self.arguments or {}, ensure_ascii=False)

    def as_part(self, id: str) -> ToolCallPart:
        return ToolCallPart(id, self.name, None if self.raw else self.arguments or {}, self.raw)


class Answer(Struct, frozen=True):
    """One model call.

    With `error` (a ProviderError code) it fails after streaming `text`; `cut` breaks off the stream. `delay` is the
    wait before the first chunk, `chunk_delay` the wait between chunks, in seconds; `chunk` is the size of a chunk in
    characters.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    unknown_reason: str = ""
    error: str | None = None
    message: str = ""
    retry_after: float | None = None
    cut: bool = False
    delay: float = 0.0
    chunk_delay: float = 0.0
    chunk: int = 24


Played: TypeAlias = Answer | str
Player: TypeAlias = Callable[[Request], Played]
Counter: TypeAlias = Callable[[str], int]


class ScriptedProvider:
    """Provider that plays `answers` in order, or what the function `answers` returns for each request.

    `requests` records every request. `count` counts the tokens of a text, for answers without stated usage (None:
    zero). When the list is used up a call fails with ProviderError (invalid_request).
    """

    def __init__(
        self,
        answers: Iterable[Played] | Player = (),
        *,
        name: str = "scripted",
        clock: Clock | None = None,
        count: Counter | None = None,
        context_window: int = 200_000,
    ) -> None:
        self.name, self.is_custom_server, self.loopback = name, False, True
        self.requests: list[Request] = []
        self._player = answers if callable(answers) else None
        self._left: list[Played] = [] if callable(answers) else list(answers)
        self._clock = clock or SystemClock()
        self._count = count
        self._window = context_window

    @classmethod
    def from_file(
        cls, path: str | Path, *, clock: Clock | None = None, count: Counter | None = None
    ) -> ScriptedProvider:
        """Load answers from a JSON file (a list) or JSONL (one a line).

        An answer is a string or the fields of `Answer`. Raises ConfigError for a file that cannot be read or is
        invalid.
        """
        return cls(load(Path(path)), clock=clock, count=count)

    def add(self, *answers: Played) -> None:
        """Append answers to the queue."""
        self._left.extend(answers)

    async def stream(self, request: Request) -> AsyncIterator[StreamEvent]:
        self.requests.append(request)
        answer = self._take_answer(request)
        if answer.delay:
            await self._clock.sleep(answer.delay)
        ids = CallIds(request.messages)
        parts: list[Part] = []
        for event in self._iter_events(answer, ids, parts, request):
            if answer.chunk_delay:
                await self._clock.sleep(answer.chunk_delay)
            yield event
        if answer.cut or answer.error:
            raise _make_failure(answer)
        stop = answer.stop_reason or ("tool_use" if answer.calls else "end")
        usage = answer.usage or self._usage(request, parts)
        yield Completed(tuple(parts), stop, usage, request.model, answer.unknown_reason)

    def _take_answer(self, request: Request) -> Answer:
        if self._player is not None:
            played = self._player(request)
        elif self._left:
            played = self._left.pop(0)
        else:
            raise ProviderError("The script has no answer left.", code="invalid_request")
        return Answer(played) if isinstance(played, str) else played

    def _iter_events(self, answer: Answer, ids: CallIds, parts: list[Part], request: Request) -> Iterable[StreamEvent]:
        if answer.thinking:
            yield from (ThinkingChunk(piece) for piece in _iter_pieces(answer.thinking, answer.chunk))
            parts.append(ThinkingPart(answer.thinking, self.name, {"signature": "scripted"}, request.model))
        if answer.text:
            yield from (TextChunk(piece) for piece in _iter_pieces(answer.text, answer.chunk))
            parts.append(TextPart(answer.text))
        for call in answer.calls:
            call_id = ids.unique(call.id or None)
            yield from (
                ToolCallChunk(call_id, call.name, piece) for piece in _iter_pieces(call.as_json(), answer.chunk)
            )
            parts.append(call.as_part(call_id))

    def _usage(self, request: Request, parts: Sequence[Part]) -> Usage:
        if self._count is None:
            return Usage()
        return Usage(input_tokens=self._input(request, self._count), output_tokens=self._count(join_plain_text(parts)))

    @staticmethod
    def _input(request: Request, count: Counter) -> int:
        texts = [b.text for b in request.system] + [json.dumps(t.parameters) for t in request.tools]
        texts += [join_plain_text(m.parts) for m in request.messages] + [request.tail]
        return sum(count(t) for t in texts if t)

    async def models(self) -> Sequence[ModelInfo]:
        return [ModelInfo("demo", self.name, context_window=self._window)]

    async def fetch_limits(self, model: str) -> ServedLimits | None:
        """Return nothing: all facts about `model` are known."""
        return ServedLimits()

    async def warm(self) -> None:
        """Do nothing: there is nothing to open."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _iter_pieces(text: str, size: int) -> Iterable[str]:
    return (text[i : i + size] for i in range(0, len(text), max(1, size)))


def _make_failure(answer: Answer) -> ProviderError:
    code = answer.error or "stream_cut"
    message = answer.message or ("The stream was cut." if answer.cut else f"The script says: {code}.")
    return make_error(code, message, retry_after=answer.retry_after)


def load(path: Path) -> list[Played]:
    """Load the answers of a JSON or JSONL file. Raises ConfigError."""
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".jsonl":
            values = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            value: Any = json.loads(text)
            values = cast("list[Any]", value) if isinstance(value, list) else [value]
        return [_answer(v) for v in values]
    except OSError as e:
        raise ConfigError(f"The script {path} cannot be read: {e.strerror}.") from e
    except (ValueError, TypeError) as e:
        raise ConfigError(f"The script {path} does not fit: {e}.") from e


def _answer(value: Any) -> Played:
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        raise TypeError("an answer is a string or an object")
    fields = dict(cast("Json", value))
    fields["calls"] = tuple(Call(**c) for c in fields.get("calls", ()))
    if isinstance(fields.get("usage"), dict):
        fields["usage"] = Usage(**fields["usage"])
    return Answer(**fields)
