"""The screen on a real session: a real database, a scripted model, real tools."""

from __future__ import annotations

import asyncio
import re
from weakref import WeakKeyDictionary

import pytest

from sakti.agent.session.session import Options, Session
from sakti.core.config import load
from sakti.core.events import TurnFinished
from sakti.core.tokens import Estimator
from sakti.core.types import ModelInfo
from sakti.providers.scripted import Answer, Call, ScriptedProvider
from sakti.store.database import Store
from sakti.tui.app import SaktiApp
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.real import say

ENDED: WeakKeyDictionary[Session, asyncio.Queue[TurnFinished]] = WeakKeyDictionary()


@pytest.fixture
def make(store, clock, tmp_path):
    workspace = tmp_path / "work"
    workspace.mkdir()

    def build(*answers, overrides=(), **options):
        counter = Estimator()
        provider = ScriptedProvider(answers, clock=clock, count=counter.count)
        config = load(overrides=("memory.model=extractive", *overrides)).config
        chosen = Options(workspace, config, env={"PATH": "/usr/bin:/bin"}, **options)
        model = ModelInfo("demo", "scripted", context_window=200_000)
        session = Session(chosen, clock=clock, counter=counter, provider=provider, model=model, store=store)
        ENDED[session] = asyncio.Queue()
        session.subscribe(lambda e: ENDED[session].put_nowait(e) if isinstance(e, TurnFinished) else None)
        return session

    build.workspace = workspace
    return build


async def turn(app, pilot):
    """Until the turn that was asked for has ended and is drawn."""
    async with asyncio.timeout(30):
        await ENDED[app.session].get()
    await settle(app, pilot)


async def test_a_conversation_with_a_tool_is_shown_and_shown_again(make):
    (make.workspace / "notes.txt").write_text("one\ntwo\n")
    session = make(Answer("Looking.", calls=(Call("read", {"path": "notes.txt"}),)), "There are **two** lines.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await pilot.press(*"how many lines?", "enter")
        await turn(app, pilot)
        text = chat_text(app)
        assert "how many lines?" in text
        assert "read  notes.txt" in text
        assert "There are two lines." in text
        assert app.chat.sidebar.memory.status is not None
        assert app.chat.sidebar.memory.status.messages.tokens > 0
        assert app.chat.header.thread_title == "how many lines?"
        live = [line.strip() for line in text.split("\n") if line.strip() and not line.startswith(("you", "sakti"))]
    again = SaktiApp(make(continue_last=True))
    async with again.run_test(size=(120, 35)) as pilot:
        await settle(again, pilot)
        stored = chat_text(again).split("\n")
        assert [line.strip() for line in stored if line.strip() and not line.startswith(("you", "sakti"))] == live


async def test_an_approval_runs_what_was_approved(make, clock):
    session = make(Answer("", calls=(Call("bash", {"command": "touch made.txt"}),)), "Done.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await pilot.press(*"make it", "enter")
        for _ in range(200):
            await pilot.pause()
            if session.approvals:
                break
        await settle(app, pilot)
        assert "touch made.txt" in screen_text(app)
        assert not (make.workspace / "made.txt").exists()
        await clock.sleep(1)
        await pilot.press("y")
        await turn(app, pilot)
        assert (make.workspace / "made.txt").exists()
        assert app.focused is app.chat.prompt
        assert "Done." in chat_text(app)


async def test_compact_search_context_and_undo(make):
    session = make(*(f"Answer {n} about the scheduler in src/queue{n}.py." for n in range(6)))
    app = SaktiApp(session)
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(app, pilot)
        for number in range(6):
            await pilot.press(*f"question {number}", "enter")
            await turn(app, pilot)
        await pilot.press(*"/compact", "enter")
        await settle(app, pilot)
        assert "Compacted" in chat_text(app)
        assert app.chat.sidebar.observations.log_list.rows
        await pilot.press(*"/compact undo", "enter")
        await settle(app, pilot)
        assert "Compaction undone" in chat_text(app)
        await pilot.press(*"/search queue3", "enter")
        await settle(app, pilot)
        assert "found" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "src/queue3.py" in screen_text(app)
        await pilot.press(*"/context", "enter")
        await settle(app, pilot)
        assert "tokens" in screen_text(app)


async def test_a_failing_model_is_said_clearly_and_can_be_asked_again(make):
    session = make(Answer(error="authentication", message="The key was refused."), "Now it works.")
    app = SaktiApp(session)
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await pilot.press(*"hello", "enter")
        await turn(app, pilot)
        assert "F5 retries" in chat_text(app)
        await pilot.press("f5")
        await turn(app, pilot)
        assert "Now it works." in chat_text(app)


async def test_a_shell_line_shows_its_output_once(make):
    app = SaktiApp(make())
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await pilot.press(*"!echo hel''lo", "enter")
        await settle(app, pilot)
        assert "!echo hel''lo" in chat_text(app)
        assert chat_text(app).count("      hello") == 1, "whole, without a key"
        await pilot.press("ctrl+o")
        assert "      hello" not in chat_text(app) and "ctrl+o ▸" in chat_text(app)


async def test_what_is_not_kept_says_so_all_the_time(make, store):
    app = SaktiApp(make("Hello.", overrides=("memory.read_only=true",)))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await pilot.press(*"hi there", "enter")
        await turn(app, pilot)
        assert "Hello." in chat_text(app)
        assert "NOT SAVED" in screen_text(app)
        await pilot.press(*"#use tabs", "enter")
        await settle(app, pilot)
        assert "no page of" in " ".join(chat_text(app).split())
        assert "memory is read-only: nothing is" in screen_text(app)
    await app.session.close()
    assert await store.read(lambda db: db.execute_sql("SELECT count(*) FROM messages").fetchone()) == (0,)


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
async def test_chat_continues_in_memory_after_its_database_was_removed(make, store, tmp_path, size):
    app = SaktiApp(make("Hello.", "And again."))
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await pilot.press(*"hi there", "enter")
        await turn(app, pilot)
        assert "NOT SAVED" not in screen_text(app)
        store.path.unlink()
        await pilot.press(*"second", "enter")
        await turn(app, pilot)
        assert "was removed while it was in use" in " ".join(chat_text(app).split())
        assert "And again." in chat_text(app)
        first, *_, last = screen_text(app).splitlines()
        assert "NOT SAVED" in first and "NOT SAVED" in last
        await pilot.press(*f"/backup {tmp_path / 'copy.db'}", "enter")
        await settle(app, pilot)
        assert "sakti -c" in chat_text(app)
    await app.session.close()
    saved = await Store.open(tmp_path / "copy.db")
    rows = await saved.read(lambda db: db.execute_sql("SELECT sakti_text(raw_content, parts) FROM messages").fetchall())
    assert [text for (text,) in rows] == ["hi there", "Hello.", "second", "And again."]
    await saved.close()


async def test_health_shows_problems_in_colour(running, session, monkeypatch):
    from sakti.agent.reports import doctor

    async def examine(*_args, **_more):
        found = [doctor.CheckResult("fine", True, "good"), doctor.CheckResult("rg", False, "missing", optional=True)]
        return [*found, doctor.CheckResult("db", False, "broken:", "mend it.")]

    monkeypatch.setattr(doctor, "examine", examine)
    async with running() as (app, pilot):
        app.run_command("/doctor")
        await settle(app, pilot)
        block = app.chat.transcript.document.blocks[-1]
        assert block.findings == ("✗ db: broken: mend it.", "! rg: missing", "✓ fine: good")
        signs = {s.text.strip(): s.style for line in block.render(60, app.palette) for s in line if s.style}
        assert signs["✗"] == app.palette.bad and signs["!"] == app.palette.warn and signs["✓"] == app.palette.ok


async def test_an_answer_reads_the_same_live_and_after_a_reload(make):
    (make.workspace / "a.txt").write_text("one\n")
    asked = Answer("I look.", calls=(Call("read", {"path": "a.txt"}),))
    app = SaktiApp(make(asked, "First answer.", "Second answer."))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first", "second")
        live = chat_text(app)
        assert len(re.findall(r"^sakti  \d\d:\d\d$", live, re.MULTILINE)) == 2
        await app.chat.view.load()
        await settle(app, pilot)
        assert chat_text(app) == live
