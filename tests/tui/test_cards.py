"""Cards above the prompt: keys choose, write and send; Esc declines; they fit every terminal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sakti.core.events import (
    ApprovalAnswer,
    ApprovalRequested,
    CardAnswer,
    CardOption,
    CardQuestion,
    FreeQuestion,
    SideQuestion,
    StepStarted,
    TasksChanged,
)
from sakti.tui.app import SaktiApp
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.scene import scene
from tests.tui.test_approvals import asked as approval
from tests.tui.test_snapshots import posed
from tests.unit.agent.test_cards import card

TEXT = "# Store the region\n\nFor taxes.\n\n1. Add the column\n   Files: db.sql\n   Check: make check\n2. Read it"
PLAN = ApprovalRequested("p", "present_plan", "", TEXT, ".")


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
        assert session.calls[-1] == ("answer", "c", ApprovalAnswer(True, answers=wanted))
        assert not app.chat.conversation.card.display and app.chat.focused is app.chat.prompt


async def test_a_long_option_is_shown_whole(running, session):
    label = "Keep the rows where they are and " + "copy what changed since, " * 6 + "then switch over"
    question = CardQuestion("How?", "Way", (CardOption("Stop"), CardOption(label)))
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session, msgspec.structs.replace(card(), questions=(question,)))
        rows = (row.partition("┃")[2].strip(" │") for row in screen_text(app).split("\n"))
        assert label in " ".join(" ".join(rows).split())


async def test_a_free_question_opens_its_line_and_an_empty_answer_leaves_it_out(running, session):
    ways_out = (CardOption("Leave it out"),)
    name = FreeQuestion("srv asks: Fill it\nYour name (required)", "name", ())
    mail, count = FreeQuestion("Mail (optional)", "mail", ways_out), FreeQuestion("n (required)", "n", (), default="3")
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session, ApprovalRequested("f", "ask_user", "", "x", ".", questions=(name, mail, count)))
        await pilot.press("enter")
        await settle(app, pilot)
        assert "Write an answer first." in screen_text(app) and "1-6 Choose" not in screen_text(app)
        await pilot.press("enter", *"Ann")
        await settle(app, pilot)
        assert "enter Next" in screen_text(app) and "Your name (required)" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "✓ name" in screen_text(app) and "empty: Leave it out" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "enter Send" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        answers = (CardAnswer("name", (), "Ann"), CardAnswer("mail", ("Leave it out",)), CardAnswer("n", (), "3"))
        assert session.calls[-1] == ("answer", "f", ApprovalAnswer(True, answers=answers))


@pytest.mark.parametrize("asked", [card(), approval(), PLAN], ids=["question", "approval", "plan"])
async def test_a_question_says_where_the_keys_go_while_a_draft_is_written(running, session, asked):
    async with running((80, 24)) as (app, pilot):
        await pilot.press(*"a draft")
        await show(app, pilot, session, asked)
        for lead in ("tab", "click"):
            text = screen_text(app)
            assert "tab Answer (typing goes to the prompt)" in text and "1-6 Choose" not in text, text
            await pilot.press("1")
            view = app.chat.conversation.approval.view if asked.tool == "bash" else app.chat.conversation.card.view
            await (pilot.press("tab") if lead == "tab" else pilot.click(view))
            await settle(app, pilot)
            assert view.has_focus and "tab Answer" not in screen_text(app) and "above first" not in screen_text(app)
            await pilot.press("tab")
            await settle(app, pilot)
        await pilot.press("tab", "down", *{"ask_user": "1", "bash": "y", "present_plan": "a1"}[asked.tool])
        await pilot.press(*(["right", "1", "enter"] if asked.tool == "ask_user" else []))
        await settle(app, pilot)
        assert session.calls[-1][1:2] == (asked.id,) and app.chat.prompt.value == "a draft11"


async def test_a_plan_is_viewed_line_by_line(running, session):
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session, PLAN)
        await pilot.press("v")
        await settle(app, pilot)
        lines = [line.strip(" │┃") for line in screen_text(app).split("\n")]
        assert {"1. Add the column", "Files: db.sql", "Check: make check", "2. Read it"} <= set(lines)


async def test_escape_closes_the_line_first_and_then_declines(running, session):
    def footer() -> str:
        return screen_text(app).split("\n")[-1]

    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session)
        await pilot.press("o", "x")
        assert "esc back" in footer()
        await pilot.press("escape")
        await settle(app, pilot)
        assert "esc decline" in footer()
        assert not [c for c in session.calls if c[0] == "answer"]
        await pilot.press("o")
        assert app.chat.conversation.card.line.value == "x", "what was written is kept"
        await pilot.press("escape", "enter")  # no answer yet: it stays
        await settle(app, pilot)
        assert "Choose an option first: 1 to 2, or o to write another answer." in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "c", ApprovalAnswer(False))


async def test_all_long_options_are_reached_on_a_low_screen(running, session):
    options = tuple(CardOption(f"{n}: {'a long way to do it ' * 8}".strip(), "why " * 40) for n in range(1, 7))
    question = CardQuestion("How?", "Way", options)
    async with running((60, 16)) as (app, pilot):
        await show(app, pilot, session, msgspec.structs.replace(card(), questions=(question,)))
        for option in options:
            rows = (row.partition("┃")[2].strip(" │") for row in screen_text(app).split("\n"))
            assert option.label in " ".join(" ".join(rows).split())
            await pilot.press("down")


async def test_a_plan_that_cannot_be_read_is_opened_again_as_the_user_left_it(running, session, script):
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session, PLAN)
        script("path.write_text('# Mine, without a step')")
        await pilot.press("e")
        await settle(app, pilot)
        assert "numbered steps" in chat_text(app)
        script("text = path.read_text(); path.write_text(text + '\\n2. Read it\\n   After: 1, 2')")
        await pilot.press("e")
        await settle(app, pilot)
        assert app.chat.conversation.card.view.form.text == "# Mine, without a step\n\n1. Read it"


async def test_a_plan_is_approved_with_a_mode_or_sent_back(running, session):
    async with running((80, 24)) as (app, pilot):
        await show(app, pilot, session, PLAN)
        assert "Approve this plan?" in screen_text(app) and "Check: make check" in screen_text(app)
        await pilot.press("f")
        assert "esc back" in screen_text(app).split("\n")[-1]
        await pilot.press("escape", "a", "2")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "p", ApprovalAnswer(True, mode="edits"))
        await show(app, pilot, session, msgspec.structs.replace(PLAN, id="q"))
        await pilot.press("f")
        await settle(app, pilot)
        app.chat.conversation.card.change_plan(TEXT + " twice")
        await pilot.press("1")
        await settle(app, pilot)
        assert session.calls[-1] == (
            "answer",
            "q",
            ApprovalAnswer(True, edited=TEXT + " twice", mode="ask", fresh=True),
        )
        await show(app, pilot, session, msgspec.structs.replace(PLAN, id="r"))
        await pilot.press("n", *"no", "enter")
        await settle(app, pilot)
        assert session.calls[-1] == ("answer", "r", ApprovalAnswer(False, note="no"))


async def test_a_plan_edited_in_an_editor_loses_no_text(running, session, script):
    async with running((140, 40)) as (app, pilot):
        await show(app, pilot, session, PLAN)
        for code, says in (
            ("sys.exit(3)", "ended with code 3; the plan is unchanged."),
            (
                "path.write_text('Two steps, please')",
                "The plan needs a title (# TITLE) and numbered steps (1. STEP). e",
            ),
            ("path.write_text(f'# New\\n\\n1. {path.read_text()}')", "1. Two steps, please"),
        ):
            script(code)
            await pilot.press("e")
            await settle(app, pilot)
            assert says in screen_text(app)
        await pilot.press("n", *"no", "enter")
        await settle(app, pilot)
        sent = ApprovalAnswer(False, note="no", edited="# New\n\n1. Two steps, please")
        assert session.calls[-1] == ("answer", "p", sent)


def aside(state="answered", text=""):
    return SideQuestion("where is the retry policy?", state, text)


async def test_a_side_question_streams_and_is_closed_copied_or_used(running, session):
    async with running((80, 24)) as (app, pilot):
        for event in (aside("answering"), aside("answering", "In http"), aside("answering", ".py, line 12.")):
            session.emit(event)
        await settle(app, pilot)
        assert "btw where is the retry policy?" in screen_text(app) and "In http.py, line 12." in screen_text(app)
        long = "\n".join(f"line {n}" for n in range(60))
        session.emit(aside(text=long))
        await settle(app, pilot)
        assert "line 59" in screen_text(app)
        await pilot.press("tab", "pageup", "up")
        await settle(app, pilot)
        assert "line 59" not in screen_text(app)
        await pilot.press("ctrl+o")
        await settle(app, pilot)
        assert app.chat.prompt.value.endswith("line 59") and app.chat.focused is app.chat.prompt
        await pilot.press("escape")
        await settle(app, pilot)
        assert not app.chat.conversation.aside.display and app.chat.prompt.value.endswith("line 59")
        assert ("stop aside",) in session.calls


@pytest.mark.parametrize("event", [TasksChanged(), StepStarted(1, "m", 1)])
async def test_the_mode_of_an_approved_plan_is_shown(running, session, event):
    async with running((80, 24)) as (app, pilot):
        session.set_approval_mode("edits")
        session.emit(event)
        await settle(app, pilot)
        assert app.chat.header.approval == "edits" and app.chat.status_line.approval[0] == "edits"


@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
def test_picture_of_a_side_question(snap_compare, size):
    scenery = scene(Path("/work"))

    async def ask(pilot):
        await posed("sakti-dark")(pilot)
        scenery.workspace.clock.step = 0.0
        scenery.emit(aside("answering"))
        scenery.emit(aside(text="In `sakti/http.py`, line 12: three attempts, with backoff and jitter."))
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(scenery), terminal_size=size, run_before=ask)


@pytest.mark.parametrize("asked", [card(), PLAN], ids=["question", "plan"])
@pytest.mark.parametrize("size", [(80, 24), (120, 35)])
def test_picture_of_a_card(snap_compare, size, asked):
    scenery = scene(Path("/work"))

    async def ask(pilot):
        await posed("sakti-dark")(pilot)
        scenery.workspace.clock.step = 0.0  # how often the line is drawn is no part of the picture
        await show(pilot.app, pilot, scenery, asked)

    assert snap_compare(SaktiApp(scenery), terminal_size=size, run_before=ask)
