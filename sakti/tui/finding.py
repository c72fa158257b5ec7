"""From a search hit to its place, and back to where one came from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from sakti.core.errors import TaskError
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.store.search import Hit
    from sakti.tui.app import SaktiApp
    from sakti.tui.screens.search import Kept, SearchScreen


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the conversation. `thread_id` is None for a thread in which nothing was said; `message_id` stands at
    the top of the screen, "" at the end."""

    thread_id: str | None
    title: str
    message_id: str = ""
    index: int = 0


class Finding:
    """The part of the app that searches and goes there; `self` is the app."""

    _kept: Kept | None = None  # the last search
    _from: Spot | None = None  # where a visit began
    _visited = ""  # the thread that is visited

    @property
    def _app(self) -> SaktiApp:
        return cast("SaktiApp", self)

    def action_search(self) -> None:
        self.open_search("")

    def open_search(self, query: str) -> None:
        """The search screen: with `query`, or as it was left."""
        from sakti.tui.screens.search import SearchScreen

        screen = SearchScreen(query, None if query else self._kept)
        self._app.push_screen(screen, lambda result: self._found(screen, result))

    def _found(self, screen: SearchScreen, result: Any) -> None:
        self._kept = screen.kept
        if isinstance(result, str):
            self._app.prompt.add(result)
        elif result is not None:
            self._app.go(self.go_to, result, self._kept.text, group="jump", exclusive=True)

    async def go_to(self, hit: Hit, query: str = "") -> None:
        """The place of a search hit: its message, what an observation was made from, the task board."""
        from sakti.tui.screens.search_preview import PassageScreen, passage_of
        from sakti.tui.screens.search_rows import searched_words
        from sakti.tui.transcript.seek import pattern_of

        app, views = self._app, self._app.session.views
        if hit.kind == "task" and (self._on_board(hit) or await self._task_card(hit)):
            return
        message_id, thread_id, index = hit.id, hit.thread_id, hit.position
        if hit.kind != "message":
            origin = await views.origin(hit.id) if hit.kind in ("observation", "reflection") else None
            if origin is None:
                title = hit.kind.replace("_", " ").capitalize()
                app.push_screen(PassageScreen(title, await passage_of(views, hit, query)))
                return
            message_id, thread_id, index = origin.message_id, origin.thread_id, origin.index
        pattern = pattern_of(searched_words(hit, query))
        why = await self._why_not(thread_id, index)
        if why:
            app.push_screen(
                PassageScreen(f"{hit.thread_title or 'untitled'}  {why}", await passage_of(views, hit, query, 10))
            )
        elif thread_id:
            await self._visit(thread_id, message_id, index, pattern)

    def _on_board(self, hit: Hit) -> bool:
        """Put the cursor of the tasks' pane on it; false where it is not there, as what was closed long ago."""
        title = one_line(hit.text.partition("\n")[0], 200)
        tasks = self._app.sidebar.tasks.task_list
        at = next((i for i, row in enumerate(tasks.rows) if row.title == title), None)
        if at is None:
            return False
        self._app.focus_pane("tasks")
        tasks.move_to(at)
        return True

    async def _task_card(self, hit: Hit) -> bool:
        """All about a task that is on the board no more; false where it is another workspace's."""
        from sakti.tui.screens.task_card import TaskCardScreen

        try:
            await self._app.session.views.task(hit.id)
        except TaskError:
            return False
        self._app.push_screen(TaskCardScreen(hit.id))
        return True

    async def open_origin(self, hit: Hit) -> None:
        """Every message that a line of the log was made from."""
        origin = await self._app.session.views.origin(hit.id)
        await self._app.open_sources_of(origin.group_id if origin else hit.id, hit.text)

    async def _why_not(self, thread_id: str | None, index: int) -> str:
        """Why a thread is read here and not opened; "" where it can be."""
        session = self._app.session
        if thread_id is None or (session.thread is not None and thread_id == session.thread.id):
            return ""
        if session.busy:
            return "to read only, while the agent works in your thread"
        there = await session.views.around(thread_id, index, 0, 0)
        if there and there[0].resource_id != session.resource_id:
            return f"to read only: said in {one_line(there[0].resource_id, 80)}"
        return ""

    async def _visit(self, thread_id: str, message_id: str, index: int, pattern: re.Pattern[str] | None) -> None:
        app = self._app
        here = app.session.thread
        if self._from is None:
            self._from = await self._spot()
        self._visited = thread_id
        if here is None or thread_id != here.id:
            await self._open(thread_id)
        await self._land(message_id, index, pattern)
        start = self._from
        app.visit_bar.show("" if start.thread_id == thread_id else start.title or "the new thread")
        app.call_after_refresh(app.transcript.jump, message_id, pattern)  # the bar has taken a line
        app.prompt.focus()

    async def _spot(self) -> Spot:
        """Where the user is."""
        app = self._app
        thread = app.session.thread
        if thread is None or not await app.session.views.transcript(thread.id, limit=1):
            return Spot(None, thread.title if thread else "")
        at = app.transcript.place
        message = await app.session.views.message(at) if at else None
        return Spot(thread.id, thread.title, message.id if message else "", message.index if message else 0)

    async def _open(self, thread_id: str) -> None:
        app = self._app
        await app.session.open_thread(thread_id)
        # what the change of the thread began would end at its newest message
        app.workers.cancel_group(app, "thread")  # pyright: ignore[reportUnknownMemberType]
        await app.load_thread(thread_id)

    async def _land(self, message_id: str, index: int, pattern: re.Pattern[str] | None = None) -> None:
        app = self._app
        if app.transcript.jump(message_id, pattern):
            return
        await app.load_older(index)
        if not app.transcript.jump(message_id, pattern):
            app.say("The message is in this thread, but it shows nothing.")

    def action_go_back(self) -> None:
        self._app.go(self._back, group="jump", exclusive=True)

    async def _back(self) -> None:
        """To where the first of the visits began."""
        app, start = self._app, self._from
        if start is None:
            return
        thread = app.session.thread
        other = thread is None or start.thread_id != thread.id
        if other and app.session.busy:
            app.say("The agent works in this thread: go back when it is done, or stop it with esc.")
            return
        self.action_stay()
        if other and start.thread_id is None:
            await app.session.new_thread()
        elif other and start.thread_id is not None:
            await self._open(start.thread_id)
        if start.message_id:
            await self._land(start.message_id, start.index)
        else:
            app.transcript.scroll_end_now()
        app.prompt.focus()

    def action_stay(self) -> None:
        """The visit is over: this is where the user is."""
        self._from, self._visited = None, ""
        self._app.visit_bar.display = False

    def thread_opened(self, thread_id: str) -> None:
        """Another thread than the visited one ends the visit."""
        if self._visited and thread_id != self._visited:
            self.action_stay()
