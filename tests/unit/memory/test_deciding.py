"""What begins a reflection or an observation, and what each takes: the choices, one by one."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from sakti.core.errors import ProviderError
from sakti.core.events import MemoryActivation
from sakti.core.types import ModelCall, TextPart, Usage
from sakti.memory import policy
from sakti.memory.jobs.operation import Leases
from sakti.memory.jobs.reflection import Reflection, select_groups
from sakti.memory.phases import Phase, ReflectionPhase, ReflectionSignal
from sakti.memory.protocol import ObserveInput, ObserveResult, ReflectInput, ReflectResult
from sakti.store import leases
from sakti.store.memory import Group
from sakti.store.threads import messages
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver, ScriptedObserver, ScriptedReflector, settings

DAY = 24 * 3_600_000
NUMBERS = policy.Numbers(10_000, 2_000, 12_000, 0.8, 6_000, 3_000, 7_200)
BUFFERED = settings(500, 4_000, buffer_tokens=0.2)
WORDS = "word and number 12 in src/auth.ts "


def group(number: int, *, tokens: int, at: int, lines: int = 1, kind: Any = "observation") -> Group:
    text = "\n".join(f"* 🟡 (10:00) line {i}" for i in range(lines))
    return Group(f"g{number}", "r", "t", kind, "active", text, at, observation_tokens=tokens)


class Deciding(Reflection):
    """A reflection on a log that is given; what it begins is kept in `begun`."""

    def __init__(self, *active: Group, phase: ReflectionPhase = ReflectionPhase.IDLE, failed_at: int = 0) -> None:
        self.begun: list[list[str]] = []
        state: Any = SimpleNamespace(
            window=SimpleNamespace(active=list(active), record=SimpleNamespace(corrections=0)),
            clock=FakeClock(),
            reflection_phase=phase,
            reflect_above=failed_at,
            numbers=NUMBERS,
            notify=lambda: None,
        )

        def signal(given: ReflectionSignal) -> None:
            left = {ReflectionSignal.GROWN: ReflectionPhase.IDLE, ReflectionSignal.BEGIN: ReflectionPhase.RUNNING}
            state.reflection_phase = left[given]

        state.signal_reflection = signal
        super().__init__(state, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]

    async def _run(self, groups: list[Group], level: int, tokens: int, corrections: int) -> None:
        self.begun.append([g.id for g in groups])


def chosen(*active: Group) -> list[str]:
    return [g.id for g in select_groups(active, NUMBERS.reflect_at, FakeClock().now())]


def test_the_newest_lines_stay_as_they_are() -> None:
    now = FakeClock().now()
    young = [group(n, tokens=500, at=now - n) for n in range(6)]
    assert chosen(*young) == ["g0", "g1"], "those of a day that fit a third of the budget stay"
    old = [group(n, tokens=100, at=now - 2 * DAY, lines=30) for n in range(5)]
    assert chosen(*old) == ["g0", "g1", "g2"], "of older ones as many as have 50 lines"
    few = [group(n, tokens=100, at=now - 2 * DAY, lines=3) for n in range(5)]
    assert chosen(*few) == []


def test_reflections_that_fill_half_of_the_log_go_first_and_alone() -> None:
    now = FakeClock().now()
    large = [group(n, tokens=1_600, at=now - 3 * DAY, kind="reflection") for n in range(2)]
    after = [group(n, tokens=900, at=now - 2 * DAY, lines=60) for n in range(2, 5)]
    assert chosen(*large, *after) == ["g0", "g1"]
    small = [group(n, tokens=200, at=now - 3 * DAY, kind="reflection") for n in range(2)]
    assert chosen(*small, *after) == ["g0", "g1", "g2", "g3"]


async def test_little_is_not_condensed_unless_the_user_asks() -> None:
    now = FakeClock().now()
    log = [group(0, tokens=900, at=now - 2 * DAY, lines=60), group(1, tokens=300, at=now - 2 * DAY, lines=60)]
    assert not Deciding(*log).begin(1), "a sixth of the threshold is the least"
    asked = Deciding(*log)
    assert asked.begin(1, whole=True) and asked.task is not None
    await asked.task
    assert asked.begun == [["g0", "g1"]]


async def test_what_failed_is_tried_again_when_the_log_has_grown() -> None:
    now = FakeClock().now()
    log = [group(0, tokens=2_000, at=now - 2 * DAY, lines=60), group(1, tokens=300, at=now - 2 * DAY, lines=60)]
    backing = Deciding(*log, phase=ReflectionPhase.BACKING_OFF, failed_at=2_000)
    assert not backing.begin(1) and backing.state.reflection_phase is ReflectionPhase.BACKING_OFF
    grown = Deciding(*log, phase=ReflectionPhase.BACKING_OFF, failed_at=1_999)
    assert grown.begin(1) and grown.task is not None
    await grown.task
    assert grown.begun == [["g0"]]


async def talk(driver: Driver, turns: int, first: int = 0) -> None:
    for n in range(first, first + turns):
        await driver.turn(f"part {n} " + WORDS * 25, [{"text": f"answer {n} " * 40}])
        await driver.engine.wait_idle()


class Empty(ScriptedReflector):
    async def reflect(self, request: ReflectInput) -> ReflectResult:
        self.inputs.append(request)
        return ReflectResult("")


class Failing(ScriptedReflector):
    async def reflect(self, request: ReflectInput) -> ReflectResult:
        raise ProviderError("rate limit exceeded", code="rate_limit")


async def test_a_reflector_is_told_how_small_the_log_has_to_become(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=1_000))
    driver.settings = settings(observation_tokens=4_000)
    await driver.open()
    await talk(driver, 8)
    state = driver.engine.state
    tokens = sum(g.observation_tokens for g in state.window.active)
    rest = state.observation_tokens - tokens
    assert await driver.engine.reflect_now()
    (asked,) = driver.reflector.inputs
    assert (asked.target_tokens, asked.limit_tokens) == (tokens // 2, 4_000 - rest)
    await driver.close()


async def test_a_reflection_of_nothing_leaves_the_log(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=4_000), reflector=Empty())
    await talk(driver, 8)
    before = [g.id for g in driver.engine.state.window.active]
    assert before and not await driver.engine.reflect_now()
    assert [g.id for g in driver.engine.state.window.active] == before
    assert "not smaller" in driver.engine.status().note
    await driver.close()


async def test_a_reflection_that_fails_backs_off(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=4_000), reflector=Failing())
    await talk(driver, 8)
    assert not await driver.engine.reflect_now()
    assert driver.engine.state.reflection_phase is ReflectionPhase.BACKING_OFF
    await driver.close()


async def test_the_calls_of_an_observer_are_recorded(tmp_path: Path) -> None:
    class Counted(ScriptedObserver):
        async def observe(self, request: ObserveInput) -> ObserveResult:
            call = ModelCall("small", Usage(1_200, 0, 0, 80), 900, "end", 1_190)
            return ObserveResult("Date: Jan 1, 2025\n* 🟡 (10:00) said", calls=(call,))

    driver = await Driver.make(tmp_path / "m.db", BUFFERED, observer=Counted())
    await talk(driver, 1)
    sql = "SELECT thread_id, purpose, model, input_tokens, counted_tokens FROM steps"
    rows = await driver.store.read(lambda db: db.execute_sql(sql).fetchall())
    assert rows and set(rows) == {("t1", "observer", "small", 1_200, 1_190)}
    await driver.close()


# --- leases ---------------------------------------------------------------------------------------------------


async def test_a_lease_of_a_process_that_is_gone_is_taken_over(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    record, now = driver.engine.record_id, driver.clock.now()
    dead = leases.make_owner().split(":")[0] + ":4194999:aa"
    held = {"record_id": record, "kind": "reflecting", "thread_id": "", "operation_id": "o", "now": now}
    assert await driver.store.write(leases.acquire, owner=dead, **held)
    async with Leases(driver.store, leases.make_owner(), 0.1).hold(record, "reflecting"):
        pass
    alive = leases.make_owner()
    assert await driver.store.write(leases.acquire, owner=alive, **held)
    mine = Leases(driver.store, leases.make_owner(), 0.1)
    assert not await mine.others_end(record, "reflecting"), "it is waited for, not for ever"
    assert await Leases(driver.store, alive, 0.1).others_end(record, "reflecting"), "one's own is no other's"
    await driver.close()


# --- observing ------------------------------------------------------------------------------------------------


async def test_an_activation_says_how_many_messages_it_took(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    for n in range(6):
        await driver.begin(WORDS * 12)
        before = {m.id for m in driver.engine.state.window.messages}
        told = len(driver.of(MemoryActivation))
        await driver.prepare()
        for event in driver.of(MemoryActivation)[told:]:
            gone = before - {m.id for m in driver.engine.state.window.messages}
            assert event.messages_activated == len(gone) > 0
        await driver.engine.wait_idle()
        await driver.step({"text": WORDS * 5}, f"c{n}")
        await driver.engine.end_turn()
    assert driver.of(MemoryActivation)
    await driver.close()


async def test_what_is_said_while_the_window_is_read_stays_in_it(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", BUFFERED)
    await talk(driver, 1)
    state = driver.engine.state
    read_before = copy.copy(state.window)
    read_before.messages = list(state.window.messages)
    said = await driver.say("user", TextPart("said just now"))
    state._replace_window(read_before)
    assert said.id in {m.id for m in state.window.messages}
    await driver.close()


async def test_who_has_caught_up_is_behind_no_more(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(settings(), enabled=False))
    driver.check = lambda _: None  # type: ignore[method-assign]
    for n in range(30):
        await driver.begin(WORDS * 15)
        await driver.step({"text": WORDS * 5}, f"c{n}")
    await driver.engine.close()
    driver.settings = settings(observation_tokens=100_000, buffer_tokens=False)
    await driver.open()
    assert driver.engine.state.phase is Phase.CATCHING_UP
    await driver.begin("now with memory")
    await driver.prepare()
    assert driver.engine.observation.running() is not None, "without background work, too"
    for _ in range(12):
        await driver.engine.wait_idle()
        await driver.prepare()
    assert driver.engine.state.phase is Phase.IDLE and driver.engine.state.message_limit is None
    await driver.close()


@pytest.mark.parametrize("at_end", [True, False])
async def test_at_the_end_of_a_turn_half_an_interval_is_the_least(at_end: bool, tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(4_000, 4_000, buffer_tokens=0.2))
    await talk(driver, 3)
    await driver.begin("a short one")
    await driver.step({"text": "fine " * 20}, "c")
    state = driver.engine.state
    left = sum(m.tokens for m in state.window.observable())
    assert 0 < left < 400 < state.window.pending
    state.window.record = structs.replace(state.window.record, last_buffered_at_tokens=0)
    driver.engine.observation.start(at_end=at_end)
    assert (driver.engine.observation.running() is None) == at_end
    await driver.engine.wait_idle()
    await driver.close()


@pytest.mark.parametrize("whole", [True, False])
async def test_what_is_left_at_the_end_is_what_can_be_observed(whole: bool, tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", BUFFERED)
    await talk(driver, 3)
    state = driver.engine.state
    if whole:
        assert state.window.ready()
        await driver.engine.observe_rest()
        assert not state.window.ready(), "what waited entered the log"
        assert driver.engine.count_tokens_to_observe() == 0
    else:
        left = sum(m.tokens for m in state.window.observable())
        assert driver.engine.count_tokens_to_observe() == left
    await driver.close()


async def test_nothing_is_left_where_nothing_may_be_observed(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", BUFFERED)
    await driver.say("system", TextPart("instructions of ours"))
    assert driver.engine.count_tokens_to_observe() == 0
    await driver.close()


async def test_a_buffered_observation_sets_the_boundary(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", BUFFERED)
    await talk(driver, 1)
    state = driver.engine.state
    assert state.window.buffered and 0 < state.window.record.last_buffered_at_tokens <= state.window.pending
    await driver.close()


async def test_a_reflection_begins_beside_a_step(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=4_000))
    await talk(driver, 12)
    driver.clock.advance(2 * DAY / 1000)
    smaller = driver.engine.state.observation_tokens * 21 // 20  # the log fills most of it
    await driver.engine.close()
    driver.settings = settings(observation_tokens=smaller)
    await driver.open()
    numbers = driver.engine.state.numbers
    assert numbers.reflect_from is not None
    assert numbers.reflect_from <= driver.engine.state.observation_tokens < numbers.reflect_at
    await driver.begin("go on")
    await driver.prepare()
    assert driver.engine.reflection.running() is not None
    await driver.engine.wait_idle()
    assert [request.start_level for request in driver.reflector.inputs] == [1], "in the background, before it is due"
    await driver.close()


async def test_what_was_waited_for_is_condensed_before_the_request(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(1_000, 300, buffer_tokens=False))
    for n in range(16):
        await driver.begin(f"part {n} " + WORDS * 12)
        await driver.prepare()
        state = driver.engine.state
        assert state.observation_tokens < state.numbers.reflect_at
        await driver.step({"text": f"answer {n} " * 40}, f"c{n}")
        await driver.engine.end_turn()
    assert driver.reflector.inputs
    await driver.close()


async def test_the_model_of_the_last_turn_is_known_after_a_restart(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", BUFFERED)
    await talk(driver, 1)
    assert driver.engine.state.window.buffered
    await driver.engine.close()
    await driver.open()
    await driver.begin("now with another model", model="other")
    assert [e.triggered_by for e in driver.of(MemoryActivation)] == ["provider_change"]
    await driver.close()


# --- compacting -----------------------------------------------------------------------------------------------


async def test_a_compaction_leaves_the_last_exchange_though_it_is_buffered(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", BUFFERED)
    await talk(driver, 1)
    state = driver.engine.state
    first = [g.id for g in state.window.buffered]
    await driver.turn("the last " + WORDS * 12, [{"text": "fine " * 90}])
    await driver.engine.wait_idle()
    assert [g.id for g in state.window.buffered] != first, "the last exchange is buffered, too"
    done = await driver.engine.compact()
    assert (done.messages, done.pinned) == (2, 0)
    assert [m.text.split()[1] for m in state.window.messages if m.role == "user"] == ["last"]
    assert state.window.buffered, "and stays buffered"
    await driver.close()


# --- another window -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def observed_elsewhere(path: Path, first: str) -> AsyncGenerator[tuple[Driver, Driver]]:
    """Two windows on one thread; the other one observes until the gate of its Observer opens."""
    other = await Driver.make(path, BUFFERED)
    other.observer.gate = asyncio.Event()
    await other.begin(first)
    await other.prepare()
    await other.step({"text": "It drains at midnight. " * 20}, "q")
    await other.engine.end_turn()
    while not other.observer.inputs:
        await asyncio.sleep(0)
    mine = await Driver.make(path, BUFFERED, clock=other.clock)
    mine.patience = 30
    await mine.open()
    mine.said = await mine.store.read(messages.list_after, "t1", -1)
    yield other, mine
    await other.close()
    await mine.close()


async def opened_later(other: Driver) -> None:
    await asyncio.sleep(0.3)
    other.observer.gate.set()
    await other.engine.wait_idle()


async def test_a_step_waits_for_what_another_window_observes(tmp_path: Path) -> None:
    async with observed_elsewhere(tmp_path / "m.db", "what about the queue? " * 20) as (other, mine):
        await mine.begin("and what about src/other.py? " * 90)
        prepared, _ = await asyncio.gather(mine.prepare(), opened_later(other))
        assert [m.index for m in prepared.messages if "synthetic" not in m.metadata] == [2]
        assert not mine.observer.inputs


async def test_a_compaction_waits_for_what_another_window_observes(tmp_path: Path) -> None:
    async with observed_elsewhere(tmp_path / "m.db", "what about the queue? " * 20) as (other, mine):
        await mine.turn("a second one", [{"text": "fine"}])
        done, _ = await asyncio.gather(mine.engine.compact(), opened_later(other))
        assert (done.messages, done.warnings) == (2, ())
        assert not mine.observer.inputs


async def test_what_another_window_observed_is_loaded_when_it_was_waited_for(tmp_path: Path) -> None:
    async with observed_elsewhere(tmp_path / "m.db", "what about the queue? " * 20) as (other, mine):
        await asyncio.gather(mine.engine.observation.join_others(), opened_later(other))
        window = other.engine.state.window
        assert [g.id for g in mine.engine.state.window.buffered] == [g.id for g in window.buffered] != []
