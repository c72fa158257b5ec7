"""Declare `/jobs`: commands of the agent in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action
from sakti.actions.values import Done, Open, Rows, Value, one

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(chat="jobs", needs="session")
async def jobs(scope: Scope) -> Value:
    """List commands in the background, and end them."""

    async def listed() -> Value:
        jobs = scope.session.list_jobs()
        numbers = list(jobs)

        async def end(number: int) -> Value:
            survivors = await scope.session.end_background(one(numbers, number))
            return Done(f"Still running: {', '.join(survivors)}." if survivors else "The command was ended.")

        return Rows(
            tuple(f"{number}  {scope.session.describe_job(job)}" for number, job in jobs.items()),
            "jobs",
            tuple(jobs.items()),
            "No command was left running in the background.",
            what="ends it",
            pick=end,
        )

    return Open("jobs", instead=listed)
