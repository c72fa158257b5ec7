"""/compact: observe what is pending, all but the last exchange; and take that back."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Coroutine
from typing import Any

from sakti.core.errors import MemoryFailure
from sakti.core.events import CompactionFinished, Notice
from sakti.core.types import Json, Message
from sakti.memory import policy
from sakti.memory.flow import Flow
from sakti.store import compactions
from sakti.store import memory as memory_store
from sakti.store.compactions import Compaction
from sakti.store.database import Database

# What an observation comes to, as a share of its messages: only for the estimate before a compaction.
USUAL_SHARE = 0.1


def to_compact(flow: Flow, *, whole_turn: bool = True) -> list[Message]:
    """The pending messages before the last exchange: before the newest prompt, or, where nothing stands
    before it (or a turn is under way), before the last step."""
    messages = policy.select_safe_buffer_prefix([m for m in flow.window.messages if m.state == "saved"], by_time=False)
    if whole_turn:
        last = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == "user"), 0)
        if last:
            return list(messages[:last])
        if flow.window.pending < flow.numbers().threshold:
            return []
    cuts = [c for c in policy.safe_cuts(messages) if c < len(messages)]
    return list(messages[: cuts[-1]]) if cuts else []


async def observe_all(flow: Flow, focus: str, *, whole_turn: bool) -> list[Message]:
    """Activate what is ready of `to_compact` and observe the rest of it now; returns what was meant to go. A ready
    group that begins in it goes whole, also where it reaches into the last exchange: groups are never cut."""
    found = to_compact(flow, whole_turn=whole_turn)
    if not found:
        return []
    ready = [g for g in flow.window.ready() if (g.first_index or 0) <= found[-1].index]
    if ready:
        await flow.activate(ready, "threshold", with_reflection=False)
    rest = [m for m in flow.window.uncovered() if m.index <= found[-1].index]
    await flow.observing.now(rest, focus)
    return found


async def _join(flow: Flow) -> None:
    """Until no observation runs."""
    while (running := flow.observing.running()) is not None:
        await asyncio.wait([running])


async def _finishes(work: Coroutine[Any, Any, object]) -> bool:
    """False where the caller was cancelled meanwhile, which is then no longer so."""
    try:
        await work
        return True
    except asyncio.CancelledError:
        if (caller := asyncio.current_task()) is not None:
            caller.uncancel()
        return False


async def compact(flow: Flow, focus: str) -> CompactionFinished:
    """Cancelled while a model works, it ends with what was done by then, as any compaction: recorded, to be taken
    back, and `warnings` says what stays."""
    stopped = not await _finishes(_join(flow))
    window = flow.window
    tokens_before = window.pending + flow.observation_tokens()
    before = _snapshot(flow)
    cursor, known, pending = window.cursor, {g.id for g in window.active}, list(window.messages)
    found = to_compact(flow)
    if not stopped and not await _finishes(observe_all(flow, focus, whole_turn=True)):
        await flow.observing.stop()
        stopped = True
    window = flow.window
    tokens_after = window.pending + flow.observation_tokens()
    made = [g for g in window.active if g.id not in known]
    gone = [m for m in pending if m.index <= window.cursor]
    if not gone:
        why = "Stopped: nothing was changed." if stopped else flow.note
        warnings = (why or "Memory could not observe; nothing was changed.",) if found else ()
        return CompactionFinished(window.record.id, 0, tokens_before, tokens_before, 0, warnings)
    left = sum(1 for m in found if m.index > window.cursor)
    why = "were not observed any more" if stopped else "could not be observed"
    warnings = (f"{left} messages {why} and stay as they are.",) if left else ()
    done = Compaction(
        flow.ids.new(),
        window.thread.id,
        window.thread.resource_id,
        window.record.id,
        focus,
        cursor + 1,
        window.cursor,
        len(gone),
        tuple(m.id for m in gone),
        tuple(g.id for g in made),
        before,
        tokens_before,
        tokens_after,
        flow.clock.now(),
    )

    def record(db: Database) -> tuple[int, int, int]:
        compactions.add_compaction(db, done)
        flow.failpoint("compact.written")
        return compactions.noted(db, done)

    flow.failpoint("compact.observed")
    lines, pinned, doubtful = await flow.store.write(record)
    flow.failpoint("compact.committed")
    return CompactionFinished(
        window.record.id,
        len(gone),
        tokens_before,
        tokens_after,
        lines,
        warnings,
        gone_tokens=sum(m.tokens for m in gone),
        kept=len(window.messages),
        kept_tokens=window.pending,
        pinned=pinned,
        doubtful=doubtful,
    )


async def undo(flow: Flow) -> CompactionFinished | None:
    await _join(flow)
    window = flow.window
    done = await flow.store.read(compactions.last_compaction, window.thread.id)
    if done is None:
        return None

    def take_back(db: Database) -> None:
        compactions.undo_compaction(db, done, flow.clock.now())
        flow.failpoint("uncompact.written")

    try:
        await flow.store.write(take_back)
    except MemoryFailure as e:
        flow.emit(Notice("warning", "The compaction cannot be undone", e.message))
        return None
    flow.failpoint("uncompact.committed")
    reflection = window.reflection
    if reflection is not None and set(reflection.merged_group_ids) & set(done.group_ids):
        await flow.store.write(memory_store.discard, [reflection.id], flow.clock.now())
    await flow.reload()
    window = flow.window
    numbers = flow.numbers()
    flow.hold_until = window.pending + (numbers.buffer or numbers.threshold // 5)
    await flow.store.write(memory_store.set_record_metadata, window.record.id, {"hold_until": flow.hold_until})
    window.record = dataclasses.replace(
        window.record, metadata={**window.record.metadata, "hold_until": flow.hold_until}
    )
    return CompactionFinished(
        window.record.id,
        done.message_count,
        done.tokens_after,
        window.pending + flow.observation_tokens(),
        0,
        undone=True,
    )


def preview(flow: Flow) -> tuple[int, int, int]:
    found = to_compact(flow)
    before = flow.window.pending + flow.observation_tokens()
    if not found:
        return 0, before, before
    ready = [g for g in flow.window.ready() if (g.first_index or 0) <= found[-1].index]
    last = max([found[-1].index, *(g.last_index or 0 for g in ready)])
    gone = [m for m in flow.window.messages if m.index <= last]
    covered = sum(g.message_tokens for g in ready)
    rest = sum(m.tokens for m in gone) - covered
    after = before - covered - rest + sum(g.observation_tokens for g in ready) + int(rest * USUAL_SHARE)
    return len(gone), before, after


def _snapshot(flow: Flow) -> Json:
    window, metadata = flow.window, flow.window.thread.metadata
    return {
        "cursor": window.cursor,
        "buffered": [g.id for g in window.buffered],
        "total_tokens_observed": window.record.total_tokens_observed,
        "observation_token_count": window.record.observation_token_count,
        "last_buffered_at_tokens": flow.buffered_at,
        "last_observed_at": window.record.last_observed_at,
        "pending_tokens": window.pending,
        "thread": {
            k: metadata.get(k) for k in ("current_task", "suggested_response", "task_index", "last_observed_at")
        },
    }
