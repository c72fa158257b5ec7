"""Declare `sakti mcp` and `/mcp`: servers whose tools the agent may use; bare, memory for other agents."""

from __future__ import annotations

import difflib
import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sakti.actions import bar
from sakti.actions.scope import Scope
from sakti.actions.spec import MEMORY, UPKEEP, Group, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Open, Refused, Text, Value
from sakti.core.lazy import lazy_imports

if TYPE_CHECKING:
    from sakti.agent.mcp.config import ServerList
    from sakti.agent.mcp.servers import McpServer, ServerState

with lazy_imports:
    from sakti.agent import connections, settings_file
    from sakti.agent.mcp import config as mcp_config
    from sakti.agent.mcp import foreign as foreign_servers
    from sakti.agent.reports import mcp_view
    from sakti.providers import keys
    from sakti.store import secrets

GROUP = Group(
    "mcp", "MCP servers, whose tools the agent may use. Without a command: serve memory to other agents.", UPKEEP
)
PROGRAMS = ("claude-code", "codex", "opencode")


@action(flag("--all-workspaces", help="Search all workspaces, not only the client's."), shell="mcp", panel=MEMORY,
        json=False)  # fmt: skip
async def mcp(scope: Scope, all_workspaces: bool) -> None:
    """Serve memory to another agent over standard input and output (MCP).

    It only reads. `sakti connect PROGRAM` registers it there.
    """
    server: Any = importlib.import_module("sakti.agent.memory_server")  # not for lists of commands
    server.serve(sys.stdin.buffer, sys.stdout.buffer, scope.database, all_workspaces=all_workspaces)


# --- the configuration ------------------------------------------------------------------------------------------------


@action(
    arg("name", "Name of the server.", default=""),
    arg("command", "Its command, behind --.", many=True, default=()),
    option("--url", help="Address of a server that speaks streamable HTTP.", default=""),
    option("--env", help="Variable of the command, as NAME=VALUE; ${NAME} takes it from yours.", many=True,
           metavar="NAME=VALUE"),
    option("--from", name="program", help="Copy the servers of claude-code, codex or opencode.", default=None,
           choices=PROGRAMS),
    flag("--yes", help="Do not ask for confirmation."),
    shell="mcp add",
)  # fmt: skip
async def add(
    scope: Scope, name: str, command: list[str], url: str, env: list[str], program: str | None, yes: bool
) -> Value:
    """Add a server to your configuration, or copy those of another agent."""
    if program:
        if name or command or url or env:
            raise Refused("--from copies all servers of a program: name nothing else.", code=USAGE)
        return _copy_servers(scope, program, yes)
    if not name or bool(command) == bool(url):
        raise Refused("Write `sakti mcp add NAME -- COMMAND` or `sakti mcp add NAME --url URL`.", code=USAGE)
    table: dict[str, Any] = {"url": url} if url else {"command": command[0]}
    table |= {"args": command[1:]} if command[1:] else {}
    table |= {"env": _read_variables(env)} if env else {}
    path = mcp_config.user_file()
    mcp_config.check_entry(name, table, str(path))
    if name in scope.config.mcp:
        raise Refused(f"{path} has a server {name} already; `sakti mcp remove {name}` removes it.", code=USAGE)
    text = connections.read(path) or ""
    connections.write(path, settings_file.add_servers(text, {name: table}))
    return Done(f"Added {name} to {path}. `sakti mcp test {name}` connects to it.", json={"added": [name]})


def _read_variables(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if wrong := [text for text, (name, sign, _) in zip(texts, pairs, strict=True) if not (name and sign)]:
        raise Refused(f"--env takes NAME=VALUE, not {wrong[0]!r}.", code=USAGE)
    return {name: value for name, _, value in pairs}


def _copy_servers(scope: Scope, program: str, yes: bool) -> Value:
    """Copy the servers of another program after showing the change."""
    others = foreign_servers.read_servers(program, Path.home())
    path, present = mcp_config.user_file(), scope.config.mcp
    new = {name: table for name, table in others.tables.items() if name not in present}
    notes = [f"{name} is in {path} already and stays as it is." for name in others.tables if name in present]
    notes += others.problems
    described = {"added": list(new), "notes": notes}
    if not new:
        return Text((*notes, f"{others.path} has no servers to copy."), json=described)
    before = connections.read(path) or ""
    after = settings_file.add_servers(before, new)
    shown = map(secrets.masked, difflib.unified_diff(before.splitlines(), after.splitlines(), str(path), str(path),
                                                     lineterm="", n=2))  # fmt: skip
    diff = (*shown, *notes)
    if not yes:
        if scope.json or not sys.stdin.isatty():
            raise Refused(f"This changes {path}; --yes confirms it.", code=USAGE)
        scope.tell(Text(diff, kind="diff"))
        if not bar.confirm(f"Change {path}?"):
            raise Refused("Nothing was changed.")
    connections.write(path, after)
    return Text((*(diff if yes else ()), f"Added {', '.join(new)} to {path}."), json=described)


@action(arg("name", "Name of the server.", offers="servers"), shell="mcp remove")
async def remove(scope: Scope, name: str) -> Value:
    """Remove a server from your configuration, with its login."""
    path = mcp_config.user_file()
    if name not in scope.config.mcp:
        raise Refused(f"{path} has no server {name}; `sakti mcp list` shows all.", code=USAGE)
    server = _find(scope, name)
    connections.write(path, settings_file.remove_server(connections.read(path) or "", name))
    if server.url:
        keys.delete_secret(server.login_name)
    return Done(f"Removed {name} from {path}.", json={"removed": name})


@action(shell="mcp list")
async def list_(scope: Scope) -> Value:
    """List the servers of all files, and why one of them does not start."""
    listed = _load(scope)
    lines = tuple(mcp_view.list_lines(listed, workspace=scope.workspace))
    return Text(lines or (mcp_view.NO_SERVERS,), title="MCP", kind="findings", json=mcp_view.as_json(listed))


def _load(scope: Scope) -> ServerList:
    return mcp_view.load_all(scope.workspace, scope.config.mcp, scope.env)


def _find(scope: Scope, name: str, *, may_start: bool = False) -> McpServer:
    """Return the server of a name. Raises Refused without one; `may_start`: or if it does not start."""
    entry = next((e for e in _load(scope).entries if e.server.name == name), None)
    if entry is None:
        raise Refused(f"There is no server {name}; `sakti mcp list` shows all.", code=USAGE)
    if may_start and entry.why_not:
        raise Refused(f"{name}: {entry.why_not}")
    return entry.server


def _find_remote(scope: Scope, name: str, *, may_start: bool = False) -> McpServer:
    server = _find(scope, name, may_start=may_start)
    if not server.url:
        raise Refused(f"{name} has no url: only servers at an address have a login.", code=USAGE)
    return server


# --- connections ------------------------------------------------------------------------------------------------------


@action(arg("name", "Name of the server.", offers="servers"), shell="mcp test", needs="loop")
async def test(scope: Scope, name: str) -> Value:
    """Connect to a server; show its version, its tools and their tokens. Exit 1 if it is not ready."""
    server = _find(scope, name, may_start=True)
    state = await _connect(scope, server)
    lines = [f"{'✓' if state.state == 'ready' else '✗'} {name}: {mcp_view.describe_state(state)}"]
    lines += [state.error] if state.error else []
    lines += [f"  {tool.original_name:<32} {tool.tokens:>6} tokens" for tool in state.tools]
    json = {
        "name": name,
        "state": state.state,
        "version": state.version,
        "error": state.error or None,
        "tools": [{"name": tool.original_name, "tokens": tool.tokens} for tool in state.tools],
    }
    return Text(tuple(lines), title="MCP", kind="findings", json=json, exit=int(state.state != "ready"))


async def _connect(scope: Scope, server: McpServer) -> ServerState:
    """Connect to a server outside of a chat, and end it again."""
    clients: Any = _import_package("sakti.agent.mcp.clients")
    servers = clients.McpClients(scope.make_workspace(), [server])
    try:
        servers.start()
        await servers.wait([server.name], server.startup_timeout + 1)
        return servers.states()[0]
    finally:
        await servers.close()


def _import_package(name: str) -> Any:
    """Import a module that needs the SDK. Raises Refused without it."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        if (e.name or "").partition(".")[0] in ("mcp", "mcp_types"):
            raise Refused(mcp_view.MISSING_PACKAGE) from e
        raise


@action(arg("name", "Name of the server.", offers="servers"), shell="mcp login", needs="loop")
async def login(scope: Scope, name: str) -> Value:
    """Log in to a server in the browser; the login is stored in the keyring.

    Over ssh, open the address that is shown in a browser of your own, and paste the address at which it ends.
    """
    server = _find_remote(scope, name, may_start=True)
    await _import_package("sakti.agent.mcp.login").log_in(server, bar.show_address, bar.read_line)
    return Done(f"Logged in to {name}.", json={"logged_in": name})


@action(arg("name", "Name of the server.", offers="servers"), shell="mcp logout")
async def logout(scope: Scope, name: str) -> Value:
    """Delete the login of a server from the keyring."""
    deleted = keys.delete_secret(_find_remote(scope, name).login_name)
    return Done(f"Logged out of {name}." if deleted else f"{name} had no login.", json={"logged_out": deleted})


# --- in a chat --------------------------------------------------------------------------------------------------------

VERBS = ("tools", "restart", "disable", "login")


@action(
    arg("verb", default="", choices=VERBS),
    arg("name", default=""),
    chat="mcp",
    needs="session",
    summary="list MCP servers with their state; show tools, restart, disable, log in",
    hint="[tools | restart | disable | login NAME]",
)
async def servers(scope: Scope, verb: str, name: str) -> Value | None:
    """List MCP servers with their state, or change one for this session."""
    if verb and not name:
        raise Refused(f"Write the name of a server after /mcp {verb}.", code=USAGE)
    if verb:
        return await _VERBS[verb](scope, name)
    listed = _load(scope)

    async def instead() -> Value:
        running = scope.session.workspace.servers.states()
        lines = tuple(mcp_view.list_lines(listed, running, scope.workspace))
        return Text(lines or (mcp_view.NO_SERVERS,), title="MCP", kind="findings")

    return Open("mcp", listed, instead)


async def show_tools(scope: Scope, name: str) -> Value:
    """Show the tools of a running server, and what it says about itself."""
    state = _find_running(scope, name)
    return Text(tuple(mcp_view.tool_lines(state)) or (f"{name} is {state.state}.",), title=f"MCP {name}")


async def restart_server(scope: Scope, name: str) -> Value:
    """End a server and start it again."""
    await _running(scope).restart(_find_running(scope, name).server.name)
    return Done(f"{name} starts again.", title="MCP")


async def disable_server(scope: Scope, name: str) -> Value:
    """End a server for the rest of the session."""
    await _running(scope).disable(_find_running(scope, name).server.name)
    return Done(f"{name} is off until sakti ends; `enabled = false` in its entry keeps it off.", title="MCP")


async def log_in_here(scope: Scope, name: str) -> Value:
    """Log in to a server in the browser of this machine, and connect to it again."""
    server = _find_remote(scope, name, may_start=True)

    async def show(address: str) -> None:
        if "SSH_CONNECTION" in scope.env:
            raise Refused(f"Over ssh, run `sakti mcp login {name}` in a shell: there you can paste the address.")
        scope.tell(Text((f"Log in in the browser. If none opened: {address}",), title="MCP"))
        await bar.open_browser(address)

    with scope.working(f"login to {name}"):
        await _import_package("sakti.agent.mcp.login").log_in(server, show)
    if scope.session.workspace.servers.clients is not None:
        await _running(scope).restart(name)
    return Done(f"Logged in to {name}.", title="MCP")


_VERBS = {"tools": show_tools, "restart": restart_server, "disable": disable_server, "login": log_in_here}


def _running(scope: Scope) -> Any:
    """Return the servers of the session. Raises Refused if none was started."""
    clients = scope.session.workspace.servers.clients
    if clients is None:
        raise Refused("No MCP server was started in this session.")
    return clients


def _find_running(scope: Scope, name: str) -> ServerState:
    state = next((state for state in scope.session.workspace.servers.states() if state.server.name == name), None)
    if state is None:
        raise Refused(f"The server {name} was not started in this session; /mcp shows why.")
    return state
