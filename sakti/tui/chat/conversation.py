"""Combine transcript, questions and prompt in one column, and send prompt input to the session."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from sakti.actions import line
from sakti.core.errors import NOT_SAVED, RAN, SaktiError, StoreError
from sakti.core.events import ApprovalRequested, SideQuestion
from sakti.tui import desktop
from sakti.tui.chat.completer import Completer
from sakti.tui.chat.find import FindBar, ThreadFind
from sakti.tui.chat.thread_view import ThreadView, VisitBar
from sakti.tui.host import Host, get_app
from sakti.tui.screens import agents as agent_screens
from sakti.tui.screens import text as text_screens
from sakti.tui.widgets.approval import ApprovalBox, AsideView
from sakti.tui.widgets.card import CardBox, PlanForm
from sakti.tui.widgets.completions import Completions, QueueView
from sakti.tui.widgets.prompt import Prompt
from sakti.tui.widgets.start import Start
from sakti.tui.widgets.transcript import Transcript

NOT_STARTED = "sakti could not start; the problem is shown above"


class Conversation(Vertical):
    """`on_loaded` is called after a thread was loaded.

    Lines of the prompt wait until the session has started and `send_waiting` is called.
    """

    def __init__(self, host: Host, on_loaded: Callable[[], None]) -> None:
        super().__init__(id="chat")
        self._host, self._after_load = host, on_loaded
        self.waiting: list[str] | None = []  # input sent before the session started; None: it has started or failed
        self._failed = False
        self.visit_bar = VisitBar()
        self.start = Start(host.session.workspace.root, id="start")
        self.transcript = Transcript(id="transcript", findable=True)
        self.transcript.focuses_on_click = False
        self.approval = ApprovalBox(host.session.workspace.clock)
        self.card = CardBox(host.session.workspace.clock, lambda: not host.session.workspace.refused_auto())
        self.aside = AsideView(id="aside")
        self.queue = QueueView()
        self.completions = Completions()
        self.prompt = Prompt(id="prompt")
        self.view = ThreadView(host, self.transcript, self.visit_bar, self._on_loaded)
        self.find = ThreadFind(host, self.transcript, self.view)
        self._completer = Completer(host.session, self.prompt, self.completions)

    def compose(self) -> ComposeResult:
        yield self.start
        yield self.transcript
        yield self.queue
        yield self.completions
        with Horizontal(id="prompt-row"):
            yield Static(">", id="prompt-sign", markup=False)
            yield self.prompt

    async def mount_rest(self) -> None:
        """Mount the parts that are hidden until a question, a visit or a search."""
        await self.mount(self.visit_bar, before=self.start)
        await self.mount(self.find.bar, after=self.transcript)
        await self.mount(self.aside, self.card, self.approval, before=self.queue)

    def on_mount(self) -> None:
        self.watch(self.transcript, "virtual_size", self.update_start_page)

    def _on_loaded(self) -> None:
        self.update_start_page()
        self._after_load()

    def update_start_page(self) -> None:
        """Show the start page once the thread is known to be empty, not while it is still loading."""
        empty = bool(self.view.shown) and not self.transcript.document.blocks
        others = self.approval.pending or self.card.pending or self.aside.display  # they need the space
        self.start.display = empty and not others

    # --- sending ----------------------------------------------------------------------------------------------

    @on(Prompt.Submitted)
    def _submit_prompt(self, event: Prompt.Submitted) -> None:
        event.stop()
        self._host.session.note_pasted_blocks(event.pasted)
        self.submit(event.text)

    def submit(self, text: str) -> None:
        """Send a line from the prompt; until the session has started it waits."""
        self._host.set_hint("")
        if self.waiting is not None:
            self.waiting.append(text)
        elif self._failed and not text.startswith("/"):
            self.return_to_prompt(text)
            self._host.set_hint(NOT_STARTED)
        else:
            self._host.start_worker(self.run, text, group="command")
            self._host.start_worker(self._add_history, text, group="history")

    async def send_waiting(self) -> None:
        """Send the messages that were entered before the session started, in order."""
        try:
            while self.waiting:
                text = self.waiting.pop(0)
                self._host.start_worker(self._add_history, text, group="history")
                try:
                    await self.run(text)
                except SaktiError as e:
                    self._host.show_notice(e.message, title=e.title, tone="error")
        finally:
            self._end_wait()

    def return_waiting(self) -> None:
        """Return waiting messages to the prompt after the start failed."""
        self._failed = True
        if self.waiting:
            self._host.set_hint(NOT_STARTED)
        self._end_wait()

    def _end_wait(self) -> None:
        waiting, self.waiting = self.waiting or [], None
        if waiting:
            self.return_to_prompt("\n\n".join(waiting))

    async def run(self, text: str) -> None:
        """Run a line of the prompt: a command, a shell line, a note or a message. Raises `SaktiError`."""
        session = self._host.session
        typed = line.parse(text, skills=session.typed_names())
        if typed.kind in ("shell", "note", "message"):
            self.transcript.scroll_end_now()
        match typed.kind:
            case "command":
                await self._host.run_typed(typed)
            case "unknown":
                raise line.make_unknown_command_error(typed)
            case "shell":
                await self._run_shell(text, typed.argument)
            case "note":
                await self._send(text, session.note(typed.argument))
            case "message":
                await self._send(text, session.turns.submit(typed.argument))

    async def _run_shell(self, text: str, command: str) -> None:
        live = self.transcript.live
        call = live.begin_shell(command)
        try:
            await self._send(text, self._host.session.shell(command))
        except SaktiError:
            live.fail_shell(call)
            raise

    async def _send(self, text: str, sending: Awaitable[None]) -> None:
        """Await `sending`; on failure, put `text` back into the prompt, before newer input."""
        try:
            await sending
        except SaktiError as e:
            if e.code == RAN:
                raise
            self.return_to_prompt(text)
            await self.view.show_changes()  # the reason may be a turn of another window; its prompt comes first
            if e.code in NOT_SAVED:
                message = f"{e.message} Nothing was sent: the text is in the prompt."
                raise SaktiError(message, title=e.title, code=e.code) from e
            raise

    async def _add_history(self, text: str) -> None:
        if not text.startswith("/quit"):
            with contextlib.suppress(StoreError):  # the line itself reports the error
                await self._host.session.views.add_history(text)

    # --- the prompt -------------------------------------------------------------------------------------------

    def return_to_prompt(self, text: str) -> None:
        """Put unsent text back into the prompt, before newer input; a command typed next replaces it."""
        newer = self.prompt.value
        self.prompt.set_text("\n\n".join(t for t in (text, newer) if t), gives_way=not newer)

    def unqueue_all(self) -> None:
        """Move all queued messages, in order, to the start of the prompt."""
        session = self._host.session
        texts = [session.unqueue(0) for _ in session.queued]
        if back := "\n\n".join(t for t in texts if t):
            self.return_to_prompt(back)

    @on(Prompt.EmptySubmitted)
    def _send_queued(self) -> None:
        """Send the messages left in the queue by an ended turn: Enter on an empty prompt."""
        if self._host.session.queued:
            self._host.start_worker(self._host.session.send_queued, group="command")

    @on(Prompt.CompletionRequested)
    def _show_completions(self, event: Prompt.CompletionRequested) -> None:
        self._host.start_worker(self._completer.show, event.query, group="complete", exclusive=True)

    @on(Prompt.Moved)
    def _move_completion(self, event: Prompt.Moved) -> None:
        self.completions.move(event.step)

    @on(Prompt.Accepted)
    def _accept_completion(self, event: Prompt.Accepted) -> None:
        self._completer.accept(send=event.send)

    @on(Completions.Picked)
    def _accept_clicked_completion(self) -> None:
        self._completer.accept(send=False)

    @on(Prompt.Searching)
    def _show_history_search(self, event: Prompt.Searching) -> None:
        self._host.set_hint(event.text)

    @on(Prompt.ClipboardWanted)
    def _start_paste(self) -> None:
        self._host.start_worker(self._paste, group="clipboard", exclusive=True)

    async def _paste(self) -> None:
        """Paste an image from the system clipboard, else the text copied in this window."""
        if image := await desktop.save_clipboard_image(
            os.environ, self._host.session.workspace.root, own=self.prompt.own_clipboard
        ):
            self.prompt.insert_image(*image)
        elif not self.prompt.paste_own():
            self._host.set_hint("no image in the clipboard; paste text with your terminal's paste key")

    def edit_prompt(self) -> None:
        """Let the user write the prompt in an editor."""
        self._host.start_worker(self._edit_prompt, group="editor", exclusive=True)

    async def _edit_prompt(self) -> None:
        self.prompt.set_text(await self._edit_text(self.prompt.value, "prompt"))

    async def _edit_text(self, text: str, kind: str) -> str:
        return await desktop.edit_text(get_app(self), text, os.environ, self._host.session.workspace.root, kind)

    @on(QueueView.Removed)
    def _unqueue(self, event: QueueView.Removed) -> None:
        text = self._host.session.unqueue(event.index)
        if text is not None:
            self.return_to_prompt(text)
        self.prompt.focus()

    # --- approvals --------------------------------------------------------------------------------------------

    @on(ApprovalBox.Answered)
    def _resolve_approval(self, event: ApprovalBox.Answered) -> None:
        self._host.session.resolve(event.id, event.approved, grant=event.grant, note=event.note, edited=event.edited)

    @on(CardBox.CardAnswered)
    def _answer_card(self, event: CardBox.CardAnswered) -> None:
        self._host.session.answer(event.id, event.answer)

    @on(AsideView.AnswerUsed)
    def _use_answer(self, event: AsideView.AnswerUsed) -> None:
        if event.how == "copy":
            self._host.copy_to_clipboard(event.text)
            self._host.set_hint("Copied")
        else:
            self.return_to_prompt(event.text)
            self.prompt.focus()

    def close_aside(self) -> bool:
        """Close the card of a side question and stop its answer; False if none is open."""
        if is_open := self.aside.close():
            self._host.session.turns.aside.stop()
            self.update_start_page()
        return is_open

    def show_aside(self, event: SideQuestion) -> None:
        self.aside.handle_event(event)
        self.update_start_page()

    @on(CardBox.PlanWanted)
    def _open_plan(self, event: CardBox.PlanWanted) -> None:
        if event.edit:
            self._host.start_worker(self._edit_plan, event.form, group="approval", exclusive=True)
        else:
            lines_apart = event.form.text.replace("\n   ", "  \n   ")  # Markdown would join the lines of a step
            self._host.push(text_screens.PageScreen("Plan", lines_apart))

    async def _edit_plan(self, form: PlanForm) -> None:
        """Let the user change the plan in an editor; an invalid text is kept for the next edit."""
        text = (await self._edit_text(form.draft or form.text, "plan")).rstrip("\n")
        try:
            plan = self._host.session.renumber_plan(text, form.text)
        except SaktiError as e:
            form.draft = text
            self._host.show_notice(f"{e.message} e opens your text again.", title="Plan", tone="warning")
            return
        form.draft = ""
        self.card.change_plan(plan)

    def show_questions(self, pending: tuple[ApprovalRequested, ...], *, take_focus: bool) -> None:
        """Show the open approvals and the oldest card."""
        cards = tuple(p for p in pending if p.is_card)
        self.approval.show(tuple(p for p in pending if p not in cards), take_focus=take_focus)
        self.card.show(cards, take_focus=take_focus and not self.approval.pending)
        self.update_start_page()

    def mark_keyboard(self, focused: Widget | None) -> None:
        """Make the questions show their keys only while they have the focus."""
        for box in (self.approval, self.card):
            box.view.mark_keyboard(has_it=focused is not None and box in focused.ancestors_with_self)

    def has_focused_question(self, focused: Widget | None) -> bool:
        """Return whether an approval or a card has the focus."""
        return focused is not None and not {self.approval, self.card}.isdisjoint(focused.ancestors_with_self)

    def next_question(self, focused: Widget | None) -> Widget | None:
        """Return the question that Tab focuses; None without a question or if it already has the focus."""
        views = [v for box, v in ((self.approval, self.approval.view), (self.card, self.card.view)) if box.pending]
        views += [self.aside] if self.aside.display else []
        return next((v for v in views if v is not focused), None)

    @on(ApprovalBox.EditWanted)
    def _start_command_edit(self, event: ApprovalBox.EditWanted) -> None:
        self._host.start_worker(self._edit_command, event.asked, group="approval", exclusive=True)

    async def _edit_command(self, asked: ApprovalRequested) -> None:
        """Let the user rewrite the command in an editor; if it is unchanged, the question keeps waiting."""
        text = (await self._edit_text(asked.target, "command")).rstrip("\n")
        if text.strip() and text != asked.target.rstrip("\n") and asked in self.approval.pending:
            self._host.session.resolve(asked.id, True, edited=text)

    @on(ApprovalBox.ViewWanted)
    def _view_approval(self, event: ApprovalBox.ViewWanted) -> None:
        def back(ended: bool | None) -> None:
            if ended:
                self.approval.mark_read(event.asked)

        self._host.push(text_screens.make_approval_screen(event.asked), back)

    # --- the transcript ---------------------------------------------------------------------------------------

    @on(Transcript.OlderWanted)
    def _load_older(self) -> None:
        self._host.start_worker(self.view.load_older, group="older", exclusive=True)

    @on(Transcript.ChildWanted)
    def _act_on_child(self, event: Transcript.ChildWanted) -> None:
        use = agent_screens.stop_child if event.stop_it else agent_screens.open_child
        self._host.start_worker(use, self._host, event.child_id, group="agents")

    @on(Transcript.FindWanted)
    def _find(self, event: Transcript.FindWanted) -> None:
        self.find.open(event.step)

    @on(FindBar.Changed)
    def _change_find(self, event: FindBar.Changed) -> None:
        self.find.search(event.text)

    @on(FindBar.Step)
    def _step_find(self, event: FindBar.Step) -> None:
        self.find.step(event.step, read=event.read)

    @on(FindBar.Closed)
    @on(Transcript.FindLeft)
    def _close_find(self) -> None:
        self.find.close()
