"""Questions in the flow: they fit every terminal, several are a list, keys and mouse answer the one that is chosen."""

from __future__ import annotations

import msgspec
import pytest

from sakti.core.events import ApprovalRequested, ApprovalResolved
from sakti.tui.palette import build_variable_defaults, make_palette
from sakti.tui.screens.text import ReadScreen
from sakti.tui.widgets.approval import lay_out_approval
from tests.tui.conftest import screen_text, settle
from tests.tui.test_board import click_on

DIFF = "--- a/x.py\n+++ b/x.py\n@@ -1,40 +1,40 @@\n" + "\n".join(f"-old {n}\n+new {n}" for n in range(40))
ASKED = ("Run this command?", "Allow edit?")
LONG = "\n".join(f"echo line {n} && make part-{n}" for n in range(30))


def asked(id="p1", tool="bash", target="git push", diff="", rule="bash(git push *)"):
    return ApprovalRequested(id, tool, "it changes what is on another machine", target, "/home/me/app", diff, rule)


async def ask(app, pilot, session, *questions):
    session.approvals = questions
    session.emit(questions[0])
    await settle(app, pilot)


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (60, 16), (40, 10)])
@pytest.mark.parametrize("question", [asked(target=LONG), asked(tool="edit", target="src/x.py", diff=DIFF, rule="")])
async def test_the_question_and_the_keys_are_always_seen(running, session, size, question):
    more = [asked(f"q{n}", target=f"rm file-{n}") for n in range(9)]
    async with running(size) as (app, pilot):
        await ask(app, pilot, session, question, *more)
        text = screen_text(app)
        assert any(w in text for w in ASKED) and "(1 of 10)" in text
        for key in ("y Allow", "n Deny", "v View all"):
            assert key in text, text
        assert "echo line 0" in text or "src/x.py" in text
        await pilot.press("n")
        await settle(app, pilot)
        text = screen_text(app)
        assert "reason for the agent" in text and "enter Send" in text and any(w in text for w in ASKED), text
        await pilot.press("escape")
        await settle(app, pilot)
        assert "y Allow" in screen_text(app)


def test_what_gives_way():
    palette = make_palette(build_variable_defaults(True), True)
    many = (asked(target=LONG), *(asked(f"q{n}", target=f"rm file-{n}") for n in range(9)))

    def shown(height: int) -> list[str]:
        return ["".join(s.text for s in line) for line in lay_out_approval(many, 0, 60, palette, height)[0]]

    assert any("10 questions in all" in line for line in shown(20))
    for height in range(6, 30):
        lines = shown(height)
        assert len(lines) <= height and any("y Allow once" in line for line in lines)
        assert any("echo line 0" in line for line in lines)
    many = (msgspec.structs.replace(many[0], agent=f"explore › {'where is it ' * 9}"), *many[1:])
    assert all("child thread explore ›" in shown(height)[0] and "(1 of 10)" in shown(height)[0] for height in (6, 30))
    assert shown(1_000)[-1].endswith("10 questions in all") and sum("rm file" in line for line in shown(1_000)) == 3


@pytest.mark.parametrize("width", range(52, 110, 3))
def test_what_a_key_does_is_not_cut_by_the_end_of_a_line(width):
    now = (asked(rule="bash(python -m pytest -q *)"),)
    lines, _ = lay_out_approval(now, 0, width, make_palette(build_variable_defaults(True), True))
    shown = ["".join(s.text for s in line) for line in lines]
    for key in ("y Allow once", "n Deny, with a reason", "e Edit"):
        assert any(key in line for line in shown), shown


async def test_calls_that_will_ask_next_are_counted_and_named(running, session):
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, msgspec.structs.replace(asked(), later=("bash  echo two", "write  w.py")))
        text = screen_text(app)
        assert "(1 of 3)" in text and "Next question" not in text
        assert "then  bash echo two" in text and "then  write w.py" in text


async def test_the_position_goes_on_from_question_to_question_and_begins_again_with_other_calls(running, session):
    first = msgspec.structs.replace(asked(), later=("bash  echo two", "write  w.py"))
    second = msgspec.structs.replace(asked("p2", target="echo two"), later=("write  w.py",))
    other = msgspec.structs.replace(asked("p4", target="make"), later=("write  v.py",))
    async with running((80, 24)) as (app, pilot):
        for question, position in ((first, "(1 of 3)"), (second, "(2 of 3)"), (other, "(1 of 2)")):
            await ask(app, pilot, session, question)
            assert position in screen_text(app)
            session.approvals = ()
            session.emit(ApprovalResolved(question.id, True))
            await settle(app, pilot)


async def test_a_reason_that_is_not_sent_is_kept(running, session):
    async with running((100, 30)) as (app, pilot):
        await ask(app, pilot, session, asked())
        await pilot.press("n", *"why", "escape", "e", "escape", "n")
        assert app.chat.conversation.approval.line.value == "why"
        await ask(app, pilot, session, msgspec.structs.replace(asked(), reason="another mode asks as well"))
        await pilot.press("n", "!", "enter")
        await settle(app, pilot)
        assert session.calls[-1][:3] == ("resolve", "p1", False) and "why!" in session.calls[-1]


async def test_several_are_chosen_and_answered_by_keys_and_by_mouse(running, session):
    questions = [asked(f"p{n}", target=f"make part-{n}") for n in range(4)]
    async with running((100, 30)) as (app, pilot):
        await ask(app, pilot, session, *questions)
        assert "▶ bash  make part-0" in screen_text(app) and "· bash  make part-3" in screen_text(app)
        await pilot.press("down", "down", "y")
        await settle(app, pilot)
        assert session.calls[-1][:3] == ("resolve", "p2", True)
        assert "(2 of 4)" in screen_text(app), "the one that was answered is counted"
        await click_on(app, pilot, "bash  make part-3")
        assert "(4 of 4)" in screen_text(app)
        new = asked("p9", target="make more")
        session.approvals = (*session.approvals, new)
        session.emit(new)
        await settle(app, pilot)
        assert "(4 of 5)" in screen_text(app), "what is looked at stays"
        await click_on(app, pilot, "Always")
        assert session.calls[-1][:4] == ("resolve", "p3", True, "workspace")


@pytest.mark.parametrize("by_mouse", [False, True])
async def test_all_edits_are_allowed_by_key_and_by_mouse_where_they_are_offered(running, session, by_mouse):
    edit = msgspec.structs.replace(asked(tool="edit", target="src/x.py", diff=DIFF, rule=""), is_edit=True)
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, asked("p0"), edit)
        assert "All edits" not in screen_text(app)
        await pilot.press("s", "down")
        await settle(app, pilot)
        assert not [c for c in session.calls if c[0] == "resolve"] and "s All edits in this thread" in screen_text(app)
        session.current.approval_mode, session.current.may_edit = "edits", True
        await (click_on(app, pilot, "All edits") if by_mouse else pilot.press("s"))
        await settle(app, pilot)
        assert session.calls[-1][:4] == ("resolve", "p1", True, "edits")
        assert "edits, this thread" in screen_text(app).splitlines()[-1]


async def test_a_change_of_mode_shows_the_open_questions_as_they_are_then(running, session):
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, asked(rule=""))
        session.approvals = (msgspec.structs.replace(session.approvals[0], reason="another reason"),)
        await pilot.press("shift+tab")
        await settle(app, pilot)
        assert "another reason" in screen_text(app)


async def test_a_long_command_is_seen_whole_and_edited_outside(running, session, tmp_path, monkeypatch):
    script = tmp_path / "editor.sh"
    script.write_text("#!/bin/sh\nprintf 'make one\\nmake two\\n' > \"$1\"\n")
    script.chmod(0o755)
    edited = []

    async def lent(app, text, env, workspace, kind):
        edited.append(text)
        return text if len(edited) == 1 else "make one\nmake two"

    monkeypatch.setattr("sakti.tui.desktop.edit_text", lent)
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, asked(target=LONG))
        await pilot.press("v")
        await settle(app, pilot)
        assert isinstance(app.screen, ReadScreen) and "echo line 9" in screen_text(app)
        assert "unfold" not in screen_text(app), "nothing here folds"
        await pilot.press("escape", "e")
        await settle(app, pilot)
        assert edited == [LONG] and not session.calls[1:], "left as it was: the question waits"
        await pilot.press("e")
        await settle(app, pilot)
        assert session.calls[-1] == ("resolve", "p1", True, "once", "", "make one\nmake two")


async def test_a_long_command_is_allowed_once_its_end_was_on_the_screen(running, session):
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, asked(target="\n".join(f"echo line {n}" for n in range(90))))
        for leave in (["escape"], ["pagedown", "escape"]):
            await pilot.press("y")
            await settle(app, pilot)
            assert isinstance(app.screen, ReadScreen) and "echo line 89" not in screen_text(app)
            await pilot.press(*leave)
            await settle(app, pilot)
            assert not [c for c in session.calls if c[0] == "resolve"], "its end was not seen"
        await pilot.press("a")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        assert "echo line 89" in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not [c for c in session.calls if c[0] == "resolve"], "looking is no answer"
        await pilot.press("y")
        await settle(app, pilot)
        assert session.calls[-1][:4] == ("resolve", "p1", True, "once")


async def test_keys_are_folded_between_them(running, session):
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, asked(id="p1"), asked(id="p2", target=LONG))
        lines = [line.strip("┃ ") for line in screen_text(app).split("\n")]
        keys = [line for line in lines if "Allow once" in line or "Next question" in line]
        assert len(keys) == 2 and not any(line.endswith("·") or line.startswith("·") for line in keys)


async def test_only_a_command_can_be_edited(running, session):
    async with running((80, 24)) as (app, pilot):
        await ask(app, pilot, session, asked(tool="read", target="/etc/hosts", rule="read(/etc/*)"))
        assert "e Edit" not in screen_text(app)
        await pilot.press("e")
        await settle(app, pilot)
        assert not app.chat.conversation.approval.line.display
