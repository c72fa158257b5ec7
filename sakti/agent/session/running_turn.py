"""State of the running turn, with an estimate of the tokens that are not stored yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct, field

from sakti.agent.subagents import ChildHost, NoChildren
from sakti.core.events import (
    Event,
    MessageSaved,
    StepDiscarded,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from sakti.core.tokens import CALL_OVERHEAD, estimate_tokens
from sakti.core.types import Json

if TYPE_CHECKING:
    from sakti.agent.session.turn import Turn
    from sakti.store.threads.runs import StoredJob


class GrowingText(Struct):
    """Estimated tokens of a text that grows: each time only the new piece is estimated.

    Text after `limit` characters is not counted.
    """

    limit: int | None = None
    _size: int = 0
    _tokens: int = 0
    _fresh: list[str] = field(default_factory=list[str])

    def add(self, text: str) -> None:
        if self.limit is None or self._size < self.limit:
            self._size += len(text)
            self._fresh.append(text)

    @property
    def tokens(self) -> int:
        if self._fresh:
            self._tokens += estimate_tokens("".join(self._fresh)[: self.limit])
            self._fresh.clear()
        return self._tokens


class StepEstimate:
    """Follows the events of a thread; `tokens` is 0 when all is stored.

    `output_limit`: characters of a call's output that its result keeps.
    """

    def __init__(self, output_limit: int) -> None:
        self._output_limit = output_limit
        self._answer = GrowingText()
        self._outputs: dict[str, GrowingText] = {}
        self._own: set[str] = set()  # calls of the user's commands

    @property
    def tokens(self) -> int:
        return self._answer.tokens + sum(CALL_OVERHEAD + text.tokens for text in self._outputs.values())

    def reset(self) -> None:
        """Forget everything: another thread is open."""
        self._answer, self._outputs = GrowingText(), {}

    def on_event(self, event: Event) -> None:
        if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta):
            self._answer.add(event.text)
        elif isinstance(event, ToolStarted):
            self._outputs[event.call.id] = GrowingText(self._output_limit)
            self._own |= {event.call.id} if event.own else set()
        elif isinstance(event, ToolOutput) and event.call_id in self._outputs:
            self._outputs[event.call_id].add(event.text)
        elif isinstance(event, ToolFinished):
            result = self._outputs[event.result.call_id] = GrowingText(self._output_limit)
            result.add(event.result.content)
        elif isinstance(event, StepStarted | StepDiscarded):
            self._answer = GrowingText()
        elif isinstance(event, TurnStarted | TurnFinished):
            self._answer = GrowingText()
            self._forget(own=isinstance(event, TurnStarted))  # unsaved texts are not sent
        elif isinstance(event, MessageSaved):
            if event.message.role == "assistant":
                self._answer = GrowingText()
            else:
                self._forget(own=event.message.role == "user" and "shell" in event.message.metadata)

    def _forget(self, *, own: bool) -> None:
        """Drop the output of the user's commands, or of all others."""
        self._outputs = {i: text for i, text in self._outputs.items() if (i in self._own) != own}


class RunningTurn(Struct):
    """The running turn and its task; `has_failed`: the last turn failed and can be retried.

    `successor` is the metadata of the thread that carries out a plan after this turn. `estimate` counts text of the
    turn, and of commands of the user, that is not stored yet. `children` are the thread's; `past_jobs` are background
    commands of an earlier process that were lost, or whose end the model does not know.
    """

    estimate: StepEstimate
    turn: Turn | None = None
    task: asyncio.Task[None] | None = None
    has_failed: bool = False
    children: ChildHost = field(default_factory=NoChildren)
    successor: Json | None = None
    past_jobs: dict[str, StoredJob] = field(default_factory=dict[str, "StoredJob"])  # by number
