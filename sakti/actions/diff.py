"""Declare `/diff`: show what a turn changed in files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import CHAT, action, arg
from sakti.actions.undo import THREAD, of_thread
from sakti.actions.values import Text, Value

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


@action(
    arg("turn", "2: the turn before the last one that changed files.", kind="whole", default=1, low=1),
    THREAD,
    shell="diff",
    chat="diff",
    panel=CHAT,
    needs="store",
    hint="[TURN]",
    summary="show the file changes of the last turn (2: the turn before it)",
)
async def diff(scope: Scope, turn: int, thread: str) -> Value:
    """Show the file changes of the last turn that changed any."""
    lines = tuple(await (await of_thread(scope, thread)).diff(turn))
    return Text(lines, kind="diff", title="Diff", json={"diff": "\n".join(lines)})
