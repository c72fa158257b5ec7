"""Open the thread that a session starts with, as its options say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sakti.agent import plans, titles
from sakti.core.errors import ConfigError
from sakti.core.events import Notice
from sakti.store.threads import fork as thread_fork
from sakti.store.threads import threads as stored_threads

if TYPE_CHECKING:
    from sakti.agent.open_thread import OpenThread
    from sakti.agent.workspace import Workspace
    from sakti.core.types import Thread


async def _open_by_id(current: OpenThread, thread_id: str) -> None:
    """Open the thread with this id, or begin it. Raises `ConfigError` if it is another workspace's."""
    ws = current.workspace
    stored = await ws.store.read(stored_threads.get, thread_id)
    if stored is None:
        await current.open_new(thread_id)
        return
    if stored.resource_id != ws.resource_id:
        raise ConfigError(f"The thread {thread_id} belongs to {stored.resource_id}.")
    await current.switch_to(stored)


async def open_initial(current: OpenThread) -> None:
    """Open the thread that the options name, else a new one. Raises `ConfigError` (no such thread)."""
    ws = current.workspace
    options, store = ws.options, ws.store
    if options.resume or options.fork:
        thread = await _find(ws, options.resume or options.fork or "")
        if options.fork:
            now = ws.clock.now()
            thread = await store.write(thread_fork.fork, thread.id, id=store.ids.new(), ids=store.ids, now=now)
        await current.switch_to(thread)
    elif options.thread_id:
        await _open_by_id(current, options.thread_id)
    elif options.continue_last:
        await _continue_last(current)
    else:
        await current.open_new()


async def _continue_last(current: OpenThread) -> None:
    """Open the newest thread, or the one in which an undo of it goes on."""
    ws = current.workspace
    newest = await ws.store.read(stored_threads.list_recent, ws.resource_id, 1, continued=True)
    if not newest:
        await current.open_new()
        current.emit(Notice("warning", "No thread to continue", "This workspace has none; a new one starts."))
        return
    went_to = stored_threads.find_successor(newest[0])
    if went_to and await ws.store.read(stored_threads.get, went_to) is None:
        await current.open_new(went_to, plans.make_undo_metadata(newest[0]))
    else:  # a successor in the lists would be newer: this one was deleted, or is empty
        await current.switch_to(newest[0])


async def _find(ws: Workspace, name: str) -> Thread:
    """Return the thread of an id or a part of its title. Raises `ConfigError`."""
    if thread := titles.choose_thread(name, await ws.store.read(stored_threads.find, ws.resource_id, name)):
        return thread
    raise ConfigError(titles.explain_missing(name, await ws.store.read(stored_threads.find, None, name)))


async def open_read_only(current: OpenThread) -> None:
    """Open the thread that the options name, else the newest, without a model and read-only.

    Raises `ConfigError`.
    """
    ws = current.workspace
    if ws.options.resume:
        threads = [await _find(ws, ws.options.resume)]
    else:
        threads = await ws.store.read(stored_threads.list_recent, ws.resource_id, 1)
    if threads:
        current.is_new = True  # so that nothing is repaired or stored
        await current.switch_to(threads[0])
