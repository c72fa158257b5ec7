"""The transcript as a widget: following, scrolling back, resizing, folding, selecting, jumping."""

from __future__ import annotations

import re

import pytest
from textual.geometry import Offset, Region
from textual.selection import Selection

from sakti.core.errors import StoreError
from sakti.core.events import (
    CompactionFinished,
    MemoryActivation,
    MessageSaved,
    Notice,
    PromptRead,
    StepDiscarded,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
)
from sakti.core.types import ToolCallPart, ToolResultPart
from sakti.tui.transcript.blocks import CardBlock
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import assistant, user


def long_thread(count):
    return [
        user(f"m{n}", f"message number {n}\nand a line", n)
        if n % 2 == 0
        else assistant(f"m{n}", f"answer **{n}** " + "with words " * (n % 40), n)
        for n in range(count)
    ]


async def stream(app, pilot, session, text, step=7):
    for at in range(0, len(text), step):
        session.emit(TextDelta(text[at : at + step]))
    await settle(app, pilot)


async def test_it_follows_the_end_only_from_the_end(running, session):
    async with running((80, 24)) as (app, pilot):
        await session.submit("go")
        await stream(app, pilot, session, "line\n\n" * 60)
        chat = app.chat.transcript
        assert chat.scroll_offset.y == chat.max_scroll_y > 0
        chat.scroll_to(y=10, animate=False)
        await stream(app, pilot, session, "more\n\n" * 40)
        assert chat.scroll_offset.y == 10
        await pilot.press("ctrl+end")
        await stream(app, pilot, session, "last\n\n" * 5)
        assert chat.scroll_offset.y == chat.max_scroll_y
        assert "last" in screen_text(app)


async def test_a_stream_and_the_stored_message_look_the_same(running, session):
    text = "# Title\n\nSome `code` and\n\n```python\nx = 1\n\ny = 2\n```\n\n1. a\n2. b\n\n"
    text += "| a | b |\n|---|---|\n| 1 | 2 |\n"
    async with running() as (app, pilot):
        await session.submit("go")
        await stream(app, pilot, session, text, 3)
        session.finish(text)
        await settle(app, pilot)
        live = chat_text(app)
        app.chat.transcript.load([user("u1", "go", 0), assistant("a1", text, 1)], more=False)
        stored = chat_text(app)
        assert stored == live


async def test_no_timer_runs_when_nothing_happens(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        await stream(app, pilot, session, "word " * 50)
        session.finish("word " * 50)
        await settle(app, pilot)
        assert app.chat.transcript._timer is None
        assert app.chat.status_line._timer is None


async def test_ten_thousand_messages_open_at_the_end_and_load_as_you_scroll(running, session):
    session.views.messages["t1"] = long_thread(10_000)
    async with running() as (app, pilot):
        chat = app.chat.transcript
        assert "answer 9999" in screen_text(app)
        assert len(chat.document.blocks) < 1_000
        drawn = sum(chat.document.is_exact(i) for i in range(len(chat.document.blocks)))
        assert drawn < 100
        chat.scroll_to(y=5, animate=False)
        await settle(app, pilot)
        above = screen_text(app)
        assert app.chat.view.oldest < 9_800
        marker = next(line.split("│")[0].strip() for line in above.split("\n") if "message number" in line)
        await settle(app, pilot)
        assert marker in screen_text(app)
        assert chat.document.locate(chat.scroll_offset.y) is not None


def is_at_end(chat):
    return chat.scroll_offset.y == max(0, chat.document.height - chat.size.height)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a new question", "a new question"),
        ("!ls", "!ls"),
        ("/nosuch", "/help lists all commands"),
        ("/help nosuch", "nosuch"),
        ("#note", "The disk is full"),
        ("not sent", "The disk is full"),
    ],
)
@pytest.mark.parametrize("keys", [(), ("f2", "f2", "escape"), ("f2", "f2", "f2", "f3", "escape")])
async def test_the_result_of_the_users_own_line_is_scrolled_to(running, session, text, shown, keys):
    session.views.messages["t1"] = long_thread(60)
    submit = session.submit

    async def submit_or_fail(text):
        if text == "not sent":
            raise StoreError("The disk is full.", title="Not saved", code="full")
        await submit(text)

    async def fail(text):
        raise StoreError("The disk is full.", title="Not saved", code="full")

    session.submit, session.note = submit_or_fail, fail
    async with running((80, 24)) as (app, pilot):
        chat = app.chat.transcript
        await pilot.press(*keys)
        await settle(app, pilot)
        assert is_at_end(chat)
        chat.scroll_page_up(animate=False)
        await settle(app, pilot)
        assert not is_at_end(chat)
        await pilot.press(*text, "enter")
        await settle(app, pilot)
        assert shown in screen_text(app)
        session.emit(Notice("error", "Not saved", "The database was removed. " * 4))
        await settle(app, pilot)
        assert is_at_end(chat)
        if session.busy:
            session.emit(TextDelta("Answer. " * 200))
            session.finish("Answer. " * 200)
            await settle(app, pilot)
            assert is_at_end(chat)


async def test_news_that_nobody_asked_for_moves_nothing(running, session):
    session.views.messages["t1"] = long_thread(60)
    async with running((80, 24)) as (app, pilot):
        chat = app.chat.transcript
        chat.scroll_page_up(animate=False)
        await settle(app, pilot)
        before = chat.scroll_offset.y
        session.emit(Notice("error", "Not saved", "The database was removed."))
        await settle(app, pilot)
        assert chat.scroll_offset.y == before


async def test_loading_older_messages_moves_nothing_on_the_screen(running, session):
    session.views.messages["t1"] = long_thread(400)
    async with running() as (app, pilot):
        chat = app.chat.transcript
        chat.scroll_to(y=chat.size.height * 4, animate=False)
        await settle(app, pilot)
        chat._asked_older = True
        chat.scroll_to(y=20, animate=False)
        await settle(app, pilot)
        before = [row[:78] for row in screen_text(app).split("\n")]  # without the scroll bar
        await app.chat.view.load_older()
        await settle(app, pilot)
        assert [row[:78] for row in screen_text(app).split("\n")] == before


@pytest.mark.parametrize("size", [(1, 1), (3, 2), (40, 10), (200, 50), (81, 7), (99, 30), (100, 30)])
async def test_resizing(running, session, size):
    session.views.messages["t1"] = long_thread(60)
    async with running((120, 35)) as (app, pilot):
        await pilot.resize_terminal(*size)
        await settle(app, pilot)
        screen_text(app)
        await pilot.resize_terminal(120, 35)
        await settle(app, pilot)
        assert "answer 59" in screen_text(app)


async def test_resizing_keeps_the_place(running, session):
    session.views.messages["t1"] = long_thread(100)
    async with running((120, 35)) as (app, pilot):
        chat = app.chat.transcript
        chat.jump("m40")
        await settle(app, pilot)
        for size in ((90, 30), (70, 20), (160, 40)):
            await pilot.resize_terminal(*size)
            await settle(app, pilot)
            assert "message number 40" in screen_text(app)


async def test_a_line_that_was_jumped_to_stays_in_sight_until_the_user_scrolls(running, session):
    lines = "\n".join(f"line {n}" for n in range(200))
    session.views.messages["t1"] = [*long_thread(40), user("long", lines, 40), *long_thread(20)]
    async with running((120, 35)) as (app, pilot):
        chat = app.chat.transcript
        chat.jump("long", re.compile("line 18\\b"))
        for height in (20, 12, 30):
            await pilot.resize_terminal(120, height)
            await settle(app, pilot)
            assert re.search(r"line 18\s", screen_text(app))
        chat.scroll_relative(y=40, animate=False)
        await settle(app, pilot)
        top = chat.scroll_offset.y
        await pilot.resize_terminal(120, 20)
        await settle(app, pilot)
        assert chat.scroll_offset.y == top


async def test_jump_marks_a_message(running, session):
    session.views.messages["t1"] = long_thread(100)
    async with running() as (app, pilot):
        assert app.chat.transcript.jump("m10")
        await settle(app, pilot)
        assert "message number 10" in screen_text(app)
        assert not app.chat.transcript.jump("elsewhere")


def marked_rows(chat, text):
    """The rows of the screen with `text`, and what of them is marked."""
    out = []
    for strip in chat.render_lines(Region(0, 0, chat.region.width, chat.size.height)):
        if text in strip.text:
            ground = chat.palette.mark.bgcolor
            out.append("".join(s.text for s in strip if s.style and s.style.bgcolor == ground))
    return out


async def test_a_jump_with_words_marks_the_words_alone(running, session):
    session.views.messages["t1"] = long_thread(60)
    async with running() as (app, pilot):
        chat = app.chat.transcript
        assert chat.jump("m11", re.compile("words"))
        await settle(app, pilot)
        assert {row.replace("words", "") for row in marked_rows(chat, "with words")} <= {""}
        assert any(row.startswith("words") for row in marked_rows(chat, "with words"))
        assert chat.jump("m10")
        await settle(app, pilot)
        assert not any(marked_rows(chat, "message number 10")), "its head is marked, not its text"


async def test_news_below_the_screen_are_counted_until_the_end_is_seen(running, session):
    session.views.messages["t1"] = long_thread(60)
    async with running((100, 30)) as (app, pilot):
        chat = app.chat.transcript
        assert "new · End" not in screen_text(app)
        await pilot.press("pageup", "pageup")
        await settle(app, pilot)
        top = chat.scroll_offset.y
        app.show_notice("one")
        app.show_notice("two")
        await settle(app, pilot)
        assert "↓ 2 new · End" in screen_text(app) and chat.scroll_offset.y == top
        await session.submit("go")
        await stream(app, pilot, session, "an answer\n\n")
        assert "new · End" not in screen_text(app), "a message of the user's goes to the end"
        await pilot.press("pageup", "pageup")
        await stream(app, pilot, session, "more and more\n\n" * 4)
        assert "↓ new · End" in screen_text(app)
        await pilot.press("end")
        await settle(app, pilot)
        assert "new · End" not in screen_text(app) and chat.scroll_offset.y == chat.max_scroll_y
        await pilot.press("pageup", "pageup")
        session.finish("done")
        app.show_notice("three")
        await settle(app, pilot)
        await pilot.click(chat, offset=(chat.size.width - 3, chat.size.height - 1))
        await settle(app, pilot)
        assert "new · End" not in screen_text(app) and "three" in screen_text(app)


async def test_the_result_of_a_command_is_in_sight(running, session):
    session.views.messages["t1"] = long_thread(60)
    async with running((100, 24)) as (app, pilot):
        await pilot.press("pageup", "pageup")
        app.run_command("/doctor")
        await settle(app, pilot)
        assert "Doctor" in screen_text(app) or "new · End" not in screen_text(app)
        await pilot.press("pageup", "pageup", "pageup")
        block = CardBlock(title="Long", rows=tuple((f"row {n}", "x") for n in range(60)))
        app.chat.transcript.live.add_block(block)
        app.chat.transcript.show_result(block)
        await settle(app, pilot)
        assert "Long" in screen_text(app) and "row 3" in screen_text(app), "a long result begins in sight"


async def test_a_tool_unfolds_by_click_and_by_key(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(StepStarted(1, "m", 900))
        session.emit(TextDelta("Looking."))
        session.emit(ToolStarted(ToolCallPart("c", "bash", {"command": "ls"})))
        session.emit(ToolOutput("c", "one\ntwo\n"))
        session.emit(ToolFinished(ToolResultPart("c", "bash", "one\ntwo"), 1_900))
        await settle(app, pilot)
        assert "✓ bash  ls" in chat_text(app) and "1.9 s" in chat_text(app)
        assert "two" in chat_text(app), "a short success shows"
        rows = screen_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "✓ bash" in row)
        await pilot.click(app.chat.transcript, offset=(6, y - 1))
        await settle(app, pilot)
        assert "command: ls" in chat_text(app)
        await pilot.press("ctrl+o")
        assert "command: ls" not in chat_text(app)


@pytest.mark.parametrize("lines", [6, 60])
async def test_an_unfolded_block_is_in_sight(running, session, lines):
    async with running((80, 24)) as (app, pilot):
        await session.submit("go")
        session.emit(StepStarted(1, "m", 900))
        session.emit(TextDelta("\n\n".join(f"Paragraph {n}." for n in range(30))))
        session.emit(ToolStarted(ToolCallPart("c", "grep", {"pattern": "x"})))
        session.emit(ToolFinished(ToolResultPart("c", "grep", "\n".join(f"row {n}" for n in range(lines))), 9))
        session.emit(TextDelta("Done."))
        await settle(app, pilot)
        assert "Done." in screen_text(app) and "row 1" not in screen_text(app)
        await pilot.press("ctrl+o")
        await settle(app, pilot)
        assert "✓ grep" in screen_text(app) and "row 1" in screen_text(app)
        assert "row 5" in screen_text(app)
        await pilot.press("ctrl+o")
        await settle(app, pilot)
        assert "✓ grep" in screen_text(app) and "row 1" not in screen_text(app)


async def test_how_far_the_prompt_is_read_stands_in_the_status_line(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(StepStarted(1, "m", 900))
        session.emit(PromptRead(40, 100))
        await settle(app, pilot)
        assert "reading the prompt 40 %" in screen_text(app)
        session.emit(PromptRead(100, 100))
        await settle(app, pilot)
        assert "thinking" in screen_text(app) and "reading the prompt" not in screen_text(app)
        session.emit(PromptRead(50, 100))
        session.emit(TextDelta("So"))
        await settle(app, pilot)
        assert "reading the prompt" not in screen_text(app)


async def test_thinking_is_folded_and_diffs_show(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(ThinkingDelta("secret thoughts of mine"))
        session.emit(TextDelta("Answer."))
        session.emit(ToolStarted(ToolCallPart("c", "edit", {"path": "a.py"})))
        diff = "@@ -1 +1 @@\n-old\n+new\n"
        session.emit(ToolFinished(ToolResultPart("c", "edit", "ok", details={"diff": diff}), 10))
        await settle(app, pilot)
        text = chat_text(app)
        assert "▸ thinking  4 words" in text
        assert "secret" not in text
        assert "✓ edit  a.py" in text and "+1 −1" in text
        assert "1 − old" in text and "1 + new" in text


async def test_a_discarded_step_leaves_only_a_note(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(StepStarted(1, "m", 1))
        session.emit(TextDelta("half an ans"))
        session.emit(StepDiscarded(1, "the stream was cut"))
        session.emit(StepStarted(1, "m", 1))
        session.emit(TextDelta("whole"))
        session.finish("whole")
        await settle(app, pilot)
        text = chat_text(app)
        assert "half" not in text
        assert "the stream was cut" in text
        assert text.count("whole") == 1


async def test_steering_messages_appear_once_when_they_go_in(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        session.emit(MessageSaved(user("u1", "go")))
        session.emit(MessageSaved(user("steer", "also the tests")))
        session.emit(MessageSaved(user("steer", "also the tests")))
        await settle(app, pilot)
        assert chat_text(app).count("also the tests") == 1
        assert chat_text(app).count("go") == 1


async def test_memory_says_what_it_did(running, session):
    async with running() as (app, pilot):
        session.emit(MemoryActivation("c", "observation", "r", ("t1",), "threshold", 0, 3, 18_100, 1_900, 42, 2, ""))
        session.emit(CompactionFinished("r", 38, 21_400, 2_100, 12, ("a path is not in the source",)))
        session.emit(CompactionFinished("r", 38, 21_400, 2_100, 12, ("You stopped it",), stopped=True))
        session.emit(CompactionFinished("r", 38, 2_100, 21_400, 12, undone=True))
        await settle(app, pilot)
        text = chat_text(app)
        assert "Memory activated 42 messages, 18.1k tokens, became observations (the window was full)" in " ".join(
            text.split()
        )
        assert "21.4k → 2.1k" in text
        assert "a path is not in the source" in text
        assert "Compaction undone" in text and "Compacted in part, then stopped" in text


async def test_selected_text_is_what_is_on_the_screen(running, session):
    session.views.messages["t1"] = [user("m0", "日本語 and\nsecond line", 0)]
    async with running() as (app, pilot):
        chat = app.chat.transcript
        rows = chat_text(app).split("\n")
        y = next(i for i, row in enumerate(rows) if "日本語" in row)
        text, _ = chat.get_selection(Selection(Offset(2, y), Offset(8, y + 1)))
        assert text == "日本語 and\nsecond"
        app.screen.selections = {chat: Selection(Offset(2, y), Offset(5, y))}
        await pilot.pause()
        assert "日本語 and" in screen_text(app)
        await pilot.press("ctrl+c")
        assert app.clipboard == "日本語"


async def test_copying_the_answer(running, session):
    async with running() as (app, pilot):
        await session.submit("go")
        await stream(app, pilot, session, "The **answer**.")
        session.finish("The **answer**.")
        await pilot.press("ctrl+y")
        assert app.clipboard == "The **answer**."


async def test_a_new_theme_draws_everything_again(running, session):
    session.views.messages["t1"] = long_thread(6)
    async with running() as (app, pilot):
        before = {s.style.color for line in app.chat.transcript.document.lines(1) for s in line if s.style}
        app.theme = "sakti-light"
        await settle(app, pilot)
        after = {s.style.color for line in app.chat.transcript.document.lines(1) for s in line if s.style}
        assert before != after
