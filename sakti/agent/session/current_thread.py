"""Open a thread in a session, follow what other windows do in it, store a new one with its first message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from sakti.agent import file_list, project_summary, titles
from sakti.agent.session import build, system_prompt
from sakti.agent.session.inbox import Inbox
from sakti.core.errors import ConfigError, StoreError
from sakti.core.events import Notice, ThreadChanged
from sakti.core.lazy import lazy_imports
from sakti.core.types import Thread

if TYPE_CHECKING:
    from sakti.agent.session.state import State

with lazy_imports:
    from sakti.agent.project.instructions import find as instructions
    from sakti.agent.session import instructed, recovery, skills
    from sakti.store import secrets
    from sakti.store.threads import fork as thread_fork
    from sakti.store.threads import messages as stored_messages
    from sakti.store.threads import threads as stored_threads


async def first(state: State) -> None:
    """Open the thread that the options name, a new one where they name none. Raises `ConfigError` (no such thread)."""
    options, found = state.options, list[Thread]()
    if named := options.resume or options.fork:
        found = await state.store.read(stored_threads.find, state.resource_id, named)
        if not found:
            raise ConfigError(await _explain_missing(state, named))
        if options.fork:
            store, now = state.store, state.clock.now()
            made = await store.write(thread_fork.fork, found[0].id, id=store.ids.new(), ids=store.ids, now=now)
            found = [made]
    elif options.thread_id:
        stored = await state.store.read(stored_threads.get, options.thread_id)
        if stored is not None and stored.resource_id != state.resource_id:
            raise ConfigError(f"The thread {options.thread_id} belongs to {stored.resource_id}.")
        found = [stored] if stored is not None else []
    elif options.continue_last:
        found = await state.store.read(stored_threads.recent, state.resource_id, 1)
        if found and (went_to := stored_threads.goes_on_as(found[0])):
            exists = await state.store.read(stored_threads.get, went_to) is not None
            await new(state, None if exists else went_to)
            return
    if found:
        await use(state, found[0])
    else:
        await new(state, options.thread_id)


async def _explain_missing(state: State, name: str) -> str:
    return titles.explain_missing(name, await state.store.read(stored_threads.find, None, name))


async def look(state: State) -> None:
    """Open the thread that the options name, else the newest, only to read: no model, nothing written.

    Raises `ConfigError` if there is none of that name.
    """
    if state.options.resume:
        found = await state.store.read(stored_threads.find, state.resource_id, state.options.resume)
        if not found:
            raise ConfigError(await _explain_missing(state, state.options.resume))
    else:
        found = await state.store.read(stored_threads.recent, state.resource_id, 1)
    if found:
        state.thread_is_new = True  # nothing is to be mended or stored
        await use(state, found[0])


async def new(state: State, thread_id: str | None = None) -> None:
    """Begin an empty thread. It is stored with its first message, so that empty ones leave no trace."""
    now = state.clock.now()
    thread = Thread(thread_id or state.store.ids.new(), state.resource_id, "", now, now, mode=state.mode)
    state.thread_is_new = True
    await use(state, thread)


async def known(state: State, thread_id: str) -> None:
    """Go on with a stored thread. Raises `StoreError` where it does not exist."""
    thread = await state.store.read(stored_threads.get, thread_id)
    if thread is None:
        raise StoreError("This thread was removed for good.", code="gone")
    state.thread_is_new = False
    await use(state, thread)


async def use(state: State, thread: Thread) -> None:
    """Make a thread the open one: nothing is queued there, nothing has failed, nothing was granted for it."""
    state.inbox, state.failed, state.changed_instructions = Inbox(), None, {}
    state.changed_skills = ""
    if state.made_toolbox is not None:
        state.made_toolbox.granted = ()
    await load(state, thread)


async def load(state: State, thread: Thread) -> None:
    """Take in the thread's memory as the database has it now."""
    if state.opened_engine is not None:
        await state.opened_engine.close()
    state.thread, state.mode = thread, thread.mode
    engine = state.opened_engine = build.make_engine(state)
    if not state.thread_is_new:
        await warm_counter(state)  # the log of an older thread is counted when it is opened
        await recovery.answer_open_calls(state.store, thread, state.counter, state.owner)
        if state.owner and not state.store.read_only_reason:
            await recovery.take_back_claims(state.store, thread, state.owner)
    newest = await state.store.read(stored_messages.page, thread.id, limit=1)
    state.newest = newest[-1].index if newest else -1
    state.usage = await state.store.read(stored_messages.usage_of, thread.id, purpose="actor")
    await engine.open(thread)
    if state.model_info is not None and state.model_info.small:
        if state.project is None:
            state.project = await project_summary.of(state.workspace, trusted=state.options.trusted)
        engine.set_budget(await asyncio.to_thread(build.small_budget, state))
    state.status = engine.status()
    state.emit(ThreadChanged(thread))
    state.emit(state.status)


async def catch_up(state: State) -> None:
    """Take in what another window wrote into the open thread since its last turn here."""
    assert state.thread is not None
    if state.engine.unrecorded:
        await state.engine.open(state.thread)
    if not state.thread_is_new:
        await recovery.answer_open_calls(state.store, state.thread, state.counter, state.owner)
    newer = await state.store.read(stored_messages.after, state.thread.id, state.newest)
    if not newer:
        return
    thread = await state.store.read(stored_threads.get, state.thread.id)
    await load(state, thread or state.thread)
    told = f"{len(newer)} messages were added to this thread in another window; the agent sees them."
    state.emit(Notice("information", "Another window", told))


async def store(state: State, first_text: str = "") -> None:
    """Store a new thread; its title is made of its first message until the Observer names it.

    A thread that a guardrail left without a title gets one, too.
    """
    assert state.thread is not None
    await skills.refresh(state)
    if not state.thread_is_new:
        if state.options.instructed:
            build.toolbox(state)  # it knows what its results showed
        await instructed.refresh(state)
        await name(state, first_text)
    if state.thread_is_new:
        state.thread_is_new = False
        thread = replace(
            state.thread,
            title=titles.first_title(secrets.masked(first_text)),
            metadata={
                **state.thread.metadata,
                system_prompt.OVERVIEW: await file_list.overview_of(state.workspace, trusted=state.options.trusted),
                **instructions.to_metadata(await instructed.found(state)),
                **skills.to_metadata(state),
                **({} if state.options.interactive else {titles.HEADLESS: True}),
            },
        )
        state.emit(ThreadChanged(await state.store.write(stored_threads.create, thread)))


async def name(state: State, text: str) -> None:
    """Give a stored thread without a title one made of `text`."""
    thread, title = state.thread, titles.first_title(secrets.masked(text))
    if thread is not None and not thread.title and title:
        renamed = await state.store.write(stored_threads.rename, thread.id, title, state.clock.now(), by_user=False)
        state.emit(ThreadChanged(renamed or thread))


async def read_again(state: State) -> None:
    """Take in the open thread's title as it is stored: a guardrail may have taken it away."""
    assert state.thread is not None
    thread = await state.store.read(stored_threads.get, state.thread.id)
    if thread is not None:
        state.emit(ThreadChanged(thread))


async def warm_counter(state: State) -> None:
    """Load what counts tokens, in a thread."""
    warm = getattr(state.counter, "warm", None)
    if warm is not None:
        await asyncio.to_thread(warm)
