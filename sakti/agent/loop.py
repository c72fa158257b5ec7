"""The loop: one turn as an async generator of events.

user message saved → (input processors → request → streamed answer → saved → tool calls → results saved) until the
model answers without calling a tool. Everything is durable before the next thing happens. Cancelling the task that
iterates, after `Turn.interrupt()`, ends the turn cleanly: what was streamed is kept and every call gets a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from sakti.agent.inbox import Inbox
from sakti.agent.mentions import unseen
from sakti.agent.processors.base import (
    Abort,
    Processor,
    StepInput,
    StepOutput,
    StepRecord,
    TurnInput,
    TurnResult,
    guards_output,
    overrides,
)
from sakti.agent.resume import interrupted_result
from sakti.agent.toolbox import STOPPED_AFTER, Repetition, Toolbox
from sakti.core.config import AgentSettings
from sakti.core.errors import ProviderError, SaktiError
from sakti.core.events import (
    Event,
    MessageSaved,
    QueueChanged,
    RetryScheduled,
    StepDiscarded,
    StepFinished,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from sakti.core.tokens import Counter, count_parts, message_tokens
from sakti.core.types import (
    Block,
    MarkerPart,
    Message,
    ModelInfo,
    Part,
    Request,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from sakti.memory.engine import MemoryEngine
from sakti.providers import retry
from sakti.providers.protocol import Completed, Provider, StreamEvent, TextChunk, ThinkingChunk, ToolCallChunk
from sakti.store import messages as message_store
from sakti.store import threads as thread_store
from sakti.store.connection import Database
from sakti.store.database import Store
from sakti.store.tasks import claims

DEFAULT_OUTPUT = 8_192  # tokens left free for an answer where nothing says how many a model may write
LAST_STEP = "This is the last step of this turn: call no tool, sum up what was done and what is still open."


class Stop(Exception):
    """Ends the turn with a status that is not an answer."""

    def __init__(self, status: TurnStatus, error: SaktiError) -> None:
        super().__init__(error.message)
        self.status: TurnStatus = status
        self.error = error


@dataclass(slots=True)
class Turn:
    """Everything that one turn works with. `processors` are the user's own; memory and the limiter are added."""

    store: Store
    counter: Counter
    provider: Provider
    model: ModelInfo
    engine: MemoryEngine
    toolbox: Toolbox
    thread_id: str
    resource_id: str
    system: tuple[Block, ...]
    tail: Callable[[], tuple[str, ...]]
    inbox: Inbox
    settings: AgentSettings
    before: tuple[Processor, ...]
    after: tuple[Processor, ...]
    guarded: bool = False
    owner: str | None = None  # this process in the claims that it makes (host:pid:uuid)
    require: Callable[[Database], None] = lambda _: None  # raises where the thread is no longer this turn's
    interrupted: bool = False
    random: random.Random = field(default_factory=random.Random)
    # what happened so far
    messages: list[Message] = field(default_factory=list[Message])
    steps: list[StepRecord] = field(default_factory=list[StepRecord])
    usage: Usage = field(default_factory=Usage)
    step: int = 0
    streamed: list[str] = field(default_factory=list[str])
    thinking: list[str] = field(default_factory=list[str])
    results: list[ToolResultPart] = field(default_factory=list[ToolResultPart])
    open_calls: tuple[ToolCallPart, ...] = ()

    def interrupt(self) -> None:
        self.interrupted = True


def hooks(
    engine_processor: Processor, limiter: Processor, own: Sequence[Processor]
) -> tuple[tuple[Processor, ...], tuple[Processor, ...], bool]:
    """The order of processors on the way in and on the way out, and whether messages must wait for a guard.

    One of the user's own replaces the automatic one of its kind.
    """
    kinds = {p.kind for p in own if p.kind}
    memory = () if engine_processor.kind in kinds else (engine_processor,)
    limit = () if limiter.kind in kinds else (limiter,)
    guarded = any(guards_output(p) or overrides(p, "process_input") for p in own)
    return (*memory, *own, *limit), (*own, *memory), guarded


async def run_turn(turn: Turn, parts: tuple[Part, ...]) -> AsyncGenerator[Event, None]:
    """One turn from the user's `parts` to the final answer; the last event is always `TurnFinished`. Without
    parts the conversation is sent as it stands: another try after a failure."""
    status: TurnStatus = "answered"
    error: SaktiError | None = None
    try:
        user = await _save(turn, "user", parts) if parts else await _last_user(turn)
        yield TurnStarted(turn.thread_id, user)
        if parts:
            yield MessageSaved(user)
        async with contextlib.aclosing(_steps(turn, user)) as events:
            async for event in events:
                yield event
        await _finish(turn)
    except asyncio.CancelledError:
        if not turn.interrupted:
            raise
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        status = "interrupted"
        for message in await _keep_unfinished(turn):
            yield MessageSaved(message)
    except Stop as stop:
        status, error = stop.status, stop.error
        for message in await _keep_unfinished(turn, marker=""):
            yield MessageSaved(message)
    except Abort as tripwire:
        status, error = "tripwire", SaktiError(tripwire.reason, title="Stopped by a guardrail", code="tripwire")
        await turn.store.write(message_store.withhold, [m.id for m in turn.messages], tripwire.reason)
        turn.engine.forget([m.id for m in turn.messages])
        yield StepDiscarded(turn.step, tripwire.reason)
    except SaktiError as e:
        status, error = "error", e
        try:
            for message in await _keep_unfinished(turn, marker="error"):
                yield MessageSaved(message)
        except SaktiError:  # where the store itself failed, the first error is the one to tell
            error = SaktiError(f"{e.message} The answer is not saved as far as it came.", title=e.title, code=e.code)
    if status in ("interrupted", "error"):
        with contextlib.suppress(SaktiError):
            await _confirm(turn)
    text = next((m.text for m in reversed(turn.messages) if m.role == "assistant"), "")
    yield TurnFinished(
        turn.thread_id,
        status,
        text,
        len(turn.steps),
        turn.usage,
        error.message if error else None,
        error.title if error else None,
        error.code if error else None,
    )


async def _steps(turn: Turn, user: Message) -> AsyncGenerator[Event, None]:
    start = TurnInput(turn.thread_id, user, turn.model.full_name)
    for processor in turn.before:
        start = await processor.process_input(start)
    repetition = Repetition()
    while True:
        turn.step += 1
        async with contextlib.aclosing(_take_queued(turn)) as events:
            async for event in events:
                yield event
        last = turn.step >= turn.settings.max_steps
        async with contextlib.aclosing(_answered(turn, last)) as events:
            async for event in events:
                yield event
        record = turn.steps[-1]
        calls = record.message.tool_calls
        if calls:
            async with contextlib.aclosing(turn.toolbox.run(record.message, calls, turn.results, repetition)) as events:
                async for event in events:
                    yield event
            message = await _save_results(turn)
            turn.steps[-1] = dataclasses.replace(record, results=message)
            yield MessageSaved(message)
        if last and (calls or turn.step > 1):
            raise Stop(
                "limit",
                SaktiError(
                    f'The limit of {turn.settings.max_steps} steps is reached. Say "go on" to continue.',
                    title="Step limit",
                    code="max_steps",
                ),
            )
        if repetition.count >= STOPPED_AFTER:
            raise Stop(
                "repetition",
                SaktiError(
                    f"The model made the same call {repetition.count} times in a row. Say what it should do instead.",
                    title="Going in circles",
                    code="repetition",
                ),
            )
        if not calls and not turn.inbox.queued:
            return


async def _take_queued(turn: Turn) -> AsyncGenerator[Event, None]:
    """What was queued becomes messages; what cannot be saved is queued again."""
    queued = turn.inbox.queued
    while queued:
        parts = queued.pop(0)
        try:
            saved = await _save(turn, "user", parts)
        except SaktiError:
            queued.insert(0, parts)
            raise
        yield QueueChanged(turn.inbox.texts())
        yield MessageSaved(saved)


async def _answered(turn: Turn, last: bool) -> AsyncGenerator[Event, None]:
    """One step: a model's answer, played again while a step hook asks for it (with the reason told)."""
    retry_count, reason = 0, ""
    while True:
        try:
            step = await _step_input(turn, last, retry_count, reason)
            request = _request(turn, step)
            done: list[Completed] = []
            async with contextlib.aclosing(_stream(turn, step, request, done)) as events:
                async for event in events:
                    yield event
            completed = done[0]
            output = StepOutput(
                turn.step, _message(turn, "assistant", completed.parts), completed.stop_reason, retry_count
            )
            for processor in turn.after:
                output = await processor.process_output_step(output)
            break
        except Abort as wish:
            if not wish.retry or retry_count >= turn.settings.max_processor_retries:
                raise Abort(wish.reason, retry=False) from wish
            retry_count, reason = retry_count + 1, wish.reason
            turn.streamed, turn.thinking = [], []
            yield StepDiscarded(turn.step, wish.reason)
    message = await _append(turn, output.message)
    turn.usage = turn.usage + completed.usage
    turn.steps.append(StepRecord(message, None, completed.usage, completed.stop_reason))
    yield MessageSaved(message)
    yield StepFinished(turn.step, completed.usage, completed.stop_reason)
    if completed.stop_reason == "refusal" and not message.text:
        raise ProviderError("The model refused to answer. Put the request another way.", code="refused")


async def _step_input(turn: Turn, last: bool, retry_count: int, reason: str) -> StepInput:
    tools = turn.toolbox.specs(small=turn.model.small)
    fixed = sum(b.tokens or turn.counter.count(b.text) for b in turn.system)
    output, budget = room(turn.model, turn.settings, fixed + turn.toolbox.count(turn.counter, tools))
    step = StepInput(
        step=turn.step,
        steps=tuple(turn.steps),
        messages=tuple(turn.messages),
        system=turn.system,
        tools=tools,
        tool_choice="none" if last else "auto",
        model=turn.model.name,
        tail=(*turn.tail(), *((LAST_STEP,) if last else ())),
        budget=budget,
        max_output_tokens=output,
        thinking_tokens=turn.settings.thinking_tokens,
        retry_count=retry_count,
        retry_reason=reason,
    )
    for processor in turn.before:
        step = await processor.process_input_step(step)
    return step


def room(model: ModelInfo, settings: AgentSettings, fixed: int) -> tuple[int, int | None]:
    """(tokens that an answer may have, tokens that are left for memory and messages; None where the model's window
    is not known). `fixed` are the tokens of system prompt and tools."""
    output = settings.max_output_tokens or min(model.max_output or DEFAULT_OUTPUT, DEFAULT_OUTPUT * 4)
    if model.context_window is None:
        return output, None
    return output, max(0, model.context_window - min(output, model.context_window // 4) - fixed)


def _request(turn: Turn, step: StepInput) -> Request:
    tail = list(step.tail)
    if step.retry_reason:
        tail.append(f"Your last answer to this was not accepted: {step.retry_reason} Answer again.")
    return Request(
        model=step.model,
        system=step.system,
        messages=step.messages if turn.model.images else unseen(step.messages),
        tools=step.tools,
        tool_choice=step.tool_choice,
        tail="\n\n".join(t for t in tail if t),
        max_output_tokens=step.max_output_tokens,
        temperature=step.temperature,
        thinking_tokens=step.thinking_tokens,
    )


async def _stream(turn: Turn, step: StepInput, request: Request, done: list[Completed]) -> AsyncGenerator[Event, None]:
    """The model's answer; transient failures are waited out, visibly, and the request is made again."""
    clock = turn.store.clock
    filters = [p for p in turn.after if overrides(p, "process_output_stream")]
    attempt, recovered, empty = 0, False, False
    while True:
        counted = count_request(turn, request)
        yield StepStarted(turn.step, turn.model.full_name, counted)
        started = clock.monotonic()
        turn.streamed, turn.thinking = [], []
        try:
            _must_fit(turn.model, counted)
            stream = cast("AsyncGenerator[StreamEvent, None]", turn.provider.stream(request))
            async with contextlib.aclosing(stream) as chunks:
                async for chunk in chunks:
                    shown: StreamEvent | None = chunk
                    for processor in filters:
                        if shown is not None:
                            shown = processor.process_output_stream(shown)
                    match shown:
                        case TextChunk(text):
                            turn.streamed.append(text)
                            yield TextDelta(text)
                        case ThinkingChunk(text):
                            turn.thinking.append(text)
                            yield ThinkingDelta(text)
                        case ToolCallChunk(call_id, name, text):
                            yield ToolCallDelta(call_id, name, text)
                        case _:
                            pass
                    if isinstance(chunk, Completed):
                        done[:] = [chunk]
            if not done:
                raise ProviderError("The answer broke off before its end.", code="stream_cut", retryable=True)
            if not done[0].parts and done[0].stop_reason == "end":
                raise ProviderError(
                    "The model gave an empty answer. Ask again, or choose another model with /model.",
                    code="empty",
                    retryable=not empty,
                )
            await turn.store.write(
                message_store.add_step,
                id=turn.store.ids.new(),
                thread_id=turn.thread_id,
                purpose="actor",
                model=turn.model.full_name,
                usage=done[0].usage,
                now=clock.now(),
                counted_tokens=counted,
                duration_ms=round((clock.monotonic() - started) * 1000),
                stop_reason=done[0].stop_reason,
            )
            return
        except ProviderError as e:
            done.clear()
            empty = empty or e.code == "empty"
            if e.code == "context_too_long" and not recovered:
                recovered = True
                if await turn.engine.observe_now():
                    step = await _step_input(turn, step.tool_choice == "none", step.retry_count, step.retry_reason)
                    request = _request(turn, step)
                    yield StepDiscarded(turn.step, "the request was too long: memory has observed what was pending")
                    continue
            attempt += 1
            if not retry.should_retry(e, attempt):
                raise
            delay = retry.delay(attempt, e.retry_after, turn.random.random)
            if turn.streamed or turn.thinking:
                yield StepDiscarded(turn.step, e.message)
                turn.streamed, turn.thinking = [], []
            yield RetryScheduled(attempt, retry.MAX_ATTEMPTS, delay, e.message)
            try:
                await clock.sleep(delay)
            except asyncio.CancelledError:
                if not turn.interrupted:
                    raise
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
                raise e from None  # Esc while waiting: the failure itself is the end


def _must_fit(model: ModelInfo, tokens: int) -> None:
    """Raises `ProviderError` for a request above the model's window, before it is sent. The embedded model shortens
    what it is sent by itself."""
    if model.context_window is not None and tokens > model.context_window and not model.small:
        raise ProviderError(
            f"The request has {tokens:,} tokens, {model.full_name} takes {model.context_window:,}: it was not sent. "
            "Ask for less at once, or choose a model with a larger window with /model.",
            code="context_too_long",
        )


def count_request(turn: Turn, request: Request) -> int:
    """Our own count of a request's input tokens; message numbers are those stored when they were made."""
    counter = turn.counter
    system = sum(b.tokens or counter.count(b.text) for b in request.system)
    messages = sum(m.tokens for m in request.messages)
    tail = counter.count(request.tail) if request.tail else 0
    return system + messages + turn.toolbox.count(counter, request.tools) + tail


# --- messages -------------------------------------------------------------------------------------------


def _message(turn: Turn, role: Role, parts: Sequence[Part]) -> Message:
    counted = count_parts(turn.counter, parts)
    return Message(
        id=turn.store.ids.new(),
        thread_id=turn.thread_id,
        resource_id=turn.resource_id,
        role=role,
        parts=tuple(parts),
        created_at=turn.store.clock.now(),
        tokens=message_tokens(counted),
        part_tokens=counted,
        token_counter=turn.counter.name,
        state="provisional" if turn.guarded else "saved",
    )


async def _append(turn: Turn, message: Message) -> Message:
    """Make a message durable, then known. An interrupt that comes in between waits for both."""
    paths = touched_paths(message, turn)

    def append(db: Database) -> Message:
        turn.require(db)
        task_id = claims.active(db, message.thread_id, message.thread_id, turn.owner)
        return message_store.append(db, dataclasses.replace(message, task_id=task_id), paths=paths)

    write = asyncio.ensure_future(turn.store.write(append))
    cancelled = False
    while not write.done():
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            cancelled = True
    saved = write.result()
    turn.messages.append(saved)
    turn.engine.add(saved)
    if saved.role == "assistant":
        turn.streamed, turn.thinking = [], []
        turn.open_calls, turn.results = saved.tool_calls, []
    if cancelled:
        raise asyncio.CancelledError
    return saved


async def _save(turn: Turn, role: Role, parts: Sequence[Part]) -> Message:
    return await _append(turn, _message(turn, role, parts))


async def _last_user(turn: Turn) -> Message:
    found = await turn.store.read(message_store.last_of_user, turn.thread_id)
    if found is None:
        raise SaktiError("There is nothing to ask again.", code="nothing")
    return found


async def _save_results(turn: Turn) -> Message:
    have = {r.call_id for r in turn.results}
    results = [*turn.results, *(interrupted_result(c) for c in turn.open_calls if c.id not in have)]
    order = {c.id: i for i, c in enumerate(turn.open_calls)}
    results.sort(key=lambda r: order[r.call_id])
    images = [image for r in results for image in turn.toolbox.images.pop(r.call_id, ())]
    turn.open_calls = ()
    return await _save(turn, "tool", [*results, *images])


async def _keep_unfinished(turn: Turn, marker: str = "interrupted") -> list[Message]:
    """What was streamed but not saved becomes a message; calls without a result get one that says so."""
    saved: list[Message] = []
    if turn.streamed or (turn.thinking and marker):
        parts: list[Part] = []
        if turn.thinking:
            parts.append(ThinkingPart("".join(turn.thinking)))
        if turn.streamed:
            parts.append(TextPart("".join(turn.streamed)))
        if marker:
            parts.append(MarkerPart(marker))
        if turn.streamed:
            saved.append(await _save(turn, "assistant", parts))
        turn.streamed, turn.thinking = [], []
    if turn.open_calls:
        saved.append(await _save_results(turn))
    return saved


def touched_paths(message: Message, turn: Turn) -> list[str]:
    """The paths that a message's calls name, as the workspace writes them."""
    out: dict[str, None] = {}
    for call in message.tool_calls:
        out |= dict.fromkeys(turn.toolbox.touched(call))
    return list(out)


async def _confirm(turn: Turn) -> None:
    if turn.guarded:
        await turn.store.write(message_store.confirm, [m.id for m in turn.messages])


async def _finish(turn: Turn) -> None:
    text = next((m.text for m in reversed(turn.messages) if m.role == "assistant"), "")
    result = TurnResult(turn.thread_id, tuple(turn.messages), text)
    for processor in turn.after:
        result = await processor.process_output_result(result)
    await _confirm(turn)
    for message_id, metadata in result.metadata.items():
        await turn.store.write(message_store.add_metadata, message_id, metadata)
    await turn.store.write(thread_store.touch, turn.thread_id, turn.store.clock.now())
