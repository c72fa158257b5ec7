"""Two windows on one thread, or one log for several threads: nothing is jumped over, nothing is taken from others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sakti.core.errors import MemoryFailure
from sakti.core.events import MemoryOperation, Notice
from sakti.memory.phases import Phase, ReflectionPhase
from sakti.store import leases, memory
from sakti.store.connection import Database
from sakti.store.memory import integrity, moves
from sakti.store.threads import messages
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver, settings

SETTINGS = settings(500, 4_000, buffer_tokens=0.2)
SHARED = settings(500, 4_000, buffer_tokens=0.2, scope="resource")


async def log_of(driver: Driver, thread: str) -> tuple[list[int], int, list[tuple[str, str, int | None, int | None]]]:
    """What is behind the cursor and in no group of the log, the cursor, the groups."""

    def read(db: Database) -> tuple[list[int], int, list[tuple[str, str, int | None, int | None]]]:
        record = driver.engine.record_id
        groups = [
            g for s in ("buffered", "active", "superseded", "discarded") for g in memory.list_groups(db, record, s)
        ]
        by_id = {g.id: g for g in groups}
        covered: set[int] = set()
        found = [g for g in groups if g.state == "active"]
        while found:
            group = found.pop()
            found += [by_id[i] for i in group.merged_group_ids]
            if group.kind == "observation" and group.thread_id == thread:
                covered |= set(range(group.first_index or 0, (group.last_index or 0) + 1))
        end = memory.find_cursor(db, record, thread)
        assert not integrity.find_wrong_states(db, record)
        return (
            sorted(set(range(end + 1)) - covered),
            end,
            [(g.kind, g.state, g.first_index, g.last_index) for g in groups],
        )

    return await driver.store.read(read)


async def turns(driver: Driver, first: int, last: int) -> None:
    for n in range(first, last):
        call = {"name": "read", "args": {"path": f"q{n}.py"}, "result": "def drain(): ..." * 20}
        await driver.turn(
            f"{n}: what about the queue in src/queue_{n}.py? " * 4,
            [{"tool": call}, {"text": f"Queue {n} drains at midnight. " * 8}],
        )
        await driver.engine.wait_idle()


async def follow(driver: Driver) -> None:
    """Take in what the other window said, as a session does before its turn."""
    driver.said = await driver.store.read(messages.list_after, "t1", -1)


async def test_a_window_that_must_wait_joins_what_the_other_one_observes(tmp_path: Path) -> None:
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    a.observer.gate = asyncio.Event()
    for n in range(3):
        await a.begin(f"{n}: what about the queue? " * 6)
        await a.prepare()
        await a.step({"text": f"Queue {n} drains at midnight. " * 6}, "q")
        await a.engine.end_turn()
    while not a.observer.inputs:
        await asyncio.sleep(0)
    assert a.engine.state.phase is Phase.BUFFERING

    b = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    b.patience = 30
    await b.open()
    await follow(b)
    await b.begin("and what about src/other.py? " * 90)
    step = asyncio.create_task(b.prepare())
    await asyncio.sleep(0)
    a.observer.gate.set()
    await a.engine.wait_idle()
    prepared = await step
    holes, cursor, groups = await log_of(b, "t1")
    assert (holes, cursor) == ([], 5), groups
    assert [m.index for m in prepared.messages if "synthetic" not in m.metadata] == [6]
    assert not [e for e in b.of(MemoryOperation) if e.fields.get("code") == "conflict"]

    calls = len(b.observer.inputs)
    await b.step({"text": "ok " * 30}, "z")
    await b.engine.end_turn()
    for k in range(6):
        await b.turn(f"next {k} " * 40, [{"text": "fine " * 60}])
        await b.engine.wait_idle()
    assert b.engine.state.window.pending < b.engine.state.numbers.block_after
    assert len(b.observer.inputs) - calls <= 14
    assert (await log_of(b, "t1"))[0] == []
    await a.close()
    await b.close()


async def test_a_group_of_another_window_never_stands_ahead_of_a_hole(tmp_path: Path) -> None:
    """The window that stood still past its lease comes back after the other has gone on: its result is refused."""
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    a.observer.gate = asyncio.Event()
    await a.begin("what about the queue? " * 30)
    await a.prepare()
    await a.step({"text": "It drains at midnight. " * 30}, "q")
    await a.engine.end_turn()
    while not a.observer.inputs:
        await asyncio.sleep(0)
    clock.advance(120)
    b = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await follow(b)
    await turns(b, 0, 3)
    a.observer.gate.set()
    await a.engine.wait_idle()
    holes, cursor, _ = await log_of(b, "t1")
    assert holes == []
    assert cursor >= 5
    assert [e.fields["code"] for e in a.of(MemoryOperation) if e.kind == "failed"] == ["lease_lost"]
    await a.close()
    await b.close()


async def test_a_compaction_of_an_idle_window_owns_only_what_it_did(tmp_path: Path) -> None:
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await turns(a, 0, 6)
    b = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await follow(b)
    await turns(a, 6, 9)
    assert await a.engine.reflect_now()
    before = await log_of(a, "t1")
    done = await b.engine.compact()
    assert done.messages
    assert (await log_of(a, "t1"))[0] == []
    assert await b.engine.undo_compaction() is not None
    assert await log_of(a, "t1") == before
    await a.close()
    await b.close()


async def test_a_compaction_leaves_the_other_threads_of_a_shared_log_alone(tmp_path: Path) -> None:
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SHARED, clock=clock, thread_id="t1")
    b = await Driver.make(tmp_path / "m.db", SHARED, clock=clock, thread_id="t2")
    for driver in (a, b):
        driver.check = lambda _: None  # type: ignore[method-assign]
    await turns(a, 0, 3)
    await turns(b, 0, 4)
    await turns(a, 3, 8)
    first, second = await log_of(a, "t1"), await log_of(b, "t2")
    assert (await b.engine.compact()).messages
    stored = await b.store.read(moves.last_compaction, "t2")
    assert stored is not None
    assert {g.thread_id for g in await b.store.read(memory.get_groups, stored.group_ids)} == {"t2"}
    assert await b.engine.undo_compaction() is not None
    assert await log_of(a, "t1") == first
    assert await log_of(b, "t2") == second
    await a.close()
    await b.close()


@pytest.mark.parametrize("older", ["another thread's", "a reflection", "observed further"])
async def test_an_undo_that_would_change_anything_else_is_refused(older: str, tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", SHARED if older == "another thread's" else SETTINGS)
    await turns(driver, 0, 3)
    assert (await driver.engine.compact()).messages
    if older == "another thread's":
        await driver.store.write(lambda db: db.execute_sql("UPDATE observation_groups SET thread_id = 't2'"))
    elif older == "a reflection":
        assert await driver.engine.reflect_now()
    else:
        await turns(driver, 3, 9)
    before = await driver.store.read(lambda db: db.execute_sql("SELECT * FROM observation_groups").fetchall())
    assert await driver.engine.undo_compaction() is None
    (notice,) = driver.of(Notice)
    assert notice.message.startswith("Cannot be undone: ")
    assert await driver.store.read(lambda db: db.execute_sql("SELECT * FROM observation_groups").fetchall()) == before
    await driver.close()


async def test_a_stale_reflection_that_another_window_discarded_ends_no_turn(tmp_path: Path) -> None:
    clock = FakeClock()
    small = settings(500, 300, buffer_tokens=0.2, scope="resource")
    a = await Driver.make(tmp_path / "m.db", small, clock=clock, thread_id="t1")
    b = await Driver.make(tmp_path / "m.db", small, clock=clock, thread_id="t2")
    for driver in (a, b):
        driver.check = lambda _: None  # type: ignore[method-assign]
    for n in range(0, 12, 2):
        await turns(a, n, n + 2)
        await turns(b, n, n + 2)
        waiting = [
            g for g in await a.store.read(memory.list_groups, a.engine.record_id, "buffered") if g.kind != "observation"
        ]
        if waiting:  # the log that it was made from is another one now, and both windows know of it
            await a.engine.state.refresh()
            await b.engine.state.refresh()
            merged = list(waiting[0].merged_group_ids)
            await a.store.write(
                lambda db, ids=merged: db.execute_sql(
                    f"UPDATE observation_groups SET state = 'superseded' WHERE id IN ({','.join('?' * len(ids))})", ids
                )
            )
            for driver in (a, b):
                await driver.begin("and now?")
                await driver.prepare()
                await driver.step({"text": "Fine."}, "f")
                await driver.engine.end_turn()
            states = await a.store.read(memory.get_groups, [waiting[0].id])
            assert [g.state for g in states] in (["discarded"], ["buffered"])
            break
    else:
        pytest.fail("no reflection ever waited")
    await a.close()
    await b.close()


async def test_work_by_hand_is_refused_while_another_window_is_in_a_turn(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", SETTINGS)
    await turns(driver, 0, 3)
    line = (await driver.store.read(lambda db: db.execute_sql("SELECT id FROM observations").fetchall()))[0][0]
    other = {"record_id": "t1", "kind": "turn", "owner": leases.make_owner(), "operation_id": "o", "thread_id": "t1"}
    assert await driver.store.write(leases.acquire, now=driver.clock.now(), **other)
    engine = driver.engine
    by_hand: list[Any] = [
        engine.compact,
        engine.undo_compaction,
        engine.reflect_now,
        engine.undo_reflection,
        lambda: engine.correct(line, "pin"),
        engine.undo_correction,
    ]
    for work in by_hand:
        with pytest.raises(MemoryFailure, match="in use in another window") as refused:
            await work()
        assert refused.value.code == "busy"
    await driver.close()


async def test_a_turn_follows_on_work_by_hand_of_its_own_window(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", SETTINGS)
    lease = {"record_id": "t1", "kind": "turn", "owner": "me", "thread_id": "t1"}
    now = driver.clock.now()
    assert await driver.store.write(leases.acquire, operation_id="compact", now=now, **lease)
    assert await driver.store.write(leases.acquire, operation_id="turn", now=now, **lease)
    await driver.store.write(leases.release, operation_id="compact", **lease)
    assert await driver.store.read(leases.list_leases, "t1", now)
    assert not await driver.store.write(leases.acquire, operation_id="x", now=now, **{**lease, "owner": "you"})
    await driver.close()


async def test_what_another_window_made_ready_enters_the_log_before_anything_is_asked(tmp_path: Path) -> None:
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    a.observer.gate = asyncio.Event()
    await a.begin("what about the queue? " * 15)
    await a.prepare()
    await a.step({"text": "It drains at midnight. " * 15}, "q")
    await a.engine.end_turn()
    while not a.observer.inputs:
        await asyncio.sleep(0)
    b = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await follow(b)
    await b.begin("and what about src/other.py? " * 60)
    a.observer.gate.set()  # b's turn has begun: it looks at the store again where something is due alone
    await a.engine.wait_idle()
    prepared = await b.prepare()
    assert not b.observer.inputs
    assert [m.index for m in prepared.messages if "synthetic" not in m.metadata] == [2]
    assert (await log_of(b, "t1"))[:2] == ([], 1)
    await a.close()
    await b.close()


async def test_a_choice_that_another_window_overtook_is_made_anew(tmp_path: Path) -> None:
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await turns(a, 0, 1)
    assert a.engine.state.window.ready()
    b = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await follow(b)
    await turns(a, 1, 2)
    (first, *rest) = [g.id for g in await a.store.read(memory.list_groups, a.engine.record_id, "buffered")]
    assert [g.id for g in b.engine.state.window.ready()] == [first]
    assert rest
    for message in (await a.store.read(messages.list_after, "t1", -1))[len(b.said) :]:
        b.engine.add(message)
    assert await b.engine.state.activate_due("idle")
    entered = [g.id for g in await a.store.read(memory.list_groups, a.engine.record_id, "active")]
    assert entered[:2] == [first, rest[0]]
    await a.close()
    await b.close()


async def test_no_reflector_is_asked_where_another_windows_reflection_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    a = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    await turns(a, 0, 6)
    b = await Driver.make(tmp_path / "m.db", SETTINGS, clock=clock)
    assert a.engine.reflection.begin(1, whole=True)
    await a.engine.wait_idle()
    assert b.engine.reflection.begin(1, whole=True)  # b does not know of it yet
    await b.engine.wait_idle()
    assert len(a.reflector.inputs) == 1
    assert not b.reflector.inputs
    assert b.engine.state.reflection_phase is ReflectionPhase.READY
    (failed,) = [e for e in b.of(MemoryOperation) if e.kind == "failed"]
    assert failed.fields["code"] == "conflict"
    await a.close()
    await b.close()


async def test_a_pause_does_not_end_the_wait_after_an_undo(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(500, 4_000, buffer_tokens=0.4))
    await turns(driver, 0, 2)
    assert (await driver.engine.compact()).messages
    assert await driver.engine.undo_compaction() is not None
    assert driver.engine.state.window.ready()
    before = await log_of(driver, "t1")
    await driver.engine.pause()
    await driver.begin("and now? " * 20, model="another")  # whose cache is cold
    await driver.prepare()
    assert driver.engine.state.phase is Phase.PAUSED
    assert driver.engine.state.is_full()
    assert driver.engine.state.is_suspended
    assert await log_of(driver, "t1") == before
    await driver.engine.resume(start=False)
    assert driver.engine.state.phase is Phase.SUSPENDED
    await driver.close()


@pytest.mark.parametrize("paused", [True, False])
async def test_what_is_ready_enters_the_log_with_a_cold_cache_paused_or_not(paused: bool, tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", SETTINGS)
    await turns(driver, 0, 1)
    assert driver.engine.state.window.ready()
    if paused:
        await driver.engine.pause()
    calls = len(driver.observer.inputs)
    await driver.begin("and now?", model="another")
    assert (await log_of(driver, "t1"))[1] >= 0
    assert len(driver.observer.inputs) == calls
    await driver.close()


@pytest.mark.parametrize("failing", [True, False])
async def test_after_an_undo_as_much_is_sent_as_before_the_compaction(failing: bool, tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(500, 4_000, buffer_tokens=0.2))
    driver.check = lambda _: None  # type: ignore[method-assign]
    driver.observer.fail = lambda _: True
    for n in range(12):
        await driver.turn(f"{n}: what about the queue? " * 8, [{"text": "It drains at midnight. " * 8}])
        await driver.engine.wait_idle()
    driver.observer.fail = lambda _: False
    if not failing:
        await driver.engine.close()
        await driver.open()
        driver.engine.state.phase = Phase.IDLE  # much may be pending without: an exchange that is large by itself
    limited = driver.engine.state.message_limit is not None
    assert limited is failing
    before = [m.id for m in driver.engine.preview().messages]
    assert (await driver.engine.compact()).messages
    assert await driver.engine.undo_compaction() is not None
    assert driver.engine.state.phase is Phase.SUSPENDED
    assert [m.id for m in driver.engine.preview().messages] == before
    await driver.close()
