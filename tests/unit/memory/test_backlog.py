"""A thread with much to catch up with: what is left, at what price, and its pause."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.reports.memory_report import format_backlog
from sakti.core.errors import MemoryFailure
from sakti.core.events import Backlog, to_json
from sakti.core.types import TextPart
from sakti.memory import status as memory_status
from sakti.memory.protocol import ObserveInput, ObserveResult
from sakti.store import leases, memory
from tests.fakes.memory import Driver, ScriptedObserver, settings

WORDS = "word and number 12 in src/auth.ts "
MODEL = "anthropic/claude-haiku-4-5"


async def long_thread(path: Path, observer: ScriptedObserver | None = None, *, scope: str = "thread") -> Driver:
    """A conversation held without memory, which is then turned on."""
    mine = settings(observation_tokens=100_000, scope=scope)
    driver = await Driver.make(path, replace(mine, enabled=False), observer=observer)
    for _ in range(30):
        await driver.say("user", TextPart(WORDS * 15))
        await driver.say("assistant", TextPart(WORDS * 5))
    await driver.engine.close()
    driver.settings = mine
    await driver.open()
    return driver


async def test_what_is_left_gets_less_until_nothing_is(tmp_path: Path) -> None:
    observer = ScriptedObserver()
    observer.name = MODEL
    driver = await long_thread(tmp_path / "m.db", observer)
    first = driver.engine.status().backlog
    assert first is not None
    window = driver.engine.state.window
    assert first.tokens == sum(m.tokens for m in window.messages)
    assert first.calls == math.ceil(first.tokens / 1_000) > 3
    assert not first.paused
    assert driver.engine._pricing is not None
    await driver.engine._pricing
    await driver.begin("go on")
    await driver.prepare()
    await driver.engine.wait_idle()
    seen = [s.backlog for s in driver.of(type(driver.engine.status())) if s.backlog is not None]
    assert [s.tokens for s in seen] == sorted((s.tokens for s in seen), reverse=True)
    assert seen[-1].tokens < first.tokens / 5
    assert seen[-1].cost_usd is not None
    assert driver.engine.status().backlog is None
    assert to_json(driver.engine.status())["backlog"] is None
    await driver.close()


async def test_the_price_is_the_observers(tmp_path: Path) -> None:
    driver = await long_thread(tmp_path / "m.db")
    flow = driver.engine.state
    known = memory_status.find_rates(MODEL)
    assert known is not None
    assert 0 < known.input < known.output
    left = memory_status.estimate_backlog(flow, MODEL, known)
    assert left is not None
    assert left.cost_usd is not None
    assert left.cost_usd > left.tokens * known.input
    assert left.cost_usd < 2 * (left.tokens + left.calls * 2_000) * known.output
    assert memory_status.find_rates("nobody/nothing") is None
    unknown = memory_status.estimate_backlog(flow, "nobody/nothing", None)
    assert unknown is not None
    assert (unknown.calls, unknown.cost_usd) == (left.calls, None)
    without = memory_status.estimate_backlog(flow, "extractive", memory_status.find_rates("extractive"))
    assert without is not None
    assert (without.calls, without.cost_usd) == (0, 0.0)
    assert format_backlog(Backlog(84_000, 3, 0.119)) == "84.0k tokens left · 3 calls · ~$0.12"
    assert format_backlog(Backlog(84_000, 1, None, True)) == "paused · 84.0k tokens left · 1 call"
    await driver.close()


async def test_a_pause_ends_the_work_at_its_slice_and_lasts_until_it_is_resumed(tmp_path: Path) -> None:
    observer = ScriptedObserver()
    observer.gate = asyncio.Event()
    driver = await long_thread(tmp_path / "m.db", observer)
    await driver.begin("go on")
    await driver.prepare()
    while not observer.inputs:
        await asyncio.sleep(0)
    await driver.engine.pause()
    observer.gate.set()
    await driver.engine.wait_idle()
    assert len(observer.inputs) == 1
    assert len(await driver.store.read(memory.list_groups, driver.engine.record_id, "buffered")) == 1

    async def turns(count: int) -> None:
        for number in range(count):
            await driver.begin(f"question {number} " + WORDS * 10)
            prepared = await driver.prepare()
            size = sum(m.tokens for m in prepared.messages)
            assert size <= prepared.status.messages.threshold * 2.4 + 100
            await driver.step({"text": WORDS * 10}, f"p{number}{len(driver.said)}")
            await driver.engine.end_turn()
            await driver.engine.wait_idle()

    await turns(3)
    status = driver.engine.status()
    assert status.backlog is not None
    assert status.backlog.paused
    assert "paused" in status.note
    assert len(observer.inputs) == 1
    await driver.engine.close()
    await driver.open()  # another start keeps to it
    await turns(2)
    assert len(observer.inputs) == 1

    await driver.engine.resume()
    await driver.engine.wait_idle()
    await turns(1)
    assert driver.engine.status().backlog is None
    observed = [m.index for r in observer.inputs for m in r.messages]
    assert observed == sorted(set(observed))
    await driver.close()


async def test_another_window_hears_of_a_pause_and_waits_for_nothing(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", settings(observation_tokens=300))
    record = driver.engine.record_id
    await driver.store.write(memory.set_record_metadata, record, {"paused": True})
    driver.check = lambda _: None  # type: ignore[method-assign]
    for number in range(12):  # through threshold and block_after, and past the log's own threshold by hand
        await driver.begin(f"question {number} " + WORDS * 12)
        await asyncio.wait_for(driver.prepare(), 5)
        await driver.step({"text": "ok"}, f"c{number}")
        await driver.engine.end_turn()
        await driver.engine.wait_idle()
    assert driver.observer.inputs == []
    done = await driver.engine.compact()
    assert done.messages
    await driver.begin("and now?")
    await asyncio.wait_for(driver.prepare(), 5)
    await driver.engine.wait_idle()
    assert driver.reflector.inputs == []
    await driver.store.write(memory.set_record_metadata, record, {"paused": None})
    await driver.begin("go on")
    await driver.prepare()
    await driver.engine.wait_idle()
    assert driver.reflector.inputs
    await driver.close()


async def test_what_does_not_observe_is_not_resumed(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "m.db", replace(settings(), enabled=False))
    with pytest.raises(MemoryFailure):
        await driver.engine.resume()
    await driver.close()


async def test_a_lease_is_held_until_the_last_slice_is_stored_and_no_longer(tmp_path: Path) -> None:
    driver = await long_thread(tmp_path / "m.db")
    owned: list[int] = []

    async def leased() -> int:
        return len(await driver.store.read(leases.list_leases, driver.engine.record_id, driver.clock.now()))

    released = driver.engine.observation.leases

    class Watching(ScriptedObserver):
        async def observe(self, request: ObserveInput) -> ObserveResult:
            owned.append(await leased())
            return await super().observe(request)

    driver.engine.set_models(Watching(), driver.reflector)
    writes = driver.store.written
    assert await driver.engine.observe_rest()
    assert len(owned) > 2 and set(owned) == {1}
    assert await leased() == 0
    # the turn's lease twice, this one once, a commit for each slice: its release takes none of its own
    assert driver.store.written - writes == len(owned) + 3
    assert await driver.engine.reflect_now()
    assert await leased() == 0
    assert not released._ended
    await driver.close()
