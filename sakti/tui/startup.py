"""Start, from the first picture to an open session: what is typed meanwhile waits, or is given back."""

from __future__ import annotations

import asyncio
import contextlib
import gc

from sakti.agent import workspace
from sakti.agent.project import trust
from sakti.agent.session import trusting
from sakti.core.errors import StoreError
from sakti.core.lazy import lazy_imports
from sakti.tui.chat.panes import POLL
from sakti.tui.chat.screen import ChatScreen
from sakti.tui.chat.thread_sync import LOOK
from sakti.tui.chat.welcome import Welcome
from sakti.tui.commands import Commands
from sakti.tui.host import Host
from sakti.tui.panes.sidebar import PANES
from sakti.tui.transcript.markdown import warm_renderers

with lazy_imports:
    from sakti.tui.screens import threads as thread_screens


class Startup:
    """Opens the session once; `prompt` is sent then, `pick_thread` asks for a thread before."""

    def __init__(
        self,
        host: Host,
        chat: ChatScreen,
        commands: Commands,
        welcome: Welcome,
        *,
        prompt: str | None,
        pick_thread: bool,
    ) -> None:
        self._host, self._chat, self._commands, self._welcome = host, chat, commands, welcome
        self._prompt, self._pick_thread = prompt, pick_thread
        self._opened = self._failed = self._warmed = False
        self._waiting: list[str] = []

    async def run(self) -> None:
        """Open the store, then show what it holds. Raises `SaktiError` where it cannot be opened."""
        chat, session = self._chat, self._host.session
        try:
            await asyncio.to_thread(workspace.preload)
            await trusting.settle(session.workspace, self._ask_trust)
            await session.start()
        except BaseException:
            self._failed = True
            for text in self._waiting:
                self._give_back(text)
            raise
        finally:
            chat.show_modes()
            chat.show_saving()
            chat.show_git()
        self._opened = True
        if self._prompt:
            self._host.go(self.warm, group="warm")
        chat.set_interval(LOOK, chat.sync.look)
        chat.set_interval(POLL, chat.panes.poll_board)
        chat.panes.load_board()
        state = await session.views.ui_state()
        chat.sidebar.restore(state.get("panes", " ".join(PANES)))
        self._host.appearance.restore(state)
        chat.prompt.history_entries = [*await session.views.history(), *chat.prompt.history_entries]
        await chat.drafts.restore()
        if self._pick_thread:
            await thread_screens.pick_thread(self._host)
        for text in ([self._prompt] if self._prompt else []) + self._waiting:
            await self._commands.run(text)
        await self._welcome.open_once(state, self._occupied)

    async def _ask_trust(self, review: trust.TrustReview) -> bool:
        """Ask whether the user trusts the workspace's files, with a list of their effects."""
        from sakti.tui.screens.trust import TrustScreen  # most folders have nothing to trust

        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._host.push(
            TrustScreen(review, self._host.session.workspace.clock),
            lambda given: None if answer.done() else answer.set_result(bool(given)),
        )
        return await answer

    def _occupied(self) -> bool:
        """Return whether the user is in the middle of something, or came for something."""
        asked = self._prompt or self._waiting or self._pick_thread
        return bool(asked or self._chat.prompt.text or self._host.session.busy or not self._chat.is_current)

    def submit(self, text: str) -> None:
        """Run what was sent from the prompt; before the session is open it waits."""
        self._host.note("")
        if self._failed and not text.startswith("/"):
            self._give_back(text)
        elif not self._opened and not self._failed:
            self._waiting.append(text)
        else:
            self._host.go(self._commands.run, text, group="command")
            self._host.go(self._remember, text, group="history")

    def _give_back(self, text: str) -> None:
        """Put what nothing can take into the prompt again."""
        self._chat.conversation.give_back(text)
        self._host.note("sakti could not start; the problem is shown above")

    async def _remember(self, text: str) -> None:
        if not text.startswith("/quit"):
            with contextlib.suppress(StoreError):  # whatever was typed says itself what is wrong
                await self._host.session.views.add_history(text)

    async def warm(self) -> None:
        """Load what the first answer needs, while it is being asked for; once."""
        if self._warmed:
            return
        self._warmed = True
        await self._host.session.warm()
        self._chat.show_modes()  # what holds commands is known now
        await asyncio.to_thread(warm_renderers)
        gc.freeze()  # a full collection need not walk the modules that stay for good
