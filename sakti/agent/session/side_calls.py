"""Ask a model beside the open thread: questions of the user, and titles of threads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from sakti.agent import limits, titles
from sakti.agent.processors.base import StepInput, StepOutput, check_hook_result
from sakti.agent.session import model_call
from sakti.agent.session import turn as turn_store
from sakti.agent.session.inbox import Inbox
from sakti.core import resources
from sakti.core.config import ModelSettings
from sakti.core.errors import NoModelError, SaktiError
from sakti.core.events import Event, Notice, SideQuestion, StepDiscarded, TextDelta, ThreadChanged
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.types import Message, TextPart, Thread
from sakti.memory.model_call import MemoryModel
from sakti.providers import registry
from sakti.store import secrets
from sakti.store.threads import messages as stored_messages
from sakti.store.threads import threads as stored_threads

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.session.turn import Turn
    from sakti.store.connection import Database


log = logging.getLogger(__name__)

TITLE = "Side question"
MEMORY = "memory"  # the kind of processor that writes to the thread


class SideQuestions:
    """Asks one question at a time; the answer leaves as events."""

    def __init__(self, thread: OpenThread, make_turn: Callable[[Callable[[Event], None]], Awaitable[Turn]]) -> None:
        self._open, self._make_turn = thread, make_turn
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    def ask(self, question: str) -> None:
        """Begin to answer a question. Raises `SaktiError` if none can be asked now."""
        if self.busy:
            raise SaktiError("A side question is being answered: wait for it, or close it with Esc.", title=TITLE)
        if self._open.workspace.models.provider is None:
            raise NoModelError("No model is chosen: /model chooses one.")
        if self._open.is_new or self._open.thread is None:
            raise SaktiError("This thread has no messages yet: ask it as a message.", title=TITLE)
        self._task = asyncio.create_task(self._run(question))

    def stop(self) -> bool:
        """End the answer; false if no question is being answered."""
        return self.busy and self._task is not None and self._task.cancel()

    async def end(self) -> None:
        if self._task is not None and self.stop():
            await asyncio.wait({self._task})

    async def _run(self, question: str) -> None:
        """Answer one question; the worker's root: a failure becomes an event."""
        emit = self._open.emit
        try:
            emit(SideQuestion(question, "answering"))
            emit(SideQuestion(question, "answered", await self._answer(question)))
        except asyncio.CancelledError:
            emit(SideQuestion(question, "stopped"))
        except SaktiError as e:
            emit(SideQuestion(question, "failed", e.message))
        except Exception as e:
            log.exception("a side question failed")
            emit(SideQuestion(question, "failed", f"{type(e).__name__}: {e}"))

    async def _answer(self, question: str) -> str:
        thread = self._open

        def on_event(event: Event) -> None:
            if isinstance(event, TextDelta):
                thread.emit(SideQuestion(question, "answering", event.text))
            elif isinstance(event, StepDiscarded):
                thread.emit(SideQuestion(question, "answering"))
            elif isinstance(event, Notice):
                thread.emit(event)

        turn = await self._make_turn(on_event)
        turn.left_out = await turn.store.read(stored_threads.read_left_out, turn.thread_id)
        turn.purpose, turn.inbox, turn.fallback = "side", Inbox(), turn_store.find_no_fallback
        turn.began = turn.store.clock.monotonic()
        step = await self._make_step(turn, question)
        completed = await model_call.ask(turn, step)
        output = StepOutput(1, turn_store.make_message(turn, "assistant", completed.parts), completed.stop_reason)
        for processor in turn.after:
            if processor.kind != MEMORY:
                output = check_hook_result(await processor.process_output_step(output), output, processor)
        return output.message.text

    async def _make_step(self, turn: Turn, question: str) -> StepInput:
        """Return the thread's prefix up to the last complete exchange, then the question."""
        prepared = turn.engine.preview()
        tools = turn.toolbox.specs(turn.model)
        fixed = sum(b.tokens for b in turn.system) + turn.toolbox.count(turn.counter, tools)
        output, remaining = limits.measure_room(turn.model, turn.settings, fixed)
        text = resources.fill_prompt("system#side", question=question)
        step = StepInput(
            step=1,
            steps=(),
            messages=(*complete(prepared.messages), turn_store.make_message(turn, "user", (TextPart(text),))),
            system=(*turn.system, *prepared.blocks),
            tools=tools,
            tool_choice="none",
            model=turn.model.name,
            budget=remaining,
            max_output_tokens=output,
            thinking_tokens=turn.settings.thinking_tokens,
            effort=turn.settings.effort if turn.model.thinking else None,
        )
        for processor in turn.before:
            if processor.kind != MEMORY:
                step = check_hook_result(await processor.process_input_step(step), step, processor)
        return structs.replace(step, tool_choice="none", model=turn.model.name)


def complete(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages up to the last complete exchange: an answer, or the results of all calls."""
    end = len(messages)
    while end and (messages[end - 1].role == "user" or messages[end - 1].tool_calls):
        end -= 1
    return tuple(messages[:end])


TITLED = "titled"  # key of a thread's metadata: the model that named it
SHOWN = 3_000  # characters of the prompt, and of the answer, that the model is shown


class Titling:
    """Asks `title_model` in the background; titles from the user or the Observer are not replaced."""

    def __init__(self, thread: OpenThread) -> None:
        self._open = thread
        self._task: asyncio.Task[None] | None = None
        self._told = False  # that it does not work

    def begin(self, prompt: str, answer: str) -> None:
        """Name the open thread by its last exchange, if it has no name yet."""
        thread, idle = self._open.thread, self._task is None or self._task.done()
        if not self._open.workspace.config.title_model or thread is None or _is_named(thread):
            return
        if idle and prompt.strip() and answer.strip():
            self._task = asyncio.create_task(self._run(thread, prompt, answer))

    async def end(self) -> None:
        """Cancel the running request: the title is asked for after the next answer."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({self._task})

    async def _run(self, thread: Thread, prompt: str, answer: str) -> None:
        try:
            await self._name(thread, prompt, answer)
        except SaktiError as e:
            log.info("no title: %s", e.message)
            if not self._told:
                self._told = True
                name = self._open.workspace.config.title_model
                self._open.emit(Notice("warning", "No title", f"{name}: {e.message}"))

    async def _name(self, thread: Thread, prompt: str, answer: str) -> None:
        ws = self._open.workspace
        full_name = await registry.complete_name(ws.config.title_model or "", ws.env, ws.config.providers)
        provider, name = ws.models.background(full_name)
        if provider is None or name is None:
            return
        settings = ModelSettings(temperature=0.3, thinking_tokens=0)
        model = MemoryModel(provider, name, ws.counter, ws.clock, settings=settings)
        shown = (secrets.mask_secrets(text)[:SHOWN] for text in (prompt, answer))
        question = fill_prompt("title#input", **dict(zip(("prompt", "answer"), shown, strict=True)))
        text, call = await model.ask(read_prompt("title"), question)
        await ws.store.write(
            stored_messages.add_step,
            thread.id,
            "observer",  # the costs of background work are one sum
            call,
            id=ws.store.ids.new(),
            now=ws.clock.now(),
        )
        title = titles.clean_model_title(secrets.mask_secrets(text))
        renamed = await ws.store.write(_rename, thread.id, title, call.model, ws.clock.now()) if title else None
        if renamed is not None and self._open.id == renamed.id:
            self._open.emit(ThreadChanged(renamed))


def _is_named(thread: Thread) -> bool:
    """Return whether the user, the Observer or a model gave the title."""
    return thread.title_pinned or "title_index" in thread.metadata or TITLED in thread.metadata


def _rename(db: Database, thread_id: str, title: str, model: str, now: int) -> Thread | None:
    thread = stored_threads.get(db, thread_id)
    if thread is None or _is_named(thread):
        return None
    stored_threads.update_metadata(db, thread_id, {TITLED: model})
    return stored_threads.rename(db, thread_id, title, now, by_user=False)
