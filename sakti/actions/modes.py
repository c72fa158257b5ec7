"""Declare `/mode` and `/approve`: what is looked for, and what may run without asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Done, Value
from sakti.core.config import APPROVAL_MODES

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

MODES = ("default", "explore", "bug_fixing", "refactoring", "testing", "debugging", "research")


@action(arg("name", default=""), chat="mode", hint="[MODE]", choices=MODES, needs="session")
async def mode(scope: Scope, name: str) -> Value:
    """Choose what the Observer looks for."""
    session = scope.session
    if not name:
        return Done(f"The mode is {session.mode}; /mode NAME changes it.")
    await session.set_mode(name)
    return Done(f"The Observer now looks for what matters in {session.mode}.", title="Mode")


@action(arg("name", default=""), chat="approve", hint="[MODE]", choices=APPROVAL_MODES, needs="session")
async def approve(scope: Scope, name: str) -> Value:
    """Choose what may run without asking."""
    session = scope.session
    if name:
        session.set_approval_mode(name)
    return Done(f"Approval is {session.approval_mode}; /approve takes {', '.join(APPROVAL_MODES)}.")
