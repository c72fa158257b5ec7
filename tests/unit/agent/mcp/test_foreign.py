"""Servers of other agents become entries of sakti's configuration, whose comments and other settings stay."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sakti.agent.mcp import administration
from sakti.agent.settings_file import add_servers, remove_server
from sakti.core.errors import ConfigError

CLAUDE = {
    "numStartups": 3,
    "projects": {"/p": {"mcpServers": {"local": {"command": "x"}}}},
    "mcpServers": {
        "git": {
            "type": "stdio",
            "command": "uvx",
            "args": ["mcp-server-git"],
            "env": {"TOKEN": "${TOKEN}"},
            "alwaysAllow": ["log"],
        },
        "web": {"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${KEY:-none}"}},
        "old": {"type": "sse", "url": "https://a.example/sse"},
        "sakti": {"type": "stdio", "command": "/home/a/.local/bin/sakti", "args": ["mcp"], "alwaysLoad": True},
    },
}
CODEX = """
model = "gpt-5"
[mcp_servers.docs]
command = "npx"
args = ["-y", "docs"]
env_vars = ["DOCS_KEY"]
startup_timeout_sec = 30
tool_timeout_sec = 90.5
enabled_tools = ["find"]
disabled_tools = ["drop"]
required = false
[mcp_servers.docs.env]
MODE = "fast"
[mcp_servers.figma]
url = "https://mcp.figma.example/mcp"
bearer_token_env_var = "FIGMA_TOKEN"
http_headers = { "X-Region" = "eu" }
env_http_headers = { "X-Org" = "ORG" }
enabled = false
"""
OPENCODE = """
{
  // servers
  "mcp": {
    "db": {"type": "local", "command": ["bunx", "db", "--url=//x"], "environment": {"K": "{env:DB_KEY}"},
           "enabled": true},
    "jira": {"type": "remote", "url": "https://jira.example/mcp", "oauth": {"clientId": "c", "scope": "a b"},
             "timeout": 9000},
    "files": {"type": "remote", "url": "https://f.example", "headers": {"A": "{file:~/key}"}}, /* last */
  },
}
"""


def write(home: Path, name: str, text: str) -> None:
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(text)


def test_servers_of_claude_code(home: Path) -> None:
    write(home, ".claude.json", json.dumps(CLAUDE))
    servers = administration.read_servers("claude-code", home)
    assert servers.tables == {
        "git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "${TOKEN}"}},
        "web": {"url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${KEY:-none}"}},
    }
    dropped, problem = servers.problems
    assert dropped == "git: not copied, as sakti has no such setting: alwaysAllow."
    assert "mcp.old: the transport sse is not supported; use streamable HTTP." in problem


def test_servers_of_codex(home: Path) -> None:
    write(home, ".codex/config.toml", CODEX)
    servers = administration.read_servers("codex", home)
    assert servers.problems == ("docs: not copied, as sakti has no such setting: disabled_tools.",)
    assert servers.tables == {
        "docs": {
            "command": "npx",
            "args": ["-y", "docs"],
            "env": {"DOCS_KEY": "${DOCS_KEY}", "MODE": "fast"},
            "tools": ["find"],
            "timeout": 90.5,
            "startup_timeout": 30,
        },
        "figma": {
            "url": "https://mcp.figma.example/mcp",
            "headers": {"X-Region": "eu", "X-Org": "${ORG}", "Authorization": "Bearer ${FIGMA_TOKEN}"},
            "enabled": False,
        },
    }


def test_servers_of_opencode(home: Path) -> None:
    write(home, ".config/opencode/opencode.jsonc", OPENCODE)
    servers = administration.read_servers("opencode", home)
    assert servers.tables == {
        "db": {"command": "bunx", "args": ["db", "--url=//x"], "env": {"K": "${DB_KEY}"}},
        "jira": {
            "url": "https://jira.example/mcp",
            "oauth": {"client_id": "c", "scopes": "a b"},
            "startup_timeout": 9.0,
        },
    }
    assert "files reads a value from a file" in servers.problems[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"mcpServers": []}', '{"mcpServers": {"a": 1, "b": {"command": 3}}}'])
def test_a_broken_file_is_named(home: Path, text: str) -> None:
    write(home, ".claude.json", text)
    try:
        servers = administration.read_servers("claude-code", home)
    except ConfigError as e:
        assert ".claude.json" in e.message
    else:
        assert servers.tables == {} and (not text or all(".claude.json" in problem for problem in servers.problems))


def test_a_program_without_a_file_has_no_servers(home: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist, so codex has no servers"):
        administration.read_servers("codex", home)


FILE = """# mine
[mcp.git]
command = "a"  # a
env = { A = "b" }

# about the screen
[ui]
mouse = false

[mcp."a.b"]
url = "https://a.example"

[mcp."a.b".headers]
A = "b"

# the end
"""


def test_comments_stay_when_a_server_is_added_or_removed() -> None:
    added = add_servers(FILE, {"new": {"command": "x", "args": ["y"], "env": {"A": "b"}}})
    assert added.startswith(FILE.rstrip()) and added.endswith(
        '\n\n[mcp.new]\ncommand = "x"\nargs = ["y"]\nenv = {A = "b"}\n'
    )
    assert remove_server(FILE, "git") == "# mine\n" + FILE.partition('"b" }\n\n')[2]
    assert remove_server(FILE, "a.b") == FILE.partition('[mcp."a.b"]')[0] + "# the end\n"
    assert remove_server('mcp.git.command = "x"\nmcp.b.url = "y"\n', "git") == 'mcp.b.url = "y"\n'


@pytest.mark.parametrize("text", ["mcp = { git = { command = 'a' } }\n", "[mcp]\nnew = { command = 'a' }\n", "= 3"])
def test_a_file_to_which_no_server_can_be_added_is_not_changed(text: str) -> None:
    with pytest.raises(ConfigError):
        add_servers(text, {"new": {"command": "x"}})


names = st.text(min_size=1, max_size=8)
values = st.text(max_size=12)
tables = st.fixed_dictionaries({"command": values, "args": st.lists(values), "env": st.dictionaries(names, values)})


@settings(max_examples=25)
@given(st.dictionaries(names, tables, min_size=1, max_size=3))
def test_whatever_is_added_is_read_again_and_can_be_removed(servers: dict[str, dict[str, object]]) -> None:
    text = "# mine\n[ui]\nmouse = false\n"
    for name, table in servers.items():
        text = add_servers(text, {name: table})
    assert tomllib.loads(text)["mcp"] == servers
    for name in servers:
        text = remove_server(text, name)
    assert tomllib.loads(text) == {"ui": {"mouse": False}}
    assert text.startswith("# mine\n")
