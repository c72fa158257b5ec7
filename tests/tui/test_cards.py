"""Cards above the prompt: keys choose, write and send; Esc declines; they fit every terminal."""

from __future__ import annotations

import msgspec
import pytest

from sakti.agent.tools.approvals import Answer
from sakti.core.events import ApprovalRequested, CardAnswer
from tests.tui.conftest import screen_text, settle
from tests.unit.agent.test_cards import card


async def show(app, pilot, session, asked=None):
    session.approvals = (asked or card(),)
    session.emit(session.approvals[0])
    await settle(app, pilot)


async def test_keys_choose_write_and_send(running, session):
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session)
        await pilot.press("2", "enter")
        assert "Where?" in screen_text(app)
        await pilot.press("1", "down", "down", "space", "o", *"lab", "enter")
        await settle(app, pilot)
        assert "✓ Database · ✓ Hosts" in screen_text(app) and "enter Send" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        wanted = (CardAnswer("Database", ("Redis",)), CardAnswer("Hosts", ("home", "cloud"), "lab"))
        assert session.calls[-1] == ("answer", "c", Answer(True, answers=wanted))
        assert not app.chat.conversation.card.display and app.chat.focused is app.chat.prompt


async def test_escape_closes_the_line_first_and_then_declines(running, session):
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session)
        await pilot.press("o", "x", "escape")
        await settle(app, pilot)
        assert not [c for c in session.calls if c[0] == "answer"]
        await pilot.press("enter")  # no answer yet: it stays
        await pilot.press("escape")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "c", Answer(False))


TEXT = "# Store the region\n\nFor taxes.\n\n1. Add the column\n   Files: db.sql\n   Check: make check\n2. Read it"
PLAN = ApprovalRequested("p", "present_plan", "", TEXT, ".")


async def test_a_plan_is_approved_with_a_mode_or_sent_back(running, session):
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session, PLAN)
        assert "Approve this plan?" in screen_text(app) and "Check: make check" in screen_text(app)
        await pilot.press("f", "escape", "a", "2")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "p", Answer(True, mode="edits"))
        await show(app, pilot, session, msgspec.structs.replace(PLAN, id="q"))
        await pilot.press("f")
        await settle(app, pilot)
        app.chat.conversation.card.change_plan(TEXT + " twice")
        await pilot.press("1")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "q", Answer(True, edited=TEXT + " twice", mode="ask", fresh=True))
        await show(app, pilot, session, msgspec.structs.replace(PLAN, id="r"))
        await pilot.press("n", *"no", "enter")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "r", Answer(False, note="no"))


@pytest.mark.parametrize("asked", [card(), PLAN], ids=["question", "plan"])
@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
def test_picture_of_a_card(snap_compare, size, asked):
    from pathlib import Path

    from sakti.tui.app import SaktiApp
    from tests.tui.scene import scene
    from tests.tui.test_snapshots import posed

    scenery = scene(Path("/work"))

    async def ask(pilot):
        await posed("sakti-dark")(pilot)
        scenery.workspace.clock.step = 1.0
        await show(pilot.app, pilot, scenery, asked)
        await pilot.press("1")
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(scenery), terminal_size=size, run_before=ask)
