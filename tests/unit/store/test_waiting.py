"""Who meets another process that writes waits in sight, gives up in time, and can be called off."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import apsw
import peewee
import pytest

from sakti.core.errors import StoreError
from sakti.store import failures, user_state
from sakti.store.connection import BusyHandler
from sakti.store.database import Store, Synchronous
from sakti.store.database_file import DatabaseFile


class Time:
    """Moves when it is slept through."""

    def __init__(self) -> None:
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def play(waiting: BusyHandler) -> int:
    """SQLite's part: asks until it is told to stop."""
    attempts = 0
    while waiting(attempts):
        attempts += 1
    return attempts


def test_it_tells_about_every_second_and_when_it_is_over() -> None:
    time, told = Time(), list[float | None]()
    waiting = BusyHandler(4.0, told.append, clock=time.clock, sleep=time.sleep)
    play(waiting)
    assert 4.0 <= time.now < 4.2 and waiting.waited >= 4.0
    assert [None if t is None else int(t) for t in told] == [0, 1, 2, 3]
    waiting.end_wait()
    assert told[-1] is None and waiting.waited == 0.0
    waiting.end_wait()
    assert told.count(None) == 1


def test_a_short_wait_says_nothing() -> None:
    time, told = Time(), list[float | None]()
    waiting = BusyHandler(0.4, told.append, clock=time.clock, sleep=time.sleep)
    assert play(waiting) > 5
    waiting.end_wait()
    assert told == []


def test_no_limit_means_one_try_and_given_up_ends_it() -> None:
    time = Time()
    assert play(BusyHandler(0, clock=time.clock, sleep=time.sleep)) == 0
    waiting = BusyHandler(90, clock=time.clock, sleep=time.sleep)
    waiting.is_cancelled = lambda: time.now > 1
    play(waiting)
    assert 1 < time.now < 1.2


@pytest.fixture
def lock(store: Store):
    """Another process's lock: hold it with `execute`, give it back with `end`."""
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    yield other
    if other.in_transaction:
        other.execute("ROLLBACK")
    other.close()


async def test_a_write_goes_on_when_the_other_is_done(store: Store, lock: apsw.Connection) -> None:
    told: list[float | None] = []

    def on_wait(seconds: float | None) -> None:
        told.append(seconds)
        if seconds is not None and lock.in_transaction:
            lock.execute("COMMIT")

    store.on_wait = on_wait
    await store.write(user_state.add_prompt, "/w", "kept", 1)
    await asyncio.sleep(0)
    assert told[0] is not None and told[-1] is None
    assert await store.read(user_state.list_prompts, "/w", 5) == ["kept"]


async def test_it_gives_up_with_the_reason_and_runs_nothing(store: Store, lock: apsw.Connection) -> None:
    ran: list[int] = []
    store.wait = 0.01
    with pytest.raises(StoreError, match="Another window has been writing") as caught:
        await store.write(lambda db: ran.append(1))
    assert (caught.value.code, caught.value.retryable, ran) == ("busy", True, [])
    assert "Nothing was lost" not in caught.value.message


async def test_who_is_cancelled_while_waiting_writes_nothing_later(store: Store, lock: apsw.Connection) -> None:
    waits = asyncio.Event()
    store.on_wait = lambda seconds: waits.set()
    work = asyncio.create_task(store.write(user_state.add_prompt, "/w", "too late", 1))
    await waits.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    lock.execute("COMMIT")
    await store.write(user_state.add_prompt, "/w", "next", 1)
    assert await store.read(user_state.list_prompts, "/w", 5) == ["next"]


async def test_a_full_disk_is_named(store: Store) -> None:
    def fill(db) -> None:
        (pages,) = db.execute_sql("PRAGMA page_count").fetchone()
        db.execute_sql(f"PRAGMA max_page_count = {pages}")

    await store.write(fill)
    with pytest.raises(StoreError, match="no space left") as caught:
        await store.write(user_state.add_prompt, "/w", "x" * 100_000, 1)
    assert (caught.value.code, caught.value.retryable) == ("full", True)
    await store.write(lambda db: db.execute_sql("PRAGMA max_page_count = 1000000"))
    await store.write(user_state.add_prompt, "/w", "x" * 100_000, 1)


async def test_upkeep_never_waits(store: Store, lock: apsw.Connection) -> None:
    done = threading.Event()
    store._waiting._sleep = lambda _: done.set()  # type: ignore[assignment]
    await asyncio.get_running_loop().run_in_executor(store._writer, store._upkeep, 0.01, True)
    assert not done.is_set()


@pytest.mark.parametrize(
    ("error", "free", "code"),
    [
        (apsw.IOError("disk I/O error"), 0, "full"),
        (apsw.CantOpenError("unable to open database file"), 4096, "full"),
        (apsw.IOError("disk I/O error"), 1 << 30, "io"),
        (apsw.InterruptError("interrupted"), 0, "io"),
        (apsw.CorruptError("malformed"), 0, "damaged"),
    ],
)
def test_an_error_of_a_disk_without_room_is_a_full_disk(
    error: apsw.Error, free: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    told = failures.to_store_error(error, tmp_path / "x.db", saving=False)
    assert told.code == code and ("no space left for" in told.message) == (code == "full")


def test_a_disk_that_is_not_there_is_not_called_full(tmp_path: Path) -> None:
    told = failures.to_store_error(apsw.IOError("disk I/O error"), tmp_path / "gone" / "x.db", saving=False)
    assert told.code == "io" and "`sakti doctor`" in told.message


async def test_a_database_on_a_full_disk_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite has no room for the files beside it."""
    store = await Store.open(tmp_path / "x.db")
    await store.write(user_state.add_prompt, "/w", "kept", 1)
    await store.close()
    connect = Store._connect

    def connect_without_room(self: Store, file: DatabaseFile, synchronous: Synchronous) -> None:
        if file.writes:
            raise failure
        connect(self, file, synchronous)

    failure = peewee.OperationalError("disk I/O error")
    failure.orig = apsw.IOError("disk I/O error")
    monkeypatch.setattr(Store, "_connect", connect_without_room)
    with pytest.raises(StoreError, match="disk I/O error"):
        await Store.open(store.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    store = await Store.open(store.path)
    assert await store.read(user_state.list_prompts, "/w", 5) == ["kept"]
    with pytest.raises(StoreError, match="The disk is full"):
        await store.write(user_state.add_prompt, "/w", "lost", 1)
    await store.close()
