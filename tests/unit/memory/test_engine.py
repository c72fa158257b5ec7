"""The engine on a real database: random conversations, failures, crashes, two processes, compaction and
undo."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from sakti.core.events import MemoryActivation, MemoryOperation, MemoryStatus, StaleLeases
from sakti.core.types import TextPart
from sakti.memory import compaction
from sakti.memory.engine import MemoryEngine
from sakti.memory.observe.transcript import format_messages
from sakti.memory.state import MemoryOptions, MemoryServices
from sakti.store import leases, memory
from sakti.store.log import lines as memory_log
from sakti.store.threads import messages as message_store
from tests.fakes import memory as fake
from tests.fakes.memory import Driver, ScriptedObserver, ScriptedReflector

LINE = "word and number 12 in src/auth.ts "

tools = st.builds(
    lambda n: {"text": "looking", "tool": {"name": "read", "args": {"path": "a.py"}, "result": LINE * n}},
    st.integers(0, 60),
)
answers = st.builds(lambda n: {"text": LINE * n or "ok"}, st.integers(0, 40))
turns = st.tuples(st.integers(0, 80), st.lists(tools, max_size=6), answers, st.sampled_from([0, 20, 700, 200_000]))


async def play(driver: Driver, conversation: list, quiet: bool) -> None:
    for size, calls, answer, gap in conversation:
        driver.clock.advance(gap)
        await driver.begin(LINE * size or "hi")
        for number, step in enumerate([*calls, answer]):
            await driver.prepare()
            if quiet:
                await driver.engine.wait_idle()
            await driver.step(step, f"c{len(driver.said)}-{number}")
        await driver.engine.end_turn()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    conversation=st.lists(turns, min_size=1, max_size=8),
    quiet=st.booleans(),
    failing=st.sampled_from([0, 2, 3]),
    buffer=st.sampled_from([0.2, 0.5, False]),
    incompressible=st.booleans(),
    budget=st.sampled_from([None, 3_000]),
    shared=st.booleans(),
    restart=st.booleans(),
)
def test_random_conversations(conversation, quiet, failing, buffer, incompressible, budget, shared, restart) -> None:
    async def run() -> None:
        observer = ScriptedObserver(lambda n: bool(failing) and n % failing == 0)
        with tempfile.TemporaryDirectory() as folder:
            driver = await Driver.make(
                Path(folder) / "m.db",
                fake.settings(buffer_tokens=buffer, share_token_budget=shared),
                observer=observer,
                reflector=ScriptedReflector(incompressible=incompressible),
            )
            driver.budget = budget
            await play(driver, conversation, quiet)
            await driver.engine.wait_idle()
            if restart:
                await driver.engine.close()
                await driver.open()
                await play(driver, conversation[:2], quiet)
                await driver.engine.wait_idle()
            await check_store(driver)
            if not failing:
                observed = [m.index for r in observer.inputs for m in r.messages]
                assert len(observed) == len(set(observed))
                assert not [
                    e for e in driver.of(MemoryOperation) if e.kind == "failed" and e.operation_type == "observation"
                ]
            await driver.close()

    asyncio.run(run())


async def check_store(driver: Driver) -> None:
    """Cursor and groups agree: all up to the cursor is in an active or superseded group, once."""
    record = driver.engine.record_id
    cursor = await driver.store.read(memory.find_cursor, record, driver.thread.id)
    found = [
        g
        for state in ("active", "superseded")
        for g in await driver.store.read(memory.list_groups, record, state)
        if g.kind == "observation"
    ]
    covered = sorted(i for g in found for i in range(g.first_index or 0, (g.last_index or 0) + 1))
    assert covered == list(range(cursor + 1))
    assert not await driver.store.read(memory.list_groups, record, "discarded")
    for group in await driver.store.read(memory.list_groups, record, "superseded"):
        assert group.superseded_at
    active = await driver.store.read(memory.list_groups, record, "active")
    for reflection in (g for g in active if g.kind == "reflection"):
        assert reflection.observation_tokens < reflection.metadata["input_tokens"]


async def test_projected_is_what_is_removed(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    projected: list[int] = []
    for number in range(30):
        await driver.begin(LINE * 12)
        status = driver.engine.status()
        before = len(driver.of(MemoryActivation))
        await driver.prepare()
        new = [e for e in driver.of(MemoryActivation)[before:] if e.operation_type == "observation"]
        if new:
            assert new[0].tokens_activated == status.buffered_observations.projected_message_removal
            projected.append(new[0].tokens_activated)
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    assert len(projected) > 3
    await driver.close()


async def test_nothing_new_writes_nothing_and_calls_nobody(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    await driver.begin(LINE * 30)
    await driver.prepare()
    await driver.engine.wait_idle()
    calls = len(driver.observer.inputs)
    version = await driver.store.write(lambda db: db.execute_sql("PRAGMA data_version").fetchone())
    changes = await driver.store.write(lambda db: db.connection().total_changes())
    first = driver.engine.preview()
    for _ in range(5):
        prepared = await driver.prepare()
    assert await driver.store.write(lambda db: db.connection().total_changes()) == changes
    assert await driver.store.write(lambda db: db.execute_sql("PRAGMA data_version").fetchone()) == version
    assert len(driver.observer.inputs) == calls
    assert prepared.blocks == first.blocks
    assert prepared.messages == first.messages
    await driver.close()


async def test_blocks_are_append_only_within_a_generation(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", fake.settings(observation_tokens=1_000_000))
    previous: tuple[str, ...] = ()
    for number in range(25):
        await driver.begin(LINE * 12)
        prepared = await driver.prepare()
        texts = tuple(b.text for b in prepared.blocks)
        assert texts[: len(previous)] == previous
        assert [b.edge for b in prepared.blocks] == [False] * (len(texts) - 1) + [True] * bool(texts)
        previous = texts
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    assert len(previous) > 3
    await driver.close()


async def test_a_running_buffer_does_not_hold_up_a_step(tmp_path: Path) -> None:
    observer = ScriptedObserver()
    observer.gate = asyncio.Event()
    driver = await Driver.make(tmp_path / "m.db", observer=observer)
    for number in range(6):
        await driver.begin(LINE * 15)
        await asyncio.wait_for(driver.prepare(), 5)
        await driver.step({"text": "ok"}, f"c{number}")
        await driver.engine.end_turn()
        if driver.engine.status().messages.tokens > 900:
            break
    assert driver.engine.status().buffered_observations.status == "running"
    observer.gate.set()
    await driver.close()


async def test_it_waits_above_block_after(tmp_path: Path) -> None:
    observer = ScriptedObserver()
    observer.gate = asyncio.Event()
    driver = await Driver.make(tmp_path / "m.db", observer=observer)
    await driver.begin(LINE * 15)
    await driver.prepare()
    await driver.step({"text": LINE * 400}, "c1")
    await driver.begin("next")
    waiting = asyncio.create_task(driver.prepare())
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert not waiting.done()
    observer.gate.set()
    prepared = await waiting
    assert prepared.status.messages.tokens < 1_000
    assert prepared.messages[0].metadata == {"synthetic": "reminder"}
    await driver.close()


async def test_failure_is_shown_backs_off_and_the_chat_goes_on(tmp_path: Path) -> None:
    observer = ScriptedObserver(lambda _: True)
    driver = await Driver.make(tmp_path / "m.db", observer=observer)
    driver.budget = 4_000
    for number in range(20):
        await driver.begin(LINE * 15)
        await driver.prepare()
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    failed = [e for e in driver.of(MemoryOperation) if e.kind == "failed"]
    assert failed and "Observer failed: rate limit exceeded" in failed[0].fields["error"]
    assert len(observer.inputs) < 15
    observer.fail = lambda _: False
    driver.clock.advance(3_600)
    await driver.begin("go on")
    prepared = await driver.prepare()
    await driver.engine.wait_idle()
    prepared = await driver.prepare()
    assert prepared.blocks
    await driver.close()


async def test_killed_while_buffering(tmp_path: Path) -> None:
    observer = ScriptedObserver()
    driver = await Driver.make(tmp_path / "m.db", observer=observer)
    observer.gate = asyncio.Event()
    await driver.begin(LINE * 30)
    await driver.prepare()
    await driver.step({"text": LINE * 10}, "c")
    await driver.begin("more")
    await driver.prepare()
    await asyncio.sleep(0.01)
    engine = driver.engine
    assert engine.status().buffered_observations.status == "running"
    driver.clock.advance(60)  # the process is gone: its lease runs out
    observer.gate = None
    await driver.open()
    (stale,) = driver.of(StaleLeases)
    assert (stale.kinds, stale.thread_id, stale.owner) == (
        ("observing",),
        "t1",
        f"{socket.gethostname()}:{os.getpid()}",
    )
    prepared = await driver.prepare()
    assert [m.index for m in prepared.messages] == [0, 1, 2]
    await driver.engine.wait_idle()
    # the one that was thought dead goes on: what it made is thrown away
    await engine.close()
    await check_store(driver)
    await driver.close()


async def test_two_engines_on_one_thread(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    other = ScriptedObserver()
    second = MemoryEngine(
        MemoryServices(driver.store, driver.counter, lambda _: None),
        MemoryOptions(settings=driver.settings, timezone="UTC"),
        other,
        ScriptedReflector(),
    )
    await second.open(driver.thread)
    for number in range(12):
        await driver.begin(LINE * 12)
        await second.begin_turn(provider="scripted", model="demo")
        await asyncio.gather(driver.engine.prepare(step=1), second.prepare(step=1))
        await asyncio.gather(driver.engine.wait_idle(), second.wait_idle())
        await driver.step({"text": LINE * 5}, f"c{number}")
        await asyncio.gather(driver.engine.end_turn(), second.end_turn())
    await asyncio.gather(driver.engine.wait_idle(), second.wait_idle())
    await check_store(driver)
    record = driver.engine.record_id
    stored = [
        g
        for state in ("active", "buffered", "superseded")
        for g in await driver.store.read(memory.list_groups, record, state)
        if g.kind == "observation"
    ]
    ranges = sorted((g.first_index, g.last_index) for g in stored)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(ranges)), "two groups over one message"
    await second.close()
    await driver.close()


async def test_lost_lease_throws_the_result_away(tmp_path: Path) -> None:
    observer = ScriptedObserver()
    observer.gate = asyncio.Event()
    driver = await Driver.make(tmp_path / "m.db", observer=observer)
    await driver.begin(LINE * 30)
    await driver.prepare()
    await driver.step({"text": LINE * 10}, "c")
    await driver.engine.end_turn()
    for _ in range(20):
        await asyncio.sleep(0.001)
    record = driver.engine.record_id
    assert not await driver.store.write(
        leases.acquire,
        record_id=record,
        kind="observing",
        owner="b",
        operation_id="x",
        thread_id="t1",
        now=driver.clock.now(),
    )
    driver.clock.advance(31)
    assert await driver.store.write(
        leases.acquire,
        record_id=record,
        kind="observing",
        owner="b",
        operation_id="x",
        thread_id="t1",
        now=driver.clock.now(),
    )
    observer.gate.set()
    await driver.engine.wait_idle()
    assert not await driver.store.read(memory.list_groups, record, "buffered")
    assert await driver.store.read(leases.list_leases, record, driver.clock.now())
    await driver.close()


LINES = "SELECT count(*) FROM observations WHERE group_id IN (SELECT id FROM observation_groups WHERE state = 'active')"


@pytest.mark.parametrize("buffer", [0.2, False])
async def test_compact_and_undo_give_back_exactly_what_was(buffer: float | bool, tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", fake.settings(observation_tokens=100_000, buffer_tokens=buffer))
    for number in range(9):
        await driver.begin(LINE * 12)
        await driver.prepare()
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
    before = driver.engine.preview()
    lines = await driver.store.read(lambda db: db.execute_sql(LINES).fetchone()[0])
    count, tokens, estimate = compaction.preview(driver.engine.state)
    done = await driver.engine.compact("the tests")
    assert (done.messages, done.tokens_before) == (count, tokens)
    assert done.lines == await driver.store.read(lambda db: db.execute_sql(LINES).fetchone()[0]) - lines
    assert done.gone_tokens + done.kept_tokens < tokens
    assert done.tokens_after < done.tokens_before
    assert estimate < tokens
    assert buffer or driver.observer.inputs[-1].focus == "the tests"
    assert driver.engine.preview().messages[1].role == "user"
    assert (await driver.engine.compact()).messages == 0
    await driver.engine.close()
    await driver.open()
    undone = await driver.engine.undo_compaction()
    assert undone is not None and undone.undone
    after = driver.engine.preview()
    assert after.blocks == before.blocks
    assert [m.id for m in after.messages] == [m.id for m in before.messages]
    assert after.tail == before.tail
    assert after.status.messages == before.status.messages
    assert after.status.observations == before.status.observations
    assert after.status.buffered_observations == before.status.buffered_observations
    assert await driver.engine.undo_compaction() is None
    calls = len(driver.observer.inputs)
    await driver.begin("hm")  # automatic observation waits for one more interval
    await driver.prepare()
    await driver.engine.wait_idle()
    assert len(driver.observer.inputs) == calls
    await driver.close()


@pytest.mark.parametrize("finished", [0, 1])
async def test_a_stopped_compaction_keeps_what_is_finished_and_can_be_taken_back(finished: int, tmp_path: Path) -> None:
    observer, gate = ScriptedObserver(), asyncio.Event()

    def no_more(number: int) -> bool:
        if number == finished:
            gate.clear()
        return False

    observer.gate, observer.fail = gate, no_more
    driver = await Driver.make(tmp_path / "m.db", fake.settings(600, observation_tokens=100_000), observer=observer)
    await driver.engine.pause()
    for _ in range(9):
        await driver.turn(LINE * 12, [{"text": LINE * 5}])
    before = driver.engine.preview()
    count, _, _ = compaction.preview(driver.engine.state)
    if finished:
        gate.set()
    task = asyncio.create_task(driver.engine.compact())
    while len(observer.inputs) <= finished:
        await asyncio.sleep(0)
    task.cancel()
    done = await task
    assert done.stopped and "top" in done.warnings[0] and ("unchanged" if finished else "nothing") in done.warnings[0]
    assert (0 < done.messages < count) if finished else done.messages == 0
    assert [e.fields["error"] for e in driver.of(MemoryOperation) if e.kind == "failed"] == ["stopped by the user"]
    assert await driver.store.read(lambda db: db.execute_sql("SELECT count(*) FROM leases").fetchone()) == (0,)
    if finished:
        assert await driver.engine.undo_compaction() is not None
    after = driver.engine.preview()
    assert [m.id for m in after.messages] == [m.id for m in before.messages]
    assert (after.blocks, after.status.messages) == (before.blocks, before.status.messages)
    gate.set()
    observer.fail = lambda _: False
    assert (await driver.engine.compact()).messages == count
    assert len([e for e in driver.of(MemoryOperation) if e.kind == "failed"]) == 1, "closing says nothing of the kind"
    await driver.close()


def test_a_compaction_that_was_stopped_at_its_end_says_so() -> None:
    assert "is in effect." in compaction.warn_of_rest(0, stopped=True)[0]
    assert compaction.warn_of_rest(0, stopped=False) == ()
    assert "1 message is unchanged" in compaction.warn_of_rest(1, stopped=False)[0]


async def test_compact_without_anything_asks_nobody(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    await driver.begin("hello")
    await driver.prepare()
    await driver.step({"text": "hi"}, "c")
    await driver.engine.end_turn()
    done = await driver.engine.compact()
    assert (done.messages, done.tokens_before) == (0, done.tokens_after)
    assert driver.observer.inputs == []
    await driver.close()


async def test_our_own_instructions_never_reach_the_observer(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    for number in range(20):
        await driver.begin(LINE * 12)
        prepared = await driver.prepare()
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    canaries = [line for b in prepared.blocks if b.kind == "memory" for line in b.text.split("\n") if line]
    canaries += [line for m in prepared.messages if m.metadata for line in m.text.split("\n") if line]
    assert len(canaries) > 5
    for request in driver.observer.inputs:
        text = format_messages(request.messages, "UTC", driver.counter.count)
        assert not [c for c in canaries if c in text]
    await driver.close()


async def test_idle_and_provider_change_activate_early(tmp_path: Path) -> None:
    for change in ("idle", "provider_change"):
        driver = await Driver.make(tmp_path / f"{change}.db")
        await driver.begin(LINE * 30)
        await driver.prepare()
        await driver.step({"text": LINE * 30}, "c")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
        assert driver.engine.status().buffered_observations.chunks
        if change == "idle":
            driver.clock.advance(400)
        await driver.begin("go on", model="demo" if change == "idle" else "other")
        assert [e.triggered_by for e in driver.of(MemoryActivation)] == [change]
        await driver.close()


async def test_suggested_response_goes_with_the_next_prompt(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    await driver.begin(LINE * 20)
    for number in range(4):
        await driver.prepare()
        await driver.engine.wait_idle()
        tool = {"name": "read", "args": {}, "result": LINE * 20}
        await driver.step({"tool": tool}, f"c{number}")
    prepared = await driver.prepare()
    assert any("<suggested-response>" in t for t in prepared.tail)
    await driver.begin("something else")
    prepared = await driver.prepare()
    assert not any("<suggested-response>" in t for t in prepared.tail)
    assert any("<current-task>" in t for t in prepared.tail)
    first, second, *_ = driver.observer.inputs
    assert (first.current_task, first.suggested_response) == (None, None)
    assert second.current_task and second.suggested_response, "the Observer continues from what it said before"
    await driver.close()


async def test_a_small_window_observes_early_and_says_why(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", fake.settings(30_000, 40_000))
    driver.budget = 2_100
    await driver.begin(LINE * 30)
    prepared = await driver.prepare()
    assert prepared.status.messages.threshold == 900
    assert prepared.status.observations.threshold == 1_200
    lowered, why = "messages 30.0k → 900, observations 40.0k → 1.2k", "the model's window leaves 2.1k for both"
    assert f"Lower limits: {lowered}, as {why}." in prepared.status.note
    await driver.close()


async def test_memory_off_sends_the_newest_messages(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(fake.settings(), enabled=False, last_messages=4))
    driver.check = lambda _: None  # type: ignore[method-assign]
    for number in range(6):
        await driver.begin(LINE * 12)
        prepared = await driver.prepare()
        await driver.step({"tool": {"name": "read", "args": {}, "result": "x"}}, f"c{number}")
        prepared = await driver.prepare()
        await driver.engine.end_turn()
    assert [m.role for m in prepared.messages][-3:] == ["user", "assistant", "tool"]
    assert len(prepared.messages) <= 6
    assert prepared.blocks == ()
    assert driver.observer.inputs == []
    await driver.close()


async def test_a_late_start_catches_up_in_slices(tmp_path: Path) -> None:
    off = replace(fake.settings(), enabled=False)
    driver = await Driver.make(tmp_path / "m.db", off)
    driver.check = lambda _: None  # type: ignore[method-assign]
    for number in range(30):
        await driver.begin(LINE * 15)
        await driver.step({"text": LINE * 5}, f"c{number}")
    await driver.engine.close()
    driver.settings = fake.settings(observation_tokens=100_000)
    await driver.open()
    await driver.begin("now with memory")
    prepared = await driver.prepare()
    assert sum(m.tokens for m in prepared.messages) <= 2_400
    for _ in range(10):
        await driver.engine.wait_idle()
        prepared = await driver.prepare()
    assert prepared.status.messages.tokens < 1_000
    assert all(sum(m.tokens for m in r.messages) <= 1_000 for r in driver.observer.inputs)
    await check_store(driver)
    await driver.close()


async def test_carry_over_is_made_once_and_frozen(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    for number in range(12):
        await driver.begin(LINE * 12)
        await driver.prepare()
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    plain, pinned = (await driver.store.read(memory_log.read_lines, driver.engine.record_id))[:2]
    await driver.engine.correct(pinned.id, "pin")
    await driver.engine.close()
    driver.said = []
    await driver.open("t2")
    await driver.begin("hello")
    prepared = await driver.prepare()
    (block,) = prepared.blocks
    assert block.kind == "carry_over" and "Last thread: Title" in block.text
    assert pinned.content in block.text and plain.content not in block.text
    await driver.engine.close()
    await driver.open("t2")
    assert driver.engine.preview().blocks == prepared.blocks
    await driver.close()


async def test_a_removed_line_of_the_carry_over_leaves_when_the_prefix_breaks(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    for number in range(12):
        await driver.begin(f"{LINE * 12} {number}")
        await driver.prepare()
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    for line in (await driver.store.read(memory_log.read_lines, driver.engine.record_id))[:3]:
        await driver.engine.correct(line.id, "pin")
    await driver.engine.close()
    driver.said = []
    await driver.open("t2")

    def sent() -> str:
        return "".join(b.text for b in driver.engine.preview().blocks if b.kind == "carry_over")

    before = await driver.engine.carried_lines()
    assert {x.kind for x in before} == {"thread", "line"} and not any(x.is_removed for x in before)
    assert all(x.text in sent() for x in before), "what the first turn would send"
    await driver.engine.remove_carried(before[-1])
    assert (await driver.engine.carried_lines())[-1].is_removed
    await driver.begin("hello")
    prepared = await driver.prepare()
    lines = await driver.engine.carried_lines()
    assert (
        [x.text for x in lines] == [x.text for x in before[:-1]] and lines[0].is_sent and before[-1].text not in sent()
    )
    await driver.engine.end_turn()
    await driver.engine.remove_carried(lines[0])
    await driver.engine.remove_carried(lines[1])
    await driver.engine.remove_carried(lines[1], removed=False)
    await driver.begin("and now")
    assert (await driver.prepare()).blocks == prepared.blocks, "the prefix stays, so the line does"
    assert [x.is_removed for x in await driver.engine.carried_lines()][:2] == [True, False]
    await driver.engine.end_turn()
    driver.clock.advance(3_600)
    await driver.begin("after a pause")
    await driver.prepare()
    assert lines[0].text not in sent() and lines[1].text in sent()
    assert await driver.engine.carried_lines() == [x for x in lines if x.position != lines[0].position]
    await driver.close()


async def test_the_log_can_be_asked_for(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    for number in range(25):
        await driver.begin(LINE * 12)
        await driver.prepare()
        await driver.engine.wait_idle()
        await driver.step({"text": LINE * 5}, f"c{number}")
        await driver.engine.end_turn()
    read, record = driver.store.read, driver.engine.record_id
    lines = await read(memory_log.read_lines, record)
    assert {line.kind for line in lines} == {"observation", "reflection"}
    assert all(line.date == "Jan 15, 2026" and line.time == "10:00" and line.priority == "medium" for line in lines)
    assert driver.said[0].id in await read(memory_log.list_sources, lines[0].group_id)
    made = await read(memory_log.list_generations, record)
    assert made and made[0].tokens < made[0].input_tokens
    assert driver.of(MemoryStatus)[-1].generation_count == len([g for g in made if g.activated_at])
    await driver.close()


async def test_no_half_exchange_and_no_provisional_message_is_observed(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    driver.check = lambda _: None  # type: ignore[method-assign]
    await driver.begin(LINE * 12)
    message = structs.replace(driver.said[0], id="p1", parts=(TextPart(LINE * 40),), tokens=500, state="provisional")
    driver.engine.add(await driver.store.write(message_store.append, message))
    await driver.begin("next")
    await driver.prepare()
    await driver.engine.wait_idle()
    assert "p1" not in {m.id for r in driver.observer.inputs for m in r.messages}
    await driver.store.write(message_store.confirm, ["p1"])
    await driver.begin("again")
    await driver.step({"text": LINE * 20}, "c")
    await driver.begin("and again")
    await driver.prepare()
    await driver.engine.wait_idle()
    assert "p1" in {m.id for r in driver.observer.inputs for m in r.messages}
    await driver.close()
