"""Declare `/redo`: undo an undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import CHAT, action, arg, flag
from sakti.actions.undo import THREAD, how_conflicts, lines, of_thread, said
from sakti.actions.values import USAGE, Open, Refused, Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.actions.scope import Scope

with lazy_imports:
    from sakti.agent.checkpoints import undoing

WORDS = ("yes", "all")


@action(arg("words", default="", offers=WORDS), chat="redo", needs="session",
        summary="undo the last undo; files changed since then are shown first")  # fmt: skip
async def redo_here(scope: Scope, words: str) -> Value | None:
    """Undo the last undo: its files and its conversation. Where files changed since, they are shown first."""
    given = words.split()
    if not set(given) <= set(WORDS):
        raise Refused("Write /redo.", code=USAGE)
    found = undoing.of_session(scope.session)
    preview = await found.redo_preview()

    async def instead() -> Value:
        if not given and preview.plan.conflicts:
            how = how_conflicts(preview, "/redo yes all")
            return Text((*lines(preview), "/redo yes does it.", *how), title="Redo")
        take = [i.path for i in preview.plan.conflicts] if "all" in given else []
        return said(await found.redo(preview, take=take), redo=True)

    return Open("redo", (found, preview), instead) if preview.plan.conflicts and not given else await instead()


@action(
    flag("--restore-conflicts", help="Also restore files that someone else has changed since."),
    THREAD,
    shell="redo",
    panel=CHAT,
    needs="store",
)
async def redo(scope: Scope, restore_conflicts: bool, thread: str) -> Value:
    """Undo the last undo of a thread. Exit 1: a file was left as it is."""
    found = await of_thread(scope, thread)
    preview = await found.redo_preview()
    take = [i.path for i in preview.plan.conflicts] if restore_conflicts else []
    result = await found.redo(preview, take=take)
    left = [*result.left, *result.kept]
    return Text(said(result, redo=True).lines, json={"left": left}, exit=int(bool(left)))
