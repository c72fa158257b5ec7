"""What the panes say of how memory does: every number is a stored one."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from sakti.agent.reports.memory_report import (
    describe_compaction,
    describe_uncompaction,
    format_sizes,
    list_figures,
    summarize_doubts,
)
from sakti.core.events import CompactionFinished
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.store import memory
from sakti.store.log import lines as memory_log
from sakti.store.log.lines import Figures, compute_figures
from tests.fakes.memory import Driver, ScriptedObserver, settings


class Inventing(ScriptedObserver):
    """Claims a file that nobody named."""

    async def observe(self, request: ObserveInput) -> ObserveResult:
        result = await super().observe(request)
        return ObserveResult(f"{result.text}\n* 🔴 (10:00) see src/invented.py and 12 ms", model="honest")


@pytest.mark.parametrize(
    ("count", "kept", "back"),
    [
        (1, "1 message word for word, ", "1 message is in the window again"),
        (2, "2 messages word for word, ", "2 messages are in the window again"),
    ],
)
def test_one_message_is_told_of_as_one(count: int, kept: str, back: str) -> None:
    done = CompactionFinished("r", count, 900, 400, 3, kept=count, kept_tokens=80)
    assert dict(describe_compaction(done))["Kept"].startswith(kept)
    assert describe_uncompaction(done).startswith(back)


async def test_the_figures_are_those_of_the_rows(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=4_000), observer=Inventing())
    assert await driver.store.read(compute_figures, driver.engine.record_id) == Figures()
    assert list_figures(Figures()) == []
    for number in range(8):
        await driver.turn(f"part {number} " + "word " * 200, [{"text": f"answer {number} " * 40}])
        await driver.engine.wait_idle()
    record = driver.engine.record_id
    active = await driver.store.read(memory.list_groups, record, "active")
    buffered = await driver.store.read(memory.list_groups, record, "buffered")
    found = await driver.store.read(compute_figures, record)
    last = [*active, *buffered][-1]
    assert found.observation is not None
    assert (found.observation.tokens_before, found.observation.tokens_after) == (
        last.message_tokens,
        last.observation_tokens,
    )
    waiting = await driver.store.read(memory_log.read_waiting_lines, record)
    assert buffered and found.ready_lines == len(waiting) > 0
    assert {x.group_id for x in waiting} == {g.id for g in buffered}, "made, and not in the log yet"
    flags = [x.flags for x in await driver.store.read(memory_log.read_lines, record) if x.flags]
    assert (found.marked_lines, found.claims) == (len(flags), sum(map(len, flags)))
    assert "path: src/invented.py" in flags[0]
    assert (found.reflection, found.generations, found.dropped_lines) == (None, (), 0)

    assert await driver.engine.reflect_now()
    found = await driver.store.read(compute_figures, record)
    (generation,) = found.generations
    assert found.reflection is not None
    assert found.reflection.tokens_before == generation.input_tokens == sum(g.observation_tokens for g in active)
    assert found.reflection.tokens_after < found.reflection.tokens_before
    reflection = driver.engine.state.window.active[0]
    assert found.dropped_lines == len(reflection.metadata["dropped"]["lines"])
    named = dict(list_figures(found))
    assert named["Last run"].endswith("by honest")
    assert named["Generation 1"].startswith(format_sizes(generation.input_tokens, generation.tokens))
    assert summarize_doubts(found)

    await driver.engine.undo_reflection()
    found = await driver.store.read(memory_log.compute_figures, record)
    assert (found.reflection, found.generations, found.dropped_lines) == (None, (), 0)
    await driver.close()


async def test_the_observer_is_named_with_the_reason(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db")
    driver.engine._options = structs.replace(driver.engine._options, reason="set by memory.model")
    assert driver.engine.status().reason == "set by memory.model"
    driver.observer.name = "extractive"  # as it is when a model has failed for good
    assert driver.engine.status().reason == "scripted could not observe"
    await driver.close()
