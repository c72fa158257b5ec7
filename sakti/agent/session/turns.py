"""Run the turns of a session one at a time; text typed meanwhile waits in the inbox."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sakti.agent import mentions
from sakti.core.errors import BLOCKED, NoModelError, SaktiError
from sakti.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    MessageSaved,
    Notice,
    QueueChanged,
    TurnFinished,
    TurnStarted,
)
from sakti.core.resources import read_prompt
from sakti.core.text import clean_surrogates, count_k
from sakti.core.tokens import Counter, count_parts, sum_message_tokens
from sakti.core.types import (
    BY_AGENT,
    PREFIX,
    ContextPart,
    FilePart,
    Json,
    MarkerPart,
    Message,
    Part,
    TextPart,
    Usage,
)

if TYPE_CHECKING:
    from sakti.agent.loop import Turn
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.session.goals import Goals
    from sakti.agent.session.session_hooks import SessionHooks
    from sakti.agent.session.side_calls import SideQuestions, Titling
    from sakti.agent.session.turn_lease import TurnLease
    from sakti.store.connection import Database


from sakti.agent import loop
from sakti.agent.processors import builtin
from sakti.agent.session import goals, side_calls, turn_lease
from sakti.agent.session import prompt as session_prompt
from sakti.agent.session import user_calls as calling
from sakti.store import user_state
from sakti.store.threads import removal

log = logging.getLogger(__name__)

LONG = 8_000  # characters above which a message may exceed a model's window
FAR = 10  # characters per token above which it surely does: counting millions of tokens takes seconds
SAMPLE = 20_000  # characters that are counted then


async def _begin_nothing(_metadata: Json) -> None:
    return None


class Turns:
    """Starts, queues, interrupts and repeats the turns of a session's open thread."""

    def __init__(self, thread: OpenThread, begin_successor: Callable[[Json], Awaitable[None]] = _begin_nothing) -> None:
        self._open, self._begin_successor = thread, begin_successor
        self.hooks: SessionHooks | None = None  # None: there are no hooks

    @cached_property
    def aside(self) -> SideQuestions:
        """Return the questions beside the thread."""
        return side_calls.SideQuestions(self._open, self._make_side_turn)

    @cached_property
    def _titling(self) -> Titling:
        return side_calls.Titling(self._open)

    @cached_property
    def goals(self) -> Goals:
        """Return the goal of the thread, which begins turns by itself."""
        return goals.Goals(self._open, self._begin_goal, self._send_queued)

    async def submit(self, text: str) -> None:
        """Send a message: start a turn, or queue it for the running turn's next step.

        Files named as @path are attached. Raises `NoModelError` without a model, `SaktiError` (thread_busy) while
        another window has a turn under way in this thread, for an image that cannot be sent, a message longer than the
        model's window, and one that a hook blocks.
        """
        text = clean_surrogates(text)  # a shell may pass arbitrary bytes
        if not text.strip():
            return
        if self._open.workspace.models.provider is None:
            raise NoModelError(
                "Set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again, run `sakti local install`, or name a local "
                "server with /model. Tools, search and tasks still work."
            )
        called = calling.ExpandedCommands()
        if text.lstrip().startswith("/") or "$" in text:
            called = await calling.find_skill_calls(self._open, text)
        parts = await self._make_prompt(text, called.texts)
        inbox = self._open.inbox
        if not self._open.busy and not inbox.queued:
            await self._begin(parts, called.model)
        else:
            await self._queue(parts)

    async def _queue(self, parts: tuple[Part, ...]) -> None:
        """Queue a prompt for the running turn, after waiting ones. Raises as `submit`."""
        inbox = self._open.inbox
        inbox.queued.append(parts)
        self._open.emit(QueueChanged(inbox.texts()))
        if self._open.busy:
            return
        try:
            await self.send_queued()  # earlier queued messages go first
        except SaktiError:
            inbox.queued[:] = [p for p in inbox.queued if p is not parts]
            self._open.emit(QueueChanged(inbox.texts()))
            raise

    async def _make_prompt(
        self, text: str, called: Sequence[calling.AttachedText] = (), more: tuple[Part, ...] = ()
    ) -> tuple[Part, ...]:
        """Return the message for a text of the user, with files and `more` parts. Raises as `submit`."""
        parts = await self._read_parts(text, called)
        resources = await calling.read_mentioned_resources(self._open, text)
        parts = (*parts, *resources, *calling.list_named_agents(self._open, text), *more)
        await self._check_length(parts)
        if self.hooks is not None and not self._open.workspace.changes_prompts:
            parts = await self.hooks.extend_prompt(text, parts)
        return parts

    async def send_program_text(self, kind: str, text: str, label: str) -> None:
        """Start a turn with a text that the user did not write, shown as `label`. Raises as `submit`."""
        await self._begin((ContextPart({kind: text}), MarkerPart(kind, label)))

    async def _begin_goal(self, parts: tuple[Part, ...]) -> None:
        """Start a turn of a goal; the text that sets it is a prompt like any other. Raises as `submit`."""
        first, *more = parts
        await self._begin(
            await self._make_prompt(first.text, (), tuple(more)) if isinstance(first, TextPart) else parts
        )

    async def _read_parts(self, text: str, called: Sequence[calling.AttachedText]) -> tuple[Part, ...]:
        """Read the files that a message and the commands in it name."""
        ws = self._open.workspace
        info, forbidden = ws.models.info, ws.forbidden_paths()
        blind = info.full_name if info is not None and not info.images else ""
        parts = await asyncio.to_thread(mentions.with_files, text, ws.root, forbidden, blind=blind)
        for sent in called:
            named = await asyncio.to_thread(
                mentions.with_files, sent.naming, ws.root, forbidden, blind=blind, typed=sent.typed
            )
            parts = (*parts, sent.file, *named[1:])
        return parts

    async def send_queued(self) -> None:
        """Begin a turn with the oldest queued message if no turn runs; its steps read the others.

        Raises as `submit`: then it is queued again.
        """
        inbox = self._open.inbox
        if not inbox.queued or self._open.busy:
            return
        parts = inbox.queued.pop(0)
        self._open.emit(QueueChanged(inbox.texts()))
        try:
            await self._begin(parts)
        except SaktiError as e:
            if e.code != BLOCKED:
                inbox.queued.insert(0, parts)
            self._open.emit(QueueChanged(inbox.texts()))
            raise

    async def _check_length(self, parts: tuple[Part, ...]) -> None:
        """Raise `SaktiError` for a message that alone is more than the model's window.

        Only a long one is counted: a token is a character at least.
        """
        length = sum(len(p.text) for p in parts if isinstance(p, TextPart | FilePart))
        if length < LONG:
            return
        info = await self._open.learn()
        if info.context_window is None or length < info.context_window:
            return
        counter, limit = self._open.workspace.counter, info.context_window
        tokens = await asyncio.to_thread(_count_tokens, counter, parts, limit)
        if tokens > limit:
            raise SaktiError(
                f"It has about {count_k(tokens)} tokens, {info.full_name} takes {count_k(limit)} in all: nothing was "
                "sent. Put it into a file and ask about that: the agent reads and searches it in parts.",
                title="Too long",
                code="context_too_long",
            )

    async def _begin(self, parts: tuple[Part, ...], model: str = "") -> None:
        """Start a turn; returns when its message is stored. `model` answers it if one is named.

        Raises `SaktiError` if nothing could be stored.
        """
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.running.task = asyncio.create_task(self._run(parts, taken, model))
        await taken

    async def retry(self) -> None:
        """Send the unchanged conversation again after a failed model call. Raises as `submit`."""
        if self._open.running.has_failed and not self._open.busy:
            await self._begin(())

    def unqueue(self, index: int) -> str | None:
        """Take back a queued message; returns its text."""
        if not 0 <= index < len(self._open.inbox.queued):
            return None
        text = self._open.inbox.texts()[index]
        del self._open.inbox.queued[index]
        self._open.emit(QueueChanged(self._open.inbox.texts()))
        return text

    async def interrupt(self) -> bool:
        """End the running turn and keep its streamed text; return False if no turn runs."""
        task = self._open.running.task
        if task is None or task.done():
            return False
        if self._open.running.turn is not None:
            self._open.running.turn.interrupt()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
        return True

    async def close(self) -> None:
        """End the running turn and side questions."""
        await self.interrupt()
        if "aside" in self.__dict__:
            await self.aside.end()
        if "_titling" in self.__dict__:
            await self._titling.end()

    async def wait(self) -> None:
        """Wait until no turn runs."""
        while self._open.running.task is not None and not self._open.running.task.done():
            await asyncio.wait({self._open.running.task})

    async def _run(self, parts: tuple[Part, ...], taken: asyncio.Future[None], model: str) -> None:
        """Run one turn, its events to all listeners.

        Top level of the task: every failure becomes an event, except those before the prompt is stored, which `taken`
        receives.
        """
        ws = self._open.workspace
        lease = turn_lease.TurnLease(
            ws.store,
            ws.owner,
            self._open.id,
            interactive=ws.options.interactive,
            stored=not self._open.is_new,
        )
        error: SaktiError | None = None

        def tell_others(event: Event) -> None:
            if isinstance(event, ApprovalRequested | ApprovalResolved):
                lease.show_asking(asks=bool(self._open.toolbox.approvals.pending))

        unsubscribe = ws.subscribe(tell_others)
        try:
            await self._open.recover()  # before the lease of a killed process is replaced
            await lease.take()
            await self._play(parts, lease, taken, model)
            return
        except asyncio.CancelledError:
            stopped = SaktiError("The turn was stopped before its message was sent.", title="Not sent")
            error = None if taken.done() else stopped
        except SaktiError as e:
            if e.code not in (turn_lease.BUSY, turn_lease.DELETED, turn_lease.REMOVED, BLOCKED):
                log.exception("turn failed")
            error = e
        except Exception as e:
            log.exception("turn failed")
            error = SaktiError(f"{type(e).__name__}: {e}. The log file has the details.")
        finally:
            unsubscribe()
            self._open.running.turn = None
        await lease.give_back()
        if taken.done():
            self._finish_broken("interrupted" if error is None else "error", error)
            await self.goals.pause_after_failure(error.message if error is not None else "the turn was stopped")
            return
        self._open.running.task = None
        _settle(taken, error)

    async def _play(self, parts: tuple[Part, ...], lease: TurnLease, taken: asyncio.Future[None], model: str) -> None:
        thread = self._open
        await self._prepare_thread("\n".join(p.text for p in parts if isinstance(p, TextPart)))
        turn = thread.running.turn = await self._make_turn(lease, model, lambda event: self._pass_on(event, taken))
        end = await loop.run_turn(turn, parts)
        if not taken.done():
            raise SaktiError(end.error or "", title=end.error_title, code=end.error_code)
        thread.running.has_failed = end.status == "error"
        await thread.workspace.files.look_at_git()
        if end.status == "tripwire":
            await thread.reload_title()
        await lease.give_back()
        thread.running.task = None
        thread.emit(thread.engine.status())
        thread.emit(end)
        if end.status == "answered":
            prompt = next((m.text for m in turn.messages if m.role == "user"), "")
            self._titling.begin(prompt, end.text)
        await self._begin_next(turn, end)

    async def _prepare_thread(self, text: str) -> None:
        """Prepare the thread for a turn with this prompt, and store it with a title."""
        thread = self._open
        await thread.catch_up()
        await self._begin_servers(text)
        if not thread.workspace.changes_prompts:
            await thread.store(text)
            await thread.name(text)
        else:
            await thread.store("")
        await thread.load_rules()
        if self.hooks is not None:
            await self.hooks.ready()

    async def _begin_next(self, turn: Turn, end: TurnFinished) -> None:
        """Begin the thread that follows, or the next turn: of the queue, or of a goal."""
        running = self._open.running
        successor, running.successor = running.successor, None
        if successor is not None and end.status == "answered":
            await self._begin_successor(successor)
        elif not running.has_failed and not turn.interrupted:
            await self._send_queued()
        await self.goals.follow(turn, end)

    async def _begin_servers(self, text: str) -> None:
        """Wait for MCP servers before the first request of the thread, if a file or a rule names any."""
        toolbox, ws = self._open.toolbox, self._open.workspace
        if ws.has_servers or any(rule.startswith(PREFIX) for rule in toolbox.rules.allow):
            await ws.servers.begin_turn(self._open.id, toolbox, text)

    def _pass_on(self, event: Event, taken: asyncio.Future[None]) -> None:
        """Pass on an event of the turn; its first one says that the prompt is stored."""
        if isinstance(event, TurnStarted):
            self._record_for(event.message)
            self._open.running.has_failed = False
            _settle(taken)
        elif isinstance(event, MessageSaved) and event.message.role == "user":
            self._record_for(event.message)
        self._open.emit(event)

    def _record_for(self, message: Message) -> None:
        """Record file changes for a message of the user from now on."""
        recorder = self._open.recorder
        if recorder is not None and "hook" not in message.metadata:
            recorder.begin(message.thread_id, message.index)

    async def _note_skills(self, message: Message) -> None:
        await self._open.note_skills(session_prompt.list_sent_skills(message.parts))

    async def _send_queued(self) -> None:
        """Begin a turn with messages queued after the last look into the inbox."""
        try:
            await self.send_queued()
        except SaktiError as e:
            self._open.emit(Notice("warning", e.title, e.message))

    def _finish_broken(self, status: str, error: SaktiError | None) -> None:
        self._open.running.task = None
        self._open.running.has_failed = status == "error"
        self._open.emit(
            TurnFinished(
                self._open.id,
                "interrupted" if status == "interrupted" else "error",
                "",
                0,
                Usage(),
                error.message if error else None,
                error.title if error else None,
                error.code if error else None,
            )
        )

    async def _make_side_turn(self, emit: Callable[[Event], None]) -> Turn:
        """Make a turn for a question beside the thread, which it does not change."""
        await self._open.learn()
        lease = turn_lease.TurnLease(self._open.workspace.store, self._open.workspace.owner, self._open.id)
        return await self._make_turn(lease, "", emit)

    async def _make_turn(self, lease: TurnLease, model: str, emit: Callable[[Event], None]) -> Turn:
        thread, ws = self._open, self._open.workspace
        assert ws.models.provider is not None
        info, provider = await thread.learn(), ws.models.provider
        if model and (other := await ws.models.for_turn(model)) is not None:
            provider, info = other
        memory, limiter = builtin.MemoryProcessor(thread.engine), builtin.TokenLimiter(encoding=ws.counter)
        before, after, awaits_guard = loop.order_processors(memory, limiter, ws.processors())
        hooks = self.hooks
        if hooks is not None:
            before = (*hooks.list_processors(), *before)
        turn = loop.Turn(
            store=ws.store,
            counter=ws.counter,
            provider=provider,
            model=info,
            engine=thread.engine,
            toolbox=thread.toolbox,
            thread_id=thread.id,
            resource_id=ws.resource_id,
            system=thread.system(),
            facts=self._read_facts,
            fallback=ws.models.fallback,
            on_model_corrected=ws.models.update_info,
            find_model=ws.models.for_turn,
            inbox=thread.inbox,
            settings=self.goals.limit(ws.config.agent, info),
            before=before,
            after=after,
            sink=emit,
            awaits_guard=awaits_guard,
            owner=ws.owner or None,
            require=lease.require,
            on_user=self._note_skills,
        )
        turn.may_end = self._may_end
        if ws.changes_prompts:
            turn.accept = self._accept
        begin = len(thread.children.spent)
        turn.children_usage = lambda: sum(thread.children.spent[begin:], Usage())
        return turn

    async def _read_facts(self) -> dict[str, str]:
        """Return the facts for the next request, with the children as all windows left them."""
        await self._open.children.refresh()
        return self._open.facts()

    async def _may_end(self, answer: str, held: int) -> tuple[tuple[Part, ...], Json]:
        """Return the message that continues a turn: of hooks, or after children of a headless run."""
        if not self._open.workspace.options.interactive and await self._open.children.wait_background():
            return (TextPart(read_prompt("subagents#ended")),), BY_AGENT
        return await self.hooks.hold_stop(answer, held) if self.hooks is not None else ((), {})

    async def _accept(self, typed: Message, message: Message) -> Message:
        """Return a prompt with the texts of hooks, all as processors left it; the typed one is not stored.

        Raises `SaktiError` if a hook blocks it.
        """
        if message.text != typed.text:
            await self._replace_typed_prompt(typed.text, message.text)
        if self.hooks is not None:
            parts = await self.hooks.extend_prompt(message.text, message.parts)
            counted = count_parts(self._open.workspace.counter, parts)
            message = replace(message, parts=parts, part_tokens=counted, tokens=sum_message_tokens(counted))
        await self._open.name(message.text)
        return message

    async def _replace_typed_prompt(self, typed: str, sent: str) -> None:
        """Replace a prompt by the sent text, in the history, the drafts and the database's free space."""
        ws, thread = self._open.workspace, self._open
        thread.inbox.sent_as[typed] = sent

        def replace_prompt(db: Database) -> None:
            user_state.forget_unsent(db, ws.resource_id, thread.inbox.window)
            if removal.forget_prompts(db, ws.resource_id, thread.id, typed):
                user_state.add_prompt(db, ws.resource_id, sent, ws.clock.now(), thread.id)

        await ws.store.write(replace_prompt)
        await ws.store.flush()


def _count_tokens(counter: Counter, parts: tuple[Part, ...], limit: int) -> int:
    """Return the tokens of parts; estimated from their beginning if they far exceed `limit`."""
    text = "".join(p.text for p in parts if isinstance(p, TextPart | FilePart))
    if len(text) < FAR * limit:
        return sum(count_parts(counter, parts))
    return counter.count(text[:SAMPLE]) * len(text) // SAMPLE


def _settle(taken: asyncio.Future[None], error: SaktiError | None = None) -> None:
    if taken.done():
        return
    if error is None:
        taken.set_result(None)
    else:
        taken.set_exception(error)
