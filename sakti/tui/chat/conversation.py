"""Lay out the column of the conversation: what was said, what waits for an answer, the prompt, and how they act."""

from __future__ import annotations

import os
from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from sakti.core.events import ApprovalRequested
from sakti.core.lazy import lazy_imports
from sakti.tui.chat.completer import Completer
from sakti.tui.chat.find import ThreadFind
from sakti.tui.chat.loader import ThreadLoader
from sakti.tui.host import Host, app_of
from sakti.tui.widgets.approval import ApprovalBox
from sakti.tui.widgets.completions import Completions
from sakti.tui.widgets.find_bar import FindBar
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.queue import QueueView
from sakti.tui.widgets.start import Start
from sakti.tui.widgets.transcript import Transcript
from sakti.tui.widgets.visit import VisitBar

with lazy_imports:
    from sakti.tui import clipboard, editor
    from sakti.tui.screens import text as text_screens


class Conversation(Vertical):
    """`loaded` is called when a thread stands in the transcript."""

    def __init__(self, host: Host, loaded: Callable[[], None]) -> None:
        super().__init__(id="chat")
        self._host = host
        self.visit_bar = VisitBar()
        self.start = Start(host.session.workspace.root, id="start")
        self.transcript = Transcript(id="transcript", findable=True)
        self.transcript.takes_click = False
        self.approval = ApprovalBox(host.session.workspace.clock)
        self.queue = QueueView()
        self.completions = Completions()
        self.prompt = Prompt(id="prompt")
        self.loader = ThreadLoader(host, self.transcript, self._loaded)
        self._then = loaded
        self.find = ThreadFind(host, self, self.transcript, self.loader)
        self._completer = Completer(host.session, self.prompt, self.completions)

    def compose(self) -> ComposeResult:
        yield self.visit_bar
        yield self.start
        yield self.transcript
        yield self.approval
        yield self.queue
        yield self.completions
        with Horizontal(id="prompt-row"):
            yield Static(">", id="prompt-sign", markup=False)
            yield self.prompt

    def on_mount(self) -> None:
        self.watch(self.transcript, "virtual_size", self.fit_start)

    def _loaded(self) -> None:
        self.fit_start()
        self._then()

    def fit_start(self) -> None:
        """Show the start where the thread is known to be empty: what is still being loaded is not announced as new."""
        empty = bool(self.loader.shown) and not self.transcript.document.blocks
        self.start.display = empty and not self.approval.pending  # a question needs the room

    # --- the prompt -------------------------------------------------------------------------------------------

    def give_back(self, text: str) -> None:
        """Put what could not be sent before what was typed meanwhile."""
        self.prompt.put("\n\n".join(t for t in (text, self.prompt.value) if t))

    def take_back_queue(self) -> None:
        """Put all that is queued, in its order, before what stands in the prompt."""
        session = self._host.session
        texts = [session.unqueue(0) for _ in session.queued]
        if back := "\n\n".join(t for t in texts if t):
            self.give_back(back)

    @on(Prompt.Nothing)
    def _send_queued(self) -> None:
        """Enter on an empty prompt: what a turn that has ended left in the queue."""
        if self._host.session.queued:
            self._host.go(self._host.session.send_queued, group="command")

    @on(Prompt.Wanted)
    def _complete(self, event: Prompt.Wanted) -> None:
        self._host.go(self._completer.show, event.query, group="complete", exclusive=True)

    @on(Prompt.Moved)
    def _move_completion(self, event: Prompt.Moved) -> None:
        self.completions.move(event.step)

    @on(Prompt.Accepted)
    def _accept(self, event: Prompt.Accepted) -> None:
        self._completer.accept(send=event.send)

    @on(Completions.Picked)
    def _picked(self) -> None:
        self._completer.accept(send=False)

    @on(Prompt.Searching)
    def _searching(self, event: Prompt.Searching) -> None:
        self._host.note(event.text)

    @on(Prompt.ClipboardWanted)
    def _clipboard_wanted(self) -> None:
        self._host.go(self._paste, group="clipboard", exclusive=True)

    async def _paste(self) -> None:
        """Paste an image of the system's clipboard; else what was copied in this window."""
        if image := await clipboard.take(os.environ, self._host.session.workspace.root, own=self.prompt.own_clipboard):
            self.prompt.attach(*image)
        elif not self.prompt.paste_own():
            self._host.note("no image in the clipboard; paste text with the terminal's own keys")

    def edit_prompt(self) -> None:
        """Let the user write the prompt in an editor."""
        self._host.go(self._edit_prompt, group="editor", exclusive=True)

    async def _edit_prompt(self) -> None:
        self.prompt.put(await self._edited(self.prompt.value))

    async def _edited(self, text: str) -> str:
        return await editor.edit(app_of(self), text, os.environ, self._host.session.workspace.root)

    @on(QueueView.Removed)
    def _unqueue(self, event: QueueView.Removed) -> None:
        text = self._host.session.unqueue(event.index)
        if text is not None:
            self.give_back(text)
        self.prompt.focus()

    # --- approvals --------------------------------------------------------------------------------------------

    @on(ApprovalBox.Answered)
    def _answered(self, event: ApprovalBox.Answered) -> None:
        self._host.session.resolve(event.id, event.approved, grant=event.grant, note=event.note, edited=event.edited)

    @on(ApprovalBox.EditWanted)
    def _edit_wanted(self, event: ApprovalBox.EditWanted) -> None:
        self._host.go(self._edit_command, event.asked, group="approval", exclusive=True)

    async def _edit_command(self, asked: ApprovalRequested) -> None:
        """Let the user write another command in an editor; left as it was, the question still waits."""
        text = (await self._edited(asked.target)).rstrip("\n")
        if text.strip() and text != asked.target.rstrip("\n") and asked in self.approval.pending:
            self._host.session.resolve(asked.id, True, edited=text)

    @on(ApprovalBox.ViewWanted)
    def _view_wanted(self, event: ApprovalBox.ViewWanted) -> None:
        def back(ended: bool | None) -> None:
            if ended:
                self.approval.read_to_end(event.asked)

        self._host.push(text_screens.approval_screen(event.asked), back)

    # --- the transcript ---------------------------------------------------------------------------------------

    @on(Transcript.OlderWanted)
    def _older(self) -> None:
        self._host.go(self.loader.load_older, group="older", exclusive=True)

    @on(Transcript.FindWanted)
    def _find(self, event: Transcript.FindWanted) -> None:
        self.find.open(event.step)

    @on(FindBar.Changed)
    def _look_for(self, event: FindBar.Changed) -> None:
        self.find.look_for(event.text)

    @on(FindBar.Step)
    def _find_on(self, event: FindBar.Step) -> None:
        self.find.step(event.step, read=event.read)

    @on(FindBar.Closed)
    @on(Transcript.FindLeft)
    def _leave_find(self) -> None:
        self.find.leave()
