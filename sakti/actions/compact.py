"""Declare `/compact`: observe now, show the result, undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.actions.spec import action, arg
from sakti.actions.values import Done, Open, Text, Value
from sakti.core.lazy import lazy_imports
from sakti.core.text import count_k, counted, one_line

if TYPE_CHECKING:
    from sakti.actions.scope import Scope


with lazy_imports:
    from sakti.agent.threads import history


@action(
    arg("focus", default=""),
    chat="compact",
    needs="session",
    summary="summarise older messages now; `undo` restores them, `diff` shows what the last one did",
    hint="[focus | diff | undo]",
)
async def compact(scope: Scope, focus: str) -> Value | None:
    """Summarise older messages now: observe everything but the last exchange."""
    session = scope.session
    await session.require_thread()
    await session.follow()
    messages, before, after = session.compact_preview()
    if not messages:
        status = session.current.status
        if status is None or not status.observations.tokens:
            return Done("Nothing to compact yet: the last exchange is kept as it is.")
        return Done("Nothing to compact: everything but the last exchange is already observed.")
    scope.tell(
        Done(f"{counted(messages, 'message')}, {count_k(before)} → ~{count_k(after)} tokens", title="Compacting")
    )
    status = session.current.status
    who = one_line(status.observer, 40) if status is not None else "memory"
    with scope.working(f"compacting: {who} reads {counted(messages, 'message')}"):
        await session.compact(focus)
    return None  # the event says what it did


@action(chat="compact diff", needs="session")
async def diff(scope: Scope) -> Value:
    """Show the log before and after the last compaction."""
    thread, store = scope.session.thread, scope.session.workspace.store
    last = await store.read(history.read_compaction, thread.id) if thread is not None else None
    if last is None:
        return Done("No compaction in this thread, or it was undone.")

    async def text() -> Value:
        return Text((last.diff(),), kind="diff")

    return Open("compaction", last, text)


@action(chat="compact undo", needs="session")
async def undo(scope: Scope) -> Value | None:
    """Undo the last compaction: its messages return to the window."""
    return None if await scope.session.undo_compaction() else Done("There is no compaction to undo.")
