"""Declare `/redo`: undo an undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import CHAT, action
from sakti.actions.undo import THREAD, of_thread, said
from sakti.actions.values import Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent.checkpoints import undoing


@action(chat="redo", needs="session")
async def redo_here(scope: Scope) -> Value:
    """Undo the last undo: its files and its conversation."""
    return said(await undoing.of_session(scope.session).redo(), redo=True)


@action(THREAD, shell="redo", panel=CHAT, needs="store")
async def redo(scope: Scope, thread: str) -> Value:
    """Undo the last undo of a thread. Exit 1: a file was left as it is."""
    result = await (await of_thread(scope, thread)).redo()
    left = [*result.left, *result.kept]
    return Text(said(result, redo=True).lines, json={"left": left}, exit=int(bool(left)))
