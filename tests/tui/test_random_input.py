"""Random input ends no program: see `random_input`, which also runs by hand."""

from __future__ import annotations

import os

from textual import events
from textual.keys import _character_to_key, key_to_character

from sakti.tui.app import SaktiApp, log_path
from tests.tui.conftest import quiet, settle
from tests.tui.random_input import inputs
from tests.tui.real import real_session

COUNT = int(os.environ.get("SAKTI_RANDOM_INPUTS", "300"))
SEED = int(os.environ.get("SAKTI_RANDOM_SEED", "1"))


async def test_random_input_ends_no_window(store, tmp_path, monkeypatch):
    monkeypatch.setenv("VISUAL", "true")
    session = real_session(store, tmp_path / "w", *(f"Answer {n}.\n```python\nx = {n}\n```" for n in range(COUNT)))
    app = SaktiApp(session)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(app, pilot)
        for number, one in enumerate(inputs(SEED, COUNT)):
            await give(app, pilot, one)
            assert app.is_running, f"input {number} of seed {SEED}: {one}"
        while app.screen is not app.chat:
            app.pop_screen()
        await session.interrupt()
        await pilot.resize_terminal(100, 30)
        app.chat.prompt.set_text("")
        app.chat.set_focus(app.chat.prompt)
        for character in "alive":
            post_key(app, character)
        await quiet()
        assert app.chat.prompt.text == "alive"
    assert not log_path().exists() or not (text := log_path().read_text()), text


async def give(app, pilot, one):
    """As the driver does: events to the app."""
    match one.kind:
        case "key":
            post_key(app, one.value)
        case "text" if "\n" in one.value:
            app.post_message(events.Paste(one.value))
        case "text":
            for character in one.value:
                post_key(app, character)
        case "click" | "wheel":
            across, down = one.value
            wheel = events.MouseScrollUp if across < 0.5 else events.MouseScrollDown
            x, y = int(across * app.size.width), int(down * app.size.height)
            for kind in (events.MouseDown, events.MouseUp) if one.kind == "click" else (wheel,):
                app.post_message(kind(None, x, y, 0, 0, 1, False, False, False, x, y))
        case "size":
            await pilot.resize_terminal(*one.value)
        case "suspend":
            app.app_suspend_signal.publish(app)
            app.app_resume_signal.publish(app)
    await quiet(max_sleep=0.03)


def post_key(app, key):
    key = _character_to_key(key) if len(key) == 1 else key
    app.post_message(events.Key(key, key_to_character(key)))
