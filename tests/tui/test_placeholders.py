"""A folded paste or an image is one thing in the prompt; nothing that was typed or queued is lost by a key."""

from __future__ import annotations

from pathlib import Path

from textual import events

from sakti.core.events import QueueChanged
from sakti.tui.widgets.placeholders import Placeholders
from sakti.tui.widgets.queue import QueueView
from tests.tui.conftest import settle

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
            prompt.put("a ")
            prompt.add(LONG)
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
