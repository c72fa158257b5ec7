"""Where the store cannot write, nothing that was typed is lost and nothing false is said."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from sakti.agent import loop
from sakti.agent.session import turn as keeping
from sakti.core.errors import SaktiError, StoreError
from sakti.core.events import StoreWaiting, TurnFinished
from sakti.core.types import Request
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from tests.fakes.session import Recorded, start


@pytest.fixture
async def run(store: Store, tmp_path: Path) -> Recorded:
    return await start(store, tmp_path / "w", ["first answer", "second answer"])


@pytest.fixture
def lock(store: Store):
    other = apsw.Connection(str(store.path))
    other.set_busy_timeout(20_000)  # the session's own work in the background may hold it
    yield other
    if other.in_transaction:
        other.execute("ROLLBACK")
    other.close()


async def test_a_prompt_that_cannot_be_stored_starts_no_turn(run: Recorded, lock: apsw.Connection) -> None:
    store = run.session.workspace.store
    store.wait = 0.01
    lock.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="Another window"):
        await run.session.submit("remember me")
    assert not run.session.busy and run.of(TurnFinished) == [] and run.provider.requests == []
    lock.execute("COMMIT")
    store.wait = 90
    assert (await run.ask("remember me")).text == "first answer"
    assert next(m.text for m in await store.read(messages.list_after, run.session.thread.id, -1)) == "remember me"


async def test_who_stops_the_wait_has_the_prompt_back(run: Recorded, lock: apsw.Connection) -> None:
    waits = asyncio.Event()
    run.session.subscribe(lambda e: waits.set() if isinstance(e, StoreWaiting) else None)
    lock.execute("BEGIN IMMEDIATE")
    sent = asyncio.create_task(run.session.submit("remember me"))
    await waits.wait()
    run.session.hurry()
    assert await run.session.interrupt()
    with pytest.raises(SaktiError, match="stopped before its message was sent"):
        await sent
    assert not run.session.busy
    lock.execute("COMMIT")
    assert await run.session.workspace.store.read(threads.list_recent, run.session.workspace.resource_id) == []


async def test_the_disk_is_full_in_the_middle_of_a_turn(store: Store, tmp_path: Path) -> None:
    def fill(_: Request) -> Answer:
        connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').get}")
        return Answer("an answer " * 20_000)

    run = await start(store, tmp_path / "w", fill)
    connection = await store.write(lambda db: db.connection())
    end = await run.ask("what now?")
    assert (end.status, end.error_code) == ("error", "full")
    assert "no space left" in end.error and "The partial answer is not saved." in end.error
    assert "Nothing was lost" not in end.error
    assert [m.role for m in await store.read(messages.list_after, run.session.thread.id, -1)] == ["user"]


async def test_what_was_queued_is_queued_again(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = keeping.append

    async def fails(turn: loop.Turn, message):
        if message.role == "user" and turn.step == 2:
            raise StoreError("Not saved. The disk is full.", code="full", retryable=True)
        return await whole(turn, message)

    monkeypatch.setattr(keeping, "append", fails)
    queued: list[asyncio.Task[None]] = []

    def player(request: Request) -> Answer:
        if not queued:
            queued.extend(asyncio.ensure_future(run.session.submit(t)) for t in ("and this", "and that"))
        return Answer("I look.", calls=(Call("ls", {}),))

    run = await start(store, tmp_path / "w", player)
    end = await run.ask("what is there?")
    assert (end.status, end.error_code) == ("error", "full")
    assert run.session.queued == ("and this", "and that")


async def test_a_newer_message_goes_behind_what_is_queued(
    store: Store, tmp_path: Path, lock: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = keeping.append

    async def fails(turn: loop.Turn, message):
        if message.role == "user" and turn.step == 2:
            raise StoreError("Not saved. The disk is full.", code="full", retryable=True)
        return await whole(turn, message)

    monkeypatch.setattr(keeping, "append", fails)
    queued: list[asyncio.Task[None]] = []

    def player(request: Request) -> Answer:
        if not queued:
            queued.extend(asyncio.ensure_future(run.session.submit(t)) for t in ("and this", "and that"))
            return Answer("I look.", calls=(Call("ls", {}),))
        return Answer("Done.")

    run = await start(store, tmp_path / "w", player)
    assert (await run.ask("what is there?")).status == "error"
    store.wait = 0.01
    lock.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="Another window"):
        await run.session.submit("never mind")
    assert run.session.queued == ("and this", "and that"), "what is given back is not queued as well"
    lock.execute("ROLLBACK")
    monkeypatch.setattr(keeping, "append", whole)
    await run.session.submit("the newest")
    await run.session.wait()
    assert run.session.queued == ()
    said = [m.text for m in await store.read(messages.list_after, run.session.thread.id, -1) if m.role == "user"]
    assert said == ["what is there?", "and this", "and that", "the newest"]
