"""Report memory in numbers, the same as in the request, and the backlog."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from sakti.core.events import Backlog, BufferedObservations, BufferedReflection, Gauge, MemoryStatus
from sakti.core.types import Usage
from sakti.memory import policy
from sakti.memory.phases import RESTING, Phase, ReflectionPhase
from sakti.memory.state import MemoryState
from sakti.memory.window import sync_cut
from sakti.providers import facts
from sakti.store import memory as memory_store
from sakti.store.threads import threads


class Rates(Struct, frozen=True):
    """Prices in US dollars per token."""

    input: float
    output: float


class MemoryModels(Struct, frozen=True):
    """Names of the models of memory, the Observer's rates (None: unknown), and the reason for the choice."""

    observer: str
    reflector: str
    rates: Rates | None = None
    reason: str = ""


def build_status(state: MemoryState, models: MemoryModels, step: int, *, running: bool) -> MemoryStatus:
    """Return the status shown in the panes; `running`: this process is observing."""
    window, numbers = state.window, state.numbers
    ready = window.ready()
    chunks = [g.message_tokens for g in ready]
    reflection = window.reflection
    merged = set(reflection.merged_group_ids) if reflection else set[str]()
    return MemoryStatus(
        window.record.id,
        window.thread.id,
        step,
        window.record.generation_count,
        Gauge(window.pending, numbers.threshold),
        Gauge(state.observation_tokens, numbers.reflect_at),
        BufferedObservations(
            len(ready),
            sum(chunks),
            policy.calculate_projected_message_removal(chunks, numbers.activation, numbers.threshold, window.pending),
            sum(g.observation_tokens for g in ready),
            "running" if running else "complete" if ready else "idle",
        ),
        BufferedReflection(
            sum(g.observation_tokens for g in window.active if g.id in merged),
            reflection.observation_tokens if reflection else 0,
            _REFLECTION.get(state.reflection_phase, "idle"),
        ),
        models.observer,
        models.reflector,
        state.counter.approximate,
        _find_next_boundary(state, numbers),
        _explain(state, numbers, waits=running or bool(ready)),
        models.reason,
        estimate_backlog(state, models.observer, models.rates),
        _retry_at(state),
        str(state.phase),
    )


_REFLECTION: dict[ReflectionPhase, Literal["running", "complete"]] = {
    ReflectionPhase.RUNNING: "running",
    ReflectionPhase.READY: "complete",
}


def _find_next_boundary(state: MemoryState, numbers: policy.Numbers) -> int | None:
    last = state.window.record.last_buffered_at_tokens
    return None if state.phase in RESTING else compute_next_boundary(state.window.pending, last, numbers)


def _retry_at(state: MemoryState) -> int | None:
    return state.retry.time if state.retry.failures and state.phase not in RESTING else None


def _explain(state: MemoryState, numbers: policy.Numbers, *, waits: bool) -> str:
    return _explain_rest(state) or state.note or _explain_delay(state, numbers, waits=waits) or numbers.why


def _explain_rest(state: MemoryState) -> str:
    """Explain why automatic observation or reflection is off, and how to continue; empty if it is on."""
    if state.phase is Phase.SUSPENDED:
        hold = state.window.thread.metadata.get(threads.HOLD)
        until = f" until {hold:,} tokens of messages" if hold else ""
        return f"Your undo paused automatic observation{until}; /compact observes now."
    if state.phase is Phase.PAUSED:
        return "Observation is paused; /memory resume continues. The newest messages that fit are sent."
    return ""


def _explain_delay(state: MemoryState, numbers: policy.Numbers, *, waits: bool) -> str:
    """Explain why much is pending although nothing is buffered or running; else empty."""
    window = state.window
    if state.settings.read_only:
        return "memory is read-only: nothing is observed"
    if state.reflection_phase is ReflectionPhase.SUSPENDED:
        return "Your undo paused automatic reflection until the log has grown; sakti memory reflect condenses it now."
    if state.observation_tokens > numbers.reflect_at:
        return "The observations are above their limit: the next step condenses them"
    if window.pending < numbers.threshold or waits:
        return ""
    if state.phase is Phase.CATCHING_UP:
        return "Observed in the background, oldest first; the newest messages that fit are sent"
    floor = policy.resolve_retention_floor(numbers.activation, numbers.threshold)
    if sync_cut(window.find_uncovered_messages(), numbers.threshold, floor) == 0:
        return "the current exchange alone fills the threshold: it is observed when it ends"
    return ""


def compute_next_boundary(pending: int, last: int, numbers: policy.Numbers) -> int | None:
    """Return the pending tokens at which the next background observation starts."""
    if numbers.buffer is None:
        return None
    step = numbers.buffer / 2 if pending >= numbers.threshold - numbers.buffer * 1.1 else numbers.buffer
    last = 0 if last > pending else last
    return int((max(last, 0) // step + 1) * step)


SAMPLE = 10_000  # tokens of a price query: below the tiers for long inputs
USUAL_SHARE = 0.1  # usual size of an observation, as a share of its messages, until the log has its own


def find_rates(observer: str) -> Rates | None:
    """Return the prices of `observer` (provider/model); None if unknown, 0 without a model."""
    provider, slash, model = observer.partition("/")
    if not slash:
        return Rates(0.0, 0.0)
    sizes = Usage(input_tokens=SAMPLE), Usage(output_tokens=SAMPLE)
    sample_costs = [facts.compute_cost(usage, provider, model) for usage in sizes]
    costs = [cost / SAMPLE for cost in sample_costs if cost is not None]
    return Rates(*costs) if len(costs) == len(sizes) else None


def estimate_backlog(state: MemoryState, observer: str, rates: Rates | None) -> Backlog | None:
    """Return the backlog of background observation; None if the thread is up to date and not paused.

    The cost is an estimate that assumes the output share of earlier observations.
    """
    if not (state.is_paused or state.phase is Phase.CATCHING_UP):
        return None
    numbers = state.numbers
    tokens = sum(m.tokens for m in state.window.observable())
    if not tokens and not state.is_paused:
        return None
    calls = math.ceil(tokens / numbers.threshold) if "/" in observer else 0
    previous = state.settings.observation.previous_observer_tokens
    cost = None if rates is None else estimate_cost(tokens, calls, rates, previous, _compute_output_share(state))
    return Backlog(tokens, calls, cost, state.is_paused)


def _compute_output_share(state: MemoryState) -> float:
    """Return the observation tokens per message token in the thread's log."""
    groups = (*state.window.active, *state.window.buffered)
    observations = [g for g in groups if g.kind == "observation" and g.message_tokens]
    read, written = sum(g.message_tokens for g in observations), sum(g.observation_tokens for g in observations)
    return written / read if read else USUAL_SHARE


def estimate_cost(tokens: int, calls: int, rates: Rates, previous: int, share: float = USUAL_SHARE) -> float:
    """Estimate US dollars: the input is the messages, plus `previous` tokens of the log per call."""
    return (tokens + calls * previous) * rates.input + tokens * share * rates.output


async def set_paused(state: MemoryState, *, paused: bool) -> None:
    """Pause or resume model calls in the background for this record, in every window.

    Running work finishes its slice. While paused, the newest messages that fit are sent.
    """
    record = state.window.record.id
    await state.write(
        lambda db: memory_store.set_record_metadata(db, record, {memory_store.PAUSED: paused or None}), "edit"
    )
