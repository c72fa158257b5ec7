"""What is left to observe when the user leaves, and observing it."""

from __future__ import annotations

import asyncio

from sakti.memory.flow import Flow
from sakti.memory.work import observable


def left(flow: Flow) -> int:
    """Tokens of the messages that are in no group yet and may be observed."""
    messages = flow.window.observable()
    return sum(m.tokens for m in messages) if any(observable(m) for m in messages) else 0


async def observe_left(flow: Flow) -> bool:
    """Put all of it into the log, with what was ready before; False when nothing came of it. A running observation is
    waited for, what it leaves is done after it."""
    while (running := flow.observing.running()) is not None:
        await asyncio.wait([running])
    if ready := flow.window.ready():
        await flow.activate(ready, "threshold", with_reflection=False)
    return await flow.observing.now(flow.window.observable())
