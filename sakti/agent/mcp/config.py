"""Read MCP server entries of the user and the project, limited to what the user allowed.

A faulty entry does not affect the others: it is listed with the reason. If two entries have the same name, the first
applies: the user's, so that a project cannot replace a server that the user trusts.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from msgspec import Struct, field, structs
from msgspec.structs import replace

from sakti.agent.mcp.servers import McpServer, Origin
from sakti.agent.project.hooks import settings as hook_settings
from sakti.agent.sandbox.environment import is_secret_name
from sakti.core import network as core_network
from sakti.core import resources
from sakti.core.config.conversion import convert_table
from sakti.core.config.reading import SERVERS, parse
from sakti.core.errors import ConfigError
from sakti.core.lazy import lazy_pattern
from sakti.core.text import show_value, to_one_line

MOST = 32  # servers that start
MOST_ENTRIES = 200  # of one file that are read
LONGEST_NAME = 64
LONGEST_TIMEOUT = 600.0  # seconds
SHADOWED = "shadowed"
NO_SSE = "the transport sse is not supported; use streamable HTTP."

NeedKind: TypeAlias = Literal["variable", "host", "path"]
_VARIABLE = lazy_pattern(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
# Names used by programs for the two transports.
_TYPES = {"local": "stdio", "remote": "http", "streamable-http": "http", "streamablehttp": "http"}
_OAUTH = {"clientId": "client_id", "callbackPort": "port", **{n: n for n in ("client_id", "port", "scopes")}}
_MILLISECONDS = 1_000  # a timeout of this size in a JSON file: other programs use milliseconds


class ServerSettings(Struct, frozen=True):
    """Fields of an entry as a file has them; `type` follows from `command` or `url` if it is missing."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    type: Literal["stdio", "http", "sse", ""] = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    oauth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    enabled: bool = True
    tools: tuple[str, ...] | None = None
    always_load: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 60.0
    startup_timeout: float = 20.0


class OAuthSettings(Struct, frozen=True):
    """Table `oauth` of an entry: a client registered by hand, scopes, and the port of the redirect."""

    client_id: str = ""
    scopes: tuple[str, ...] = ()
    port: int = 0


class ServerNeed(Struct, frozen=True):
    """Secret variable, host or path named by a project's server, which the user has to allow.

    `key` is the answer's name in the record of the workspace; for variables it depends on the content of the entry. The
    server does not start until all `required` ones are allowed.
    """

    server: str
    kind: NeedKind
    value: str
    key: str
    required: bool = False

    @property
    def sentence(self) -> str:
        verb = {"variable": "get the variable", "host": "reach the host", "path": "change files in"}[self.kind]
        return f"{to_one_line(self.server, LONGEST_NAME)} wants to {verb} {to_one_line(self.value, 120)}"


class ServerEntry(Struct, frozen=True):
    """An entry of a file; `why_not` is a sentence on why it does not start, empty if it may.

    `written` is its command or address with unexpanded `variables`; `needs` are not answered yet.
    """

    server: McpServer
    why_not: str = ""
    written: str = ""
    variables: tuple[str, ...] = ()
    needs: tuple[ServerNeed, ...] = ()


class ServerList(Struct, frozen=True):
    """Entries of all files, including those that do not start; `problems` are sentences on broken files."""

    entries: tuple[ServerEntry, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def servers(self) -> tuple[McpServer, ...]:
        """Return the servers that may start, including those with `enabled = false`."""
        return tuple(e.server for e in self.entries if not e.why_not)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return a sentence for each broken file, and for each server that does not start."""
        broken = (e for e in self.entries if e.why_not and not e.why_not.startswith(SHADOWED))
        return (*self.problems, *(f"{e.server.name} does not start: {e.why_not}" for e in broken))

    @property
    def needs(self) -> tuple[ServerNeed, ...]:
        """Return the distinct needs that the user has not answered yet."""
        return tuple({need.key: need for entry in self.entries for need in entry.needs}.values())


class ServerContext(Struct, frozen=True):
    """The workspace, the session's variables, and the user's answers to needs by key."""

    workspace: Path
    env: Mapping[str, str]
    answers: Mapping[str, bool] = {}


class _EntrySource(Struct, frozen=True):
    """A file with entries; `label` is its path as people write it, `prefix` the table in it."""

    path: Path
    label: str
    prefix: str
    origin: Origin


def get_user_file() -> Path:
    return resources.config_home() / "config.toml"


def collect(
    user: Mapping[str, Any], files: Mapping[str, bytes], context: ServerContext, *, untrusted: str = ""
) -> ServerList:
    """Merge the entries of the user's configuration and of the project's `files`, by name.

    `untrusted` is the reason why no entry of the project starts, empty if the project is trusted.
    """
    source = _EntrySource(get_user_file(), str(get_user_file()), SERVERS, "user")
    entries = [_read_entry(name, table, source, context) for name, table in user.items()]
    problems: list[str] = []
    for name in sorted(files, key=lambda name: name.endswith(".json")):  # sakti's own file first
        try:
            tables = _read_tables(name, files[name])
        except ConfigError as e:
            problems.append(e.message)
            continue
        prefix = "mcpServers" if name.endswith(".json") else SERVERS
        source = _EntrySource(context.workspace / name, name, prefix, "project")
        project = [_read_entry(key, table, source, context) for key, table in list(tables.items())[:MOST_ENTRIES]]
        if len(tables) > MOST_ENTRIES:
            problems.append(f"{name}: only {MOST_ENTRIES} of {len(tables)} servers are read.")
        entries += [replace(e, why_not=untrusted or e.why_not) for e in project]
    return ServerList(tuple(_mark_shadowed(entries)), tuple(problems))


def list_scripts(workspace: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Return the workspace files run by a project's servers, which are trusted together with them."""
    scripts: dict[Path, None] = {}
    for entry in collect({}, files, ServerContext(workspace, {})).entries:
        hook = hook_settings.Hook("", entry.server.command, "", args=entry.server.args)
        scripts |= dict.fromkeys(hook_settings.run_by(hook, workspace) if entry.server.command else ())
    return list(scripts)


def _mark_shadowed(entries: list[ServerEntry]) -> Iterator[ServerEntry]:
    """Yield the entries; later ones of the same name, and those beyond the limit, do not start."""
    first: dict[str, ServerEntry] = {}
    number = 0
    for entry in entries:
        earlier = first.setdefault(entry.server.name, entry)
        if earlier is not entry:
            yield replace(entry, why_not=f"{SHADOWED} by the entry in {earlier.server.source}.", needs=())
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
            raise ConfigError(f"{name} cannot be read: {to_one_line(str(e), 120)}.") from e
        tables = cast("dict[str, Any]", document).get("mcpServers") if isinstance(document, dict) else None
        where = f"{name}: mcpServers"
    if not isinstance(tables, dict):
        raise ConfigError(f"{where} must be a table with a table for each server.")
    return cast("dict[str, Any]", tables)


# --- one entry --------------------------------------------------------------------------------------------------------


def _read_entry(name: str, table: Any, source: _EntrySource, context: ServerContext) -> ServerEntry:
    named = McpServer(to_one_line(name, LONGEST_NAME), source.path, source.origin)
    label = f"{source.prefix}.{named.name}"
    try:
        settings, oauth = _parse_entry(name, table, label, source.label)
    except ConfigError as e:
        return ServerEntry(named, e.message.removeprefix(f"{source.label}: ").removeprefix(f"{label}: "))
    if source.origin == "project":
        return _limit_to_answers(named, settings, oauth, context)
    server, missing = _expand(named, settings, oauth, context.workspace, context.env)
    why_not = _explain_missing(missing, ()) or _find_url_fault(server.url)
    return ServerEntry(server, why_not, _format_target(settings), tuple(_list_variables(settings)))


def _format_target(settings: ServerSettings) -> str:
    return settings.url or shlex.join((settings.command, *settings.args))


def check_entry(name: str, table: Mapping[str, Any], origin: str) -> None:
    """Raise `ConfigError` if an entry could not be used with any variables."""
    label = f"{SERVERS}.{to_one_line(name, LONGEST_NAME)}"
    settings, _ = _parse_entry(name, table, label, origin)
    if not _VARIABLE.search(settings.url) and (fault := _find_url_fault(settings.url)):
        raise ConfigError(f"{origin}: {label}: {fault}")


def _parse_entry(name: str, table: Any, label: str, origin: str) -> tuple[ServerSettings, OAuthSettings]:
    """Read the fields of an entry. Raises `ConfigError`."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ConfigError(f"{origin}: {label} is not a name of at most {LONGEST_NAME} characters.")
    settings = _read_settings(table, label, origin)
    oauth = _read_oauth(settings.oauth, label, origin)
    if fault := _find_fault(settings):
        raise ConfigError(f"{origin}: {label}: {fault}")
    return settings, oauth


def _limit_to_answers(
    named: McpServer, settings: ServerSettings, oauth: OAuthSettings, context: ServerContext
) -> ServerEntry:
    """Return the entry of a project's server, limited to what the user allowed."""
    secrets = _list_secrets(named.name, settings)
    closed = {need.value for need in _list_refused(secrets, context)}
    env = {name: value for name, value in context.env.items() if name not in closed}
    server, missing = _expand(named, settings, oauth, context.workspace, env)
    refused = _list_refused((*secrets, *_list_places(server)), context)
    fault = _find_url_fault(server.url) or _explain_host(refused)
    why_not = _explain_missing(missing, closed & context.env.keys()) or fault
    variables = tuple(_list_variables(settings))
    return ServerEntry(
        _remove_refused(server, refused),
        why_not,
        _format_target(settings),
        variables,
        _select_unanswered(refused, context),
    )


def _select_unanswered(needs: Iterable[ServerNeed], context: ServerContext) -> tuple[ServerNeed, ...]:
    """Return the needs to ask about; nothing is asked about variables that are not set."""
    askable = (need for need in needs if need.kind != "variable" or need.value in context.env)
    return tuple(need for need in askable if need.key not in context.answers)


def _list_refused(needs: Iterable[ServerNeed], context: ServerContext) -> list[ServerNeed]:
    """Return the needs that the user refused or has not answered yet."""
    return [need for need in needs if not context.answers.get(need.key)]


def _remove_refused(server: McpServer, refused: Iterable[ServerNeed]) -> McpServer:
    """Return a server without the hosts and paths of some needs."""
    values = {need.value for need in refused}
    network = tuple(host for host in server.network if host not in values)
    return dataclasses.replace(server, network=network, write=tuple(p for p in server.write if p not in values))


def _read_settings(table: Any, label: str, origin: str) -> ServerSettings:
    """Read the fields of an entry; a JSON file may have fields for other programs. Raises `ConfigError`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"{origin}: {label} must be a table with a command or a url.")
    fields = dict(cast("Mapping[str, Any]", table))
    if origin.endswith(".json"):
        fields = adapt_json(fields)
    kind = fields.get("type")
    if isinstance(kind, str):
        fields["type"] = _TYPES.get(kind.lower(), kind.lower())
    for name in ("env", "headers"):
        values = fields.get(name)
        if isinstance(values, Mapping):
            fields[name] = {k: _to_text(v) for k, v in cast("Mapping[str, Any]", values).items()}
    return convert_table(ServerSettings, fields, label, origin)


def adapt_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields known to sakti from an entry written for another program."""
    adapted = {name: fields[name] for name in ServerSettings.__struct_fields__ if fields.get(name) is not None}
    if fields.get("disabled") is True:
        adapted["enabled"] = False
    timeout = adapted.get("timeout")
    if isinstance(timeout, int | float) and timeout >= _MILLISECONDS:
        adapted["timeout"] = min(timeout / 1000, LONGEST_TIMEOUT)
    if isinstance(oauth := adapted.get("oauth"), Mapping):
        adapted["oauth"] = _adapt_oauth(cast("Mapping[str, Any]", oauth))
    return adapted


def _adapt_oauth(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_OAUTH[name]: value for name, value in fields.items() if name in _OAUTH}


def _to_text(value: Any) -> Any:
    """Return a number or a truth value as the text of a variable."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _read_oauth(table: Mapping[str, Any], label: str, origin: str) -> OAuthSettings:
    fields = dict(table)
    scopes = fields.get("scopes")
    if isinstance(scopes, str):
        fields["scopes"] = scopes.split()
    settings: OAuthSettings = convert_table(OAuthSettings, fields, f"{label}.oauth", origin)
    if not 0 <= settings.port < 65_536:
        raise ConfigError(f"{origin}: {label}.oauth.port = {settings.port} is not a port.")
    return settings


def _find_fault(settings: ServerSettings) -> str:
    """Return the error in the settings of an entry, "" if it can start."""
    command, url = bool(settings.command), bool(settings.url)
    faults = {
        NO_SSE: settings.type == "sse",
        "command and url are both set; keep one of them.": command and url,
        "it needs a command, or a url for streamable HTTP.": not (command or url),
        'type = "http" needs a url.': settings.type == "http" and not url,
        'type = "stdio" needs a command.': settings.type == "stdio" and not command,
        "a header has several lines.": any(map(_has_lines, (*settings.headers, *settings.headers.values()))),
    }
    return next((fault for fault, applies in faults.items() if applies), "") or _find_wrong_value(settings)


def _has_lines(text: str) -> bool:
    return "\n" in text or "\r" in text


def _find_wrong_value(settings: ServerSettings) -> str:
    for host in settings.network:
        if core_network.parse_host(host) is None:
            return f"network: {show_value(host)} is not a host; write it as in example.org or example.org:8443."
    for name in ("timeout", "startup_timeout"):
        if not 0 < (seconds := getattr(settings, name)) <= LONGEST_TIMEOUT:
            return f"{name} = {seconds:g} must be above 0 and at most {LONGEST_TIMEOUT:g} seconds."
    return ""


class _Expander(Struct, frozen=True):
    """Replaces `${NAME}` and `${NAME:-default}`; names without a value are added to `missing`."""

    env: Mapping[str, str]
    missing: set[str]

    def expand(self, text: str) -> str:
        return _VARIABLE.sub(self._replace_variable, text)

    def _replace_variable(self, match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        value = self.env.get(name)
        if default is not None:
            return value or default
        if value is None:
            self.missing.add(name)
        return value or ""


def _expand(
    named: McpServer, settings: ServerSettings, oauth: OAuthSettings, workspace: Path, env: Mapping[str, str]
) -> tuple[McpServer, set[str]]:
    """Return the server of an entry, and the variables without a value that it names."""
    missing = set[str]()
    expand = _Expander(env, missing).expand
    server = dataclasses.replace(
        named,
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
        network=tuple(str(core_network.parse_host(host) or host) for host in settings.network),
        write=tuple(os.path.realpath(workspace / Path(path).expanduser()) for path in settings.write),
        timeout=settings.timeout,
        startup_timeout=settings.startup_timeout,
    )
    return server, missing


def _explain_missing(missing: set[str], closed: Collection[str]) -> str:
    """Return why a server cannot start without its variables, "" if it has all."""
    for name in sorted(missing):
        if name in closed:
            return f"it needs the variable {name}, which you have not allowed: `sakti trust --allow {name}` does."
        return f"the variable {name} is not set."
    return ""


def _explain_host(refused: Iterable[ServerNeed]) -> str:
    """Return why a server may not be connected to, "" if it may."""
    host = next((to_one_line(need.value, 120) for need in refused if need.required), "")
    return f"it is at {host}, which you have not allowed: `sakti trust --allow {host}` does." if host else ""


def _find_url_fault(url: str) -> str:
    """Return the fault of an address, "" for a valid one or none."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "its url cannot be read."
    if url and not is_complete:
        return "its url must begin with http:// or https:// and name a host."
    return "its url must not contain a user name; use headers." if parts.username is not None else ""


# --- what a project's server needs ------------------------------------------------------------------------------------


def _list_variables(settings: ServerSettings) -> list[str]:
    """Return the variables that an entry expands."""
    texts = (settings.command, *settings.args, settings.url, *settings.env.values(), *settings.headers.values())
    return list(dict.fromkeys(m[1] for text in texts for m in _VARIABLE.finditer(text)))


def _list_secrets(name: str, settings: ServerSettings) -> tuple[ServerNeed, ...]:
    """Return the variables that an entry expands and whose names look like those of secrets."""
    entry = json.dumps(structs.asdict(settings), sort_keys=True, default=str)
    digest = hashlib.sha256(entry.encode("utf-8", "replace")).hexdigest()[:16]
    variables = filter(is_secret_name, _list_variables(settings))
    return tuple(ServerNeed(name, "variable", variable, f"variable {variable} {digest}") for variable in variables)


def _list_places(server: McpServer) -> Iterator[ServerNeed]:
    """Yield the hosts and paths that a server needs, each once."""
    host = _parse_url_host(server.url) if server.url else ""
    for name in dict.fromkeys((*([host] if host else ()), *server.network)):
        yield ServerNeed(server.name, "host", name, f"host {name}", required=name == host)
    for path in dict.fromkeys(server.write):
        yield ServerNeed(server.name, "path", path, f"path {path}")


def _parse_url_host(url: str) -> str:
    """Return the host of an address, with an unusual port; "" without one."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port not in (None, *core_network.USUAL_PORTS) else ""
    except ValueError:
        return ""
    name = parts.hostname or ""
    return f"[{name}]{port}" if ":" in name else f"{name}{port}"
