"""`/settings`: values and origins; a value that is changed there is written where it belongs, and holds."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from sakti.agent.settings import HERE, format_lines, format_toml, list_settings, parse_value
from sakti.agent.settings_file import change_setting, write
from sakti.core.config import Config, flatten, load, replace_setting
from sakti.core.errors import ConfigError
from sakti.core.resources import config_home
from sakti.tui.app import SaktiApp
from sakti.tui.screens.settings import SettingsScreen
from tests.tui.conftest import screen_text, settle
from tests.tui.real import real_session, say


def found(tmp_path, *, user="", project="", env=None, overrides=()):
    files = []
    for name, text in (("user.toml", user), ("project.toml", project)):
        (tmp_path / name).write_text(text)
        files.append(tmp_path / name)
    config = load(user_file=files[0], project_file=files[1], env=env or {}, overrides=overrides).config
    rows = list_settings(config, user_file=files[0], project_file=files[1], env=env or {})
    return {s.name: s for s in rows}


def test_every_setting_has_its_value_and_origin(tmp_path):
    rows = found(
        tmp_path,
        user="[ui]\nsidebar_width = 50\n",
        project="[agent]\nmax_steps = 9\n",
        env={"SAKTI_MODE": "testing"},
        overrides=("memory.carry_over=7",),
    )
    assert set(rows) == set(flatten(Config()))
    assert (rows["ui.sidebar_width"].value, Path(rows["ui.sidebar_width"].origin).name) == (50, "user.toml")
    assert Path(rows["agent.max_steps"].origin).name == "project.toml"
    assert rows["mode"].origin == "SAKTI_MODE"
    assert (rows["memory.carry_over"].value, rows["memory.carry_over"].origin) == (7, HERE)
    assert rows["ui.theme"].origin == "default"
    assert rows["agent.max_steps"].meaning.project and not rows["ui.theme"].meaning.project


def test_a_value_is_what_a_file_takes():
    config = Config()
    for name, value in flatten(config).items():
        if value is None or name == "approval.mode":
            continue
        node = tomllib.loads(format_lines(name, parse_value(config, name, format_toml(value))))
        for part in name.split("."):
            node = node[part]
        assert replace_setting(config, name, node) == config, name
    assert parse_value(config, "memory.observation.message_tokens", "20_000") == 20_000
    assert format_lines("ui.theme", parse_value(config, "ui.theme", 'my "own"')) == '[ui]\ntheme = "my \\"own\\""'
    assert parse_value(config, "memory.observation.model_settings.thinking_tokens", "none") == "none"
    assert parse_value(config, "model", "  ") is None, "its line goes"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("agent.max_steps", "many", "whole number"),
        ("approval.mode", "free", "plan"),
        ("memory.observation.buffer_tokens", "40000", "must be less"),
        ("memory.observation.message_tokens", "-1", "above 0"),
        ("approval.deny", "[[1]]", "cannot be"),
    ],
)
def test_a_wrong_value_gets_one_sentence(name, text, says):
    with pytest.raises(ConfigError, match=says):
        parse_value(Config(), name, text)


FILE = """# mine
model = 'x' # why

[ui]
# wide enough
sidebar_width = 40 # cells
[memory.observation]
message_tokens=5
[memory]
enabled=true
"""


@pytest.mark.parametrize("text", ["", FILE, "memory.enabled = true\n[ui]\ntheme='a'", "ui = {theme = 'a'}\n"])
def test_only_the_one_setting_changes(text):
    before = tomllib.loads(text)
    for name, value in [
        ("ui.sidebar_width", 50),
        ("memory.observation.block_after", 1.5),
        ("memory.carry_over", 3),
        ("model", "a/b"),
        ("approval.deny", ("x", "y(*)")),
        ("providers.ollama.base_url", "http://x"),
        ("ui.theme", None),
        ("mode", None),
    ]:
        text = change_setting(text, name, value)
        *tables, key = name.split(".")
        node = before
        for part in tables:
            node = node.setdefault(part, {})
        if value is None:
            node.pop(key, None)
        else:
            node[key] = list(value) if isinstance(value, tuple) else value
        assert tomllib.loads(text) == before, name
    if "# mine" in text:
        assert text.startswith('# mine\nmodel = "a/b" # why\n\n[ui]\n# wide enough\nsidebar_width = 50 # cells\n')


def write_to(tmp_path, which, name, value, **more):
    files = {"user_file": tmp_path / "user.toml", "project_file": tmp_path / "project.toml"}
    return write(files[which], name, value, env=more.get("env", {}), **files)


def test_what_the_next_start_would_refuse_is_not_written(tmp_path):
    user, project = tmp_path / "user.toml", tmp_path / "project.toml"
    user.write_text("[memory.observation]\nbuffer_tokens = 9000\n")
    user.chmod(0o640)
    for which, name, value, says, env in [
        ("user_file", "memory.observation.message_tokens", 5_000, "must be less", {}),
        ("user_file", "ui.theme", "x", "SAKTI_UI__THEME sets", {"SAKTI_UI__THEME": "y"}),
        ("project_file", "ui.theme", "x", "a project may not set", {}),
        ("project_file", "approval.mode", "auto", "is looser", {}),
    ]:
        with pytest.raises(ConfigError, match=says) as refused:
            write_to(tmp_path, which, name, value, env=env)
        assert ".config-" not in refused.value.message, "it names the file that people know"
    assert not project.exists() and user.read_text() == "[memory.observation]\nbuffer_tokens = 9000\n"
    write_to(tmp_path, "user_file", "mode", "testing")
    assert user.stat().st_mode & 0o777 == 0o640
    user.write_text("[broken\n")
    with pytest.raises(ConfigError, match="cannot be read.*nothing was written"):
        write_to(tmp_path, "user_file", "mode", "default")
    assert user.read_text() == "[broken\n"
    assert [f.name for f in tmp_path.iterdir() if f.is_file()] == ["user.toml"]


def test_a_new_file_is_private_and_a_link_stays_one(tmp_path):
    kept = tmp_path / "dotfiles" / "config.toml"
    link = tmp_path / "user.toml"
    link.symlink_to(kept)
    write_to(tmp_path, "user_file", "mode", "testing")
    assert link.is_symlink() and kept.read_text() == 'mode = "testing"\n'
    assert kept.stat().st_mode & 0o777 == 0o600


def read_wrapped(app):
    """The screen without line breaks, which depend on the length of a path."""
    return " ".join(screen_text(app).replace("│", " ").split())


async def test_settings_by_keys(store, tmp_path):
    session = real_session(store, tmp_path / "w", "one", "two", overrides=("agent.max_steps=33",))
    session.workspace.options.env["SAKTI_MODE"] = "default"
    user, project = config_home() / "config.toml", tmp_path / "w" / ".sakti" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text("# mine\n")
    app = SaktiApp(session)

    async def choose(pilot, name, value):
        await pilot.press("ctrl+u", *name)
        await settle(app, pilot)
        await pilot.press("enter", "ctrl+u", *value)
        await settle(app, pilot)

    async with app.run_test(size=(120, 35)) as pilot:
        await settle(app, pilot)
        await say(app, pilot, "hello")
        app.run_command("/settings")
        await settle(app, pilot)
        assert isinstance(app.screen, SettingsScreen)
        await choose(pilot, "max_steps", "lots")
        assert "33" in screen_text(app) and HERE in screen_text(app) and "whole number" in screen_text(app)
        await pilot.press("ctrl+u", *"50")
        await settle(app, pilot)
        assert "Enter writes this to" in screen_text(app) and "max_steps = 50" in screen_text(app)
        assert user.read_text() == "# mine\n"
        await pilot.press("enter")
        await settle(app, pilot)
        assert user.read_text() == "# mine\n\n[agent]\nmax_steps = 50\n"
        assert "takes effect now" in read_wrapped(app) and session.workspace.config.agent.max_steps == 50
        # for this project alone
        await choose(pilot, "observation.message_tokens", "20000")
        await pilot.press("ctrl+t", "enter")
        await settle(app, pilot)
        assert project.read_text() == "[memory.observation]\nmessage_tokens = 20000\n"
        assert session.current.status.messages.threshold == 20_000, "the gauge has the new threshold"
        # only the user's own file; what is not on the screen waits for a restart
        await choose(pilot, "bash_timeout", "60")
        await pilot.press("ctrl+t")
        await settle(app, pilot)
        assert "may not set agent.bash_timeout" in read_wrapped(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "after a restart" in read_wrapped(app) and session.workspace.config.agent.bash_timeout != 60
        await choose(pilot, "ui.theme", "sakti-light")
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.theme == "sakti-light"
        assert 'theme = "sakti-light"' in user.read_text()
        await choose(pilot, "ui.theme", "default")
        assert "default (sakti-dark)" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.theme == "sakti-dark" and "theme" not in user.read_text()
        await pilot.press("ctrl+u", *"SAKTI_MODE", "enter")
        await settle(app, pilot)
        assert "comes from the variable SAKTI_MODE" in screen_text(app) and not app.screen.line.question
        await pilot.press("ctrl+u", *"max_steps", "enter", "escape")
        assert isinstance(app.screen, SettingsScreen)
        await pilot.press("escape")
        assert not isinstance(app.screen, SettingsScreen)
        await say(app, pilot, "and on")
        assert session.thread is not None and "two" in screen_text(app), "the conversation goes on"


async def test_the_words_below_follow_what_is_listed(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        app.run_command("/settings")
        await settle(app, pilot)
        screen = app.screen
        assert isinstance(screen, SettingsScreen)
        screen.input.value = "ui.notify"
        await settle(app, pilot)
        below = str(screen.query_one("#panel-detail").render())
        assert 'Takes off, bell or desktop · now "bell" · default "bell"' in below
        screen.input.value = "no such thing"
        await settle(app, pilot)
        assert not str(screen.query_one("#panel-detail").render()).strip()


async def test_a_setting_with_choices_is_chosen_from_a_list(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        app.run_command("/settings")
        await settle(app, pilot)
        await pilot.press(*"ui.notify", "enter")
        await settle(app, pilot)
        text = screen_text(app)
        assert all(word in text for word in ("off", "▶ bell", "desktop", "default (bell)"))
        assert "enter write · esc cancel" in text and "Enter writes to" in text
        await pilot.press(*"desk", "enter")
        await settle(app, pilot)
        assert (config_home() / "config.toml").read_text() == '[ui]\nnotify = "desktop"\n'
        assert isinstance(app.screen, SettingsScreen) and app.session.workspace.config.ui.notify == "desktop"
        await pilot.press("ctrl+u", *"thread_title")
        await settle(app, pilot)
        await pilot.press("enter")
        await settle(app, pilot)
        await pilot.press("ctrl+t", *"false", "enter")
        await settle(app, pilot)
        assert (tmp_path / "w" / ".sakti" / "config.toml").read_text() == "[memory]\nthread_title = false\n"
        await pilot.press("enter", "escape")
        await settle(app, pilot)
        assert "enter another value · esc back" in screen_text(app)
        await pilot.press("ctrl+u", *"reduced_motion", "enter")
        await settle(app, pilot)
        assert "true" in screen_text(app) and "▶ false" in screen_text(app)


async def test_while_a_value_is_written_its_choices_and_keys_are_named(store, tmp_path):
    app = SaktiApp(real_session(store, tmp_path / "w"))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(app, pilot)
        app.run_command("/settings")
        await settle(app, pilot)
        await pilot.press(*"agent.max_steps", "enter")
        await settle(app, pilot)
        text = screen_text(app)
        assert "Takes a whole number" in text and "max_steps = " in text
        print(text)
        assert "enter write · ^t for this project · esc cancel" in text
        await pilot.press("escape")
        await settle(app, pilot)
        assert "enter another value · esc back" in screen_text(app) and "enter write" not in screen_text(app)
