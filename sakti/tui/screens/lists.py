"""Screens that choose one of a list: models, themes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one

from sakti.agent.tools import background
from sakti.core.text import count_k, one_line
from sakti.core.types import ModelInfo
from sakti.tui.appearance import files_seen
from sakti.tui.host import Host
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.transcript.wrap import Line, fit, shorten
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.agent.tools.processes import Running
    from sakti.store.threads.runs import StoredJob

FOLLOWED = 12  # lines of an output that is followed
LOOK = 0.5  # seconds between looks at theme files, or at background commands, while their list is open


def age(then_ms: int, now_ms: int) -> str:
    """Return an age in one unit (`now`, `5m`, `3h`, `12d`), or the date after a month."""
    seconds = max(0, now_ms - then_ms) // 1000
    if seconds < 60:
        return "now"
    for limit, unit, name in ((3600, 60, "m"), (86_400, 3600, "h"), (31 * 86_400, 86_400, "d")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return datetime.fromtimestamp(then_ms / 1000).strftime("%Y-%m-%d")


class ModelsScreen(ListPanel):
    """Dismisses with the full name of a model; a name that is not listed can be typed."""

    HELP = "The models that can be used now. A full name (provider/name) may be typed as well."
    placeholder = "filter, or type provider/name"
    empty = "no match: Enter uses what you typed"

    def __init__(self, models: Sequence[ModelInfo], current: str | None) -> None:
        super().__init__(f"Models  {len(models)}")
        self._models = models
        self._current = current

    def rows(self, text: str) -> list[ModelInfo]:
        return [m for m in self._models if text.lower() in m.full_name.lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        facts = [f"{count_k(row.context_window)} window" if row.context_window else ""]
        if row.input_price is not None and row.output_price is not None:
            facts.append(f"${row.input_price:g} in, ${row.output_price:g} out / M")
        right = " · ".join(f for f in facts if f)
        sign = "▶ " if row.full_name == self._current else "  "
        room = max(4, width - len(right) - 5)
        return [
            [
                Segment(sign, palette.ok),
                Segment(fit(one_line(row.full_name, 120), room), palette.text),
                Segment(f"  {right}", palette.faint),
            ]
        ]

    def choose(self, row: Any) -> None:
        self.dismiss(row.full_name)

    def action_open(self) -> None:
        if self.result_list.current is not None:
            self.result_list.action_open()
        elif "/" in self.input.value:
            self.dismiss(self.input.value.strip())


class JobsScreen(Panel[None]):
    """Commands that the agent left running, and those that have ended, each with the end of its output."""

    HELP = "Commands in the background. Enter follows the output of one, x ends it, with everything that it started."
    AUTO_FOCUS = "#panel-list"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "end", "End the command", show=False, id="jobs.end")]
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter follow", "follow"), ("x end", "end"), BACK)
    result_list = query_one("#panel-list", LineList)

    def __init__(self) -> None:
        super().__init__("Background commands")
        self._followed = ""  # the number of the command whose output is shown

    def body(self) -> ComposeResult:
        yield LineList(self._draw, empty="There are no background commands.", id="panel-list")

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(LOOK, self._refresh)

    def _refresh(self) -> None:
        jobs = self.host.session.list_jobs()
        running = sum(not background.is_over(job) for job in jobs.values())
        self.set_title(f"Background commands  {running} running")
        self.result_list.set_rows(list(jobs.items()))

    def _draw(self, row: tuple[str, Running | StoredJob], width: int, palette: Palette) -> list[Line]:
        number, job = row
        is_followed = number == self._followed
        output = background.last_lines(job, FOLLOWED if is_followed else 1) or "no output"
        head: list[Line] = [
            [Segment(f"{number:>3}  ", palette.faint), Segment(shorten(one_line(job.command, 300), width - 6))],
            [Segment("     "), Segment(background.describe_state(job), palette.faint)],
        ]
        lines = (shorten(one_line(line, 300), width - 6) for line in output.split("\n"))
        return [*head, *([Segment("     "), Segment(line, palette.muted)] for line in lines)]

    @on(LineList.Opened)
    def _open_output(self, event: LineList.Opened) -> None:
        event.stop()
        self.action_follow()

    def action_follow(self) -> None:
        """Show the end of the output of the chosen command, or hide it."""
        row: tuple[str, Running | StoredJob] | None = self.result_list.current
        self._followed = row[0] if row is not None and row[0] != self._followed else ""
        self._refresh()

    def action_end(self) -> None:
        row: tuple[str, Running | StoredJob] | None = self.result_list.current
        if row is not None:
            self.host.go(self._end, row[0], group="jobs")

    async def _end(self, number: str) -> None:
        survivors = await self.host.session.end_background(number)
        if survivors:
            self.host.say(f"Still running: {', '.join(survivors)}.", title="Could not end", tone="warning")
        if self.is_open:
            self._refresh()


class ThemesScreen(ListPanel):
    """Shows each theme as the cursor comes to it. Dismisses with its name, None for the old one."""

    HELP = "Up and down try a theme, Enter keeps it, Esc restores the old one. A theme file that changes shows at once."
    keys: ClassVar[Keys] = (("↑↓ try", ""), ("enter keep", "open"), ("esc cancel", "close"))

    def __init__(self, current: str) -> None:
        super().__init__("Themes")
        self._names: list[str] = []
        self._before = current
        self._seen: tuple[object, ...] = ()

    def on_mount(self) -> None:
        self._look(first=True)
        self.set_interval(LOOK, self._look)
        self.call_after_refresh(self._to_current)  # the list is filled by then

    def _to_current(self) -> None:
        if self._before in self._names:
            self.result_list.move_to(self._names.index(self._before))

    def _look(self, *, first: bool = False) -> None:
        """Reload the theme files if one of them changed, and show the current theme again."""
        seen = files_seen()
        if seen == self._seen:
            return
        self._seen = seen
        themes = self.host.appearance.reload()
        self._names = sorted(themes.themes)
        self.set_title("  ".join(["Themes", *themes.problems]))
        if not first:
            row = self.result_list.current
            self.refresh_rows()
            if row in self.result_list.rows:
                self.result_list.move_to(list(self.result_list.rows).index(row))
            self.host.appearance.refresh()

    def rows(self, text: str) -> list[str]:
        return [n for n in self._names if text.lower() in n.lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        sign = "▶ " if row == self._before else "  "
        return [[Segment(sign, palette.ok), Segment(str(row), palette.text)]]

    @on(LineList.Moved, "#panel-list")
    def _preview_row(self, event: LineList.Moved) -> None:
        event.stop()
        if event.row is not None:
            self.host.appearance.preview(str(event.row))

    def leave(self) -> None:
        self.host.appearance.preview(self._before)
        self.dismiss(None)


class WordsScreen(ListPanel):
    """Chooses one of a few words that a command takes, each with a description. Dismisses with the word."""

    def __init__(self, title: str, current: str, words: Mapping[str, str]) -> None:
        super().__init__(title)
        self._current, self._words = current, words

    def on_mount(self) -> None:
        self.call_after_refresh(self._to_current)  # the list is filled by then

    def _to_current(self) -> None:
        if self._current in self.result_list.rows:
            self.result_list.move_to(list(self.result_list.rows).index(self._current))

    def rows(self, text: str) -> list[str]:
        return [w for w in self._words if text.lower() in f"{w} {self._words[w]}".lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        sign = "▶ " if row == self._current else "  "
        name = max(map(len, self._words))
        return [
            [
                Segment(sign, palette.ok),
                Segment(f"{row:<{name}}  ", palette.text),
                Segment(shorten(one_line(self._words[row], 200), max(4, width - name - 5)), palette.faint),
            ]
        ]


def pick_word(host: Host, command: str, title: str, current: str, words: Mapping[str, str]) -> None:
    """Let the user choose the word of a command, which then runs as if it was typed."""

    def run(word: str | None) -> None:
        if word:
            host.send(f"/{command} {word}")

    host.push(WordsScreen(title, current, words), run)


async def pick_model(host: Host) -> None:
    """Let the user choose the model of the session."""
    session = host.session
    models = await session.views.models()

    def set_model(name: str | None) -> None:
        if name:
            host.go(session.set_model, name, group="model", exclusive=True)

    host.push(
        ModelsScreen(models, session.workspace.models.selection.model if session.workspace.models.selection else None),
        set_model,
    )


def pick_theme(host: Host) -> None:
    """Let the user choose a theme; the choice is remembered."""
    looks = host.appearance

    def set_theme(name: str | None) -> None:
        if name:
            looks.preview(name)
            host.go(host.session.views.set_ui_state, looks.theme_key, name, group="state")

    host.push(ThemesScreen(looks.theme), set_theme)
