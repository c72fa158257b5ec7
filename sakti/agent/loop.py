"""Run one turn as an async generator of events.

user message saved → (input processors → request → streamed answer → saved → tool calls → results saved) until the model
answers without calling a tool. Each step is durable before the next one starts. Cancelling the task, after
`Turn.interrupt()`, ends the turn cleanly: streamed text is kept and every call gets a result.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from msgspec import structs

from sakti.agent import limits
from sakti.agent.limits import STOPPED_AFTER, Repetition
from sakti.agent.processors.base import (
    Abort,
    Processor,
    StepOutput,
    StepRecord,
    TurnInput,
    check_hook_result,
    guards_output,
    overrides,
)
from sakti.agent.session import edit_check, model_call
from sakti.agent.session import turn as turn_store
from sakti.agent.session.turn import CUT, Stop, Turn
from sakti.core.errors import BLOCKED, ProviderError, SaktiError
from sakti.core.events import (
    MessageSaved,
    Notice,
    QueueChanged,
    StepDiscarded,
    StepFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from sakti.core.text import format_count, quote, to_one_line
from sakti.core.types import Json, MarkerPart, Message, Part, TextPart, ToolCallPart, ToolResultPart
from sakti.providers.protocol import Completed
from sakti.store.threads import threads as thread_store

__all__ = ["Turn", "order_processors", "run_turn"]

MEMORY = "memory"  # the kind of processor that is notified of a turn when its message is stored
CUT_AT_MOST = 3  # consecutive cut answers after which a turn ends
CUT_CALL_KEPT = 1_000  # characters of a cut call that are kept: more would waste tokens
CUT_CALL = (
    "This call was cut at {tokens:,} tokens, before its end; none of it was run. Write in parts: create the "
    "file with its first part, then add the rest part by part, each well below {tokens:,} tokens."
)


def order_processors(
    engine_processor: Processor, limiter: Processor, own: Sequence[Processor]
) -> tuple[tuple[Processor, ...], tuple[Processor, ...], bool]:
    """Order processors for input and output; return also whether messages must wait for a guard.

    A custom processor replaces the automatic one of its kind.
    """
    kinds = {p.kind for p in own if p.kind}
    memory = () if engine_processor.kind in kinds else (engine_processor,)
    limit = () if limiter.kind in kinds else (limiter,)
    awaits_guard = any(guards_output(p) or overrides(p, "process_input") for p in own)
    return (*memory, *own, *limit), (*own, *memory), awaits_guard


async def run_turn(turn: Turn, parts: tuple[Part, ...]) -> TurnFinished:
    """Run one turn from the user's `parts` to the final answer.

    Returns its end event, for the caller to emit. Without parts the conversation is sent unchanged, as a retry after a
    failure.
    """
    status: TurnStatus = "answered"
    error: SaktiError | None = None
    metadata: Json = {}
    turn.began = turn.store.clock.monotonic()
    try:
        turn.left_out = await turn.store.read(thread_store.read_left_out, turn.thread_id)
        user = await _store_user(turn, parts) if parts else await turn_store.read_last_prompt(turn)
        turn.emit(TurnStarted(turn.thread_id, user))
        if parts:
            await _announce(turn, user)
        with turn.limited_in_time():
            await _run_steps(turn, user)
        metadata = await turn_store.finish(turn)
    except asyncio.CancelledError:
        if (stopped := turn.find_stop()) is None:
            raise
        status, marker = stopped, "interrupted"
        if stopped == "limit":
            error, marker = limits.time_limit_error(turn.settings), ""
        await _save_unfinished(turn, marker)
    except Stop as stop:
        status, error = stop.status, stop.error
        await _save_unfinished(turn, marker="")
    except Abort as tripwire:
        status, error = "tripwire", SaktiError(tripwire.reason, title="Stopped by a guardrail", code="tripwire")
        metadata = tripwire.metadata
        await _withhold(turn, tripwire.reason)
    except SaktiError as e:
        status, error = "error", e
        try:
            await _save_unfinished(turn, marker="error")
        except SaktiError:  # if the store itself failed, the first error is the one to report
            error = SaktiError(f"{e.message} The partial answer is not saved.", title=e.title, code=e.code)
    await _store_end(turn, status, error)
    end = TurnFinished(
        turn.thread_id, status, turn.text(), len(turn.steps), turn.usage + turn.children_usage(), metadata=metadata
    )
    if error is None:
        return end
    return structs.replace(end, error=error.message, error_title=error.title, error_code=error.code)


async def _store_end(turn: Turn, status: TurnStatus, error: SaktiError | None) -> None:
    """Store an end without an answer; if that fails, it is still emitted."""
    if status in ("interrupted", "error"):
        with contextlib.suppress(SaktiError):
            await turn_store.confirm(turn)
    if status != "answered":
        with contextlib.suppress(SaktiError):
            await turn_store.store_end(turn, status, error)


async def _save_unfinished(turn: Turn, marker: str) -> None:
    """Store the streamed part of an answer that has no end, and emit it."""
    for message in await turn_store.save_unfinished(turn, marker):
        turn.emit(MessageSaved(message))


async def _withhold(turn: Turn, reason: str) -> None:
    """Withhold the messages of a turn that a guardrail stopped."""
    if turn.refused is not None:
        placeholder = await turn_store.withhold_message(turn, reason)
        if len(turn.messages) == 1:
            turn.emit(TurnStarted(turn.thread_id, placeholder))
    await turn_store.withhold(turn, reason)
    turn.emit(StepDiscarded(turn.step, reason))


async def _announce(turn: Turn, user: Message) -> None:
    await turn.on_user(user)
    turn.emit(MessageSaved(user))


async def _store_user(turn: Turn, parts: tuple[Part, ...]) -> Message:
    """Store the processed message of the user, then notify memory of the turn."""
    turn.refused = turn_store.make_message(turn, "user", parts)
    start = _make_turn_input(turn, turn.refused)
    for processor in turn.before:
        if processor.kind != MEMORY:
            start = check_hook_result(await processor.process_input(start), start, processor)
    saved = await turn_store.append(turn, await turn.accept(turn.refused, start.message))
    turn.system, turn.refused = start.system, None
    return saved


def _make_turn_input(turn: Turn, message: Message) -> TurnInput:
    return TurnInput(
        turn.thread_id,
        message,
        turn.model.full_name,
        turn.model.cache_ttl,
        turn.resource_id,
        tuple(m for m in turn.engine.state.window.messages if m.id != message.id),
        turn.system,
        turn.settings,
    )


async def _run_steps(turn: Turn, user: Message) -> None:
    for processor in turn.before:
        if processor.kind == MEMORY:
            await processor.process_input(_make_turn_input(turn, user))
    repetition, held = Repetition(), 0
    _warn_without_price(turn)
    while True:
        turn.step += 1
        await _take_queued(turn)
        last = turn.step >= turn.settings.max_steps
        await _run_step(turn, last)
        calls = turn.steps[-1].message.tool_calls
        if calls:
            await _run_calls(turn, calls, repetition)
        if _is_over(turn, calls):
            return
        goes_on = bool(calls or turn.cut_at_tokens or turn.is_paused())
        _stop_if_due(turn, repetition, last and bool(calls or turn.step > 1), goes_on=goes_on)
        _stop_for_hook(turn)
        if not goes_on and not turn.inbox.queued:
            _require_end(turn)
            if not await _is_held(turn, held):
                return
            held += 1


def _is_over(turn: Turn, calls: Sequence[ToolCallPart]) -> bool:
    """Return whether a step ended the turn; may raise `Stop`."""
    return turn.is_over() or bool(calls and any(r.details.get("ends_turn") for r in turn.results))


def _warn_without_price(turn: Turn) -> None:
    """Emit a notice if a limit in dollars cannot be computed from the model's prices."""
    if turn.settings.max_usd is not None and turn.model.input_price is None:
        text = f"The price of {turn.model.full_name} is not known: agent.max_usd only counts what its server reports."
        turn.emit(Notice("warning", "No price", text))


def _stop_for_hook(turn: Turn) -> None:
    """Raise `Stop` if a hook asked to end the turn."""
    guard = turn.toolbox.guard
    if guard is not None and (reason := guard.stop_reason()) is not None:
        raise Stop("interrupted", SaktiError(reason, title="Stopped by a hook", code="hook"))


def _require_end(turn: Turn) -> None:
    """Raise `Stop` for a final answer that may be silently incomplete."""
    if turn.steps[-1].stop_reason == "unknown":
        text = 'The answer may be incomplete. Say "continue" to go on, or choose another model with /model.'
        raise Stop("length", SaktiError(text, title="Unknown end of the answer", code="unknown_stop"))


async def _is_held(turn: Turn, times: int) -> bool:
    """Return whether a hook continues the turn with a message, after doing so `times` times already."""
    parts, metadata = await turn.may_end(turn.text(), times)
    if not parts or turn.step >= turn.settings.max_steps:
        return False
    message = structs.replace(turn_store.make_message(turn, "user", parts), metadata=metadata)
    await _announce(turn, await turn_store.append(turn, message))
    return True


def _stop_if_due(turn: Turn, repetition: Repetition, last: bool, *, goes_on: bool) -> None:
    """Raise `Stop` if the turn must end here.

    `last`: it was the last allowed step; `goes_on`: another step would follow.
    """
    record = turn.steps[-1]
    answered = record.message.tool_calls or record.message.text.strip()
    if turn.cut_at_tokens and (not answered or turn.step >= turn.settings.max_steps or turn.cut_answers >= CUT_AT_MOST):
        raise Stop("length", model_call.make_length_error(turn, turn.cut_at_tokens, thought=not answered))
    if last:
        steps = turn.settings.max_steps
        text = f'The limit of {format_count(steps, "step")} is reached. Say "continue" to go on.'
        raise Stop("limit", SaktiError(text, title="Step limit", code="max_steps"))
    _stop_if_repeating(turn, repetition)
    reached = limits.find_reached_limit(turn.settings, turn.usage + turn.children_usage(), turn.seconds())
    if reached is not None and goes_on:
        raise Stop("limit", reached)


def _stop_if_repeating(turn: Turn, repetition: Repetition) -> None:
    """Raise `Stop` if the model repeats a call, or a cycle of calls."""
    times, what = repetition.count, "call was"
    if turn.loop_detector.stopped:
        times, period = turn.loop_detector.times, turn.loop_detector.period
        what = f"{period} calls were" if period > 1 else "broken call was"
    if times >= STOPPED_AFTER and (turn.loop_detector.stopped or repetition.count >= STOPPED_AFTER):
        text = f"The same {what} repeated {times} times. Tell it what to try instead."
        raise Stop("repetition", SaktiError(text, title="Stopped", code="repetition"))


async def _run_calls(turn: Turn, calls: Sequence[ToolCallPart], repetition: Repetition) -> None:
    """Run the complete calls, report a broken one as cut, and save the results."""
    record = turn.steps[-1]
    broken = _find_cut_call(turn, record.message)
    complete = [turn_store.restore_call(turn, c) for c in calls if c is not broken]
    turn.results = await turn.toolbox.run(record.message, complete, turn.emit, repetition)
    if broken is not None:
        turn.emit(ToolStarted(broken))
        result = ToolResultPart(broken.id, broken.name, CUT_CALL.format(tokens=turn.cut_at_tokens), is_error=True)
        turn.emit(ToolFinished(result, 0))
    elif notice := turn.loop_detector.see(calls, turn.results):
        last = turn.results[-1]
        turn.results[-1] = structs.replace(last, content=f"{last.content}\n{notice}")
    message = await turn_store.save_results(turn)
    turn.steps[-1] = structs.replace(record, results=message)
    turn.emit(MessageSaved(message))


def _find_cut_call(turn: Turn, said: Message) -> ToolCallPart | None:
    """Return the call whose arguments were cut."""
    written = [p for p in said.parts if not isinstance(p, MarkerPart)]
    last = written[-1] if turn.cut_at_tokens and written else None
    return last if isinstance(last, ToolCallPart) and not last.arguments else None


async def _take_queued(turn: Turn) -> None:
    """Make messages of the queued texts; those that cannot be saved are queued again."""
    queued = turn.inbox.queued
    while queued:
        parts = queued.pop(0)
        try:
            saved = await _store_user(turn, parts)
        except SaktiError as e:
            turn.refused = None
            turn.emit(QueueChanged(turn.inbox.texts()))
            if e.code == BLOCKED:
                turn.emit(Notice("warning", e.title, e.message))
                continue
            queued.insert(0, parts)
            raise
        turn.emit(QueueChanged(turn.inbox.texts()))
        await _announce(turn, saved)


async def _run_step(turn: Turn, last: bool) -> None:
    """Run one step: a model's answer, repeated with the reason while a step hook asks for it."""
    retry_count, reason = 0, ""
    while True:
        try:
            step = await model_call.make_step_input(turn, last, retry_count, reason)
            completed = await edit_check.with_verdict(turn, await model_call.ask(turn, step))
            turn.written = {p.id: p for p in completed.parts if isinstance(p, ToolCallPart)}
            answer = turn_store.make_message(turn, "assistant", _build_parts(turn, completed))
            output = StepOutput(turn.step, answer, completed.stop_reason, retry_count)
            for processor in turn.after:
                output = check_hook_result(await processor.process_output_step(output), output, processor)
            break
        except Abort as wish:
            if not wish.retry or retry_count >= turn.settings.max_processor_retries:
                raise Abort(wish.reason, retry=False, metadata=wish.metadata) from wish
            retry_count, reason = retry_count + 1, wish.reason
            turn.streamed, turn.thinking = [], []
            turn.emit(StepDiscarded(turn.step, wish.reason))
    message = await turn_store.append(turn, output.message)
    turn.usage = turn.usage + completed.usage
    turn.steps.append(StepRecord(message, None, completed.usage, completed.stop_reason))
    turn.emit(MessageSaved(message))
    turn.emit(StepFinished(turn.step, completed.usage, completed.stop_reason))
    if completed.unknown_reason:
        reason = to_one_line(completed.unknown_reason, 80)
        text = f"{turn.model.full_name} ended its answer with the unknown reason {quote(reason)}."
        turn.emit(Notice("warning", "Unknown end of the answer", text))
    if completed.stop_reason == "refusal":
        raise ProviderError("The model refused to answer. Rephrase the request.", code="refused")


def _build_parts(turn: Turn, completed: Completed) -> tuple[Part, ...]:
    """Return the stored parts of an answer, marked if it was cut."""
    if completed.stop_reason != "length":
        turn.cut_answers, turn.cut_at_tokens = 0, 0
        return completed.parts
    written = completed.usage.output_tokens or sum(
        turn_store.make_message(turn, "assistant", completed.parts).part_tokens
    )
    turn.cut_answers, turn.cut_at_tokens = turn.cut_answers + 1, max(1, written)
    *parts, last = completed.parts or (TextPart(""),)
    if isinstance(last, ToolCallPart) and not last.arguments:
        last = structs.replace(last, arguments=None, raw=last.raw[:CUT_CALL_KEPT])
    return (*parts, last, MarkerPart(CUT, f"at {turn.cut_at_tokens:,} tokens"))
