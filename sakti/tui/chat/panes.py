"""Load and show the panes of the side bar, and remember their layout."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from textual.timer import Timer
from textual.widget import Widget

from sakti.agent.reports import memory_report
from sakti.agent.session.queries import ContextBlock, Windows
from sakti.core.events import MemoryStatus
from sakti.store.log.events import LogChange
from sakti.tui.host import HINT_S, Host
from sakti.tui.panes.sidebar import Sidebar
from sakti.tui.screens import board as board_screen
from sakti.tui.screens import task_card as task_cards
from sakti.tui.screens import text as text_screens
from sakti.tui.widgets.status import Header, StatusLine

if TYPE_CHECKING:
    from sakti.store.threads.fork import CarriedLine
    from sakti.tui.screens.board import BoardScreen
    from sakti.tui.screens.text import ContextScreen

CORRECTION_NAMES = {"pin": "Pinned", "unpin": "No longer pinned", "edit": "Changed", "forget": "Forgotten"}
POINTING_S = 5.0  # seconds that a task is highlighted after a search
FOLLOW_S = 0.5  # seconds between updates of the memory windows while they change
EARLY_S = 0.1  # seconds by which an update may come early to share a repaint with the transcript
BOARD_POLL_S = 2.0  # seconds between checks for changes by other processes while the pane is shown


class Panes:
    """Loads the side bar's panes; keeps the version of the board that they show."""

    def __init__(self, host: Host, sidebar: Sidebar, line: StatusLine, header: Header) -> None:
        self._host, self._sidebar, self._line, self._header = host, sidebar, line, header
        self._board_version = -1
        self._board: BoardScreen | None = None
        self._context: ContextScreen | None = None
        self._windows = Windows()  # as shown now
        self._line_ids: set[str] = set()  # ids of log lines, including those that are ready
        self._seen_ids: set[str] | None = None  # ids already shown in a pane; None: the thread has changed
        self._timer: Timer | None = None  # runs while the windows change
        self._looked = float("-inf")  # time of its last run

    # --- loading ----------------------------------------------------------------------------------------------

    def load_board(self) -> None:
        self._host.start_worker(self._load_board, group="board", exclusive=True)

    async def _load_board(self) -> None:
        self._sidebar.tasks.show(await self._host.session.views.board())
        if self._board is not None and self._board.is_open:
            self._board.reload_soon()

    def poll_board(self) -> None:
        """Reload the board if another process changed it."""
        tasks = self._sidebar.tasks
        if tasks.display and tasks.is_on_screen and tasks.screen.is_current:
            self._host.start_worker(self._poll_board, group="tasks-pane", exclusive=True)

    async def _poll_board(self) -> None:
        version = await self._host.session.views.board_version()
        if version != self._board_version:
            self._board_version = version
            await self._load_board()

    def load_log(self) -> None:
        """Load the observations, and the figures and events of the memory."""
        self._host.start_worker(self._load_log, group="observations", exclusive=True)

    async def _load_log(self) -> None:
        views, side = self._host.session.views, self._sidebar
        await self._load_carried()
        log, waiting = await views.observations(), await views.waiting_observations()
        self._line_ids = {line.id for line in (*log, *waiting) if not line.forgotten}
        self._seen_ids = set(self._line_ids) if self._seen_ids is None else self._seen_ids
        side.observations.show(log, await views.moments(), waiting)
        side.memory.figures = await views.memory_figures()
        side.memory.events = await views.memory_events()
        self.show_header()

    def load_carried(self) -> None:
        """Load the lines of earlier threads, since a new step may have left some out."""
        self._host.start_worker(self._load_carried, group="carried", exclusive=True)

    async def _load_carried(self) -> None:
        self._sidebar.observations.show_carried(await self._host.session.views.carried_lines())

    def load_past(self, moment: LogChange) -> None:
        """Load the log as of `moment`."""
        self._host.start_worker(self._load_past, moment, group="past", exclusive=True)

    async def _load_past(self, moment: LogChange) -> None:
        self._sidebar.observations.show_past(moment, await self._host.session.views.log_at(moment.time))

    def load_usage(self) -> None:
        """Load the usage and cost of this thread's turns."""
        self._host.start_worker(self._load_usage, group="turns", exclusive=True)

    async def _load_usage(self) -> None:
        memory, views = self._sidebar.memory, self._host.session.views
        memory.turn_tokens = await views.turn_tokens()
        memory.spent = await views.spent()

    def load_context(self) -> None:
        """Estimate the size of the next request, before any was sent with the current memory."""
        self._host.start_worker(self._load_context, group="context", exclusive=True)

    async def _load_context(self) -> None:
        """Estimate the context; look up the model's window if no request of a continued thread reported it."""
        session = self._host.session
        await session.views.warm_windows()
        self.show_windows()
        if (
            self._windows.context
            and not self._line.window
            and session.workspace.models.selection is not None
            and session.workspace.models.selection.model
        ):
            await session.current.learn()

    def show_windows(self) -> None:
        """Show the current windows; reload usage and the log if they changed."""
        before, now = self._windows, self._host.session.views.windows()
        if now in (before, Windows()):  # or a thread is being loaded
            return
        self._windows, memory = now, self._sidebar.memory
        memory.status, memory.streaming = now.status, now.streaming
        self._line.show_context(now.context, about=bool(now.streaming))
        self.show_header()
        if self._context is not None and self._context.is_open:
            self._context.show_blocks(self._host.session.views.request_blocks())
        if now.status != before.status:
            self.load_usage()
            if before.status is not None and now.status is not None and _log_of(before.status) != _log_of(now.status):
                self.load_log()

    def reset_windows(self) -> None:
        """Forget the windows of the previous thread."""
        self._windows, self._seen_ids = Windows(), None
        self._line.show_context(0)

    def show_header(self) -> None:
        """Show the message window and the number of new observations in the header while the panes are hidden."""
        status, header, side = self._windows.status, self._header, self._sidebar
        hidden = status is not None and not side.shows("memory")
        header.memory = memory_report.format_window(status, self._windows.streaming) if status and hidden else ""
        if self._seen_ids is not None and side.shows("log"):
            self._seen_ids = set(self._line_ids)
        header.fresh = len(self._line_ids - self._seen_ids) if self._seen_ids is not None else 0

    def follow_windows(self) -> None:
        """Update the windows a few times a second for as long as they change."""
        if self._timer is None:
            self._sidebar.call_next(self._start)  # in the app's own task: events may come from another

    def _start(self) -> None:
        if self._timer is None:
            self._timer = self._sidebar.set_interval(FOLLOW_S, self._follow)

    def follow_drawing(self) -> None:
        """Update the windows together with the transcript if an update is due soon, to save a repaint."""
        if self._timer is not None and monotonic() - self._looked >= FOLLOW_S - EARLY_S:
            self._timer.reset()
            self._follow()

    def _follow(self) -> None:
        before, self._looked = self._windows, monotonic()
        self.show_windows()
        if self._windows == before and self._timer is not None:
            self._timer.stop()
            self._timer = None

    async def correct(self, action: str, line_id: str, text: str) -> None:
        """Correct a line of the log and show the result."""
        try:
            await self._host.session.correct(action, line_id, text)
        finally:
            self.load_log()
        if action == "undo":
            self._host.set_hint("Undone", HINT_S)
        else:
            self._host.set_hint(f"{CORRECTION_NAMES[action]} · {self._host.key_name('observations.undo')} undoes it")

    async def remove_carried(self, line: CarriedLine) -> None:
        """Remove a line of earlier threads from the requests, or restore it."""
        await self._host.session.remove_carried(line, removed=not line.is_removed)
        await self._load_carried()
        key = self._host.key_name("observations.forget")
        self._host.set_hint("Restored" if line.is_removed else f"Removed · {key} restores it")
        self.show_windows()

    async def show_origin(self, line: CarriedLine) -> None:
        """Show where a line of earlier threads comes from: its messages, or the task."""
        views = self._host.session.views
        if line.kind == "task":
            self._host.push(task_cards.TaskCardScreen(line.source_id))
        elif line.kind == "line" and (group := await views.group_of(line.source_id)):
            await text_screens.open_sources(self._host, group, line.text)
        else:
            self._host.set_hint("the title and the task of the last thread; /threads opens it")

    # --- showing ----------------------------------------------------------------------------------------------

    def show(self, pane: str) -> None:
        """Show and unfold a pane without moving the focus."""
        if not self._sidebar.shows(pane):
            self._toggle(pane)

    def hide(self, pane: str) -> None:
        if self._sidebar.shows(pane):
            self._toggle(pane)

    def _toggle(self, pane: str) -> None:
        self._sidebar.toggle(pane)
        if not self._sidebar.narrow:
            self.save_layout()

    def toggle_all(self) -> bool:
        """Hide all panes, or show them again; returns whether any pane is visible."""
        self._sidebar.toggle_all()
        if not self._sidebar.narrow:
            self.save_layout()
        return bool(self._sidebar.open_panes)

    def get_key_widget(self, pane: str) -> Widget:
        """Return the widget of a pane that takes its keys."""
        side = self._sidebar
        lists = {"memory": side.memory, "log": side.observations.log_list, "tasks": side.tasks.task_list}
        return lists[pane]

    def point_at(self, title: str) -> bool:
        """Highlight the task titled `title` for a while; False if the list does not contain it."""
        tasks = self._sidebar.tasks.task_list
        at = next((i for i, row in enumerate(tasks.rows) if row.title == title), None)
        if at is not None:
            self.show("tasks")
            tasks.cursor_always = True
            tasks.move_to(at)
            tasks.refresh()
            tasks.set_timer(POINTING_S, self._stop_pointing)
        return at is not None

    def _stop_pointing(self) -> None:
        tasks = self._sidebar.tasks.task_list
        tasks.cursor_always = False
        tasks.refresh()

    def save_layout(self) -> None:
        """Store which panes are open and their sizes, for the next wide window."""
        self._host.start_worker(self._host.session.views.set_ui_state, "panes", self._sidebar.state, group="state")

    def open_board(self) -> None:
        """Open the task board over the entire screen."""
        self._board = board_screen.BoardScreen()
        self._host.push(self._board)

    def open_context(self, blocks: Sequence[ContextBlock]) -> None:
        """Show the next request; it follows the windows while it is open."""
        self._context = text_screens.ContextScreen(blocks)
        self._host.push(self._context)

    def open_events(self) -> None:
        """Show all memory events."""
        memory = self._sidebar.memory
        retry_at = None if memory.status is None else memory.status.retry_at
        self._host.push(text_screens.MemoryEventsScreen(memory.all_events(), retry_at))


def _log_of(status: MemoryStatus) -> tuple[str, int, int, int]:
    waiting = status.buffered_observations.observation_tokens
    return status.thread_id, status.generation_count, status.observations.tokens, waiting
