"""The panes' heights and folding, by keys and by mouse; the last events and all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from sakti.agent.reports.memory_report import describe_event
from sakti.core.events import MemoryOperation
from sakti.store.log import events as memory_events
from sakti.store.log.events import MemoryEvent
from sakti.store.threads.fork import CarriedLine
from sakti.tui.app import SaktiApp
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.task_card import TaskCardScreen
from sakti.tui.screens.text import MemoryEventsScreen, ReadScreen
from tests.fakes.memory import Driver, ScriptedObserver, settings
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene
from tests.tui.test_safety import EVIL, check
from tests.tui.test_snapshots import posed


async def press(app, pilot, *keys):
    await pilot.press(*keys)
    await settle(app, pilot)


async def drag(pilot, at, to):
    await pilot.mouse_down(offset=at)
    if to != at:
        await pilot.hover(offset=to)
    await pilot.mouse_up(offset=to)
    await pilot.pause()


async def test_heights_and_folding_by_key_and_by_mouse_stay(running, session):
    session.views.lines = log()
    session.current.status = scene("/work").current.status
    async with running((140, 44)) as (app, pilot):
        side = app.chat.sidebar
        x = side.region.x + 6
        tasks, memory = side.tasks.outer_size.height, side.memory.size.height
        side.tasks.task_list.focus()
        await press(app, pilot, "plus", "plus", "plus")
        assert side.tasks.outer_size.height == tasks + 3
        side.observations.log_list.focus()
        await press(app, pilot, "plus")
        assert side.tasks.outer_size.height == tasks + 2
        side.memory.focus()
        await press(app, pilot, "minus")
        assert side.memory.size.height == memory - 1
        # the title of a pane takes the line above it along
        at = side.observations.region.y
        await drag(pilot, (x, at), (x, at + 4))
        await settle(app, pilot)
        assert side.observations.region.y == at + 4
        at = side.tasks.region.y
        await drag(pilot, (x, at), (x, at - 5))
        await settle(app, pilot)
        assert side.tasks.region.y == at - 5
        await drag(pilot, (x, side.tasks.region.y), (x, 0))  # far over all: what stands there keeps its lines
        await settle(app, pilot)
        assert side.observations.size.height == 3 and side.observations.region.y > side.memory.region.bottom - 1
        assert side.tasks.region.bottom == side.region.bottom
        tasks = side.tasks.size.height
        await pilot.resize_terminal(140, 24)
        await settle(app, pilot)
        assert side.tasks.region.bottom == side.region.bottom and side.tasks.size.height < tasks
        await pilot.resize_terminal(140, 44)
        await settle(app, pilot)
        assert side.tasks.size.height == tasks, "what was set by hand comes back with the room for it"
        # a click on a title folds, another unfolds
        await pilot.click(offset=(x, side.observations.region.y))
        await settle(app, pilot)
        assert side.observations.size.height == 1 and "▸ Observations" in screen_text(app)
        assert log()[0].content[:12] not in screen_text(app)
        await pilot.click(offset=(x, side.memory.region.y))
        await settle(app, pilot)
        assert side.memory.size.height == 1 and "▸ Memory" in screen_text(app)
        kept = session.views.state["panes"]
        assert "folded=memory folded=log" in kept and "tasks=" in kept and "memory=" in kept
        await press(app, pilot, "f2")  # the key of a folded pane unfolds it
        assert side.memory.size.height > 1 and side.memory.display
        side.restore(kept)
        assert side.state == kept
        await settle(app, pilot)
        assert side.memory.size.height == side.observations.size.height == 1
        await pilot.click(offset=(x, side.observations.region.y))
        await settle(app, pilot)
        side.observations.log_list.focus()
        await press(app, pilot, "f")
        assert side.observations.size.height == 1 and app.focused is app.chat.prompt


async def test_the_last_events_are_in_the_pane_and_all_on_a_screen(store, tmp_path):
    session = real_session(
        store,
        tmp_path / "w",
        *(f"The port of api {n} is 80{n}0, " + "as before. " * 30 for n in range(6)),
        overrides=("memory.observation.message_tokens=500",),
    )
    app = SaktiApp(session)
    async with app.run_test(size=(140, 50)) as pilot:
        await settle(app, pilot)
        app.chat.sidebar.memory.focus()
        await press(app, pilot, "enter")
        assert isinstance(app.screen, MemoryEventsScreen) and "No events yet." in screen_text(app)
        await press(app, pilot, "escape")
        app.chat.prompt.focus()
        for n in range(6):
            await say(app, pilot, f"remember that service {n} listens on {n}00 " + "and more of it " * 10)
            await session.current.engine.wait_idle()
            await settle(app, pilot)
            store.clock.advance(60)
        await app.chat.conversation.run("/compact")
        await app.chat.conversation.run("/compact undo")
        await settle(app, pilot)
        session.emit(
            MemoryOperation(
                "buffering", "failed", "c", "observation", "r", (), {}, {"error": EVIL, "failed_at": NOW + 9_000_000}
            )
        )
        await settle(app, pilot)
        kinds = {e.kind for e in app.chat.sidebar.memory.all_events()}
        assert {"observed", "activated", "compacted", "undone", "failed"} <= kinds
        pane = "\n".join(row[-38:] for row in check(app).split("\n"))
        assert "✗ observation failed" in pane and "↶ compaction undone" in pane
        await pilot.click(app.chat.sidebar.memory, offset=(3, 4), times=2)
        await settle(app, pilot)
        assert "▣ compacted" in check(app) and "● observed" in screen_text(app)
        await press(app, pilot, *"observed", "enter")
        assert isinstance(app.screen, ReadScreen)
        assert "remember that service" in check(app) and "extractive" in screen_text(app)
        await press(app, pilot, "escape", "escape", "escape")


async def test_events_are_what_the_rows_say(tmp_path):
    driver = await Driver.make(
        tmp_path / "x.db", settings(900, observation_tokens=220, buffer_tokens=0.3), observer=ScriptedObserver()
    )
    for n in range(14):
        await driver.turn(f"question {n}", [{"text": f"answer {n} " * 50}])
        await driver.engine.wait_idle()
        driver.clock.advance(60)
    await driver.engine.undo_reflection()
    found = await driver.store.read(memory_events.list_events, driver.engine.record_id, "t1", 500)
    assert [e.time for e in found] == sorted((e.time for e in found), reverse=True)
    count = {kind: sum(e.kind == kind for e in found) for kind in {e.kind for e in found}}
    ends = [e for e in driver.of(MemoryOperation) if e.kind == "end" and e.operation_type == "observation"]
    assert count["observed"] == len(ends) and count["taken_back"] == 1
    assert count["reflected"] >= count["taken_over"] >= 1
    status = driver.engine.status()
    assert count["taken_over"] - count["taken_back"] == status.generation_count
    active = [e for e in found if e.kind == "activated"]
    total = await driver.store.read(
        lambda db: db.execute_sql(
            "SELECT sum(json_array_length(message_ids)) FROM observation_groups"
            " WHERE kind = 'observation' AND activated_at IS NOT NULL"
        ).fetchone()
    )
    assert sum(e.messages for e in active) == total[0]
    await driver.close()


def test_events_in_words():
    event = MemoryEvent(NOW, "observed", 4, 3, 18_100, 1_900)
    assert describe_event(event) == "observed 4 messages → 3 lines, 18.1k → 1.9k"
    assert describe_event(structs.replace(event, kind="reflected")) == "reflected 18.1k → 1.9k"
    failed = MemoryEvent(NOW, "failed", text="observation failed: rate limit")
    assert describe_event(failed, NOW + 61_000).endswith("rate limit, again at 12:01:01 at the latest")


def happened():
    ids = ("g1",)
    return [
        MemoryEvent(NOW + 240_000, "failed", text="observation failed: rate limit exceeded"),
        MemoryEvent(NOW + 180_000, "observed", 6, 3, 6_100, 640, group_ids=ids),
        MemoryEvent(NOW + 120_000, "taken_over", 0, 4, 8_200, 3_000, 2, ids),
        MemoryEvent(NOW + 100_000, "reflected", 0, 4, 8_200, 3_000, 2, ids),
        MemoryEvent(NOW + 60_000, "activated", 38, 12, 18_100, 1_900, group_ids=ids),
        MemoryEvent(NOW, "undone", 38, 0, 3_900, 21_400, group_ids=ids, text="the redirect"),
        MemoryEvent(NOW - 60_000, "compacted", 38, 0, 21_400, 3_900, group_ids=ids, text="the redirect"),
    ]


def card():
    message = {"id": "m", "thread_id": "t1", "role": "user", "index": 0, "relation": "output", "text": "…"}
    return {
        "task": {
            "id": "a", "handle": "sk-a1", "title": "fix login redirect",
            "status": "closed", "priority": 1, "type": "bug",
            "description": "?next= is lost after login.", "close_reason": "completed", "labels": ["auth", "web"],
            "summary": "login() uses safe_next(request) in src/auth/session.py; other hosts go to /.",
        },
        "isBlocked": False,
        "blockingTasks": [],
        "dependencies": [{"task": "sk-d4", "dependsOn": "sk-a1", "type": "blocks", "status": "closed"}],
        "messages": [message],
        "history": [
            {"action": "close", "actor": "agent", "time": NOW}, {"action": "create", "actor": "user:you", "time": NOW}
        ],
    }  # fmt: skip


@pytest.mark.parametrize(("size", "theme"), [((80, 24), "sakti-light"), ((160, 50), "sakti-dark")])
@pytest.mark.parametrize("name", ["events", "task", "panes"])
def test_pictures(snap_compare, size, theme, name):
    session = scene(Path("/work"))
    session.views.happened = happened()

    async def task(task_id):
        return card()

    async def said(task_id):
        return session.views.messages["t1"][:2]

    session.views.task, session.views.task_messages = task, said

    async def open_it(pilot):
        app = pilot.app
        await posed(theme)(pilot)
        if name == "panes":  # memory alone with its events, or the log folded
            app.chat.sidebar.fold("log")
            app.chat.sidebar.toggle("tasks")
            app.chat.action_pane("memory") if app.chat.sidebar.narrow else None
        else:
            app.push_screen(MemoryEventsScreen(happened(), NOW + 300_000) if name == "events" else TaskCardScreen("a"))
        await settle(app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=open_it)


async def test_lines_of_earlier_threads_come_first_and_x_removes_them(running, session):
    session.views.lines = log()
    session.views.carried = [
        CarriedLine(0, "thread", "t0", "Last thread: Deploys"),
        CarriedLine(1, "line", "o1", "* deploys are on Fridays"),
        CarriedLine(2, "task", "k1", "Open task: S-1 Write a README (open)"),
    ]
    async with running((140, 40)) as (app, pilot):
        text = screen_text(app)
        assert text.index("From this workspace") < text.index("○ deploys are on Fridays") < text.rindex("12:")
        app.chat.browse("log")
        await pilot.press("home", "down", "x")
        await settle(app, pilot)
        assert [c.is_removed for c in session.views.carried] == [False, True, False]
        assert "removed:" in screen_text(app) and "restores it" in screen_text(app)
        await pilot.press("x")
        await settle(app, pilot)
        assert not any(c.is_removed for c in session.views.carried) and "removed:" not in screen_text(app)


async def test_tasks_opens_the_board_when_the_pane_is_shown(running, session):
    async with running((140, 40)) as (app, pilot):
        app.chat.panes.hide("tasks")
        app.run_command("/tasks")
        await settle(app, pilot)
        assert app.chat.sidebar.shows("tasks") and not isinstance(app.screen, BoardScreen)
        app.run_command("/tasks")
        await settle(app, pilot)
        assert isinstance(app.screen, BoardScreen)


async def test_tasks_opens_the_board_in_a_narrow_window(running, session):
    async with running((80, 24)) as (app, pilot):
        app.run_command("/tasks")
        await settle(app, pilot)
        assert isinstance(app.screen, BoardScreen)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not app.chat.sidebar.open_panes
