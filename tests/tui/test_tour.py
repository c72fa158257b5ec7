"""The tour, played through: its tools and its memory are real, it says that it is played, and it is never chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent.tour import ANSWERS, FILES, FIRST, NAME, WAITING, make_tour_session
from sakti.core.events import ModelChanged
from sakti.core.tokens import Estimator
from sakti.core.types import ToolResultPart
from sakti.tui.app import SaktiApp
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.real import real_session, say
from tests.tui.scene import scene
from tests.tui.test_snapshots import SIZES, THEMES, posed


async def test_the_tour_from_its_first_prompt_to_its_end(tmp_path, clock):
    session = make_tour_session(tmp_path, env={"PATH": "/usr/bin:/bin"}, clock=clock, pace=0.0)
    session.workspace.counter = Estimator()
    app = SaktiApp(session)
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, FIRST)
        assert "no model is asked" in chat_text(app)
        assert NAME in screen_text(app), "the line above says that no model answers"
        await say(app, pilot, "remember that we deploy on Fridays", "where is the redirect?")
        await app.session.current.engine.wait_idle()
        await settle(app, pilot)
        said = await session.views.transcript(session.thread.id)
        results = [p for m in said for p in m.parts if isinstance(p, ToolResultPart)]
        assert [r.name for r in results] == ["ls", "read", "grep"]
        assert not any(r.is_error for r in results)
        assert "session.py" in results[0].content and "redirect" in results[2].content
        app.run_command("/compact")
        await settle(app, pilot)
        notes = [x.content for x in await session.views.observations()]
        assert any("User stated: we deploy on Fridays" in n for n in notes), notes
        assert any("session.py:4-7 `login(request)`" in n for n in notes), notes
        assert not any("**" in n or "Let me search for it" in n or "Three things" in n for n in notes), notes
        assert (await session.views.search("fridays")).hits
        await say(app, pilot, "is it done yet?", "another prompt")
        assert "That is the tour" not in chat_text(app), "only the user ends it"
        await say(app, pilot, "Done.", "and more")
        assert chat_text(app).count("That is the tour") == 1
        app.run_command("/compact")
        await settle(app, pilot)
        notes = [x.content for x in await session.views.observations()]
        assert any('session.py:7 `return redirect("/")`' in n for n in notes), notes
        assert {p.name for p in session.workspace.root.iterdir()} == set(FILES), "nothing was changed"
    await session.close()


def test_every_answer_but_tools_says_what_to_do_next():
    for answer in (*ANSWERS, WAITING):
        assert answer.calls or "write:" in answer.text or "for example:" in answer.text


async def test_without_a_model_the_tour_is_offered_and_not_begun(store, tmp_path):
    session = real_session(store, tmp_path / "w")
    session.workspace.models.__init__(session.workspace.config, {}, session.emit)
    app = SaktiApp(session)
    async with app.run_test(size=(140, 45)) as pilot:
        await settle(app, pilot)
        assert "/tour" in chat_text(app) and "/setup downloads" in chat_text(app)
        assert session.workspace.models.provider is None


def test_the_command_needs_a_terminal(monkeypatch, capsys):
    from sakti.cli.start import run_cli

    with pytest.raises(SystemExit) as ended:
        run_cli(["tour"])
    assert ended.value.code == 2
    assert "terminal" in capsys.readouterr().err


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
def test_without_a_model_picture(snap_compare, size, theme):
    session = scene(Path("/work"))
    session.views.messages.clear()
    session.first_model = ModelChanged(None, "no key, no local server, no local model")
    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=posed(theme))
