"""Every setting with its value and where it comes from, and the line that changes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.getters import query_one
from textual.widgets import Input, Static

from sakti.agent.settings_view import Setting, proposed
from sakti.core.errors import ConfigError
from sakti.core.text import one_line, sanitise
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import ListPanel
from sakti.tui.transcript.wrap import Line, fit, shorten
from sakti.tui.widgets.line_list import LineList
from sakti.tui.widgets.safe_input import SafeInput


class SettingsScreen(ListPanel):
    """Files are changed by hand: this says which line goes where, checked, and copies it."""

    HELP = "Every setting, its value and where it was set. Enter tries another value and gives the line that sets it."
    placeholder = "filter by name, value or origin"
    keys = "↑↓ move · enter another value · esc back"
    line = query_one("#panel-line", Input)

    def __init__(self, found: Sequence[Setting], user_file: Path) -> None:
        changed = sum(s.origin != "default" for s in found)
        super().__init__(f"Settings  {changed} of {len(found)} not at their default")
        self._found = sorted(found, key=lambda s: s.origin == "default")  # what was changed comes first
        self._file = user_file
        self._chosen: Setting | None = None

    def body(self) -> ComposeResult:
        yield from super().body()
        yield SafeInput(id="panel-line", compact=True)
        yield Static("", id="panel-detail", markup=False)

    def on_mount(self) -> None:
        self.line.display = False
        self.call_after_refresh(self._tell_current)

    def rows(self, text: str) -> list[Setting]:
        words = text.lower().split()
        return [s for s in self._found if all(w in f"{s.name} {s.text} {s.origin}".lower() for w in words)]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        own = row.origin != "default"
        origin = one_line(Path(row.origin).name if "/" in row.origin else row.origin, 24)
        name = min(46, max(12, width // 2))
        room = max(4, width - name - len(origin) - 5)
        return [
            [
                Segment("● " if own else "  ", palette.agent),
                Segment(fit(one_line(row.name, 120), name), palette.bold if own else palette.text),
                Segment(fit(one_line(row.text or "not set", 200), room), palette.text if own else palette.muted),
                Segment(f"  {origin}", palette.agent if own else palette.faint),
            ]
        ]

    def _tell(self, text: str) -> None:
        self.query_one("#panel-detail", Static).update(sanitise(text))

    def _tell_current(self) -> None:
        row: Setting | None = self.result_list.current
        if row is not None:
            where = "a project's .sakti/config.toml may set it, too" if row.project else "only your own file may set it"
            self._tell(f"{row.name} = {shorten(one_line(row.text or 'not set', 200), 60)}, from {row.origin}; {where}")

    @on(LineList.Moved, "#panel-list")
    def _moved(self) -> None:
        self._tell_current()

    def choose(self, row: Any) -> None:
        """Open the line below with the value that is."""
        self._chosen = row
        self.line.value = row.text
        self.line.display = True
        self.set_focus(self.line)

    def action_close(self) -> None:
        if self.line.display:
            self._end_line()
        else:
            self.dismiss(None)

    def _end_line(self) -> None:
        self.line.display = False
        self.set_focus(self.input)
        self._tell_current()

    @on(Input.Submitted, "#panel-line")
    def _line_entered(self, event: Input.Submitted) -> None:
        event.stop()
        if self._chosen is None:
            return
        try:
            lines = proposed(self.sakti.session.config, self._chosen.name, event.value.strip())
        except ConfigError as e:
            self._tell(e.message)  # and the line stays open
            return
        self._end_line()
        self.sakti.copy_to_clipboard(f"{lines}\n")
        self._tell(f"Copied. Put it into {self._file}; it holds from the next start on:\n{lines}")
