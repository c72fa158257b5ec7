"""Undo on the screen: preview, conflicts, the turns to choose from, and their keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.providers.scripted import Answer, Call
from sakti.tui.app import SaktiApp
from sakti.tui.screens.undo import RedoScreen, RewindScreen, UndoScreen
from tests.fakes.undo import preview, turns
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import scene
from tests.tui.test_snapshots import SIZES, THEMES, posed

AUTO = ("approval.mode=edits", 'approval.allow=["bash"]')


def writes(path: str, content: str) -> Answer:
    return Answer(calls=(Call("write", {"path": path, "content": content}),))


async def opened(store, tmp_path) -> SaktiApp:
    answers = [writes("one.py", "one = 1\n"), "Written.", writes("two.py", "two = 2\n"), "Written, too."]
    return SaktiApp(real_session(store, tmp_path / "w", *answers, overrides=AUTO))


async def pressed(app, pilot, *keys: str) -> None:
    for key in keys:
        app.session.workspace.clock.advance(0 if key == "escape" else 2)
        await pilot.press(key)
        await settle(app, pilot)


async def test_undo_is_shown_first_and_the_text_returns_to_the_prompt(store, tmp_path):
    app, root = await opened(store, tmp_path), tmp_path / "w"
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "write one", "write two")
        app.run_command("/undo")
        await settle(app, pilot)
        assert isinstance(app.screen, UndoScreen)
        assert "D two.py" in screen_text(app) and "two = 2" in screen_text(app)
        await pressed(app, pilot, "escape")
        assert (root / "two.py").exists()
        app.run_command("/undo")
        await settle(app, pilot)
        await pressed(app, pilot, "y")
        assert not (root / "two.py").exists() and (root / "one.py").exists()
        assert app.chat.prompt.text == "write two"
        assert "Undo  Undone" not in chat_text(app)
        assert "Undone: 1 turn, 'write two'. 1 file deleted. /redo reverses it." in chat_text(app)
        assert "Written, too." not in chat_text(app)
        app.run_command("/redo")
        await settle(app, pilot)
        assert (root / "two.py").exists() and "Redone: messages and files. 1 file restored." in chat_text(app)


async def test_the_result_of_an_undo_is_shown_in_full_in_a_narrow_window(store, tmp_path):
    answers = [writes("one.py", "one = 1\n"), "Written.", writes("one.py", "one = 2\n"), writes("two.py", ""), "Done."]
    app = SaktiApp(real_session(store, tmp_path / "w", *answers, overrides=AUTO))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "write one", "change one, then add a second module with an empty body for later")
        app.run_command("/undo")
        await settle(app, pilot)
        await pressed(app, pilot, "y")
        shown = " ".join(screen_text(app).split())
        assert "add a second module" in shown and "1 file restored, 1 file deleted. /redo reverses it." in shown
        assert "Your prompt is back; typing / replaces it." in shown


async def test_an_undo_without_files_shows_its_turns_and_a_command_replaces_the_returned_text(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", "One.", "Two.", overrides=AUTO))
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "first question", "second question")
        app.run_command("/undo 2")
        await settle(app, pilot)
        shown = screen_text(app)
        assert "2 turns" in shown and "first question" in shown and "second question" in shown
        assert "conflict" not in shown and app.screen.focused is app.screen.reader
        await pressed(app, pilot, "y")
        assert "Undone: 2 turns, from 'first question' on. /redo reverses it." in chat_text(app)
        assert "typing / replaces it" in screen_text(app)
        assert app.chat.prompt.text == "first question"
        await pressed(app, pilot, *"/redo", "escape", "enter")  # Esc closes the completions
        assert "Redone: messages." in screen_text(app) and app.chat.prompt.text == ""
        await pressed(app, pilot, "up", "up")
        assert app.chat.prompt.text == "first question", "nothing is lost"


@pytest.mark.parametrize("before", [["end"], ["space"], ["left"], []])
async def test_returned_text_that_is_edited_or_joins_newer_text_takes_a_slash_as_text(running, before):
    async with running() as (app, pilot):
        app.chat.prompt.set_text("" if before else "newer")
        app.chat.conversation.return_to_prompt("a path")
        await pilot.press(*before, "/")
        assert app.chat.prompt.text.count("/") == 1 and app.chat.prompt.text.startswith("a pat")


async def test_a_conflict_is_kept_or_restored_as_chosen(store, tmp_path):
    app, root = await opened(store, tmp_path), tmp_path / "w"
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "write one", "write two")
        (root / "two.py").write_text("mine\n")
        app.run_command("/undo files")
        await settle(app, pilot)
        assert "keep" in screen_text(app) and "changed since" in screen_text(app)
        await pressed(app, pilot, "y")
        assert (root / "two.py").read_text() == "mine\n"
        app.run_command("/redo")
        await settle(app, pilot)
        app.run_command("/undo files")
        await settle(app, pilot)
        await pressed(app, pilot, "space", "y")
        assert not (root / "two.py").exists()


async def test_a_redo_asks_about_what_changed_since_the_undo(store, tmp_path):
    app, root = await opened(store, tmp_path), tmp_path / "w"
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "write one", "write two")
        first = app.session.thread.id
        app.run_command("/undo yes")
        await settle(app, pilot)
        assert app.chat.prompt.text == "write two", "the words are there to be sent again"
        (root / "two.py").write_text("mine\n")
        app.run_command("/redo")
        await settle(app, pilot)
        assert isinstance(app.screen, RedoScreen)
        assert "keep" in screen_text(app) and "two = 2" in screen_text(app)
        await pressed(app, pilot, "escape")
        assert app.session.thread.id != first and (root / "two.py").read_text() == "mine\n"
        app.run_command("/redo")
        await settle(app, pilot)
        await pressed(app, pilot, "space", "y")
        assert (root / "two.py").read_text() == "two = 2\n"
        assert app.session.thread.id == first and "Redone" in screen_text(app)


async def test_esc_twice_offers_the_turns(store, tmp_path):
    app, root = await opened(store, tmp_path), tmp_path / "w"
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "write one", "write two")
        await pressed(app, pilot, "escape")
        app.session.workspace.clock.advance(1)
        await pressed(app, pilot, "escape")
        assert app.screen is app.chat, "too late for a second press"
        await pressed(app, pilot, "escape")
        assert isinstance(app.screen, RewindScreen)
        assert "write one" in screen_text(app) and "1 file" in screen_text(app)
        await pressed(app, pilot, "tab", "tab", "down", "enter")
        assert isinstance(app.screen, UndoScreen)
        await pressed(app, pilot, "y")
        assert not (root / "one.py").exists() and not (root / "two.py").exists()
        assert app.chat.prompt.text == "", "the conversation goes on"


async def test_esc_twice_does_nothing_with_text_in_the_prompt(store, tmp_path):
    app = await opened(store, tmp_path)
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        app.chat.prompt.set_text("half a sentence")
        await pressed(app, pilot, "escape", "escape")
        assert app.screen is app.chat


@pytest.mark.parametrize("theme", THEMES[:1])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("screen", ["preview", "turns"])
def test_pictures(snap_compare, size, theme, screen):
    async def open_it(pilot):
        await posed(theme)(pilot)
        app = pilot.app
        app.push_screen(
            UndoScreen(preview(), app.session.workspace.clock) if screen == "preview" else RewindScreen(turns(), NOW)
        )
        await settle(app, pilot)

    assert snap_compare(SaktiApp(scene(Path("/work"))), terminal_size=size, run_before=open_it)
