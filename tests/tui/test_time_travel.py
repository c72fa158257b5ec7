"""The log's past in its pane, its filter and folds, and panes that are made wider."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sakti.store.log.events import LogChange
from sakti.tui.app import SaktiApp
from sakti.tui.panes.bars import find_moment, get_cell
from sakti.tui.panes.observations import DateRow, make_log_rows, passes_filter
from tests.tui.conftest import screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene
from tests.tui.test_snapshots import THEMES, posed

MINUTE = 60_000


def past():
    return [
        LogChange(NOW, "observation"),
        LogChange(NOW + MINUTE, "observation"),
        LogChange(NOW + 2 * MINUTE, "reflection", 1),
    ]


def pane_title(app):
    return str(app.chat.sidebar.observations.title.render())


async def press(app, pilot, *keys):
    await pilot.press(*keys)
    await settle(app, pilot)


async def test_the_past_is_what_the_log_was_and_is_left_alone(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"Decided: queue {n} uses redis {n}." for n in range(9))))
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(app, pilot)
        for turn in range(3):
            await say(app, pilot, *(f"remember that service {turn} listens on port {turn}00{n}" for n in range(3)))
            store.clock.advance(60)
            await app.session.compact()
            await settle(app, pilot)
        pane = app.chat.sidebar.observations
        now = await app.session.views.observations()
        moments = await app.session.views.moments()
        assert len(moments) == 3 and pane.time_bar.display
        pane.log_list.focus()
        await press(app, pilot, "left_square_bracket")
        assert "PAST" in pane_title(app)
        await press(app, pilot, "left_square_bracket", "left_square_bracket", "left_square_bracket")
        first = await app.session.views.log_at(moments[0].time)
        assert 0 < len(first) < len(now)
        assert [r.id for r in pane.log_list.rows if not isinstance(r, DateRow)] == [x.id for x in first]
        await press(app, pilot, "home", "x", "p", "u", "e")
        assert not pane.edit_box.has_class("-open")
        assert await app.session.views.observations() == now, "nothing was changed from the past"
        app.chat.panes.load_log()
        await settle(app, pilot)
        assert "PAST" in pane_title(app), "what comes in now does not end the look at the past"
        await press(app, pilot, "right_square_bracket")
        assert len(pane.log_list.rows) > len(first)
        await press(app, pilot, "escape")
        assert "PAST" not in pane_title(app)
        assert [r.id for r in pane.log_list.rows if not isinstance(r, DateRow)] == [x.id for x in now]
        await press(app, pilot, "home", "p")
        assert (await app.session.views.observations())[0].pinned
        await app.session.undo_compaction()
        await settle(app, pilot)
        assert app.chat.sidebar.observations.log_list.rows


async def test_the_bar_is_picked_by_mouse(running, session):
    session.views.lines, session.views.past = log(), past()
    async with running((140, 40)) as (app, pilot):
        bar = app.chat.sidebar.observations.time_bar
        assert "◆" in screen_text(app) and "○" in screen_text(app)
        await pilot.press("f3")
        await pilot.click(bar, offset=(get_cell(0, 3, bar.size.width), 0))
        await settle(app, pilot)
        assert "PAST 01-15 12:00" in screen_text(app) and "▼" in screen_text(app)
        assert len(app.chat.sidebar.observations.log_list.rows) == 2
        await pilot.click(bar, offset=(bar.size.width - 2, 0))
        await settle(app, pilot)
        assert "PAST" not in screen_text(app)


async def test_a_new_thread_has_no_past(running, session):
    session.views.lines, session.views.past = log(), past()
    async with running((140, 40)) as (app, pilot):
        app.chat.sidebar.observations.travel_to(0)
        await settle(app, pilot)
        session.views.lines, session.views.past = [], []
        await session.new_thread()
        await settle(app, pilot)
        assert "PAST" not in screen_text(app)
        assert not app.chat.sidebar.observations.time_bar.display


@given(st.integers(2, 500), st.integers(5, 80))
def test_every_cell_of_the_bar_is_some_moment(count, width):
    cells = [get_cell(i, count, width) for i in range(count + 1)]
    assert cells == sorted(cells) and cells[0] >= 1 and cells[-1] == width - 2
    for x in range(width):
        at = find_moment(x, count, width)
        assert at is None or 0 <= at < count
    assert find_moment(width - 1, count, width) is None or len(set(cells)) < len(cells)
    if count < width - 3:
        assert [find_moment(c, count, width) for c in cells[:-1]] == list(range(count))


def nested():
    top, *rest = log()[3:6]
    children = [replace(top, id=f"n{n}", depth=1, content=f"detail {n}", category="") for n in range(4)]
    doubtful = replace(top, flags=("path src/nowhere.py",), category="attempts")
    return [doubtful, *children, *[replace(x, depth=0) for x in rest]]


async def test_nested_lines_are_folded_and_unfolded_with_the_doubts(running, session):
    session.views.lines = nested()
    async with running((140, 40)) as (app, pilot):
        pane = app.chat.sidebar.observations
        assert "detail 0" not in screen_text(app) and "▸4" in screen_text(app) and "?1" in screen_text(app)
        pane.log_list.focus()
        await press(app, pilot, "home", "space")
        assert "detail 3" in screen_text(app)
        assert "? path src/nowhere.py" in screen_text(app)
        await press(app, pilot, "space")
        assert "detail 0" not in screen_text(app)
        await press(app, pilot, "slash", *"detail 2")
        assert "detail 2" in screen_text(app)


def test_the_filter_takes_categories_and_doubts():
    lines = nested()
    assert [x.id for x in lines if passes_filter(x, "#att")] == [lines[0].id]
    assert [x.id for x in lines if passes_filter(x, "?")] == [lines[0].id]
    assert not [x for x in lines if passes_filter(x, "? #other")]
    assert [r.text for r in make_log_rows(lines, "detail 1") if not isinstance(r, DateRow)] == ["detail 1"]


async def test_panes_are_made_wider_by_key_and_by_mouse_and_stay_so(running, session):
    session.views.lines = log()
    async with running((140, 40)) as (app, pilot):
        side = app.chat.sidebar
        width = side.outer_size.width
        side.observations.log_list.focus()
        await press(app, pilot, "greater_than_sign")
        assert side.outer_size.width == width + 4
        await press(app, pilot, "less_than_sign", "less_than_sign")
        assert side.outer_size.width == width - 4
        await pilot.mouse_down(offset=(side.region.x, 20))
        await pilot.hover(offset=(80, 20))
        await pilot.mouse_up(offset=(80, 20))
        await settle(app, pilot)
        assert side.region.x == 80
        assert session.views.state["panes"].endswith("width=60")


@pytest.mark.parametrize(("width", "window", "shown"), [(60, 140, 60), (999, 110, 80), (5, 120, 24)])
async def test_a_width_that_was_kept_leaves_room_for_the_chat(running, session, width, window, shown):
    session.views.state["panes"] = f"memory log tasks width={width}"
    async with running((window, 40)) as (app, _):
        assert app.chat.sidebar.outer_size.width == shown
        assert app.chat.sidebar.observations.display


@pytest.mark.parametrize("theme", THEMES)
def test_past_picture(snap_compare, theme):
    session = scene(Path("/work"))
    session.views.past = past()

    async def travel(pilot):
        await posed(theme)(pilot)
        pilot.app.chat.sidebar.observations.travel_to(1)
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=(120, 35), run_before=travel)
