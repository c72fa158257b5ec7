"""`/settings`: values, origins, the line that changes one. `/compact diff`: what the last compaction did."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sakti.agent.last_compaction import Shown
from sakti.agent.settings_view import HERE, as_toml, proposed, settings
from sakti.core.config import Config, flat, load, replace_setting
from sakti.core.errors import ConfigError
from sakti.store.compactions import Compaction
from sakti.tui.app import SaktiApp
from sakti.tui.screens.compaction import CompactionScreen
from sakti.tui.screens.settings import SettingsScreen
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW
from tests.tui.real import real_session, say
from tests.tui.scene import log, scene
from tests.tui.test_safety import EVIL, check
from tests.tui.test_snapshots import SIZES, THEMES, posed


def found(tmp_path, *, user="", project="", env=None, overrides=()):
    files = []
    for name, text in (("user.toml", user), ("project.toml", project)):
        (tmp_path / name).write_text(text)
        files.append(tmp_path / name)
    config = load(user_file=files[0], project_file=files[1], env=env or {}, overrides=overrides).config
    rows = settings(config, user_file=files[0], project_file=files[1], env=env or {})
    return {s.name: s for s in rows}


def test_every_setting_has_its_value_and_origin(tmp_path):
    rows = found(
        tmp_path,
        user="[ui]\nsidebar_width = 50\n",
        project="[agent]\nmax_steps = 9\n",
        env={"SAKTI_MODE": "testing"},
        overrides=("memory.carry_over=7",),
    )
    assert set(rows) == set(flat(Config()))
    assert (rows["ui.sidebar_width"].value, Path(rows["ui.sidebar_width"].origin).name) == (50, "user.toml")
    assert Path(rows["agent.max_steps"].origin).name == "project.toml"
    assert rows["mode"].origin == "SAKTI_MODE"
    assert (rows["memory.carry_over"].value, rows["memory.carry_over"].origin) == (7, HERE)
    assert rows["ui.theme"].origin == "default"
    assert rows["agent.max_steps"].project and not rows["ui.theme"].project


def test_a_proposed_line_is_what_a_file_takes():
    config = Config()
    for name, value in flat(config).items():
        if value is None or name == "approval.mode":
            continue
        line = proposed(config, name, as_toml(value))
        (node,) = [tomllib.loads(line)]
        for part in name.split("."):
            node = node[part]
        assert replace_setting(config, name, node) == config, line
    assert proposed(config, "memory.observation.message_tokens", "20_000") == (
        "[memory.observation]\nmessage_tokens = 20000"
    )
    assert proposed(config, "ui.theme", 'my "own"') == '[ui]\ntheme = "my \\"own\\""'


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("agent.max_steps", "many", "whole number"),
        ("approval.mode", "free", "plan"),
        ("memory.observation.buffer_tokens", "40000", "must come to less"),
        ("memory.observation.message_tokens", "-1", "above 0"),
        ("approval.deny", "[[1]]", "cannot be"),
        ("model", "", "take its line out"),
    ],
)
def test_a_wrong_value_gets_one_sentence(name, text, says):
    with pytest.raises(ConfigError, match=says):
        proposed(Config(), name, text)


async def test_settings_by_keys(store, tmp_path):
    session = real_session(store, tmp_path / "w", overrides=("agent.max_steps=33",))
    app = SaktiApp(session)
    copied = []
    app.copy_to_clipboard = copied.append
    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        app._palette("/settings")
        await settle(app, pilot)
        assert isinstance(app.screen, SettingsScreen)
        await pilot.press(*"max_steps")
        await settle(app, pilot)
        assert "33" in screen_text(app) and HERE in screen_text(app)
        await pilot.press("enter", "ctrl+a", "ctrl+k", *"lots", "enter")
        await settle(app, pilot)
        assert "whole number" in screen_text(app)
        await pilot.press("ctrl+a", "ctrl+k", *"50", "enter")
        await settle(app, pilot)
        assert copied == ["[agent]\nmax_steps = 50\n"]
        assert "max_steps = 50" in screen_text(app) and "next start" in screen_text(app)
        await pilot.press("enter", "escape")
        assert isinstance(app.screen, SettingsScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, SettingsScreen)


async def test_the_last_compaction_is_shown_as_a_diff(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w", *(f"The port of api {n} is 80{n}0." for n in range(6))))
    async with app.run_test(size=(120, 45)) as pilot:
        await settle(app, pilot)
        app._palette("/compact diff")
        await settle(app, pilot)
        assert "Nothing was compacted" in chat_text(app)
        for part in range(2):
            await say(app, pilot, *(f"remember that service {part}{n} listens on {part}{n}00" for n in range(3)))
            store.clock.advance(60)
            app._palette("/compact the ports")
            await settle(app, pilot)
        app._palette("/compact diff")
        await settle(app, pilot)
        assert isinstance(app.screen, CompactionScreen)
        text = screen_text(app)
        assert "the ports" in text and "/compact undo" in text
        assert "+ " in text and "service 11" in text
        new = [line for line in text.split("\n") if "│+ " in line.replace(" ", "", 1) or " + " in line]
        assert not any("service 00" in line for line in new), "what the log had before is no change"
        await pilot.press("escape")
        app._palette("/compact undo")
        await settle(app, pilot)
        app._palette("/compact diff")
        await settle(app, pilot)
        assert "service 0" in screen_text(app), "the one before it"


def compacted(text="the redirect"):
    done = Compaction("c", "t1", "/work", "r", text, 0, 11, 12, (), (), {}, 21_400, 3_900, NOW)
    lines = tuple(log())
    return Shown(done, lines[:3], lines)


async def test_its_text_is_harmless(running):
    from dataclasses import replace

    async with running() as (app, pilot):
        shown = compacted(EVIL)
        after = tuple(replace(x, content=EVIL, date=EVIL, time=EVIL, flags=(EVIL,)) for x in shown.after)
        app.push_screen(CompactionScreen(Shown(shown.done, shown.before, after)))
        await settle(app, pilot)
        assert "[/red]" in check(app)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["compaction", "settings"])
def test_pictures(snap_compare, size, theme, name, tmp_path):
    async def open_it(pilot):
        await posed(theme)(pilot)
        if name == "compaction":
            screen = CompactionScreen(compacted())
        else:
            config = load(overrides=("ui.theme=sakti-night", "memory.observation.message_tokens=20000")).config
            file = tmp_path / "none.toml"
            screen = SettingsScreen(settings(config, user_file=file, project_file=file, env={}), Path("/c/config.toml"))
        pilot.app.push_screen(screen)
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(scene(Path("/work"))), terminal_size=size, run_before=open_it)
