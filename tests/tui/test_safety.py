"""Text from outside is shown, never obeyed: not by the terminal, not by Textual's markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.reports import doctor
from sakti.agent.session.queries import ContextBlock, ThreadSummary
from sakti.agent.settings import Setting
from sakti.core.config import Meaning, load
from sakti.core.events import (
    ApprovalRequested,
    CompactionFinished,
    MemoryOperation,
    ModelChanged,
    Notice,
    RetryScheduled,
    StepStarted,
    TextDelta,
    ThinkingDelta,
    ThreadChanged,
    ToolCallDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnStarted,
)
from sakti.core.types import FilePart, Message, TextPart, Thread, ToolCallPart, ToolResultPart
from sakti.store.log.events import LogChange
from sakti.store.search.excerpts import Excerpt
from sakti.store.search.search import Hit
from sakti.tasks.service import BoardTask
from sakti.tui.screens.panel import Panel
from sakti.tui.screens.settings import SettingsScreen
from sakti.tui.screens.threads import ForkScreen
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.fakes import NOW, assistant, board, user
from tests.tui.scene import log

EVIL = (
    "A\x1b]0;owned\x07B\x1b]8;;http://evil\x1b\\C\x1b]52;c;aGk=\x07D\x1b[2JE\x1b[6nF\x1b[?1049lG\x9b31mH\x90q\x9cI"
    "J[/red]K[@click=app.quit]x[/]L[$primary]M\rN\x00O\x7fP\x08Q\u2028\u202eR"
)
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def everything_painted(app) -> str:
    return screen_text(app) + chat_text(app)


def check(app):
    painted = everything_painted(app)
    assert not FORBIDDEN.search(painted)
    keys = (*app.screen.list_keys(), *app.screen.writing_keys) if isinstance(app.screen, Panel) else ()
    own = {f"screen.{action}" for _, action in keys}  # the keys below that can be clicked
    for strip in app.screen._compositor.render_strips():
        for segment in strip:
            if segment.style is not None:
                assert segment.style.link is None
                assert segment.style.meta.get("@click") in {None, *own}
    return painted


async def test_the_conversation(running, session):
    async with running() as (app, pilot):
        await session.submit("x")
        part = FilePart(f"a/{EVIL}.py", EVIL)
        session.emit(TurnStarted("t1", Message("u9", "t1", "r", "user", (TextPart(EVIL), part), 0)))
        session.emit(StepStarted(1, EVIL, 10))
        session.emit(ThinkingDelta(EVIL))
        session.emit(ToolCallDelta("c", EVIL, EVIL))
        session.emit(ToolStarted(ToolCallPart("c", EVIL, {EVIL: EVIL, "path": EVIL})))
        session.emit(ToolOutput("c", EVIL))
        await pilot.pause()
        for block in app.chat.transcript.document.blocks:
            block.toggle()
        diff = f"--- a\n+++ b\n@@ -1 +1 @@\n-{EVIL}\n+{EVIL}\n"
        session.emit(ToolFinished(ToolResultPart("c", EVIL, EVIL, False, {"diff": diff, "output_file": EVIL}), 5))
        table = f"| {EVIL} | b |\n|---|---|\n| {EVIL} | [{EVIL}](http://x) |\n\n"
        for piece in (EVIL, f"\n\n```{EVIL}\n{EVIL}\n```\n\n", table):
            session.emit(TextDelta(piece))
        session.emit(RetryScheduled(1, 5, 8.0, EVIL))
        session.emit(Notice("warning", EVIL, EVIL))
        session.emit(CompactionFinished("r", 1, 2, 3, 4, (EVIL,)))
        session.finish(status="error", error=EVIL, error_title=EVIL)
        await settle(app, pilot)
        for index in range(len(app.chat.transcript.document.blocks)):
            app.chat.transcript.document.redraw(index)
        painted = check(app)
        assert "[/red]" in painted
        assert "[@click=app.quit]x[/]" in painted


async def test_header_panes_approval_and_queue(running, session):
    session.workspace.files.git.branch = EVIL
    session.views.tasks = board(
        ready=(BoardTask("1", "h", EVIL, 1, "bug", None),),
        blocked=(BoardTask("2", "h", EVIL, 1, "x", None, (EVIL,)),),
        in_progress=(BoardTask("3", "h", EVIL, 1, "x", EVIL),),
    )
    session.views.lines = [
        line.__class__(
            **{
                **{f: getattr(line, f) for f in line.__slots__},
                "content": EVIL,
                "date": EVIL,
                "time": EVIL,
                "flags": (EVIL,),
            }
        )
        for line in log()
    ]
    async with running() as (app, pilot):
        session.emit(ThreadChanged(Thread("t1", "r", EVIL, 0, 0)))
        session.emit(ModelChanged(EVIL, EVIL))
        session.emit(MemoryOperation("buffering", "failed", "c", "observation", "r", (), {}, {"error": EVIL}))
        await session.submit("x")
        await session.submit(EVIL)
        request = ApprovalRequested("p", EVIL, EVIL, EVIL, EVIL, "", EVIL)
        session.approvals = (request, ApprovalRequested("q", EVIL, EVIL, EVIL, EVIL, f"+{EVIL}\n-{EVIL}", EVIL))
        session.emit(request)
        app.notify(EVIL, title=EVIL)
        await settle(app, pilot)
        check(app)


@pytest.mark.parametrize(
    "command",
    [
        "/search evil",
        "/threads",
        "/context",
        "/help",
        "/model",
        "/theme",
        "/memory",
        "/doctor",
        "/cost",
        f"/x{EVIL}",
        "/rename " + EVIL,
    ],
)
async def test_screens_and_commands(running, session, command, monkeypatch):
    async def examine(*_args, **_more):
        return [doctor.CheckResult(EVIL, False, EVIL, EVIL)]

    monkeypatch.setattr(doctor, "examine", examine)
    session.views.hits = [
        Hit("m", "message", "t1", EVIL, None, EVIL, 0, 0, lambda: Excerpt(EVIL, EVIL, ((0, 3),)), 1.0, 1)
    ]
    session.views.all_threads = [ThreadSummary(Thread("t1", "r", EVIL, 0, 0), EVIL, 3, 900)]
    session.views.blocks = [ContextBlock(EVIL, EVIL, 10, EVIL, True)]
    async with running() as (app, pilot):
        app.run_command(command)
        await settle(app, pilot)
        check(app)


async def test_sources_and_stored_messages(running, session):
    session.views.messages["t1"] = [user("m0", EVIL, 0), assistant("m1", EVIL, 1)]
    session.views.lines = log()
    async with running() as (app, pilot):
        assert "L[$primary]M" in check(app)
        app.chat.sidebar.observations.log_list.focus()
        await pilot.press("enter")
        await settle(app, pilot)
        assert "Where this comes from" in check(app)


async def test_what_is_pasted_is_shown_harmlessly(running, session):
    async with running() as (app, pilot):
        app.chat.prompt.insert_text(EVIL)
        await settle(app, pilot)
        check(app)


async def test_settings_forks_and_the_past(running, session):
    config = load(overrides=(f"ui.theme={EVIL!r}", "approval.deny=[]")).config
    found = [Setting(EVIL, config.ui.theme, None, EVIL, Meaning(EVIL))]
    session.workspace.config = replace(session.workspace.config, ui=config.ui)
    session.views.past = [LogChange(NOW, EVIL), LogChange(NOW + 1, "observation")]
    session.views.lines = [replace(line, content=EVIL, category=EVIL, flags=(EVIL,), time=EVIL) for line in log()]
    async with running() as (app, pilot):
        pane = app.chat.sidebar.observations
        pane.log_list.focus()
        await pilot.press("left_square_bracket", "home", "space")
        await settle(app, pilot)
        assert "PAST" in check(app)
        file = Path("/x") / EVIL.replace("/", "")
        app.push_screen(SettingsScreen(found, file, file, app.chat.apply_setting))
        await settle(app, pilot)
        check(app)
        await pilot.press("enter")
        app.screen.line.value = EVIL
        await pilot.press("enter")
        await settle(app, pilot)
        assert "unknown setting" in check(app)
        await pilot.press("escape", "escape")
        app.push_screen(ForkScreen(EVIL, [user("u", EVIL, 0), assistant("a", EVIL, 1)]))
        await settle(app, pilot)
        assert "[/red]" in check(app)
