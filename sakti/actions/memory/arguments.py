"""Arguments shared by memory commands: the selected memory, or an error without one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sakti.actions.spec import SET, option
from sakti.actions.values import Refused

if TYPE_CHECKING:
    from sakti.actions.scope import Models, Scope
    from sakti.agent.session.session import Session

THREAD = option("--thread", metavar="THREAD", help="Id or part of the title (default: the last thread).",
                offers="threads")  # fmt: skip
WHERE = (THREAD, SET)  # what a run passes on as `**where`
NO_THREAD = "There is no thread in this workspace yet."


@asynccontextmanager
async def remembered(
    scope: Scope, *, thread: str | None = None, overrides: Sequence[str] = (), models: Models = "none"
) -> AsyncGenerator[Session]:
    """Open a session on a thread to read or change its memory. Raises Refused without a thread."""
    async with scope.memory(thread, overrides, models) as session:
        if session.thread is None:
            raise Refused(NO_THREAD)
        yield session
