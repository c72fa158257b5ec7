"""The state machine's tables: every state is reached and left, nothing leads nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from sakti.core.events import to_json
from sakti.memory import policy
from sakti.memory.phases import (
    NEVER_WAITS,
    REFLECTION_TRANSITIONS,
    TRANSITIONS,
    Phase,
    ReflectionPhase,
    ReflectionSignal,
    Signal,
)
from sakti.store.threads import threads
from tests.fakes.memory import Driver, ScriptedObserver, settings

SMALL = settings(500, 4_000, buffer_tokens=0.2)


@pytest.mark.parametrize(
    ("table", "phases", "signals"),
    [(TRANSITIONS, Phase, Signal), (REFLECTION_TRANSITIONS, ReflectionPhase, ReflectionSignal)],
)
def test_every_phase_is_reached_from_idle_and_leads_back(table, phases, signals) -> None:
    assert set(table) == set(phases)
    assert {s for row in table.values() for s in row} == set(signals)

    def reached(start: object) -> set[object]:
        seen, found = {start}, [start]
        while found:
            for after in table[found.pop()].values():
                if after not in seen:
                    seen.add(after)
                    found.append(after)
        return seen

    assert reached(phases.IDLE) == set(phases)
    assert all(phases.IDLE in reached(phase) for phase in phases)


def test_an_observation_that_ends_is_understood_in_every_phase() -> None:
    for phase in Phase:
        assert {Signal.DONE, Signal.FAILED, Signal.WAIT} <= set(TRANSITIONS[phase])


def test_only_what_waits_is_waited_for() -> None:
    assert {Phase.IDLE, Phase.BUFFERING, Phase.WAITING} == set(Phase) - NEVER_WAITS


async def phases(driver: Driver) -> list[str]:
    return [s.phase for s in driver.of(type(driver.engine.status()))]


async def test_the_phases_of_a_talk(tmp_path: Path) -> None:
    fail = False
    driver = await Driver.make(tmp_path / "m.db", SMALL, observer=ScriptedObserver(lambda _: fail))
    assert driver.engine.status().phase == "idle"
    await driver.turn("what about the queue? " * 15, [{"text": "It drains at midnight. " * 15}])
    assert driver.engine.state.phase is Phase.BUFFERING
    assert to_json(driver.engine.status())["phase"] == "buffering"
    await driver.engine.wait_idle()
    assert driver.engine.state.phase is Phase.IDLE

    await driver.engine.pause()
    assert driver.engine.state.phase is Phase.PAUSED
    await driver.turn("more " * 300, [{"text": "fine " * 100}])
    await driver.engine.wait_idle()
    assert len(driver.observer.inputs) == 1
    await driver.engine.resume(start=False)
    assert driver.engine.state.phase is Phase.IDLE

    fail = True
    await driver.turn("more " * 100, [{"text": "fine " * 100}])
    await driver.engine.wait_idle()
    assert driver.engine.state.phase is Phase.BACKING_OFF
    retry = driver.engine.state.retry  # the answer may bring a second attempt: it is as long as an interval
    assert driver.engine.status().retry_at == retry.time >= driver.clock.now() + policy.RETRY_AFTER_MS
    fail = False
    driver.clock.advance(1 + (retry.time - driver.clock.now()) / 1000)
    await driver.turn("again " * 30, [{"text": "fine " * 30}])
    await driver.engine.wait_idle()
    assert driver.engine.state.phase is Phase.IDLE
    assert driver.engine.status().retry_at is None
    assert "waiting" in await phases(driver)

    await driver.turn("one more " * 20, [{"text": "fine " * 20}])
    await driver.engine.wait_idle()
    assert (await driver.engine.compact()).messages
    assert await driver.engine.undo_compaction() is not None
    assert driver.engine.state.phase is Phase.SUSPENDED
    hold = driver.engine.state.window.thread.metadata[threads.HOLD]
    assert hold == driver.engine.state.window.pending + 100
    await driver.turn("grow " * 120, [{"text": "fine " * 20}])
    assert driver.engine.state.phase is not Phase.SUSPENDED
    await driver.engine.wait_idle()
    await driver.close()


async def test_a_hold_and_a_pause_hold_in_other_windows_too(tmp_path: Path) -> None:
    a = await Driver.make(tmp_path / "m.db", SMALL)
    await a.turn("what about the queue? " * 15, [{"text": "It drains at midnight. " * 15}])
    await a.engine.wait_idle()
    await a.turn("and now? " * 15, [{"text": "Still. " * 15}])
    await a.engine.wait_idle()
    b = await Driver.make(tmp_path / "m.db", SMALL, clock=a.clock)
    assert (await a.engine.compact()).messages
    assert await a.engine.undo_compaction() is not None
    await b.engine.begin_turn(provider="scripted", model="demo")
    assert b.engine.state.phase is Phase.SUSPENDED
    await a.engine.pause()
    await b.engine.begin_turn(provider="scripted", model="demo")
    assert b.engine.state.phase is Phase.PAUSED
    await a.close()
    await b.close()


def test_a_backoff_doubles_and_ends() -> None:
    backoff = policy.Backoff()
    assert backoff.due(0, 0)
    waits = []
    for _ in range(6):
        backoff = backoff.after(1_000, 0, 100)
        waits.append((backoff.tokens - 1_000, backoff.time // policy.RETRY_AFTER_MS))
    assert waits == [(100, 1), (200, 2), (400, 4), (800, 8), (800, 8), (800, 8)]
    assert not backoff.due(1_799, backoff.time - 1)
    assert backoff.due(1_800, 0)
    assert backoff.due(0, backoff.time)
    assert structs.replace(backoff, failures=0).due(0, 0)
