"""The panes beside the chat: which of them show, in wide terminals and as an overlay in narrow ones."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.getters import query_one

from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.tasks import TasksPane

PANES = ("memory", "log", "tasks")


class Sidebar(Vertical):
    """A wide terminal remembers its panes apart from a narrow one, where they lie over the chat and start closed."""

    memory = query_one(MemoryPane)
    observations = query_one(ObservationsPane)
    tasks = query_one(TasksPane)

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.narrow = False
        self._wide_open: set[str] = set(PANES)
        self._narrow_open: set[str] = set()
        self._last_wide: set[str] = set(PANES)

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
        """What to remember of a wide terminal: the names of the open panes."""
        return " ".join(p for p in PANES if p in self._wide_open)

    def restore(self, state: str) -> None:
        self._wide_open = {p for p in state.split() if p in PANES}
        self.apply()

    def apply(self) -> None:
        panes = self.open_panes
        self.display = bool(panes)
        for name in PANES:
            self.query_one(f"#{name}").display = name in panes
        self.set_class("log" not in panes, "-no-log")
