"""The memory pane's forecast and its failures, on real numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sakti.agent.reports.memory_report import forecast
from sakti.core.events import Backlog, BufferedObservations, Gauge, MemoryOperation
from sakti.store.log import figures as memory_figures
from sakti.tui.app import SaktiApp
from tests.fakes.memory import Driver, ScriptedObserver, settings
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import scene


@pytest.mark.parametrize(
    ("turn", "change", "says"),
    [
        (1_000, {}, "observes in about 3 turns"),
        (2_600, {}, "observes in about 1 turn"),
        (None, {}, ""),
        (0, {}, ""),
        (1_000, {"next_buffer_at": None}, "observes in about 9 turns"),
        (1_000, {"messages": Gauge(24_000, 30_000)}, ""),
        (1_000, {"backlog": Backlog(9, 1, None, paused=True)}, ""),
        (1_000, {"buffered_observations": BufferedObservations(status="running")}, ""),
        (1_000, {"retry_at": NOW}, ""),
    ],
)
def test_the_forecast_is_what_is_known(tmp_path, turn, change, says):
    assert forecast(replace(scene(tmp_path).status, **change), turn) == says


async def test_the_forecast_comes_from_the_turns_that_were(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"answer {n} " * 40 for n in range(3))))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "one")
        assert "observes in about" not in screen_text(app), "one turn is no rate"
        await say(app, pilot, "two")
        thread = app.session.thread.id
        tokens = await store.read(memory_figures.turn_tokens, thread)
        total = app.session.status.messages.tokens
        assert tokens == total // 2
        left = app.session.status.next_buffer_at - total
        assert f"observes in about {-(-left // tokens)} turns" in screen_text(app)


async def test_a_failure_says_when_it_is_tried_again(tmp_path):
    driver = await Driver.make(
        tmp_path / "x.db", settings(700, buffer_tokens=0.3), observer=ScriptedObserver(fail=lambda n: n == 1)
    )
    assert driver.engine.status().retry_at is None
    for n in range(3):
        await driver.turn(f"question {n}", [{"text": f"answer {n} " * 60}])
        await driver.engine.wait_idle()
        if driver.engine.status().retry_at is not None:
            break
    assert driver.clock.now() < driver.engine.status().retry_at <= driver.clock.now() + 60_000
    driver.clock.advance(120)
    await driver.turn("more", [{"text": "and more " * 60}])
    await driver.engine.wait_idle()
    assert driver.engine.status().retry_at is None
    await driver.close()


async def test_the_pane_shows_reason_and_time(running, session):
    async with running((140, 40)) as (app, pilot):
        session.emit(MemoryOperation("buffering", "failed", "c", "observation", "r", (), {}, {"error": "rate limit"}))
        session.emit(replace(scene("/w").status, retry_at=NOW + 61_000))
        await settle(app, pilot)
        assert "✗ observation failed: rate limit" in screen_text(app)
        assert "again at 12:01:01 at the latest" in screen_text(app)
        session.emit(replace(scene("/w").status, record_id="another"))
        await settle(app, pilot)
        assert "failed" not in screen_text(app) and not app.chat.sidebar.memory.all_events(), "another thread's memory"
