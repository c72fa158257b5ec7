"""Choose the programs whose history is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one

from sakti.actions.import_ import COUNTED, NO_HISTORY, describe
from sakti.core.errors import SaktiError
from sakti.core.text import byte_size
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.transcript.wrap import Line, wrap
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.actions.import_ import HistoryImport
    from sakti.importers.service import SourceReport

LOOKING = "looking into the home folder …"


class ImportScreen(Panel[frozenset[str] | None]):
    """The result are the names of the checked programs; None: nothing is imported."""

    HELP = "The history of other programs on this machine. Space checks one, Enter imports the checked ones."
    AUTO_FOCUS = "#panel-list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "check", "Check a program", show=False, id="import.check")
    ]
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("space check", "check"), ("enter import", "run"), BACK)
    programs = query_one("#panel-list", LineList)

    def __init__(self, history: HistoryImport) -> None:
        super().__init__("Import the history of other programs")
        self._history = history
        self._rows: dict[str, tuple[SourceReport, int]] = {}  # figures of each program, and percent counted
        self._checked: set[str] = set()

    def body(self) -> ComposeResult:
        yield LineList(self._draw, empty=LOOKING, id="panel-list")

    def on_mount(self) -> None:
        self.host.go(self._count, group="import-count", exclusive=True)

    async def _count(self) -> None:
        try:
            await self._history.count(self._show_figures, lambda: not self.is_attached)
        except SaktiError as e:
            self.programs.say_empty(e.message)
            return
        if self.is_attached:
            self.programs.say_empty(NO_HISTORY)

    def _show_figures(self, source: SourceReport, percent: int) -> None:
        """Show the figures of a program; it is checked at first, and unless it has nothing new."""
        name = source.program
        if self._rows.get(name, (None, -1))[1] == percent:
            return
        if name not in self._rows:
            self._checked.add(name)
        elif percent == COUNTED and not source.new:
            self._checked.discard(name)
        self._rows[name] = (source, percent)
        self._draw_rows()

    def _draw_rows(self) -> None:
        if self.is_attached:
            self.programs.set_rows(list(self._rows.values()))

    def _draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        source, percent = cast("tuple[SourceReport, int]", row)
        box = Segment("☑ " if source.program in self._checked else "☐ ", palette.ok)
        is_counted = percent == COUNTED
        text = describe(source) if is_counted else f"{source.program:<11} {byte_size(source.size):>11}"
        color = palette.text if source.new or not is_counted else palette.muted
        lines = wrap([(text, color)], max(8, width - 2))
        note = f"counting {percent} %" if not is_counted else "" if source.new else "nothing new"
        return [[box if n == 0 else Segment("  "), *line] for n, line in enumerate(lines)] + (
            [[Segment(f"  {note}", palette.faint)]] if note else []
        )

    def action_check(self) -> None:
        """Check the program under the cursor, or take the check away."""
        row: tuple[SourceReport, int] | None = self.programs.current
        if row is not None:
            self._checked ^= {row[0].program}
            self._draw_rows()

    @on(LineList.Opened, "#panel-list")
    def _open_row(self, event: LineList.Opened) -> None:
        event.stop()
        self.action_run()

    def action_run(self) -> None:
        """Import the checked programs."""
        if self._checked:
            self.dismiss(frozenset(self._checked))
