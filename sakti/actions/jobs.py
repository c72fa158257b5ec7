"""Declare `/jobs` and `/btw`: commands in the background, and questions beside the thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import USAGE, Done, Open, Refused, Rows, Value, one

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(chat="jobs", needs="session")
async def jobs(scope: Scope) -> Value:
    """List commands in the background, and end them."""

    async def list_rows() -> Value:
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

    return Open("jobs", instead=list_rows)


@action(arg("question", default="", metavar="QUESTION"), chat="btw", hint="QUESTION", needs="session",
        summary="ask a side question: the thread is not changed")  # fmt: skip
async def btw(scope: Scope, question: str) -> Value | None:
    """Ask the model a question beside the thread, also while it works."""
    if not question.strip():
        raise Refused(
            "Write a question after /btw; it is answered beside the thread, which stays as it is.", code=USAGE
        )
    scope.session.turns.aside.ask(question.strip())
    return None
