"""Start: from the first picture to an open session and its panes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sakti.agent.project import trust
from sakti.agent.session import lifecycle
from sakti.agent.session import session as sessions
from sakti.core.lazy import lazy_imports
from sakti.tui.chat.panes import POLL
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.chat.thread_view import SYNC_S
from sakti.tui.host import Host
from sakti.tui.panes.sidebar import PANES

if TYPE_CHECKING:
    from sakti.agent.mcp.config import ServerNeed


with lazy_imports:
    from sakti.tui.screens import threads as thread_screens
    from sakti.tui.screens import trust as trust_screen


class Startup:
    """Opens the session once, after which it is of no more use; `pick_thread` asks for a thread first."""

    def __init__(self, host: Host, chat: ChatScreen, *, pick_thread: bool) -> None:
        self._host, self._chat, self._pick_thread = host, chat, pick_thread

    async def run(self) -> None:
        """Open the store, show the thread, and send messages typed meanwhile.

        Raises `SaktiError`.
        """
        chat, session = self._chat, self._host.session
        try:
            await asyncio.to_thread(sessions.preload)
            await lifecycle.settle_trust(session.workspace, self._ask_trust, self._ask_need)
            await session.start()
        except BaseException:
            chat.conversation.fail()
            raise
        finally:
            chat.show_modes()
            chat.show_saving()
            chat.show_git()
        occupied = bool(chat.conversation.waiting) or self._pick_thread
        if chat.conversation.waiting:
            chat.warm_soon()
        try:
            state = await self._restore()
        finally:
            await chat.conversation.open()
        await chat.welcome.open_once(state, lambda: occupied or self._is_occupied())

    async def _restore(self) -> dict[str, str]:
        """Fill the panes and the prompt from the store; returns the stored state of the window."""
        chat, session = self._chat, self._host.session
        chat.set_interval(SYNC_S, chat.view.sync)
        chat.set_interval(POLL, chat.panes.poll_board)
        chat.panes.load_board()
        state = await session.views.ui_state()
        chat.sidebar.restore(state.get("panes", " ".join(PANES)))
        self._host.appearance.restore(state)
        chat.prompt.history_entries = [*await session.views.history(), *chat.prompt.history_entries]
        await chat.drafts.restore()
        if self._pick_thread:
            await thread_screens.pick_thread(self._host)
        return state

    async def _ask_trust(self, review: trust.TrustReview) -> bool:
        """Ask whether the user trusts the workspace's files, with a list of their effects."""
        return await trust_screen.ask_trust(self._host, review)

    async def _ask_need(self, need: ServerNeed) -> bool:
        """Ask whether an MCP server of the project may have a variable, host or path."""
        return await trust_screen.ask_need(self._host, need)

    def _is_occupied(self) -> bool:
        """Return whether the user types, reads another screen, or waits for an answer."""
        return bool(self._chat.prompt.text or self._host.session.busy or not self._chat.is_current)
