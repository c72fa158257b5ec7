"""The memory pane's forecast and its failures, on real numbers."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sakti.agent.reports.memory_report import (
    STEPS,
    describe_ready_observations,
    format_context,
    format_forecast,
    name_current_work,
)
from sakti.agent.session.queries import ContextBlock
from sakti.core.events import Backlog, BufferedObservations, BufferedReflection, Gauge, MemoryOperation, ModelChanged
from sakti.store.log import lines as memory_figures
from sakti.store.log.lines import Figures
from sakti.tui.app import SaktiApp
from sakti.tui.screens.text import make_event_blocks
from tests.fakes.memory import Driver, ScriptedObserver, settings
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene

NONE = BufferedObservations()


@pytest.mark.parametrize(
    ("turn", "change", "says"),
    [
        (1_000, {"buffered_observations": NONE}, "observes in about 3 turns"),
        (2_600, {"buffered_observations": NONE}, "observes in about 1 turn"),
        (None, {"buffered_observations": NONE}, ""),
        (0, {"buffered_observations": NONE}, ""),
        (1_000, {"buffered_observations": NONE, "next_buffer_at": None}, "observes in about 10 turns"),
        (1_000, {"buffered_observations": NONE, "messages": Gauge(24_000, 30_000)}, ""),
        (1_000, {"buffered_observations": BufferedObservations(status="running")}, ""),
        (1_000, {}, "frees 15.4k · in about 10 turns"),
        (None, {}, "frees 15.4k"),
        (1_000, {"messages": Gauge(31_000, 30_000)}, "frees 15.4k · at the next step"),
        (1_000, {"buffered_observations": BufferedObservations(2, 900, 0, 90)}, "observes in about 3 turns"),
        (1_000, {"backlog": Backlog(9, 1, None, paused=True)}, ""),
        (1_000, {"retry_at": NOW}, ""),
        (1_000, {"phase": "suspended"}, ""),
        (1_000, {"phase": "paused"}, ""),
        (1_000, {"phase": "off"}, ""),
        (1_000, {"phase": "read-only"}, ""),
    ],
)
def test_the_forecast_is_what_is_known(tmp_path, turn, change, says):
    assert format_forecast(replace(scene(tmp_path).current.status, **change), turn) == says


def test_a_forecast_does_not_move_with_every_turn(tmp_path):
    now = replace(scene(tmp_path).current.status, buffered_observations=NONE)
    said = [format_forecast(now, 2_600 // n) for n in (10, 12, 13, 11, 9, 8)]
    assert set(said) == {"observes in about 10 turns"}


@pytest.mark.parametrize(
    ("tokens", "window", "about", "says"),
    [
        (24_000, 200_000, False, "context 24.0k of 200k"),
        (3_500, 200_000, True, "context ≈3.5k of 200k"),
        (900, 0, False, "context 900, limit unknown"),
        (900, None, True, "context ≈900, limit unknown"),
    ],
)
def test_the_context_is_told_with_its_limit(tokens, window, about, says):
    assert format_context(tokens, window, about=about) == says


async def test_the_limit_of_a_thread_that_is_continued_is_looked_up(running, session):
    session.first_model = ModelChanged("openai/bench", "OPENAI_API_KEY", None)
    session.views.blocks = [ContextBlock("messages", "messages", 900, "…", cached=False)]
    async with running((140, 40)) as (app, pilot):
        assert session.calls.count(("learn",)) == 1
        assert "context 900 of 200k" in screen_text(app)
        await session.set_model("openai/another")
        session.emit(ModelChanged("openai/third", "/model", None))
        await settle(app, pilot)
        assert "context 900 of 200k" in screen_text(app)


async def test_an_empty_thread_looks_no_limit_up(running, session):
    session.first_model = ModelChanged("openai/bench", "OPENAI_API_KEY", None)
    async with running((140, 40)) as (app, _):
        assert ("learn",) not in session.calls and "limit unknown" not in screen_text(app)


def test_what_is_ready_is_told_in_words(tmp_path):
    now = scene(tmp_path).current.status
    assert describe_ready_observations(now, Figures(ready_lines=5)) == "5 observations will free 15.4k"
    assert describe_ready_observations(now, Figures(ready_lines=1)) == "1 observation will free 15.4k"
    assert describe_ready_observations(now, None) == "observations will free 15.4k"
    nothing = replace(now, buffered_observations=BufferedObservations(2, 900, 0, 90))
    assert describe_ready_observations(nothing, Figures(ready_lines=5)) == "5 observations ready", (
        "never that it frees 0"
    )
    assert describe_ready_observations(replace(now, buffered_observations=BufferedObservations()), Figures()) == ""
    assert (
        describe_ready_observations(replace(now, phase="suspended"), Figures(ready_lines=5)) == "5 observations ready"
    )


def test_memory_says_what_it_does_in_a_word(tmp_path):
    now = scene(tmp_path).current.status
    running = BufferedObservations(status="running")
    assert name_current_work(replace(now, buffered_observations=running)) == "observing"
    assert name_current_work(replace(now, phase="paused")) == "paused"
    assert name_current_work(replace(now, buffered_reflection=BufferedReflection(status="running"))) == "reflecting"
    assert name_current_work(replace(now, buffered_reflection=BufferedReflection(), phase="idle")) == ""


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_the_pane_shows_what_is_sent_and_names_what_is_not(running, session, size):
    status = scene("/w").current.status
    full = {"messages": Gauge(31_100, 8_000), "observations": Gauge(18_900, 10_700), "phase": "backing off"}
    session.current.status = replace(status, **full, unsent=24_600, unsent_observations=4_500)
    async with running(size) as (app, pilot):
        session.emit(session.current.status)
        await settle(app, pilot)
        if size == (80, 24):
            assert "6.5k/8k +24.6k not sent" in screen_text(app).split("\n")[0]
            await pilot.press("f2")
            await settle(app, pilot)
        pane = [line.rpartition("│")[2] for line in screen_text(app).split("\n")]
        shown = re.sub(r"\s+", " ", " ".join(pane))
        assert "6.5k of 8k" in shown and "14.4k of 10.7k" in shown
        assert "24.6k not sent: no room. /compact observes them" in shown
        assert "4.5k not sent: the oldest; search finds them" in shown and "…" not in shown
        assert max(len(run) for line in pane for run in re.findall("[█▒░┃]+", line)) >= 8


async def test_notes_show_as_soon_as_they_are_made(running, session):
    session.views.lines = log()
    session.views.waiting = [replace(x, id=f"w{x.id}", state="buffered") for x in session.views.lines[-2:]]
    session.views.figures = Figures(ready_lines=2)
    async with running((140, 40)) as (app, pilot):
        session.emit(replace(scene("/w").current.status, record_id="another"))
        await settle(app, pilot)
        text = screen_text(app)
        before, divider, after = text.partition(" not yet in the context ")
        assert divider and "frees 15.4k" in before
        last = session.views.lines[-1].content[:16]
        assert last in after and last in before, "as it is in the log, and waiting for it"
        session.views.lines = [*session.views.lines, *session.views.waiting]
        session.views.waiting = []
        session.emit(MemoryOperation("observation", "end", "c", "observation", "another", (), {}, {}))
        await settle(app, pilot)
        assert "not yet in the context" not in screen_text(app)


async def test_the_forecast_comes_from_the_turns_that_were(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"answer {n} " * 40 for n in range(3))))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "one")
        assert "observes in about" not in screen_text(app), "one turn is no rate"
        await say(app, pilot, "two")
        thread = app.session.thread.id
        tokens = await store.read(memory_figures.compute_average_turn, thread)
        total = app.session.current.status.messages.tokens
        assert tokens == total // 2
        left = app.session.current.status.next_buffer_at - total
        near = min(STEPS, key=lambda step: max(left / tokens / step, step * tokens / left))
        assert f"observes in about {near} turn" in screen_text(app)


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


@pytest.mark.parametrize("number", [20, 80])
async def test_the_reason_of_a_failure_is_wrapped_and_read_in_full_on_enter(running, session, number):
    reason = " ".join(f"word{n}" for n in range(number))
    async with running((120, 35)) as (app, pilot):
        session.emit(scene("/w").current.status)
        fields = {"error": reason, "failed_at": NOW}
        session.emit(MemoryOperation("activation", "failed", "c", "reflection", "r", (), {}, fields))
        await settle(app, pilot)
        pane = " ".join("".join(s.text for s in line).strip() for line in app.chat.sidebar.memory._build_lines(38))
        assert (reason in pane) == (number == 20) and (" …" in pane) == (number == 80)
        _, text = make_event_blocks(app.chat.sidebar.memory.all_events()[0], (), ())
        assert text.get_plain_text() == reason


async def test_the_pane_shows_reason_and_time(running, session):
    async with running((140, 40)) as (app, pilot):
        session.emit(MemoryOperation("buffering", "failed", "c", "observation", "r", (), {}, {"error": "rate limit"}))
        session.emit(replace(scene("/w").current.status, retry_at=NOW + 61_000))
        await settle(app, pilot)
        assert "✗ observation failed: rate limit" in screen_text(app)
        assert "next try at 12:01:01 at the latest" in screen_text(app)
        await pilot.press("f2", "enter")
        assert "again at 12:01:01 at the latest" in screen_text(app)
        session.workspace.clock.now = lambda: NOW + 61_000
        await pilot.press("x", "backspace")
        assert "rate limit" in screen_text(app) and "again at" not in screen_text(app)
        await pilot.press("escape")
        session.emit(replace(scene("/w").current.status, retry_at=NOW - 1, phase="backing off"))
        await settle(app, pilot)
        assert "next try" not in screen_text(app) and "backing off" not in screen_text(app)
        session.emit(replace(scene("/w").current.status, record_id="another"))
        await settle(app, pilot)
        assert "failed" not in screen_text(app) and not app.chat.sidebar.memory.all_events(), "another thread's memory"
