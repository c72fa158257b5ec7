"""Lay out the panes beside the chat, in wide terminals as a side bar and in narrow ones as an overlay."""

from __future__ import annotations

import re
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.css.scalar import Scalar
from textual.getters import query_one
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from sakti.tui.host import get_host
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.tasks import TasksPane

PANES = ("memory", "log", "tasks")
MIN_WIDTH, MAX_WIDTH = 24, 120  # cells
CHAT_WIDTH = 30
DEFAULT_WIDTHS = (36, 56)  # default width in cells: more in a wider window
SHARE = 1 / 3  # share of the window's width, within these bounds
TINY = 60  # width of the window in cells below which the panes cover it
READABLE_CHAT_WIDTH = 42  # minimum cells of the chat beside the panes in a narrow window
STEP = 4
MIN_HEIGHT = 3  # minimum lines of a pane resized by hand; the log gets the rest


def choose_width(room: int, by_hand: int, *, narrow: bool) -> int:
    """Return the width of the panes in a window of `room` cells; `by_hand`: set by the user, else 0."""
    if room < TINY:
        return room
    if narrow:
        return max(MIN_WIDTH, min(DEFAULT_WIDTHS[0], room - READABLE_CHAT_WIDTH))
    low, high = DEFAULT_WIDTHS
    preferred = by_hand or max(low, min(high, int(room * SHARE)))
    return max(MIN_WIDTH, min(preferred, room - CHAT_WIDTH))


class Sidebar(Vertical):
    """Panes beside the chat; a narrow terminal starts with them closed and keeps its own state.

    Esc closes them there; in a tiny terminal they replace the chat.
    """

    HELP = (
        "The panes. < and > make them narrower and wider; + and - make the focused one taller and shorter, f folds it. "
        "Drag their left edge or titles with the mouse; click a title to fold a pane."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("plus", "change_height(1)", "Taller pane", show=False, id="panes.higher"),
        Binding("minus", "change_height(-1)", "Shorter pane", show=False, id="panes.lower"),
        Binding("f", "fold", "Fold or unfold the pane", show=False, id="panes.fold"),
        Binding("greater_than_sign", f"change_width({STEP})", "Wider panes", show=False, id="panes.wider"),
        Binding("less_than_sign", f"change_width(-{STEP})", "Narrower panes", show=False, id="panes.narrower"),
    ]

    class Rearranged(Message):
        """The user resized or folded panes."""

    class PanesApplied(Message):
        """Panes were opened, closed or folded."""

    memory = query_one(MemoryPane)
    observations = query_one(ObservationsPane)
    tasks = query_one(TasksPane)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.narrow = False
        self._wide_open: set[str] = set(PANES)
        self._narrow_open: set[str] = set()
        self._last_wide: set[str] = set(PANES)
        self._width = 0  # set by hand; 0: the configured width
        self._heights: dict[str, int] = {}  # heights of memory and tasks set by hand
        self._folded: set[str] = set()
        self._dragging = ""  # the dragged part: "edge", or the pane whose title is dragged
        self._moved = False  # whether the mouse moved since the button was pressed

    def compose(self) -> ComposeResult:
        yield MemoryPane(id="memory")
        yield ObservationsPane(id="log")
        yield TasksPane(id="tasks")
        yield Static("esc  closes the panes", id="side-back", markup=False)

    def on_mount(self) -> None:
        self.apply()

    @property
    def open_panes(self) -> set[str]:
        return self._narrow_open if self.narrow else self._wide_open

    def set_narrow(self, narrow: bool) -> None:
        if narrow != self.narrow:
            self.narrow = narrow
            self.apply()

    def shows(self, pane: str) -> bool:
        """Return whether a pane is open and not folded to its title."""
        return pane in self.open_panes and pane not in self._folded

    def toggle(self, pane: str) -> bool:
        """Show or hide a pane; a folded one is unfolded. Returns whether it is shown now."""
        if pane in self.open_panes and pane in self._folded:
            self._folded.discard(pane)
        else:
            self.open_panes.symmetric_difference_update({pane})
        self.apply()
        return pane in self.open_panes

    def toggle_all(self) -> None:
        panes = self.open_panes
        if panes:
            self._last_wide = set(panes)
            panes.clear()
        else:
            panes.update(self._last_wide)
        self.apply()

    @property
    def has_overlay(self) -> bool:
        """Return whether panes cover the chat."""
        return self.narrow and bool(self._narrow_open)

    def close_overlay(self) -> bool:
        """Close the panes over the chat; returns False if they were not open."""
        if not self.has_overlay:
            return False
        self._narrow_open.clear()
        self.apply()
        return True

    @property
    def state(self) -> str:
        """Return the layout to remember for a wide terminal.

        The layout has the names of the open and of the folded panes, and the heights and width set by hand.
        """
        folded = [f"folded={p}" for p in PANES if p in self._folded]
        heights = [f"{p}={lines}" for p, lines in sorted(self._heights.items())]
        width = [f"width={self._width}"] if self._width else []
        return " ".join([*(p for p in PANES if p in self._wide_open), *folded, *heights, *width])

    def restore(self, state: str) -> None:
        self._wide_open = {p for p in state.split() if p in PANES}
        self._folded = {p for p in PANES if f"folded={p}" in state.split()}
        self._heights = {p: int(lines) for p, lines in re.findall(r"\b(memory|tasks)=(\d{1,3})\b", state)}
        if width := re.search(r"\bwidth=(\d{1,3})\b", state):
            self.set_width(int(width[1]))
        self.apply()

    # --- its width --------------------------------------------------------------------------------------------

    def set_width(self, width: int) -> None:
        """Set the width in cells, limited so that the chat keeps enough room; 0: fit the window."""
        self._width = max(MIN_WIDTH, min(MAX_WIDTH, width)) if width else 0
        self.fit()

    def fit(self) -> None:
        """Set the width of the panes for the current window; the conversation gets the rest."""
        if room := get_host(self).size.width:
            self.styles.width = choose_width(room, self._width, narrow=self.narrow)

    def action_change_width(self, step: int) -> None:
        if not self.narrow:
            self.set_width(_get_cells(self.styles.width, self.outer_size.width) + step)
            self.post_message(self.Rearranged())

    # --- heights, folding -------------------------------------------------------------------------------------

    def _get_pane(self, name: str) -> Widget:
        return self.query_one(f"#{name}")

    def set_height(self, pane: str, lines: int) -> None:
        """Set the height of memory or tasks, limited so that the other panes keep enough lines."""
        self._heights[pane] = self._limit_height(pane, lines)
        self.apply()

    def _limit_height(self, pane: str, lines: int) -> int:
        """Limit a height so that the log, and tasks below memory, keep `MIN_HEIGHT` lines."""
        log = MIN_HEIGHT if "log" in self.open_panes else 0
        other = "memory" if pane == "tasks" else "tasks"
        keeps = self._get_pane(other).outer_size.height if pane == "tasks" else MIN_HEIGHT
        room = self.size.height - log - 1 - (keeps if other in self.open_panes else 0)
        return max(MIN_HEIGHT, min(lines, room))

    def on_resize(self) -> None:
        if self._heights:
            self.apply()

    def action_change_height(self, step: int) -> None:
        """Resize the focused pane; the log is resized through the tasks, or else the memory pane."""
        pane = self._find_focused_pane()
        if pane == "log":
            pane, step = "tasks" if "tasks" in self.open_panes else "memory", -step
        if pane in self.open_panes and pane not in self._folded:
            widget = self._get_pane(pane)
            self.set_height(pane, _get_cells(widget.styles.height, widget.outer_size.height) + step)
            self.post_message(self.Rearranged())

    def action_fold(self) -> None:
        if pane := self._find_focused_pane():
            self.fold(pane)

    def fold(self, pane: str) -> None:
        """Fold a pane to its title, or unfold it."""
        self._folded ^= {pane}
        if pane in self._folded and self._find_focused_pane() == pane:
            self.screen.set_focus(self.screen.query_one("#prompt"))
        self.apply()
        self.post_message(self.Rearranged())

    def _find_focused_pane(self) -> str:
        focused = self.screen.focused
        above = [] if focused is None else [w.id for w in focused.ancestors_with_self]
        return next((p for p in PANES if p in above), "")

    # --- the mouse --------------------------------------------------------------------------------------------

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.screen_x == self.region.x and not self.narrow:
            self._dragging = "edge"
        else:
            self._dragging = next((p for p in PANES if self._is_title(p, int(event.screen_y))), "")
        self._moved = False
        if self._dragging:
            self.capture_mouse()

    def _is_title(self, pane: str, y: int) -> bool:
        return pane in self.open_panes and self._get_pane(pane).region.y == y

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the border between a pane and the one above by the pane's title."""
        y = int(event.screen_y)
        if self._dragging == "edge":
            self.set_width(self.region.right - int(event.screen_x))
        elif self._dragging and not self._is_title(self._dragging, y):
            self._moved = True
            if self._dragging == "tasks":
                self.set_height("tasks", self.region.bottom - y)
            elif self._dragging == "log" and "memory" in self.open_panes - self._folded:
                self.set_height("memory", y - self.memory.region.y - self.memory.styles.margin.height)

    def on_mouse_up(self) -> None:
        dragged, self._dragging = self._dragging, ""
        if not dragged:
            return
        self.release_mouse()
        if dragged == "edge" or self._moved:
            self.post_message(self.Rearranged())
        else:
            self.fold(dragged)

    def apply(self) -> None:
        panes = self.open_panes
        self.display = bool(panes)
        self.query_one("#side-back").display = self.narrow
        log = "log" in panes - self._folded
        for name in PANES:
            pane, folded = self._get_pane(name), name in self._folded
            pane.display = name in panes
            pane.set_class(folded, "-folded")
            set_by_hand = name in self._heights and not folded and (log or name == "memory")
            pane.set_class(set_by_hand, "-set")
            pane.styles.height = self._limit_height(name, self._heights[name]) if set_by_hand else None
        self.memory.fold("memory" in self._folded)
        self.observations.title.fold("log" in self._folded)
        self.tasks.title.fold("tasks" in self._folded)
        self.set_class(not log, "-no-log")
        self.set_class(panes - self._folded == {"memory"}, "-alone")  # the remaining lines are for events
        self.post_message(self.PanesApplied())


def _get_cells(wanted: Scalar | None, shown: int) -> int:
    """Return the size set last, which may not be laid out yet at the next key."""
    return int(wanted.value) if wanted is not None and wanted.is_cells else shown
