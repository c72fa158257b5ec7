"""Theme picker with files that change, model picker, help: what they show."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.binding import Binding
from textual.color import Color

import sakti.tui
from sakti.actions import registry
from sakti.agent.session.queries import ContextBlock
from sakti.agent.tools.processes import Output
from sakti.core.resources import config_home
from sakti.core.types import ModelInfo
from sakti.tui.app import SaktiApp
from sakti.tui.chat.screen import ChatScreen, list_chat_parts
from sakti.tui.screens.help import HelpScreen, list_parts
from sakti.tui.screens.lists import pick_model, pick_theme
from sakti.tui.widgets.transcript import Transcript
from tests.tui.conftest import screen_text, settle
from tests.tui.scene import scene
from tests.tui.test_snapshots import SIZES, THEMES, posed


def theme_file(primary: str, name: str = "mine") -> Path:
    folder = config_home() / "themes"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mine.toml"
    path.write_text(f'name = "{name}"\nprimary = "{primary}"\ndark = true\nbackground = "#101010"\n')
    return path


def primary(app) -> Color:
    return Color.parse(app.theme_variables["primary"])


async def test_a_theme_file_that_changes_shows_at_once(running, session):
    theme_file("#ff0000")
    async with running((100, 30)) as (app, pilot):
        pick_theme(app)
        await settle(app, pilot)
        screen = app.screen
        before = screen.result_list.rows
        screen.result_list.move_to(before.index("mine"))
        await settle(app, pilot)
        assert app.theme == "mine" and primary(app).r > 200 > primary(app).g
        theme_file("#00ff00")
        screen._reload_themes()
        await settle(app, pilot)
        assert primary(app).g > 200 > primary(app).r
        assert screen.result_list.current == "mine"
        theme_file("green-ish")
        screen._reload_themes()
        await settle(app, pilot)
        assert "is not a colour" in screen_text(app), "what is wrong in it is said in the picker"
        assert primary(app).g > 200 > primary(app).r, "the last that could be read stays"
        theme_file("#0000ff", "other")
        screen._reload_themes()
        await settle(app, pilot)
        assert "other" in screen.result_list.rows
        screen.result_list.move_to(list(screen.result_list.rows).index("other"))
        await pilot.press("enter")
        await settle(app, pilot)
        assert app.theme == "other" and session.views.state["theme"] == "other"


async def test_whatever_has_keys_is_in_the_help(running):
    owners = set()
    for found in pkgutil.walk_packages(sakti.tui.__path__, "sakti.tui."):
        module = importlib.import_module(found.name)
        classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == found.name]
        owners |= {c for c in classes if c.__dict__.get("BINDINGS")}
    async with running() as (_app, _):
        assert owners - {SaktiApp} == {owner for _, owner in list_parts(list_chat_parts())}
        assert set(SaktiApp.BINDINGS) <= set(ChatScreen.BINDINGS), "those of the program are listed with the chat's"


async def test_help_has_every_command_and_every_key(running):
    async with running((120, 40)) as (app, pilot):
        await pilot.press("f1")
        await settle(app, pilot)
        assert isinstance(app.screen, HelpScreen)
        document = app.screen.query_one(Transcript).document
        text = "\n".join(
            "".join(s.text for s in line) for i in range(len(document.blocks)) for line in document.lines(i)
        )
        flat = " ".join(text.split())
        for name in registry.chat_commands():
            assert f"/{name}" in flat
        assert "left_square_bracket" not in flat and "[ Earlier log" in flat
        for name, owner in list_parts(list_chat_parts()):
            assert name in flat
            for binding in owner.BINDINGS:
                if isinstance(binding, Binding) and binding.description:
                    assert binding.description in flat, (name, binding)


def models():
    return [
        ModelInfo("claude-sonnet-4-5", "anthropic", 200_000, 64_000, 3.0, 15.0),
        ModelInfo("gpt-5-mini", "openai", 400_000, 128_000, 0.25, 2.0),
        ModelInfo("qwen2.5-coder", "ollama"),
    ]


def blocks():
    return [
        ContextBlock("tools", "7 tools", 2_900, "read: reads a file", True),
        ContextBlock("system", "system", 1_300, "You are sakti.", True),
        ContextBlock("observations", "observations", 16_000, "* 🔴 (12:00) User: the redirect loses ?next=", True),
        ContextBlock("message", "user", 12, "the redirect after login loses ?next=", False),
        ContextBlock("tail", "what moves", 40, "Today is 2026-01-15.", False),
    ]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("command", ["model", "theme", "context"])
def test_pictures(snap_compare, size, theme, command):
    session = scene(Path("/work"))
    session.views.known_models, session.views.blocks = models(), blocks()

    async def open_it(pilot):
        await posed(theme)(pilot)
        pilot.app.run_command(f"/{command}")
        await settle(pilot.app, pilot)

    assert snap_compare(SaktiApp(session), terminal_size=size, run_before=open_it)


async def test_a_model_that_is_not_listed_can_be_typed(running, session):
    session.views.known_models = [ModelInfo("claude-sonnet-4-5", "anthropic", 200_000)]
    async with running((100, 30)) as (app, pilot):
        await pick_model(app)
        await settle(app, pilot)
        await pilot.press(*"ollama/qwen", "enter")
        await settle(app, pilot)
        assert app.chat.header.model == "ollama/qwen" and len(app.screen_stack) == 1


async def test_every_screen_goes_back_by_a_click(running, session):
    theme_file("#ff0000", "brand-new")
    async with running((100, 30)) as (app, pilot):
        keys = screen_text(app).split("\n")[-1]
        await pilot.click(app.chat.status_line, offset=(keys.index("F4 tasks") + 1, 0))
        await settle(app, pilot)
        assert app.focused is app.chat.sidebar.tasks.task_list
        await pilot.press("escape")
        assert "^C quit" in keys and "esc stop" not in keys
        await session.submit("go")
        await settle(app, pilot)
        assert "esc stop turn" in screen_text(app)
        await pilot.click(app.chat.status_line, offset=(screen_text(app).split("\n")[-1].index("esc stop turn") + 1, 0))
        await settle(app, pilot)
        assert not session.busy
        app.run_command("/model")
        await settle(app, pilot)
        keys = app.screen.query_one("#panel-keys")
        at = str(keys.content).index("esc back")
        await pilot.click(keys, offset=(at + 2, 0))
        await settle(app, pilot)
        assert len(app.screen_stack) == 1
        theme_file("#00ff00", "newer")  # a file that came after the start
        app.run_command("/theme newer")
        await settle(app, pilot)
        assert app.theme == "newer" and session.views.state["theme"] == "newer"


async def test_background_commands_end_from_their_list(running, session):
    rows = "".join(f"row {n}\n" for n in range(9))
    output = Output(session.workspace.root / "output")
    output.add(f"{rows}listening on 8000\n\n")
    began = time.monotonic() - 200
    session.jobs = {
        n: SimpleNamespace(command=f"serve {n}", output=output, began=began, exit_code=code)
        for n, code in (("1", None), ("2", 3))
    }
    async with running() as (app, pilot):
        app.run_command("/jobs")
        await settle(app, pilot)
        text = screen_text(app)
        assert "serve 1" in text and "serve 2" in text and "listening on 8000" in text
        assert "running for 3 m 2" in text and "ended with exit code 3" in text and "1 running" in text
        assert "row 8" not in text
        await pilot.press("enter")
        await settle(app, pilot)
        assert screen_text(app).count("row 8") == 1
        await pilot.press("enter", "down", "x")
        await settle(app, pilot)
        assert ("end_background", "2") in session.calls and "serve 2" not in screen_text(app)
        await pilot.press("x")
        await settle(app, pilot)
        assert "There are no background commands" in screen_text(app)
        await pilot.press("x", "escape")
        assert app.screen is app.chat
