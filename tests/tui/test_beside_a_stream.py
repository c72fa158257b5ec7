"""What is made while an answer streams waits below it: its Markdown is never cut, no heading comes in mid-sentence."""

from __future__ import annotations

from datetime import datetime

import pytest
from msgspec.structs import replace

from sakti.core.events import (
    ApprovalRequested,
    ApprovalResolved,
    MessageSaved,
    Notice,
    RetryScheduled,
    StepStarted,
    TextDelta,
    ToolCallDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
)
from sakti.core.types import Message, TextPart, ToolCallPart, ToolResultPart, Usage
from sakti.tui.palette import make_palette
from sakti.tui.transcript.blocks import CardBlock, Label, NoticeBlock, TextBlock, WaitingBlock
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.transcript.document import Document
from sakti.tui.transcript.live_turn import LiveTurn
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW, assistant, user


class Stage:
    """A live turn without a widget; its clock is turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.document = Document(make_palette({}, True), 80)
        self.live = LiveTurn(self.document, lambda _now: None, lambda: self.now, lambda: NOW)

    def text(self) -> str:
        self.live.draw()
        lines = [line for i in range(len(self.document.blocks)) for line in self.document.lines(i)]
        return "\n".join("".join(s.text for s in line).rstrip() for line in lines)


@pytest.fixture
def stage():
    made = Stage()
    made.live.show_user(user("u1", "go"))
    made.live.begin_step()
    return made


def test_an_answer_has_the_time_of_its_start_until_its_message_is_stored(stage):
    clock = datetime.fromtimestamp(NOW / 1000).strftime("%H:%M")
    later = datetime.fromtimestamp(NOW / 1000 + 600).strftime("%H:%M")
    stage.live.add_text("The answer.")
    assert f"sakti  {clock}" in stage.text()
    stage.live.attach(replace(assistant("a1", "The answer."), created_at=NOW + 600_000))
    assert f"sakti  {later}" in stage.text()
    stage.live.begin_step()
    stage.live.add_text("More.")
    stage.live.attach(replace(assistant("a2", "More."), created_at=NOW + 1_200_000))
    assert f"sakti  {later}" in stage.text(), "it has the time of its first message"


def shell_message(command, output, **metadata):
    text = f"I ran `{command}`:\n```\n{output}\n```"
    return user("s1", text, metadata={"shell": command, **metadata})


def run_own(live, command, output, call_id="own"):
    live.begin_shell(command)
    live.start_tool(ToolCallPart(call_id, "bash", {"command": command}), own=True)
    live.add_output(call_id, output)
    live.finish_tool(ToolResultPart(call_id, "bash", output), 20)


ANSWER = "First a function:\n\n```python\ndef drain_3(queue):\n    return queue\n```\n\nand **then** words to the end."


@pytest.mark.parametrize("at", range(1, len(ANSWER), 9))
def test_whatever_comes_in_between_the_answer_stays_whole(stage, at):
    live = stage.live
    live.add_text(ANSWER[:at])
    stage.text()
    run_own(live, "git status", "clean\n")
    live.add_block(NoticeBlock(title="Noted", text="use tabs"))
    live.add_block(CardBlock(title="Usage", rows=(("tokens", "12"),)))
    live.add_text(ANSWER[at:])
    during = stage.text()
    live.attach(assistant("a1", ANSWER))
    live.end_turn()
    after = stage.text()
    assert after.count("\nsakti  12:00\n") == 1
    for text in (during, after):
        answer, _, below = text.partition("\nyou  12:00\n  !git status")
        whole = Stage()
        whole.live.show_user(user("u1", "go"))
        whole.live.add_text(ANSWER)
        assert answer.rstrip() == whole.text().rstrip()
        assert "clean" in below and "use tabs" in below and "Usage" in below
        assert text.count("\nsakti  12:00\n") == 1
    assert {b.message_id for b in stage.document.blocks if isinstance(b, TextBlock)} == {"u1", ""}


def test_in_front_of_an_answer_that_is_awaited_it_stands_above(stage):
    run_own(stage.live, "ls", "a.py\n")
    stage.live.add_text("The answer.")
    stage.live.attach(assistant("a1", "The answer."))
    text = stage.text()
    assert text.index("!ls") < text.index("a.py") < text.index("\nsakti  12:00\n") < text.index("The answer.")
    label = next(b for b in stage.document.blocks if isinstance(b, Label) and b.who == "sakti")
    assert label.message_id == "a1" and stage.document.blocks[2].message_id == ""


def test_a_command_that_goes_on_after_its_turn_is_not_stopped(stage):
    live = stage.live
    live.add_text("Words.")
    live.begin_shell("make")
    live.start_tool(ToolCallPart("own", "bash", {"command": "make"}), own=True)
    live.attach(assistant("a1", "Words."))
    live.end_turn()
    assert "running" in stage.text() and live.has_clock
    live.finish_tool(ToolResultPart("own", "bash", "made"), 20)
    live.attach(shell_message("make", "made"))
    assert "made" in stage.text() and not live.has_clock
    assert {b.message_id for b in stage.document.blocks[-3:]} == {"s1"}


def test_what_was_said_in_vain_goes_and_what_waits_below_stays(stage):
    stage.live.add_text("half an ans")
    run_own(stage.live, "ls", "a.py\n")
    stage.live.discard_step("the stream was cut")
    stage.live.begin_step()
    stage.live.add_text("whole")
    text = stage.text()
    assert "half" not in text and text.count("a.py") == 1
    assert text.index("the stream was cut") < text.index("whole")


def test_a_command_that_was_not_run_does_not_go_on(stage):
    call = stage.live.begin_shell("ls")
    stage.live.fail_shell(call)
    assert "stopped" in stage.text() and "running" not in stage.text()


def test_a_place_is_kept_for_the_answer(stage):
    live = stage.live
    assert stage.text().endswith("sakti  12:00\n  ◌ thinking")
    stage.now += 6
    live.tick()
    assert stage.text().endswith("◌ thinking  6 s")
    live.add_block(NoticeBlock(title="Noted"))
    assert stage.text().endswith("◌ thinking  6 s"), "its clock goes on"
    live.begin_wait("retrying, attempt 2 of 8")
    assert stage.text().count("◌") == 1 and "attempt 2 of 8" in stage.text()
    live.begin_step("reading the prompt")
    assert "reading the prompt" in stage.text() and stage.text().count("\nsakti") == 1
    live.add_text("So")
    assert "◌" not in stage.text() and stage.text().endswith("sakti  12:00\n  So")
    live.end_turn()
    assert not any(isinstance(b, WaitingBlock) for b in stage.document.blocks)


def test_nothing_is_left_of_a_turn_in_which_nothing_came(stage):
    stage.live.end_turn()
    assert stage.text() == "\nyou  12:00\n  go"


def test_all_calls_are_shown_with_their_arguments_before_the_first_runs(stage):
    calls = (ToolCallPart("c1", "write", {"path": "a.py"}), ToolCallPart("c2", "bash", {"command": "make test"}))
    stage.live.write_call("c1", "write", "{")
    stage.live.write_call("c2", "bash", '{"comm')
    stage.live.attach(assistant("a1", "", parts=calls))
    rows = [r for r in stage.text().split("\n") if "○" in r]
    assert "write  a.py" in rows[0] and "bash  make test" in rows[1] and all(r.endswith("pending") for r in rows)
    stage.live.set_state("c1", "waiting")
    stage.live.start_tool(calls[0])
    stage.now += 90
    stage.live.tick()
    assert "waiting for you 1 m 30 s" in stage.text()
    stage.live.set_state("c1", "running")
    assert "waiting" not in stage.text() and "running" in stage.text()


async def test_the_last_line_has_one_state_and_one_clock(running, session):
    async with running((140, 30)) as (app, pilot):
        session.workspace.clock.step = 0.0

        async def shows(wanted, after=0.0):
            session.workspace.clock.seconds += after
            await settle(app, pilot)
            app.chat.status_line.tick()
            await pilot.pause()
            assert f" {wanted}" in screen_text(app).split("\n")[-1], screen_text(app).split("\n")[-1]

        await session.submit("go")
        await shows("thinking 4 s", 4)
        session.emit(RetryScheduled(2, 8, 10.0, "overloaded"))
        await shows("retrying in 7 s  2/8 · overloaded", 3)
        session.emit(StepStarted(1, "m", 900))
        await shows("thinking 2 s", 2)
        session.emit(TextDelta("I run it."))
        await shows("answering 1 s", 1)
        call = ToolCallPart("c", "bash", {"command": "make"})
        session.emit(MessageSaved(assistant("a1", "I run it.", parts=(call,))))
        session.emit(ToolStarted(call))
        asked = ApprovalRequested("p", "bash", "Runs a command", "make", ".", call_id="c")
        session.approvals = (asked,)
        session.emit(asked)
        await shows("waiting for you 1 m 25 s", 85)
        assert "waiting for you" in chat_text(app) and "running" not in chat_text(app)
        session.approvals = ()
        session.emit(ApprovalResolved("p", True, "", "c"))
        await shows("running bash 3 s", 3)
        session.emit(ToolFinished(ToolResultPart("c", "bash", "ok"), 3_000))
        await shows("thinking 2 s", 2)
        session.finish()
        await shows("900")


async def test_a_shell_line_beside_a_turn_leaves_the_stream_alone(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(StepStarted(1, "m", 1))
        session.emit(TextDelta("def drain"))
        await pilot.press(*"!ls", "enter")
        await settle(app, pilot)
        session.emit(ToolStarted(ToolCallPart("o", "bash", {"command": "ls"}), own=True))
        session.emit(ToolOutput("o", "a.py\n"))
        session.emit(Notice("information", "Noted", "use tabs"))
        session.emit(ToolCallDelta("c", "read", "{"))
        session.emit(ToolFinished(ToolResultPart("o", "bash", "a.py"), 5))
        await settle(app, pilot)
        text = chat_text(app)
        assert text.index("def drain") < text.index("○ read") < text.index("!ls") < text.index("a.py")
        assert text.count("sakti") == 1


def test_opened_again_the_order_is_the_same():
    stored = [
        user("u1", "go", 0),
        shell_message("ls", "a.py", during=True, outcome={"exit_code": 2, "failed": True}),
        assistant("a1", "The answer.", 2),
        user("u2", "more", 3),
    ]
    blocks = make_message_blocks(stored)
    texts = [b.get_plain_text() for b in blocks]
    assert texts.index("The answer.") < texts.index("!ls") < texts.index("more")
    call = blocks[[b.get_plain_text() for b in blocks].index("a.py")]
    assert call.state == "error" and call.detail == "exit 2" and call.own
    before = make_message_blocks([stored[0], shell_message("ls", "a.py"), stored[2]])
    texts = [b.get_plain_text() for b in before]
    assert texts.index("!ls") < texts.index("The answer.")


def test_how_a_turn_ended_is_shown_again():
    ended = {"status": "error", "title": "No answer", "text": "500 from the server.", "code": "server"}
    stored = [
        user("u1", "try", 0, metadata={"ended": ended}),
        user("u2", "again", 1),
        Message(
            "a2", "t1", "r", "assistant", (TextPart("half"),), NOW, 2, metadata={"ended": {"status": "interrupted"}}
        ),
    ]
    blocks = [b for b in make_message_blocks(stored) if isinstance(b, NoticeBlock)]
    assert [(b.tone, b.title, b.text, b.message_id) for b in blocks] == [
        ("error", "No answer", "500 from the server.", "u1"),
        ("warning", "Interrupted", "", "a2"),
    ]


async def test_a_turn_that_was_stopped_says_why(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(TurnFinished("t1", "repetition", "", 5, Usage(), "The same call was repeated 5 times.", "Stopped"))
        await settle(app, pilot)
        assert "! Stopped  The same call was repeated 5 times." in chat_text(app)
