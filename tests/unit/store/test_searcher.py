"""A search that nobody waits for any more stops, and nothing else waits for one."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sakti.core.types import Message, TextPart, Thread
from sakti.store.connection import Connection
from sakti.store.database import Store
from sakti.store.search.search import Scope, search
from sakti.store.threads import messages, threads

FOR_EVER = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture(autouse=True)
async def said(store: Store) -> None:
    await store.write(threads.create, Thread("t", "/w", "", 1, 1))
    await store.write(messages.append, Message("m", "t", "/w", "user", (TextPart("the walrus"),), 1))


class Stuck:
    """A search that never comes to an end by itself."""

    def __init__(self) -> None:
        self.begun, self.statements = threading.Event(), 0

    def __call__(self, db: Connection) -> None:
        self.begun.set()
        self.statements += 1
        db.execute_sql(FOR_EVER).fetchall()
        self.statements += 1


async def begin(store: Store, stuck: Stuck) -> asyncio.Task[None]:
    task = asyncio.create_task(store.search(stuck))
    await asyncio.to_thread(stuck.begun.wait, 30)
    return task


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def finds(store: Store) -> bool:
    page = await asyncio.wait_for(store.search(search, "walrus", Scope("/w")), 30)
    return [h.id for h in page.hits] == ["m"]


async def test_a_stale_search_stops_and_the_next_one_is_answered(store: Store) -> None:
    stuck = Stuck()
    task = await begin(store, stuck)
    await stop(task)
    assert await finds(store) and stuck.statements == 1
    assert store.read_only_reason is None  # an interrupt is no damage


async def test_panes_read_and_turns_write_while_a_search_runs(store: Store) -> None:
    task = await begin(store, Stuck())
    assert await asyncio.wait_for(store.read(messages.count_messages, "t"), 30) == 1
    await asyncio.wait_for(store.write(threads.rename, "t", "now", 2, by_user=True), 30)
    assert not task.done()
    await stop(task)


async def test_only_the_search_that_is_cancelled_stops(store: Store) -> None:
    held, begun = threading.Event(), threading.Event()

    def slow(db: Connection) -> int:
        begun.set()
        held.wait(30)
        return db.execute_sql("SELECT count(*) FROM messages").fetchone()[0]

    first = asyncio.create_task(store.search(slow))
    await asyncio.to_thread(begun.wait, 30)
    stuck = Stuck()
    waiting = asyncio.create_task(store.search(stuck))
    await asyncio.sleep(0)
    await stop(waiting)
    held.set()
    assert await first == 1
    assert await finds(store) and not stuck.begun.is_set()


async def test_between_two_statements_it_stops_too(store: Store) -> None:
    held, begun, executed = threading.Event(), threading.Event(), list[int]()

    def two(db: Connection) -> None:
        begun.set()
        held.wait(30)
        executed.append(db.execute_sql("SELECT 2").fetchone()[0])

    task = asyncio.create_task(store.search(two))
    await asyncio.to_thread(begun.wait, 30)
    await stop(task)
    held.set()
    assert await finds(store) and executed == []


async def test_what_fails_in_a_search_is_raised(store: Store) -> None:
    def fails(db: Connection) -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await store.search(fails)
    assert await finds(store)
