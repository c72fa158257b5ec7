"""A reflection that is taken back: log, window and time travel as if it had not been made."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sakti.core.errors import MemoryFailure
from sakti.store import memory
from sakti.store.log import corrections as memory_corrections
from sakti.store.log import lines as memory_log
from sakti.store.search import search
from tests.fakes.memory import Driver, settings

WORDS = "word and number 12 in src/auth.ts "


async def opened(path: Path, turns: int = 8, **values: Any) -> Driver:
    values.setdefault("observation_tokens", 4_000)
    driver = await Driver.make(path, settings(**values))
    await talk(driver, turns)
    return driver


async def talk(driver: Driver, turns: int) -> None:
    for _ in range(turns):
        number = len(driver.said)
        await driver.turn(f"part {number} " + WORDS * 25, [{"text": f"answer {number} " * 40}])
        await driver.engine.wait_idle()


def seen(driver: Driver) -> tuple[Any, ...]:
    """All that a request, the record and the thread say of the log."""
    prepared, window = driver.engine.preview(), driver.engine.state.window
    record = window.record
    return (
        [b.text for b in prepared.blocks],
        [m.id for m in prepared.messages],
        prepared.tail,
        prepared.status.observations,
        prepared.status.messages,
        [g.id for g in window.active],
        [g.id for g in window.buffered],
        (record.generation_count, record.last_reflection_at, record.observation_token_count),
        window.thread.metadata,
    )


async def as_of(driver: Driver, time: int) -> list[str]:
    lines = await driver.store.read(memory_corrections.read_log_at, driver.engine.record_id, time)
    return [x.id for x in lines]


async def test_log_and_window_are_what_they_were_and_later_groups_stay(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    before, then = seen(driver), driver.clock.now()
    driver.clock.advance(60)
    assert await driver.engine.reflect_now()
    assert seen(driver) != before
    driver.clock.advance(60)
    done = await driver.engine.undo_reflection()
    assert (done.generation, done.groups, done.corrected) == (1, len(before[5]), 0)
    assert seen(driver) == before
    await driver.engine.close()
    await driver.open()  # another start reads the same
    assert seen(driver) == before
    assert await as_of(driver, then) == await as_of(driver, driver.clock.now())

    assert await driver.engine.reflect_now()
    old = {g.id for g in driver.engine.state.window.active}
    await talk(driver, 6)
    added = [g.id for g in driver.engine.state.window.active if g.id not in old]
    assert added
    task = driver.engine.state.window.thread.metadata["current_task"]
    await driver.engine.undo_reflection()
    assert [g.id for g in driver.engine.state.window.active] == [*before[5], *added]
    assert driver.engine.state.window.thread.metadata["current_task"] == task  # a newer Observer's stays
    assert driver.engine.state.window.record.generation_count == 0
    await driver.close()


async def test_the_log_at_each_time_stays_what_was_true_then(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    logs: list[tuple[int, list[str]]] = []

    async def note() -> None:
        lines = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
        logs.append((driver.clock.now(), [x.id for x in lines]))
        driver.clock.advance(60)

    await note()
    for change in ("reflect", "undo", "reflect", "talk", "reflect", "undo", "undo"):
        if change == "talk":
            await talk(driver, 4)
        elif change == "undo":
            await driver.engine.undo_reflection()
        else:
            assert await driver.engine.reflect_now()
        await note()
    for time, lines in logs:
        assert await as_of(driver, time) == lines
    assert logs[-1][1][: len(logs[0][1])] == logs[0][1]
    await driver.close()


async def test_what_newer_reflections_build_on_is_refused(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    with pytest.raises(MemoryFailure, match="no reflection"):
        await driver.engine.undo_reflection()
    assert await driver.engine.reflect_now()
    await talk(driver, 4)
    assert await driver.engine.reflect_now()
    before = seen(driver)
    with pytest.raises(MemoryFailure, match="generation 2 was made from it; undo that first"):
        await driver.engine.undo_reflection(1)
    with pytest.raises(MemoryFailure, match="no generation 7"):
        await driver.engine.undo_reflection(7)
    assert seen(driver) == before
    await driver.engine.undo_reflection()
    await driver.engine.undo_reflection(1)
    with pytest.raises(MemoryFailure, match="no reflection"):
        await driver.engine.undo_reflection()
    await driver.close()


async def test_a_reflection_that_is_made_or_waits_meanwhile_is_dropped(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    flow = driver.engine.state
    assert await driver.engine.reflect_now()
    await talk(driver, 4)
    assert driver.engine.reflection.begin(1, whole=True)
    await driver.engine.wait_idle()
    waiting = flow.window.reflection
    assert waiting is not None
    await driver.engine.undo_reflection()
    assert flow.window.reflection is None
    assert waiting.id in {
        g.id for g in await driver.store.read(memory.list_groups, driver.engine.record_id, "discarded")
    }

    assert await driver.engine.reflect_now()
    await talk(driver, 4)
    driver.reflector.gate = asyncio.Event()
    asked = len(driver.reflector.inputs)
    assert driver.engine.reflection.begin(1, whole=True)
    while len(driver.reflector.inputs) == asked:
        await asyncio.sleep(0)
    await driver.engine.undo_reflection()
    driver.reflector.gate.set()
    await driver.engine.wait_idle()
    assert flow.window.reflection is None
    assert not await driver.store.read(memory.list_groups, driver.engine.record_id, "buffered") or flow.window.buffered
    await driver.close()


async def test_nothing_is_condensed_again_until_the_log_has_grown(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db", turns=30, observation_tokens=600)
    flow = driver.engine.state
    while flow.window.record.generation_count == 0:
        await talk(driver, 1)
    while not any(g.kind == "reflection" for g in flow.window.active):
        await talk(driver, 1)
    await driver.engine.undo_reflection()
    assert flow.observation_tokens >= flow.numbers.reflect_at
    assert "Your undo paused automatic reflection" in driver.engine.status().note
    until, asked = flow.window.record.metadata[memory.HOLD_REFLECTION], len(driver.reflector.inputs)
    await driver.engine.close()
    await driver.open()  # it holds for the next start too
    flow = driver.engine.state
    for _ in range(60):
        stored = sum(g.observation_tokens for g in flow.window.active)
        if len(driver.reflector.inputs) > asked:
            break
        assert stored < until
        await talk(driver, 1)
    else:
        pytest.fail("the log was never condensed again")
    await talk(driver, 3)
    assert memory.HOLD_REFLECTION not in flow.window.record.metadata
    await driver.close()


async def test_a_task_that_the_reflection_wrote_and_changes_to_its_lines_go_with_it(tmp_path: Path) -> None:
    driver = await opened(tmp_path / "m.db")
    flow = driver.engine.state
    before = flow.window.thread.metadata
    scope = search.Scope("workspace", None, ("reflection",))
    assert await driver.engine.reflect_now()
    assert flow.window.thread.metadata["current_task"] == "Primary: reflected"
    line = (await driver.store.read(memory_log.read_lines, driver.engine.record_id))[0]
    await driver.engine.correct(line.id, "edit", "The user keeps zebras.")
    assert (await driver.store.read(search.search, "zebras", scope)).total == 1
    done = await driver.engine.undo_reflection()
    assert done.corrected == 1
    assert flow.window.thread.metadata == before
    assert (await driver.store.read(search.search, "zebras", scope)).total == 0
    await driver.close()


@examples(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=st.lists(st.sampled_from(["talk", "reflect", "undo", "edit", "restart"]), min_size=3, max_size=14))
def test_any_order_of_reflections_and_undos(moves: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    async def run() -> None:
        driver = await opened(tmp_path_factory.mktemp("undo") / "m.db", turns=4)
        stack: list[tuple[tuple[Any, ...], list[str]]] = []  # what was seen before each reflection, and its groups
        numbers = itertools.count()
        for move in moves:
            active = [g.id for g in driver.engine.state.window.active]
            if move == "talk":
                await talk(driver, 2)
            elif move == "reflect":
                before = seen(driver)
                if await driver.engine.reflect_now():
                    stack.append((before, active))
            elif move == "edit" and not stack:
                lines = await driver.store.read(memory_log.read_lines, driver.engine.record_id)
                if lines:
                    await driver.engine.correct(lines[0].id, "edit", f"number {next(numbers)}")
            elif move == "undo" and stack:
                before, groups = stack.pop()
                untouched = active[1:] == []
                await driver.engine.undo_reflection()
                now = seen(driver)
                assert now[5] == [*groups, *active[1:]]
                assert not untouched or now[0] == before[0]
            elif move == "restart":
                kept = seen(driver)
                await driver.engine.close()
                await driver.open()
                assert seen(driver) == kept
        assert driver.engine.state.window.record.generation_count == len(stack)
        await driver.close()

    asyncio.run(run())
