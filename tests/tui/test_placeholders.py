"""A folded paste or an image is one thing in the prompt; nothing that was typed or queued is lost by a key."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events

from sakti.core.events import QueueChanged
from sakti.core.types import Message, TextPart
from sakti.tui.app import SaktiApp
from sakti.tui.palette import build_variable_defaults, make_palette
from sakti.tui.transcript.blocks import TextBlock
from sakti.tui.transcript.build import make_user_blocks
from sakti.tui.widgets.completions import QueueView
from sakti.tui.widgets.prompt import Placeholders
from tests.tui.conftest import chat_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session

LONG = "\n".join(f"line {n}" for n in range(60))


def test_signs_stand_for_what_they_were_made_of():
    folds = Placeholders()
    first, second = folds.fold(LONG), folds.fold(LONG + "!")
    assert (first, second) == ("[pasted 60 lines]", "[pasted 60 lines #2]")
    assert folds.fold("short \x1b[31m") == "short ␛[31m"
    nested = folds.fold("x" * 30_000 + first)  # what was pasted holds the sign of another paste
    image = folds.image(Path("/a b/cat.png"), 33_800)
    assert image == "[image cat.png 34 kB]"
    text = f"{second} {first}{nested} {image}, and {image}"
    assert folds.unfold(text) == (
        f"{LONG}! {LONG}{'x' * 30_000}[pasted 60 lines] @/a\\ b/cat.png , and @/a\\ b/cat.png"
    )  # fmt: skip
    assert Placeholders().unfold(text) == text


def test_where_a_sign_stands():
    folds = Placeholders()
    sign, image = folds.fold(LONG), folds.image(Path("/cat.png"), 1)
    line = f"a {sign}b {image} c"
    start, end = 2, 2 + len(sign)
    assert folds.around(line, start + 1) == folds.around(line, end - 1) == (start, end)
    assert folds.around(line, start) is folds.around(line, end) is None
    assert folds.before(line, end) == folds.after(line, start) == (start, end)
    at = line.index(image)
    assert folds.before(line, at + len(image) + 1) == (at, at + len(image) + 1)  # with the blank behind it
    assert folds.before(line, end + 2) is folds.before(line, 0) is folds.after(line, 0) is None


async def test_keys_at_and_in_a_sign(running, session):
    async with running() as (app, pilot):
        prompt = app.chat.prompt

        def paste():
            prompt.set_text("a ")
            prompt.insert_text(LONG)
            assert prompt.text == "a [pasted 60 lines]"

        paste()
        await pilot.press("left", "left", "x")
        assert prompt.value == f"a {LONG}x"
        for keys, left in (
            (("backspace",), "a "),
            (("left", "left", "backspace"), "a "),
            (("ctrl+w",), "a "),
            (("left", "ctrl+j"), f"a {LONG}\n"),
            (("home", "right", "right", "delete"), "a "),
            (("home", "right", "right", "right", "ctrl+k"), f"a {LONG}"),
        ):
            paste()
            await pilot.press(*keys)
            assert prompt.value == left, keys
        paste()
        await pilot.press("backspace", "ctrl+underscore")
        assert prompt.value == f"a {LONG}"
        await pilot.press("left")
        prompt.post_message(events.Paste("more"))
        await settle(app, pilot)
        assert prompt.value == f"a {LONG}more"


async def test_ctrl_c_and_the_queue_lose_nothing(running, session):
    async with running() as (app, pilot):
        await pilot.press(*"half", "ctrl+c")
        assert app.chat.prompt.text == ""
        await pilot.press("up")
        assert app.chat.prompt.text == "half"
        session.busy = True
        await pilot.press("ctrl+c")
        await settle(app, pilot)
        assert app.chat.prompt.text == "half", "what is typed while the agent works is not what ctrl+c stops"
        session.queued = ("queued words",)
        session.emit(QueueChanged(session.queued))
        await settle(app, pilot)
        app.chat.conversation.queue.post_message(QueueView.Removed(0))
        await settle(app, pilot)
        assert app.chat.prompt.text == "queued words\n\nhalf"


async def test_a_pasted_block_is_a_sign_in_the_thread_with_the_words_around_it(store, tmp_path):
    """Also after a restart, and for what was queued; the model gets everything, and unfolding shows it."""
    session = real_session(store, tmp_path / "w", "one", "two", "three")
    block = "\n".join(f"row {n}" for n in range(400))
    sent = f"first words\n{block} explain\nthis"
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        prompt = app.chat.prompt
        prompt.insert("first words\n")
        prompt.post_message(events.Paste(block))
        await settle(app, pilot)
        prompt.insert(" explain\nthis")
        await pilot.press("enter")
        await session.wait()
        await settle(app, pilot)
        for _ in range(2):  # as it was sent, and as it is loaded
            text = chat_text(app)
            assert "first words" in text and "[pasted 400 lines] explain" in text and "this" in text
            assert "row 200" not in text
            await app.chat.view.load()
        mine = next(b for b in app.chat.transcript.document.blocks if isinstance(b, TextBlock))
        assert mine.get_plain_text() == sent and mine.is_foldable
        mine.toggle()
        assert "row 200" in "".join(s.text for line in mine.render(100, app.palette) for s in line)
        assert session.workspace.models.provider.requests[0].messages[-1].text.startswith(sent[:50])
    await session.close()


@pytest.mark.parametrize("text", ["a\n" * 60 + "b", "intro\n" + "y\n" * 70 + "\x1b[31mend"])
def test_a_long_message_of_unknown_origin_shows_its_first_and_last_line(text):
    message = Message("m", "t1", "r", "user", (TextPart(text),), NOW)
    block = next(b for b in make_user_blocks(message) if isinstance(b, TextBlock))
    shown = [
        "".join(s.text for s in line).strip()
        for line in block.render(100, make_palette(build_variable_defaults(True), True))
    ]
    assert len(shown) < 50
    if (lines := text.strip("\n").split("\n"))[1:]:
        assert lines[0] in shown and any(line.endswith(lines[-1][-3:]) for line in shown)
