"""A slow or failing model of memory does not hold up a turn."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sakti.core.events import Notice
from sakti.core.tokens import Estimator
from sakti.memory.factory import SLOW_REST_MS, FallbackObserver
from sakti.memory.jobs.observation import Patience
from sakti.memory.observe.extractive import ExtractiveObserver
from sakti.memory.state import TURN_WAIT_S
from tests.fakes.clock import FakeClock
from tests.fakes.memory import Driver, ScriptedObserver, settings

LONG = "word " * 300


def notices(driver: Driver) -> list[str]:
    return [e.message for e in driver.events if isinstance(e, Notice)]


async def silent(tmp_path: Path, **values: Any) -> tuple[Driver, asyncio.Event]:
    """A driver whose Observer answers when the event is set, and whose turns wait no time for it."""
    observer = ScriptedObserver()
    observer.gate = asyncio.Event()
    driver = await Driver.make(tmp_path / "t.db", settings(600, 20_000, **values), observer=observer)
    driver.engine._patience = Patience(0.0)
    return driver, observer.gate


@pytest.mark.parametrize("buffering", [{}, {"buffer_tokens": False}])
async def test_turns_go_on_while_the_observer_hangs(tmp_path: Path, buffering: dict[str, Any]) -> None:
    driver, gate = await silent(tmp_path, **buffering)
    driver.check = lambda _prepared: None
    for n in range(6):
        await driver.turn(f"turn {n} {LONG}", [{"text": "answer"}])
    assert [m.text.split()[1] for m in driver.engine.preview().messages if m.role == "user"][-1] == "5"
    assert len([text for text in notices(driver) if "has not answered" in text]) == 1
    assert "has not answered" in driver.engine.status().note
    gate.set()
    await driver.engine.wait_idle()
    await driver.turn("and now", [{"text": "answer"}])
    await driver.engine.wait_idle()
    await driver.turn("once more", [{"text": "answer"}])
    assert driver.engine.state.window.active, "the late answer was used"
    assert driver.engine.status().note == ""
    await driver.close()


@pytest.mark.parametrize("buffering", [{}, {"buffer_tokens": False}])
async def test_the_extractive_observer_stands_in_for_one_that_hangs(tmp_path: Path, buffering: dict[str, Any]) -> None:
    model, counter, clock = ScriptedObserver(), Estimator(), FakeClock()
    model.gate = asyncio.Event()
    observer = FallbackObserver(model, ExtractiveObserver(counter), clock)
    values = settings(600, 20_000, **buffering)
    driver = await Driver.make(tmp_path / "t.db", values, observer=observer, counter=counter, clock=clock)
    driver.engine._patience.limit = 0.05
    driver.check = lambda _prepared: None
    for n in range(6):
        await driver.turn(f"The port of service {n} is {9000 + n}. {LONG}", [{"text": "answer"}])
    log = "\n".join(g.text for g in driver.engine.state.window.active)
    assert "port of service 0 is 9000" in log and "port of service 2 is 9002" in log
    assert len([text for text in notices(driver) if "has not answered for 0.05 seconds" in text]) == 1
    assert "could not observe" in driver.engine.status().reason
    later = FallbackObserver(model, ExtractiveObserver(counter), clock)  # as another process makes it
    driver.engine.set_models(later, driver.engine._worker.reflector)
    assert driver.engine.status().reason == "scripted could not observe"
    asked = len(model.inputs)
    model.gate.set()
    clock.advance(SLOW_REST_MS / 1000)
    await driver.turn(f"and now {LONG}", [{"text": "answer"}])
    await driver.engine.wait_idle()
    assert len(model.inputs) > asked and driver.engine.status().reason == "", "it is asked again later"
    await driver.close()


async def test_a_failure_is_shown_once(tmp_path: Path) -> None:
    driver = await Driver.make(tmp_path / "t.db", settings(600, 20_000), observer=ScriptedObserver(lambda _: True))
    for n in range(6):
        await driver.turn(f"turn {n} {LONG}", [{"text": "answer"}])
        await driver.engine.wait_idle()
    assert len([text for text in notices(driver) if "tries again later" in text]) == 1
    assert "rate limit" in driver.engine.status().note
    await driver.close()


async def test_the_waits_of_a_turn_share_one_limit() -> None:
    patience = Patience(0.05)
    job = asyncio.create_task(asyncio.Event().wait())
    assert not await patience.wait(job) and patience.is_over
    other = asyncio.create_task(asyncio.Event().wait())
    assert not await patience.wait(other)
    assert patience._left <= 0.0
    patience.renew()
    assert patience._left == patience.limit
    for task in (job, other):
        task.cancel()
    await asyncio.gather(job, other, return_exceptions=True)
    assert not patience.is_over
    assert TURN_WAIT_S <= 15
