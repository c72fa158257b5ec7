"""`sakti mcp`: adding, listing, trying and removing servers, and what servers of a project may have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keyring
import pytest
from keyring.backends.null import Keyring

from sakti.agent import workspace as workspaces
from sakti.agent.mcp import administration
from sakti.agent.project import trust
from sakti.agent.sandbox.boundary import Level
from sakti.agent.session import lifecycle
from sakti.agent.session.session import Options, Session
from sakti.store.database import Store
from tests.fakes.shell import sakti
from tests.unit.cli.test_completion import words

SERVER = Path(__file__).parents[2] / "fakes" / "mcp_server.py"


@pytest.fixture
def workspace(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    return folder


def config(home: Path) -> Path:
    return home / ".config" / "sakti" / "config.toml"


def test_servers_are_added_listed_and_removed(workspace: Path, home: Path) -> None:
    assert "No MCP servers" in sakti("mcp", "list").stdout
    config(home).parent.mkdir(parents=True)
    config(home).write_text("# mine\n[ui]\nmouse = false\n")
    assert sakti("mcp", "add", "git", "--env", "A=b", "--", "uvx", "mcp-server-git", "--repository", ".").exit_code == 0
    assert sakti("mcp", "add", "web", "--url", "https://user.example.org/mcp?key=abc", "--json").exit_code == 0
    assert config(home).read_text().startswith("# mine\n[ui]\nmouse = false\n\n[mcp.git]\ncommand = ")
    listed = sakti("mcp", "list").stdout.splitlines()
    assert listed == [
        "✓ git  uvx mcp-server-git --repository .  ~/.config/sakti/config.toml",
        "✓ web  https://user.example.org/mcp?key=•••  ~/.config/sakti/config.toml",
    ]
    servers = json.loads(sakti("mcp", "list", "--json").stdout)["servers"]
    assert [(s["name"], s["origin"], s["problem"]) for s in servers] == [("git", "user", None), ("web", "user", None)]
    assert {"git", "web"} <= set(words("mcp test ")) and {"add", "test", "login"} <= set(words("mcp "))
    assert sakti("mcp", "remove", "git").exit_code == 0
    assert sakti("mcp", "remove", "web", "--json").exit_code == 0
    assert config(home).read_text() == "# mine\n[ui]\nmouse = false\n\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("add",), "Write `sakti mcp add NAME -- COMMAND`"),
        (("add", "x"), "Write `sakti mcp add NAME -- COMMAND`"),
        (("add", "x", "--url", "https://a.example", "--", "a"), "Write `sakti mcp add NAME -- COMMAND`"),
        (("add", "x", "--url", "ftp://a.example"), "its url must begin with http:// or https://"),
        (("add", "a b", "--", "a"), "'a b' is not a name for a server"),
        (("add", "x", "--env", "A", "--", "a"), "--env takes NAME=VALUE, not 'A'."),
        (("add", "--from", "vibe"), "'vibe' is not one of claude-code, codex, opencode"),
        (("add", "x", "--from", "codex"), "--from copies all servers of a program"),
        (("add", "--from", "codex"), "config.toml does not exist, so codex has no servers."),
        (("remove", "x"), "There is no server x; `sakti mcp list` shows all."),
        (("test", "x"), "There is no server x; `sakti mcp list` shows all."),
        (("login", "x"), "There is no server x; `sakti mcp list` shows all."),
        (("nothing",), "No such command 'nothing'"),
    ],
)
def test_a_wrong_command_says_what_to_write(workspace: Path, arguments: tuple[str, ...], reason: str) -> None:
    ended = sakti("mcp", *arguments)
    assert ended.exit_code == 2 and reason in ended.stderr


def test_servers_of_another_agent_are_copied_after_showing_the_change(workspace: Path, home: Path) -> None:
    assert sakti("mcp", "add", "git", "--", "mine").exit_code == 0
    servers = {
        "git": {"command": "theirs"},
        "db": {"command": "npx", "args": ["db"], "env": {"PASSWORD": "sk-ant-api03-" + "a" * 40}},
        "old": {"type": "sse", "url": "https://a.example"},
    }
    (home / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    refused = sakti("mcp", "add", "--from", "claude-code")
    assert refused.exit_code == 2 and "--yes confirms it" in refused.stderr
    assert "+[mcp.db]" in refused.output and "sk-ant-api03-aaaa" not in refused.output
    before = config(home).read_text()
    copied = sakti("mcp", "add", "--from", "claude-code", "--yes").stdout
    assert "+[mcp.db]" in copied and "sk-ant-api03-aaaa" not in copied
    assert "git is in" in copied and "the transport sse is not supported" in copied
    assert config(home).read_text().startswith(before) and 'command = "mine"' in before
    again = json.loads(sakti("mcp", "add", "--from", "claude-code", "--json").stdout)
    assert again["added"] == [] and len(again["notes"]) == 3


def test_a_server_is_tried(workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sakti("mcp", "add", "fake", "--", sys.executable, str(SERVER))
    shown = sakti("mcp", "test", "fake")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("✓ fake: ready · 13 tools, ")
    sakti("mcp", "add", "gone", "--", "no-such-program")
    failed = sakti("mcp", "test", "gone", "--json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["error"] == "the program no-such-program was not found."
    assert "fake has no url" in sakti("mcp", "login", "fake").stderr
    monkeypatch.setattr(workspaces.Workspace, "try_sandbox", lambda _: Level("unsandboxed", "no sandbox works"))
    refused = sakti("mcp", "test", "fake")
    assert refused.exit_code == 1
    assert "There is no sandbox here (unsandboxed: no sandbox works), and its start was not approved" in refused.stdout
    assert "add 'mcp__fake' to approval.allow." in refused.stdout
    with config(home).open("a") as file:
        file.write('[approval]\nallow = ["mcp__fake"]\n')
    assert sakti("mcp", "test", "fake").exit_code == 0


def test_a_login_needs_a_keyring(workspace: Path) -> None:
    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())
    try:
        sakti("mcp", "add", "web", "--url", "https://a.example/mcp")
        ended = sakti("mcp", "login", "web")
        assert ended.exit_code == 1 and "There is no keyring to store the login in" in ended.stderr
        assert sakti("mcp", "logout", "web").stdout == "web had no login.\n"
    finally:
        keyring.set_keyring(before)


PROJECT = {
    "db": {"command": "db", "env": {"T": "${DB_TOKEN}", "U": "${USER:-me}"}, "network": ["db.example"], "write": ["o"]}
}


def test_needs_of_a_projects_server_are_shown_and_allowed(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_TOKEN", "s3cret")
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": PROJECT}))
    shown = sakti("trust")
    assert shown.exit_code == 1
    line = f"MCP server db: db; uses the variables DB_TOKEN, USER; wants db.example, {workspace / 'o'}"
    assert f"  {line}" in shown.stdout.splitlines()
    assert "! db  .mcp.json: not trusted, so it does not start." in sakti("mcp", "list").stdout
    assert "not trusted" in sakti("mcp", "test", "db").stderr
    assert "is not trusted" in sakti("trust", "--allow", "DB_TOKEN").stderr

    assert sakti("trust", "--yes").exit_code == 0
    assert "you have not allowed: `sakti trust --allow DB_TOKEN` does." in sakti("mcp", "list").stdout
    assert "db wants to reach the host db.example: `sakti trust --allow db.example`" in sakti("trust").stdout
    assert "No MCP server of this workspace asks for x" in sakti("trust", "--allow", "x").stderr
    assert sakti("trust", "--allow", "DB_TOKEN", "--allow", "db.example").exit_code == 0
    (server,) = json.loads(sakti("mcp", "list", "--json").stdout)["servers"]
    assert (server["problem"], server["network"], server["write"]) == (None, ["db.example"], [])
    assert "s3cret" not in sakti("mcp", "list", "--json").stdout

    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"db": {**PROJECT["db"], "command": "evil"}}}))
    assert "changed since it was trusted" in sakti("mcp", "list").stdout
    sakti("trust", "--yes")
    assert "sakti trust --allow DB_TOKEN" in sakti("mcp", "list").stdout, "the variable was allowed to another command"


async def test_the_chat_asks_about_each_need_once(workspace: Path, store: Store) -> None:
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": PROJECT}))
    asked: list[str] = []

    async def agree(review: trust.TrustReview) -> bool:
        return True

    async def start(answer: bool | None) -> Session:
        async def allow(need: object) -> bool | None:
            asked.append(need.sentence)
            return answer and "host" in asked[-1]

        options = Options.load_without_project(workspace, env={"DB_TOKEN": "s3cret"})
        session = Session(options, store=store)
        await lifecycle.settle_trust(session.workspace, agree, allow)
        return session

    await start(None)
    session = await start(True)
    assert asked == 2 * [
        "db wants to get the variable DB_TOKEN",
        "db wants to reach the host db.example",
        f"db wants to change files in {workspace / 'o'}",
    ]
    (entry,) = session.workspace.files.load_servers().entries
    assert entry.server.network == ("db.example",) and entry.server.write == ()
    assert "DB_TOKEN" in entry.why_not
    asked.clear()
    await start(True)
    assert asked == [], "a no is an answer, too"


def test_current_entries_are_those_of_the_file_and_of_the_command_line(workspace: Path, home: Path) -> None:
    sakti("mcp", "add", "git", "--", "now")
    started = {"git": {"command": "before"}, "flag": {"command": "f"}}
    assert administration.read_current(started, {}) == {"git": {"command": "now"}, "flag": {"command": "f"}}
