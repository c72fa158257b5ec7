"""Declare `/mode` and `/approve`: the agent's mode and approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Card, Done, Value
from sakti.core.config import APPROVAL_MODES
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.core import resources
    from sakti.memory import modes as memory_modes

MODES = ("default", "explore", "bug_fixing", "refactoring", "testing", "debugging", "research")


@action(arg("name", default="", offers=MODES), chat="mode", hint="[MODE]", needs="session")
async def mode(scope: Scope, name: str) -> Value:
    """Choose what the Observer looks for."""
    session = scope.session
    if not name:
        return _list_modes(session.current.mode)
    await session.set_mode(name)
    return Done(f"The Observer now looks for what matters in {session.current.mode}.", title="Mode")


def _list_modes(current: str) -> Card:
    """Return every mode with the first sentence of its file, the current one marked."""
    names = resources.mode_names()
    tasks = ((name, memory_modes.prompt(name, "task").strip().partition(". ")[0].removesuffix(".")) for name in names)
    rows = ((name, f"{'Current. ' if name == current else ''}{task}.") for name, task in tasks)
    return Card("Modes: /mode NAME changes what the Observer looks for", tuple(rows))


@action(arg("name", default="", offers=APPROVAL_MODES), chat="approve", hint="[MODE]", needs="session")
async def approve(scope: Scope, name: str) -> Value:
    """Choose what may run without asking."""
    session = scope.session
    if name:
        session.set_approval_mode(name)
    where = " in this thread" if session.current.may_edit else ""
    return Done(f"Approval is {session.current.approval_mode}{where}; /approve takes {', '.join(APPROVAL_MODES)}.")
