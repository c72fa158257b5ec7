"""List of MCP servers with their state: show tools, restart, disable, log in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.getters import query_one

from sakti.actions.line import Typed
from sakti.agent.reports import mcp_view
from sakti.core.text import display_path, one_line
from sakti.tui.palette import Palette
from sakti.tui.screens.panel import BACK, Keys, Panel
from sakti.tui.transcript.wrap import Line, indent, plain_lines, shorten
from sakti.tui.widgets.line_list import LineList

if TYPE_CHECKING:
    from sakti.agent.mcp.config import ServerEntry, ServerList
    from sakti.agent.mcp.servers import ServerState

LOOK = 0.5  # seconds between looks at the servers while their list is open


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

    def body(self) -> ComposeResult:
        yield LineList(self._draw, empty=mcp_view.NO_SERVERS, id="panel-list")

    def on_mount(self) -> None:
        self._refresh()
        self.set_interval(LOOK, self._refresh)

    def _refresh(self) -> None:
        states = self.host.session.workspace.servers.states()
        self._states = {state.server.name: state for state in states}
        ready = sum(state.state == "ready" for state in states)
        problems = "".join(f"  {one_line(problem, 100)}" for problem in self._listed.problems)
        self.set_title(f"MCP servers  {ready} of {len(self._listed.entries)} ready{problems}")
        self.result_list.set_rows(list(self._listed.entries))

    def _draw(self, row: ServerEntry, width: int, palette: Palette) -> list[Line]:
        server = row.server
        state = None if row.why_not else self._states.get(server.name)
        sign, colour = _mark(row, state, palette)
        name = shorten(one_line(server.name, 64), max(8, width // 3))
        lines: list[Line] = [
            [
                Segment(f"{sign} ", colour),
                Segment(f"{name}  ", palette.text),
                Segment(shorten(_describe(row, state), max(8, width - len(name) - 6)), palette.muted),
            ]
        ]
        below = self._lines_below(row, state)
        rows = (row for text in below for row in plain_lines(text, palette.faint, max(8, width - 4)))
        return [*lines, *indent(rows, Segment("  "))]

    def _lines_below(self, row: ServerEntry, state: ServerState | None) -> list[str]:
        """Return the file, permissions and error of a server; of an unfolded one its tools, too."""
        server = row.server
        source = display_path(server.source, self.host.session.workspace.root if server.origin == "project" else None)
        lines = [" · ".join(part for part in (source, mcp_view.describe_grants(server)) if part)]
        lines += [state.error] if state is not None and state.error else []
        if server.name == self._unfolded:
            lines += [mcp_view.describe_way(row) or row.why_not]
            lines += mcp_view.tool_lines(state) if state is not None else []
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
        """Do with the chosen server what `/mcp VERB NAME` does; the chat shows the address of a login."""
        row: ServerEntry | None = self.result_list.current
        if row is None:
            return
        if verb == "login":
            self.leave()
        self.host.go(self.host.run_typed, Typed("command", "mcp", f"{verb} {row.server.name}"), group="servers")


def _describe(row: ServerEntry, state: ServerState | None) -> str:
    if state is not None:
        return mcp_view.describe_state(state)
    return row.why_not or ("starting" if row.server.enabled else "disabled")


def _mark(row: ServerEntry, state: ServerState | None, palette: Palette) -> tuple[str, Style]:
    """Return the sign of a server and its style."""
    if row.why_not or (state is not None and state.state == "needs login"):
        return "!", palette.warn
    if state is None or state.state == "disabled":
        return "·", palette.faint
    marks = {"ready": ("✓", palette.ok), "failed": ("✗", palette.bad)}
    return marks.get(state.state, ("…", palette.muted))
