"""The board over the whole screen, on a real database."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from sakti.agent.session.queries import Views
from sakti.core.types import Message, TextPart, Thread
from sakti.store.threads import messages, threads
from sakti.tasks import service
from sakti.tasks.queries import load_board as read_board
from sakti.tasks.service import Actor
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.task_card import TaskCardScreen, TreeScreen
from tests.tui.conftest import screen_text, settle
from tests.tui.test_search_screen import hit


@pytest.fixture
def board(session, store):
    """A session whose tasks are in a database."""
    session.workspace.store = store
    real = Views(session)
    for name in ("board", "board_version", "task", "task_messages"):
        setattr(session.views, name, getattr(real, name))
    return Actor(session.workspace.resource_id, "agent-1", session.workspace.clock.now())


async def open_board(app, pilot):
    app.chat.panes.open_board()
    await settle(app, pilot)
    assert isinstance(app.screen, BoardScreen)
    return app.screen


async def reload_soon(app, pilot):
    """What the clock does once a second."""
    app.screen.reload_soon()
    await settle(app, pilot)


async def test_the_columns_say_what_blocks_and_who_works(running, board, store):
    await store.write(service.create, board, service.NewTask("a", "first thing"))
    await store.write(service.create, board, service.NewTask("b", "second thing", depends_on=["a"]))
    await store.write(service.create, board, service.NewTask("c", "third thing"))
    claimed, _ = await store.write(service.claim, board, "c")
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        text = screen_text(app)
        for part in ("Ready  1", "Blocked  1", "In progress  1", "Done today  0", "agent-1", "← first thing"):
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
    first = await store.write(service.create, board, service.NewTask("a", "alpha"))
    second = await store.write(service.create, board, service.NewTask("b", "beta"))
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


async def test_a_blocker_is_named_by_title_or_by_number_where_several_match(running, board, store):
    for task_id, title in (("a", "login form"), ("b", "login tests"), ("c", "deploy")):
        await store.write(service.create, board, service.NewTask(task_id, title))
    async with running((140, 30)) as (app, pilot):
        screen = await open_board(app, pilot)
        for text, reply in (
            ("nothing", "No task is called “nothing”."),
            ("login", r"1 t\w+ login form, 2 t\w+ login tests"),
        ):
            screen._list("ready").move_to(2)
            await pilot.press("d", *text, "enter")
            await settle(app, pilot)
            assert re.search(reply, screen_text(app)) and "sakti" not in screen._result and "`" not in screen._result
        assert "enter save" in screen_text(app) and "d waits for" not in screen_text(app)
        await pilot.press("2", "enter")
        await settle(app, pilot)
        assert "← login tests" in screen_text(app)
        assert re.search(r"\bt\w+ waits for t\w{2,6}\.", screen._result)
        screen._list("ready").move_to(1)
        await pilot.press("d", *"login form", "enter")
        await settle(app, pilot)
        assert "← login form" in screen_text(app)


async def test_a_title_of_several_tasks_names_none_of_them(running, board, store):
    for task_id, title in (("a", "add"), ("b", "add"), ("c", "deploy")):
        await store.write(service.create, board, service.NewTask(task_id, title))
    async with running((140, 30)) as (app, pilot):
        screen = await open_board(app, pilot)
        screen._list("ready").move_to(2)
        await pilot.press("d", *"add", "enter")
        await settle(app, pilot)
        assert re.search(r"“add” could be 1 t\w+ add, 2 t\w+ add", screen_text(app))


async def test_notes_and_keys_of_the_board_end_with_what_they_are_about(running, board, store):
    async with running((140, 30)) as (app, pilot):
        screen = await open_board(app, pilot)
        assert "c claim" not in screen_text(app), "there is no card"
        await pilot.press("n", *"a task", "enter")
        await settle(app, pilot)
        assert screen._result and "c claim" in screen_text(app)
        await pilot.press("right")
        await settle(app, pilot)
        assert not screen._result and "c claim" not in screen_text(app)
        await pilot.press("left", "n")
        await settle(app, pilot)
        shown = screen_text(app)
        assert shown.count("enter save") == 1
        assert not [key for key in ("c claim", "n new", "u undo", "esc back") if key in shown]
        await pilot.press("escape")
        await settle(app, pilot)
        shown = screen_text(app)
        assert "enter save" not in shown and "c claim" in shown and "n new" in shown


async def test_what_another_process_does_shows_and_the_cursor_stays(running, board, store):
    await store.write(service.create, board, service.NewTask("b", "beta"))
    async with running((120, 30)) as (app, pilot):
        screen = await open_board(app, pilot)
        await store.write(service.create, board, service.NewTask("a", "urgent", priority=0))
        await reload_soon(app, pilot)
        assert "urgent" in screen_text(app)
        assert screen._list("ready").current.title == "beta"


async def test_enter_shows_what_was_said_and_nothing_is_markup(running, board, store):
    await store.write(service.create, board, service.NewTask("a", "[/red] [@click=app.quit]x[/] \x1b]52;c;x\x07"))
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
        assert isinstance(app.screen, TaskCardScreen)
        text = screen_text(app)
        assert "about it" in text and "status" in text and "history" in text and "create" in text
        assert "\x1b" not in text
        await pilot.press("c")
        await settle(app, pilot)
        assert "is yours" in screen_text(app) and "in progress" in screen_text(app) and "r release" in screen_text(app)
        await pilot.press("o")  # not for what is not closed
        await settle(app, pilot)
        assert "in progress" in screen_text(app)
        await store.write(service.close, board, "a", "completed", "mended **whole**", force=True)
        app.screen.on_mount()
        await settle(app, pilot)
        assert "closed, completed" in screen_text(app) and "mended **whole**" in screen_text(app)
        await click_on(app, pilot, "o reopen")
        assert "is open again" in screen_text(app)
        await pilot.press("t")
        await settle(app, pilot)
        assert isinstance(app.screen, TreeScreen)


async def test_a_task_that_was_found_opens_whole_where_the_board_has_it_no_more(running, board, store, session):
    await store.write(service.create, board, service.NewTask("a", "mend the redirect", description="it loses ?next="))
    await store.write(service.close, board, "a", "completed", "safe_next in session.py")
    session.views.hits = [hit("a", kind="task", thread=None, text="mend the redirect")]
    async with running((120, 30)) as (app, pilot):
        app.chat.sidebar.tasks.task_list.set_rows([])  # closed long ago
        await app.chat.search.go_to(session.views.hits[0])
        await settle(app, pilot)
        assert isinstance(app.screen, TaskCardScreen)
        assert "safe_next in session.py" in screen_text(app) and "it loses ?next=" in screen_text(app)


async def click_on(app, pilot, words, times=1):
    """Click the place on the screen where `words` stand."""
    for y, line in enumerate(screen_text(app).split("\n")):
        if words in line:
            await pilot.click(offset=(line.index(words) + 1, y), times=times)
            await settle(app, pilot)
            return
    raise AssertionError(f"{words!r} is not on the screen")


async def test_everything_goes_by_mouse_too(running, board, store):
    await store.write(service.create, board, service.NewTask("a", "alpha"))
    await store.write(service.create, board, service.NewTask("b", "beta"))
    async with running((100, 24)) as (app, pilot):
        screen = await open_board(app, pilot)
        await click_on(app, pilot, "beta")
        assert screen._list("ready").current.title == "beta"
        await click_on(app, pilot, "c claim")
        assert "is yours" in screen_text(app)
        await click_on(app, pilot, "beta")  # in its new column
        assert screen.column.id == "board-in_progress"
        assert "you · just now" in screen_text(app)
        await click_on(app, pilot, "r release")
        assert "In progress  0" in screen_text(app)
        await click_on(app, pilot, "alpha")
        await click_on(app, pilot, "x close")
        await pilot.press(*"done", "enter")
        await settle(app, pilot)
        assert "Done today  1" in screen_text(app)
        await click_on(app, pilot, "alpha")
        await click_on(app, pilot, "o reopen")
        assert "Done today  0" in screen_text(app)
        await click_on(app, pilot, "n new")
        await pilot.press(*"gamma", "enter")
        await settle(app, pilot)
        await click_on(app, pilot, "gamma")
        await click_on(app, pilot, "del delete")
        assert "Undo restores it" in screen_text(app)
        assert screen_text(app).count("gamma") == 1, "the notice names it, no column has it"
        await click_on(app, pilot, "u undo")
        assert "gamma" in screen_text(app)
        await click_on(app, pilot, "esc back")
        assert app.screen is not screen


async def test_a_task_is_deleted_and_its_dependants_are_free_until_undo(running, board, store):
    await store.write(service.create, board, service.NewTask("a", "alpha"))
    await store.write(service.create, board, service.NewTask("b", "beta", depends_on=["a"]))
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        await pilot.press("delete")
        await settle(app, pilot)
        assert "was deleted. Unblocked: t" in screen_text(app)
        assert "Ready  1" in screen_text(app)
        assert "Blocked  0" in screen_text(app)
        await pilot.press("u")
        await settle(app, pilot)
        assert "Blocked  1" in screen_text(app)


async def test_the_tree_of_a_task_shows_both_ways_and_goes_on(running, board, store):
    await store.write(service.create, board, service.NewTask("e", "epic", type="epic"))
    await store.write(service.create, board, service.NewTask("a", "alpha"))
    await store.write(service.create, board, service.NewTask("b", "beta", depends_on=["a"], parent="e"))
    await store.write(service.create, board, service.NewTask("c", "gamma [/red]", depends_on=["b"]))
    await store.write(service.depend, board, "c", "a", "blocks")
    await store.write(service.depend, board, "b", "c", "related")
    async with running((100, 24)) as (app, pilot):
        await open_board(app, pilot)
        await pilot.press("t")  # alpha is the only one ready
        await settle(app, pilot)
        assert isinstance(app.screen, TreeScreen)
        text = screen_text(app)
        assert "Dependencies of t" in text
        rows = [(b.depth, b.relation, b.task.title, b.again) for b in app.screen.branches.rows]
        assert rows == [
            (0, "", "alpha", False),
            (1, "blocks", "beta", False),
            (2, "blocks", "gamma [/red]", False),
            (1, "blocks", "gamma [/red]", True),
        ]
        assert "gamma [/red]  (see above)" in text
        await pilot.press("down", "enter")
        await settle(app, pilot)
        rows = [(b.relation, b.task.title) for b in app.screen.branches.rows]
        assert rows == [
            ("", "beta"), ("waits for", "alpha"), ("part of", "epic"), ("blocks", "gamma [/red]"),
            ("related", "gamma [/red]"),
        ]  # fmt: skip
        await click_on(app, pilot, "epic", times=2)
        assert [b.relation for b in app.screen.branches.rows] == ["", "has part", "blocks"]
        await pilot.press("escape")
        await click_on(app, pilot, "t tree")
        assert isinstance(app.screen, TreeScreen)


async def test_what_the_agent_makes_shows_at_once(running, board, store):
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        await store.write(service.create, board, service.NewTask("a", "made by the agent"))
        app.chat.panes.load_board()  # what its event does
        await settle(app, pilot)
        assert "made by the agent" in screen_text(app)


@pytest.mark.parametrize("size", [(80, 24), (40, 10), (200, 50), (1, 1)])
async def test_it_fits_and_nothing_breaks(running, board, store, size):
    await store.write(
        service.create, board, service.NewTask("a", "a very long title that does not fit on a line 修复 🐛 " * 5)
    )
    async with running(size) as (app, pilot):
        screen = await open_board(app, pilot)
        for key in ("right", "left", "t", "escape", "n", "escape"):
            await pilot.press(key)
            await settle(app, pilot)
        assert app.screen is screen
        if size[0] >= 80:
            text = screen_text(app)
            assert "enter open" in text
            assert "esc back" in text
            assert "…" in text


async def test_the_pane_names_who_works(running, board, store):
    await store.write(service.create, board, service.NewTask("a", "alpha"))
    await store.write(service.claim, board, "a")
    async with running((120, 30)) as (app, _):
        assert "agent-1" in screen_text(app)


async def test_the_time_since_a_claim_goes_on(running, board, store, session, monkeypatch):
    await store.write(service.create, board, service.NewTask("a", "alpha"))
    await store.write(service.claim, board, "a")
    async with running((120, 30)) as (app, pilot):
        await open_board(app, pilot)
        assert "agent-1 · just now" in screen_text(app)
        later = session.workspace.clock.now() + 5 * 60_000
        monkeypatch.setattr(session.workspace.clock, "now", lambda: later)
        await reload_soon(app, pilot)
        assert "agent-1 · 5 min" in screen_text(app)


async def test_what_another_chat_holds_is_changed_after_a_y(running, board, store):
    await store.write(threads.create, Thread("other", board.resource_id, "fix login", 1, 1))
    await store.write(service.create, board, service.NewTask("a", "alpha"))
    await store.write(service.claim, replace(board, session_id="other", thread_id="other"), "a")
    async with running((140, 30)) as (app, pilot):
        await open_board(app, pilot)
        assert "fix login · just now" in screen_text(app)
        await pilot.press("right", "right", "x", *"done", "enter")
        await settle(app, pilot)
        assert 'claimed by the thread "fix login"' in screen_text(app)
        assert "In progress  1" in screen_text(app)
        await pilot.press("n", "enter")  # anything but a y leaves it
        await settle(app, pilot)
        assert "In progress  1" in screen_text(app)
        await pilot.press("r")
        await settle(app, pilot)
        await pilot.press("y", "enter")
        await settle(app, pilot)
        assert "In progress  0" in screen_text(app)
        assert "is open again" in screen_text(app)


async def test_containers_and_blocked_claims_have_their_place(running, board, store):
    await store.write(service.create, board, service.NewTask("e", "the epic", type="epic"))
    child = await store.write(service.create, board, service.NewTask("c", "the child", parent="e"))
    await store.write(service.create, board, service.NewTask("b", "the blocker"))
    await store.write(service.claim, board, "c")
    await store.write(service.depend, board, "c", "b")
    async with running((140, 34)) as (app, pilot):
        assert "◦ P2 the epic  waits" in screen_text(app)  # in the pane, too
        await open_board(app, pilot)
        text = screen_text(app)
        assert "Blocked  0 · 1 container" in text
        assert "waits for its child" in text
        assert "agent-1 · just now · ← the b" in text
        await pilot.press("right", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, TaskCardScreen)
        assert "its child" in screen_text(app) and child.handle in screen_text(app)


async def test_a_column_longer_than_what_is_read_says_how_much_more(running, board, store, session, monkeypatch):
    for n in range(5):
        await store.write(service.create, board, service.NewTask(f"t{n}", f"task {n}"))

    async def few():
        return await store.read(read_board, session.workspace.resource_id, 0, 2)

    monkeypatch.setattr(session.views, "board", few)
    async with running((140, 30)) as (app, pilot):
        assert "and 3 more" in screen_text(app)
        await open_board(app, pilot)
        assert "Ready  5 · and 3 more" in screen_text(app)
