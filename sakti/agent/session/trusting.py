"""Decide at the start of a chat whether the workspace's own settings have an effect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sakti.agent import trust
from sakti.core.errors import ConfigError
from sakti.core.events import Notice

if TYPE_CHECKING:
    from sakti.agent.workspace import Workspace


async def settle(workspace: Workspace, ask: Callable[[trust.Look], Awaitable[bool]]) -> None:
    """Look at the workspace and go on with its settings, or without; `ask` is called where the user has to say.

    Only for options that were loaded without asking. An answer of yes is kept where it can be. Raises `ConfigError`.
    """
    if not workspace.options.unasked:
        return
    found = await asyncio.to_thread(trust.look, workspace.root)
    use = not found.asks or await ask(found)
    if found.asks and use:
        try:
            await asyncio.to_thread(trust.save, found)
        except ConfigError as e:  # it holds for this run, and is asked about again in the next
            workspace.emit(Notice("warning", "Trust", e.message))
    workspace.settle_trust(found, use=use)
