"""When the terminal is out of sight: what calls the user back, and what does not."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from textual import events

from sakti.core.config import Config, UiSettings
from sakti.core.events import ApprovalRequested
from sakti.tui.app import SaktiApp
from sakti.tui.desktop import make_notification
from sakti.tui.widgets.safe_input import SafeInput
from tests.tui.conftest import settle
from tests.tui.test_safety import EVIL


@pytest.fixture
def called(monkeypatch):
    out: list[str] = []
    monkeypatch.setattr(SaktiApp, "write", lambda _, text: out.append(text))
    return out


def configure(session, how):
    session.workspace.config = replace(Config(), ui=UiSettings(notify=how))


async def approval(app, session, pilot):
    request = ApprovalRequested("p", "bash", target="rm -r build", cwd="/w", reason="it deletes", rule="", diff="")
    session.approvals = (request,)
    session.emit(request)
    await settle(app, pilot)


@pytest.mark.parametrize("how", ["off", "bell", "desktop"])
async def test_an_approval_calls_only_while_nobody_looks(running, session, called, how):
    configure(session, how)
    async with running() as (app, pilot):
        await approval(app, session, pilot)
        assert called == []
        app.post_message(events.AppBlur())
        await pilot.pause()
        await approval(app, session, pilot)
        wanted = {"off": [], "bell": ["\x07"], "desktop": ["\x1b]9;sakti: Run this command? rm -r build\x07\x07"]}
        assert called == wanted[how]


async def test_the_end_of_a_long_turn_calls_that_of_a_short_one_does_not(running, session, called):
    configure(session, "desktop")
    async with running() as (app, pilot):
        app.post_message(events.AppBlur())
        await pilot.pause()
        for step in (0.5, 30.0):
            session.workspace.clock.step = step
            await session.submit("x")
            await settle(app, pilot)
            session.finish("answer")
            await settle(app, pilot)
        assert called == ["\x1b]9;sakti: The answer is ready\x07\x07"]


def test_nothing_in_a_text_can_end_the_sequence_early():
    written = make_notification("desktop", EVIL + "\n" + EVIL * 40)
    assert written.startswith("\x1b]9;sakti: ") and written.endswith("\x07\x07")
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e]", written[len("\x1b]9;") : -2])


async def test_reduced_motion_stops_what_blinks_and_glides(session):
    session.workspace.config = replace(Config(), ui=UiSettings(reduced_motion=True))
    app = SaktiApp(session)
    async with app.run_test() as pilot:
        assert app.animation_level == "none"
        assert not app.chat.prompt.cursor_blink
        app.chat.search.open()
        await pilot.pause()
        assert not app.screen.query_one(SafeInput).cursor_blink
