"""Decide at the start of a chat whether the workspace's own settings have an effect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sakti.agent.project import trust
from sakti.core.errors import ConfigError
from sakti.core.events import Notice

if TYPE_CHECKING:
    from sakti.agent.workspace import Workspace


async def settle(workspace: Workspace, ask: Callable[[trust.TrustReview], Awaitable[bool]]) -> None:
    """Review the workspace and apply its settings or not; `ask` lets the user decide if needed.

    Only for options that were loaded without asking. An answer of yes is kept where it can be. Raises `ConfigError`.
    """
    if not workspace.options.unasked:
        return
    review = await asyncio.to_thread(trust.review, workspace.root)
    use = not review.asks or await ask(review)
    if review.asks and use:
        try:
            await asyncio.to_thread(trust.save, review)
        except ConfigError as e:  # it holds for this run, and is asked about again in the next
            workspace.emit(Notice("warning", "Trust", e.message))
    workspace.settle_trust(review, use=use)
