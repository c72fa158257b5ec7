"""Run one turn for a script."""

from __future__ import annotations

from collections.abc import Callable

from sakti.agent.session.session import Options, Session
from sakti.core.events import Event, TurnFinished


async def ask(
    prompt: str, options: Options | None = None, *, hear: Callable[[Event], None] | None = None
) -> TurnFinished:
    """Answer `prompt` as `sakti run` does and return the result of the turn.

    It has `text`, `status`, `usage`, `thread_id`.

    Without `options` the current folder is the workspace, the user's settings apply, and calls that need approval are
    denied. `hear` gets every event in order. Raises `SaktiError` if there is no model (`NoModelError`), the thread does
    not exist, or the database cannot be opened. Failures during the turn are in its `status` and `error`.
    """
    session = Session(options or Options.load(interactive=False))
    finished: list[TurnFinished] = []

    def listen(event: Event) -> None:
        if isinstance(event, TurnFinished):
            finished.append(event)
        if hear is not None:
            hear(event)

    session.subscribe(listen)
    try:
        await session.start()
        await session.submit(prompt)
        await session.wait()
    finally:
        await session.close()
    return finished[-1]
