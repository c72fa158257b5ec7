"""Estimate the backlog of a thread: tokens still to be observed, model calls, cost; and pause it."""

from __future__ import annotations

import math

from msgspec import Struct

from sakti.core.events import Backlog
from sakti.core.types import Usage
from sakti.memory.state import MemoryState, Phase
from sakti.providers import facts
from sakti.store import memory as memory_store

SAMPLE = 10_000  # tokens that a price is asked for: no tier for long inputs begins below
USUAL_SHARE = 0.1  # what an observation comes to, as a share of its messages, until the log tells


class Rates(Struct, frozen=True):
    """Prices in US dollars per token."""

    input: float
    output: float


def rates(observer: str) -> Rates | None:
    """Return the prices of `observer` (provider/model); None if unknown, 0 without a model."""
    provider, slash, model = observer.partition("/")
    if not slash:
        return Rates(0.0, 0.0)
    sizes = Usage(input_tokens=SAMPLE), Usage(output_tokens=SAMPLE)
    sample_costs = [facts.cost(usage, provider, model) for usage in sizes]
    costs = [cost / SAMPLE for cost in sample_costs if cost is not None]
    return Rates(*costs) if len(costs) == len(sizes) else None


def estimate_backlog(state: MemoryState, observer: str, rates: Rates | None) -> Backlog | None:
    """Return the backlog of background observation; None if the thread is up to date and not paused.

    The cost is an estimate; the output is in proportion to former observations.
    """
    if not (state.paused or state.phase is Phase.CATCHING_UP):
        return None
    numbers = state.numbers()
    tokens = sum(m.tokens for m in state.window.observable())
    if not tokens and not state.paused:
        return None
    calls = math.ceil(tokens / numbers.threshold) if "/" in observer else 0
    observations = [
        g for g in (*state.window.active, *state.window.buffered) if g.kind == "observation" and g.message_tokens
    ]
    read, written = sum(g.message_tokens for g in observations), sum(g.observation_tokens for g in observations)
    share = written / read if read else USUAL_SHARE
    previous = state.settings.observation.previous_observer_tokens
    cost = None if rates is None else estimate_cost(tokens, calls, rates, previous, share)
    return Backlog(tokens, calls, cost, state.paused)


def estimate_cost(tokens: int, calls: int, rates: Rates, previous: int, share: float = USUAL_SHARE) -> float:
    """Return US dollars: the input is the messages, plus `previous` tokens of the log per call."""
    return (tokens + calls * previous) * rates.input + tokens * share * rates.output


async def mark(state: MemoryState, *, paused: bool) -> None:
    """Pause or resume model calls in the background for this record, in every window.

    Running work finishes its slice. While paused, the newest messages that fit are sent.
    """
    record = state.window.record.id
    await state.write(
        lambda db: memory_store.set_record_metadata(db, record, {memory_store.PAUSED: paused or None}), "edit"
    )
