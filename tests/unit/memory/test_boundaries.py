"""At exactly its threshold a thing happens, one token before it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from sakti.core.config import MemorySettings
from sakti.memory.phases import Phase, ReflectionPhase
from sakti.store.threads import threads
from tests.fakes.memory import Driver, settings

PATIENCE = 20  # seconds for what must not wait: a step that does never ends here
NEVER = 1_000_000
WORDS = "word and number 12 in src/auth.ts "
UNBUFFERED = settings(NEVER, NEVER, buffer_tokens=False, block_after=1.0, activate_after_idle=False)


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """A thread in which six turns were talked and nothing was observed."""
    made = await Driver.make(tmp_path / "m.db", UNBUFFERED)
    for number in range(6):
        await made.turn(f"part {number} {WORDS * 20}", [{"text": f"answer {number} {WORDS * 10}"}])
    yield made
    await made.close()


async def under(driver: Driver, memory: MemorySettings) -> Driver:
    """The same thread with other settings."""
    await driver.engine.close()
    driver.settings = memory
    await driver.open()
    driver.engine.state.prompts = []
    return driver


def observing(threshold: int, *, buffer: float | bool = False, block: float = 1.0) -> MemorySettings:
    return settings(
        threshold, NEVER, buffer_tokens=buffer, block_after=block, buffer_activation=0.5, activate_after_idle=False
    )


def condensing(threshold: int, *, share: float = 1.0, block: float = 1.0, buffer: float | bool = False) -> Any:
    memory = settings(NEVER, threshold, buffer_tokens=buffer, activate_after_idle=False)
    reflection = replace(memory.reflection, buffer_activation=share, block_after=block)
    return replace(memory, reflection=reflection)


def pending(driver: Driver) -> int:
    return driver.engine.state.window.pending


def cursor(driver: Driver) -> int:
    return driver.engine.state.window.cursor


async def logged(driver: Driver) -> int:
    """Put what was said into the log, in three groups, so long ago that all of it may be condensed."""
    for _ in range(3):
        state = driver.engine.state
        await driver.engine.observation.now(state.window.find_uncovered_messages()[:4])
    assert len(driver.engine.state.window.active) == 3
    driver.clock.advance(30 * 24 * 3_600)
    for number in range(60):  # the newest fifty lines stay
        await driver.turn(f"later {number}", [{"text": "Yes."}])
    await driver.engine.observation.now(driver.engine.state.window.find_uncovered_messages()[:-1])
    return driver.engine.state.observation_tokens


@pytest.mark.parametrize(("more", "observed"), [(0, True), (1, False)])
async def test_a_step_waits_at_the_threshold(driver: Driver, more: int, observed: bool) -> None:
    await under(driver, observing(pending(driver) + more))
    await driver.engine.prepare(step=1)
    assert (cursor(driver) >= 0) is observed


@pytest.mark.parametrize(("more", "entered"), [(0, True), (1, False)])
async def test_what_is_ready_enters_the_log_at_the_threshold(driver: Driver, more: int, entered: bool) -> None:
    await under(driver, observing(NEVER, buffer=100))
    driver.engine.observation.start()
    await driver.engine.wait_idle()
    assert driver.engine.state.window.ready()
    asked = len(driver.observer.inputs)
    await under(driver, observing(pending(driver) + more, buffer=100, block=2.0))
    await driver.engine.prepare(step=1)
    assert (cursor(driver) >= 0) is entered
    assert len(driver.observer.inputs) == asked


async def test_a_step_goes_on_up_to_where_it_has_to_wait(driver: Driver) -> None:
    size = pending(driver)
    await under(driver, observing(size - 10, buffer=100, block=size))
    driver.observer.gate = asyncio.Event()
    await asyncio.wait_for(driver.engine.prepare(step=1), PATIENCE)
    assert driver.engine.observation.running() is not None
    assert cursor(driver) == -1
    driver.observer.gate.set()
    await driver.engine.wait_idle()


async def test_a_step_waits_above_that(driver: Driver) -> None:
    size = pending(driver)
    await under(driver, observing(size - 10, buffer=100, block=size - 1))
    driver.observer.gate = gate = asyncio.Event()
    step = asyncio.create_task(driver.engine.prepare(step=1))
    while not driver.observer.inputs:
        await asyncio.sleep(0)
    assert not step.done()
    gate.set()
    await asyncio.wait_for(step, PATIENCE)
    assert cursor(driver) >= 0


@pytest.mark.parametrize(("more", "held"), [(0, False), (1, True)])
async def test_after_an_undo_it_rests_up_to_an_interval(driver: Driver, more: int, held: bool) -> None:
    await driver.store.write(threads.update_metadata, "t1", {threads.HOLD: pending(driver) + more})
    await under(driver, UNBUFFERED)
    assert (driver.engine.state.phase is Phase.SUSPENDED) is held


@pytest.mark.parametrize(("more", "behind"), [(1, True), (0, False)])
async def test_far_more_than_a_request_takes_is_caught_up_with_when_the_rest_ends(
    driver: Driver, more: int, behind: bool
) -> None:
    size = pending(driver)
    await driver.store.write(threads.update_metadata, "t1", {threads.HOLD: size + 1})
    await under(driver, observing(1_000, block=(size + 2 - more) / 2))
    assert driver.engine.state.phase is Phase.SUSPENDED
    limit = 2 * driver.engine.state.numbers.block_after
    driver.engine.state.window.pending = limit + more
    driver.engine.state.settle()
    assert driver.engine.state.phase is (Phase.CATCHING_UP if behind else Phase.IDLE)


@pytest.mark.parametrize(("less", "entered"), [(0, True), (1, False)])
async def test_idle_time_is_over_when_it_has_passed(driver: Driver, less: int, entered: bool) -> None:
    await under(driver, observing(pending(driver) + 500, buffer=100, block=2.0))
    driver.engine.observation.start()
    await driver.engine.wait_idle()
    memory = observing(pending(driver) + 1, buffer=100, block=2.0)
    await under(driver, replace(memory, activate_after_idle=60_000))
    driver.clock.time = driver.said[-1].created_at + 60_000 - less
    await driver.engine.begin_turn(provider="scripted", model="demo")
    assert (cursor(driver) >= 0) is entered


# --- the log ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("more", "condensed"), [(0, True), (1, False)])
async def test_a_step_waits_for_the_log_at_its_threshold(driver: Driver, more: int, condensed: bool) -> None:
    size = await logged(driver)
    await under(driver, condensing(size + more))
    await driver.engine.prepare(step=1)
    assert (driver.engine.state.window.record.generation_count == 1) is condensed


@pytest.mark.parametrize(("more", "entered"), [(0, True), (1, False)])
async def test_what_waits_enters_the_log_at_its_threshold(driver: Driver, more: int, entered: bool) -> None:
    size = await logged(driver)
    await under(driver, condensing(2 * size, share=0.1, buffer=100))
    driver.engine.reflection.begin(1)
    await driver.engine.wait_idle()
    assert driver.engine.state.reflection_phase is ReflectionPhase.READY
    await under(driver, condensing(size + more, share=0.1, block=2.0, buffer=100))
    await driver.engine.prepare(step=1)
    assert (driver.engine.state.window.record.generation_count == 1) is entered


@pytest.mark.parametrize(("more", "begun"), [(0, True), (2, False)])
async def test_the_background_condenses_from_its_share_on(driver: Driver, more: int, begun: bool) -> None:
    size = await logged(driver)
    await under(driver, condensing(2 * size + more, share=0.5, buffer=NEVER // 2))
    driver.engine.reflection.start()
    assert (driver.engine.reflection.running() is not None) is begun
    await driver.engine.wait_idle()


async def test_a_step_goes_on_up_to_where_it_has_to_wait_for_the_log(driver: Driver) -> None:
    size = await logged(driver)
    await under(driver, condensing(size - 5, share=0.5, block=size, buffer=NEVER // 2))
    driver.reflector.gate = asyncio.Event()
    await asyncio.wait_for(driver.engine.prepare(step=1), PATIENCE)
    assert driver.engine.reflection.running() is not None
    driver.reflector.gate.set()
    await driver.engine.wait_idle()
