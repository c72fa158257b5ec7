"""Plain chat: reads lines, sends them to the session or to a question, and prints the events."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from sakti.actions.line import list_argument_choices, list_command_choices, list_file_choices, parse, query_at
from sakti.agent.mentions import find_pasted_images, format_mention
from sakti.agent.project import trust
from sakti.agent.reports import trust_view
from sakti.agent.session import lifecycle
from sakti.agent.session.lifecycle import observe_on_exit
from sakti.agent.workspace import NOT_KEPT
from sakti.core import terminal
from sakti.core.errors import RAN, SaktiError
from sakti.core.events import (
    ApprovalAnswer,
    ApprovalRequested,
    Event,
    MessageSaved,
    ModelChanged,
    QueueChanged,
    ThreadChanged,
    TurnFinished,
)
from sakti.core.text import format_count, sanitize_text, to_one_line
from sakti.plain import lines as plain_lines
from sakti.plain import words
from sakti.plain.commands import OWN, STOPPABLE, PlainCommands
from sakti.plain.lines import Lines
from sakti.plain.speech import READY, Speech

if TYPE_CHECKING:
    from sakti.agent.mcp.config import ServerNeed
    from sakti.agent.session.session import Session
    from sakti.core.types import Message


log = logging.getLogger(__name__)

TWICE_S = 2.0  # seconds in which a second ctrl+c quits
POLL_S = 2.0  # seconds between checks of other windows and the draft
POLLED_MESSAGES = 50  # messages of other windows fetched by each check
SHOWN_MESSAGES = 2  # messages shown when a thread is opened
SHOWN_LINES = 20
ALLOW_QUESTION = "allow it? y allows it in this folder, n does not"
TRUST_QUESTION = "trust them: y trusts them, n leaves them out for now, v shows their text"


def run(session: Session, *, prompt: str | None = None, pick_thread: bool = False, why: str = "") -> int:
    """Run the chat until the user leaves; return the exit code. `why` explains why plain mode is used."""
    return asyncio.run(terminal.run_then_end(Chat(session, why).run(prompt, pick_thread=pick_thread)))


class Chat:
    """One terminal on one session."""

    def __init__(self, session: Session, why: str = "") -> None:
        self.session = session
        self.speech = Speech()
        self.commands = PlainCommands(self)
        self.unsent = ""  # unsent text of this or an earlier window; never sent automatically
        self._reason = why
        self._files = session.workspace.file_list
        self._continued: list[str] = []  # previous lines, which ended with a backslash
        self._leave: asyncio.Future[int]
        self._lines: Lines
        self._echoed = ""  # the unfinished input line at the last output
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._activity = asyncio.Event()
        self._last_stop = self._last_end = float("-inf")
        self._saved_unsent: tuple[str, tuple[str, ...]] | None = None  # None: drafts are not saved
        self._new_files: tuple[trust.TrustReview, asyncio.Future[bool]] | None = None  # files that are asked about
        self._seen: set[str] = set()
        self._version = -1

    # --- output -----------------------------------------------------------------------------------------------

    def say(self, lines: Iterable[str]) -> None:
        """Print the non-empty lines, with control characters made visible.

        They start on a new line if the user is typing.
        """
        block = "".join(f"{sanitize_text(line)}\n" for text in lines for line in text.split("\n") if line.strip())
        if not block:
            return
        typed, before, self._echoed = self._lines.unfinished_line, self._echoed, self._lines.unfinished_line
        try:
            sys.stdout.write(f"\n{block}" if typed and typed != before else block)
            sys.stdout.flush()
        except OSError:
            self.leave(128 + signal.SIGHUP)

    def on_event(self, event: Event) -> None:
        self.say(self.speech.format_event(event))
        if isinstance(event, MessageSaved):
            self._seen.add(event.message.id)
        elif isinstance(event, QueueChanged):
            self.start_task(self._save_unsent)
        elif isinstance(event, ThreadChanged) and event.thread.id != self.commands.thread:
            self.commands.thread = event.thread.id
            self.start_task(self._show_thread, event.thread.id)
        elif isinstance(event, ModelChanged) and event.model is None:
            self.start_task(self.commands.act, "setup")
        elif isinstance(event, TurnFinished):
            self.start_task(self._ask_about_new_files)
        self._activity.set()

    # --- life -------------------------------------------------------------------------------------------------

    async def run(self, prompt: str | None, *, pick_thread: bool) -> int:
        loop = asyncio.get_running_loop()
        self._leave = loop.create_future()
        typed = asyncio.Queue[str | None]()
        self._lines = Lines(
            lambda line: loop.call_soon_threadsafe(typed.put_nowait, line),
            lambda before: self._suggest(before, loop),
            dumb=os.environ.get("TERM") == "dumb",
        )
        signals = set[int]()

        def leave(number: int) -> None:
            terminal.end_on_second_sigterm(number, signals)
            self.leave(128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError):
                loop.add_signal_handler(number, leave, number)
        with contextlib.suppress(NotImplementedError, RuntimeError):
            loop.add_signal_handler(signal.SIGINT, self.stop)
            loop.add_signal_handler(signal.SIGTSTP, self._lines.suspend)
        terminal.on_hangup(lambda: loop.call_soon_threadsafe(self.leave, 128 + signal.SIGHUP))
        self.session.subscribe(self.on_event)
        workers: list[asyncio.Task[None]] = []
        code = 1
        try:
            self.say([*([self._reason] if self._reason else []), self._format_welcome()])
            await lifecycle.settle_trust(
                self.session.workspace,
                lambda review: self._ask_trust(review, typed),
                lambda need: self._ask_need(need, typed),
            )
            await self.session.start()
            self._lines.start(await self.session.views.history())
            await self._load_unsent()
            if pick_thread:
                await self.commands.act("threads")
            self.say([READY])
            workers = [asyncio.create_task(self._consume(typed)), asyncio.create_task(self._poll())]
            if prompt:
                self.start_task(self.send, prompt)
            code = await self._leave
        finally:
            for task in (*workers, *self._tasks):
                task.cancel()
            await self._close(code)
        return code

    async def _ask_trust(self, review: trust.TrustReview, typed: asyncio.Queue[str | None]) -> bool:
        """Ask whether to trust the workspace's settings; without a terminal they are not trusted."""
        if not self._lines.terminal:
            return False
        state = "changed since it was trusted" if review.state == "changed" else "not trusted yet"
        files = ", ".join(to_one_line(f.name, 100) for f in review.project.files)
        brings = f"this folder brings files that change what sakti does, {state}: {files}"
        self.say([brings, *trust_view.list_effects(review), TRUST_QUESTION])
        return bool(await self._read_answer(typed, lambda line: self._read_trust(line, review)))

    async def _ask_need(self, need: ServerNeed, typed: asyncio.Queue[str | None]) -> bool | None:
        """Ask whether to grant a need of a project's MCP server; None without a terminal."""
        if not self._lines.terminal:
            return None
        self.say([f"the MCP server {need.sentence}", ALLOW_QUESTION])
        return await self._read_answer(typed, self._read_permission)

    async def _read_answer(self, typed: asyncio.Queue[str | None], read: Callable[[str], bool | None]) -> bool | None:
        """Return the parsed answer of the first line that `read` accepts; None if the user leaves."""
        self._lines.start([])
        while True:
            reply = asyncio.ensure_future(typed.get())
            await asyncio.wait((reply, self._leave), return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                reply.cancel()
                return None
            if (answer := read(reply.result() or "n")) is not None:
                return answer

    def _read_permission(self, line: str) -> bool | None:
        answer = {"y": True, "yes": True, "n": False, "no": False}.get(line.strip().lower())
        if answer is None:
            self.say([ALLOW_QUESTION])
        return answer

    def _read_trust(self, line: str, review: trust.TrustReview) -> bool | None:
        """Return the answer in a line; None if it is not an answer, after repeating the question."""
        match line.strip().lower():
            case "y" | "yes":
                return True
            case "n" | "no":
                return False
            case "v" | "view":
                self.say([*words.spell_file_changes(review.changes), TRUST_QUESTION])
            case _:
                self.say([TRUST_QUESTION])
        return None

    async def _ask_about_new_files(self) -> None:
        """Ask about files created by a turn that would instruct later threads or be run."""
        ask = self._ask_about if self._lines.terminal else None
        left_out = await lifecycle.settle_new_files(self.session.workspace, ask)
        if ask is None:
            self.say(left_out.values())

    def _decide(self, line: str, review: trust.TrustReview, decided: asyncio.Future[bool]) -> None:
        if (trusted := self._read_trust(line, review)) is not None and not decided.done():
            decided.set_result(trusted)

    async def _ask_about(self, review: trust.TrustReview) -> bool:
        head = "a command or a tool created files that change what sakti does:"
        self.say([head, *trust_view.list_effects(review), TRUST_QUESTION])
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._new_files = review, answer
        try:
            return await answer
        finally:
            self._new_files = None

    def _format_welcome(self) -> str:
        return (
            f"sakti in plain mode, in {to_one_line(str(self.session.workspace.root), 200)}; /help lists the commands, "
            "ctrl+c stops the agent, ctrl+d quits"
        )

    async def _close(self, code: int) -> None:
        self.session.hurry()
        try:
            if not code:
                await observe_on_exit(self.session.current, self.session.interrupt, lambda text: self.say([text]))
            await self.session.interrupt()  # messages that a turn takes from the queue now are not drafts
            if self._saved_unsent is not None:
                await self.session.views.keep_unsent(self._join_draft(), self.session.queued, left=True)
            thread = self.session.thread
            if not self.session.workspace.saved:
                self.say([NOT_KEPT])
            elif self.session.workspace.not_saved:
                self.say([f"not saved: {self.session.workspace.not_saved.partition('. ')[0]}."])
            elif thread is not None and thread.title:  # an empty thread is not stored
                self.say([f"resume with: sakti -c, or at any time: sakti -r {thread.id[-8:]}"])
        except SaktiError as e:
            self.say([words.describe_error(e)])
        finally:
            self._lines.end()
            limit = terminal.end_within(terminal.CLOSING_S, code)
            await self.session.close()
            limit.cancel()
            terminal.ignore_interrupts()

    def leave(self, code: int) -> None:
        if not self._leave.done():
            self._leave.set_result(code)

    def start_task(self, work: Callable[..., Awaitable[None]], *args: object) -> None:
        """Run `work(*args)` in the background and print its error."""

        async def run_guarded() -> None:
            try:
                await work(*args)
            except SaktiError as e:
                self.say([words.describe_error(e)])
            except Exception as e:
                log.exception("a command failed")
                self.say([f"error: {type(e).__name__}: {to_one_line(str(e), 300)}; the log file has the details"])

        task = asyncio.ensure_future(run_guarded())
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._activity.set()

    # --- input ------------------------------------------------------------------------------------------------

    async def _consume(self, typed: asyncio.Queue[str | None]) -> None:
        while True:
            if not self._lines.terminal:
                await self._wait_until_idle()  # input from a pipe: one line at a time
            line = await typed.get()
            if line is None:
                self.end_of_input()
            else:
                self._on_line(line)

    async def _wait_until_idle(self) -> None:
        while (self.session.busy or self._tasks) and self.speech.question is None:
            self._activity.clear()
            await self._activity.wait()

    def end_of_input(self) -> None:
        """Quit on ctrl+d; while work is running, only on the second one."""
        if self._lines.terminal and terminal.is_gone():
            self.leave(128 + signal.SIGHUP)
            return
        now = self.session.workspace.clock.monotonic()
        if self.session.busy and self._lines.terminal and now - self._last_end > TWICE_S * 3:
            self._last_end = now
            self.say(["the agent is working: ctrl+d once more stops it and quits"])
            return
        self.leave(0)

    def stop(self) -> None:
        """Interrupt running work on ctrl+c; quit on the second one."""
        now = self.session.workspace.clock.monotonic()
        if now - self._last_stop < TWICE_S:
            self.leave(0)
            return
        self._last_stop = now
        if self.session.busy:
            self.start_task(self._interrupt)
        for task in self._tasks:
            if task.get_name() == STOPPABLE:
                task.cancel()
        if self._continued:
            self.unsent = "\n\n".join(t for t in (self.unsent, "\n".join(self._continued)) if t)
            self._continued.clear()
            self.say(["your draft was not sent: /send sends it, /drop discards it"])
        self.say(["ctrl+c again quits"])

    async def _interrupt(self) -> None:
        await self.session.interrupt()

    def _on_line(self, line: str) -> None:
        if not self._lines.is_complete:
            self.unsent = line
            self.say(
                ["warning: this terminal cuts long lines, so the end may be missing; nothing was sent",
                 "put the text into a file and attach it with @; /send sends it as it arrived, /drop discards it"]
            )  # fmt: skip
            return
        if self._is_answer(line):
            return
        if line.endswith("\\") and not line.endswith("\\\\"):
            self._continued.append(line[:-1])
            return
        text = "\n".join([*self._continued, line])
        self._continued.clear()
        if text.strip():
            self._on_text(text)

    def _is_answer(self, line: str) -> bool:
        """Use a line as the answer to an open question; False if it is not an answer."""
        if self._new_files is not None:
            self._decide(line, *self._new_files)
            return True
        question = self.speech.question
        if question is None or self._continued or (reply := plain_lines.parse_answer(line, question)) is None:
            return False
        self._answer(question, reply)
        return True

    def _on_text(self, text: str) -> None:
        """Handle a text of one or more lines: send it, select an item by number, or run a command."""
        question = self.speech.question
        if question is not None and parse(text).kind == "message":
            self.say([f"a question is waiting: answer {words.list_keys(question)}; your message is queued"])
        if text.strip().isdecimal() and self.commands.choose is not None:
            self.start_task(self.commands.choose, int(text))
            return
        self.start_task(self.send, text)
        if not text.startswith("/quit"):
            self.start_task(self.session.views.add_history, text)

    def _answer(self, question: ApprovalRequested, reply: plain_lines.TypedAnswer) -> None:
        if reply.problem:
            self.say([reply.problem])
            return
        if reply.mode == "auto" and (refused := self.session.workspace.refused_auto()):
            self.say([f"auto is not available here: {refused}"])
            return
        answer = ApprovalAnswer(
            reply.approved,
            reply.grant,
            reply.note,
            reply.edited,
            answers=reply.answers,
            mode=reply.mode,
            fresh=reply.fresh,
        )
        self.session.answer(question.id, answer)

    async def send(self, text: str) -> None:
        """Handle a line: a command, a shell line, a note or a message."""
        if parse(text).kind in ("command", "unknown"):
            await self.commands.run(text)
            return
        try:
            if await self.commands.run(text):
                return
            async with self._sending:
                dropped = await asyncio.to_thread(find_pasted_images, text)
                await self.session.submit(" ".join(map(format_mention, dropped)) or text)
        except SaktiError as e:
            if e.code != RAN:
                self.unsent = "\n\n".join(t for t in (self.unsent, text) if t)
                self.say(["not sent, but kept: /send sends it, /drop discards it"])
            raise

    def _suggest(self, before: str, loop: asyncio.AbstractEventLoop) -> list[str]:
        """Complete the word at the cursor, in the reading thread: commands, their arguments and files."""
        query = query_at(before)
        if query is None:
            return []
        if query.kind == "file":
            try:
                paths = asyncio.run_coroutine_threadsafe(self._files.paths(), loop).result(TWICE_S)
            except (TimeoutError, SaktiError):
                return []
            return [c.insert for c in list_file_choices(query.text, paths)]
        if query.kind == "argument":
            return [c.insert for c in list_argument_choices(query.command, query.text)]
        return [c.insert for c in list_command_choices("", OWN.values()) if c.insert.startswith(before)]

    # --- drafts -------------------------------------------------------------------------------------

    def _join_draft(self) -> str:
        parts = ["\n".join([*self._continued, self._lines.unfinished_line]), self.unsent]
        return "\n\n".join(p for p in reversed(parts) if p.strip())

    async def _load_unsent(self) -> None:
        try:
            draft, queued = await self.session.views.take_unsent()
        except SaktiError as e:
            self.say([f"warning: {e.title}: {e.message} Drafts are saved again after a restart."])
            return
        self._saved_unsent = (draft, tuple(queued))
        self.unsent = "\n\n".join([*queued, *([draft] if draft.strip() else [])])
        if self.unsent:
            self.say([f"not sent when sakti last quit: {self.unsent}", "/send sends it now, /drop discards it"])

    async def _save_unsent(self) -> None:
        now = (self._join_draft(), tuple(self.session.queued))
        if self._saved_unsent is None or now == self._saved_unsent:
            return
        await self.session.views.keep_unsent(*now)
        self._saved_unsent = now

    # --- other windows ----------------------------------------------------------------------------------------

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            with contextlib.suppress(SaktiError):  # the next check may succeed; user actions report failures
                await self._save_unsent()
                await self._follow()

    async def _follow(self) -> None:
        thread = self.session.thread
        if thread is None or self.session.busy or self._tasks:
            return
        version = await self.session.views.version()
        if version == self._version:
            return
        page = await self.session.views.transcript(thread.id, limit=POLLED_MESSAGES)
        if self.session.busy or self.commands.thread != thread.id:
            return
        self._version = version
        if new := self._select_unseen(page):
            self.say(["from another window:", *(line for m in new for line in words.format_message(m))])

    def _select_unseen(self, page: Iterable[Message]) -> list[Message]:
        """Return the complete messages that were not shown yet, and mark them as seen."""
        new = [m for m in page if m.id not in self._seen and m.state != "provisional"]
        self._seen.update(m.id for m in new)
        return new

    async def _show_thread(self, thread_id: str) -> None:
        """Print a summary of the opened thread."""
        page = await self.session.views.transcript(thread_id, limit=POLLED_MESSAGES)
        self._seen = {m.id for m in page}
        lines: Sequence[str] = [
            line
            for m in [m for m in page if m.role in ("user", "assistant") and m.text.strip()][-SHOWN_MESSAGES:]
            for line in words.format_message(m, limit=SHOWN_LINES)
        ]
        if lines:
            self.say([f"{format_count(page[-1].index + 1, 'message')}, the last of them:", *lines])
