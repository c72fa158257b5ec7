"""A screen that fails is closed with a notice and a traceback in the log; the program continues."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from rich.style import Style
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.command import CommandList, CommandPalette
from textual.widgets import Static

from sakti.tui.app import SaktiApp, log_path
from sakti.tui.screens.panel import Panel
from tests.tui.conftest import chat_text, quiet, settle


class Broken(Exception):
    pass


class Child(Static):
    fail = ""

    def render(self):
        if self.fail == "render":
            raise Broken
        return "child"

    def on_mount(self) -> None:
        if self.fail == "child mount":
            raise Broken


class BrokenScreen(Panel[None]):
    BINDINGS: ClassVar = [Binding("z", "fail('key')"), Binding("ctrl+t", "fail('priority key')", priority=True)]

    def __init__(self, fail: str) -> None:
        super().__init__("Broken")
        self.fail = fail

    def compose_body(self) -> ComposeResult:
        if self.fail == "compose":
            raise Broken
        child = Child()
        child.fail = self.fail
        yield child

    def on_mount(self) -> None:
        if self.fail == "mount":
            raise Broken
        if self.fail == "worker":
            self.gather()
        if self.fail == "timer":
            self.set_timer(0.001, lambda: self.action_fail("timer"))
        if self.fail == "refresh":
            self.call_after_refresh(self.action_fail, "refresh")
        if self.fail == "below another":
            self.set_timer(0.05, lambda: self.action_fail(self.fail))
            self.host.push(CoveringScreen("nothing"))

    @work
    async def gather(self) -> None:
        raise Broken

    def action_fail(self, when: str) -> None:
        if self.fail == when:
            raise Broken


class CoveringScreen(BrokenScreen):
    """Another kind of screen: one of the same kind would take its place."""


class StuckScreen(BrokenScreen):
    def remove(self):
        if self.fail == "removal":
            raise Broken
        return super().remove()


WHEN = ["compose", "mount", "child mount", "render", "worker", "timer", "refresh", "key", "priority key"]


@pytest.mark.parametrize("when", [*WHEN, "below another"])
async def test_a_failed_screen_is_closed_and_the_chat_continues(running, session, when):
    async with running() as (app, pilot):
        app.push(BrokenScreen(when))
        await quiet()  # Textual's own waits time out on a screen that ends meanwhile
        if when in ("key", "priority key"):
            await pilot.press({"key": "z", "priority key": "ctrl+t"}[when])
        end = asyncio.get_running_loop().time() + 20
        while "was closed" not in chat_text(app) and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.02)
        await settle(app, pilot)
        assert app.screen is app.chat and app.screen_stack == [app.chat]
        assert chat_text(app).count("failed (Broken) and was closed") == 1
        logged = log_path().read_text()
        assert "Traceback" in logged and "Broken" in logged and __file__ in logged
        await pilot.press(*"still here", "enter")
        await settle(app, pilot)
        assert session.sent == ["still here"]
        await pilot.press("f1")
        await settle(app, pilot)
        assert app.screen is not app.chat, "screens still open"
    assert not app.crash_message


async def test_a_second_error_of_a_screen_that_is_being_closed_ends_nothing(running, session):
    async with running() as (app, pilot):
        screen = StuckScreen("removal")
        app.push(screen)
        await settle(app, pilot)
        screen.call_later(lambda: [][1])
        await quiet()
        await quiet()
        assert app.screen_stack == [app.chat] and app.is_running
        assert "failed (IndexError) and was closed" in chat_text(app) and "Broken" in log_path().read_text()
        screen.fail = ""
        await screen.remove()
    assert not app.crash_message


async def test_a_palette_that_loses_its_list_ends_nothing(running, session, monkeypatch):
    """A letter and a click outside within moments: its worker then looks for a list that is gone."""

    def lost(self, *args):
        raise LookupError("no list")

    monkeypatch.setattr(CommandPalette, "_refresh_command_list", lost)
    async with running() as (app, pilot):
        await pilot.press("ctrl+p", "a")
        await settle(app, pilot)
        assert "failed (LookupError) and was closed" in chat_text(app) and "no list" in log_path().read_text()
        await pilot.press(*"hi", "enter")
        await settle(app, pilot)
        assert session.sent == ["ahi"]  # the letter came again: nothing else had taken it


async def test_a_failure_of_the_chat_itself_ends_the_program_with_its_reason(session):
    app = SaktiApp(session)
    with pytest.raises(Broken):
        async with app.run_test() as pilot:
            await settle(app, pilot)

            def fail(event: object) -> None:
                raise Broken

            app.chat.call_later(fail, None)
            await pilot.pause()
    assert "sakti had to stop: Broken" in app.crash_message


async def test_acting_on_the_result_of_a_screen_ends_nothing(running, session):
    async with running() as (app, pilot):
        app.chat.search.open("foo")
        app.screen.dismiss()  # before it is drawn
        await settle(app, pilot)
        assert app.chat.search._last.text == "foo" and "went wrong" not in chat_text(app)
        app.push(BrokenScreen("closed"), lambda _: [][1])
        await settle(app, pilot)
        app.screen.dismiss()
        await settle(app, pilot)
        assert "Something went wrong  IndexError" in chat_text(app) and app.is_running


async def test_a_palette_outlives_a_click_on_a_line_that_is_gone_and_a_search_without_its_list(running, session):
    async with running() as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(app, pilot)
        palette, commands = app.screen, app.screen.query_one(CommandList)
        click = events.Click(commands, 2, 2, 0, 0, 1, False, False, False, style=Style(meta={"option": 7}))
        commands.clear_options()
        commands.post_message(click)
        await settle(app, pilot)
        assert app.screen is palette
        await commands.remove()
        await palette._gather_commands("a").wait()
        assert app.screen is palette and "was closed" not in chat_text(app)
        app.pop_screen()
