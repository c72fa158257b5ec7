"""Entries of MCP servers: their fields, their sources, and what a project's server gets."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sakti.agent.mcp import config
from sakti.agent.mcp.config import ServerContext, ServerEntry, ServerList
from sakti.agent.project import trust
from sakti.core.config import Config, load

WORKSPACE = Path("/w")
ENV = {"USER": "ada", "EMPTY": "", "API_TOKEN": "s3cret"}


def read_user(toml: str, env: Mapping[str, str] = ENV) -> ServerList:
    return config.collect(tomllib.loads(toml), {}, ServerContext(WORKSPACE, env))


def read_project(
    servers: object, answers: Mapping[str, bool] | None = None, user: Mapping[str, Any] | None = None
) -> ServerList:
    data = json.dumps({"mcpServers": servers}).encode()
    return config.collect(user or {}, {".mcp.json": data}, ServerContext(WORKSPACE, ENV, answers or {}))


def only(servers: ServerList) -> ServerEntry:
    assert servers.problems == ()
    (entry,) = servers.entries
    return entry


def test_every_field_of_an_entry_is_read() -> None:
    git = only(
        read_user("""
[git]
command = "uvx"
args = ["mcp-server-git", "--user", "${USER}", "${EMPTY:-none}"]
env = { HOST = "${HOST:-localhost}", PORT = 80, ON = true }
cwd = "tools"
enabled = false
tools = ["git_log"]
always_load = ["git_log"]
network = ["GitHub.com", "*.example.org:8443"]
write = ["out", "/tmp/x"]
timeout = 5
startup_timeout = 1.5
""")
    ).server
    assert (git.command, git.args) == ("uvx", ("mcp-server-git", "--user", "ada", "none"))
    assert git.env == {"HOST": "localhost", "PORT": "80", "ON": "true"}
    assert (git.cwd, git.write) == ("/w/tools", ("/w/out", "/tmp/x"))
    assert (git.enabled, git.tools, git.always_load) == (False, ("git_log",), ("git_log",))
    assert (git.network, git.timeout, git.startup_timeout) == (("github.com", "*.example.org:8443"), 5, 1.5)
    web = only(
        read_user("""
[web]
type = "streamable-http"
url = "https://mcp.example.org/${USER}"
headers = { Authorization = "Bearer ${API_TOKEN}" }
oauth = { client_id = "c", scopes = "read write", port = 8400 }
""")
    ).server
    assert (web.url, web.headers) == ("https://mcp.example.org/ada", {"Authorization": "Bearer s3cret"})
    assert (web.client_id, web.scopes, web.redirect_port) == ("c", ("read", "write"), 8400)


@pytest.mark.parametrize(
    ("toml", "reason"),
    [
        ('type = "sse"\nurl = "https://a.example"', "the transport sse is not supported; use streamable HTTP."),
        ('command = "a"\nurl = "https://a.example"', "command and url are both set; keep one of them."),
        ("enabled = true", "it needs a command, or a url for streamable HTTP."),
        ('type = "http"\ncommand = "a"', 'type = "http" needs a url.'),
        ('type = "pipe"\ncommand = "a"', "mcp.x.type cannot be 'pipe'"),
        ("command = 3", "mcp.x.command cannot be 3; it takes text."),
        ('command = "a"\nnetwrok = ["b.example"]', "has no setting 'netwrok'. Did you mean network?"),
        ('command = "a"\nnetwork = ["b c"]', "network: 'b c' is not a host"),
        ('command = "a"\ntimeout = 0', "timeout = 0 must be above 0"),
        ('command = "a"\nargs = ["${MISSING}"]', "the variable MISSING is not set."),
        ('url = "ftp://a.example"', "its url must begin with http:// or https://"),
        ('url = "https://u:p@a.example"', "its url must not contain a user name"),
        ('url = "https://[a"', "its url cannot be read."),
        ('url = "https://a.example"\noauth = { port = 70000 }', "mcp.x.oauth.port = 70000 is not a port."),
        ('url = "https://a.example"\nheaders = { A = "b\\nC: d" }', "a header has several lines."),
    ],
)
def test_a_broken_entry_is_listed_and_the_others_start(toml: str, reason: str) -> None:
    servers = read_user(f'[x]\n{toml}\n[good]\ncommand = "a"')
    assert reason in servers.entries[0].why_not
    assert [s.name for s in servers.servers] == ["good"]
    assert servers.faults == (f"x does not start: {servers.entries[0].why_not}",)


def test_an_entry_that_is_no_table_is_listed() -> None:
    assert "mcp.x must be a table with a command or a url" in only(read_user("x = 3")).why_not


def test_a_file_of_another_program_works_unchanged() -> None:
    entry = only(
        read_project(
            {
                "db": {
                    "type": "local",
                    "command": "npx",
                    "args": ["-y", "db"],
                    "timeout": 120_000,
                    "disabled": True,
                    "alwaysLoad": True,
                    "oauth": {"clientId": "c", "callbackPort": 8400},
                }
            }
        )
    )
    assert entry.why_not == ""
    assert (entry.server.timeout, entry.server.enabled, entry.server.always_load) == (120, False, ())
    assert (entry.server.client_id, entry.server.redirect_port) == ("c", 8400)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"{", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[]", "mcpServers must be a table"),
        (b'{"servers": {}}', "mcpServers must be a table"),
        (b'{"mcpServers": []}', "mcpServers must be a table"),
    ],
)
def test_a_broken_file_is_named(data: bytes, reason: str) -> None:
    servers = config.collect({}, {".mcp.json": data}, ServerContext(WORKSPACE, ENV))
    assert servers.entries == ()
    assert servers.problems[0].startswith(".mcp.json") and reason in servers.problems[0]


def test_the_users_entry_shadows_that_of_the_project() -> None:
    servers = config.collect(
        {"git": {"command": "mine"}},
        {
            ".mcp.json": b'\xef\xbb\xbf{"mcpServers": {"git": {"command": "theirs"}, "a": {"command": "json"}}}',
            ".sakti/config.toml": b'[mcp.a]\ncommand = "toml"',
        },
        ServerContext(WORKSPACE, ENV),
    )
    assert {s.name: s.command for s in servers.servers} == {"git": "mine", "a": "toml"}
    shadowed = [e for e in servers.entries if e.why_not]
    assert [e.server.name for e in shadowed] == ["git", "a"]
    assert "shadowed by the entry in" in shadowed[0].why_not and "config.toml" in shadowed[0].why_not
    assert servers.faults == ()


def test_untrusted_entries_do_not_start() -> None:
    data = b'{"mcpServers": {"git": {"command": "theirs", "env": {"A": "${API_TOKEN}"}}}}'
    around = ServerContext(WORKSPACE, ENV)
    servers = config.collect({"x": {"command": "a"}}, {".mcp.json": data}, around, untrusted="not trusted.")
    assert [s.name for s in servers.servers] == ["x"]
    assert (servers.entries[1].why_not, servers.entries[1].variables) == ("not trusted.", ("API_TOKEN",))


def test_a_projects_server_gets_a_secret_variable_only_after_approval() -> None:
    servers = {"db": {"command": "a", "env": {"T": "${API_TOKEN}", "U": "${USER}"}}}
    entry = only(read_project(servers))
    assert entry.variables == ("API_TOKEN", "USER")
    assert "needs the variable API_TOKEN, which you have not allowed" in entry.why_not
    assert "s3cret" not in str(entry)
    (need,) = entry.needs
    assert need.sentence == "db wants to get the variable API_TOKEN"

    assert only(read_project(servers, {need.key: True})).server.env == {"T": "s3cret", "U": "ada"}
    denied = only(read_project(servers, {need.key: False}))
    assert denied.why_not and denied.needs == ()
    changed = {"db": {**servers["db"], "command": "b"}}
    assert only(read_project(changed, {need.key: True})).needs, "the approval is for the entry as it was"
    optional = {"db": {"command": "a", "args": ["${API_TOKEN:-none}"]}}
    assert only(read_project(optional)).server.args == ("none",)


def test_a_projects_server_has_no_network_and_cannot_write_until_allowed() -> None:
    servers = {"db": {"command": "a", "network": ["db.example"], "write": ["out"]}}
    entry = only(read_project(servers))
    assert (entry.why_not, entry.server.network, entry.server.write) == ("", (), ())
    assert [(n.kind, n.value, n.required) for n in entry.needs] == [
        ("host", "db.example", False),
        ("path", "/w/out", False),
    ]
    allowed = only(read_project(servers, {"host db.example": True, "path /w/out": True}))
    assert (allowed.server.network, allowed.server.write, allowed.needs) == (("db.example",), ("/w/out",), ())


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://mcp.example/x", "mcp.example"),
        ("http://localhost:8080/mcp", "localhost:8080"),
        ("http://[::1]:9/mcp", "[::1]:9"),
        ("https://${SERVER:-a.example}/", "a.example"),
    ],
)
def test_a_projects_server_at_an_address_waits_for_its_host(url: str, host: str) -> None:
    servers = {"web": {"type": "http", "url": url}}
    entry = only(read_project(servers))
    assert f"it is at {host}, which you have not allowed" in entry.why_not
    assert [n.key for n in entry.needs] == [f"host {host}"]
    assert only(read_project(servers, {f"host {host}": True})).why_not == ""


def test_only_so_many_servers_start() -> None:
    servers = read_project({f"s{n}": {"command": "a"} for n in range(config.MOST_ENTRIES + 5)})
    assert len(servers.servers) == config.MOST
    assert len(servers.entries) == config.MOST_ENTRIES
    assert servers.problems == (".mcp.json: only 200 of 205 servers are read.",)


def test_settings_hold_the_users_servers(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('[mcp.git]\ncommand = "a"\nenv = { A = "b" }\n[mcp."a.b"]\nurl = "https://a.example"\n')
    project = tmp_path / "project.toml"
    project.write_text('[mcp.theirs]\ncommand = "evil"\n')
    loaded = load(user_file=file, project_file=project, overrides=["mcp.git.enabled=false"])
    assert loaded.config.mcp == {
        "git": {"command": "a", "env": {"A": "b"}, "enabled": False},
        "a.b": {"url": "https://a.example"},
    }
    assert loaded.warnings == ()
    assert Config().mcp == {}


def test_scripts_that_a_projects_server_runs_are_trusted_with_it(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "server.py"
    script.write_text("print()\n")
    servers = {"a": {"command": "python3", "args": ["tools/server.py"]}, "b": {"command": "uvx", "args": ["x"]}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    review = trust.review(tmp_path)
    assert [(f.name, f.kind) for f in review.project.files] == [(".mcp.json", "mcp"), ("tools/server.py", "script")]
    trust.save(review)
    script.write_text("import os\n")
    assert trust.review(tmp_path).state == "changed"
