"""The chat: what is on the screen, its keys, and the parts that act on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.screen import Screen

from sakti.core.events import ApprovalRequested, ApprovalResolved
from sakti.core.text import one_line
from sakti.core.types import Thread
from sakti.tui.chat.compaction import Compaction
from sakti.tui.chat.conversation import Conversation
from sakti.tui.chat.drafts import Drafts
from sakti.tui.chat.panes import Panes
from sakti.tui.chat.stopping import Stopping
from sakti.tui.chat.thread_sync import ThreadSync
from sakti.tui.chat.visit import Visit
from sakti.tui.host import Host
from sakti.tui.notify import Notifier
from sakti.tui.panes.memory import MemoryPane
from sakti.tui.panes.observations import ObservationsPane
from sakti.tui.panes.sidebar import Sidebar
from sakti.tui.panes.tasks import TasksPane
from sakti.tui.widgets.header import Header
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.status import StatusLine

WIDE = 100  # columns from which the panes stand beside the chat


class ChatScreen(Screen[None]):
    """Makes its widgets and hands them to the parts that work with them; keys and messages go to those."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c", "copy_text", show=False, id="app.copy"),  # where nothing is selected, the next one
        Binding("ctrl+c", "stop", "Copy, stop, clear; twice: quit", show=False, id="app.stop"),
        Binding("ctrl+q", "app.quit", "Quit", show=False, priority=True, id="app.quit"),
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

    class Painted(Message):
        """The first picture is on the screen."""

    def __init__(self, host: Host, notifier: Notifier) -> None:
        super().__init__()
        self.host, self.notifier = host, notifier
        self.header, self.status_line = Header(), StatusLine(host.session.clock)
        self.sidebar = Sidebar(id="side")
        self.panes = Panes(host, self.sidebar)
        self.conversation = chat = Conversation(host, self.panes.load_log)
        self.transcript, self.prompt, self.loader = chat.transcript, chat.prompt, chat.loader
        self.sync = ThreadSync(host, chat.transcript, chat.loader)
        self.visit = Visit(
            host, chat.loader, self.panes, transcript=chat.transcript, prompt=chat.prompt, bar=chat.visit_bar
        )
        self.drafts = Drafts(host, chat.prompt)
        self.compaction = Compaction(self.status_line)
        self.stopping = Stopping(host, chat.prompt, self.compaction)

    def compose(self) -> ComposeResult:
        yield self.header
        with Horizontal(id="body"):
            yield self.conversation
            yield self.sidebar
        yield self.status_line

    def on_mount(self) -> None:
        host = self.host
        host.appearance.use_motion()
        host.appearance.adapt()
        self.sidebar.set_narrow(host.size.width < WIDE)
        self.sidebar.styles.width = max(24, min(80, host.session.config.ui.sidebar_width))
        for problem in host.appearance.problems:
            host.say(problem, title="Theme", tone="warning")
        self.call_after_refresh(self.post_message, self.Painted())

    def on_resize(self, event: events.Resize) -> None:
        self.sidebar.set_narrow(event.size.width < WIDE)

    # --- what is shown ----------------------------------------------------------------------------------------

    def show_thread(self, thread: Thread) -> None:
        """Show the title, and the messages when it is another thread."""
        self.header.thread_title = thread.title
        if thread.id != self.loader.shown:
            self.visit.thread_opened(thread.id)
            self.status_line.context = 0
            self.panes.load_usage()
            self.loader.show(thread.id)

    def show_model(self, model: str | None, window: int | None, reason: str) -> None:
        self.header.model = model or "no model"
        self.status_line.why = one_line(f"{model.partition('/')[0]}: {reason}" if model else reason, 60)
        self.status_line.window = window or 0

    def show_modes(self) -> None:
        """Show the Observer's mode and how tools are approved."""
        self.header.mode, self.header.approval = self.host.session.mode, self.host.session.approval_mode

    def show_git(self) -> None:
        git = self.host.session.git
        self.header.branch, self.header.changed = (git.branch, git.changed) if git else ("", 0)

    def show_approvals(self, event: ApprovalRequested | ApprovalResolved) -> None:
        pending = self.host.session.approvals
        self.conversation.approval.show(pending, take_focus=not self.prompt.text and self.is_current)
        if isinstance(event, ApprovalRequested):
            self.note("" if not self.prompt.text else "a question waits above: shift+tab goes there")
        elif not pending:
            self.note("")
            self.prompt.focus()

    def apply_setting(self, name: str) -> str:
        """Show a setting that has changed; gives what is wrong with it, or ""."""
        config, looks = self.host.session.config, self.host.appearance
        match name:
            case "ui.theme" if not looks.use(config.ui.theme):
                return f"Written, but there is no theme {one_line(config.ui.theme, 40)}: /theme shows them."
            case "ui.sidebar_width":
                self.sidebar.set_width(config.ui.sidebar_width)
            case "ui.reduced_motion":
                looks.use_motion()
            case "mode" | "approval.mode":
                self.show_modes()
            case _:
                pass
        return ""

    def note(self, text: str, seconds: float = 0) -> None:
        """Write into the last line, for so long (0: until there is another note)."""
        note = self.status_line.hint = one_line(text, 300)
        if note and seconds:
            self.set_timer(seconds, lambda: self._end_note(note))

    def _end_note(self, note: str) -> None:
        if self.status_line.hint == note:
            self.status_line.hint = ""

    # --- what the user does in its parts ----------------------------------------------------------------------

    @on(Prompt.Wanted)
    def _typed(self) -> None:
        self.drafts.changed()

    @on(ObservationsPane.SourcesWanted)
    def _show_sources(self, event: ObservationsPane.SourcesWanted) -> None:
        from sakti.tui.screens.text import open_sources

        self.host.go(open_sources, self.host, event.row.group_id, event.row.text, group="sources", exclusive=True)

    @on(ObservationsPane.Corrected)
    def _correct(self, event: ObservationsPane.Corrected) -> None:
        self.host.go(self.panes.correct, event.action, event.line_id, event.text, group="correct")

    @on(ObservationsPane.PastWanted)
    def _show_past(self, event: ObservationsPane.PastWanted) -> None:
        self.panes.load_past(event.moment)

    @on(MemoryPane.EventsWanted)
    def _show_events(self) -> None:
        self.panes.open_events()

    @on(TasksPane.BoardWanted)
    def _show_board(self) -> None:
        self.panes.open_board()

    @on(Sidebar.Rearranged)
    def _remember_panes(self) -> None:
        self.panes.remember()

    # --- keys -------------------------------------------------------------------------------------------------

    def action_stop(self) -> None:
        """ctrl+c: copy what is selected; else interrupt, or clear the prompt; twice quits."""
        selected = self.get_selected_text() or self.prompt.selected_text
        if selected:
            self.host.copy_to_clipboard(selected)
            self.clear_selection()
        else:
            self.stopping.stop()

    def action_interrupt(self) -> None:
        """Esc: close what lies over the chat, else stop the agent; the partial answer is kept."""
        if self.conversation.approval.leave_line() or self.sidebar.close_overlay():
            return
        if self.focused is not self.prompt:
            self.prompt.focus()
        else:
            self.stopping.interrupt()

    def action_help(self) -> None:
        from sakti.tui.screens.help import HelpScreen

        self.host.push(HelpScreen(type(self)))

    def action_pane(self, pane: str) -> None:
        if not self.panes.toggle(pane):
            self.prompt.focus()

    def action_panes(self) -> None:
        self.panes.toggle_all()
        self.prompt.focus()

    def action_search(self) -> None:
        self.visit.search()

    def action_go_back(self) -> None:
        self.visit.go_back()

    def action_stay(self) -> None:
        self.visit.stay()

    def action_threads(self) -> None:
        from sakti.tui.screens.threads import pick_thread

        self.host.go(pick_thread, self.host, group="threads", exclusive=True)

    def action_retry(self) -> None:
        self.host.go(self.host.session.retry, group="command")

    def action_unfold(self) -> None:
        self.transcript.action_unfold()

    def action_edit_prompt(self) -> None:
        self.conversation.edit_prompt()

    def action_scroll_chat(self, step: int) -> None:
        """By a page (1 or -1), or to the end (2 or -2)."""
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
                self.prompt.put(text)
