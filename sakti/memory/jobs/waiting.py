"""Wait before a request, where the window holds more than may be sent unobserved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sakti.core.types import Message
from sakti.memory import policy
from sakti.memory.jobs.observation import Observation
from sakti.memory.state import NEVER_WAITS, MemoryState, Signal
from sakti.memory.window import sync_cut

TURN_WAIT_S = 14.0
WITHOUT_MODEL_S = 1.0  # what a job takes at most once its model is not asked


class Patience:
    """Time that a turn may wait for models of memory; a job that outlasted it is not waited for again.

    When it is over, `stand_in` may let a job end without its model; it returns whether it did.
    """

    def __init__(self, limit: float = TURN_WAIT_S, stand_in: Callable[[], bool] = lambda: False) -> None:
        self.limit = self._left = limit
        self._stand_in = stand_in
        self._late: asyncio.Task[object] | None = None

    def renew(self) -> None:
        """Begin a turn."""
        self._left = self.limit

    @property
    def is_over(self) -> bool:
        """Tell whether a job is still running that outlasted a turn's patience."""
        return self._late is not None and not self._late.done()

    async def wait(self, task: asyncio.Task[object]) -> bool:
        """Wait for a job within the turn's remaining time; return whether it ended. It may go on."""
        if task is not self._late:
            started = time.monotonic()
            await asyncio.wait([task], timeout=max(0.0, self._left))
            self._left -= time.monotonic() - started
        if not task.done() and self._stand_in():
            self._left = WITHOUT_MODEL_S
            await asyncio.wait([task], timeout=self._left)
        if not task.done():
            self._late = task
        return task.done()


async def wait_for_messages(state: MemoryState, observation: Observation, patience: Patience) -> None:
    """Wait while pending messages exceed `block_after`, or the threshold with nothing buffered or running.

    Ends when that is over, when nothing more can be done, or with the turn's patience. The first waiter activates what
    is buffered, here or in another window.
    """
    looks_elsewhere = True
    while state.phase not in NEVER_WAITS:
        numbers, window = state.numbers(), state.window
        running = observation.running()
        if window.pending < numbers.threshold:
            return
        if window.pending <= numbers.block_after and (window.ready() or running):
            return
        before = window.pending
        if running is not None:
            state.signal(Signal.WAIT)
            if not await patience.wait(running):
                return
            await state.activate_due()
            continue
        messages = _next_messages(state)
        if not messages or not await patience.wait(observation.begin_now(messages)):
            return
        if observation.elsewhere and looks_elsewhere:
            looks_elsewhere = False
            if not await patience.wait(asyncio.create_task(observation.join_others())):
                return
            await state.activate_due()
        elif state.window.pending >= before and not await state.activate_due():
            return


def _next_messages(state: MemoryState) -> list[Message]:
    """Return the messages that can be observed at once; empty while some are buffered."""
    if state.window.ready():
        return []
    numbers, messages = state.numbers(), state.window.uncovered()
    floor = policy.resolve_retention_floor(numbers.activation, numbers.threshold)
    return messages[: sync_cut(messages, numbers.threshold, floor)]
