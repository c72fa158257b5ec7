"""Go from a search hit to its place, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line
from sakti.tui.chat.loader import ThreadLoader
from sakti.tui.chat.panes import Panes
from sakti.tui.host import Host
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.transcript import Transcript
from sakti.tui.widgets.visit import VisitBar

if TYPE_CHECKING:
    from sakti.store.search.search import Hit
    from sakti.tui.screens.search import Kept, SearchScreen

with lazy_imports:
    from sakti.tui.screens import search as search_screen
    from sakti.tui.screens import search_preview, search_rows
    from sakti.tui.screens import task_card as task_cards
    from sakti.tui.transcript import seek


class Spot(Struct, frozen=True):
    """A place in the conversation.

    `thread_id` is None for a thread in which nothing was said; `message_id` stands at the top of the screen, "" at
    the end.
    """

    thread_id: str | None
    title: str
    message_id: str = ""
    index: int = 0


class Visit:
    """Searches, goes to a hit and remembers the way back."""

    def __init__(
        self,
        host: Host,
        loader: ThreadLoader,
        panes: Panes,
        *,
        transcript: Transcript,
        prompt: Prompt,
        bar: VisitBar,
    ) -> None:
        self._host, self._loader, self._panes = host, loader, panes
        self._transcript, self._prompt, self._bar = transcript, prompt, bar
        self._kept: Kept | None = None  # the last search
        self._from: Spot | None = None  # where a visit began
        self._visited = ""  # the thread that is visited

    def search(self, query: str = "") -> None:
        """Open the search screen: with `query`, or as it was left."""
        screen = search_screen.SearchScreen(query, None if query else self._kept)
        self._host.push(screen, lambda result: self._found(screen, result))

    def _found(self, screen: SearchScreen, result: Any) -> None:
        self._kept = screen.kept
        if isinstance(result, str):
            self._prompt.add(result)
        elif result is not None:
            self._host.go(self.go_to, result, self._kept.text, group="jump", exclusive=True)

    async def go_to(self, hit: Hit, query: str = "") -> None:
        """Go to the place of a search hit: its message, what an observation was made from, the task board."""
        views = self._host.session.views
        if hit.kind == "task" and (self._panes.point_at(_title(hit)) or await self._task_card(hit)):
            return
        message_id, thread_id, index = hit.id, hit.thread_id, hit.position
        if hit.kind != "message":
            origin = await views.origin(hit.id) if hit.kind in ("observation", "reflection") else None
            if origin is None:
                title = hit.kind.replace("_", " ").capitalize()
                self._host.push(search_preview.PassageScreen(title, await search_preview.passage_of(views, hit, query)))
                return
            message_id, thread_id, index = origin.message_id, origin.thread_id, origin.index
        pattern = seek.pattern_of(search_rows.searched_words(hit, query))
        why = await self._why_not(thread_id, index)
        if why:
            self._host.push(
                search_preview.PassageScreen(
                    f"{hit.thread_title or 'untitled'}  {why}", await search_preview.passage_of(views, hit, query, 10)
                )
            )
        elif thread_id:
            await self._visit(thread_id, message_id, index, pattern)

    async def _task_card(self, hit: Hit) -> bool:
        """Show a task that is on the board no more; False where it is another workspace's."""
        try:
            await self._host.session.views.task(hit.id)
        except TaskError:
            return False
        self._host.push(task_cards.TaskCardScreen(hit.id))
        return True

    async def _why_not(self, thread_id: str | None, index: int) -> str:
        """Say why a thread is read here and not opened; "" where it can be."""
        session = self._host.session
        if thread_id is None or (session.thread is not None and thread_id == session.thread.id):
            return ""
        if session.busy:
            return "read-only while the agent works in your thread"
        there = await session.views.around(thread_id, index, 0, 0)
        if there and there[0].resource_id != session.workspace.resource_id:
            return f"read-only: from {one_line(there[0].resource_id, 80)}"
        return ""

    async def _visit(self, thread_id: str, message_id: str, index: int, pattern: re.Pattern[str] | None) -> None:
        here = self._host.session.thread
        if self._from is None:
            self._from = await self._spot()
        self._visited = thread_id
        if here is None or thread_id != here.id:
            await self._loader.open(thread_id)
        await self._land(message_id, index, pattern)
        start = self._from
        self._bar.show("" if start.thread_id == thread_id else start.title or "the new thread")
        self._transcript.call_after_refresh(self._transcript.jump, message_id, pattern)  # the bar has taken a line
        self._prompt.focus()

    async def _spot(self) -> Spot:
        """Tell where the user is."""
        session = self._host.session
        thread = session.thread
        if thread is None or not await session.views.transcript(thread.id, limit=1):
            return Spot(None, thread.title if thread else "")
        at = self._transcript.place
        message = await session.views.message(at) if at else None
        return Spot(thread.id, thread.title, message.id if message else "", message.index if message else 0)

    async def _land(self, message_id: str, index: int, pattern: re.Pattern[str] | None = None) -> None:
        if self._transcript.jump(message_id, pattern):
            return
        await self._loader.load_older(index)
        if not self._transcript.jump(message_id, pattern):
            self._host.say("This message has no text to show.")

    def go_back(self) -> None:
        """Go to where the first of the visits began, where one is under way."""
        self._host.go(self._back, group="jump", exclusive=True)

    async def _back(self) -> None:
        session, start = self._host.session, self._from
        if start is None:
            return
        thread = session.thread
        other = thread is None or start.thread_id != thread.id
        if other and session.busy:
            self._host.say("The agent works in this thread: go back when it is done, or stop it with esc.")
            return
        self.stay()
        if other and start.thread_id is None:
            await session.new_thread()
        elif other and start.thread_id is not None:
            await self._loader.open(start.thread_id)
        if start.message_id:
            await self._land(start.message_id, start.index)
        else:
            self._transcript.scroll_end_now()
        self._prompt.focus()

    def stay(self) -> None:
        """End the visit: this is where the user is."""
        self._from, self._visited = None, ""
        self._bar.display = False

    def thread_opened(self, thread_id: str) -> None:
        """End the visit where another thread than the visited one was opened."""
        if self._visited and thread_id != self._visited:
            self.stay()


def _title(task: Hit) -> str:
    return one_line(task.text.partition("\n")[0], 200)
