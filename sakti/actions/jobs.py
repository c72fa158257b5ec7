"""Declare `/jobs`: commands that the agent left running in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action
from sakti.actions.values import Done, Open, Rows, Value, one
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(chat="jobs", needs="session")
async def jobs(scope: Scope) -> Value:
    """List commands in the background, and end them."""

    async def listed() -> Value:
        running = scope.session.background_commands()
        numbers = list(running)

        async def end(number: int) -> Value:
            survivors = await scope.session.end_background(one(numbers, number))
            return Done(f"Still running: {', '.join(survivors)}." if survivors else "The command was ended.")

        return Rows(
            tuple(f"{number}  {one_line(job.command, 200)}" for number, job in running.items()),
            "jobs",
            tuple(running.items()),
            "No command runs in the background.",
            what="ends it",
            pick=end,
        )

    return Open("jobs", instead=listed)
