"""Name a thread by the model that the settings name, after its first answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from sakti.agent import titles
from sakti.core.config import ModelSettings
from sakti.core.errors import SaktiError
from sakti.core.events import Notice, ThreadChanged
from sakti.core.lazy import lazy_imports
from sakti.core.resources import fill_prompt, read_prompt
from sakti.core.types import Thread

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread
    from sakti.store.connection import Database

with lazy_imports:
    from sakti.memory import model_call
    from sakti.providers import registry
    from sakti.store import secrets
    from sakti.store.threads import messages as stored_messages
    from sakti.store.threads import threads as stored_threads

log = logging.getLogger(__name__)

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
        if idle and answer.strip():
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
        full_name = await registry.complete(ws.config.title_model or "", ws.env, ws.config.providers)
        provider, name = ws.models.background(full_name)
        if provider is None or name is None:
            return
        settings = ModelSettings(temperature=0.3, thinking_tokens=0)
        model = model_call.MemoryModel(provider, name, ws.counter, ws.clock, settings=settings)
        shown = (secrets.masked(text)[:SHOWN] for text in (prompt, answer))
        question = fill_prompt("title#input", **dict(zip(("prompt", "answer"), shown, strict=True)))
        text, call = await model.ask(read_prompt("title"), question)
        await ws.store.write(
            stored_messages.add_step,
            thread.id,
            "observer",  # what works in the background is one sum
            call,
            id=ws.store.ids.new(),
            now=ws.clock.now(),
        )
        title = titles.given_title(secrets.masked(text))
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
