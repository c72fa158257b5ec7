"""Welcome the user on the first start: detected tools, the model, and optional ways to continue."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from rich.segment import Segment
from textual import on
from textual.app import App, ComposeResult
from textual.getters import query_one
from textual.widgets import Input, Static

from sakti.actions.import_ import HistoryImport
from sakti.actions.line import Typed
from sakti.agent.judge.policy import IN_SHORT
from sakti.agent.setup import MachineScan, describe_selection, list_options, scan_machine
from sakti.core.errors import SaktiError
from sakti.core.lazy import lazy_imports
from sakti.core.text import sanitize_text, to_one_line
from sakti.core.types import ModelInfo
from sakti.tui import desktop
from sakti.tui.host import get_app
from sakti.tui.palette import Palette
from sakti.tui.screens.lists import ModelsScreen, pick_theme
from sakti.tui.screens.panel import Keys, ListPanel, Panel
from sakti.tui.transcript.wrap import Line, fit_width, indent, wrap
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.safe_input import SafeInput

if TYPE_CHECKING:
    from sakti.tui.activities import Download, Progress

with lazy_imports:
    from sakti.agent import settings_file
    from sakti.core import resources
    from sakti.providers import keys as stored_keys
    from sakti.providers import presets as provider_presets
    from sakti.providers.local import install as local_install

NO_SERVER = (
    "No server answers. Start Ollama, LM Studio, llama.cpp or vLLM and press enter again.\n"
    'Another address goes into the configuration: [providers.NAME] base_url = "http://…/v1"'
)
INSTALL = "pip install 'sakti[local]' && sakti local install"


class SetupChoice(Struct, frozen=True):
    """A way to continue: its name, its title, and a hint on its current state."""

    name: str
    title: str
    hint: str


class WelcomeScreen(Panel[None]):
    """Arrows and Enter choose; typing closes the screen and goes to the prompt.

    `apply` shows a changed setting on the chat screen.
    """

    HELP = "What sakti found on this machine, and how to continue. /setup shows it again."
    AUTO_FOCUS = "#panel-list"
    keys: ClassVar[Keys] = (("↑↓ move", ""), ("enter choose", "open"), ("Esc or type to start", "close"))
    choices = query_one("#panel-list", LineList)
    line = query_one("#panel-line", Input)

    def __init__(self, apply: Callable[[str], object], download: Download) -> None:
        super().__init__("Welcome to sakti, a coding agent whose memory you can see")
        self.setup = MachineScan()
        self._apply = apply
        self._programs: list[str] = []  # programs whose history can be imported
        self._variable = ""  # variable whose key is being typed
        self._download = download
        download.show = self.show_detail

    def compose_body(self) -> ComposeResult:
        yield Static("", id="welcome-found", markup=False)
        yield LineList(self._draw, id="panel-list")
        line = SafeInput(id="panel-line", compact=True, password=True)
        line.display = False
        yield line
        yield Static("", id="panel-detail", markup=False)

    def on_mount(self) -> None:
        self._refresh()
        self.host.start_worker(self._load_setup, group="welcome")

    def on_screen_resume(self) -> None:
        self._refresh()  # the theme may have changed

    @property
    def is_typing(self) -> bool:
        """Return whether typed text belongs to this screen's input line, not to the prompt."""
        return self.line.display

    async def _load_setup(self) -> None:
        session = self.host.session
        self.setup = await scan_machine(session.workspace.env, session.workspace.config.providers)
        self._programs = await HistoryImport(session.workspace.store, session.workspace.root).names()
        if self.is_open:
            self._refresh()

    def _refresh(self) -> None:
        session = self.host.session
        lines = [f"{'✓' if good else '·'} {text}" for good, text in list_options(self.setup)]
        self.query_one("#welcome-found", Static).update(
            sanitize_text("\n".join([*lines, "", describe_selection(session.workspace.models.selection)]))
        )
        self.choices.set_rows(self._list_choices(), cursor=max(0, self.choices.cursor))

    def _list_choices(self) -> list[SetupChoice]:
        session, discovery = self.host.session, self.setup
        answers = (
            session.workspace.models.selection is not None and session.workspace.models.selection.model is not None
        )
        first = ("Start", "ask something") if answers else ("Start without a model", "tools, search and tasks work")
        keep = f"stored in the keyring ({discovery.keyring})" if discovery.keyring else "which variable to set"
        served = ", ".join(s.title for s in discovery.servers) or "start a server, then Enter to rescan"
        if self._download.is_running:
            small = "is being installed; enter stops it"
        elif discovery.weights and discovery.runtime:
            small = "no key, no network; for questions, check its edits"
        else:
            small = "1.1 GB, once; then no key and no network"
        history = [SetupChoice("import", "Import history", ", ".join(self._programs))] if self._programs else []
        return [
            SetupChoice("start", *first),
            SetupChoice("key", "Use an API key", keep),
            SetupChoice("server", "Use a server here", served),
            SetupChoice("local", "Use the small model", small),
            *history,
            SetupChoice("tour", "Take the tour", "two minutes, played from a script"),
            SetupChoice("theme", "Theme", self.host.appearance.theme),
            SetupChoice(
                "approval", "Approval", f"{session.current.approval_mode}: {IN_SHORT[session.current.approval_mode]}"
            ),
        ]

    def _draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        name = min(23, width // 2)
        first, *more = wrap([(to_one_line(row.hint, 120), palette.muted)], max(4, width - name - 2))
        return [
            [Segment(f" {fit_width(row.title, name)}", palette.bold), *first],
            *indent(more, Segment(" " * (name + 1))),
        ]

    def show_detail(self, text: str) -> None:
        """Show a text below the choices."""
        if self.is_attached:
            self.query_one("#panel-detail", Static).update(sanitize_text(text))

    @on(LineList.Opened, "#panel-list")
    def _choose_way(self, event: LineList.Opened) -> None:
        event.stop()
        self.show_detail("")
        match event.row:
            case SetupChoice("start"):
                self.dismiss(None)
            case SetupChoice("key"):
                self.host.push(KeyScreen(), self._ask_key)
            case SetupChoice("server"):
                self._run_choice(self._choose_server)
            case SetupChoice("local"):
                self._run_choice(self._use_small_model)
            case SetupChoice("tour"):
                self._run_choice(self._play_tour)
            case SetupChoice("import"):
                self.dismiss(None)
                self.host.start_worker(self.host.run_typed, Typed("command", "import"), group="command")
            case SetupChoice("theme"):
                pick_theme(self.host)
            case SetupChoice("approval"):
                self._run_choice(self._cycle_approval)
            case _:
                pass

    def _run_choice(self, work: Any, *args: Any) -> None:
        async def run() -> None:
            try:
                await work(*args)
            except SaktiError as e:
                if self.is_open:
                    self.show_detail(e.message)
                else:
                    self.host.show_notice(e.message, title=e.title, tone="warning")

        self.host.start_worker(run, group="welcome-way")

    # --- a key ------------------------------------------------------------------------------------------------

    def _ask_key(self, variable: str | None) -> None:
        if not variable:
            return
        if not self.setup.keyring:
            self.show_detail(
                f"Start sakti again with it:  export {variable}=…\nThis system has no keyring to store it in."
            )
            return
        self._variable = variable
        self.line.placeholder = f"API key for {variable}; it is stored in the keyring only"
        self.line.value = ""
        self.line.display = True
        self.line.focus()

    @on(Input.Submitted, "#panel-line")
    def _submit_key(self, event: Input.Submitted) -> None:
        event.stop()
        key, variable = event.value.strip(), self._variable
        self._close_line()
        if key:
            self._run_choice(self._store_key, variable, key)

    def _close_line(self) -> None:
        self.line.value = ""
        self.line.display = False
        self.choices.focus()

    async def _store_key(self, variable: str, key: str) -> None:
        await asyncio.to_thread(stored_keys.store_key, variable, key)
        provider = next(p.name for p in provider_presets.PRESETS.values() if variable in p.keys)
        await self._use_model(provider)

    async def _use_model(self, name: str) -> None:
        await self.host.session.set_model(name)
        await self._load_setup()

    # --- a server, the small model, the tour --------------------------------------------------------------------

    async def _choose_server(self) -> None:
        await self._load_setup()
        models = [ModelInfo(m, s.provider) for s in self.setup.servers for m in s.models]
        if not models:
            self.show_detail(NO_SERVER)
            return
        now = self.host.session.workspace.models.selection
        self.host.push(ModelsScreen(models, now.model if now else None), self._set_model)

    def _set_model(self, name: str | None) -> None:
        if name:
            self._run_choice(self._use_model, name)

    async def _use_small_model(self) -> None:
        if self._download.is_running:
            self._download.stop()
            return
        if not self.setup.runtime:
            self.show_detail(f"Run this in a shell, then start sakti again:\n{INSTALL}")
            return
        if not self.setup.weights:
            await self._install()
        if self.is_open:
            await self._use_model("local")
        else:
            self.host.show_notice(
                "The small model is installed. /model local uses it.", title="Download", tone="information"
            )

    async def _install(self) -> None:
        """Download the weights; closing the screen does not stop it."""
        self.call_later(self._refresh)  # after the start of the download, so that the list shows it
        try:
            await self._download.run(self._install_weights)
        finally:
            if self.is_attached:
                self._refresh()

    def _install_weights(self, progress: Progress, is_stopped: Callable[[], bool]) -> None:
        local_install.Installer(progress, is_stopped, workspace=self.host.session.workspace.root).run()

    async def _play_tour(self) -> None:
        await play_tour(get_app(self))

    # --- approval -------------------------------------------------------------------------------------

    async def _cycle_approval(self) -> None:
        """Switch to the next approval mode and store it in the user's configuration."""
        session = self.host.session
        mode = session.next_approval_mode()
        user_file, project_file = (
            resources.config_home() / "config.toml",
            session.workspace.root / ".sakti" / "config.toml",
        )
        try:
            message = await settings_file.change(
                session, user_file, "approval.mode", mode, user_file=user_file, project_file=project_file
            )
        except SaktiError as e:
            session.set_approval_mode(mode)
            message = f"{mode} for this window only. {e.message}"
        self._apply("approval.mode")
        self.show_detail(message)
        self._refresh()

    # --- leaving ------------------------------------------------------------------------------------------------

    def action_open(self) -> None:
        self.choices.action_open()

    def action_close(self) -> None:
        if self.line.display:
            self._close_line()
        else:
            self.dismiss(None)

    def on_unmount(self) -> None:
        self._download.show = lambda text: None


async def play_tour(app: App[Any]) -> None:
    """Play the tour in the terminal until the user quits it. Raises `SaktiError`."""
    if await desktop.run_in_terminal(app, [sys.executable, "-P", "-m", "sakti", "tour"]):
        raise SaktiError("The tour could not be played here: run `sakti tour` in a shell.", title="Tour")


class KeyScreen(ListPanel):
    """Dismisses with the variable of the chosen provider."""

    HELP = "The providers that take a key, and the variable that holds it."
    placeholder = "filter"

    def __init__(self) -> None:
        super().__init__("API key for …")
        self._env = dict(os.environ)

    def rows(self, text: str) -> list[tuple[str, str]]:
        providers = [(p.title, p.keys[0]) for p in provider_presets.PRESETS.values() if p.keys]
        return [r for r in providers if text.lower() in f"{r[0]} {r[1]}".lower()]

    def draw(self, row: Any, width: int, palette: Palette) -> list[Line]:
        title, variable = row
        there = "  is set" if self._env.get(variable) else ""
        return [[Segment(fit_width(title, 16), palette.text), Segment(f"{variable}{there}", palette.faint)]]

    def choose(self, row: Any) -> None:
        self.dismiss(row[1])
