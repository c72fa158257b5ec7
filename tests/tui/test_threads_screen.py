"""The threads screen: open, rename, fork, delete and take back, export."""

from __future__ import annotations

import pytest

from sakti.agent.session.queries import ThreadSummary
from sakti.agent.threads import erasure as removal
from sakti.core.types import Thread
from sakti.store.search import search
from sakti.store.threads import removal as thread_removal
from sakti.tui.app import SaktiApp
from sakti.tui.screens.threads import ForkScreen, ThreadsScreen
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW, assistant, user
from tests.tui.real import real_session, say
from tests.tui.scene import scene
from tests.tui.test_snapshots import SIZES, THEMES, posed


async def title(app):
    return str(app.screen.query_one("#panel-title").render())


async def opened(app, pilot):
    await pilot.press("ctrl+t")
    await settle(app, pilot)
    assert isinstance(app.screen, ThreadsScreen)
    return app.screen


def told(app):
    """All of the transcript in one line."""
    return " ".join(chat_text(app).split())


async def press(app, pilot, *keys):
    await pilot.press(*keys)
    await settle(app, pilot)


async def test_a_running_turn_is_not_left_for_another_thread(running, session):
    session.views.all_threads = [ThreadSummary(Thread("t2", "r", "another", 0, 0), "hi", 2, 10)]
    async with running((120, 35)) as (app, pilot):
        await session.submit("go")
        await opened(app, pilot)
        await press(app, pilot, "enter")
        assert session.busy and session.thread.id != "t2"
        assert "wait, or stop it with Esc, then open another thread" in told(app)


async def test_rename_fork_delete_and_take_back(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "In the attic.", "In the cellar.", "Nowhere."))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "where is the xylophone", "and the zither")
        first = app.session.thread.id
        screen = await opened(app, pilot)
        await press(app, pilot, "ctrl+r")
        assert "enter save" in screen_text(app) and "^o fork" not in screen_text(app)
        await press(app, pilot, "ctrl+a", "ctrl+k", *"instruments", "enter")
        assert "enter save" not in screen_text(app) and "^o fork" in screen_text(app)
        assert "Renamed to 'instruments'" in await title(app)
        assert app.chat.header.thread_title == "instruments"
        await press(app, pilot, "ctrl+o")
        assert isinstance(app.screen, ForkScreen)
        assert "up to which message" in screen_text(app)
        await press(app, pilot, "down", "down", "enter")  # the first answer
        assert app.screen is screen
        assert "Forked with 2 messages" in await title(app)
        assert [r.messages for r in screen.result_list.rows] == [2, 4]
        await press(app, pilot, "enter")
        assert app.session.thread.metadata["forked_from"] == first
        assert "In the attic." in chat_text(app)
        assert "zither" not in chat_text(app)
        await opened(app, pilot)
        await press(app, pilot, "ctrl+d")
        assert "again deletes" in await title(app) and "2 messages" in await title(app)
        assert app.screen.result_list.rows[0].thread.id == app.session.thread.id
        await press(app, pilot, "ctrl+d")
        assert "Deleted" in await title(app)
        assert [r.messages for r in app.screen.result_list.rows] == [4]
        assert app.session.thread.id not in (first, ""), "a new thread began where the open one went"
        await press(app, pilot, "ctrl+y")
        assert "Restored" in await title(app)
        assert sorted(r.messages for r in app.screen.result_list.rows) == [2, 4]
        await press(app, pilot, "ctrl+y")
        assert "No thread of this workspace is deleted" in await title(app)


async def test_moving_on_forgets_that_deleting_was_asked(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "one", "two"))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first")
        await app.session.new_thread()
        await say(app, pilot, "second")
        await opened(app, pilot)
        await press(app, pilot, "ctrl+d")
        await press(app, pilot, "down")
        assert "again" not in await title(app)
        await press(app, pilot, "ctrl+d")
        assert len(app.screen.result_list.rows) == 2
        assert "again deletes 'first'" in await title(app)


async def test_typed_into_a_thread_that_was_removed_elsewhere(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "one", "two"))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first")
        await store.write(thread_removal.delete_thread, app.session.thread.id, 9)
        await removal.purge(store, before=1 << 60, do=True)
        for text in ("again", "!ls", "#note"):
            app.chat.prompt.clear()
            await press(app, pilot, *text, "enter")
            assert "This thread was removed in another window. /new starts a new one" in told(app), text
            assert app.chat.prompt.value == text
        app.chat.prompt.clear()
        await press(app, pilot, *"/compact", "escape", "enter")
        assert "This thread was removed in another window. /new starts a new one" in told(app)
        app.chat.prompt.clear()
        await press(app, pilot, *"/new", "escape", "enter")
        await press(app, pilot, *"again", "enter")
        await app.session.wait()
        await settle(app, pilot)
        assert "two" in chat_text(app)


async def test_a_message_is_deleted_when_it_was_named_and_confirmed(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "In the attic.", "In the cellar."))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "where is the xylophone", "and the zither")

        async def send(text):
            app.chat.prompt.clear()
            await press(app, pilot, *text, "escape", "enter")

        await send("/delete-message yes")
        assert "Name a message first" in told(app)
        await send("/delete-message 4")
        assert "deletes your message 'where is the xylophone' (a call with" in told(app)
        assert "xylophone" in chat_text(app)
        await send("/delete-message yes")
        assert "xylophone" not in chat_text(app) and "attic" in chat_text(app)
        assert chat_text(app).count("This message was deleted.") == 1
        assert (await store.read(search.search, "xylophone", search.Scope())).total == 0
        assert "xylophone" not in screen_text(app), "nor is it the thread's title"
        await send("/delete-message 9")
        assert "has 3 messages" in told(app)


async def test_export_by_keys_and_its_refusals(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "**one**"))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "hello there")
        await opened(app, pilot)
        await press(app, pilot, "ctrl+s", "ctrl+a", "ctrl+k", *"out.html", "enter")
        assert "out.html" in await title(app)
        assert "<strong>one</strong>" in (app.session.workspace.root / "out.html").read_text()
        await press(app, pilot, "ctrl+s", "ctrl+a", "ctrl+k", *"out.html", "enter")
        assert "already exists" in await title(app)
        await press(app, pilot, "ctrl+s", "ctrl+a", "ctrl+k", *"out.doc", "enter")
        assert "md, json, html" in await title(app)
        await press(app, pilot, "ctrl+s", "escape")
        assert isinstance(app.screen, ThreadsScreen)
        await press(app, pilot, "escape")
        assert not isinstance(app.screen, ThreadsScreen)


async def test_every_key_below_can_be_clicked(running, session):
    session.views.all_threads = summaries()
    async with running() as (app, pilot):
        screen = await opened(app, pilot)
        done = []
        for name in ("fork", "delete", "restore", "ask", "open"):
            setattr(screen, f"action_{name}", lambda *a, name=name: done.append(name))
        keys = screen.query_one("#panel-keys")
        text = str(keys.render())
        for label in ("enter open", "^r rename", "^o fork", "^d delete", "^y restore", "^s export"):
            await pilot.click(keys, offset=(text.index(label) + 2, 0))
        await settle(app, pilot)
        assert done == ["open", "ask", "fork", "delete", "restore", "ask"]


def summaries():
    threads = [
        Thread("t1", "/work", "fix login redirect", NOW, NOW),
        Thread("t2", "/work", "fix login redirect (fork)", NOW, NOW - 7_200_000, metadata={"forked_from": "t1"}),
        Thread("t3", "/work", "設計 の メモ 🧪 " * 6, NOW, NOW - 3 * 86_400_000),
    ]
    return [
        ThreadSummary(t, "It now uses safe_next, which accepts only paths of this site.", 6 * n, 4_200 * n)
        for n, t in enumerate(threads, 1)
    ]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_threads_picture(snap_compare, size, theme):
    session = scene("/work")
    session.views.all_threads = summaries()
    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=posed(theme, "ctrl+t"))


@pytest.mark.parametrize("size", SIZES)
def test_fork_picture(snap_compare, size):
    session = scene("/work")

    async def open_it(pilot):
        await posed("sakti-dark")(pilot)
        said = [user("u", "the redirect after login loses ?next=", 0), assistant("a", "It uses **safe_next** now.", 1)]
        pilot.app.push_screen(ForkScreen("fix login redirect", said))
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=open_it)


async def test_threads_are_told_apart_and_those_of_scripts_are_marked(running, session):
    made = [("a", "FIXBUG", {}), ("b", "FIXBUG", {"headless": True}), ("c", "what", {})]
    session.views.all_threads = [
        ThreadSummary(Thread(i, "r", title, NOW + n, NOW, metadata=metadata), "done", 2, 90)
        for n, (i, title, metadata) in enumerate(made)
    ]
    async with running() as (app, pilot):
        screen = await opened(app, pilot)
        text = screen_text(app)
        assert "▌" in text, "the chosen row is marked without colours, too"
        assert "FIXBUG (2)" in text and "run · 2 messages" in text and text.count("run ·") == 1
        await press(app, pilot, *"nowhere")
        assert "no thread matches “nowhere”" in screen_text(app) and not screen.result_list.rows
        screen.input.value = "run"
        await settle(app, pilot)
        assert [r.thread.id for r in screen.result_list.rows] == ["b"]


async def test_undone_branches_are_folded_under_their_thread(running, session):
    def summary(thread_id, title, preview, *undone):
        return ThreadSummary(Thread(thread_id, "r", title, NOW, NOW), preview, 2, 90, undone)

    branches = summary("u1", "fix it", "the second try"), summary("u2", "fix it", "the first try")
    session.views.all_threads = [summary("a", "fix it", "works now", *branches), summary("b", "other", "done")]
    async with running() as (app, pilot):
        await opened(app, pilot)
        text = screen_text(app)
        assert "↶ 2 undone branches ^e" in text and "the first try" not in text
        await press(app, pilot, "down", "ctrl+e")
        assert "no undone branches" in screen_text(app)
        await press(app, pilot, "up", "ctrl+e")
        text = screen_text(app)
        assert "↶ the second try" in text and "↶ the first try" in text and "2 undone branches" not in text
        await press(app, pilot, "down", "down", "ctrl+e")
        assert "the first try" not in screen_text(app), "folded from a branch, too"
        await press(app, pilot, "ctrl+e", "down", "enter")
        assert app.screen is app.chat and session.thread.id == "u1"
