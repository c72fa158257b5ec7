"""Keys of the user's own: what the settings name is used where it can be, and said where it cannot."""

from __future__ import annotations

import pytest

from sakti.core.config import load
from sakti.tui.app import SaktiApp
from sakti.tui.chat.screen import list_chat_parts
from sakti.tui.keys import abbreviate_key, iter_bindings, make_keymap
from sakti.tui.screens.help import list_parts
from sakti.tui.screens.panel import make_clickable
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import FakeSession

EVERY = list_parts(list_chat_parts())


def test_every_key_has_an_id_of_its_own():
    found = [b.id for _, owner in EVERY for b in iter_bindings(owner)]
    assert all(found) and len(found) == len(set(found))
    assert {"prompt.send", "app.search", "prompt.delete-word-left", "observations.forget"} <= set(found)


def test_what_can_be_used_is_used():
    found = make_keymap({"app.search": "ctrl+l", "prompt.newline": ["alt+enter", "F9"], "list.open": "?"}, EVERY)
    assert found.problems == ()
    assert found.keys == {"app.search": "ctrl+l", "prompt.newline": "alt+enter,f9", "list.open": "question_mark"}


def test_two_keys_may_change_places():
    found = make_keymap({"prompt.send": "ctrl+j", "prompt.newline": "enter"}, EVERY)
    assert found.problems == () and found.keys == {"prompt.send": "ctrl+j", "prompt.newline": "enter"}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"app.serch": "ctrl+l"}, "There is no binding app.serch: did you mean app.search?"),
        ({"zzz": "ctrl+l"}, "There is no binding zzz: F1 shows the ids."),
        ({"app.search": 5}, "app.search = '5' is not a key"),
        ({"app.search": "ctrl+nokey"}, "is not a key: write it as"),
        ({"app.search": "x"}, "app.search cannot be x: they type text."),
        ({"prompt.send": "space"}, "they type text."),
        ({"app.search": "f1"}, "f1 is already used for app.help: app.search keeps ctrl+f."),
        ({"observations.filter": "g"}, "g is already used for list.home: observations.filter keeps /."),
        ({"prompt.send": "ctrl+f"}, "ctrl+f is already used for app.search: prompt.send keeps enter."),
    ],
)
def test_what_cannot_be_used_is_said_and_left_as_it_is(wanted, said):
    found = make_keymap(wanted, EVERY)
    assert found.keys == {} and len(found.problems) == 1 and said in found.problems[0]


def test_keys_in_short():
    keys = ("ctrl+p", "f3", "escape", "slash", "left_square_bracket", "shift+enter,ctrl+j")
    assert [abbreviate_key(k) for k in keys] == ["^P", "F3", "esc", "/", "[", "shift+enter"]


async def test_keys_of_the_settings_work_and_are_named(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(
        '[keys]\n"app.log" = "f9"\n"observations.filter" = "t"\n"app.nothing" = "f8"\n[keys.prompt]\nsend = "ctrl+s"\n'
        'newline = "enter"\n'
    )
    config = load(user_file=file).config
    session = FakeSession(tmp_path, config)
    app = SaktiApp(session)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        assert "There is no binding app.nothing" in chat_text(app)
        await pilot.press(*"one", "enter", *"two", "ctrl+s")
        await settle(app, pilot)
        assert session.sent == ["one\ntwo"]
        await pilot.press("f9")
        await settle(app, pilot)
        assert "t filter" in screen_text(app) and "F9 hide" in screen_text(app)
        await pilot.press("t", *"words")
        await settle(app, pilot)
        assert app.chat.sidebar.observations.filter_box.value == "words"


async def test_a_project_may_not_set_keys(tmp_path):
    file = tmp_path / "project.toml"
    file.write_text('[keys]\n"app.search" = "ctrl+l"\n')
    found = load(project_file=file)
    assert dict(found.config.keys) == {} and "a project may not set keys.app.search" in found.warnings[0]
    assert found.config.keys == {}


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (0, ["aa one · b two · cc three"]),
        (80, ["aa one · b two · cc three"]),
        (25, ["aa one · b two · cc three"]),
        (24, ["aa one · b two", "cc three"]),
        (9, ["aa one", "b two", "cc three"]),
        (2, ["aa one", "b two", "cc three"]),
    ],
)
def test_the_keys_of_a_screen_are_folded_between_them(width, lines):
    keys = (("aa one", ""), ("b two", "do"), ("cc three", ""))
    assert make_clickable(keys, width).plain.split("\n") == lines


async def test_help_is_named_where_there_is_little_room(running, session):
    async with running((40, 12)) as (app, pilot):
        assert "F1 help" in screen_text(app).split("\n")[-1]
        await pilot.resize_terminal(80, 24)
        app.chat.status_line.show_context(24_000)
        await settle(app, pilot)
        last = screen_text(app).split("\n")[-1]
        assert "context 24.0k" in last and last.index("^C quit") < last.index("^P palette") < last.index("F1 help")


async def test_the_program_is_suspended_from_every_place(tmp_path, monkeypatch):
    suspended: list[SaktiApp] = []
    monkeypatch.setattr(SaktiApp, "action_suspend_process", lambda app: suspended.append(app))
    own = tmp_path / "config.toml"
    own.write_text('[keys]\n"app.suspend" = "f9"\n')
    for key, config in (("ctrl+z", None), ("f9", load(user_file=own).config)):
        suspended.clear()
        app = SaktiApp(FakeSession(tmp_path, config) if config else FakeSession(tmp_path))
        async with app.run_test(size=(120, 35)) as pilot:
            await settle(app, pilot)
            places = (
                [],
                ["f6"],
                ["f6"],
                ["f6"],
                ["escape", "f1"],
                ["escape", "ctrl+f"],
                ["escape", "ctrl+p"],
                ["escape"],
            )
            for count, presses in enumerate(places, 1):
                await pilot.press(*presses, key)
                assert len(suspended) == count, (key, presses, app.screen, app.focused)
