"""Run the window: start, themes, workers and log file. The chat and its screens own the content."""

from __future__ import annotations

import asyncio
import gc
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events, on
from textual._context import active_message_pump
from textual.app import App, SystemCommand
from textual.binding import BindingType
from textual.driver import Driver
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.worker import WorkerFailed

from sakti.actions import registry
from sakti.agent.session import lifecycle
from sakti.agent.session import session as sessions
from sakti.core.errors import SaktiError
from sakti.core.events import Event
from sakti.core.resources import state_home
from sakti.core.text import sanitize_text
from sakti.tui import bridge, desktop, keys
from sakti.tui.appearance import Appearance
from sakti.tui.chat.browsing import BURST_S, is_for_the_prompt
from sakti.tui.chat.commands import Commands
from sakti.tui.chat.panes import BOARD_POLL_S
from sakti.tui.chat.screen import WIDE, ChatScreen, list_chat_parts
from sakti.tui.chat.thread_view import SYNC_S
from sakti.tui.desktop import Notifier
from sakti.tui.driver import make_safe_driver
from sakti.tui.host import HINT_S, Host, Tone
from sakti.tui.palette import Palette, make_palette
from sakti.tui.panes.sidebar import PANES
from sakti.tui.panes.tasks import BoardChanged
from sakti.tui.screens import help as help_screen
from sakti.tui.screens import panel as panels
from sakti.tui.screens import threads as thread_screens
from sakti.tui.screens import trust as trust_screen
from sakti.tui.transcript.blocks import NoticeBlock
from sakti.tui.transcript.selection import describe_amount
from sakti.tui.widgets.safe_input import SafePalette
from sakti.tui.widgets.transcript import Transcript

if TYPE_CHECKING:
    from sakti.actions.line import Typed
    from sakti.agent.session.session import Session


class Startup:
    """Opens the session and fills the window from the store; `pick_thread` asks for a thread first."""

    def __init__(self, host: Host, chat: ChatScreen, *, pick_thread: bool) -> None:
        self._host, self._chat, self._pick_thread = host, chat, pick_thread

    async def run(self) -> None:
        """Open the store, show the thread, and send messages typed meanwhile.

        Raises `SaktiError`.
        """
        chat, session = self._chat, self._host.session
        try:
            await asyncio.to_thread(sessions.preload)
            await lifecycle.settle_trust(
                session.workspace,
                lambda review: trust_screen.ask_trust(self._host, review),
                lambda need: trust_screen.ask_need(self._host, need),
            )
            await session.start()
        except BaseException:
            chat.conversation.return_waiting()
            raise
        finally:
            chat.show_modes()
            chat.show_saving()
            chat.show_git()
        occupied = bool(chat.conversation.waiting) or self._pick_thread
        if chat.conversation.waiting:
            chat.warm_soon()
        try:
            state = await self._restore()
        finally:
            await chat.conversation.send_waiting()
        await chat.welcome.open_once(state, lambda: occupied or self._is_occupied())

    async def _restore(self) -> dict[str, str]:
        """Fill the panes and the prompt from the store; returns the stored state of the window."""
        chat, session = self._chat, self._host.session
        chat.set_interval(SYNC_S, chat.view.sync)
        chat.set_interval(BOARD_POLL_S, chat.panes.poll_board)
        chat.panes.load_board()
        state = await session.views.ui_state()
        chat.sidebar.restore(state.get("panes", " ".join(PANES)))
        self._host.appearance.restore(state)
        chat.prompt.history_entries = [*await session.views.history(), *chat.prompt.history_entries]
        await chat.drafts.restore()
        if self._pick_thread:
            await thread_screens.pick_thread(self._host)
        return state

    def _is_occupied(self) -> bool:
        """Return whether the user types, reads another screen, or waits for an answer."""
        return bool(self._chat.prompt.text or self._host.session.busy or not self._chat.is_current)


def log_path() -> Path:
    """Name the log file: `~/.local/state/sakti/tui.log`, or where XDG_STATE_HOME puts it."""
    return state_home() / "tui.log"


def log_error(error: BaseException) -> Path | None:
    """Append `error` with its traceback; returns the file's path, or None if writing fails."""
    path = log_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
            file.write("".join(traceback.format_exception(error)))
    except OSError:
        return None
    return path


DEEPEST = 6  # screens over the chat; Textual draws each inside the one above it, and gives up at ten
QUIT_KEYS = ("app.stop", "prompt.stop", "app.quit")  # ids of the keys that quit when pressed twice
RAISE_CLICK_S = 0.2  # seconds in which the click that brought the window to the front arrives


class SaktiApp(App[int]):
    """One window on one session: the `Host` of everything in it."""

    TITLE = "sakti"
    BINDINGS: ClassVar[list[BindingType]] = [keys.SUSPEND]  # on every screen; the help lists it with those of the chat
    AUTO_FOCUS = "#prompt"
    CSS_PATH: ClassVar[Any] = ["styles/main.tcss", "styles/panes.tcss"]
    HORIZONTAL_BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (WIDE, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012

    def __init__(self, session: Session, *, prompt: str | None = None, pick_thread: bool = False) -> None:
        self.appearance = Appearance(session)
        super().__init__()
        self.session = session
        self.crash_message = ""
        self._removal_error: Exception | None = None  # of a failed screen, already logged
        self._keys = {b.id: b.key for _, part in list_chat_parts() for b in keys.iter_bindings(part)}
        self._raised_at = float("-inf")  # when the window came to the front
        self._swallows_release = False  # a mouse press that only brought the window to the front
        self._key_queue = keys.KeyQueue(self, self._handle_input)
        self.appearance.attach(self)
        self.chat = ChatScreen(self, Notifier(session, lambda: self.app_focus, self.write))
        self.custom_keys = self._make_custom_keys()
        self._commands, self._pick_thread = Commands(self, self.chat), pick_thread
        if prompt:
            self.chat.conversation.submit(prompt)

    def _make_custom_keys(self) -> keys.Keymap:
        """Use the keys that the settings name."""
        configured = self.session.workspace.config.keys
        if not configured:
            return keys.Keymap({})
        keymap = keys.make_keymap(configured, help_screen.list_parts(list_chat_parts()))
        self.set_keymap(dict(keymap.keys))
        self.chat.prompt.use_keys(keymap.keys)
        return keymap

    def get_default_screen(self) -> Screen[Any]:
        return self.chat

    def get_driver_class(self) -> type[Driver]:
        return make_safe_driver(super().get_driver_class())

    def refresh_css(self, animate: bool = True) -> None:
        """Apply changed colours; skip the extra parse before the first screen exists."""
        if self.chat.is_attached:
            super().refresh_css(animate)
        else:
            self.stylesheet.set_variables(self.get_css_variables())
            self.stylesheet.update(self, animate=animate)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return self.appearance.variable_defaults

    def action_command_palette(self) -> None:
        """Open the palette unless one is open. It has no id: the previous one may still be closing."""
        if not any(isinstance(screen, SafePalette) for screen in self.screen_stack):
            self.push_screen(SafePalette())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for name, command in registry.chat_commands().items():
            text = f"/{name}"
            yield SystemCommand(text, command.in_short, lambda text=text: self.run_command(text))
        yield SystemCommand("Task board", "show the tasks in columns, full screen", self._open_board)

    def on_mount(self) -> None:
        self.session.subscribe(self._handle_event)
        self.app_resume_signal.subscribe(self, self._redraw_all)  # pyright: ignore[reportUnknownMemberType]

    def _handle_event(self, event: Event) -> None:
        if self.is_running:  # memory may still observe after the window has closed
            bridge.show_event(self.chat, event)

    @on(ChatScreen.Painted)
    def _start(self) -> None:
        if not gc.isenabled():  # objects from the start live on: exclude them from collection
            gc.freeze()
            gc.enable()
        self.start_worker(Startup(self, self.chat, pick_thread=self._pick_thread).run, group="start")

    # --- services of the window (`Host`) ----------------------------------------------------------------------

    @property
    def palette(self) -> Palette:
        return make_palette(self.theme_variables, self.current_theme.dark)

    def start_worker(
        self, work: Callable[..., Awaitable[None]], *args: Any, group: str, exclusive: bool = False
    ) -> None:
        guarded = partial(self._run_guarded, work, args, asked=group == "command")
        self.run_worker(guarded, group=group, exclusive=exclusive, exit_on_error=False)

    async def _run_guarded(self, work: Callable[..., Awaitable[None]], args: tuple[Any, ...], *, asked: bool) -> None:
        """Run `work(*args)` and show an error as a notice, scrolled to if the user `asked` for the work.

        An unexpected one is also written to the log file.
        """
        try:
            await work(*args)
        except Exception as error:
            self._report(error)
            if asked:
                self.chat.transcript.scroll_end_now()

    def _report(self, error: Exception) -> None:
        """Show an error as a notice; an unexpected one is also logged."""
        if isinstance(error, SaktiError):
            self.show_notice(error.message, title=error.title, tone="error")
            return
        path = log_error(error)
        details = f"The details are in {path}." if path else ""
        self.show_notice(f"{type(error).__name__}: {error} {details}", title="Something went wrong", tone="error")

    async def run_typed(self, command: Typed) -> None:
        await self._commands.run(command)

    def send(self, text: str) -> None:
        self.chat.conversation.submit(text)

    def show_notice(self, text: str, *, title: str = "", tone: Tone = "information") -> None:
        self.chat.transcript.live.add_block(NoticeBlock(tone=tone, title=title, text=text))

    def announce(self, text: str, *, title: str) -> None:
        self.chat.view.announce(text, title)

    def set_hint(self, text: str, seconds: float = 0) -> None:
        if self.is_running:
            self.chat.set_hint(text, seconds)

    def push(self, screen: Screen[Any], then: Callable[[Any], None] | None = None) -> None:
        while self._has_kind_of(screen) and self._close_panel():
            pass  # a screen opens once: the new one takes its place
        if len(self.screen_stack) > DEEPEST:
            self._close_panel()
        self.push_screen(screen, partial(self._handle_result, then) if then is not None else None)

    def _has_kind_of(self, screen: Screen[Any]) -> bool:
        """Return whether a screen of this class is open, without a trust question above it."""
        over: list[Screen[Any]] = [*takewhile(lambda s: type(s) is not type(screen), reversed(self.screen_stack))]
        return len(over) < len(self.screen_stack) and not any(isinstance(s, trust_screen.TrustQuestion) for s in over)

    def _handle_result(self, then: Callable[[Any], None], result: Any) -> None:
        """Call `then` with the result of a closed screen; show its error as a notice."""
        try:
            then(result)
        except Exception as error:
            self._report(error)

    def key_of(self, binding_id: str) -> str:
        return self.custom_keys.keys.get(binding_id, self._keys.get(binding_id, "")).partition(",")[0]

    def key_name(self, binding_id: str) -> str:
        return keys.abbreviate_key(self.key_of(binding_id))

    def copy_to_clipboard(self, text: str) -> None:
        """Copy `text` (OSC 52) without control sequences, and show the copied amount."""
        text = sanitize_text(text)
        super().copy_to_clipboard(text)
        if text:
            self.set_hint(f"copied {describe_amount(text)}", HINT_S)

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: Any = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        super().notify(
            sanitize_text(message), title=sanitize_text(title), severity=severity, timeout=timeout, markup=False
        )

    def write(self, sequence: str) -> None:
        """Write a control sequence created by sakti to the terminal."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    # --- messages of the screens ------------------------------------------------------------------------------

    def run_command(self, text: str) -> None:
        """Run a line as if typed; close open panels, which would hide its result."""
        self._close_panels()
        self.start_worker(self.chat.conversation.run, text, group="command")

    def _open_board(self) -> None:
        self._close_panels()
        self.chat.panes.open_board()

    def _close_panels(self) -> None:
        while self._close_panel():
            pass

    def _close_panel(self) -> bool:
        """Leave the panel or the palette on top as Esc does; returns whether another screen is on top now."""
        top = self.screen
        if isinstance(top, panels.Panel):
            top.leave()
        elif isinstance(top, SafePalette):
            top.dismiss()
        return self.screen is not top

    @on(Transcript.HintChanged)
    def _show_hint(self, event: Transcript.HintChanged) -> None:
        self.set_hint(event.text, event.seconds)

    @on(Transcript.LinkOpened)
    def _open_target(self, event: Transcript.LinkOpened) -> None:
        kind, target = event.target
        self.start_worker(self._open_file if kind == "file" else self._open_url, target, group="link")

    async def _open_file(self, target: str) -> None:
        path = target.removeprefix("./")
        if (self.session.workspace.root / path).is_file():
            self.chat.prompt.insert_text(f"@{path} ")
            self.chat.prompt.focus()
        else:
            self.set_hint(f"there is no file {path} here", HINT_S)

    async def _open_url(self, target: str) -> None:
        if desktop.open_address(target, self.session.workspace.env, self.session.workspace.root):
            self.set_hint(f"opened {target}", HINT_S)
        else:
            self.copy_to_clipboard(target)
            self.set_hint(f"no browser found: copied {target}", HINT_S)

    @on(BoardChanged)
    def _reload_board(self) -> None:
        self.chat.panes.load_board()

    # --- the terminal -----------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        if self._is_raising_click(event):
            return
        if isinstance(event, events.MouseDown) and not event.is_forwarded:
            self.chat.stop_control.disarm()
        try:
            if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
                await super().on_event(event)
            elif self._key_queue.admit(event):
                await self._handle_input(event)
                self._key_queue.wait_for_effect(event)
        except Exception as error:  # from a priority key's action, which runs in the app's loop
            if not self.screen_stack or self.screen is self.chat:
                raise
            self._handle_exception(error)

    async def _handle_input(self, event: events.Key | events.Paste) -> None:
        """Handle a key or a paste after the effects of all earlier ones."""
        if not self._is_key_to_quit(event):
            self.chat.stop_control.disarm()
        self.chat.welcome.close_on_input(event, self)
        if self.screen_stack and self.screen is self.chat:
            self.chat.redirect_typing(event, in_burst=await self._is_in_burst(event))
        await super().on_event(event)

    def _is_key_to_quit(self, event: events.Event) -> bool:
        """Return whether a key may be the second press that quits."""
        keys = (self.custom_keys.keys.get(i, self._keys[i]) for i in QUIT_KEYS)
        return isinstance(event, events.Key) and any(event.key in each.split(",") for each in keys)

    async def _is_in_burst(self, event: events.Event) -> bool:
        """Return whether a letter that is a key of the browsed part is followed at once by one that is not."""
        if not self.chat.acts_on_part(event):
            return False
        await asyncio.sleep(BURST_S)
        sent = cast("Any", self)._message_queue.values  # input from the terminal, not handled yet
        typed = (e for e in (*self._key_queue.waiting, *sent) if isinstance(e, events.Key | events.Paste))
        word = takewhile(lambda e: isinstance(e, events.Paste) or keys.is_text(e), typed)
        return any(is_for_the_prompt(e, self.chat) for e in word)

    def hang_up(self) -> None:
        """Stop reading a terminal that is gone. May be called from any thread."""
        hang_up: Callable[[], None] | None = getattr(self._driver, "hang_up", None)
        if hang_up is not None:
            hang_up()

    def _is_raising_click(self, event: events.Event) -> bool:
        """Return whether the press or release of a mouse button only brought the window to the front."""
        now = self.session.workspace.clock.monotonic
        if isinstance(event, events.AppFocus):
            self._raised_at = now()
        elif isinstance(event, events.MouseDown):
            self._swallows_release = now() - self._raised_at < RAISE_CLICK_S
            return self._swallows_release
        elif isinstance(event, events.MouseUp) and self._swallows_release:
            self._swallows_release = False
            return True
        return False

    def _redraw_all(self, _: object) -> None:
        """Repaint everything after another program used the terminal."""
        self.screen.refresh()

    async def action_quit(self) -> None:
        """Quit; while work is running, only on the second request."""
        if self.chat.stop_control.may_quit():
            self.exit(0)

    def _handle_exception(self, error: Exception) -> None:
        """Close the screen in which `error` was raised; end the program only if the chat itself broke.

        A failed worker ends nothing: its screen is closed, and the chat continues.
        """
        cause = error.error if isinstance(error, WorkerFailed) and isinstance(error.error, Exception) else error
        if cause is self._removal_error:
            return
        failed, path = self._find_failed_screen(), log_error(cause)
        if failed is not self.chat or isinstance(error, WorkerFailed):
            self.call_later(self._close_failed, failed, type(cause).__name__, path)
            return
        details = f" The details are in {path}." if path else ""
        self.crash_message = f"sakti had to stop: {type(error).__name__}.{details} Nothing is lost."
        super()._handle_exception(error)

    def _find_failed_screen(self) -> Screen[Any]:
        """Return the screen whose message, timer or worker is running; for those of the app, the current one."""
        pump: MessagePump | None = active_message_pump.get(None)
        while pump is not None and not isinstance(pump, Screen):
            pump = pump._parent  # pyright: ignore[reportPrivateUsage]
        if pump is not None:
            return cast("Screen[Any]", pump)
        return self.screen if self.screen_stack else self.chat

    async def _close_failed(self, failed: Screen[Any], error: str, path: Path | None) -> None:
        """Remove a failed screen, and every screen opened over it, from the stack."""
        if failed is not self.chat:
            if failed not in self.screen_stack:
                return
            while failed in self.screen_stack:
                await self._remove_top()
        details = f" The details are in {path}." if path else ""
        text = f"A background task failed ({error})."
        if failed is not self.chat:
            text = f"A screen failed ({error}) and was closed."
        self.show_notice(f"{text}{details}", title="Something went wrong", tone="error")
        self.chat.transcript.scroll_end_now()

    async def _remove_top(self) -> None:
        """Remove the screen on top; a second error of a failed one is logged."""
        self.screen.focused = None  # choosing the next focus would arrange it again
        try:
            await self.pop_screen()
        except Exception as error:
            self._removal_error = error  # Textual awaits the removal, too, and reports it again
            log_error(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()  # a traceback is for the log file, not for the user
