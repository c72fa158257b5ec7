"""Vim's keys: what they make of a text, and the prompt that has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sakti.tui.widgets.vim import Step, Vim, get_offset, get_place, get_selection, press, press_escape
from tests.tui.conftest import screen_text, settle

KEYS = "hjklwbe0$xdciaIAoOugGDC23ypPrvV."


def play(text: str, at: int, keys: str) -> tuple[str, int, str]:
    """Text, place and mode after `keys` in normal mode; `<` is Escape."""
    state = Vim("normal")
    for key in keys:
        if state.mode == "insert" and key != "<":
            text, at = text[:at] + key + text[at:], at + 1
            continue
        step: Step = press_escape(state, text, at) if key == "<" else press(state, key, text, at)
        if step.insert is not None:
            text = text[: step.start] + step.insert + text[step.end :]
        state, at = step.state, step.at
    return text, at, state.mode


@pytest.mark.parametrize(
    ("text", "at", "keys", "left", "where", "mode"),
    [
        ("one two", 0, "w", "one two", 4, "normal"),
        ("one two", 4, "b", "one two", 0, "normal"),
        ("one two", 0, "e", "one two", 2, "normal"),
        ("foo.bar x", 0, "w", "foo.bar x", 3, "normal"),
        ("one two", 2, "0", "one two", 0, "normal"),
        ("one two", 2, "$", "one two", 6, "normal"),
        ("one\ntwo", 1, "j", "one\ntwo", 5, "normal"),
        ("one\ntwo", 5, "k", "one\ntwo", 1, "normal"),
        ("one\ntwo\nthree", 1, "G", "one\ntwo\nthree", 8, "normal"),
        ("one\ntwo\nthree", 9, "gg", "one\ntwo\nthree", 0, "normal"),
        ("one two", 0, "x", "ne two", 0, "normal"),
        ("one two", 6, "x", "one tw", 5, "normal"),
        ("one\ntwo\nthree", 5, "dd", "one\nthree", 4, "normal"),
        ("one\ntwo", 5, "dd", "one", 2, "normal"),
        ("one", 1, "dd", "", 0, "normal"),
        ("one\ntwo\nthree", 0, "2dd", "three", 0, "normal"),
        ("one\ntwo", 1, "cc!", "!\ntwo", 1, "insert"),
        ("one two three", 4, "dw", "one three", 4, "normal"),
        ("one two three", 0, "d2w", "three", 0, "normal"),
        ("one two three", 4, "cwX", "one X three", 5, "insert"),
        ("one two", 4, "d$", "one ", 3, "normal"),
        ("one two", 4, "D", "one ", 3, "normal"),
        ("one two", 4, "CX", "one X", 5, "insert"),
        ("one two", 4, "d0", "two", 0, "normal"),
        ("one", 1, "iX", "oXne", 2, "insert"),
        ("one", 1, "aX", "onXe", 3, "insert"),
        ("  one", 4, "IX", "  Xone", 3, "insert"),
        ("one\ntwo", 1, "AX", "oneX\ntwo", 4, "insert"),
        ("one\ntwo", 1, "oX", "one\nX\ntwo", 5, "insert"),
        ("one\ntwo", 5, "OX", "one\nX\ntwo", 5, "insert"),
        ("one", 1, "dq", "one", 1, "normal"),
        ("", 0, "xdwbe$G", "", 0, "normal"),
        ("one\ntwo\nthree", 5, "dG", "one", 2, "normal"),
        ("one\ntwo", 1, "yyp", "one\none\ntwo", 4, "normal"),
        ("one\ntwo", 1, "yyjp", "one\ntwo\none", 8, "normal"),
        ("one\ntwo", 5, "yyP", "one\ntwo\ntwo", 4, "normal"),
        ("one\ntwo\nthree", 0, "ddp", "two\none\nthree", 4, "normal"),
        ("one\ntwo\nthree", 0, "yjGp", "one\ntwo\nthree\none\ntwo", 14, "normal"),
        ("one two", 0, "ywP", "one one two", 3, "normal"),
        ("one two", 0, "dw$p", "twoone ", 6, "normal"),
        ("ab", 0, "xp", "ba", 1, "normal"),
        ("ab", 0, "x3p", "baaa", 3, "normal"),
        ("one", 1, "p", "one", 1, "normal"),
        ("one", 0, "rX", "Xne", 0, "normal"),
        ("one", 0, "2rX", "XXe", 0, "normal"),
        ("one", 0, "4rX", "one", 0, "normal"),
        ("one", 1, "r3", "o3e", 1, "normal"),
        ("one two three", 0, "dw.", "three", 0, "normal"),
        ("abcdef", 0, "2x.", "ef", 0, "normal"),
        ("one two", 0, "cwX<w.", "X X", 2, "normal"),
        ("one\ntwo", 0, "Ax<j.", "onex\ntwox", 8, "normal"),
        ("one", 0, "oX<.", "one\nX\nX", 6, "normal"),
        ("one", 0, "OX<.", "X\nX\none", 0, "normal"),
        ("one", 0, ".", "one", 0, "normal"),
        ("one two", 0, "vey$p", "one twoone", 9, "normal"),
        ("one two", 4, "vbd", "wo", 0, "normal"),
        ("one two", 0, "vlcX", "Xe two", 1, "insert"),
        ("one two", 0, "velvx", "onetwo", 3, "normal"),
        ("one\ntwo\nthree", 5, "Vd", "one\nthree", 4, "normal"),
        ("one\ntwo\nthree", 1, "Vjyjjp", "one\ntwo\nthree\none\ntwo", 14, "normal"),
        ("one\ntwo", 1, "VcX", "X\ntwo", 1, "insert"),
        ("one two", 0, "yewvep", "one one", 4, "normal"),
        ("one\ntwo", 1, "vjrX", "oXX\nXXo", 1, "normal"),
        ("one two", 2, "vwohd", "owo", 1, "normal"),
        ("one", 1, "v<x", "oe", 1, "normal"),
        ("one two", 0, "vVv", "one two", 0, "visual"),
    ],
)
def test_keys(text, at, keys, left, where, mode):
    assert play(text, at, keys) == (left, where, mode)


@given(st.text("ab .\n", max_size=30), st.integers(0, 30), st.text(KEYS, max_size=20))
def test_no_keys_leave_the_text(text, at, keys):
    state, at = Vim("normal"), min(at, len(text))
    for key in keys:
        if state.mode == "insert":
            state = press_escape(state, text, at).state
        step = press(state, key, text, at)
        if step.insert is not None:
            assert 0 <= step.start <= step.end <= len(text)
            text = text[: step.start] + step.insert + text[step.end :]
        state, at = step.state, step.at
        assert 0 <= at <= len(text)
        assert not state.selects or 0 <= get_selection(state, text)[0] <= get_selection(state, text)[1] <= len(text)
        assert get_offset(text, get_place(text, at)) == at


async def test_the_prompt_has_them_where_they_are_wanted(running, session):
    async with running() as (app, pilot):
        assert "INSERT" not in screen_text(app)
        app.chat.prompt.use_vim(True)
        await settle(app, pilot)
        assert "INSERT" in screen_text(app)
        await pilot.press(*"fix the the test", "escape")
        await settle(app, pilot)
        assert "NORMAL" in screen_text(app)
        await pilot.press("0", "w", "d", "w")
        assert app.chat.prompt.text == "fix the test"
        await pilot.press("u")
        assert app.chat.prompt.text == "fix the the test"
        await pilot.press("0", "v", "e")
        await settle(app, pilot)
        assert "VISUAL" in screen_text(app) and app.chat.prompt.selected_text == "fix"
        await pilot.press("left", "0", "l")
        await settle(app, pilot)
        assert "NORMAL" in screen_text(app) and not app.chat.prompt.selected_text, "an arrow key leaves the selection"
        await pilot.press("0", "v", "e", "y", "P")
        assert app.chat.prompt.text == "fixfix the the test"
        await pilot.press("u")
        await pilot.press("0", "w", "d", "w", "A", *" now", "enter")
        await settle(app, pilot)
        assert session.sent == ["fix the test now"]
        await pilot.press("escape", "d", "escape", "escape")
        await settle(app, pilot)
        assert not session.busy, "behind the half command and normal mode Escape stops the agent"
        await pilot.press("i", "x", "escape", "x", "enter", *"typed again")
        app.chat.prompt.use_vim(False)
        await settle(app, pilot)
        assert "INSERT" not in screen_text(app) and "NORMAL" not in screen_text(app)
