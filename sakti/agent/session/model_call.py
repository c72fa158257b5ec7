"""Make one model call of a turn: its request, its stream, and the reactions to failures.

Temporary failures are waited out visibly. Limits stated by the server are applied, and the call is repeated. If a model
stays overloaded, the fallback of the settings answers. Pieces that a provider refuses are left out of the turn's
requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import cast

from msgspec import Struct, structs

from sakti.agent import limits as agent_limits
from sakti.agent.mentions import replace_images
from sakti.agent.processors.base import Processor, StepInput, check_hook_result, overrides
from sakti.agent.session.turn import Stop, Turn
from sakti.core.errors import ProviderError, SaktiError
from sakti.core.events import (
    Event,
    Notice,
    PromptRead,
    RetryScheduled,
    StepDiscarded,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from sakti.core.types import Message, ModelCall, Part, Request, TextPart, ThinkingPart, ToolCallPart
from sakti.providers import limits, omissions
from sakti.providers.omissions import Omission, is_refusal
from sakti.providers.protocol import Completed, PromptProgress, StreamEvent, TextChunk, ThinkingChunk, ToolCallChunk
from sakti.store.threads import messages as message_store
from sakti.store.threads import threads as thread_store

LAST_STEP = "This is the last step of this turn: call no tool, sum up what was done and what is still open."
GO_ON = (
    "Your answer to this was cut at {tokens:,} tokens. Continue exactly where it stopped: repeat nothing, start "
    "in the middle of the sentence if it ended there."
)
QUOTED = 2_000  # characters of the user's words above it
FOR_LATER = ("rate_limit", "overloaded", "server", "timeout", "stream_cut")  # failures that only waiting fixes
LOWERED = 3  # times that the output limit is lowered for one call


class RunningCall(Struct):
    """State of a running call.

    `omission` are the pieces left out because of `refusal`; both are None at first.
    """

    step: StepInput
    request: Request
    filters: Sequence[Processor]
    retries: limits.Retries
    counted: int = 0
    observed: bool = False
    lowered: int = 0
    fell_back: bool = False
    omission: Omission | None = None
    refusal: ProviderError | None = None


class DeltaBuffer:
    """Joins pieces of an answer that arrive at once into one event.

    It is emitted as soon as the event loop runs something else, which it does before it waits for more.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._first: TextDelta | ThinkingDelta | None = None
        self._texts: list[str] = []

    def add(self, delta: TextDelta | ThinkingDelta) -> None:
        if self._first is not None and type(self._first) is not type(delta):
            self.flush()
        if self._first is None:
            self._first = delta
            asyncio.get_running_loop().call_soon(self.flush)
        self._texts.append(delta.text)

    def flush(self) -> None:
        """Emit the text that was added so far."""
        if (first := self._first) is not None:
            text, self._first = "".join(self._texts), None
            self._texts.clear()
            self._emit(structs.replace(first, text=text))


async def make_step_input(turn: Turn, last: bool, retry_count: int, reason: str) -> StepInput:
    """Collect the input of the next call after the processors; a model they name answers this step."""
    if turn.usual_model is not None:
        (turn.provider, turn.model), turn.usual_model = turn.usual_model, None
    system, tools = turn.system, turn.toolbox.specs(turn.model)
    fixed = sum(b.tokens or turn.counter.count(b.text) for b in turn.system)
    output, remaining = agent_limits.measure_room(
        turn.model, turn.settings, fixed + turn.toolbox.count(turn.counter, tools)
    )
    step = StepInput(
        step=turn.step,
        steps=tuple(turn.steps),
        messages=tuple(turn.messages),
        system=turn.system,
        tools=tools,
        tool_choice="none" if last else "auto",
        model=turn.model.name,
        tail=_make_tail(turn, last),
        facts=await turn.facts(),
        budget=remaining,
        max_output_tokens=output,
        thinking_tokens=turn.settings.thinking_tokens,
        effort=turn.settings.effort if turn.model.thinking else None,
        retry_count=retry_count,
        retry_reason=reason,
    )
    for processor in turn.before:
        step = check_hook_result(await processor.process_input_step(step), step, processor)
        if (current := (turn.system, turn.toolbox.specs(turn.model))) != (system, tools):  # by an activation
            step = structs.replace(step, system=(*current[0], *step.system[len(system) :]), tools=current[1])
            system, tools = current
    turn.toolbox.removed = frozenset(t.name for t in tools) - {t.name for t in step.tools}
    await _use_model(turn, step.model)
    return structs.replace(step, model=turn.model.name)


async def _use_model(turn: Turn, name: str) -> None:
    """Let the model that a processor named answer this step; the turn's own one comes back after it."""
    if name in (turn.model.name, turn.model.full_name):
        return
    full_name = name if "/" in name else f"{turn.model.provider}/{name}"
    if (other := await turn.find_model(full_name)) is not None:
        turn.usual_model = turn.provider, turn.model
        turn.provider, turn.model = other


def _make_tail(turn: Turn, last: bool) -> tuple[str, ...]:
    out: list[str] = []
    if turn.cut_at_tokens and turn.messages and turn.messages[-1].role == "assistant":
        question = next((m.text for m in reversed(turn.messages) if m.role == "user"), "")
        out += [question[:QUOTED], GO_ON.format(tokens=turn.cut_at_tokens)]
    return (*out, LAST_STEP) if last else tuple(out)


def make_request(turn: Turn, step: StepInput, omission: Omission | None = None) -> Request:
    """Make the request of a step; the output limit never exceeds the window."""
    marks = {**turn.left_out, **(omission.marks(turn.model.full_name) if omission else {})}
    tail = list(step.tail)
    if step.retry_reason:
        tail.append(f"Your last answer to this was not accepted: {step.retry_reason} Answer again.")
    request = Request(
        model=step.model,
        system=step.system,
        messages=select_sendable(turn, step.messages, marks),
        tools=step.tools,
        tool_choice=step.tool_choice,
        tail="\n\n".join(t for t in tail if t),
        max_output_tokens=step.max_output_tokens,
        temperature=step.temperature,
        thinking_tokens=step.thinking_tokens,
        effort=step.effort,
        extra=step.extra,
    )
    if request.max_output_tokens is None:
        return request
    output = agent_limits.limit_output(turn.model, request.max_output_tokens, count_request(turn, request))
    return structs.replace(request, max_output_tokens=output)


def count_request(turn: Turn, request: Request) -> int:
    """Our own count of a request's input tokens; message numbers are those stored when they were made."""
    counter = turn.counter
    system = sum(b.tokens or counter.count(b.text) for b in request.system)
    messages = sum(m.tokens for m in request.messages)
    tail = counter.count(request.tail) if request.tail else 0
    return system + messages + turn.toolbox.count(counter, request.tools) + tail


async def ask(turn: Turn, step: StepInput) -> Completed:
    """Return the model's answer. Raises `ProviderError` without one, `Stop` at a limit of the turn."""
    filters = [p for p in turn.after if overrides(p, "process_output_stream")]
    retries = limits.Retries(turn.random.random, turn.wait_left)
    call = RunningCall(step, make_request(turn, step), filters, retries, observed=turn.purpose != "actor")
    while True:
        try:
            completed = await _attempt(turn, call)
            if call.omission is not None and turn.purpose == "actor":
                turn.emit(await keep_omission(turn, call.omission))
            return completed
        except ProviderError as e:
            await _prepare_retry(turn, call, e)
        finally:
            turn.wait_left = retries.seconds_left


async def _attempt(turn: Turn, call: RunningCall) -> Completed:
    """Try once: emit the stream, then record its usage and time."""
    clock = turn.store.clock
    call.counted = count_request(turn, call.request)
    turn.emit(StepStarted(turn.step, turn.model.full_name, call.counted))
    started = clock.monotonic()
    turn.streamed, turn.thinking = [], []
    agent_limits.require_fit(turn.model, call.counted)
    completed = _require_answer(await _read_stream(turn, call))
    if call.filters:
        completed = structs.replace(completed, parts=_apply_filters(turn, completed.parts))
    duration_ms = round((clock.monotonic() - started) * 1000)
    await turn.store.write(
        message_store.add_step,
        turn.thread_id,
        turn.purpose,
        ModelCall(turn.model.full_name, completed.usage, duration_ms, completed.stop_reason, call.counted),
        id=turn.store.ids.new(),
        now=clock.now(),
        sent=message_store.describe_request(call.request) if turn.purpose == "actor" else None,
    )
    return completed


async def _read_stream(turn: Turn, call: RunningCall) -> Completed | None:
    """Emit an answer as it comes; return its end, None if it broke off."""
    written, answer = 0, None
    deltas, journal = DeltaBuffer(turn.emit), turn.open_journal()
    stream = cast("AsyncGenerator[StreamEvent, None]", turn.provider.stream(call.request))
    try:
        async with contextlib.aclosing(stream) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Completed):
                    answer = chunk
                elif not isinstance(chunk, PromptProgress):
                    written += len(chunk.text)
                _show(turn, call, chunk, deltas)
                if journal is not None:
                    journal.follow(turn.streamed)
                _check_limits(turn, written)
    finally:
        if journal is not None:
            journal.close()
        deltas.flush()
    return answer


def _show(turn: Turn, call: RunningCall, chunk: StreamEvent, deltas: DeltaBuffer) -> None:
    """Emit a chunk after the processors' filters."""
    shown: StreamEvent | None = chunk
    for processor in call.filters:
        if shown is not None:
            shown = processor.process_output_stream(shown)
    match shown:
        case TextChunk(text):
            turn.streamed.append(text)
            deltas.add(TextDelta(text))
        case ThinkingChunk(text):
            turn.thinking.append(text)
            deltas.add(ThinkingDelta(text))
        case PromptProgress(read, total):
            turn.emit(PromptRead(read, total))
        case ToolCallChunk(call_id, name, text):
            deltas.flush()
            turn.emit(ToolCallDelta(call_id, name, text))
        case Completed() | None:
            return


def _apply_filters(turn: Turn, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return an answer's parts with the text that the filters let pass, without changed thinking.

    A provider only accepts unchanged thinking.
    """
    text, thinking = "".join(turn.streamed), "".join(turn.thinking)
    original = "".join(p.text for p in parts if isinstance(p, TextPart))
    thought = "".join(p.text for p in parts if isinstance(p, ThinkingPart))
    out: list[Part] = []
    for part in parts:
        match part:
            case TextPart() if text != original:
                if text and not any(isinstance(p, TextPart) for p in out):
                    out.append(TextPart(text))
            case ThinkingPart() if thinking != thought:
                continue
            case _:
                out.append(part)
    return tuple(out)


def _check_limits(turn: Turn, written: int) -> None:
    """Raise for an answer longer than any model writes, or beyond the turn's time limit."""
    limits.check_answer_length(written)
    limited = turn.settings.max_seconds is not None  # called for every token
    if limited and agent_limits.compute_remaining_seconds(turn.settings, turn.seconds()) == 0.0:
        raise Stop("limit", agent_limits.time_limit_error(turn.settings))


def _require_answer(done: Completed | None) -> Completed:
    if done is None:
        raise ProviderError("The answer broke off before its end.", code="stream_cut", retryable=True)
    answered = any(isinstance(p, ToolCallPart) or (isinstance(p, TextPart) and p.text.strip()) for p in done.parts)
    if not answered and done.stop_reason not in ("length", "refusal", "pause"):
        raise ProviderError(
            "The model gave an empty answer. Ask again, or choose another model with /model.",
            code="empty",
            retryable=True,
        )
    return done


async def _wait_for_retry(turn: Turn, call: RunningCall, error: ProviderError) -> bool:
    """Wait until the same model may be asked again; False if it is not."""
    seconds = call.retries.wait(error, agent_limits.compute_remaining_seconds(turn.settings, turn.seconds()))
    if seconds is None:
        return False
    if _discard_stream(turn, error):
        turn.streamed, turn.thinking = [], []
    turn.emit(RetryScheduled(call.retries.attempt, limits.choose_max_attempts(error), seconds, error.message))
    await _wait(turn, seconds, error)
    return True


async def _prepare_retry(turn: Turn, call: RunningCall, error: ProviderError) -> None:
    """Prepare the next try: a smaller request, a wait, another model.

    Raises `error` if no other try is possible.
    """
    if await _retry_without_refused(turn, call, error):
        _discard_stream(turn, error)
        return
    narrower = _apply_reported_limits(turn, error)
    if _lower_output(call, error):
        return
    if error.code == "context_too_long" and not call.observed:
        call.observed = True
        if await turn.engine.observe_now() or narrower:
            await _renew(turn, call)
            turn.emit(StepDiscarded(turn.step, "the request was too long: pending messages were observed"))
            return
    if await _wait_for_retry(turn, call, error):
        return
    streamed = turn.streamed or turn.thinking
    text = await _fall_back(turn, call, error)
    if streamed:
        turn.emit(StepDiscarded(turn.step, error.message))
    turn.emit(Notice("warning", "Another model", text))


def _discard_stream(turn: Turn, error: ProviderError) -> bool:
    """Emit that the streamed part of the answer is discarded; False without such a part."""
    if not (turn.streamed or turn.thinking):
        return False
    turn.emit(StepDiscarded(turn.step, error.message))
    return True


def _lower_output(call: RunningCall, error: ProviderError) -> bool:
    """Request a shorter answer from a server that refused the length; False if that is no way out."""
    if error.code != "output_too_long" or call.lowered >= LOWERED:
        return False
    call.lowered += 1
    requested = call.request.max_output_tokens or agent_limits.DEFAULT_OUTPUT
    lower = min(error.output_limit or requested // 2, requested - 1)
    if lower < agent_limits.LEAST_OUTPUT:
        return False
    call.request = structs.replace(call.request, max_output_tokens=lower)
    return True


async def _fall_back(turn: Turn, call: RunningCall, error: ProviderError) -> str:
    """Let another model answer the rest of the turn; return the notice. Raises `error` without one."""
    other = None if call.fell_back or not error.retryable or error.code == "empty" else await turn.fallback()
    if other is None:
        if error.retryable:
            raise _explain_last_try(error, call.retries.attempt)
        raise make_final_error(error, call.refusal or error)
    first, call.fell_back = turn.model.full_name, True
    turn.provider, turn.model, turn.usual_model = *other, None
    turn.on_model_corrected = _forget
    call.retries.attempt = 0
    await _renew(turn, call)
    return f"{first} does not answer ({error.message}) {turn.model.full_name} answers the rest of this turn."


async def _retry_without_refused(turn: Turn, call: RunningCall, error: ProviderError) -> bool:
    """Prepare one more try without the pieces that a server refuses; False if it refuses none."""
    if not is_refusal(error) or (call.refusal is not None and call.omission is None):
        return False
    # None after an earlier try: it was not those pieces
    call.omission = await find_omission(turn, call.request.messages, error, call.omission)
    if call.omission is None:
        return False
    call.refusal = call.omission.error
    call.request = make_request(turn, call.step, call.omission)
    return True


def _explain_last_try(error: ProviderError, times: int) -> ProviderError:
    """Add to `error` why it is not tried again and the remaining options, unless it says so."""
    if error.retry_after:
        rest = f"It asks to wait {error.retry_after:,.0f} s, which is too long."
    elif error.code in FOR_LATER and times > 1:
        rest = f"Tried {times} times. Ask again later, or choose another model with /model."
    else:
        return error
    return ProviderError(
        f"{error.message} {rest}",
        title=error.title,
        code=error.code,
        retry_after=error.retry_after,
        status=error.status,
    )


def _forget(_info: object) -> None:
    """Drop the limits learned of a fallback model: they apply to its turn only."""


def _apply_reported_limits(turn: Turn, error: ProviderError) -> bool:
    """Learn the limits that the server named; return whether the window is smaller than was known."""
    narrower = False
    window, current = error.window, turn.model.context_window
    if window and (current is None or window < current or turn.model.assumed):
        narrower = current is None or window < current
        turn.learn_limits(context_window=window, assumed=False)
    if error.max_output and error.max_output < (turn.model.max_output or error.max_output + 1):
        turn.learn_limits(max_output=error.max_output)
    return narrower


async def _renew(turn: Turn, call: RunningCall) -> None:
    step = call.step
    call.step = await make_step_input(turn, step.tool_choice == "none", step.retry_count, step.retry_reason)
    call.request = make_request(turn, call.step, call.omission)


async def _wait(turn: Turn, seconds: float, error: ProviderError) -> None:
    try:
        await turn.store.clock.sleep(seconds)
    except asyncio.CancelledError:
        if turn.find_stop() is None:
            raise
        raise error from None  # Esc while waiting: the failure itself is the end


def make_length_error(turn: Turn, tokens: int, *, thought: bool) -> SaktiError:
    """Describe why a turn ends at the limit of one answer, and what to do."""
    limit = f"{tokens:,} tokens"
    if thought:
        why = f"The model used {limit} for thinking and gave no answer"
        help_ = "Lower agent.effort or raise agent.max_output_tokens, then ask again."
    else:
        why = f"The answer was cut at {limit}, {turn.cut_answers} times in a row"
        help_ = 'Say "continue" to go on, or ask for less at once.'
    return SaktiError(f"{why}. {help_}", title="Answer cut", code="length")


UNDO = "If it is about something in this thread, /undo (or `sakti undo`) removes the last turn."


def select_sendable(turn: Turn, messages: Sequence[Message], marks: Mapping[str, str]) -> tuple[Message, ...]:
    """Return messages without pieces that the model refused before, and without images if it takes none."""
    model = turn.model.full_name
    rest = omissions.omit_pieces(messages, marks, model)
    return rest if turn.model.images and model not in marks.values() else replace_images(rest)


async def find_omission(
    turn: Turn, messages: Sequence[Message], error: ProviderError, earlier: Omission | None
) -> Omission | None:
    """Return the pieces that the next try of a refused request leaves out, with `earlier`; None: nothing."""
    accepted = await turn.store.read(message_store.find_newest_accepted, turn.thread_id, turn.model.full_name)
    return omissions.find_omission(messages, error, accepted, earlier)


async def keep_omission(turn: Turn, omission: Omission) -> Notice:
    """Store that the thread goes on without these pieces, since the model answered without them."""
    marks = omission.marks(turn.model.full_name)
    turn.left_out |= marks
    await turn.store.write(thread_store.add_left_out, turn.thread_id, marks)
    if omission.no_images:
        turn.learn_limits(images=False)
    pieces = omissions.describe_pieces(omission.pieces)
    text = f"{turn.model.full_name} refused {pieces}: left out of this thread from now on. {omission.error.message}"
    return Notice("warning", "Left out", text)


def make_final_error(error: ProviderError, first: ProviderError) -> ProviderError:
    """Return the error that ends a turn; for a refused request the `first` one, with a way out."""
    if not omissions.is_refusal(error):
        return error
    return ProviderError(f"{first.message} {UNDO}", title=error.title, code=error.code, status=error.status)
