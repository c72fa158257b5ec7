"""Add, copy, remove, find and try MCP servers: the work of `sakti mcp` and `/mcp`."""

from __future__ import annotations

import difflib
import importlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from sakti.agent import connections, settings_file
from sakti.agent.mcp import config, foreign
from sakti.agent.mcp.lifecycle import MISSING_PACKAGE
from sakti.agent.mcp.servers import McpServer, ServerState
from sakti.core.config import load
from sakti.core.errors import ConfigError
from sakti.core.text import one_line
from sakti.providers import keys
from sakti.store import secrets

if TYPE_CHECKING:
    from sakti.agent.mcp.clients import McpClients
    from sakti.agent.mcp.config import ServerEntry, ServerList
    from sakti.agent.workspace import Workspace

Tables = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class ServerCopy(Struct, frozen=True):
    """Copy of another program's servers into the user's configuration; `notes` tell of the others."""

    path: Path
    before: str
    after: str
    source: Path
    added: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def diff(self) -> list[str]:
        """Return the change of the configuration, secrets masked."""
        before, after, name = self.before.splitlines(), self.after.splitlines(), str(self.path)
        return [secrets.masked(line) for line in difflib.unified_diff(before, after, name, name, lineterm="", n=2)]


def add_server(name: str, command: Sequence[str], url: str, env: Sequence[str], present: Tables) -> Path:
    """Add a server to the user's configuration, which is returned. Raises `ConfigError`."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{one_line(name)!r} is not a name for a server: use letters, digits, _, - and dots.")
    table: dict[str, Any] = {"url": url} if url else {"command": command[0]}
    table |= {"args": list(command[1:])} if command[1:] else {}
    table |= {"env": _read_variables(env)} if env else {}
    path = config.user_file()
    config.check_entry(name, table, str(path))
    if name in present:
        raise ConfigError(f"{path} has a server {name} already; `sakti mcp remove {name}` removes it.")
    connections.write(path, settings_file.add_servers(connections.read(path) or "", {name: table}))
    return path


def _read_variables(texts: Sequence[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not (name and sign):
            raise ConfigError(f"--env takes NAME=VALUE, not {text!r}.")
        variables[name] = value
    return variables


def plan_copy(program: str, present: Tables) -> ServerCopy:
    """Return how another program's servers would be added. Raises `ConfigError`."""
    others, path = foreign.read_servers(program, Path.home()), config.user_file()
    new = {name: table for name, table in others.tables.items() if name not in present}
    notes = [f"{name} is in {path} already and stays as it is." for name in others.tables if name in present]
    before = connections.read(path) or ""
    after = settings_file.add_servers(before, new) if new else before
    return ServerCopy(path, before, after, others.path, tuple(new), (*notes, *others.problems))


def apply_copy(copy: ServerCopy) -> None:
    connections.write(copy.path, copy.after)


def remove_server(name: str, listed: ServerList) -> Path:
    """Remove a server from the user's configuration, with its login. Raises `ConfigError`."""
    entry = find_entry(listed, name)
    if entry.server.origin != "user":
        raise ConfigError(f"{name} is in {entry.server.source}, not in your configuration: remove it there.")
    path = config.user_file()
    connections.write(path, settings_file.remove_server(connections.read(path) or "", name))
    if entry.server.url:
        keys.delete_secret(entry.server.login_name)
    return path


def find_entry(listed: ServerList, name: str) -> ServerEntry:
    """Return the entry of a name. Raises `ConfigError`."""
    for entry in listed.entries:
        if entry.server.name == name:
            return entry
    raise ConfigError(f"There is no server {name}; `sakti mcp list` shows all.")


def find_server(listed: ServerList, name: str) -> McpServer:
    """Return a server that may start. Raises `ConfigError`."""
    entry = find_entry(listed, name)
    if entry.why_not:
        raise ConfigError(f"{name}: {entry.why_not}")
    return entry.server


def read_current(started: Tables, env: Mapping[str, str]) -> Tables:
    """Return the entries at the start with those of the user's file as it is now. Raises `ConfigError`."""
    return {**started, **load(user_file=config.user_file(), env=env).config.mcp}


def find_remote(listed: ServerList, name: str) -> McpServer:
    """Return a server at an address. Raises `ConfigError`."""
    server = find_entry(listed, name).server
    if not server.url:
        raise ConfigError(f"{name} has no url: only servers at an address have a login.")
    return server


def log_out(server: McpServer) -> bool:
    """Delete the login of a server; False if it has none. Raises `SaktiError`."""
    return keys.delete_secret(server.login_name)


async def try_server(workspace: Workspace, server: McpServer) -> ServerState:
    """Connect to a server outside of a chat, and end it again. Raises `ConfigError` without the SDK."""
    clients: McpClients = import_sdk("sakti.agent.mcp.clients").McpClients(workspace, [server])
    clients.connections[server.name].restarts = ()
    try:
        clients.start()
        await clients.wait([server.name], server.startup_timeout + 1)
        return clients.states()[0]
    finally:
        await clients.close()


def import_sdk(name: str) -> Any:
    """Import a module that needs the SDK. Raises `ConfigError` without it."""
    if not logging.getLogger().handlers:  # no log file: the SDK's tracebacks would go to the terminal
        logging.getLogger().addHandler(logging.NullHandler())
    try:
        return importlib.import_module(name)
    except ImportError as e:
        if (e.name or "").partition(".")[0] in ("mcp", "mcp_types"):
            raise ConfigError(MISSING_PACKAGE) from e
        raise
