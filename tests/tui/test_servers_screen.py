"""The list of MCP servers: their states, tools, and keys."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.mcp import config as mcp_config
from sakti.agent.mcp.servers import McpServer, McpTool, ServerState
from sakti.tui.app import SaktiApp
from tests.tui.conftest import chat_text, screen_text, settle
from tests.tui.scene import scene
from tests.tui.test_snapshots import posed

ENTRIES = {
    "git": {"command": "uvx", "args": ["mcp-server-git"], "network": ["github.com"], "write": ["/srv/repos"]},
    "issues": {"url": "https://mcp.example.org/mcp"},
    "notes": {"command": "notes-mcp"},
    "old": {"type": "sse", "url": "https://old.example.org/sse"},
    "slow": {"command": "npx", "args": ["-y", "@example/slow-server"]},
    "spare": {"command": "spare-mcp", "enabled": False},
}


class FakeClients:
    """Servers of a session that are in the states of the picture."""

    def __init__(self, servers: dict[str, McpServer]) -> None:
        tools = tuple(
            McpTool(f"mcp__git__{name}", "git", name, text, {}, is_read_only=reads, tokens=tokens)
            for name, text, reads, tokens in (
                ("git_log", "Shows the commit logs.", True, 92),
                ("git_commit", "Records changes to the repository.\x1b[31m", False, 61),
            )
        )
        self.all = {
            "git": ServerState(servers["git"], "ready", "mcp-git 1.2 · protocol 2025-11-25", "Ask for a log.", tools),
            "issues": ServerState(servers["issues"], "needs login", error="It needs a login: run `sakti mcp login`."),
            "notes": ServerState(servers["notes"], "failed", error="the program notes-mcp was not found."),
            "slow": ServerState(servers["slow"], "starting"),
        }
        self.calls: list[str] = []
        self.clients = self

    def states(self) -> list[ServerState]:
        return list(self.all.values())

    async def restart(self, name: str, server: McpServer) -> None:
        self.calls.append(f"restart {name}")
        self.all[name] = dataclasses.replace(self.all[name], state="starting", error="")

    async def disable(self, name: str) -> None:
        self.calls.append(f"disable {name}")
        self.all[name] = dataclasses.replace(self.all[name], state="disabled", tools=())


async def run(app, pilot, command):
    app.run_command(command)
    await pilot.pause()
    await settle(app, pilot)


@pytest.fixture
def session(home, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    made = scene(Path("/work"))
    workspace = made.workspace
    workspace.config = replace(workspace.config, mcp=ENTRIES)
    context = mcp_config.ServerContext(Path("/work"), {})
    servers = {e.server.name: e.server for e in mcp_config.collect(ENTRIES, {}, context).entries}
    workspace.servers = FakeClients(servers)
    return made


def test_picture_of_the_servers(snap_compare, session):
    async def show(pilot):
        await posed("sakti-dark")(pilot)
        await run(pilot.app, pilot, "/mcp")

    assert snap_compare(SaktiApp(session), terminal_size=(80, 24), run_before=show)


async def test_keys_act_on_the_chosen_server(session):
    app = SaktiApp(session)
    async with app.run_test(size=(110, 40)) as pilot:
        await settle(app, pilot)
        await run(app, pilot, "/mcp")
        assert "MCP servers 1 of 6 ready" in screen_text(app)
        assert "2 tools, 153 tokens" in screen_text(app)
        assert "reaches github.com, changes /srv/repos" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert "Ask for a log." in screen_text(app)
        assert "git_log  92 tokens · reads  Shows the commit logs." in screen_text(app)
        assert "\x1b" not in screen_text(app)
        await pilot.press("enter", "r")
        await settle(app, pilot)
        assert session.workspace.servers.calls == ["restart git"]
        assert "git_log" not in screen_text(app)
        await pilot.press("down", "down", "d", "down", "r")
        await settle(app, pilot)
        assert session.workspace.servers.calls == ["restart git", "disable notes"]
        await pilot.press("escape")
        await settle(app, pilot)
        assert "✗ Configuration  old: the transport sse" in chat_text(app)


async def test_words_behind_the_command_do_the_same(session):
    app = SaktiApp(session)
    async with app.run_test(size=(110, 40)) as pilot:
        await settle(app, pilot)
        for words in ("tools git", "restart notes", "login git", "tools nothing", "restart"):
            await run(app, pilot, f"/mcp {words}")
        text = chat_text(app)
        assert "git_commit  61 tokens" in text and "notes restarts with its current entry." in text
        assert "git has no url: only servers at an" in text
        assert "The server nothing was not started in this session" in text
        assert "Write the name of a server after /mcp restart." in text
