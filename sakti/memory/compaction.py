"""Observe on request and on exit: compact a thread, undo that, observe what remains."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from sakti.core.errors import MemoryFailure
from sakti.core.events import CompactionFinished, Notice
from sakti.core.text import format_count
from sakti.core.types import Json, Message
from sakti.memory import policy
from sakti.memory.jobs.observation import Observation
from sakti.memory.state import MemoryState
from sakti.memory.worker import is_observable
from sakti.store.database import Database
from sakti.store.memory import Group, UndoCompaction, moves
from sakti.store.memory.moves import Compaction
from sakti.store.threads import threads

USUAL_SHARE = 0.1  # tokens of an observation per token of its messages; for the estimate before a compaction


def select_messages(state: MemoryState, *, whole_turn: bool = True) -> list[Message]:
    """Return the pending messages before the last exchange.

    They end at the newest prompt; if nothing precedes it (or a turn is running), at the last step.
    """
    messages = policy.select_safe_buffer_prefix([m for m in state.window.messages if m.state == "saved"])
    if whole_turn:
        newest_prompt = max((i for i, m in enumerate(messages) if m.role == "user"), default=0)
        if newest_prompt:
            return list(messages[:newest_prompt])
        if state.window.pending < state.numbers.threshold:
            return []
    cuts = policy.list_inner_cuts(messages)
    return list(messages[: cuts[-1]]) if cuts else []


async def observe_all(observation: Observation, focus: str, into: list[Group], *, whole_turn: bool) -> None:
    """Activate the buffered groups of the messages to compact, and observe the others now.

    The activated groups are added to `into`, even if the caller is cancelled. Groups are never split: one that begins
    in the range is observed completely, even if it reaches into the last exchange.
    """
    state = observation.state
    selected = select_messages(state, whole_turn=whole_turn)
    if not selected:
        return
    last = selected[-1].index
    await state.activate_ready(last, into)
    rest = [m for m in state.window.find_uncovered_messages() if m.index <= last]
    if not state.window.ready():
        await observation.now(rest, focus, into)


async def _join(observation: Observation) -> None:
    await observation.join()
    await observation.join_others()


async def _run_unless_cancelled(work: Coroutine[Any, Any, object]) -> bool:
    """Await `work`; return False if the caller was cancelled meanwhile, and clear the cancellation."""
    try:
        await work
        return True
    except asyncio.CancelledError:
        if (caller := asyncio.current_task()) is not None:
            caller.uncancel()
        return False


async def compact(observation: Observation, focus: str) -> CompactionFinished:
    """Compact the thread; a cancelled run keeps and records its finished part, so it can be undone.

    `warnings` describes the messages that stay. The record covers exactly the groups that this run activated.
    """
    state = observation.state
    stopped = not await _run_unless_cancelled(_join(observation))
    tokens_before = state.window.pending + state.observation_tokens
    before, pending, selected = _snapshot(state), list(state.window.messages), select_messages(state)
    activated: list[Group] = []
    if not stopped and not await _run_unless_cancelled(observe_all(observation, focus, activated, whole_turn=True)):
        await observation.stop()
        stopped = True
    observed = [m for m in pending if m.index <= state.window.cursor]
    if not activated or not observed:
        why = "Stopped: nothing was changed." if stopped else state.note
        return _report_unchanged(state, tokens_before, why if selected else None, stopped=stopped)
    done = _record(state, focus, activated, observed, before, tokens_before)

    def store(db: Database) -> tuple[int, int, int]:
        moves.add_compaction(db, done)
        state.failpoint("compact.written")
        return moves.count_lines(db, done)

    state.failpoint("compact.observed")
    lines, pinned, doubtful = await state.store.write(store)
    state.failpoint("compact.committed")
    return CompactionFinished(
        done.record_id,
        done.message_count,
        tokens_before,
        done.tokens_after,
        lines,
        warn_of_rest(sum(1 for m in selected if m.index > state.window.cursor), stopped=stopped),
        gone_tokens=sum(m.tokens for m in observed),
        kept=len(state.window.messages),
        kept_tokens=state.window.pending,
        pinned=pinned,
        doubtful=doubtful,
        stopped=stopped,
    )


def _report_unchanged(state: MemoryState, tokens: int, why: str | None, *, stopped: bool) -> CompactionFinished:
    """Return the result of a compaction without effect; `why` is None if there was nothing to observe."""
    warnings = () if why is None else (why or "Memory could not observe; nothing was changed.",)
    return CompactionFinished(state.window.record.id, 0, tokens, tokens, 0, warnings, stopped=stopped)


def warn_of_rest(unobserved: int, *, stopped: bool) -> tuple[str, ...]:
    """Return the warning of a compaction that left messages `unobserved`, or that was `stopped`."""
    messages = f"{format_count(unobserved, 'message')} {'is' if unobserved == 1 else 'are'}"
    if stopped:
        rest = f"; {messages} not observed and unchanged" if unobserved else ""
        return (f"You stopped it: the part that is shown here was finished and is in effect{rest}.",)
    return (f"{messages} unchanged: they could not be observed.",) if unobserved else ()


def _record(
    state: MemoryState,
    focus: str,
    groups: Sequence[Group],
    messages: Sequence[Message],
    before: Json,
    tokens_before: int,
) -> Compaction:
    window = state.window
    return Compaction(
        state.ids.new(),
        window.thread.id,
        window.thread.resource_id,
        window.record.id,
        focus,
        messages[0].index,
        messages[-1].index,
        len(messages),
        tuple(m.id for m in messages),
        tuple(g.id for g in groups),
        before,
        tokens_before,
        window.pending + state.observation_tokens,
        state.clock.now(),
    )


async def undo(observation: Observation) -> CompactionFinished | None:
    """Undo the thread's last compaction; None without one, or if that would change other data.

    A Notice gives the reason.
    """
    await _join(observation)
    state = observation.state
    done = await state.store.read(moves.last_compaction, state.window.thread.id)
    if done is None:
        return None
    numbers = state.numbers
    move = UndoCompaction(done.id, numbers.buffer or numbers.threshold // 5)
    try:
        await state.move(move, "uncompact")
    except MemoryFailure as e:
        state.emit(Notice("warning", "The compaction cannot be undone", e.message))
        return None
    return CompactionFinished(
        state.window.record.id,
        done.message_count,
        done.tokens_after,
        state.window.pending + state.observation_tokens,
        0,
        undone=True,
    )


def preview(state: MemoryState) -> tuple[int, int, int]:
    """Return (messages that /compact would observe, current tokens, estimated tokens afterwards)."""
    selected = select_messages(state)
    before = state.window.pending + state.observation_tokens
    if not selected:
        return 0, before, before
    ready = [g for g in state.window.ready() if (g.first_index or 0) <= selected[-1].index]
    last = max([selected[-1].index, *(g.last_index or 0 for g in ready)])
    observed = [m for m in state.window.messages if m.index <= last]
    tokens = sum(m.tokens for m in observed)
    written = sum(g.observation_tokens for g in ready)
    written += int((tokens - sum(g.message_tokens for g in ready)) * USUAL_SHARE)
    return len(observed), before, before - tokens + written


def _snapshot(state: MemoryState) -> Json:
    """Return the data that only an undo needs.

    These are the buffered groups, the record's last times, the thread's task, and whether only a part of the pending
    messages was sent.
    """
    window, metadata = state.window, state.window.thread.metadata
    return {
        "buffered": [g.id for g in window.buffered],
        "last_buffered_at_tokens": window.record.last_buffered_at_tokens,
        "last_observed_at": window.record.last_observed_at,
        "thread": {
            **{k: metadata.get(k) for k in ("current_task", "suggested_response", "task_index", "last_observed_at")},
            threads.HOLD_LIMITED: state.message_limit is not None or None,
        },
    }


def count_unobserved(state: MemoryState) -> int:
    """Return the tokens of the messages that are in no group yet and may be observed."""
    messages = state.window.observable()
    return sum(m.tokens for m in messages) if any(is_observable(m) for m in messages) else 0


async def observe_rest(observation: Observation) -> bool:
    """Observe all remaining messages and activate the buffered ones; False if that had no effect.

    A running observation is awaited first.
    """
    await observation.join()
    await observation.state.activate_ready()
    return await observation.now(observation.state.window.observable())
