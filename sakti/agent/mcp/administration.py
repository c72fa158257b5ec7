"""Add, copy, remove, find and try MCP servers, for `sakti mcp` and `/mcp`.

Servers configured for other agents are converted to sakti's entries.
"""

from __future__ import annotations

import difflib
import importlib
import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from sakti.agent import connections, settings_file
from sakti.agent.mcp import config
from sakti.agent.mcp.lifecycle import MISSING_PACKAGE
from sakti.agent.mcp.servers import McpServer, ServerState
from sakti.core.config import load
from sakti.core.config.reading import LONGEST as LONGEST_SETTINGS
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import quote, to_one_line
from sakti.providers import keys
from sakti.store import secrets

if TYPE_CHECKING:
    from sakti.agent.mcp.clients import McpClients
    from sakti.agent.mcp.config import ServerEntry, ServerList
    from sakti.agent.workspace import Workspace


LONGEST = 50_000_000  # bytes; claude-code keeps its whole state in that file
_COMMENT = lazy_pattern(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = lazy_pattern(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')
_ENV = lazy_pattern(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE = "{file:"

Table = Mapping[str, Any]
_EMPTY: tuple[Any, ...] = (None, False, "", [], {})


class _FieldReader(Mapping[str, Any]):
    """Entry of another program that records which fields were read."""

    def __init__(self, entry: Table) -> None:
        self._entry, self._read = entry, set[str]()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._entry[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entry)

    def __len__(self) -> int:
        return len(self._entry)

    def list_unread(self) -> list[str]:
        """Return the fields with a value that were not read, except the type, which follows from others."""
        read = self._read | {"type"}
        unread = (name for name, value in self._entry.items() if name not in read and value not in _EMPTY)
        return [to_one_line(str(name), 40) for name in unread]


class ForeignServers(Struct, frozen=True):
    """Servers of another program: tables by name, and a sentence for each that sakti cannot use."""

    path: Path
    tables: Mapping[str, Table]
    problems: tuple[str, ...] = ()


def read_servers(program: str, home: Path) -> ForeignServers:
    """Read a program's servers. Raises `ConfigError` if it has no file, or a broken one."""
    names, read, convert = PROGRAMS[program]
    paths = [home / name for name in names]
    path = next((path for path in paths if path.exists()), paths[0])
    data = read_bytes(path, LONGEST if path.name == ".claude.json" else LONGEST_SETTINGS * 10)
    if data is None:
        raise ConfigError(f"{path} does not exist, so {program} has no servers.")
    try:
        entries: Any = read(data.decode("utf-8-sig"))
    except (ValueError, RecursionError, AttributeError) as e:
        raise ConfigError(f"{path} cannot be read: {to_one_line(str(e), 120)}.") from e
    if not isinstance(entries, Mapping):
        raise ConfigError(f"{path}: the servers are not a table.")
    return _convert_entries(cast("Mapping[str, Any]", entries), convert, path)


def _convert_entries(entries: Table, convert: Callable[[Table], Table], path: Path) -> ForeignServers:
    tables: dict[str, Table] = {}
    problems: list[str] = []
    for name, entry in entries.items():
        try:
            reader = _FieldReader(cast("Table", entry)) if isinstance(entry, Mapping) else entry
            if (table := _convert_entry(name, reader, convert, path)) is not None:
                tables[name] = table
                if isinstance(reader, _FieldReader) and (unread := reader.list_unread()):
                    label = to_one_line(name, config.LONGEST_NAME)
                    problems.append(f"{label}: not copied, as sakti has no such setting: {', '.join(unread)}.")
        except ConfigError as e:
            problems.append(e.message)
    return ForeignServers(path, tables, tuple(problems))


def _convert_entry(name: str, entry: Any, convert: Callable[[Table], Table], path: Path) -> Table | None:
    """Convert an entry to sakti's format; None if it is sakti's own server. Raises `ConfigError`."""
    label = to_one_line(name, config.LONGEST_NAME)
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{path}: {label} is not a table.")
    try:
        table = {k: v for k, v in convert(cast("Table", entry)).items() if v not in (None, "", [], {})}
    except (TypeError, AttributeError) as e:
        raise ConfigError(f"{path}: {label} has fields of an unexpected type.") from e
    if table.get("enabled") is True:
        del table["enabled"]
    if Path(str(table.get("command", ""))).name == "sakti" and table.get("args") == ["mcp"]:
        return None
    if _FILE in json.dumps(table, default=str):
        raise ConfigError(f"{path}: {label} reads a value from a file, which sakti does not do.")
    config.check_entry(name, table, str(path))
    return table


# --- the programs -----------------------------------------------------------------------------------------------------


def _read_json(key: str) -> Callable[[str], Any]:
    return lambda text: json.loads(text or "{}").get(key, {})


def _read_commented_json(text: str) -> Any:
    """Return `mcp` of a JSON text with comments and trailing commas."""
    bare = _COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else "", text)
    return json.loads(_LAST_COMMA.sub(lambda m: m[0] if m[0].startswith('"') else "", bare)).get("mcp", {})


def _convert_claude(entry: Table) -> Table:
    table = config.adapt_json(entry)
    if table.get("type") in ("stdio", "http"):
        del table["type"]  # follows from command or url
    return table


def _convert_codex(entry: Table) -> Table:
    headers = {**_get_table(entry, "http_headers")}
    headers |= {name: f"${{{variable}}}" for name, variable in _get_table(entry, "env_http_headers").items()}
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    passed = (name for name in entry.get("env_vars") or () if isinstance(name, str))
    startup_ms = entry.get("startup_timeout_ms")
    return {
        "command": entry.get("command"),
        "args": entry.get("args"),
        "env": {**{name: f"${{{name}}}" for name in passed}, **_get_table(entry, "env")},
        "cwd": entry.get("cwd"),
        "url": entry.get("url"),
        "headers": headers,
        "enabled": entry.get("enabled"),
        "tools": entry.get("enabled_tools"),
        "timeout": entry.get("tool_timeout_sec"),
        "startup_timeout": startup_ms / 1000 if startup_ms else entry.get("startup_timeout_sec"),
    }


def _convert_opencode(entry: Table) -> Table:
    words: list[Any] = list(cast("Iterable[Any]", entry.get("command") or ()))
    oauth = _get_table(entry, "oauth")
    scope = oauth.get("scope")
    return {
        "command": _use_variables(words[0]) if words else None,
        "args": [_use_variables(word) for word in words[1:]],
        "env": {name: _use_variables(value) for name, value in _get_table(entry, "environment").items()},
        "cwd": entry.get("cwd"),
        "url": _use_variables(entry.get("url")),
        "headers": {name: _use_variables(value) for name, value in _get_table(entry, "headers").items()},
        "oauth": {k: v for k, v in {"client_id": oauth.get("clientId"), "scopes": scope}.items() if v},
        "enabled": entry.get("enabled"),
        "startup_timeout": entry["timeout"] / 1000 if entry.get("timeout") else None,
    }


def _use_variables(value: Any) -> Any:
    """Write opencode's `{env:NAME}` as `${NAME}`."""
    return _ENV.sub(r"${\1}", value) if isinstance(value, str) else value


def _get_table(entry: Table, name: str) -> Table:
    value = entry.get(name)
    return cast("Table", value) if isinstance(value, Mapping) else {}


# Files below the home folder (the first existing one is read), and how to read and convert their servers.
PROGRAMS: Mapping[str, tuple[tuple[str, ...], Callable[[str], Any], Callable[[Table], Table]]] = {
    "claude-code": ((".claude.json",), _read_json("mcpServers"), _convert_claude),
    "codex": ((".codex/config.toml",), lambda text: tomllib.loads(text).get("mcp_servers", {}), _convert_codex),
    "opencode": (
        (".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
        _read_commented_json,
        _convert_opencode,
    ),
}


Tables = Mapping[str, Any]
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class ServerCopy(Struct, frozen=True):
    """Copy of another program's servers into the user's configuration; `notes` explain omitted ones."""

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
        return [
            secrets.mask_secrets(line) for line in difflib.unified_diff(before, after, name, name, lineterm="", n=2)
        ]


def add_server(name: str, command: Sequence[str], url: str, env: Sequence[str], present: Tables) -> Path:
    """Add a server to the user's configuration, which is returned. Raises `ConfigError`."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{quote(name)} is not a name for a server: use letters, digits, _, - and dots.")
    table: dict[str, Any] = {"url": url} if url else {"command": command[0]}
    table |= {"args": list(command[1:])} if command[1:] else {}
    table |= {"env": _read_variables(env)} if env else {}
    path = config.get_user_file()
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
            raise ConfigError(f"--env takes NAME=VALUE, not {quote(text)}.")
        variables[name] = value
    return variables


def plan_copy(program: str, present: Tables) -> ServerCopy:
    """Return the configuration with another program's servers added. Raises `ConfigError`."""
    others, path = read_servers(program, Path.home()), config.get_user_file()
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
    path = config.get_user_file()
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
    """Return the entries at the start, with those of the user's file updated. Raises `ConfigError`."""
    return {**started, **load(user_file=config.get_user_file(), env=env).config.mcp}


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
    import_sdk("mcp")
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
