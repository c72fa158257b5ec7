"""Wait before a request, where the window holds more than may be sent unobserved."""

from __future__ import annotations

from sakti.memory import policy
from sakti.memory.jobs.observation import Observation
from sakti.memory.state import NEVER_WAITS, MemoryState
from sakti.memory.window import sync_cut


async def wait_for_messages(state: MemoryState, observation: Observation) -> None:
    """Wait while pending messages exceed `block_after`, or the threshold with nothing buffered or running.

    Ends when that is over or nothing more can be done. The first waiter activates what is buffered, here or in
    another window.
    """
    patient = True
    while state.phase not in NEVER_WAITS:
        numbers, window = state.numbers(), state.window
        running = observation.running()
        if window.pending < numbers.threshold:
            return
        if window.pending <= numbers.block_after and (window.ready() or running):
            return
        before = window.pending
        if running is not None:
            await observation.join()
            await state.activate_due()
            continue
        messages = state.window.uncovered()
        floor = policy.resolve_retention_floor(numbers.activation, numbers.threshold)
        cut = sync_cut(messages, numbers.threshold, floor)
        if state.window.ready() or not cut:
            return
        await observation.now(messages[:cut])
        if observation.elsewhere and patient:
            patient = False
            await observation.join_others()
            await state.activate_due()
        elif state.window.pending >= before and not await state.activate_due():
            return
