"""Show the chat: its layout, its keys, and the parts that handle them."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

from sakti.agent.judge.policy import IN_SHORT
from sakti.agent.session import lifecycle
from sakti.core.events import ApprovalRequested, ApprovalResolved
from sakti.core.text import to_one_line
from sakti.core.types import Thread
from sakti.tui.activities import Download
from sakti.tui.chat.browsing import AREAS, TypedLetters, Welcome, find_area, find_next_area, is_for_the_prompt
from sakti.tui.chat.completer import Drafts
from sakti.tui.chat.conversation import Conversation
from sakti.tui.chat.find import FindBar
from sakti.tui.chat.panes import Panes
from sakti.tui.chat.stop_control import StopControl
from sakti.tui.chat.thread_view import SearchHits
from sakti.tui.desktop import Notifier
from sakti.tui.host import HINT_S, Host
from sakti.tui.keys import SUSPEND
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.sidebar import PANES, Sidebar
from sakti.tui.panes.tasks import TasksPane
from sakti.tui.screens import help as help_screen
from sakti.tui.screens import text as text_screens
from sakti.tui.screens import threads as thread_screens
from sakti.tui.screens import trust as trust_screen
from sakti.tui.screens import undo as undo_screen
from sakti.tui.transcript.markdown import warm_renderers
from sakti.tui.widgets.approval import ApprovalView, AsideView
from sakti.tui.widgets.card import CardBox, CardView
from sakti.tui.widgets.lines import LineList
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.status import BrowsedArea, Header, StatusLine
from sakti.tui.widgets.transcript import Transcript

REWIND_S = 0.5  # seconds in which a second Esc offers turns to undo
WIDE = 100  # columns from which the panes are beside the chat


class ChatScreen(Screen[None]):
    """Main screen: creates the widgets and the controllers that handle keys and messages."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "copy_text", show=False, id="app.copy"),  # without a selection, the next one acts
        Binding("ctrl+c", "stop", "Copy, stop, clear; twice: quit", show=False, id="app.stop"),
        Binding("ctrl+q", "app.quit", "Quit", show=False, priority=True, id="app.quit"),
        SUSPEND,
        Binding(
            "escape",
            "interrupt",
            "Close, or stop the newest activity; twice: undo",
            show=False,
            id="app.interrupt",
        ),
        Binding("f1", "help", "Help", show=False, id="app.help"),
        # with priority: they move the focus before the next key of the same read is handled
        Binding("f2", "pane('memory')", "Memory: show, browse, hide", show=False, priority=True, id="app.memory"),
        Binding("f3", "pane('log')", "Observations: show, browse, hide", show=False, priority=True, id="app.log"),
        Binding("f4", "pane('tasks')", "Tasks: show, browse, hide", show=False, priority=True, id="app.tasks"),
        Binding("ctrl+b", "panes", "All panes", show=False, id="app.panes"),
        Binding("f6", "browse", "Browse: the messages, then each pane", show=False, priority=True, id="app.browse"),
        Binding("tab", "tab", "Next part while browsing; go to a question", show=False, id="app.tab"),
        Binding("shift+tab", "cycle_approval", "Approval: plan, ask, edits, auto", show=False, id="app.approval"),
        Binding("ctrl+f", "search", "Search", show=False, id="app.search"),
        Binding("alt+left", "go_back", "Back from a search hit", show=False, id="app.back"),
        Binding("ctrl+t", "threads", "Threads", show=False, id="app.threads"),
        Binding("f5", "retry", "Retry after a failed answer", show=False, id="app.retry"),
        Binding("ctrl+o", "unfold", "Fold or unfold the newest", show=False, id="app.unfold"),
    ]

    class Painted(Message):
        """The first paint is on the screen."""

    def __init__(self, host: Host, notifier: Notifier) -> None:
        super().__init__()
        self.host, self.notifier = host, notifier
        self.header, self.status_line = Header(), StatusLine(host.session.workspace.clock)
        self.sidebar = Sidebar(id="side")
        self.panes = Panes(host, self.sidebar, self.status_line, self.header)
        self.conversation = chat = Conversation(host, self.panes.load_log)
        self.transcript, self.prompt, self.view = chat.transcript, chat.prompt, chat.view
        self.transcript.drawn = self.panes.follow_drawing
        self.transcript.has_clock, self.status_line.ticked = False, self.transcript.live.tick
        self.search = SearchHits(host, chat.view, self.panes, chat.prompt)
        self.drafts = Drafts(host, chat.prompt)
        self.stop_control = StopControl(host, chat, self.status_line)
        self.download = Download(self.stop_control.activities, self._name_download)
        self.welcome = Welcome(host, self.apply_setting, self.download)
        self._warmed = False
        self._idle_escape = float("-inf")  # time of the last Esc without effect
        self._letters = TypedLetters(host.session.workspace.clock)
        self._browsed = ""  # the area of `browsing` that has the keys; "": the prompt, or a question

    def compose(self) -> ComposeResult:
        yield self.header
        with Horizontal(id="body"):
            yield self.conversation
            yield self.sidebar
        yield self.status_line

    def on_mount(self) -> None:
        host = self.host
        host.appearance.apply_motion()
        host.appearance.adapt_to_terminal()
        self.sidebar.set_narrow(host.size.width < WIDE)
        self.sidebar.set_width(host.session.workspace.config.ui.sidebar_width or 0)
        for problem in host.custom_keys.problems:
            host.show_notice(problem, title="Keys", tone="warning")
        self.prompt.use_vim(host.session.workspace.config.ui.vim_keys)
        self.call_after_refresh(self._mount_rest)

    async def _mount_rest(self) -> None:
        """Mount the widgets that the first paint does not show, then start the session."""
        await self.conversation.mount_rest()
        await self.sidebar.observations.mount_rest()
        for problem in self.host.appearance.reload().problems:
            self.host.show_notice(problem, title="Theme", tone="warning")
        self.post_message(self.Painted())

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Skip styling all widgets again at the first paint."""
        event.refresh_styles = self.stack_updates > 0
        self.status_line.covered = False

    def on_screen_suspend(self) -> None:
        self.stop_control.disarm()
        self.status_line.covered = True

    def on_resize(self, event: events.Resize) -> None:
        self.sidebar.set_narrow(event.size.width < WIDE)
        self.sidebar.fit()
        self._leave_hidden_pane()

    # --- focus ------------------------------------------------------------------------------------------------

    def redirect_typing(self, event: events.Event, *, in_burst: bool) -> None:
        """Focus the prompt for a letter or a paste that nothing else uses.

        Called before the event is handled, so that the letter is typed there before any later one.
        `in_burst`: it came together with letters that do not act here.
        """
        if in_burst or is_for_the_prompt(event, self):
            letters = self._letters.take()
            self.set_focus(self.prompt)
            if letters:
                self.transcript.drop_selection()
                self.prompt.insert(letters)
        elif isinstance(event, events.Key) and self._browsed and not self._is_writing:
            self._letters.add(event)

    def acts_on_part(self, event: events.Event) -> bool:
        """Return whether a letter acts on the browsed part."""
        is_letter = isinstance(event, events.Key) and (event.character or "").isalpha()
        return is_letter and bool(self._browsed) and not is_for_the_prompt(event, self) and not self._is_writing

    @property
    def _is_writing(self) -> bool:
        return isinstance(self.focused, Input | TextArea)

    def watch_focused(self, focused: Widget | None) -> None:
        """Show the browsed part and its keys in the last line."""
        if focused is not None:  # else another window of the desktop has the focus
            before, self._browsed = self._browsed, find_area(focused)
            if before and not self._browsed and not self.host.session.approvals:
                self.set_hint("")  # the hint was about the previous part
            self.status_line.browsing = self._describe_area(self._browsed)
            self.conversation.mark_keyboard(focused)
            if self.conversation.has_focused_question(focused):
                self.set_hint("")  # the hint explained how to get here
            self.update_escape_label()

    def _name_download(self, text: str) -> None:
        self.status_line.download = text

    def update_escape_label(self) -> None:
        """Name in the status line what Esc closes first: a focused question, or panes over the chat."""
        chat = self.conversation
        leave = (
            chat.approval.escape_label or chat.card.escape_label or ("close the answer" if chat.aside.display else "")
        )
        self.status_line.closes = leave or ("close panes" if self.sidebar.has_overlay else "")

    def _describe_area(self, area: str) -> BrowsedArea | None:
        if area not in AREAS:
            return None
        host, entry = self.host, AREAS[area]
        hide = ((entry.switch, "hide"),) if entry.switch else ()
        first, *rest = entry.keys
        entries = (first, *hide, *rest, ("app.help", "all keys"))
        keys = tuple((host.key_of(i), host.key_name(i), word) for i, word in entries)
        return BrowsedArea(entry.title, host.key_name("app.interrupt"), keys)

    def _leave_hidden_pane(self) -> None:
        """Move the focus to the prompt if the browsed pane is no longer visible."""
        if self._browsed in PANES and not self.sidebar.shows(self._browsed):
            self.set_focus(self.prompt)

    # --- display ----------------------------------------------------------------------------------------------

    def show_thread(self, thread: Thread) -> None:
        """Show the title, and the messages when it is another thread."""
        self.header.thread_title = thread.title
        self.status_line.goal = self.host.session.goal_status
        self.show_git()
        if self.view.change(thread.id):
            self.show_modes()
            self._keep_queued()
            self.panes.reset_windows()
            self.panes.load_usage()
            self.panes.load_context()

    def _keep_queued(self) -> None:
        """Return messages queued in the previous thread to the prompt: they are not sent in this one."""
        queue = self.conversation.queue
        if queue.queued and not self.host.session.queued:
            self.conversation.return_to_prompt("\n\n".join(queue.queued))
            queue.queued, self.status_line.queued = (), 0

    def show_model(self, model: str | None, window: int | None, reason: str) -> None:
        self.header.model = model or "no model"
        self.conversation.start.model = model or ""
        self.status_line.why = to_one_line(f"{model.partition('/')[0]}: {reason}" if model else reason, 60)
        self.status_line.window = window or 0
        if model and not window and self.view.shown:  # another model: look up its window
            self.panes.load_context()

    def show_modes(self) -> None:
        """Show the Observer's mode and how tools are approved."""
        current = self.host.session.current
        self.header.mode, self.header.approval = current.mode, current.approval_mode
        shown = "edits, this thread" if current.may_edit else current.approval_mode
        self.status_line.approval = (shown, self.host.key_name("app.approval"))
        level = self.host.session.workspace.level
        self.status_line.sandbox = (level.name, level.text) if level is not None else ("", "")

    def show_saving(self) -> None:
        """Show whether this session is saved."""
        self.header.not_saved = self.status_line.not_saved = bool(self.host.session.workspace.not_saved)

    def show_git(self) -> None:
        git = self.host.session.workspace.files.git
        self.header.branch, self.header.changed = (git.branch, git.changed) if git else ("", 0)

    async def ask_about_new_files(self) -> None:
        """Ask whether to trust files made by the turn that would change later threads or be run."""
        await lifecycle.settle_new_files(
            self.host.session.workspace, partial(trust_screen.ask_trust, self.host, made=True)
        )

    def show_approvals(self, event: ApprovalRequested | ApprovalResolved) -> None:
        if isinstance(event, ApprovalResolved):
            self.show_modes()  # an answer may have allowed all edits
        self._show_questions()
        if isinstance(event, ApprovalRequested):
            waits = f"Answer the question above first ({self.host.key_name('app.tab')})"
            self.set_hint(waits if self.prompt.text or self._browsed else "")
        elif not self.host.session.approvals:
            self.set_hint("")
            if not self._browsed:
                self.prompt.focus()

    def _show_questions(self) -> None:
        """Show the currently open questions."""
        pending = self.host.session.approvals
        takes = not self.prompt.text and not self._browsed and self.is_current
        self.conversation.show_questions(pending, take_focus=takes)
        self.update_escape_label()

    def apply_setting(self, name: str) -> str:
        """Apply a changed setting; returns a description of the problem, or ""."""
        config, looks = self.host.session.workspace.config, self.host.appearance
        match name:
            case "ui.theme" if not looks.use(config.ui.theme):
                return f"Written, but there is no theme {to_one_line(config.ui.theme, 40)}: /theme shows them."
            case "ui.sidebar_width":
                self.sidebar.set_width(config.ui.sidebar_width or 0)
            case "ui.vim_keys":
                self.prompt.use_vim(config.ui.vim_keys)
            case "ui.reduced_motion":
                looks.apply_motion()
            case "mode" | "approval.mode":
                self.show_modes()
            case _:
                pass
        return ""

    def set_hint(self, text: str, seconds: float = 0) -> None:
        """Show a hint in the last line for `seconds` (0: until the next one)."""
        note = self.status_line.hint = to_one_line(text, 300)
        if note and seconds:
            self.set_timer(seconds, lambda: self._clear_hint(note))

    def _clear_hint(self, note: str) -> None:
        if self.status_line.hint == note:
            self.status_line.hint = ""

    # --- messages of the widgets ------------------------------------------------------------------------------

    @on(Prompt.FirstKey)
    def warm_soon(self) -> None:
        """Preload modules for the first answer while the user types the message."""
        self.host.start_worker(self._warm, group="warm")

    async def _warm(self) -> None:
        if self._warmed:
            return
        self._warmed = True
        await self.host.session.warm()
        self.show_modes()  # the sandbox is known now
        await asyncio.to_thread(warm_renderers)
        gc.freeze()  # spare full collections the modules, which are never freed

    @on(Prompt.VimMode)
    def _show_vim_mode(self, event: Prompt.VimMode) -> None:
        self.status_line.vim = event.mode.upper()

    @on(Prompt.CompletionRequested)
    def _save_draft(self) -> None:
        self.drafts.save_soon()

    @on(ObservationsPane.SourcesWanted)
    def _show_sources(self, event: ObservationsPane.SourcesWanted) -> None:
        self.host.start_worker(
            text_screens.open_sources, self.host, event.row.group_id, event.row.text, group="sources", exclusive=True
        )

    @on(ObservationsPane.Corrected)
    def _correct_line(self, event: ObservationsPane.Corrected) -> None:
        self.host.start_worker(self.panes.correct, event.action, event.line_id, event.text, group="correct")

    @on(ObservationsPane.CarriedRemoved)
    def _remove_carried(self, event: ObservationsPane.CarriedRemoved) -> None:
        self.host.start_worker(self.panes.remove_carried, event.line, group="correct")

    @on(ObservationsPane.OriginWanted)
    def _show_origin(self, event: ObservationsPane.OriginWanted) -> None:
        self.host.start_worker(self.panes.show_origin, event.line, group="sources", exclusive=True)

    @on(ObservationsPane.PastWanted)
    def _show_past(self, event: ObservationsPane.PastWanted) -> None:
        self.panes.load_past(event.moment)

    @on(MemoryPane.EventsWanted)
    def _show_events(self) -> None:
        self.panes.open_events()

    @on(TasksPane.BoardWanted)
    def _show_board(self) -> None:
        self.panes.open_board()

    @on(CardBox.EscapeChanged)
    def _follow_card(self) -> None:
        self.update_escape_label()

    @on(Sidebar.PanesApplied)
    def _follow_panes(self) -> None:
        self.panes.show_header()
        self.update_escape_label()

    @on(Sidebar.Rearranged)
    def _remember_panes(self) -> None:
        self.panes.save_layout()

    # --- keys -------------------------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """Handle ctrl+c: copy the selection, else interrupt, or clear the prompt; pressing twice quits."""
        selected = self.get_selected_text() or self.prompt.selected_text
        if selected:
            self.host.copy_to_clipboard(selected)
            self.clear_selection()
        else:
            self.stop_control.stop()

    def action_interrupt(self) -> None:
        """Handle Esc: focus the prompt, else close what covers the chat, else stop the newest activity.

        The partial answer is kept.
        """
        chat, at_approval = self.conversation, self.focused is self.conversation.approval.view
        if chat.approval.leave_line() or (not at_approval and (chat.card.leave() or chat.close_aside())):
            if self.focused is chat.aside:
                self.set_focus(self.prompt)
            self.update_escape_label()
            return
        if self.focused is not self.prompt:
            self.set_focus(self.prompt)
        elif not (self.conversation.find.close() or self.sidebar.close_overlay() or self.stop_control.interrupt()):
            self._offer_undo()

    def _offer_undo(self) -> None:
        """Handle an Esc without another effect: a second one in an empty prompt lists the turns to undo."""
        now = self.host.session.workspace.clock.monotonic()
        twice = now - self._idle_escape <= REWIND_S
        self._idle_escape = float("-inf") if twice or self.prompt.text else now
        if twice and not self.prompt.text:
            return_to_prompt = self.conversation.return_to_prompt
            self.host.start_worker(undo_screen.choose_turn, self.host, return_to_prompt, group="undo", exclusive=True)

    def action_help(self) -> None:
        self.host.push(
            help_screen.HelpScreen(
                list_chat_parts(), self.host.custom_keys.keys, self.host.session.typed_skills().values()
            )
        )

    def action_pane(self, pane: str) -> None:
        """Show a hidden pane, browse a visible one, or hide the browsed one."""
        if not self.sidebar.shows(pane):
            self.show_pane(pane)
        elif self._browsed != pane:
            self.browse(pane)
        else:
            self.set_focus(self.prompt)
            self.panes.hide(pane)
            area = AREAS[pane]
            self.set_hint(f"{area.title} hidden · {self.host.key_name(area.switch)} shows it", HINT_S)

    def show_pane(self, pane: str) -> None:
        """Show a pane and a hint on how to browse it; the prompt keeps the focus."""
        self.panes.show(pane)
        area = AREAS[pane]
        self.set_hint(f"{area.title} shown · {self.host.key_name(area.switch)} browses the pane", HINT_S)

    def show_tasks(self) -> None:
        """Show the tasks beside the chat, or the board if they are shown already or there is no room."""
        if self.sidebar.narrow or self.sidebar.shows("tasks"):
            self.panes.open_board()
        else:
            self.show_pane("tasks")

    def browse(self, area: str) -> None:
        """Focus an area ("": the prompt) at once: the next key may already be there."""
        if area and not self.host.session.approvals:
            self.set_hint("")  # the hint was for another area; one about a question stays
        if area in PANES:
            self.panes.show(area)
            self.set_focus(self.panes.get_key_widget(area))
        else:
            self.set_focus(self.transcript if area else self.prompt)

    def action_browse(self) -> None:
        self.browse(find_next_area(self._browsed, self.sidebar))

    def action_tab(self) -> None:
        """Go to a waiting question, and back; while an area is browsed, to the next one."""
        if (question := self.conversation.next_question(self.focused)) is not None:
            self.set_focus(question)
        elif self._browsed:
            self.action_browse()
        elif self.focused is not self.prompt:
            self.set_focus(self.prompt)
        else:
            self.set_hint(f"{self.host.key_name('app.browse')} browses the messages and the panes", HINT_S)

    def action_panes(self) -> None:
        if self.panes.toggle_all():
            return
        self.set_focus(self.prompt)
        self.set_hint(f"Panes hidden · {self.host.key_name('app.panes')} shows them", HINT_S)

    def action_cycle_approval(self) -> None:
        """Switch to the next approval mode, from strict to free, then strict again."""
        session = self.host.session
        before, mode = session.current.approval_mode, session.next_approval_mode()
        session.set_approval_mode(mode)
        self.show_modes()
        if session.approvals:
            self._show_questions()  # the reason of open questions may have changed
        text = f"Approval: {mode}, {IN_SHORT[session.current.approval_mode]}"
        refused = session.workspace.refused_auto() if before == "edits" and mode == "plan" else ""
        self.set_hint(refused or text, 2 * HINT_S)

    def action_search(self) -> None:
        self.search.open()

    def action_go_back(self) -> None:
        if self.view.go_back():
            self.prompt.focus()

    def action_stay(self) -> None:
        self.view.stay()

    def action_threads(self) -> None:
        self.host.start_worker(thread_screens.pick_thread, self.host, group="threads", exclusive=True)

    def action_retry(self) -> None:
        self.host.start_worker(self.host.session.retry, group="command")

    def action_unfold(self) -> None:
        self.transcript.action_unfold()

    def action_edit_prompt(self) -> None:
        self.conversation.edit_prompt()

    def action_scroll_chat(self, step: int) -> None:
        """Scroll by a page (1 or -1), or to the end (2) or start (-2)."""
        chat = self.transcript
        scroll: dict[int, Callable[[], None]] = {
            -2: lambda: chat.scroll_home(animate=False),
            -1: lambda: chat.scroll_page_up(animate=False),
            1: lambda: chat.scroll_page_down(animate=False),
            2: chat.scroll_end_now,
        }
        scroll[step]()

    def action_copy_answer(self) -> None:
        """Copy the last answer's Markdown (OSC 52)."""
        if text := self.transcript.last_answer:
            self.host.copy_to_clipboard(text)

    def action_unqueue(self) -> None:
        """Take the newest queued message back into an empty prompt."""
        session = self.host.session
        if session.queued:
            text = session.unqueue(len(session.queued) - 1)
            if text is not None and not self.prompt.text:
                self.prompt.set_text(text)


def list_chat_parts() -> list[tuple[str, type[Any]]]:
    """List the parts of this screen that have keys, with their display names."""
    return [
        ("Everywhere", ChatScreen),
        ("Prompt", Prompt),
        ("Messages", Transcript),
        ("Find in the thread", FindBar),
        ("Approvals", ApprovalView),
        ("Questions", CardView),
        ("Side questions", AsideView),
        ("Panes", Sidebar),
        ("Memory", MemoryPane),
        ("Observations", ObservationsPane),
        ("Tasks", TasksPane),
        ("Lists", LineList),
    ]
