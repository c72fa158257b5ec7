"""Search, and go to a hit: its message, the source of an observation, the task on the board."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sakti.core.errors import TaskError
from sakti.core.lazy import lazy_imports
from sakti.core.text import one_line
from sakti.tui.chat.panes import Panes
from sakti.tui.chat.thread_view import ThreadView
from sakti.tui.host import Host
from sakti.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from sakti.store.search.search import Hit
    from sakti.tui.screens.search import Kept, SearchScreen

with lazy_imports:
    from sakti.tui.screens import search as search_screen
    from sakti.tui.screens import search_preview, search_rows
    from sakti.tui.screens import task_card as task_cards
    from sakti.tui.transcript import seek


class SearchHits:
    """Opens the search screen, the last search again if none is named, and acts on its result."""

    def __init__(self, host: Host, view: ThreadView, panes: Panes, prompt: Prompt) -> None:
        self._host, self._view, self._panes, self._prompt = host, view, panes, prompt
        self._last: Kept | None = None

    def open(self, query: str = "") -> None:
        """Open the search screen: with `query`, or as it was left."""
        screen = search_screen.SearchScreen(query, None if query else self._last)
        self._host.push(screen, lambda result: self._on_result(screen, result))

    def _on_result(self, screen: SearchScreen, result: Any) -> None:
        self._last = screen.kept
        if isinstance(result, str):
            self._prompt.add(result)
        elif result is not None:
            self._host.go(self.go_to, result, self._last.text, group="jump", exclusive=True)

    async def go_to(self, hit: Hit, query: str = "") -> None:
        """Go to the place of a search hit: its message, the source of an observation, the task board."""
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
        if not thread_id:
            return
        if reason := await self._read_only_reason(thread_id, index):
            title = f"{hit.thread_title or 'untitled'}  {reason}"
            passage = await search_preview.passage_of(views, hit, query, 10)
            self._host.push(search_preview.PassageScreen(title, passage))
            return
        await self._view.visit(thread_id, message_id, index, seek.pattern_of(search_rows.searched_words(hit, query)))
        self._prompt.focus()

    async def _task_card(self, hit: Hit) -> bool:
        """Show a task that is no longer on the board; False if it belongs to another workspace."""
        try:
            await self._host.session.views.task(hit.id)
        except TaskError:
            return False
        self._host.push(task_cards.TaskCardScreen(hit.id))
        return True

    async def _read_only_reason(self, thread_id: str, index: int) -> str:
        """Return why a thread can be read but not opened now, or ""."""
        session = self._host.session
        if thread_id == self._view.shown:
            return ""
        if session.busy:
            return "read-only while the agent works in your thread"
        there = await session.views.around(thread_id, index, 0, 0)
        if there and there[0].resource_id != session.resource_id:
            return f"read-only: from {one_line(there[0].resource_id, 80)}"
        return ""


def _title(task: Hit) -> str:
    return one_line(task.text.partition("\n")[0], 200)
