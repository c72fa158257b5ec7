"""Declare `/diff`: show what a turn changed in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import CHAT, action, arg
from sakti.actions.undo import THREAD, of_thread
from sakti.actions.values import Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent.checkpoints import undoing


@action(arg("turn", kind="whole", default=1, low=1), chat="diff", hint="[TURN]", needs="session",
        summary="show the file changes of the last turn (2: the turn before it)")  # fmt: skip
async def diff_here(scope: Scope, turn: int) -> Value:
    """Show the file changes of the last turn that changed any; 2 is the one before it."""
    return Text(tuple(await undoing.of_session(scope.session).diff(turn)), kind="diff", title="Diff")


@action(arg("turn", "2: the turn before the last one that changed files.", kind="whole", default=1, low=1), THREAD,
        shell="diff", panel=CHAT, needs="store")  # fmt: skip
async def diff(scope: Scope, turn: int, thread: str) -> Value:
    """Show the file changes of the last turn that changed any."""
    found = tuple(await (await of_thread(scope, thread)).diff(turn))
    return Text(found, kind="diff", json={"diff": "\n".join(found)})
