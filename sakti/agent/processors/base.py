"""Define processors, the extension point of the loop, and compose them. Memory itself is one.

Every hook takes a frozen value and returns one: its input is never changed. What `process_input` returns is what is
stored and sent; what the step hooks change goes into the request only.

Order: on the way in memory comes first, then the user's processors, then the token limiter; on the way out the user's
come first, then memory. So a guardrail that aborts keeps the turn out of memory in both directions.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar

from msgspec import Struct, field

from sakti.core.config import AgentSettings
from sakti.core.errors import SaktiError
from sakti.core.types import Block, Effort, Json, Message, ToolSpec, Usage
from sakti.providers.protocol import StreamEvent


class Abort(Exception):
    """Error raised by `abort`; `retry` repeats the same step, with the reason told to the model."""

    def __init__(self, reason: str, retry: bool, metadata: Json | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry = retry
        self.metadata: Json = metadata or {}


def abort(reason: str, *, retry: bool = False, metadata: Json | None = None) -> NoReturn:
    """End the turn as a tripwire that the caller sees; with `retry` (step hooks only) repeat the step.

    `metadata` comes with the turn's end, for the caller only.
    """
    raise Abort(reason, retry, metadata)


class TurnInput(Struct, frozen=True):
    """Turn that begins.

    The user's message, and the model that will be called ("provider/name"), whose prompt cache stays warm for
    `cache_ttl` ms. `history` are the messages before it that memory still holds word by word, oldest first; `system`
    are the blocks of all the turn's requests. `message` and `system` may be changed, the rest is to be read.
    """

    thread_id: str
    message: Message
    model: str
    cache_ttl: int | None = None
    resource_id: str = ""
    history: tuple[Message, ...] = ()
    system: tuple[Block, ...] = ()
    settings: AgentSettings | None = None


class StepRecord(Struct, frozen=True):
    """Finished step: its messages and usage."""

    message: Message
    results: Message | None
    usage: Usage
    stop_reason: str


class StepInput(Struct, frozen=True):
    """Input of the next model call.

    `budget` is how many tokens the model's window leaves for memory and messages, None where its window is not known;
    `facts` are volatile facts sent with the newest message, by name; `tail` is for this request only; `extra` goes
    into its body; `retry_reason` is why this step is repeated.
    """

    step: int
    steps: tuple[StepRecord, ...]
    messages: tuple[Message, ...]
    system: tuple[Block, ...]
    tools: tuple[ToolSpec, ...]
    tool_choice: Literal["auto", "none"]
    model: str
    tail: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict[str, str])
    budget: int | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    thinking_tokens: int | None = None
    effort: Effort | None = None
    extra: Json = field(default_factory=dict[str, Any])
    retry_count: int = 0
    retry_reason: str = ""


class StepOutput(Struct, frozen=True):
    """Model's answer before it is accepted; a hook may replace `message` or abort."""

    step: int
    message: Message
    stop_reason: str
    retry_count: int = 0


class TurnResult(Struct, frozen=True):
    """Turn at its end.

    A hook may change `messages` or leave some out: they are stored so, and those left out are withheld. `text` is the
    final answer. `metadata` maps message ids to what is added to those messages' metadata; the caller gets it, too.
    """

    thread_id: str
    messages: tuple[Message, ...]
    text: str
    metadata: dict[str, Json] = field(default_factory=dict[str, Json])


_AWAITED = ("process_input", "process_input_step", "process_output_step", "process_output_result")
_Given = TypeVar("_Given")


def check_hook_result(value: _Given, given: _Given, processor: Processor) -> _Given:
    """Return the result of a hook for `given`. Raises `SaktiError` if its type differs."""
    if not isinstance(value, type(given)):
        text = f"{type(processor).__name__} returned {type(value).__name__} for a {type(given).__name__}: return that."
        raise SaktiError(text, title="Processor")
    return value


class Processor:
    """Base of all processors; override the hooks needed.

    `kind` names its purpose: a processor added by the user replaces the automatic one of its kind.
    """

    kind = ""

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuse a hook that could not be called as it is: its answers would be lost without a word."""
        super().__init_subclass__(**given)
        if inspect.iscoroutinefunction(cls.process_output_stream):
            raise TypeError(f"{cls.__name__}.process_output_stream is called for each piece: write it without async.")
        for name in _AWAITED:
            if not inspect.iscoroutinefunction(getattr(cls, name)):
                raise TypeError(f"{cls.__name__}.{name} is awaited: write it as async def.")

    async def process_input(self, turn: TurnInput) -> TurnInput:
        """Process a turn before its first step."""
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        """Process the input of each model call."""
        return step

    def process_output_stream(self, chunk: StreamEvent) -> StreamEvent | None:
        """Process each piece of the answer as it arrives, None to drop it: what passes is shown and stored."""
        return chunk

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        """Process each answer before it is accepted."""
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        """Process a turn at its end."""
        return result


def overrides(processor: Processor, hook: str) -> bool:
    return getattr(type(processor), hook) is not getattr(Processor, hook)


def guards_output(processor: Processor) -> bool:
    """Return whether messages stay provisional until this processor has passed them."""
    return any(
        overrides(processor, hook) for hook in ("process_output_stream", "process_output_step", "process_output_result")
    )


StepHook: TypeAlias = Callable[[StepInput], "StepInput | Awaitable[StepInput]"]


class Chain(Processor):
    """Runs processors in order, on the way in and on the way out."""

    def __init__(self, *parts: Processor) -> None:
        self.parts = parts

    def __str__(self) -> str:
        return f"chain({', '.join(map(get_title, self.parts))})"

    async def process_input(self, turn: TurnInput) -> TurnInput:
        for part in self.parts:
            turn = await part.process_input(turn)
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        for part in self.parts:
            step = await part.process_input_step(step)
        return step

    def process_output_stream(self, chunk: StreamEvent) -> StreamEvent | None:
        passed: StreamEvent | None = chunk
        for part in self.parts:
            if passed is not None:
                passed = part.process_output_stream(passed)
        return passed

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        for part in self.parts:
            output = await part.process_output_step(output)
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        for part in self.parts:
            result = await part.process_output_result(result)
        return result


class Parallel(Processor):
    """Guards that run at the same time: each may abort, their results are not used.

    The first abort ends the others.
    """

    def __init__(self, *guards: Processor) -> None:
        self.guards = guards

    def __str__(self) -> str:
        return f"parallel({', '.join(map(get_title, self.guards))})"

    async def process_input(self, turn: TurnInput) -> TurnInput:
        await _run_guards(g.process_input(turn) for g in self.guards)
        return turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        await _run_guards(g.process_input_step(step) for g in self.guards)
        return step

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        await _run_guards(g.process_output_step(output) for g in self.guards)
        return output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        await _run_guards(g.process_output_result(result) for g in self.guards)
        return result


class When(Processor):
    """Runs a processor in the turns for which `condition` holds; it is asked once, as a turn begins."""

    def __init__(self, condition: Callable[[TurnInput], bool], then: Processor) -> None:
        self.condition, self.then = condition, then
        self.holds = False

    def __str__(self) -> str:
        return f"when({get_title(self.then)})"

    async def process_input(self, turn: TurnInput) -> TurnInput:
        self.holds = self.condition(turn)
        return await self.then.process_input(turn) if self.holds else turn

    async def process_input_step(self, step: StepInput) -> StepInput:
        return await self.then.process_input_step(step) if self.holds else step

    def process_output_stream(self, chunk: StreamEvent) -> StreamEvent | None:
        return self.then.process_output_stream(chunk) if self.holds else chunk

    async def process_output_step(self, output: StepOutput) -> StepOutput:
        return await self.then.process_output_step(output) if self.holds else output

    async def process_output_result(self, result: TurnResult) -> TurnResult:
        return await self.then.process_output_result(result) if self.holds else result


class FromFunction(Processor):
    """Serves a plain function as a step hook."""

    def __init__(self, function: StepHook) -> None:
        self.function = function

    def __str__(self) -> str:
        return getattr(self.function, "__name__", "function")

    async def process_input_step(self, step: StepInput) -> StepInput:
        changed = self.function(step)
        return await changed if inspect.isawaitable(changed) else changed


def make_processor(given: Processor | StepHook) -> Processor:
    """Return a processor itself, one that calls a plain function before each model call for anything else."""
    return given if isinstance(given, Processor) else FromFunction(given)


def get_title(processor: Processor) -> str:
    """Return the name that a processor is shown by."""
    return str(processor) if overrides(processor, "__str__") else type(processor).__name__


async def _run_guards(guards: Iterable[Awaitable[object]]) -> None:
    """Run all guards; the first that aborts (or fails) ends the rest and is raised itself."""
    tasks = [asyncio.ensure_future(g) for g in guards]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
