"""Show calls of MCP servers' tools: `mcp git · git_log  repo_path=.`."""

from __future__ import annotations

import re

from msgspec.structs import replace

from sakti.core.text import one_line
from sakti.core.types import Json, ToolCallPart

PREFIX = "mcp__"
CALL = "call_tool"  # the tool that runs tools found by search


def display_name(tool: str) -> str:
    """Return the name that people read: of a server's tool `mcp SERVER · TOOL`."""
    if not tool.startswith(PREFIX) or "__" not in tool[len(PREFIX) :]:
        return tool
    server, _, name = tool[len(PREFIX) :].partition("__")
    return f"mcp {server} · {name}"


def unwrap(call: ToolCallPart) -> ToolCallPart:
    """Return the call that `call_tool` runs; any other call unchanged."""
    arguments = call.arguments
    if call.name != CALL or arguments is None:
        return call
    name, inner = arguments.get("name"), arguments.get("arguments")
    return replace(call, name=name, arguments=inner) if isinstance(name, str) and isinstance(inner, dict) else call


def list_arguments(arguments: Json) -> str:
    """Return arguments in one line, as `repo_path=., max_count=3`."""
    return one_line(", ".join(f"{name}={value}" for name, value in arguments.items()), 300)


def mcp_pattern(name: str) -> str:
    """Return the pattern for a name in agent files: `mcp__SERVER` means all tools of a server."""
    if not name.startswith(PREFIX) or "*" in name:
        return name
    server, _, tool = name[len(PREFIX) :].partition("__")
    return f"{PREFIX}{clean_name(server)}__{clean_name(tool) if tool else '*'}"


def clean_name(text: str) -> str:
    """Return the name of a server or of its tool with the signs that tool names may have."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", text) or "_"
