"""Images in the prompt: dropped, pasted, taken out again."""

from __future__ import annotations

import os
from pathlib import Path

from textual import events

from sakti.core.errors import SaktiError
from sakti.tui import desktop
from tests.tui.conftest import chat_text, settle
from tests.unit.core.test_images import PNG


def paste(app, text):
    app.chat.prompt.post_message(events.Paste(text))


async def test_dropped_images_are_signs_that_are_sent_as_mentions(running, session, tmp_path):
    cat, dog = tmp_path / "my cat.png", tmp_path / "dog.png"
    for path in (cat, dog):
        path.write_bytes(PNG + b"\0" * 33_000)
    async with running() as (app, pilot):
        await pilot.press(*"see")
        paste(app, f"'{cat}' {dog}")
        await settle(app, pilot)
        assert app.chat.prompt.text == "see [image my cat.png 33 kB] [image dog.png 33 kB] "
        escaped = str(cat).replace(" ", "\\ ")
        assert app.chat.prompt.value == f"see @{escaped} @{dog} "
        await pilot.press("backspace", *"and")
        assert app.chat.prompt.text == "see [image my cat.png 33 kB] and"
        await pilot.press(*["backspace"] * 3, "left", "delete", *"why")  # a word right behind the sign
        assert app.chat.prompt.value == f"see @{escaped} why"
        paste(app, str(tmp_path))  # a path, but no image
        await settle(app, pilot)
        assert app.chat.prompt.text.endswith(f"why{tmp_path}")


async def test_an_image_that_is_refused_stays_in_the_prompt(running, session, tmp_path):
    (tmp_path / "cat.png").write_bytes(PNG)

    async def refuse(text):
        raise SaktiError("local/small takes no images: cat.png was not sent.", title="Image")

    session.submit = refuse
    async with running() as (app, pilot):
        paste(app, str(tmp_path / "cat.png"))
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "takes no images" in chat_text(app)
        assert app.chat.prompt.value.strip() == f"@{tmp_path / 'cat.png'}"


async def test_ctrl_v_takes_an_image_from_the_systems_clipboard(
    running, session, tmp_path, monkeypatch, tmp_path_factory
):
    tools = tmp_path_factory.mktemp("tools")
    (tmp_path / "wl-paste").write_text("#!/bin/sh\necho of the workspace: never run\n")
    (tmp_path / "wl-paste").chmod(0o700)
    monkeypatch.setenv("PATH", f"{session.workspace.root}:{tools}:/usr/bin:/bin")
    monkeypatch.setenv("WAYLAND_DISPLAY", "x")
    monkeypatch.delenv("DISPLAY", raising=False)
    async with running() as (app, pilot):
        if not desktop.find_clipboard_command(os.environ, app.session.workspace.root):
            await pilot.press("ctrl+v")
            await settle(app, pilot)
            assert "No tool here reads images" in chat_text(app)
        (tmp_path / "clip.png").write_bytes(PNG)
        program = tools / "wl-paste"
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/clip.png\n")
        program.chmod(0o700)
        await pilot.press("ctrl+v")
        await settle(app, pilot)
        assert app.chat.prompt.text.startswith("[image pasted-")
        kept = app.chat.prompt.value.strip().removeprefix("@")
        assert Path(kept).stat().st_mode & 0o777 == 0o600
        (tmp_path / "clip.png").write_text("no image")
        app.copy_to_clipboard("own text")
        await pilot.press("ctrl+v")
        await settle(app, pilot)
        assert app.chat.prompt.text.endswith("own text")
