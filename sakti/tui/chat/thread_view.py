"""Show one thread in the transcript: load pages, go to search results and back."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from textual.app import ComposeResult
from textual.containers import Horizontal

from sakti.core.errors import SaktiError, TaskError
from sakti.core.text import to_one_line
from sakti.core.types import Message
from sakti.tui.chat.panes import Panes
from sakti.tui.host import Host
from sakti.tui.screens import search as search_screen
from sakti.tui.screens import search_preview
from sakti.tui.screens import task_card as task_cards
from sakti.tui.transcript.selection import make_pattern
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.status import Chip
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.agent.session.turn_lease import OtherTurn
    from sakti.store.search.search import Hit
    from sakti.tui.screens.search import SearchScreen, SearchState

PAGE = 200  # messages that are loaded at once
PAGE_MARGIN = 20  # messages to load above the target of a visit
SYNC_S = 2.0  # seconds between checks for messages of another window
SYNC_LIMIT = 50  # number of newest messages compared in each check


class Spot(Struct, frozen=True):
    """A place to return to. `thread_id` is None for a thread without messages.

    `message_id`: the message at the top of the screen, "" for the end.
    """

    thread_id: str | None
    title: str
    message_id: str = ""


class VisitBar(Horizontal):
    """Line above the conversation during a visit: the way back, and to the results."""

    DEFAULT_CSS = """
    VisitBar { display: none; height: 1; background: $surface; padding: 0 1; overflow: hidden; }
    """

    def compose(self) -> ComposeResult:
        yield Chip("alt+←", "back", "screen.go_back", id="visit-back")
        yield Chip("^f", "results", "screen.search")
        yield Chip("×", "stay here", "screen.stay")

    def show(self, title: str) -> None:
        """Show the way back; `title`: the title of the target thread, "" within the same thread."""
        where = f"back to {to_one_line(title, 30)}" if title else "back to where you were"
        self.query_one("#visit-back", Chip).set_text(where, on=True)
        self.display = True


class ThreadView:
    """Owner of the shown thread: `shown` is its id, "" before the session has opened one.

    It follows the session: a thread that opens there is loaded here, once. `on_loaded` is called after each load.
    """

    def __init__(self, host: Host, transcript: Transcript, bar: VisitBar, on_loaded: Callable[[], None]) -> None:
        self._host, self._transcript, self._bar, self._on_loaded = host, transcript, bar, on_loaded
        self.shown = ""
        self.oldest: int | None = None  # index of the oldest message that is loaded
        self._origin: Spot | None = None  # where a visit began
        self._opening = ""  # the thread that a visit opens, and loads itself
        self._version = -1  # version of the database at the last check
        self._other_turn: OtherTurn = ""  # state of another window's turn at the last check
        self._loaded = ""  # the thread whose messages are shown
        self._announced: tuple[str, str] | None = None  # text and title of a notice that waits for the next load

    # --- loading ----------------------------------------------------------------------------------------------

    def change(self, thread_id: str) -> bool:
        """Show the thread that the session has opened; False if it is shown already."""
        if thread_id == self.shown:
            return False
        self.shown, self.oldest, self._loaded = thread_id, None, ""
        if thread_id != self._opening:
            self.stay()
            self._load_soon()
        return True

    def _load_soon(self) -> None:
        self._host.start_worker(self.load, group="thread", exclusive=True)

    def announce(self, text: str, title: str) -> None:
        """Show a notice below the messages of the session's thread, once they are loaded."""
        thread = self._host.session.thread
        if thread is not None and thread.id != self._loaded:
            self._announced = text, title
        else:
            self._host.show_notice(text, title=title)

    async def load(self, until: int | None = None) -> None:
        """Load the newest messages, back to index `until`."""
        thread_id, views = self.shown, self._host.session.views
        messages = await views.transcript(thread_id, limit=PAGE)
        more = len(messages) >= PAGE
        if more and until is not None and until < messages[0].index:
            limit = messages[0].index - until + PAGE_MARGIN
            older = await views.transcript(thread_id, before=messages[0].index, limit=limit)
            messages, more = [*older, *messages], len(older) >= limit
        children = await self._host.session.children.list_all()
        other = await views.other_turn(thread_id)
        if thread_id == self.shown:
            self._show(messages, more=more)
            self._transcript.live.show_other_turn(other)
            self._loaded, self._other_turn = thread_id, other
            self._transcript.live.show_stored_children(children)
            if self._announced is not None:
                (text, title), self._announced = self._announced, None
                self._host.show_notice(text, title=title)

    def _show(self, messages: list[Message], *, more: bool) -> None:
        self.oldest = messages[0].index if messages else None
        if messages or self._transcript.live.has_content:
            self._transcript.load(messages, more)
        else:
            self._transcript.begin_empty()
        self._on_loaded()

    async def load_older(self, until: int | None = None) -> None:
        """Load the page before the oldest loaded message, or everything back to message index `until`."""
        thread_id, oldest = self.shown, self.oldest
        if not oldest:
            return
        limit = PAGE if until is None else max(PAGE, oldest - until + PAGE_MARGIN)
        messages = await self._host.session.views.transcript(thread_id, before=oldest, limit=limit)
        children = await self._host.session.children.list_all()
        if thread_id != self.shown:
            return
        if oldest != self.oldest:  # another page was loaded meanwhile
            if until is not None and self.oldest is not None and until < self.oldest:
                await self.load_older(until)
            return
        if messages:
            self.oldest = messages[0].index
        self._transcript.load_older(messages, more=len(messages) >= limit)
        self._transcript.live.show_stored_children(children)

    # --- other windows ----------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Show messages that another window added to the thread, unless a turn is running here."""
        if self.shown and not self._host.session.busy:
            self._host.start_worker(self.show_changes, group="follow", exclusive=True)

    async def show_changes(self) -> None:
        """Show the changes by another window since the last check."""
        session, thread_id, live = self._host.session, self.shown, self._transcript.live
        try:
            version = await session.views.version()
            if version == self._version and not self._other_turn:  # its process may have been killed
                return
            other = await session.views.other_turn(thread_id)
            page = await session.views.transcript(thread_id, limit=SYNC_LIMIT)
        except SaktiError:
            return  # the next check may succeed; the user's own actions report the failure
        if session.busy or thread_id != self.shown:
            return
        self._version, self._other_turn = version, other
        await self._show_new(page)
        live.show_other_turn(other)
        is_settled = all(m.state != "provisional" for m in page)
        self._host.start_worker(self._follow, is_settled, group="memory")  # not cancelled: a load completes

    async def _show_new(self, page: Sequence[Message]) -> None:
        """Append messages that another window stored.

        Loads the thread if there may be more of them, or some are older than shown ones.
        """
        stored = [m for m in page if m.state != "provisional"]
        new = list(dropwhile(lambda m: m.id in self._transcript.live.seen, stored))
        if len(new) == SYNC_LIMIT or any(m.id in self._transcript.live.seen for m in new):
            await self.load()
        elif new:
            self._transcript.live.add_stored(new)
            self._on_loaded()

    async def _follow(self, is_settled: bool) -> None:
        """Load memory changes of another window; reload the thread once its answer is stored."""
        session = self._host.session
        with contextlib.suppress(SaktiError):
            if is_settled and (moved := await session.follow_undo()):
                self.announce(f"Turns were {moved} in another window; the thread continues here.", moved.title())
            elif await (session.current.follow() if is_settled else session.current.engine.refresh()):
                self._on_loaded()

    # --- visits -----------------------------------------------------------------------------------------------

    async def visit(self, thread_id: str, message_id: str, index: int, pattern: re.Pattern[str] | None) -> None:
        """Go to a message, in its thread, and offer the way back."""
        origin = self._origin = self._origin or self._get_spot()
        await self._go_to(thread_id, index)
        self._bar.show("" if origin.thread_id == thread_id else origin.title or "the new thread")
        self._jump(message_id, pattern)

    async def _go_to(self, thread_id: str, index: int | None) -> None:
        """Load the thread unless it is shown, far enough back to include the message at that index."""
        if thread_id != self.shown:
            await self._open(thread_id, index)
        elif index is not None and self.oldest is not None and index < self.oldest:
            await self.load_older(index)

    async def _open(self, thread_id: str, until: int | None) -> None:
        self._opening = thread_id
        try:
            await self._host.session.open_thread(thread_id)
            await self.load(until)
        except asyncio.CancelledError:  # by a later visit
            if thread_id == self.shown:
                self._load_soon()
            raise
        finally:
            if self._opening == thread_id:
                self._opening = ""

    def _jump(self, message_id: str, pattern: re.Pattern[str] | None = None) -> None:
        if not self._transcript.jump(message_id, pattern):
            self._host.show_notice("This message has no text to show.")

    def _get_spot(self) -> Spot:
        """Return the current place."""
        thread = self._host.session.thread
        if thread is None or not self._transcript.live.seen:
            return Spot(None, thread.title if thread else "")
        return Spot(thread.id, thread.title, self._transcript.place)

    def go_back(self) -> bool:
        """Return to where the first visit began; False without a visit, or if the agent is working."""
        origin = self._origin
        if origin is None:
            return False
        if origin.thread_id != self.shown and self._host.session.busy:
            self._host.show_notice("The agent is working in this thread. Go back when it is done, or stop it with Esc.")
            return False
        self._host.start_worker(self._back, origin, group="jump", exclusive=True)
        return True

    async def _back(self, origin: Spot) -> None:
        session = self._host.session
        message = await session.views.message(origin.message_id) if origin.message_id else None
        self.stay()
        if origin.thread_id is None:
            await session.new_thread()
        else:
            await self._go_to(origin.thread_id, message.index if message else None)
        if message is not None:
            self._jump(message.id)
        else:
            self._transcript.scroll_end_now()

    def stay(self) -> None:
        """End the visit without going back."""
        self._origin = None
        self._bar.display = False


class SearchHits:
    """Opens the search screen, with the last search by default, and acts on its result."""

    def __init__(self, host: Host, view: ThreadView, panes: Panes, prompt: Prompt) -> None:
        self._host, self._view, self._panes, self._prompt = host, view, panes, prompt
        self._last: SearchState | None = None

    def open(self, query: str = "") -> None:
        """Open the search screen with `query`, or with the last search."""
        screen = search_screen.SearchScreen(query, None if query else self._last)
        self._host.push(screen, lambda result: self._on_result(screen, result))

    def offer(self, query: str) -> None:
        """Make the next search start with `query` in all workspaces unless it is given another query."""
        self._last = search_screen.SearchState(query, "all", 0, "")

    def _on_result(self, screen: SearchScreen, result: Any) -> None:
        self._last = screen.state
        if isinstance(result, str):
            self._prompt.insert_text(result)
        elif result is not None:
            self._host.start_worker(self.go_to, result, self._last.text, group="jump", exclusive=True)

    async def go_to(self, hit: Hit, query: str = "") -> None:
        """Go to the place of a search hit: its message, the source of an observation, the task board."""
        views = self._host.session.views
        if hit.kind == "task" and (self._panes.point_at(_get_title(hit)) or await self._show_task_card(hit)):
            return
        message_id, thread_id, index = hit.id, hit.thread_id, hit.position
        if hit.kind != "message":
            origin = await views.origin(hit.id) if hit.kind in ("observation", "reflection") else None
            if origin is None:
                title = hit.kind.replace("_", " ").capitalize()
                self._host.push(
                    search_preview.PassageScreen(title, await search_preview.load_passage(views, hit, query))
                )
                return
            message_id, thread_id, index = origin.message_id, origin.thread_id, origin.index
        if not thread_id:
            return
        if reason := await self._read_only_reason(thread_id, index):
            title = f"{hit.thread_title or 'untitled'}  {reason}"
            passage = await search_preview.load_passage(views, hit, query, 10)
            self._host.push(search_preview.PassageScreen(title, passage))
            return
        await self._view.visit(thread_id, message_id, index, make_pattern(search_preview.list_search_words(hit, query)))
        self._prompt.focus()

    async def _show_task_card(self, hit: Hit) -> bool:
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
        if there and there[0].resource_id != session.workspace.resource_id:
            return f"read-only: from {to_one_line(there[0].resource_id, 80)}"
        return ""


def _get_title(task: Hit) -> str:
    return to_one_line(task.text.partition("\n")[0], 200)
