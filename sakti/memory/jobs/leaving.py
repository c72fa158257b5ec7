"""Observe the remaining messages when the user exits."""

from __future__ import annotations

from sakti.memory.jobs.observation import Observation
from sakti.memory.state import MemoryState
from sakti.memory.worker import observable


def left(state: MemoryState) -> int:
    """Return the tokens of the messages that are in no group yet and may be observed."""
    messages = state.window.observable()
    return sum(m.tokens for m in messages) if any(observable(m) for m in messages) else 0


async def observe_left(observation: Observation) -> bool:
    """Observe all remaining messages and activate the buffered ones; False if that had no effect.

    A running observation is awaited first.
    """
    await observation.join()
    await observation.state.activate_ready()
    return await observation.now(observation.state.window.observable())
