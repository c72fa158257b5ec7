"""Every screen in terminals of a few columns or rows: no error, and the chat is there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
import textual.pilot

from sakti.agent.mcp import config as mcp_config
from sakti.agent.project import trust
from sakti.agent.session.queries import ContextBlock, ThreadSummary
from sakti.agent.settings import list_settings
from sakti.agent.subagents.children import ListedChild
from sakti.core.config import load
from sakti.core.events import ApprovalRequested
from sakti.core.types import ModelInfo, Thread
from sakti.importers.service import SourceReport
from sakti.store.threads.runs import ChildRun
from sakti.tui.app import SaktiApp, log_path
from sakti.tui.screens import agents, lists, search_preview, settings, task_card, text, threads, undo, welcome
from sakti.tui.screens.board import BoardScreen
from sakti.tui.screens.search import SearchScreen
from sakti.tui.screens.trust import NeedScreen, TrustScreen
from sakti.tui.transcript.build import make_message_blocks
from sakti.tui.widgets.safe_input import SafePalette
from tests.fakes.undo import preview, turns
from tests.tui.conftest import quiet, settle
from tests.tui.fakes import NOW
from tests.tui.scene import messages, scene
from tests.tui.test_panes import card, happened
from tests.tui.test_servers_screen import ENTRIES, FakeClients
from tests.tui.test_settings_and_compaction import compacted

SIZES = [(12, 24), (5, 24), (1, 24), (80, 1)]
FILE = Path("/c/config.toml")


class FakeHistory:
    """One program whose history is counted."""

    async def count(self, show, is_stopped=lambda: False):
        show(SourceReport("codex", "/x", threads=2, messages=360, new=360, workspaces=1, size=10_000), 100)


def make_screens(app, project: Path):
    """Return the screens of the app, each with something to show."""
    session, clock, said = app.session, app.session.workspace.clock, messages()
    run = ChildRun("child", "t1", "c9", "explore", "where is it", NOW, agent="explore")
    child = ListedChild(run, run.state, run.in_words)
    rows = list_settings(load().config, user_file=FILE, project_file=FILE, env={})
    asked = ApprovalRequested("a", "bash", "it changes files", "rm -rf build " * 9, "/work", "", "bash: rm")
    servers = mcp_config.collect(ENTRIES, {}, mcp_config.ServerContext(Path("/work"), {}))
    session.workspace.servers = FakeClients({entry.server.name: entry.server for entry in servers.entries})
    return [
        SafePalette(),
        SearchScreen("redirect"),
        BoardScreen(),
        task_card.TaskCardScreen("a"),
        agents.AgentsScreen([child], ()),
        agents.ChildScreen(child, said[:3], None),
        lists.ModelsScreen([ModelInfo("openai", "gpt-5.5", context_window=200_000)], None),
        lists.JobsScreen(),
        lists.ThemesScreen("sakti-dark"),
        lists.WordsScreen("Mode", "plan", {"plan": "reads and writes a plan", "build": "changes files"}),
        lists.ImportScreen(FakeHistory()),
        lists.ServersScreen(servers),
        search_preview.PassageScreen(
            "a thread", search_preview.Passage(tuple(make_message_blocks(said)), "m1", None, "the redirect")
        ),
        settings.SettingsScreen(rows, FILE, FILE, str),
        settings.ChoiceScreen(rows[0], ["one", "another"], (FILE, FILE), in_project=False),
        text.SourceScreen("the redirect loses ?next=", said[:2]),
        text.PageScreen("Plan", "# Plan\n\n1. Look at `session.py`\n\n| a | b |\n|---|---|\n| one | two |\n"),
        text.ContextScreen([ContextBlock("system", "System prompt", 900, "You are sakti.", True)]),
        text.MemoryEventsScreen(happened(), NOW + 300_000),
        text.CompactionScreen(compacted()),
        text.make_approval_screen(asked),
        threads.ThreadsScreen([ThreadSummary(Thread("t2", "r", "another thread", 0, 0), "hi", 2, 10)], NOW, "t1"),
        threads.ForkScreen("fix login redirect", said),
        TrustScreen(trust.review(project), clock),
        NeedScreen(mcp_config.ServerNeed("git", "host", "github.com", "k"), clock),
        undo.UndoScreen(preview(), clock),
        undo.RedoScreen(preview(), clock),
        undo.RewindScreen(turns(), NOW),
        welcome.WelcomeScreen(str, app.chat.welcome._download),
        welcome.KeyScreen(),
    ]


@pytest.fixture
def app(tmp_path: Path, home: Path) -> SaktiApp:
    session = scene(tmp_path)
    session.views.happened = happened()

    async def read_task(task_id):
        return card()

    async def read_messages(task_id):
        return messages()[:2]

    session.views.task, session.views.task_messages = read_task, read_messages
    return SaktiApp(session)


async def test_every_screen_fits_into_any_terminal(app, tmp_path, monkeypatch):
    monkeypatch.setattr(textual.pilot, "wait_for_idle", lambda *_: quiet(max_sleep=0.05))  # cursors blink meanwhile
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("Be kind.")
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(app, pilot)
        for screen in make_screens(app, project):
            app.push(screen)
            await settle(app, pilot)
            for size in SIZES:
                await pilot.resize_terminal(*size)
                assert app.screen is screen, (type(screen).__name__, size, log_path().read_text()[-3000:])
            await pilot.resize_terminal(80, 24)
            app.pop_screen()
            await settle(app, pilot)
            assert not log_path().exists(), (type(screen).__name__, log_path().read_text()[-3000:])
