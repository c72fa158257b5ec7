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

    Without `options` the current folder is the workspace, with the user's settings, and nobody is asked for approval.
    `hear` gets every event in order. Raises `SaktiError`: no model (`NoModelError`), a thread that is not there, a
    database that cannot be opened; what fails during the turn is its `status` and `error`.
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
