"""Own all servers of a session: connections, tools for the model, and news about them.

Importing this module imports the SDK: it is imported when a server is configured, in a thread, after the first paint.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types

from sakti.agent.mcp import elicitation, login, messages
from sakti.agent.mcp import servers as mcp_servers
from sakti.agent.mcp import tools as mcp_tools
from sakti.agent.mcp.connection import Connection
from sakti.agent.mcp.place import ServerWorkspace
from sakti.agent.mcp.servers import McpServer, McpTool, ServerState
from sakti.agent.mcp.tools import KnownTools, ServerTool, make_tool
from sakti.agent.mcp.transport import RingFile, ServerProcess, is_confined
from sakti.agent.tools.processes import ProcessTree
from sakti.core import resources
from sakti.core import types as core_types
from sakti.core.errors import ToolError
from sakti.core.events import McpServerChanged, Notice
from sakti.core.text import format_count, to_one_line

if TYPE_CHECKING:
    from sakti.agent.tools.approvals import Approvals
    from sakti.agent.tools.context import ToolContext

log = logging.getLogger(__name__)

AT_ONCE = 8  # servers that start at the same time
LINES_TOKENS = 300  # of all lines in the system prompt; of the news about one server


class McpClients:
    """Owner of a session's servers. `offered` are the tools announced to models, by server."""

    def __init__(self, workspace: ServerWorkspace, servers: Iterable[McpServer]) -> None:
        self._workspace = workspace
        self.names = mcp_servers.ToolNames()
        self.connections: dict[str, Connection] = {}
        self.offered: dict[str, tuple[McpTool, ...]] = {}
        self.approvals: Approvals | None = None  # of the open thread
        self._known: dict[str, KnownTools] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._tools: dict[str, ServerTool] = {}
        self._instructed = set[tuple[str, str]]()
        self.use(servers)

    # --- life -------------------------------------------------------------------------------------------------

    def use(self, servers: Iterable[McpServer]) -> None:
        """Add new servers, in order of their names."""
        for server in sorted(servers, key=lambda s: s.name):
            if server.name not in self.connections:
                self._known[server.name] = KnownTools(server)
                self.connections[server.name] = Connection(server, self)

    def start(self) -> None:
        """Start all enabled servers in the background."""
        for connection in self.connections.values():
            if connection.server.enabled and connection.state.state == "starting":
                connection.start(self._places)

    def states(self) -> list[ServerState]:
        """Return the current state of the servers, by name."""
        return [connection.state for connection in self.connections.values()]

    async def restart(self, name: str, server: McpServer | None = None) -> None:
        """Restart a server, or start a new one; `server` is its current entry."""
        if server is not None:
            self.use([server])
        connection = self.connections[name]
        await connection.close("restart")
        if server is not None and server != connection.server:
            connection.use(server)
            self._known[name] = KnownTools(server)
            self.offered.pop(name, None)  # its tools are created again
        connection.start(self._places)

    async def disable(self, name: str) -> None:
        """End a server for the rest of the session."""
        await self.connections[name].close()

    async def close(self) -> None:
        """End all servers."""
        await asyncio.gather(*(connection.close("closed") for connection in self.connections.values()))

    async def wait(self, names: Iterable[str], seconds: float) -> None:
        """Wait until the named servers are ready or have failed, for a limited time."""
        connections = (self.connections[name] for name in names if name in self.connections)
        waits = [asyncio.ensure_future(c.settled.wait()) for c in connections if c.server.enabled]
        if waits:
            await asyncio.wait(waits, timeout=seconds)
        for wait in waits:
            wait.cancel()

    # --- what a connection needs (ConnectionHost) ---------------------------------------------------------------

    @property
    def root(self) -> Path:
        return self._workspace.root

    async def start_process(self, server: McpServer, stack: AsyncExitStack) -> ProcessTree:
        """Start a server's process; without a sandbox the user is asked first. Raises `OSError`, `ValueError`."""
        level = await asyncio.to_thread(self._workspace.try_sandbox)
        if level.name == "unsandboxed":
            await elicitation.ask_to_start(self._workspace, self.approvals, server, level.text)
        self.connections[server.name].is_sandboxed = level.name != "unsandboxed"
        process = ServerProcess(self._workspace, server)
        stack.push_async_callback(process.close)
        return await process.start()

    def make_errors_file(self, server: McpServer) -> RingFile:
        name = mcp_servers.compute_digest(f"{self.root}\n{server.name}")[:8]
        return RingFile(resources.state_home() / "mcp" / f"{core_types.clean_name(server.name)}-{name}.log")

    def make_auth(self, server: McpServer) -> Any:
        """Return the authorisation of requests to a server; None if its entry has a header for it."""
        has_header = any(name.lower() == "authorization" for name in server.headers)
        return None if has_header else login.make_auth(server)

    def notify(self, server: McpServer, text: str) -> None:
        self._workspace.emit(Notice("warning", "MCP", f"The server {server.name} {text}."))

    def on_change(self, connection: Connection) -> None:
        """Pass on that a server's state or its list of tools changed."""
        state = connection.state
        name = state.server.name
        if state.state == "ready":
            self._known[name].keep(state.tools)
        self._workspace.emit(McpServerChanged(name, state.state, state.version, len(state.tools), state.error))

    async def elicit(self, server: McpServer, params: types.ElicitRequestParams) -> types.ElicitResult:
        return await elicitation.elicit(self._workspace, self.approvals, server, params)

    # --- tools ------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """Apply changed lists, which this turn reports to the model."""
        self._take_over(self.connections)

    def begin_step(self) -> None:
        """Add servers that became ready late."""
        self._take_over([name for name in self.connections if name not in self.offered])

    def _take_over(self, names: Iterable[str]) -> None:
        for name in names:
            connection = self.connections[name]
            if connection.state.state == "ready" and self.offered.get(name) != connection.state.tools:
                self.offered[name] = connection.state.tools
                self._tools |= {tool.name: self._make(tool) for tool in connection.state.tools}

    def _make(self, offer: McpTool) -> ServerTool:
        ws, connection = self._workspace, self.connections[offer.server]
        return make_tool(
            offer,
            connection,
            self._known[offer.server],
            ws.counter,
            lambda: ws.takes_images,
            is_confined=is_confined(ws, connection.server),
        )

    def tools(self) -> Mapping[str, ServerTool]:
        """Return all tools that were offered, by name; calling a removed one reports that."""
        return self._tools

    def explain_missing(self, name: str) -> str:
        """Return why a tool that is not offered cannot be called; "" if it is of no server here."""
        for server, connection in self.connections.items():
            if name.startswith(f"{mcp_servers.PREFIX}{mcp_servers.clean_name(server)}__"):
                is_new = any(tool.name == name for tool in connection.state.tools)  # added with the next step
                if connection.state.state != "ready" or is_new:
                    return messages.explain_state(connection.state)
                return f"The MCP server {server} offers no tool {name}. search_tools finds its tools."
        return ""

    def list_always_loaded(self) -> list[ServerTool]:
        """Return the tools that new threads always load, as last listed by their servers."""
        loaded: list[ServerTool] = []
        for name, connection in self.connections.items():
            wanted = connection.server.always_load
            if wanted and connection.server.enabled:
                loaded += [self._make(t) for t in self._known[name].list_tools() if t.original_name in wanted]
        return loaded

    def note_instructions(self, thread_id: str, names: Sequence[str]) -> str:
        """Return the instructions of the named tools' servers, once per thread, as outside text."""
        out = ""
        for server in dict.fromkeys(t.offer.server for n in names if (t := self._tools.get(n)) is not None):
            text = self.connections[server].state.instructions
            if text and (thread_id, server) not in self._instructed:
                self._instructed.add((thread_id, server))
                out += "\n\n" + mcp_tools.mark_outside_text("mcp-instructions", server, [text])
        return out

    # --- news for the model ---------------------------------------------------------------------------------

    def lines(self, servers: Sequence[str] | None = None) -> dict[str, str]:
        """Return a line for each server that was ready, by name; at most `LINES_TOKENS` in all."""
        servers = sorted(self.offered) if servers is None else servers
        longest = max((len(self.offered[s]) for s in servers), default=0)
        lines: dict[str, str] = {}
        for shown in range(longest, -1, -1):
            lines = {s: _describe_tools(self.offered[s], shown) for s in servers}
            text = "\n".join(f"- {s}: {line}" for s, line in lines.items())
            if self._workspace.counter.count(text) <= LINES_TOKENS:
                break
        return lines

    def digests(self) -> dict[str, str]:
        """Return a hash of the tool names of each server that was ready, by name."""
        return {
            s: mcp_servers.compute_digest(" ".join(t.name for t in tools))[:12]
            for s, tools in sorted(self.offered.items())
        }

    def news(self, begun: Mapping[str, str]) -> dict[str, str]:
        """Return news about servers for a thread that began with these hashes of tool names, by server."""
        changed = [name for name, digest in self.digests().items() if begun.get(name) != digest]
        news = {s: f"The MCP server {s} now offers: {self.lines([s])[s]}" for s in changed}
        for name in self.offered:
            state = self.connections[name].state
            if state.state in ("failed", "disabled", "needs login"):
                news[name] = to_one_line(f"The MCP server {name} does not run: {state.error or state.state}", 300)
        return news

    def find_named(self, text: str) -> list[str]:
        """Return the servers that a prompt or rules name."""
        lower = text.lower()
        return [n for n in self.connections if n.lower() in lower or core_types.clean_name(n).lower() in lower]

    def list_missing(self) -> list[str]:
        """Return a sentence for each server that is not ready, with its tools as listed last."""
        sentences: list[str] = []
        for name, connection in self.connections.items():
            state = connection.state
            if state.state == "ready":
                continue
            names = [t.name for t in self._known[name].list_tools()]
            tools = f"{', '.join(names[:10])}{' …' if len(names) > 10 else ''}" if names else "all of its tools"
            why = state.error or f"it is {state.state}"
            sentences.append(f"The server {name} is not ready ({why.removesuffix('.')}). Missing: {tools}.")
        return sentences

    # --- resources and prompts ------------------------------------------------------------------------------------

    def resource_names(self) -> list[str]:
        """Return the resources of ready servers in the form of mentions: `server:uri`."""
        return [f"{n}:{r.uri}" for n, c in self.connections.items() if c.state.state == "ready" for r in c.resources]

    def is_template(self, name: str) -> bool:
        """Return whether a mention may name a resource of a ready server that it does not list."""
        server, _, uri = name.partition(":")
        connection = self.connections.get(server)
        return connection is not None and connection.state.state == "ready" and "://" in uri

    def prompt_names(self) -> dict[str, str]:
        """Return the prompts of ready servers, as `server:prompt`, with their arguments in words."""
        return {
            f"{name}:{prompt.name}": " ".join(a.name if a.required else f"[{a.name}]" for a in prompt.arguments or ())
            for name, connection in self.connections.items()
            if connection.state.state == "ready"
            for prompt in connection.prompts
        }

    async def read_resource(self, name: str, run: ToolContext) -> str:
        """Return the resource `server:uri` as outside text. Raises `ToolError`."""
        server, _, uri = name.partition(":")
        answer = await self.connections[server].read_resource(uri)
        texts = [mcp_tools.read_contents(content, run) for content in answer.contents]
        return mcp_tools.mark_outside_text("mcp-resource", name, texts)

    async def get_prompt(self, name: str, argument: str, run: ToolContext) -> str:
        """Return the prompt `server:prompt` as outside text. Raises `ToolError`.

        Its arguments are the words of `argument`, as `name=value` or in order; the last one takes the rest.
        """
        server, _, prompt_name = name.partition(":")
        connection = self.connections[server]
        prompt = next(p for p in connection.prompts if p.name == prompt_name)
        arguments = _read_arguments([a.name for a in prompt.arguments or ()], argument)
        missing = [a.name for a in prompt.arguments or () if a.required and a.name not in arguments]
        if missing:
            raise ToolError(f"/{name} needs {', '.join(missing)}: write NAME=VALUE, or the values in order.")
        answer = await connection.get_prompt(prompt_name, arguments)
        texts = [f"{m.role}: {mcp_tools.read_block(m.content, run)}" for m in answer.messages]
        return mcp_tools.mark_outside_text("mcp-prompt", name, texts)


def _describe_tools(tools: Sequence[McpTool], shown: int) -> str:
    """Return the names of a server's tools, up to a limit."""
    names = [core_types.clean_name(t.original_name) for t in tools]
    more = f"{', ' if shown else ''}and {len(names) - shown} more" if len(names) > shown else ""
    if not shown and names:
        more = format_count(len(names), "tool")
    return ", ".join(names[:shown]) + more


def _read_arguments(names: Sequence[str], text: str) -> dict[str, str]:
    """Return the arguments of a prompt by name, from the words that the user typed after it."""
    arguments: dict[str, str] = {}
    free: list[str] = []
    for word in text.split():
        name, sign, value = word.partition("=")
        if sign and name in names:
            arguments[name] = value
        else:
            free.append(word)
    rest = [name for name in names if name not in arguments]
    for number, name in enumerate(rest[: len(free)], 1):
        arguments[name] = free[number - 1] if number < len(rest) else " ".join(free[number - 1 :])
    return arguments
