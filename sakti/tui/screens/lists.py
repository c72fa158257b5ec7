"""Screens to choose from a list: models, themes, background commands, imports, MCP servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one

from sakti.actions.import_ import COUNTED, NO_HISTORY, describe_source
from sakti.actions.line import Typed
from sakti.agent.reports import mcp_view
from sakti.agent.tools import background
from sakti.core.errors import SaktiError
from sakti.core.text import count_k, display_path, format_bytes, to_one_line
from sakti.core.types import ModelInfo
from sakti.tui.appearance import fingerprint_theme_files
from sakti.tui.host import Host
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, ListPanel, Panel
from sakti.tui.transcript.wrap import Line, draw_plain, fit_width, indent, shorten, wrap
from sakti.tui.widgets.lines import LineList

if TYPE_CHECKING:
    from sakti.actions.import_ import HistoryImport
    from sakti.agent.mcp.config import ServerEntry, ServerList
    from sakti.agent.mcp.servers import ServerState
    from sakti.agent.tools.processes import Running
    from sakti.importers.service import SourceReport
    from sakti.store.threads.runs import StoredJob

OUTPUT_LINES = 12  # lines shown of a followed output
REFRESH_S = 0.5  # seconds between updates of an open list


def format_age(then_ms: int, now_ms: int) -> str:
    """Return an age in one unit (`now`, `5m`, `3h`, `12d`), or the date after a month."""
    seconds = max(0, now_ms - then_ms) // 1000
    if seconds < 60:
        return "now"
    for limit, unit, name in ((3600, 60, "m"), (86_400, 3600, "h"), (31 * 86_400, 86_400, "d")):
        if seconds < limit:
            return f"{seconds // unit}{name}"
    return datetime.fromtimestamp(then_ms / 1000).strftime("%Y-%m-%d")


SETUP = "Set up another: an API key, a server here, or the small model that needs neither"


class ModelsScreen(ListPanel):
    """Dismisses with the full name of a model; a name that is not listed can be typed.

    The last row opens the setup, with keys, servers and the download of the small model.
    """

    HELP = "The models that can be used now. A full name (provider/name) may be typed as well."
    placeholder = "filter, or type provider/name"
    empty = "no match: Enter uses what you typed"

    def __init__(self, models: Sequence[ModelInfo], current: str | None) -> None:
        super().__init__(f"Models  {len(models)}")
        self._models = models
        self._current = current

    def rows(self, text: str) -> list[ModelInfo | str]:
        models: list[ModelInfo | str] = [m for m in self._models if text.lower() in m.full_name.lower()]
        return [*models, SETUP] if text.lower() in SETUP.lower() else models

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        if row == SETUP:
            return [*([Segment("  "), *rest] for rest in wrap([(SETUP, palette.muted)], width - 2))]
        facts = [f"{count_k(row.context_window)} window" if row.context_window else ""]
        if row.input_price is not None and row.output_price is not None:
            facts.append(f"${row.input_price:g} in, ${row.output_price:g} out / M")
        right = " · ".join(f for f in facts if f)
        sign = "▶ " if row.full_name == self._current else "  "
        room = max(4, width - len(right) - 5)
        return [
            [
                Segment(sign, palette.ok),
                Segment(fit_width(to_one_line(row.full_name, 120), room), palette.text),
                Segment(f"  {right}", palette.faint),
            ]
        ]

    def choose(self, row: Any) -> None:
        self.dismiss(None if row == SETUP else row.full_name)
        if row == SETUP:
            self.host.start_worker(self.host.run_typed, Typed("command", "setup"), group="command")

    def action_open(self) -> None:
        if self.result_list.current is not None:
            self.result_list.action_open()
        elif "/" in self.input.value:
            self.dismiss(self.input.value.strip())


class JobsScreen(Panel[None]):
    """Background commands of the agent, running or ended, each with the end of its output."""

    HELP = "Commands in the background. Enter follows the output of one, x ends it and everything it started."
    AUTO_FOCUS = "#panel-list"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("x", "end", "End the command", show=False, id="jobs.end")]
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter follow", "follow"), ("x end", "end"), BACK)
    result_list = query_one("#panel-list", LineList)

    def __init__(self) -> None:
        super().__init__("Background commands")
        self._followed = ""  # number of the command whose output is shown

    def compose_body(self) -> ComposeResult:
        yield LineList(self._draw, empty="There are no background commands.", id="panel-list")

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        jobs = self.host.session.list_jobs()
        running = sum(not background.has_ended(job) for job in jobs.values())
        self.set_title(f"Background commands  {running} running")
        self.result_list.set_rows(list(jobs.items()))

    def _draw(self, row: tuple[str, Running | StoredJob], width: int, palette: Palette) -> list[Line]:
        number, job = row
        is_followed = number == self._followed
        output = background.read_last_lines(job, OUTPUT_LINES if is_followed else 1) or "no output"
        head: list[Line] = [
            [Segment(f"{number:>3}  ", palette.faint), Segment(shorten(to_one_line(job.command, 300), width - 6))],
            [Segment("     "), Segment(background.describe_state(job), palette.faint)],
        ]
        lines = (shorten(to_one_line(line, 300), width - 6) for line in output.split("\n"))
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
            self.host.start_worker(self._end, row[0], group="jobs")

    async def _end(self, number: str) -> None:
        survivors = await self.host.session.end_background(number)
        if survivors:
            self.host.show_notice(f"Still running: {', '.join(survivors)}.", title="Could not end", tone="warning")
        if self.is_open:
            self._refresh()


class ThemesScreen(ListPanel):
    """Previews the theme under the cursor. Dismisses with its name, or None to keep the old one."""

    HELP = "Up and down try a theme, Enter keeps it, Esc restores the old one. Changes to a theme file show at once."
    keys: ClassVar[Keys] = (("↑↓ try", ""), ("enter keep", "open"), ("esc cancel", "close"))

    def __init__(self, current: str) -> None:
        super().__init__("Themes")
        self._names: list[str] = []
        self._before = current
        self._seen: tuple[object, ...] = ()

    def on_mount(self) -> None:
        self._reload_themes(first=True)
        self.set_interval(REFRESH_S, self._reload_themes)
        self.call_after_refresh(self._to_current)  # the list is filled by then

    def _to_current(self) -> None:
        if self._before in self._names:
            self.result_list.move_to(self._names.index(self._before))

    def _reload_themes(self, *, first: bool = False) -> None:
        """Reload the theme files if one of them changed, and show the current theme again."""
        seen = fingerprint_theme_files()
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
    """Chooses an argument of a command, each with a description. Dismisses with the argument."""

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
                Segment(shorten(to_one_line(self._words[row], 200), max(4, width - name - 5)), palette.faint),
            ]
        ]


def pick_word(host: Host, command: str, title: str, current: str, words: Mapping[str, str]) -> None:
    """Let the user choose the argument of a command, then run it as if typed."""

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
            host.start_worker(session.set_model, name, group="model", exclusive=True)

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
            host.start_worker(remember_theme, host, name, group="state")

    host.push(ThemesScreen(looks.theme), set_theme)


async def remember_theme(host: Host, name: str) -> None:
    """Store the chosen theme, and say so if it is shown in this window only."""
    if note := await host.appearance.remember(name):
        host.show_notice(note, title="Theme")


LOADING = "searching the home folder …"


class ImportScreen(Panel[frozenset[str] | None]):
    """Dismisses with the names of the checked programs, or None to import nothing."""

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
        self._rows: dict[str, tuple[SourceReport, int]] = {}  # figures and counted percentage of each program
        self._checked: set[str] = set()

    def compose_body(self) -> ComposeResult:
        yield LineList(self._draw, empty=LOADING, id="panel-list")

    def on_mount(self) -> None:
        self.host.start_worker(self._count, group="import-count", exclusive=True)

    async def _count(self) -> None:
        try:
            await self._history.count(self._show_figures, lambda: not self.is_attached)
        except SaktiError as e:
            self.programs.set_empty_text(e.message)
            return
        if self.is_attached:
            self.programs.set_empty_text(NO_HISTORY)

    def _show_figures(self, source: SourceReport, percent: int) -> None:
        """Show the figures of a program; programs start checked and are unchecked if nothing is new."""
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
        text = describe_source(source) if is_counted else f"{source.program:<11} {format_bytes(source.size):>11}"
        color = palette.text if source.new or not is_counted else palette.muted
        lines = wrap([(text, color)], max(8, width - 2))
        note = f"counting {percent} %" if not is_counted else "" if source.new else "nothing new"
        return [[box if n == 0 else Segment("  "), *line] for n, line in enumerate(lines)] + (
            [[Segment(f"  {note}", palette.faint)]] if note else []
        )

    def action_check(self) -> None:
        """Check or uncheck the program under the cursor."""
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


class ServersScreen(Panel[None]):
    """MCP servers of all files: state, version, tools, tokens, file, permissions, last error."""

    HELP = "The MCP servers. Enter shows the tools of one, r restarts it, d turns it off until sakti ends, l logs in."
    AUTO_FOCUS = "#panel-list"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "run('restart')", "Restart the server", show=False, id="servers.restart"),
        Binding("d", "run('disable')", "Turn the server off", show=False, id="servers.disable"),
        Binding("l", "run('login')", "Log in to the server", show=False, id="servers.login"),
    ]
    keys: ClassVar[Keys] = (
        ("↑↓ move", ""),
        ("enter tools", "tools"),
        ("r restart", "run('restart')"),
        ("d disable", "run('disable')"),
        ("l log in", "run('login')"),
        BACK,
    )
    result_list = query_one("#panel-list", LineList)

    def __init__(self, listed: ServerList) -> None:
        super().__init__("MCP servers")
        self._listed = listed
        self._unfolded = ""  # the name of the server whose tools are shown
        self._states: dict[str, ServerState] = {}

    def compose_body(self) -> ComposeResult:
        yield LineList(self._draw, empty=mcp_view.NO_SERVERS, id="panel-list")

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(REFRESH_S, self._refresh)

    def _refresh(self) -> None:
        states = self.host.session.workspace.servers.states()
        self._states = {state.server.name: state for state in states}
        ready = sum(state.state == "ready" for state in states)
        problems = "".join(f"  {to_one_line(problem, 100)}" for problem in self._listed.problems)
        self.set_title(f"MCP servers  {ready} of {len(self._listed.entries)} ready{problems}")
        self.result_list.set_rows(list(self._listed.entries))

    def _draw(self, row: ServerEntry, width: int, palette: Palette) -> list[Line]:
        server = row.server
        state = None if row.why_not else self._states.get(server.name)
        sign, colour = _get_server_sign(row, state, palette)
        name = shorten(to_one_line(server.name, 64), max(8, width // 3))
        lines: list[Line] = [
            [
                Segment(f"{sign} ", colour),
                Segment(f"{name}  ", palette.text),
                Segment(shorten(_describe_server(row, state), max(8, width - len(name) - 6)), palette.muted),
            ]
        ]
        below = self._list_lines_below(row, state)
        rows = (row for text in below for row in draw_plain(text, palette.faint, max(8, width - 4)))
        return [*lines, *indent(rows, Segment("  "))]

    def _list_lines_below(self, row: ServerEntry, state: ServerState | None) -> list[str]:
        """Return the file, permissions and error of a server, and its tools if it is unfolded."""
        server = row.server
        source = display_path(server.source, self.host.session.workspace.root if server.origin == "project" else None)
        lines = [" · ".join(part for part in (source, mcp_view.describe_grants(server)) if part)]
        lines += [state.error] if state is not None and state.error else []
        if server.name == self._unfolded:
            lines += [mcp_view.describe_way(row) or row.why_not]
            lines += mcp_view.format_tool_lines(state) if state is not None else []
        return lines

    @on(LineList.Opened)
    def _open_tools(self, event: LineList.Opened) -> None:
        event.stop()
        self.action_tools()

    def action_tools(self) -> None:
        """Show the tools of the chosen server, or hide them."""
        row: ServerEntry | None = self.result_list.current
        self._unfolded = row.server.name if row is not None and row.server.name != self._unfolded else ""
        self._refresh()

    def action_run(self, verb: str) -> None:
        """Run `/mcp VERB NAME` for the chosen server; the address of a login appears in the chat."""
        row: ServerEntry | None = self.result_list.current
        if row is None:
            return
        if verb == "login":
            self.leave()
        self.host.start_worker(
            self.host.run_typed, Typed("command", "mcp", f"{verb} {row.server.name}"), group="servers"
        )


def _describe_server(row: ServerEntry, state: ServerState | None) -> str:
    if state is not None:
        return mcp_view.describe_state(state)
    return row.why_not or ("starting" if row.server.enabled else "disabled")


def _get_server_sign(row: ServerEntry, state: ServerState | None, palette: Palette) -> tuple[str, Style]:
    """Return the symbol of a server and its style."""
    if row.why_not or (state is not None and state.state == "needs login"):
        return "!", palette.warn
    if state is None or state.state == "disabled":
        return "·", palette.faint
    marks = {"ready": ("✓", palette.ok), "failed": ("✗", palette.bad)}
    return marks.get(state.state, ("…", palette.muted))
