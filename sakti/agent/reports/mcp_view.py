"""Describe MCP servers as configured and as they run, for the shell, both chats and `sakti doctor`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sakti.agent.mcp import config as mcp_config
from sakti.agent.mcp.config import ServerEntry, ServerList, ServerNeed
from sakti.agent.mcp.servers import McpServer, ServerState
from sakti.agent.project import trust
from sakti.agent.project.files import ProjectFiles, select_server_files
from sakti.core.config import mask_value
from sakti.core.text import count_k, display_path, format_count, to_one_line
from sakti.store import secrets

NO_SERVERS = "No MCP servers: `sakti mcp add NAME -- COMMAND` adds one."
_STATES = {"new": "not trusted", "changed": "changed since it was trusted"}
_MARKS = {"ready": "✓", "failed": "✗", "needs login": "✗"}


def load_all(workspace: Path, user: Mapping[str, Any], env: Mapping[str, str]) -> ServerList:
    """Return the entries of all files, those of a project that is not trusted included."""
    return load_reviewed(trust.review(workspace), user, env)


def load_reviewed(review: trust.TrustReview, user: Mapping[str, Any], env: Mapping[str, str]) -> ServerList:
    """Return the entries of the user and of a workspace's reviewed files."""
    root = review.project.workspace
    context = mcp_config.ServerContext(root, env, trust.read_answers(root))
    why = "" if review.holds else f"{_STATES[review.state]}, so it does not start. `sakti trust` shows and trusts it."
    return mcp_config.collect(user, select_server_files(review.project.files), context, untrusted=why)


def list_needs(review: trust.TrustReview, env: Mapping[str, str]) -> tuple[ServerNeed, ...]:
    """Return all that servers of a workspace's reviewed files need the user's permission for."""
    context = mcp_config.ServerContext(review.project.workspace, env)
    return mcp_config.collect({}, select_server_files(review.project.files), context).needs


def describe_way(entry: ServerEntry) -> str:
    """Return the command or address of a server as written, secrets masked; "" if it is broken."""
    return to_one_line(secrets.mask_secrets(str(mask_value("url", entry.written))), 200)


def describe_grants(server: McpServer) -> str:
    """Return what a server may reach and change beyond the sandbox of every server; "" without any."""
    grants = [*(f"reaches {host}" for host in server.network), *(f"changes {path}" for path in server.write)]
    return to_one_line(", ".join(grants), 200)


def describe_state(state: ServerState) -> str:
    """Return a running server's state, number of tools, their tokens and its version."""
    tokens = sum(tool.tokens for tool in state.tools)
    tools = f"{format_count(len(state.tools), 'tool')}, {count_k(tokens)} tokens" if state.tools else ""
    return " · ".join(part for part in (state.state, tools, to_one_line(state.version, 80)) if part)


def list_lines(
    listed: ServerList, workspace: Path | None = None, states: Iterable[ServerState] | None = None
) -> list[str]:
    """Return a line for each entry, marked for findings, and one for each broken file.

    `states` are those of the servers of a session.
    """
    running = None if states is None else {state.server.name: state for state in states}
    lines = [_line(entry, running, workspace) for entry in listed.entries]
    return [*lines, *(f"✗ {to_one_line(problem, 300)}" for problem in listed.problems)]


def _line(entry: ServerEntry, running: Mapping[str, ServerState] | None, workspace: Path | None) -> str:
    server = entry.server
    source = display_path(server.source, workspace if server.origin == "project" else None)
    if entry.why_not:
        return f"! {server.name}  {source}: {to_one_line(entry.why_not, 300)}"
    if running is None:
        word = "" if server.enabled else "disabled  "
        return f"✓ {server.name}  {word}{describe_way(entry)}  {source}"
    state = running.get(server.name) or ServerState(server, "starting" if server.enabled else "disabled")
    error = f": {to_one_line(state.error, 200)}" if state.error else ""
    facts = "  ".join(part for part in (describe_state(state) + error, describe_grants(server), source) if part)
    return f"{_MARKS.get(state.state, '!')} {server.name}  {facts}"


def format_tool_lines(state: ServerState) -> list[str]:
    """Return what a running server says about itself, in full, and a line for each of its tools."""
    instructions = state.instructions.splitlines()
    lines = ["Instructions of the server, which the model gets as outside text:", *instructions] if instructions else []
    for tool in state.tools:
        marks = [word for word, applies in (("reads", tool.is_read_only), ("destroys", tool.is_destructive)) if applies]
        facts = " · ".join([format_count(tool.tokens, "token"), *marks])
        lines.append(f"{tool.original_name}  {facts}  {to_one_line(tool.description, 120)}")
    return lines


def to_json(listed: ServerList) -> dict[str, Any]:
    """Return the entries for programs, without values of variables and headers."""
    return {
        "servers": [
            {
                "name": entry.server.name,
                "origin": entry.server.origin,
                "file": str(entry.server.source),
                "way": describe_way(entry),
                "enabled": entry.server.enabled,
                "network": list(entry.server.network),
                "write": list(entry.server.write),
                "problem": entry.why_not or None,
                "needs": [{"kind": need.kind, "value": need.value} for need in entry.needs],
            }
            for entry in listed.entries
        ],
        "problems": list(listed.problems),
    }


def describe_project(project: ProjectFiles) -> list[str]:
    """Return a line for each server that a project's files name, with its variables, and each broken part."""
    context = mcp_config.ServerContext(project.workspace, {})
    listed = mcp_config.collect({}, select_server_files(project.files), context)
    lines: list[str] = []
    for entry in listed.entries:
        needs = [need.value for need in entry.needs if need.kind != "variable" and not need.required]
        wants = f"; wants {to_one_line(', '.join(needs), 120)}" if needs else ""
        gets = f"; uses the variables {to_one_line(', '.join(entry.variables), 120)}" if entry.variables else ""
        name, way = entry.server.name, describe_way(entry)
        lines.append(f"MCP server {name}: {way}{gets}{wants}" if way else f"not used: {entry.why_not}")
    return [*lines, *(f"not used: {problem}" for problem in listed.problems)]
