"""The app: what is on the screen, its keys, and the workers that fetch. Events come through `bridge`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from textual import constants, events, on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.driver import Driver
from textual.getters import query_one
from textual.screen import Screen
from textual.widgets import Static

from sakti.actions import registry
from sakti.core.errors import StoreError
from sakti.core.events import ApprovalRequested, ApprovalResolved, Event
from sakti.core.text import one_line, sanitise
from sakti.core.types import Thread
from sakti.tui import bridge, navigation, welcoming, work
from sakti.tui.attention import Attention
from sakti.tui.commands import Commands
from sakti.tui.completing import Completer
from sakti.tui.driver import forgiving
from sakti.tui.following import LOOK
from sakti.tui.palette import variable_defaults
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.sidebar import PANES, Sidebar
from sakti.tui.themes import FALLBACK, SIXTEEN, load_themes
from sakti.tui.transcript.markdown import warm_renderers
from sakti.tui.unsent import Unsent
from sakti.tui.widgets.approval import ApprovalBox
from sakti.tui.widgets.completions import Completions
from sakti.tui.widgets.header import Header
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.queue import QueueView
from sakti.tui.widgets.safe_input import SafeInput
from sakti.tui.widgets.status import StatusLine
from sakti.tui.widgets.transcript import Transcript
from sakti.tui.widgets.visit import VisitBar

if TYPE_CHECKING:
    from sakti.agent.session import Session

TWICE = 2.0  # seconds in which a second ctrl+c quits


class SaktiApp(work.Work, navigation.Navigation, welcoming.Welcoming, App[int]):
    """One window on one session."""

    TITLE = "sakti"
    AUTO_FOCUS = "#prompt"
    CSS_PATH: ClassVar[Any] = ["styles/main.tcss", "styles/panes.tcss", "styles/panels.tcss"]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (100, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "stop", "Copy, stop, clear; twice: quit", show=False, id="app.stop"),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True, id="app.quit"),
        Binding("escape", "interrupt", "Stop the agent", show=False, id="app.interrupt"),
        Binding("f1", "help", "Help", show=False, id="app.help"),
        Binding("f2", "pane('memory')", "Memory", show=False, id="app.memory"),
        Binding("f3", "pane('log')", "Observations", show=False, id="app.log"),
        Binding("f4", "pane('tasks')", "Tasks", show=False, id="app.tasks"),
        Binding("ctrl+b", "panes", "All panes", show=False, id="app.panes"),
        Binding("ctrl+f", "search", "Search", show=False, id="app.search"),
        Binding("alt+left", "go_back", "Back from a search hit", show=False, id="app.back"),
        Binding("ctrl+t", "threads", "Threads", show=False, id="app.threads"),
        Binding("f5", "retry", "Ask again after a failure", show=False, id="app.retry"),
        Binding("ctrl+o", "unfold", "Fold or unfold the newest", show=False, id="app.unfold"),
    ]

    visit_bar = query_one(VisitBar)
    transcript = query_one("#transcript", Transcript)
    prompt = query_one("#prompt", Prompt)
    header = query_one(Header)
    status_line = query_one(StatusLine)
    sidebar = query_one("#side", Sidebar)
    approval = query_one(ApprovalBox)
    queue = query_one(QueueView)
    completions = query_one(Completions)

    def __init__(self, session: Session, *, prompt: str | None = None, pick_thread: bool = False) -> None:
        self._themes = load_themes()
        self._colours = "truecolor"
        super().__init__()
        self.session = session
        self.crash_message = ""
        self._commands = Commands(self)
        self._completer = Completer(session)
        self.unsent = Unsent(self)
        self.attention = Attention(self)
        self._first_prompt, self._pick_first = prompt, pick_thread
        self._started = self._cannot_start = False
        self._waiting: list[str] = []
        self._shown_thread = ""
        self._last_stop = self._last_quit = float("-inf")
        for theme in self._themes.themes.values():
            self.register_theme(theme)
        wanted = session.config.ui.theme
        self.theme = wanted if wanted in self._themes.themes else FALLBACK

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return variable_defaults(True, self._colours)

    @property
    def started(self) -> bool:
        """Whether the store is open."""
        return self._started

    @property
    def shown_thread(self) -> str:
        """The thread whose messages stand in the chat."""
        return self._shown_thread

    def use_theme(self, name: str) -> bool:
        """Show a theme by its name, as its file is now; False where there is none."""
        self._themes = load_themes()
        for theme in self._themes.themes.values():
            self.register_theme(theme)
        if name not in self._themes.themes:
            return False
        if name == self.theme:
            self.mutate_reactive(SaktiApp.theme)  # of the same name, but maybe not as it was
        self.theme = name
        return True

    @property
    def colours(self) -> str:
        """What the terminal can show: "none", "standard" (sixteen), "256", "truecolor"."""
        return "none" if self.no_color else (self.console.color_system or "none") if not self.is_headless else "256"

    @property
    def theme_key(self) -> str:
        """What the last choice of a theme is remembered under."""
        return "theme16" if self.colours == "standard" else "theme"

    def _use_what_colours_there_are(self) -> None:
        self._colours = self.colours
        if self._colours in ("none", "standard"):
            self.use_theme(SIXTEEN if self._colours == "standard" and self.theme == FALLBACK else self.theme)

    def use_motion(self) -> None:
        """Nothing blinks or glides where the user wants it so."""
        self.animation_level = "none" if self.session.config.ui.reduced_motion else constants.TEXTUAL_ANIMATIONS
        blink = self.animation_level != "none"
        self.prompt.cursor_blink = blink
        for line in (line for screen in self.screen_stack for line in screen.query(SafeInput)):
            line.cursor_blink = blink

    def get_driver_class(self) -> type[Driver]:
        return forgiving(super().get_driver_class())

    def compose(self) -> ComposeResult:
        yield Header()
        with Horizontal(id="body"):
            with Vertical(id="chat"):
                yield VisitBar()
                yield Transcript(id="transcript")
                yield ApprovalBox(self.session.clock)
                yield QueueView()
                yield Completions()
                with Horizontal(id="prompt-row"):
                    yield Static(">", id="prompt-sign", markup=False)
                    yield Prompt(id="prompt")
            yield Sidebar(id="side")
        yield StatusLine(self.session.clock)

    def on_mount(self) -> None:
        self.session.subscribe(self._heard)
        self.app_resume_signal.subscribe(self, self._repaint)  # pyright: ignore[reportUnknownMemberType]
        self.use_motion()
        self._use_what_colours_there_are()
        self.sidebar.styles.width = max(24, min(80, self.session.config.ui.sidebar_width))
        for problem in self._themes.problems:
            self.say(problem, title="Theme", tone="warning")
        self.call_after_refresh(self.go, self._start, group="start")

    def _heard(self, event: Event) -> None:
        if self.is_running:  # memory may still observe when there is nothing left to show it on
            bridge.handle(self, event)

    async def _start(self) -> None:
        """Open the store after the first paint, then show what it holds."""
        try:
            await self.session.start()
        except BaseException:
            self._cannot_start = True
            for text in self._waiting:
                self._give_back(text)
            raise
        finally:
            self.header.mode, self.header.approval = self.session.mode, self.session.approval_mode
            self.header.not_saved = bool(self.session.not_saved)
            self.show_git()
        self._started = True
        self.set_interval(LOOK, self.look_for_others)
        self.load_board()
        state = await self.session.views.ui_state()
        self.sidebar.restore(state.get("panes", " ".join(PANES)))
        if (theme := state.get(self.theme_key, "")) in self._themes.themes and self.session.config.ui.theme == FALLBACK:
            self.theme = theme
        self.prompt.history_entries = [*await self.session.views.history(), *self.prompt.history_entries]
        await self.unsent.restore()
        if self._pick_first:
            await self.pick_thread()
        for text in ([self._first_prompt] if self._first_prompt else []) + self._waiting:
            await self._commands.run(text)
        await self.welcome_once(state)

    @property
    def occupied(self) -> bool:
        """Whether the user is in the middle of something, or came for something."""
        asked = self._first_prompt or self._waiting or self._pick_first
        return bool(asked or self.prompt.text or self.session.busy or len(self.screen_stack) > 1)

    async def on_event(self, event: events.Event) -> None:
        self.typed_through(event)
        await super().on_event(event)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()  # a traceback is for the log file, not for the user

    # --- what the bridge calls ------------------------------------------------------------------------------

    def show_thread(self, thread: Thread) -> None:
        """The title, and the messages when it is another thread."""
        self.header.thread_title = thread.title
        if thread.id != self._shown_thread:
            self._shown_thread = thread.id
            self.thread_opened(thread.id)
            self.status_line.context = 0
            self.sidebar.memory.look()
            self.go(self.load_thread, thread.id, group="thread", exclusive=True)

    def show_model(self, model: str | None, window: int | None, reason: str) -> None:
        self.header.model = model or "no model"
        self.status_line.why = one_line(f"{model.partition('/')[0]}: {reason}" if model else reason, 60)
        self.status_line.window = window or 0

    def show_git(self) -> None:
        git = self.session.git
        self.header.branch, self.header.changed = (git.branch, git.changed) if git else ("", 0)

    def show_approvals(self, event: ApprovalRequested | ApprovalResolved) -> None:
        pending = self.session.approvals
        self.approval.show(pending, take_focus=not self.prompt.text and len(self.screen_stack) == 1)
        if isinstance(event, ApprovalRequested):
            self.status_line.hint = "" if not self.prompt.text else "a question waits above: shift+tab goes there"
        elif not pending:
            self.status_line.hint = ""
            self.prompt.focus()

    @property
    def compacting(self) -> bool:
        return self._commands.compacting

    # --- input ----------------------------------------------------------------------------------------------

    @on(Prompt.Submitted)
    def _submitted(self, event: Prompt.Submitted) -> None:
        event.stop()
        self.status_line.hint = ""
        if self._cannot_start and not event.text.startswith("/"):
            self._give_back(event.text)
            return
        if not self._started and not self._cannot_start:
            self._waiting.append(event.text)
            return
        self.go(self._commands.run, event.text, group="command")
        self.go(self._remember, event.text, group="history")

    def _give_back(self, text: str) -> None:
        """There is nobody to take it: it stands in the prompt again."""
        self.prompt.put("\n\n".join(t for t in (text, self.prompt.value) if t))
        self.status_line.hint = "sakti could not start: what is wrong stands above"

    async def _remember(self, text: str) -> None:
        if not text.startswith("/quit"):
            with contextlib.suppress(StoreError):  # whatever was typed says itself what is wrong
                await self.session.views.add_history(text)

    @on(Prompt.FirstKey)
    def _warm(self) -> None:
        self.go(self._warm_up, group="warm")

    async def _warm_up(self) -> None:
        """What the first answer needs, loaded while it is being typed."""
        await self.session.warm()
        await asyncio.to_thread(warm_renderers)
        await asyncio.to_thread(registry.chat)
        gc.freeze()  # a full collection need not walk the modules that stay for good

    @on(Prompt.Wanted)
    def _complete(self, event: Prompt.Wanted) -> None:
        event.stop()
        self.unsent.changed()
        self.go(self._completer.show, event.query, self.prompt, self.completions, group="complete", exclusive=True)

    @on(Prompt.Searching)
    def _searching(self, event: Prompt.Searching) -> None:
        self.status_line.hint = event.text

    @on(Prompt.ClipboardWanted)
    def _clipboard_wanted(self) -> None:
        self.go(self._paste_image, group="clipboard", exclusive=True)

    async def _paste_image(self) -> None:
        """An image of the system's clipboard into the prompt; else what was copied in this window."""
        from sakti.tui import clipboard

        data: bytes | None = None
        if clipboard.command(os.environ, self.session.workspace) or not self.clipboard:
            data = await clipboard.image(os.environ, self.session.workspace)
        if data is not None:
            path = await asyncio.to_thread(clipboard.keep, data)
            self.prompt.attach(path, len(data))
        elif not self.prompt.paste_own():
            self.status_line.hint = "the clipboard holds no image; the terminal's own keys paste text"

    @on(Prompt.Moved)
    def _move_completion(self, event: Prompt.Moved) -> None:
        self.completions.move(event.step)

    @on(Prompt.Accepted)
    def _accept(self, event: Prompt.Accepted) -> None:
        self._completer.accept(self.prompt, self.completions, send=event.send)

    @on(Completions.Picked)
    def _picked(self) -> None:
        self._completer.accept(self.prompt, self.completions, send=False)

    @on(ApprovalBox.Answered)
    def _answered(self, event: ApprovalBox.Answered) -> None:
        self.session.resolve(event.id, event.approved, always=event.always, note=event.note, edited=event.edited)

    @on(QueueView.Removed)
    def _unqueue(self, event: QueueView.Removed) -> None:
        text = self.session.unqueue(event.index)
        if text is not None:
            self.prompt.put("\n\n".join(t for t in (text, self.prompt.value) if t))
        self.prompt.focus()

    @on(Transcript.OlderWanted)
    def _older(self) -> None:
        self.go(self.load_older, group="older", exclusive=True)

    @on(ObservationsPane.SourcesWanted)
    def _sources(self, event: ObservationsPane.SourcesWanted) -> None:
        self.go(self.open_sources, event.row, group="sources", exclusive=True)

    @on(ObservationsPane.Corrected)
    def _corrected(self, event: ObservationsPane.Corrected) -> None:
        self.go(self._correct, event.action, event.line_id, event.text, group="correct")

    async def _correct(self, action: str, line_id: str, text: str) -> None:
        try:
            await self.session.correct(action, line_id, text)
        finally:
            self.load_observations()

    def on_resize(self, event: events.Resize) -> None:
        self.sidebar.set_narrow(event.size.width < 100)

    def _repaint(self, _: object) -> None:
        """Another program had the terminal: nothing of what stands there is ours."""
        self.screen.refresh()

    def call_terminal(self, sequence: str) -> None:
        """Write a control sequence of our own making to the terminal."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Any = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        super().notify(sanitise(message), title=sanitise(title), severity=severity, timeout=timeout, markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for name, command in registry.chat().items():
            text = f"/{name}"
            yield SystemCommand(text, command.in_short, lambda text=text: self._palette(text))

    def _palette(self, text: str) -> None:
        self.go(self._commands.run, text, group="command")

    # --- keys -----------------------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """ctrl+c: copy what is selected; else interrupt, or clear the prompt; twice quits."""
        selected = self.screen.get_selected_text() or self.prompt.selected_text
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            return
        now = self.session.clock.monotonic()
        if now - self._last_stop < TWICE:
            self.exit(0)
            return
        self._last_stop = now
        if self._commands.stop():
            pass
        elif self.session.busy:
            self.go(self._interrupt, group="interrupt")
        else:
            self.prompt.drop()
        self.status_line.hint = "ctrl+c again quits"
        self.call_after_refresh(self._quit_offered)

    def _quit_offered(self) -> None:
        """The two seconds begin where the hint can be read, however late a busy machine paints it."""
        self._last_stop = self.session.clock.monotonic()
        self.set_timer(TWICE, self.clear_hint)

    def action_edit_prompt(self) -> None:
        """ctrl+g: the prompt in the user's editor."""
        self.go(self._edit_prompt, group="editor", exclusive=True)

    async def _edit_prompt(self) -> None:
        from sakti.tui import editor

        self.prompt.put(await editor.edit(self, self.prompt.value, os.environ, self.session.workspace))

    def clear_hint(self) -> None:
        for line in self.query(StatusLine):  # none where the program is ending
            line.hint = ""

    async def _interrupt(self) -> None:
        await self.session.interrupt()

    def action_interrupt(self) -> None:
        """Esc: close what lies over the chat, else stop the agent; the partial answer is kept."""
        if self.approval.leave_line() or self.sidebar.close_overlay():
            return
        if self.focused is not self.prompt:
            self.prompt.focus()
        elif not self._commands.stop() and self.session.busy:
            self.go(self._interrupt, group="interrupt")

    async def action_quit(self) -> None:
        """Leave; with work under way only when asked twice."""
        now = self.session.clock.monotonic()
        if self.session.busy and now - self._last_quit > TWICE * 3:
            self._last_quit = now
            self.status_line.hint = "the agent is working: once more stops it and quits"
            return
        self.exit(0)
