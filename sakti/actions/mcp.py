"""Declare the MCP servers of the agent (`/mcp`, `sakti mcp`), and memory as a server of other agents."""

from __future__ import annotations

import difflib
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sakti.actions.scope import Scope, confirm_change
from sakti.actions.spec import MEMORY, UPKEEP, CommandGroup, action, arg, flag, option
from sakti.actions.values import USAGE, Done, Open, Refused, Text, Value
from sakti.core.lazy import lazy_imports

with lazy_imports:
    from sakti.agent import connections, memory_server
    from sakti.agent.mcp import administration
    from sakti.agent.reports import mcp_view

if TYPE_CHECKING:
    from sakti.agent.mcp.clients import McpClients
    from sakti.agent.mcp.config import ServerList
    from sakti.agent.mcp.servers import ServerState


GROUP = CommandGroup(
    "mcp", "MCP servers, whose tools the agent may use. Without a command: serve memory to other agents.", UPKEEP
)
PROGRAMS = ("claude-code", "codex", "opencode")
VERBS = ("tools", "restart", "disable", "login")
_NAME = arg("name", "Name of the server.", offers="servers")


@action(flag("--all-workspaces", help="Search all workspaces, not only the client's."), shell="mcp", panel=MEMORY,
        json=False)  # fmt: skip
async def mcp(scope: Scope, all_workspaces: bool) -> None:
    """Serve memory to another agent over standard input and output (MCP).

    It only reads. `sakti connect PROGRAM` registers it there.
    """
    memory_server.serve(sys.stdin.buffer, sys.stdout.buffer, scope.database, all_workspaces=all_workspaces)


def _list_servers(scope: Scope) -> ServerList:
    return mcp_view.load_all(scope.workspace, scope.config.mcp, scope.env)


# --- the configuration ------------------------------------------------------------------------------------------------


@action(
    arg("name", "Name of the server.", default=""),
    arg("command", "Its command, after --.", many=True, default=()),
    option("--url", help="Address of a server that speaks streamable HTTP.", default=""),
    option("--env", help="Variable of the command; ${NAME} as the value uses yours.", many=True, metavar="NAME=VALUE"),
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
        if any((name, command, url, env)):
            raise Refused("--from copies all servers of a program: name nothing else.", code=USAGE)
        return _copy_servers(scope, program, yes)
    if not name or bool(command) == bool(url):
        raise Refused("Write `sakti mcp add NAME -- COMMAND` or `sakti mcp add NAME --url URL`.", code=USAGE)
    path = administration.add_server(name, command, url, env, scope.config.mcp)
    return Done(f"Added {name} to {path}. `sakti mcp test {name}` connects to it.", json={"added": [name]})


def _copy_servers(scope: Scope, program: str, yes: bool) -> Value:
    """Copy the servers of another program after showing the change."""
    copy = administration.plan_copy(program, scope.config.mcp)
    described = {"added": list(copy.added), "notes": list(copy.notes)}
    if not copy.added:
        return Text((*copy.notes, f"{copy.source} has no servers to copy."), json=described)
    shown = (*copy.diff, *copy.notes)
    if not yes:
        confirm_change(scope, copy.path, shown)
    administration.apply_copy(copy)
    return Text((*(shown if yes else ()), f"Added {', '.join(copy.added)} to {copy.path}."), json=described)


@action(_NAME, shell="mcp remove")
async def remove(scope: Scope, name: str) -> Value:
    """Remove a server from your configuration, with its login."""
    path = administration.remove_server(name, _list_servers(scope))
    return Done(f"Removed {name} from {path}.", json={"removed": name})


@action(shell="mcp list")
async def list_(scope: Scope) -> Value:
    """List the servers of all files, and why one of them does not start."""
    listed = _list_servers(scope)
    lines = tuple(mcp_view.list_lines(listed, scope.workspace))
    return Text(lines or (mcp_view.NO_SERVERS,), title="MCP", kind="findings", json=mcp_view.to_json(listed))


# --- connections ------------------------------------------------------------------------------------------------------


@action(_NAME, shell="mcp test", needs="loop")
async def test(scope: Scope, name: str) -> Value:
    """Connect to a server; show its version, its tools and their tokens. Exit 1 if it is not ready."""
    server = administration.find_server(_list_servers(scope), name)
    state: ServerState = await administration.try_server(scope.make_workspace(), server)
    is_ready = state.state == "ready"
    lines = [f"{'✓' if is_ready else '✗'} {name}: {mcp_view.describe_state(state)}"]
    lines += [f"  {state.error}"] * bool(state.error)
    lines += [f"  {tool.original_name:<32} {tool.tokens:>6} tokens" for tool in state.tools]
    json = {
        "name": name,
        "state": state.state,
        "version": state.version,
        "error": state.error or None,
        "tools": [{"name": tool.original_name, "tokens": tool.tokens} for tool in state.tools],
    }
    return Text(tuple(lines), title="MCP", kind="findings", json=json, exit=int(not is_ready))


@action(_NAME, shell="mcp login", needs="loop")
async def login(scope: Scope, name: str) -> Value:
    """Log in to a server in the browser; the login is stored in the keyring.

    Over ssh, open the printed address in your own browser, and paste the final address here.
    """
    listed = _list_servers(scope)
    server = administration.find_remote(listed, administration.find_server(listed, name).name)
    logins = administration.import_sdk("sakti.agent.mcp.login")

    async def show(address: str) -> None:
        print(f"Open this address to log in:\n\n{address}\n", file=sys.stderr)
        print("If the browser cannot show the last page, paste its address here and press Enter.", file=sys.stderr)
        if "SSH_CONNECTION" not in scope.env:
            await logins.open_browser(address)

    await logins.log_in(server, show, logins.read_line)
    return Done(f"Logged in to {name}.", json={"logged_in": name})


@action(_NAME, shell="mcp logout")
async def logout(scope: Scope, name: str) -> Value:
    """Delete the login of a server from the keyring."""
    deleted = administration.log_out(administration.find_remote(_list_servers(scope), name))
    return Done(f"Logged out of {name}." if deleted else f"{name} had no login.", json={"logged_out": deleted})


# --- in a chat --------------------------------------------------------------------------------------------------------


@action(
    arg("verb", default="", choices=VERBS),
    arg("name", default=""),
    chat="mcp",
    needs="session",
    summary="list MCP servers; `tools`, `restart`, `disable` and `login` act on one",
    hint="[VERB NAME]",
)
async def servers(scope: Scope, verb: str, name: str) -> Value | None:
    """List MCP servers with their state, or change one for this session."""
    if verb and not name:
        raise Refused(f"Write the name of a server after /mcp {verb}.", code=USAGE)
    match verb:
        case "login":
            return await _log_in_here(scope, name)
        case "tools":
            state = _find_started(scope, name)
            lines = tuple(mcp_view.format_tool_lines(state))
            return Text(lines or (f"{name} is {state.state}.",), title=f"MCP {name}")
        case "restart":
            return await _restart(scope, name)
        case "disable":
            await _get_clients(scope).disable(_find_started(scope, name).server.name)
            return Done(f"{name} is off until sakti ends; `enabled = false` in its entry keeps it off.", title="MCP")
        case _:
            return _open_list(scope)


async def _restart(scope: Scope, name: str) -> Value:
    """Restart a server with its current entry, or start one that was added since sakti started."""
    clients = _get_clients(scope)
    listed = mcp_view.load_all(scope.workspace, administration.read_current(scope.config.mcp, scope.env), scope.env)
    await clients.restart(name, administration.find_server(listed, name))
    return Done(f"{name} restarts with its current entry.", title="MCP")


def _open_list(scope: Scope) -> Value:
    listed = _list_servers(scope)

    async def show_text() -> Value:
        lines = tuple(mcp_view.list_lines(listed, scope.workspace, scope.session.workspace.servers.states()))
        return Text(lines or (mcp_view.NO_SERVERS,), title="MCP", kind="findings")

    return Open("mcp", listed, show_text)


async def _log_in_here(scope: Scope, name: str) -> Value:
    """Log in to a server in the browser of this machine, and connect to it again."""
    listed = _list_servers(scope)
    server = administration.find_remote(listed, administration.find_server(listed, name).name)
    if "SSH_CONNECTION" in scope.env:
        raise Refused(f"Over ssh, run `sakti mcp login {name}` in a shell: there you can paste the address.")
    logins = administration.import_sdk("sakti.agent.mcp.login")

    async def show(address: str) -> None:
        scope.tell(Text((f"Log in in the browser. If none opened: {address}",), title="MCP"))
        await logins.open_browser(address)

    await logins.log_in(server, show)
    if scope.session.workspace.servers.clients is not None:
        await _get_clients(scope).restart(name)
    return Done(f"Logged in to {name}.", title="MCP")


def _get_clients(scope: Scope) -> McpClients:
    """Return the servers of the session. Raises Refused if none was started."""
    servers = scope.session.workspace.servers
    if servers.clients is None:
        raise Refused(servers.problem or "No MCP server was started in this session.")
    return servers.clients


def _find_started(scope: Scope, name: str) -> ServerState:
    for state in scope.session.workspace.servers.states():
        if state.server.name == name:
            return state
    raise Refused(f"The server {name} was not started in this session; /mcp shows why.")


CLIENTS = ("claude-code", "codex", "opencode", "vibe")


@action(
    arg("program", "claude-code, codex, opencode or vibe.", choices=CLIENTS),
    flag("--remove", help="Remove the entry."),
    flag("--yes", help="Do not ask for confirmation."),
    shell="connect",
    panel=MEMORY,
)
async def connect(scope: Scope, program: str, remove: bool, yes: bool) -> Value:
    """Let another agent search your memory: add `sakti mcp` to its configuration.

    The change is shown first; everything else in the file stays as it is.
    """
    change = _plan_edit(program, remove)
    described = {"program": program, "path": str(change.path), "changed": change.after != change.before}
    if change.after == change.before:
        state = "not connected" if remove else "connected already"
        return Done(f"{program} is {state}; {change.path} was not changed.", json=described)
    diff = tuple(_diff_edit(change))
    if not yes:
        confirm_change(scope, change.path, diff)
    connections.write(change.path, change.after)
    done = f"{program} {'no longer uses' if remove else 'uses'} sakti's memory from its next start on."
    return Text((*(diff if yes else ()), done), json=described)


class ConfigurationEdit(NamedTuple):
    """Texts of a configuration before and after an edit; None: no file."""

    path: Path
    before: str | None
    after: str | None


def _plan_edit(program: str, remove: bool) -> ConfigurationEdit:
    """Return the edit of a program's configuration. Raises ConnectError."""
    chosen = connections.PROGRAMS[program]
    path = Path.home() / chosen.path
    before = connections.read(path)
    change = connections.disconnect if remove else connections.connect
    return ConfigurationEdit(path, before, change(chosen, before, shutil.which("sakti") or "sakti"))


def _diff_edit(change: ConfigurationEdit) -> list[str]:
    before, after, name = (change.before or "").splitlines(), (change.after or "").splitlines(), str(change.path)
    return list(difflib.unified_diff(before, after, name, name, lineterm="", n=2))
