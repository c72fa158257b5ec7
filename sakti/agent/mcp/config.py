"""Read the entries of MCP servers: those of the user, and those of the project with what the user allowed them.

A faulty entry does not affect the others: it is listed with the reason. If two entries have the same name, the first
applies: the user's, so that a project cannot replace a server that the user trusts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from sakti.agent.mcp.servers import McpServer, Origin
from sakti.agent.sandbox.environment import is_secret_name
from sakti.core import hosts, resources
from sakti.core.config.load import table_of
from sakti.core.config.reading import SERVERS, parse, shown
from sakti.core.errors import ConfigError
from sakti.core.patterns import lazy_pattern
from sakti.core.text import one_line

MOST = 32  # servers that start
MOST_ENTRIES = 200  # of one file that are read
LONGEST_NAME = 64
LONGEST_TIMEOUT = 600.0  # seconds
NO_SSE = "the transport sse is not supported; use streamable HTTP."

NeedKind: TypeAlias = Literal["variable", "host", "path"]
_VARIABLE = lazy_pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Names that programs use for the two transports.
_TYPES = {"local": "stdio", "remote": "http", "streamable-http": "http", "streamablehttp": "http"}
_MILLISECONDS = 1_000  # a timeout of this size in a JSON file: other programs count them


@dataclasses.dataclass(frozen=True, slots=True)
class ServerSettings:
    """Fields of an entry as a file has them; `type` follows from `command` or `url` if it is missing."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    cwd: str = ""
    type: Literal["stdio", "http", "sse", ""] = ""
    url: str = ""
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    oauth: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    enabled: bool = True
    tools: tuple[str, ...] | None = None
    always_load: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 60.0
    startup_timeout: float = 20.0


@dataclasses.dataclass(frozen=True, slots=True)
class OAuthSettings:
    """Table `oauth` of an entry: a client that was registered by hand, scopes, and the port of the redirect."""

    client_id: str = ""
    scopes: tuple[str, ...] = ()
    port: int = 0


class ServerNeed(Struct, frozen=True):
    """A secret variable, host or path that a project's server names and that the user has to allow.

    `key` is the answer's name in the record of the workspace: variables are bound to the content of the entry. Without
    one that is `required` the server does not start.
    """

    server: str
    kind: NeedKind
    value: str
    key: str
    required: bool = False

    @property
    def sentence(self) -> str:
        verb = {"variable": "get the variable", "host": "reach the host", "path": "change files in"}[self.kind]
        return f"{one_line(self.server, LONGEST_NAME)} wants to {verb} {one_line(self.value, 120)}"


class ServerEntry(Struct, frozen=True):
    """An entry of a file; `why_not` is a sentence on why it does not start, empty if it may.

    `variables` are the names of those that it expands; `needs` are not answered yet.
    """

    server: McpServer
    why_not: str = ""
    variables: tuple[str, ...] = ()
    needs: tuple[ServerNeed, ...] = ()


class ServerList(Struct, frozen=True):
    """Entries of all files, including those that do not start; `problems` are sentences on broken files."""

    entries: tuple[ServerEntry, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[McpServer, ...]:
        """Return the servers that may start; those with `enabled = false` are among them."""
        return tuple(e.server for e in self.entries if not e.why_not)

    @property
    def needs(self) -> tuple[ServerNeed, ...]:
        """Return what the user has not answered yet, each once."""
        return tuple({need.key: need for entry in self.entries for need in entry.needs}.values())


class Surroundings(Struct, frozen=True):
    """The workspace, the variables of its session, and the answers of the user to needs, by their keys."""

    workspace: Path
    env: Mapping[str, str]
    answers: Mapping[str, bool] = {}


class _EntrySource(Struct, frozen=True):
    """A file with entries; `label` is its path as people write it, `prefix` the table in it."""

    path: Path
    label: str
    prefix: str
    origin: Origin


def user_file() -> Path:
    return resources.config_home() / "config.toml"


def collect(
    user: Mapping[str, Any], files: Mapping[str, bytes], around: Surroundings, *, untrusted: str = ""
) -> ServerList:
    """Merge the entries of the user's configuration and of the project's `files`, by name.

    `untrusted` is the reason why no entry of the project starts, empty if the project is trusted.
    """
    source = _EntrySource(user_file(), str(user_file()), SERVERS, "user")
    entries = [_read_entry(name, table, source, around) for name, table in user.items()]
    problems: list[str] = []
    for name in sorted(files, key=lambda name: name.endswith(".json")):  # sakti's own file first
        try:
            tables = _read_tables(name, files[name])
        except ConfigError as e:
            problems.append(e.message)
            continue
        prefix = "mcpServers" if name.endswith(".json") else SERVERS
        source = _EntrySource(around.workspace / name, name, prefix, "project")
        project = [_read_entry(key, table, source, around) for key, table in list(tables.items())[:MOST_ENTRIES]]
        if len(tables) > MOST_ENTRIES:
            problems.append(f"{name}: only {MOST_ENTRIES} of {len(tables)} servers are read.")
        entries += [replace(e, why_not=untrusted or e.why_not) for e in project]
    return ServerList(tuple(_settle_names(entries)), tuple(problems))


def _settle_names(entries: list[ServerEntry]) -> Iterator[ServerEntry]:
    """Yield the entries; those behind one of the same name, and behind the limit, do not start."""
    first: dict[str, ServerEntry] = {}
    number = 0
    for entry in entries:
        earlier = first.setdefault(entry.server.name, entry)
        if earlier is not entry:
            yield replace(entry, why_not=f"shadowed by the entry in {earlier.server.source}.", needs=())
            continue
        number += not entry.why_not
        is_over = not entry.why_not and number > MOST
        yield replace(entry, why_not=f"at most {MOST} servers start.", needs=()) if is_over else entry


def _read_tables(name: str, data: bytes) -> Mapping[str, Any]:
    """Return the tables of a project's file by their names. Raises `ConfigError`."""
    if not name.endswith(".json"):
        tables: Any = parse(data, Path(name)).get(SERVERS, {})
        where = f"{name}: {SERVERS}"
    else:
        try:
            document: Any = json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError) as e:
            raise ConfigError(f"{name} cannot be read: {one_line(str(e), 120)}.") from e
        tables = cast("dict[str, Any]", document).get("mcpServers") if isinstance(document, dict) else None
        where = f"{name}: mcpServers"
    if not isinstance(tables, dict):
        raise ConfigError(f"{where} must be a table with a table for each server.")
    return cast("dict[str, Any]", tables)


# --- one entry --------------------------------------------------------------------------------------------------------


def _read_entry(name: str, table: Any, source: _EntrySource, around: Surroundings) -> ServerEntry:
    nothing = McpServer(one_line(name, LONGEST_NAME), source.path, source.origin)
    label = f"{source.prefix}.{one_line(name, LONGEST_NAME)}"
    try:
        if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
            raise ConfigError(f"{source.label}: {label} is not a name of at most {LONGEST_NAME} characters.")
        settings = _read_settings(table, label, source.label)
        oauth = _read_oauth(settings.oauth, label, source.label)
        if why := _find_fault(settings):
            raise ConfigError(f"{source.label}: {label}: {why}")
    except ConfigError as e:
        return ServerEntry(nothing, e.message)
    secrets = _list_secrets(name, settings) if source.origin == "project" else ()
    held_back = {need.value for need in secrets if not around.answers.get(need.key)}
    missing = set[str]()
    expander = _Expander({k: v for k, v in around.env.items() if k not in held_back}, missing)
    server = _make_server(nothing, settings, oauth, around.workspace, expander)
    needs = (*secrets, *(_list_places(server) if source.origin == "project" else ()))
    refused = [need for need in needs if not around.answers.get(need.key)]
    if server.origin == "project":
        closed = {need.value for need in refused}
        network = tuple(h for h in server.network if h not in closed)
        server = dataclasses.replace(server, network=network, write=tuple(p for p in server.write if p not in closed))
    why_not = _explain_missing(missing, held_back, around.env) or _find_url_fault(server.url) or _explain_host(refused)
    asks = tuple(need for need in refused if need.key not in around.answers)
    return ServerEntry(server, why_not, tuple(_list_variables(settings)), asks)


def _read_settings(table: Any, label: str, origin: str) -> ServerSettings:
    """Read the fields of an entry; a JSON file may have fields for other programs. Raises `ConfigError`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{origin}: {label} cannot be {shown(table)}; it takes a table.")
    fields = dict(cast("Mapping[str, Any]", table))
    if origin.endswith(".json"):
        fields = _adapt_json(fields)
    kind = fields.get("type")
    if isinstance(kind, str):
        fields["type"] = _TYPES.get(kind.lower(), kind.lower())
    for name in ("env", "headers"):
        values = fields.get(name)
        if isinstance(values, Mapping):
            fields[name] = {k: _as_text(v) for k, v in cast("Mapping[str, Any]", values).items()}
    return table_of(ServerSettings, fields, label, origin)


def _adapt_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that sakti has, from an entry that was written for another program."""
    allowed = {f.name for f in dataclasses.fields(ServerSettings)}
    adapted = {name: value for name, value in fields.items() if name in allowed and value is not None}
    if fields.get("disabled") is True:
        adapted["enabled"] = False
    timeout = adapted.get("timeout")
    if isinstance(timeout, int | float) and timeout >= _MILLISECONDS:
        adapted["timeout"] = min(timeout / 1000, LONGEST_TIMEOUT)
    oauth = adapted.get("oauth")
    if isinstance(oauth, Mapping):
        names = {"clientId": "client_id", "client_id": "client_id", "callbackPort": "port", "port": "port"}
        values = cast("Mapping[str, Any]", oauth)
        adapted["oauth"] = {names.get(k, k): v for k, v in values.items() if k in names or k == "scopes"}
    return adapted


def _as_text(value: Any) -> Any:
    """Return a number or a truth value as the text of a variable."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _read_oauth(table: Mapping[str, Any], label: str, origin: str) -> OAuthSettings:
    fields = dict(table)
    scopes = fields.get("scopes")
    if isinstance(scopes, str):
        fields["scopes"] = scopes.split()
    settings: OAuthSettings = table_of(OAuthSettings, fields, f"{label}.oauth", origin)
    if not 0 <= settings.port < 65_536:
        raise ConfigError(f"{origin}: {label}.oauth.port = {settings.port} is not a port.")
    return settings


def _find_fault(settings: ServerSettings) -> str:
    """Return the error in the settings of an entry, "" if it can start."""
    if settings.type == "sse":
        return NO_SSE
    if settings.command and settings.url:
        return "command and url are both set; keep one of them."
    if not (settings.command or settings.url):
        return "it needs a command, or a url for streamable HTTP."
    if settings.type == "http" and not settings.url:
        return 'type = "http" needs a url.'
    if settings.type == "stdio" and not settings.command:
        return 'type = "stdio" needs a command.'
    if any("\n" in text or "\r" in text for pair in settings.headers.items() for text in pair):
        return "a header has several lines."
    if bad := [h for h in settings.network if hosts.read(h) is None]:
        return f"network: {shown(bad[0])} is not a host; write it as in example.org or example.org:8443."
    for name in ("timeout", "startup_timeout"):
        if not 0 < (seconds := getattr(settings, name)) <= LONGEST_TIMEOUT:
            return f"{name} = {seconds:g} must be above 0 and at most {LONGEST_TIMEOUT:g} seconds."
    return ""


class _Expander(Struct, frozen=True):
    """Replaces `${NAME}` and `${NAME:-default}`; names without a value are added to `missing`."""

    env: Mapping[str, str]
    missing: set[str]

    def expand(self, text: str) -> str:
        return _VARIABLE.sub(self._value, text)

    def _value(self, match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = self.env.get(name)
        if default is not None:
            return value or default
        if value is None:
            self.missing.add(name)
        return value or ""


def _make_server(
    nothing: McpServer, settings: ServerSettings, oauth: OAuthSettings, workspace: Path, expander: _Expander
) -> McpServer:
    expand = expander.expand
    return dataclasses.replace(
        nothing,
        command=expand(settings.command),
        args=tuple(map(expand, settings.args)),
        env={name: expand(value) for name, value in settings.env.items()},
        cwd=str(workspace / Path(settings.cwd).expanduser()) if settings.cwd else "",
        url=expand(settings.url),
        headers={name: expand(value) for name, value in settings.headers.items()},
        client_id=oauth.client_id,
        scopes=oauth.scopes,
        redirect_port=oauth.port,
        enabled=settings.enabled,
        tools=settings.tools,
        always_load=settings.always_load,
        network=tuple(str(hosts.read(host) or host) for host in settings.network),
        write=tuple(os.path.realpath(workspace / Path(path).expanduser()) for path in settings.write),
        timeout=settings.timeout,
        startup_timeout=settings.startup_timeout,
    )


def _explain_missing(missing: set[str], held_back: set[str], env: Mapping[str, str]) -> str:
    """Return why a server cannot start without its variables, "" if it has all."""
    for name in sorted(missing):
        if name in held_back and name in env:
            return f"it needs the variable {name}, which you have not allowed: `sakti trust` asks."
        return f"the variable {name} is not set."
    return ""


def _explain_host(refused: Iterable[ServerNeed]) -> str:
    """Return why a server may not be connected to, "" if it may."""
    host = next((one_line(need.value, 120) for need in refused if need.required), "")
    return f"it is at {host}, which you have not allowed: `sakti trust` asks." if host else ""


def _find_url_fault(url: str) -> str:
    """Return why nothing can be reached at an address, "" if it may be, also without an address."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "its url cannot be read."
    if url and not is_complete:
        return "its url must begin with http:// or https:// and name a host."
    return "its url must not hold a user name; use headers." if parts.username is not None else ""


# --- what a project's server needs ------------------------------------------------------------------------------------


def _list_variables(settings: ServerSettings) -> list[str]:
    """Return the variables that an entry expands."""
    texts = (settings.command, *settings.args, settings.url, *settings.env.values(), *settings.headers.values())
    return list(dict.fromkeys(m[1] for text in texts for m in _VARIABLE.finditer(text)))


def _list_secrets(name: str, settings: ServerSettings) -> tuple[ServerNeed, ...]:
    """Return the variables that an entry expands and whose names look like those of secrets."""
    entry = json.dumps(dataclasses.asdict(settings), sort_keys=True, default=str)
    digest = hashlib.sha256(entry.encode("utf-8", "replace")).hexdigest()[:16]
    variables = filter(is_secret_name, _list_variables(settings))
    return tuple(ServerNeed(name, "variable", variable, f"variable {variable} {digest}") for variable in variables)


def _list_places(server: McpServer) -> Iterator[ServerNeed]:
    """Yield the hosts and paths that a server needs, each once."""
    host = _url_host(server.url) if server.url else ""
    for name in dict.fromkeys((*([host] if host else ()), *server.network)):
        yield ServerNeed(server.name, "host", name, f"host {name}", required=name == host)
    for path in dict.fromkeys(server.write):
        yield ServerNeed(server.name, "path", path, f"path {path}")


def _url_host(url: str) -> str:
    """Return the host of an address, with an unusual port; "" without one."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port not in (None, *hosts.USUAL_PORTS) else ""
    except ValueError:
        return ""
    name = parts.hostname or ""
    return f"[{name}]{port}" if ":" in name else f"{name}{port}"
