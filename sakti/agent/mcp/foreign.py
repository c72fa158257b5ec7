"""Read the MCP servers that the user configured for other agents, as entries for sakti."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from sakti.agent.mcp import config
from sakti.core.config.reading import LONGEST as LONGEST_SETTINGS
from sakti.core.config.reading import read_bytes
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import one_line

LONGEST = 50_000_000  # bytes; claude-code keeps its whole state in that file
_COMMENT = lazy_pattern(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = lazy_pattern(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])')
_ENV = lazy_pattern(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_FILE = "{file:"

Table = Mapping[str, Any]
_EMPTY: tuple[Any, ...] = (None, False, "", [], {})


class _FieldReader(Mapping[str, Any]):
    """Entry of another program that remembers which of its fields were read."""

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
        """Return the fields with a value that were not read; the type follows from the others."""
        read = self._read | {"type"}
        unread = (name for name, value in self._entry.items() if name not in read and value not in _EMPTY)
        return [one_line(str(name), 40) for name in unread]


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
        raise ConfigError(f"{path} cannot be read: {one_line(str(e), 120)}.") from e
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
                    label = one_line(name, config.LONGEST_NAME)
                    problems.append(f"{label}: not copied, as sakti has no such setting: {', '.join(unread)}.")
        except ConfigError as e:
            problems.append(e.message)
    return ForeignServers(path, tables, tuple(problems))


def _convert_entry(name: str, entry: Any, convert: Callable[[Table], Table], path: Path) -> Table | None:
    """Return an entry as sakti has it; None if it is sakti's own server. Raises `ConfigError`."""
    label = one_line(name, config.LONGEST_NAME)
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{path}: {label} is not a table.")
    try:
        table = {k: v for k, v in convert(cast("Table", entry)).items() if v not in (None, "", [], {})}
    except (TypeError, AttributeError) as e:
        raise ConfigError(f"{path}: {label} has fields of another kind than expected.") from e
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
    """Return `mcp` of a JSON text with comments and commas behind the last member."""
    bare = _COMMENT.sub(lambda m: m[0] if m[0].startswith('"') else "", text)
    return json.loads(_LAST_COMMA.sub(lambda m: m[0] if m[0].startswith('"') else "", bare)).get("mcp", {})


def _convert_claude(entry: Table) -> Table:
    table = config.adapt_json(entry)
    if table.get("type") in ("stdio", "http"):
        del table["type"]  # follows from command or url
    return table


def _convert_codex(entry: Table) -> Table:
    headers = {**_table(entry, "http_headers")}
    headers |= {name: f"${{{variable}}}" for name, variable in _table(entry, "env_http_headers").items()}
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    passed = (name for name in entry.get("env_vars") or () if isinstance(name, str))
    startup_ms = entry.get("startup_timeout_ms")
    return {
        "command": entry.get("command"),
        "args": entry.get("args"),
        "env": {**{name: f"${{{name}}}" for name in passed}, **_table(entry, "env")},
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
    oauth = _table(entry, "oauth")
    scope = oauth.get("scope")
    return {
        "command": _use_variables(words[0]) if words else None,
        "args": [_use_variables(word) for word in words[1:]],
        "env": {name: _use_variables(value) for name, value in _table(entry, "environment").items()},
        "cwd": entry.get("cwd"),
        "url": _use_variables(entry.get("url")),
        "headers": {name: _use_variables(value) for name, value in _table(entry, "headers").items()},
        "oauth": {k: v for k, v in {"client_id": oauth.get("clientId"), "scopes": scope}.items() if v},
        "enabled": entry.get("enabled"),
        "startup_timeout": entry["timeout"] / 1000 if entry.get("timeout") else None,
    }


def _use_variables(value: Any) -> Any:
    """Write opencode's `{env:NAME}` as `${NAME}`."""
    return _ENV.sub(r"${\1}", value) if isinstance(value, str) else value


def _table(entry: Table, name: str) -> Table:
    value = entry.get(name)
    return cast("Table", value) if isinstance(value, Mapping) else {}


# Files below the home folder, of which the first that exists is read; how to read and convert the servers in it.
PROGRAMS: Mapping[str, tuple[tuple[str, ...], Callable[[str], Any], Callable[[Table], Table]]] = {
    "claude-code": ((".claude.json",), _read_json("mcpServers"), _convert_claude),
    "codex": ((".codex/config.toml",), lambda text: tomllib.loads(text).get("mcp_servers", {}), _convert_codex),
    "opencode": (
        (".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
        _read_commented_json,
        _convert_opencode,
    ),
}
