"""Show calls of MCP servers' tools: `mcp git · git_log  repo_path=.`."""

from __future__ import annotations

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
