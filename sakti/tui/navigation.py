"""Going from one thing to another: threads, older messages, panes, screens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from textual.widget import Widget

from sakti.core.types import Message
from sakti.tui import finding, following, in_thread
from sakti.tui.panes.observations import ObservationRow

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp

PAGE = 200  # messages that are loaded at once


class Navigation(finding.Finding, following.Following, in_thread.InThread):
    """The part of the app that fetches and shows; `self` is the app."""

    _oldest: int | None = None  # index of the oldest message that is loaded

    @property
    def _me(self) -> SaktiApp:
        return cast("SaktiApp", self)

    # --- loading ----------------------------------------------------------------------------------------------

    async def load_thread(self, thread_id: str) -> None:
        """Show a thread from its newest messages."""
        messages = await self._me.session.views.transcript(thread_id, limit=PAGE)
        self._show_page(messages)
        self.load_observations()

    def _show_page(self, messages: Sequence[Message]) -> None:
        self._oldest = messages[0].index if messages else None
        app = self._me
        if messages or app.transcript.live.speaking:
            app.transcript.load(messages, more=len(messages) >= PAGE)
        else:
            app.transcript.begin_empty()

    async def load_older(self, until: int | None = None) -> None:
        """A page above what is shown; with `until`, so much that the message of that index is loaded."""
        app = self._me
        thread = app.session.thread
        if thread is None or not self._oldest:
            return
        limit = PAGE if until is None else max(PAGE, self._oldest - until + 20)
        messages = await app.session.views.transcript(thread.id, before=self._oldest, limit=limit)
        if messages:
            self._oldest = messages[0].index
        app.transcript.load_older(messages, more=len(messages) >= limit)

    def load_board(self) -> None:
        self._me.go(self._load_board, group="board", exclusive=True)

    async def _load_board(self) -> None:
        self._me.sidebar.tasks.show(await self._me.session.views.board())

    def load_observations(self) -> None:
        self._me.go(self._load_observations, group="observations", exclusive=True)

    async def _load_observations(self) -> None:
        views, side = self._me.session.views, self._me.sidebar
        side.observations.show(await views.observations(), await views.moments())
        side.memory.figures = await views.memory_figures()
        side.memory.events = await views.memory_events()

    # --- panes ------------------------------------------------------------------------------------------------

    def action_pane(self, pane: str) -> None:
        shows = self._me.sidebar.toggle(pane)
        if shows and pane != "memory" and self._me.sidebar.narrow:
            self._pane_list(pane).focus()
        elif not shows:
            self._me.prompt.focus()
        self._remember_panes()

    def action_panes(self) -> None:
        self._me.sidebar.toggle_all()
        self._me.prompt.focus()
        self._remember_panes()

    def _remember_panes(self) -> None:
        app = self._me
        if not app.sidebar.narrow:
            app.go(app.session.views.set_ui_state, "panes", app.sidebar.state, group="state")

    def focus_pane(self, pane: str) -> None:
        """Show a pane and go into it."""
        side = self._me.sidebar
        if pane not in side.open_panes:
            side.toggle(pane)
        self._pane_list(pane).focus()

    def _pane_list(self, pane: str) -> Widget:
        side = self._me.sidebar
        return side.observations.log_list if pane == "log" else side.tasks.task_list

    # --- screens ----------------------------------------------------------------------------------------------

    async def open_sources(self, row: ObservationRow) -> None:
        await self.open_sources_of(row.group_id, row.text)

    async def open_sources_of(self, group_id: str, text: str) -> None:
        """The raw messages that an observation was made from."""
        from sakti.tui.screens.text import SourceScreen

        messages = await self._me.session.views.sources(group_id)
        self._me.push_screen(SourceScreen(text, messages))

    def action_threads(self) -> None:
        self._me.go(self.pick_thread, group="threads", exclusive=True)

    async def pick_thread(self) -> None:
        from sakti.tui.screens.threads import ThreadsScreen

        session = self._me.session
        summaries = await session.views.threads()
        current = session.thread.id if session.thread else ""
        self._me.push_screen(ThreadsScreen(summaries, session.clock.now(), current), self._picked_thread)

    def _picked_thread(self, summary: Any) -> None:
        if summary is not None:
            self._me.go(self._me.session.open_thread, summary.thread.id, group="open", exclusive=True)

    async def pick_model(self) -> None:
        from sakti.tui.screens.lists import ModelsScreen

        session = self._me.session
        models = await session.views.models()
        self._me.push_screen(ModelsScreen(models, session.model.model if session.model else None), self._picked_model)

    def _picked_model(self, name: str | None) -> None:
        if name:
            self._me.go(self._me.session.set_model, name, group="model", exclusive=True)

    def pick_theme(self) -> None:
        from sakti.tui.screens.lists import ThemesScreen

        self._me.push_screen(ThemesScreen(self._me.theme), self._picked_theme)

    def _picked_theme(self, name: str | None) -> None:
        if name:
            self._me.theme = name
            self._me.go(self._me.session.views.set_ui_state, self._me.theme_key, name, group="state")

    def action_help(self) -> None:
        from sakti.tui.screens.help import HelpScreen

        self._me.push_screen(HelpScreen(self._me))

    # --- the conversation -------------------------------------------------------------------------------------

    def action_scroll_chat(self, step: int) -> None:
        chat = self._me.transcript
        match step:
            case -2:
                chat.scroll_home(animate=False)
            case 2:
                chat.scroll_end_now()
            case -1:
                chat.scroll_page_up(animate=False)
            case _:
                chat.scroll_page_down(animate=False)

    def action_unfold(self) -> None:
        self._me.transcript.action_unfold()

    def action_copy_answer(self) -> None:
        """The last answer's Markdown into the clipboard (OSC 52)."""
        text = self._me.transcript.last_answer
        if text:
            self._me.copy_to_clipboard(text)

    def action_retry(self) -> None:
        self._me.go(self._me.session.retry, group="command")

    def action_unqueue(self) -> None:
        session = self._me.session
        if session.queued:
            text = session.unqueue(len(session.queued) - 1)
            if text is not None and not self._me.prompt.text:
                self._me.prompt.put(text)
