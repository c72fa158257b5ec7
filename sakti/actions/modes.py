"""Declare `/mode`, `/approve`, `/plan` and `/agents`: how the agent works here, and with whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Card, Done, Open, Rows, Text, Value, one
from sakti.core.config import APPROVAL_MODES
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope
    from sakti.store.threads.child_runs import ChildRun

with lazy_imports:
    from sakti.agent import plans
    from sakti.memory import modes as memory_modes


@action(arg("name", default="", offers="modes"), chat="mode", hint="[MODE]", needs="session")
async def mode(scope: Scope, name: str) -> Value:
    """Change the agent's instructions, its tools, and what memory keeps."""
    session = scope.session
    if not name:
        return _list_modes(session.current.mode)
    await session.set_mode(name)
    return Done(f"The mode is {name}: {memory_modes.describe(name)}", title="Mode")


def _list_modes(current: str) -> Card:
    """Return every mode with one sentence about it, the current one marked."""
    rows = ((n, f"{'Current. ' if n == current else ''}{text}") for n, text in memory_modes.descriptions().items())
    return Card("Modes: /mode NAME changes how the agent works and what is remembered", tuple(rows))


@action(arg("name", default="", offers=APPROVAL_MODES), chat="approve", hint="[MODE]", needs="session")
async def approve(scope: Scope, name: str) -> Value:
    """Choose what may run without asking."""
    session = scope.session
    if name:
        session.set_approval_mode(name)
    where = " in this thread" if session.current.may_edit else ""
    return Done(f"Approval is {session.current.approval_mode}{where}; /approve takes {', '.join(APPROVAL_MODES)}.")


@action(chat="plan", needs="session")
async def plan(scope: Scope) -> Value:
    """Show the plan that was approved in this thread."""
    thread = scope.session.thread
    current = plans.current(thread.metadata) if thread is not None else None
    if current is None:
        return Done("No plan was approved in this thread. In plan mode the agent proposes one.", title="Plan")
    return Text(tuple(plans.to_markdown(current).split("\n")), title="Plan")


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
