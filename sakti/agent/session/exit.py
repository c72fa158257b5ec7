"""Leave with `memory.observe_on_exit`: first observe pending messages, visibly and limited in time."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from sakti.core.text import count_k

if TYPE_CHECKING:
    from sakti.agent.session.session import Session

LIMIT_S = 60.0


async def observe_on_exit(
    session: Session, say: Callable[[str], None], *, limit: float = LIMIT_S, skipped: asyncio.Event | None = None
) -> None:
    """Observe pending messages at the end, if the setting is on and memory observes anything.

    Ctrl+c, `skipped` or `limit` seconds end it; what was not observed is when the thread goes on. Never raises for a
    failure of memory.
    """
    skipped = skipped or asyncio.Event()
    if skipped.is_set():
        return
    settings = session.workspace.config.memory
    if not settings.observe_on_exit or not settings.enabled or settings.read_only or session.thread is None:
        return
    await session.interrupt()
    tokens = session.current.engine.left()
    if not tokens:
        return
    say(f"Observing {count_k(tokens)} tokens before leaving; ctrl+c skips it.")
    loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
    with contextlib.suppress(NotImplementedError, RuntimeError):
        loop.add_signal_handler(signal.SIGINT, skipped.set)
    work, skip = asyncio.create_task(session.current.engine.observe_left()), asyncio.create_task(skipped.wait())
    try:
        await asyncio.wait([work, skip], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if work.done() and not work.cancelled() and work.exception() is None and work.result():
            return
        why = "Skipped" if skipped.is_set() else f"Not finished in {limit:g} s" if not work.done() else "It failed"
        say(f"{why}: it is observed when the thread continues.")
    finally:
        for task in (work, skip):
            task.cancel()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)
