"""The panes beside the chat: which of them show, in wide terminals and as an overlay in narrow ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.getters import query_one

from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.tasks import TasksPane
from sakti.tui.widgets.lines import app_of

if TYPE_CHECKING:
    from sakti.tui.app import SaktiApp

PANES = ("memory", "log", "tasks")
NARROWEST, WIDEST = 24, 120  # cells; the chat keeps CHAT of them
CHAT = 30
STEP = 4


class Sidebar(Vertical):
    """A wide terminal remembers its panes apart from a narrow one, where they lie over the chat and start closed."""

    HELP = "The panes. < and > make them narrower and wider; their left edge can be drawn with the mouse."
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("greater_than_sign", f"widen({STEP})", "Wider panes", show=False, id="panes.wider"),
        Binding("less_than_sign", f"widen(-{STEP})", "Narrower panes", show=False, id="panes.narrower"),
    ]

    memory = query_one(MemoryPane)
    observations = query_one(ObservationsPane)
    tasks = query_one(TasksPane)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.narrow = False
        self._wide_open: set[str] = set(PANES)
        self._narrow_open: set[str] = set()
        self._last_wide: set[str] = set(PANES)
        self._width = 0  # set by hand; 0: as configured
        self._drawn = False  # the mouse holds the edge

    def compose(self) -> ComposeResult:
        yield MemoryPane(id="memory")
        yield ObservationsPane(id="log")
        yield TasksPane(id="tasks")

    def on_mount(self) -> None:
        self.apply()

    @property
    def open_panes(self) -> set[str]:
        return self._narrow_open if self.narrow else self._wide_open

    def set_narrow(self, narrow: bool) -> None:
        if narrow != self.narrow:
            self.narrow = narrow
            self.apply()

    def toggle(self, pane: str) -> bool:
        """Show or hide one pane; True when it shows now."""
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

    def close_overlay(self) -> bool:
        """Esc over the chat: False when no overlay was open."""
        if not (self.narrow and self._narrow_open):
            return False
        self._narrow_open.clear()
        self.apply()
        return True

    @property
    def state(self) -> str:
        """What to remember of a wide terminal: the names of the open panes, and a width that was set by hand."""
        width = [f"width={self._width}"] if self._width else []
        return " ".join([*(p for p in PANES if p in self._wide_open), *width])

    def restore(self, state: str) -> None:
        self._wide_open = {p for p in state.split() if p in PANES}
        if width := re.search(r"\bwidth=(\d{1,3})\b", state):
            self.set_width(int(width[1]))
        self.apply()

    # --- its width --------------------------------------------------------------------------------------------

    def set_width(self, width: int) -> None:
        """In cells, as far as the chat keeps enough of the window."""
        self._width = max(NARROWEST, min(WIDEST, width))
        room = app_of(self).size.width
        self.styles.width = max(NARROWEST, min(self._width, room - CHAT)) if room else self._width

    def action_widen(self, step: int) -> None:
        if not self.narrow:
            self.set_width(self.outer_size.width + step)
            self._remember()

    def _remember(self) -> None:
        app = cast("SaktiApp", app_of(self))
        app.go(app.session.views.set_ui_state, "panes", self.state, group="state")

    def on_mouse_down(self, event: events.MouseDown) -> None:
        if event.screen_x == self.region.x and not self.narrow:
            self._drawn = True
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._drawn:
            self.set_width(self.region.right - int(event.screen_x))

    def on_mouse_up(self) -> None:
        if self._drawn:
            self._drawn = False
            self.release_mouse()
            self._remember()

    def apply(self) -> None:
        panes = self.open_panes
        self.display = bool(panes)
        for name in PANES:
            self.query_one(f"#{name}").display = name in panes
        self.set_class("log" not in panes, "-no-log")
