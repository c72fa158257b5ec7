"""The board over the whole screen, on a real database."""

from __future__ import annotations

import pytest

from sakti.agent.views import Views
from sakti.core.types import Message, TextPart, Thread
from sakti.store import messages, threads
from sakti.tasks import service
from sakti.tasks.service import Actor
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.text import SourceScreen
from tests.tui.conftest import screen_text, settle


@pytest.fixture
def board(session, store):
    """A session whose tasks are in a database."""
    session.store = store
    real = Views(session)
    for name in ("board", "board_version", "task_messages"):
        setattr(session.views, name, getattr(real, name))
    return Actor(session.resource_id, "agent-1", session.clock.now())


async def open_board(app, pilot):
    app.sidebar.tasks.open_board()
    await settle(app, pilot)
    assert isinstance(app.screen, BoardScreen)
    return app.screen


async def look(app, pilot):
    """What the clock does once a second."""
    app.screen._look()
    await settle(app, pilot)


async def test_the_columns_say_what_blocks_and_who_works(running, board, store):
    await store.write(service.create, board, "a", "first thing")
    await store.write(service.create, board, "b", "second thing", depends_on=["a"])
    await store.write(service.create, board, "c", "third thing")
    claimed, _ = await store.write(service.claim, board, "c")
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        text = screen_text(app)
        for part in ("Ready  1", "Blocked  1", "In progress  1", "Done today  0", "agent-1", "← t"):
            assert part in text
        assert claimed.handle in text
        await pilot.press("escape")
        assert not isinstance(app.screen, BoardScreen)


async def test_tasks_are_made_claimed_closed_and_taken_back_by_keys(running, board, store):
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        await pilot.press("n", *"write docs", "enter")
        await settle(app, pilot)
        assert "write docs" in screen_text(app)
        await pilot.press("c")
        await settle(app, pilot)
        assert "In progress  1" in screen_text(app)
        await pilot.press("right", "right", "x", "enter")  # no summary: refused, and said
        await settle(app, pilot)
        assert "needs a summary" in screen_text(app)
        await pilot.press("x", *"all of it", "enter")
        await settle(app, pilot)
        assert "Done today  1" in screen_text(app)
        await pilot.press("right", "o")
        await settle(app, pilot)
        assert "Ready  1" in screen_text(app)
        await pilot.press("u")
        await settle(app, pilot)
        assert "Done today  1" in screen_text(app)


async def test_dependency_and_filter_and_a_refused_cycle(running, board, store):
    first = await store.write(service.create, board, "a", "alpha")
    second = await store.write(service.create, board, "b", "beta")
    async with running((140, 30)) as (app, pilot):
        screen = await open_board(app, pilot)
        await pilot.press("d", *second.handle, "enter")
        await settle(app, pilot)
        assert "Blocked  1" in screen_text(app)
        await pilot.press("d", *first.handle, "enter")
        await settle(app, pilot)
        assert "cycle" in screen_text(app)
        await pilot.press("slash", *"bet", "enter")
        await settle(app, pilot)
        assert "alpha" not in screen_text(app)
        assert screen._list("ready").current.title == "beta"


async def test_what_another_process_does_shows_and_the_cursor_stays(running, board, store):
    await store.write(service.create, board, "b", "beta")
    async with running((120, 30)) as (app, pilot):
        screen = await open_board(app, pilot)
        await store.write(service.create, board, "a", "urgent", priority=0)
        await look(app, pilot)
        assert "urgent" in screen_text(app)
        assert screen._list("ready").current.title == "beta"


async def test_enter_shows_what_was_said_and_nothing_is_markup(running, board, store):
    await store.write(service.create, board, "a", "[/red] [@click=app.quit]x[/] \x1b]52;c;x\x07")
    await store.write(threads.create, Thread("th", board.resource_id, "", 1, 1))
    await store.write(messages.append, Message("m", "th", board.resource_id, "user", (TextPart("about it"),), 1))
    await store.write(service.link, board, "a", "m")
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        assert "[/red] [@click=app.quit]x[/]" in screen_text(app).replace("…", "")[:20_000] or "[/red]" in screen_text(
            app
        )
        assert "\x1b" not in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert isinstance(app.screen, SourceScreen)
        assert "about it" in screen_text(app)
