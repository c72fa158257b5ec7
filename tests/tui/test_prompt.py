"""The prompt beyond typing: looking for older input, the user's own editor, names of models."""

from __future__ import annotations

import stat

import pytest
from textual import events

from sakti.core.errors import SaktiError
from sakti.core.types import ModelInfo
from sakti.tui import desktop
from sakti.tui.widgets.prompt import HistorySearch
from tests.tui.conftest import chat_text, screen_text, settle

OLDER = ["run the tests", "fix login", "run the linter", "Fix Logout"]


def test_a_search_finds_newest_first_and_stays_at_its_ends():
    search = HistorySearch([*OLDER, "fix login"]).type("fix")
    assert search.matches == ["fix login", "Fix Logout"]
    assert search.step(1).current == search.step(1).step(1).current == "Fix Logout"
    assert search.step(1).step(-1).step(-1).current == "fix login"
    assert HistorySearch(OLDER).type("Fix").matches == ["Fix Logout"]
    assert HistorySearch(OLDER).type("nowhere").current is None
    assert HistorySearch(OLDER).type("x").erase().matches == []


TYPED = {
    "Persian with ZWNJ": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "family emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "Devanagari with ZWJ": "\u0915\u094d\u200d\u0937",
    "marks of direction": "a\u200e\u05d0\u200f",
    "soft hyphen, zero width and no-break space": "co\u00adop\u200b\u00a0x",
    "ideographic space": "\u65e5\u3000\u672c",
}


@pytest.mark.parametrize("text", TYPED.values(), ids=TYPED.keys())
async def test_every_typed_character_reaches_the_prompt(running, session, text):
    async with running() as (app, pilot):
        for character in text:
            app.post_message(events.Key(character, character))
        app.post_message(events.Key("ctrl+at", "\x00"))
        await pilot.pause()
        assert app.chat.prompt.value == text
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == [text]
        await pilot.press("ctrl+f")
        await settle(app, pilot)
        app.post_message(events.Key("\u200e", "\u200e"))
        await pilot.pause()
        assert app.screen.focused.value == "\u200e"


@pytest.mark.parametrize("character", ["\u202a", "\u202e", "\u2066", "\u2069", "\u2028"])
async def test_characters_that_reorder_text_are_not_typed(running, character):
    async with running() as (app, pilot):
        for typed in ("a", character, "b"):
            app.post_message(events.Key(typed, typed))
        await pilot.pause()
        assert app.chat.prompt.value == "ab"


async def test_ctrl_r_looks_for_older_input_and_enter_takes_it(running, session):
    session.views.typed = list(OLDER)
    async with running() as (app, pilot):
        await pilot.press("ctrl+r", *"run", "ctrl+r")
        assert app.chat.prompt.text == "run the tests"
        assert "history “run”: 2 of 2" in screen_text(app)
        await pilot.press("ctrl+s")
        assert app.chat.prompt.text == "run the linter"
        await pilot.press("enter")
        assert session.sent == []
        assert app.chat.status_line.hint == ""
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == ["run the linter"]


@pytest.mark.parametrize("key", ["escape", "ctrl+c", "ctrl+g"])
async def test_leaving_the_search_leaves_the_text_as_it_was(running, session, key):
    session.views.typed = [*OLDER, "line\n" * 60]
    async with running() as (app, pilot):
        pasted = "x\n" * 80
        app.chat.prompt.set_text(pasted)
        app.chat.prompt.insert_text(" and this")
        app.chat.prompt.move_cursor((0, 3))
        before = app.chat.prompt.text
        await pilot.press("ctrl+r", *"line")
        assert "[pasted 60 lines]" in app.chat.prompt.text
        await pilot.press(key)
        assert app.chat.prompt.text == before
        assert app.chat.prompt.value == pasted + " and this"
        assert app.chat.prompt.cursor_location == (0, 3)
        assert app.chat.status_line.hint == ""
        await pilot.press("escape")
        assert app.is_running


async def test_any_other_key_takes_what_was_found_and_works_on_it(running, session):
    session.views.typed = [*OLDER, "/compact undo"]
    async with running() as (app, pilot):
        await pilot.press("ctrl+r", *"nothing like it", *["backspace"] * 15, *"und")
        assert app.chat.prompt.text == "/compact undo"
        assert not app.chat.prompt.completing
        await pilot.press("home", "delete", "end", *"!")
        assert app.chat.prompt.text == "compact undo!"


async def test_names_of_models_are_completed(running, session):
    session.views.known_models = [
        ModelInfo("gpt-5", "openai", 400_000),
        ModelInfo("gpt-5-mini", "openai"),
        ModelInfo("evil\x1b]0;x\x07", "openai"),
    ]
    async with running() as (app, pilot):
        await pilot.press(*"/model mini")
        await settle(app, pilot)
        assert [c.label for c in app.chat.conversation.completions.choices] == ["openai/gpt-5-mini"]
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.chat.header.model == "openai/gpt-5-mini"
        await pilot.press(*"/model ")
        await settle(app, pilot)
        assert [c.label for c in app.chat.conversation.completions.choices] == ["openai/gpt-5", "openai/gpt-5-mini"]
        assert "400.0k window" in screen_text(app)


async def test_keys_that_edit_keep_their_place_among_letters(running, session):
    async with running() as (app, pilot):
        for key in (*"gone", "ctrl+u", *"no word", "ctrl+w", *"sense", "backspace", "left", "X"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await settle(app, pilot)
        assert app.chat.prompt.text == "no senXs"


# --- the editor ---------------------------------------------------------------------------------------------


async def test_ctrl_g_edits_the_prompt_elsewhere_and_the_text_comes_back(running, session, script, tmp_path):
    script(
        f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(f'{{path}} {{path.stat().st_mode}} {{path.read_text()}}')"
        "\npath.write_text(path.read_text().upper() + '\\n')"
    )
    async with running() as (app, pilot):
        await pilot.press(*"wörds")
        await pilot.press("ctrl+g")
        await settle(app, pilot)
        assert app.chat.prompt.text == "WÖRDS"
        path, mode, text = (tmp_path / "seen").read_text().split(" ", 2)
        assert text == "wörds"
        assert stat.S_IMODE(int(mode)) == 0o600
        assert not (tmp_path / path).exists()
        await pilot.press("enter")
        await settle(app, pilot)
        assert session.sent == ["WÖRDS"]


@pytest.mark.parametrize(
    ("visual", "says"),
    [
        ("", "ended with code 3; the prompt is unchanged"),
        ("no-such-editor-here", "no-such-editor-here was not found on PATH outside the workspace. Set $VISUAL"),
        ("vi 'unclosed", "cannot be read as a command"),
    ],
)
async def test_an_editor_that_fails_says_so_and_loses_nothing(running, session, script, monkeypatch, visual, says):
    script("path.write_text('half'); sys.exit(3)")
    if visual:
        monkeypatch.setenv("VISUAL", visual)
    async with running((140, 30)) as (app, pilot):
        await pilot.press(*"words", "ctrl+g")
        await settle(app, pilot)
        assert app.chat.prompt.text == "words"
        assert says in " ".join(chat_text(app).split())


async def test_a_terminal_that_cannot_be_lent_is_named(running, session, monkeypatch):
    monkeypatch.setenv("EDITOR", "true")
    async with running() as (app, pilot):
        await pilot.press(*"words", "ctrl+g")
        await settle(app, pilot)
        assert "cannot run an editor" in chat_text(app)
        assert app.chat.prompt.text == "words"


def test_without_a_named_editor_a_usual_one_is_taken_never_one_of_the_workspace(tmp_path):
    tools, workspace = tmp_path / "tools", tmp_path / "w"
    for folder, name in ((tools, "vi"), (tools, "code"), (workspace, "nano"), (workspace, "odd")):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("")
        (folder / name).chmod(0o700)
    path = {"PATH": f".:{workspace}:{tools}"}
    assert desktop.find_editor_command(path, workspace) == [str(tools / "vi")]
    assert desktop.find_editor_command({**path, "EDITOR": "code --wait"}, workspace) == [str(tools / "code"), "--wait"]
    assert desktop.find_editor_command({**path, "EDITOR": "/my/own -x"}, workspace) == ["/my/own", "-x"]
    with pytest.raises(SaktiError, match="odd was not found on PATH outside the workspace"):
        desktop.find_editor_command({**path, "EDITOR": "odd"}, workspace)
    with pytest.raises(SaktiError, match="Set \\$VISUAL"):
        desktop.find_editor_command({"PATH": str(workspace)}, workspace)


async def test_undo_and_redo_take_lines_away_below_the_cursor(running):
    """The scroll bar comes and goes with the lines, and looks for a cursor that is not moved yet."""
    for size in ((60, 20), (20, 6)):
        async with running(size) as (app, pilot):
            for text in ("a\nb ", "line\n" * 8, "x"):
                app.chat.prompt.insert(text)
                await pilot.press("ctrl+underscore", "ctrl+y", "ctrl+underscore")
            assert app.chat.prompt.text == "" and app.chat.prompt.cursor_location == (0, 0)


async def test_up_goes_on_in_the_history_past_a_command(running):
    async with running() as (app, pilot):
        app.chat.prompt.history_entries = ["older", "/help", "newer"]
        await pilot.press("up", "up")
        await settle(app, pilot)
        await pilot.press("up")
        assert app.chat.prompt.text == "older"
