"""Declare `/mode`, `/approve` and `/plan`: the agent's mode, approvals, and the approved plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Card, Done, Text, Value
from sakti.core.config import APPROVAL_MODES
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

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
