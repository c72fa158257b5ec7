"""Two windows on one thread: what is said in the other one shows in this one."""

from __future__ import annotations

import asyncio
import re
import socket

import pytest

from sakti.agent.checkpoints.undoing import make_undoing
from sakti.core.clock import TimeIds
from sakti.core.types import Message, TextPart
from sakti.providers.scripted import Answer, Call
from sakti.store import leases, user_state
from sakti.store.database import Store
from sakti.store.threads import messages, threads
from sakti.tui.app import SaktiApp
from sakti.tui.chat.thread_view import SYNC_LIMIT
from sakti.tui.screens.search_preview import load_passage
from sakti.tui.transcript.tool import ToolBlock
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.real import real_session, say


@pytest.fixture
async def other_store(store, clock, tmp_path):
    """A connection of its own, as another process has."""
    opened = await Store.open(tmp_path / "data" / "sakti.db", clock=clock, ids=TimeIds(clock), synchronous="NORMAL")
    yield opened
    await opened.close()


async def look(app, pilot):
    app.chat.view.sync()
    await settle(app, pilot)


async def test_what_another_window_says_shows_here(store, other_store, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\n")
    session = real_session(store, tmp_path / "work", "First answer.", "Third answer.")
    asked = Answer("I look.", calls=(Call("read", {"path": "a.txt"}),))
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        other = real_session(other_store, tmp_path / "work", asked, "Second answer.", continue_last=True)
        await other.start()
        await other.submit("second question")
        await other.wait()
        assert "second question" not in chat_text(app)
        await look(app, pilot)
        text = chat_text(app)
        order = ("first question", "First answer.", "second question", "I look.", "read  a.txt", "Second answer.")
        assert [text.count(said) for said in order] == [1] * len(order)
        assert sorted(order, key=text.index) == list(order)
        assert "running" not in text
        await look(app, pilot)
        await say(app, pilot, "third question")
        await look(app, pilot)
        text = chat_text(app)
        assert [text.count(said) for said in (*order, "third question", "Third answer.")] == [1] * 8
        await other.close()


async def test_the_figures_follow_what_another_window_says(store, other_store, tmp_path):
    session = real_session(store, tmp_path / "work", "First answer.")
    app = SaktiApp(session)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        other = real_session(other_store, tmp_path / "work", "Second answer. " * 200, continue_last=True)
        await other.start()
        await other.submit("second question " * 200)
        await other.wait()
        await look(app, pilot)
        expected = other.current.engine.status().messages.tokens
        assert session.current.engine.status().messages.tokens == expected > 1_000
        assert app.chat.sidebar.memory.status.messages.tokens == expected
        shown = await session.views.context()
        assert [b.text for b in shown] == [b.text for b in await other.views.context()]
        assert app.chat.status_line.context == sum(b.tokens for b in shown)
        assert "were added to this thread" not in chat_text(app)
        await other.close()


async def test_a_window_far_behind_shows_the_thread_anew(store, other_store, tmp_path):
    session = real_session(store, tmp_path / "work", "First answer.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        turns = SYNC_LIMIT // 2 + 1
        other = real_session(
            other_store, tmp_path / "work", *(f"Answer {n}." for n in range(turns)), continue_last=True
        )
        await other.start()
        for number in range(turns):
            await other.submit(f"question {number} of many")
            await other.wait()
        await look(app, pilot)
        text = chat_text(app)
        assert [text.count(f"question {n} of many") for n in range(turns)] == [1] * turns
        assert text.count("first question") == 1
        await other.close()


async def test_the_panes_follow_what_another_window_does_to_the_memory(store, other_store, tmp_path):
    session = real_session(store, tmp_path / "work", "First answer.", "Second answer.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "The port is 8080.", "second question")
        await look(app, pilot)
        other = real_session(other_store, tmp_path / "work", continue_last=True)
        await other.start()
        pane = app.chat.sidebar.observations
        assert "The port is 8080" not in str(pane._lines)
        await other.compact()
        await look(app, pilot)
        status = app.chat.sidebar.memory.status
        expected = other.current.engine.status().observations.tokens
        assert status is not None and status.observations.tokens == expected > 0
        assert "The port is 8080" in str(pane._lines)
        await other.correct("pin", pane._lines[0].id, "")
        assert not pane._lines[0].pinned
        await look(app, pilot)
        assert pane._lines[0].pinned
        await other.close()


async def test_a_compaction_takes_what_another_window_said(store, other_store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "work", "First answer."))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        other = real_session(other_store, tmp_path / "work", "Second answer.", continue_last=True)
        await other.start()
        await other.submit("remember that the port is 8080")
        await other.wait()
        app.run_command("/compact")
        await settle(app, pilot)
        assert "nothing to compact" not in chat_text(app)
        assert "2 messages," in chat_text(app)
        assert app.session.current.engine.state.window.cursor == 1
        await other.close()


async def test_an_undo_in_another_window_moves_this_one_to_the_thread_that_goes_on(store, other_store, tmp_path):
    session = real_session(store, tmp_path / "work", "First answer.", "Second answer.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question", "second question")
        undone = session.thread.id
        other = real_session(other_store, tmp_path / "work", continue_last=True)
        await other.start()
        await pilot.press(*"draft")
        for count in (1, 0):
            undo = make_undoing(other)
            await undo.undo(await undo.preview())
            await look(app, pilot)
            text = chat_text(app)
            assert session.thread.id == app.chat.view.shown == other.thread.id != undone
            assert text.count("first question") == count and "second question" not in text
            assert text.count("undone in another window") == 1 and app.chat.prompt.text == "draft"
        for count in (1, 2):  # and its redo back
            await make_undoing(other).redo()
            await look(app, pilot)
            text = chat_text(app)
            assert session.thread.id == app.chat.view.shown == other.thread.id
            assert text.count(" question") == count and text.count("redone in another window") == 1
            assert app.chat.prompt.text == "draft"
        assert session.thread.id == undone
        undo = make_undoing(other)
        await undo.undo(await undo.preview())
        await look(app, pilot)
        await session.open_thread(undone)  # on purpose: it stays open
        await settle(app, pilot)
        app.chat.view._version = -1  # another window has written
        await look(app, pilot)
        assert session.thread.id == undone and "second question" in chat_text(app)
        await other.close()


async def test_calls_of_another_window_say_that_they_wait_or_run_there(store, other_store, clock, tmp_path):
    edit = Answer("I write.", calls=(Call("write", {"path": "a.txt", "content": "one\n"}),))
    app = SaktiApp(real_session(store, tmp_path / "work", "First answer."))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        other = real_session(other_store, tmp_path / "work", edit, "Written.", continue_last=True)
        await other.start()
        await other.submit("write it")
        while await app.session.views.other_turn(other.thread.id) != "waiting":
            await pilot.pause()
        await look(app, pilot)
        assert re.search(r"◌ write  a\.txt +waiting for you in another window", chat_text(app))
        hit = (await app.session.views.search("I write")).hits[0]
        passage = await load_passage(app.session.views, hit, "I write")
        assert [(b.state, b.elsewhere) for b in passage.blocks if isinstance(b, ToolBlock)] == [("waiting", True)]
        await app.chat.view.load()
        await settle(app, pilot)
        assert re.search(r"◌ write  a\.txt +waiting for you in another window", chat_text(app)), "as at its opening"
        lease = other.turns._open.running.turn.require.__self__
        lease.show_asking(asks=False)
        await lease._asking
        await look(app, pilot)
        assert re.search(r"● write  a\.txt +running in another window", chat_text(app))
        clock.advance(leases.EXPIRES_MS / 1000 + 1)  # as if its process stood still
        await look(app, pilot)
        assert re.search(r"■ write  a\.txt +stopped", chat_text(app))
        other.resolve(other.approvals[0].id, True)
        await other.wait()
        await look(app, pilot)
        text = chat_text(app)
        assert "another window" not in text and "stopped" not in text and "Written." in text
        assert text.count("sakti  12:") == 2, "a step after a loaded one has no label of its own"
        await other.close()


async def end_process() -> str:
    """Return the owner of leases of a process that was killed."""
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    return f"{socket.gethostname()}:{gone.pid}:x"


async def begin_elsewhere(app, other_store, owner, text=""):
    """Store a turn of another window that has streamed `text`."""
    thread = app.session.thread
    lease = {"record_id": thread.id, "thread_id": thread.id, "owner": owner, "operation_id": "x"}
    now = other_store.clock.now()
    prompt = Message("p2", thread.id, thread.resource_id, "user", (TextPart("second question"),), now)
    assert await other_store.write(leases.acquire, kind="turn", now=now, **lease)
    await other_store.write(messages.append, prompt)
    await other_store.write(user_state.append_answer, thread.resource_id, thread.id, text, now)


@pytest.mark.parametrize("text", ["Half of the ans", ""])
async def test_the_answer_of_a_killed_window_shows_here(store, other_store, tmp_path, text):
    app = SaktiApp(real_session(store, tmp_path / "work", "First answer.", "Second answer."))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        await begin_elsewhere(app, other_store, leases.make_owner(), text)
        await look(app, pilot)
        assert "second question" in chat_text(app) and "Interrupted" not in chat_text(app)
        killed = await end_process()
        await other_store.write(lambda db: db.execute_sql("UPDATE leases SET owner = ?", (killed,)))
        await look(app, pilot)
        await look(app, pilot)
        assert text in chat_text(app)
        assert chat_text(app).count("Interrupted") == 1 and chat_text(app).count("F5 retries") == 1
        await pilot.press("f5")
        await settle(app, pilot)
        assert "Second answer." in chat_text(app)


async def test_a_turn_of_another_window_shows_above_the_refusal_of_ones_own(store, other_store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "work", "First answer."))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        await begin_elsewhere(app, other_store, leases.make_owner())
        app.chat.conversation.submit("and this?")
        await settle(app, pilot)
        text = chat_text(app)
        assert text.index("second question") < text.index("Thread in use")
        assert app.chat.prompt.text == "and this?"


async def test_a_rename_elsewhere_reaches_the_header(store, other_store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "work", "First answer."))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question")
        await other_store.write(threads.rename, app.session.thread.id, "the new name", 1, by_user=True)
        assert "the new name" not in screen_text(app)
        await look(app, pilot)
        assert "the new name" in screen_text(app) and app.session.thread.title_pinned
