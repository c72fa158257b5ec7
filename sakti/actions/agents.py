"""Declare `/agents`: the child threads of this thread, and the custom agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action
from sakti.actions.values import Done, Open, Rows, Text, Value, one
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.store.threads.child_runs import ChildRun


@action(chat="agents", needs="session")
async def agents(scope: Scope) -> Value:
    """List the child threads of this thread, and the custom agents."""
    children = scope.session.children

    async def listed() -> Value:
        runs = await children.stored()

        async def use(number: int) -> Value:
            run = one(runs, number)
            if await children.stop(run.child_id):
                return Done(f"The child thread {run.child_id[-8:]} was stopped; its partial report is delivered.")
            return Text((str((run.report or {}).get("block", "It wrote no report.")),))

        custom = [f"{a.name}: {one_line(a.description, 100)} ({a.source})" for a in children.custom]
        return Rows(
            tuple(f"{run.child_id[-8:]}  {describe(run)}" for run in runs),
            "agents",
            tuple(runs),
            "This thread has no child threads.",
            tail="\n".join(["Custom agents:", *custom]) if custom else "No custom agents.",
            what="stops it, or shows its report",
            pick=use,
        )

    return Open("agents", instead=listed)


def describe(run: ChildRun) -> str:
    """Return a child in a line: its agent, its goal, and how it ended."""
    marks = str((run.report or {}).get("marks", "")) or run.state
    return f"{run.agent or run.mode}  {one_line(run.goal, 120)}  {'running' if run.state == 'running' else marks}"
