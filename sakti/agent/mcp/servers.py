"""Configured MCP servers, their state for lists and panels, and the tools that they list.

Tool names are made safe, descriptions are limited, and references in schemas are resolved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from sakti.core import json_schema
from sakti.core.errors import SaktiError
from sakti.core.text import clean_surrogates, sanitize_text, to_one_line
from sakti.core.tokens import estimate_tokens
from sakti.core.types import PREFIX, clean_name

Origin = Literal["user", "project"]
StateName = Literal["starting", "ready", "needs login", "failed", "disabled"]


class LoginNeededError(SaktiError):
    """The server wants the user to log in."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """One configured server: `command` for a process, `url` for streamable HTTP. Variables are expanded."""

    name: str
    source: Path  # the file that names it
    origin: Origin
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    client_id: str = ""
    scopes: tuple[str, ...] = ()
    redirect_port: int = 0  # 0: any free port
    enabled: bool = True
    tools: tuple[str, ...] | None = None  # None: all
    always_load: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    timeout: float = 60.0
    startup_timeout: float = 20.0

    @property
    def login_name(self) -> str:
        """Name of its login in the keyring, valid only for this name and address."""
        return f"mcp {self.name} {self.url}"


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool that a server offers."""

    name: str  # as the model calls it: mcp__server__tool
    server: str
    original_name: str
    description: str
    schema: dict[str, object]
    is_read_only: bool = False
    is_destructive: bool = False
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class ServerState:
    """A server at one moment."""

    server: McpServer
    state: StateName
    version: str = ""
    instructions: str = ""
    tools: tuple[McpTool, ...] = ()
    error: str = ""


LONGEST_NAME = 64
LONGEST_TEXT = 2_000  # bytes of a description, or of a server's instructions
LARGEST_SCHEMA = 64_000  # characters after inlining
DEEPEST_REFERENCE = 8  # nesting depth of references
MOST_TOOLS = 1_000  # of one server
_ONLY_REFERRED_TO = ("$defs", "definitions", "$schema", "$id")


class ListedTool(Protocol):
    """Tool as the SDK lists it."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str | None: ...
    @property
    def input_schema(self) -> dict[str, Any]: ...
    @property
    def annotations(self) -> Any: ...


class UnusableTool(ValueError):
    """A tool that cannot be offered; the text says why."""


class ToolNames:
    """Names of all servers' tools; each stays the same for the life of the session."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._taken = set[str]()

    def name(self, server: str, tool: str) -> str:
        """Return the name by which a model calls a tool."""
        if (server, tool) not in self._names:
            clean = PREFIX + clean_name(server) + "__" + clean_name(tool)
            if len(clean) > LONGEST_NAME:
                clean = f"{clean[: LONGEST_NAME - 9]}_{compute_digest(clean)[:8]}"
            name, number = clean, 1
            while name in self._taken:
                number += 1
                name = f"{clean[: LONGEST_NAME - len(str(number)) - 1]}_{number}"
            self._taken.add(name)
            self._names[server, tool] = name
        return self._names[server, tool]


def compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def clean_text(text: str) -> str:
    """Return a server's text without control characters, at most `LONGEST_TEXT` bytes."""
    data = clean_surrogates(sanitize_text(text)).strip().encode()
    cut = data[:LONGEST_TEXT].decode("utf-8", "ignore")
    return cut if len(data) <= LONGEST_TEXT else f"{cut} …"


def make_tools(
    server: McpServer, listed: Iterable[ListedTool], names: ToolNames
) -> tuple[tuple[McpTool, ...], list[str]]:
    """Return the tools that a server offers, and the reasons for omitted ones."""
    tools: dict[str, McpTool] = {}
    unusable: list[str] = []
    for tool in listed:
        if tool.name in tools or (server.tools is not None and tool.name not in server.tools):
            continue
        try:
            tools[tool.name] = _make_tool(server, tool, names)
        except (UnusableTool, json_schema.UnusableSchema) as e:
            unusable.append(f"{to_one_line(tool.name, 60)} {e}")
    return tuple(tools.values()), unusable


def _make_tool(server: McpServer, tool: ListedTool, names: ToolNames) -> McpTool:
    inlined = inline_references(tool.input_schema)
    if inlined.get("type", "object") != "object":
        raise UnusableTool("takes no object of arguments")
    schema: dict[str, Any] = {"type": "object", "properties": {}, **inlined}
    text = json.dumps(schema, ensure_ascii=False)
    if len(text) > LARGEST_SCHEMA:
        raise UnusableTool(f"has a schema of more than {LARGEST_SCHEMA:,} characters")
    json_schema.check_schema(schema)
    description = clean_text(tool.description or "")
    hints = tool.annotations
    reads, destroys = (getattr(hints, name, None) is True for name in ("read_only_hint", "destructive_hint"))
    return McpTool(
        names.name(server.name, tool.name),
        server.name,
        tool.name,
        description,
        schema,
        # a tool that destroys does not only read, whatever else it claims
        is_read_only=server.origin == "user" and reads and not destroys,
        is_destructive=destroys,
        tokens=estimate_tokens(f"{description}{text}"),
    )


def inline_references(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with its local references replaced by their targets, texts cleaned.

    A reference inside of itself becomes "anything" at `DEEPEST_REFERENCE`. Raises `UnusableTool`.
    """
    budget = [LARGEST_SCHEMA]

    def copy(value: Any, depth: int) -> Any:
        budget[0] -= 1
        if budget[0] < 0:
            raise UnusableTool("has too large a schema")
        if isinstance(value, str):
            return clean_surrogates(sanitize_text(value))
        if isinstance(value, list):
            return [copy(item, depth) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        table = cast("dict[str, Any]", value)
        reference = table.get("$ref")
        if not isinstance(reference, str):
            return {k: copy(v, depth) for k, v in table.items()}
        rest = {k: copy(v, depth) for k, v in table.items() if k != "$ref"}
        if depth >= DEEPEST_REFERENCE:
            return rest
        target = copy(_resolve(schema, reference), depth + 1)
        return {**cast("dict[str, Any]", target), **rest} if isinstance(target, dict) else target

    try:
        result = copy({k: v for k, v in schema.items() if k not in _ONLY_REFERRED_TO}, 0)
    except RecursionError as e:
        raise UnusableTool("has a schema that is nested too deep") from e
    return cast("dict[str, Any]", result)


def drop_patterns(schema: Any) -> Any:
    """Return a schema without its patterns, whose check may never end; the server checks them."""
    if isinstance(schema, list):
        return [drop_patterns(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    table = cast("dict[str, Any]", schema)
    dropped = {"patternProperties", "additionalProperties"} if "patternProperties" in table else set[str]()
    if isinstance(table.get("pattern"), str):
        dropped.add("pattern")
    return {k: drop_patterns(v) for k, v in table.items() if k not in dropped}


def _resolve(schema: Mapping[str, Any], reference: str) -> Any:
    """Return what a local reference names. Raises `UnusableTool`."""
    part: Any = schema
    if not reference.startswith("#"):
        raise UnusableTool(f"refers to {to_one_line(reference, 60)}, which is not in its schema")
    for piece in reference[1:].split("/")[1:]:
        name = piece.replace("~1", "/").replace("~0", "~")
        if not isinstance(part, dict) or name not in part:
            raise UnusableTool(f"refers to {to_one_line(reference, 60)}, which is not in its schema")
        part = cast("dict[str, Any]", part)[name]
    return part


def format_tool(tool: McpTool) -> str:
    """Return description and schema as text, whose hash approvals store."""
    return f"{tool.description}\n\n{json.dumps(tool.schema, indent=1, sort_keys=True, ensure_ascii=False)}\n"


def compute_fingerprint(tool: McpTool) -> str:
    """Return the hash of a tool's description and schema."""
    return compute_digest(format_tool(tool))[:12]
