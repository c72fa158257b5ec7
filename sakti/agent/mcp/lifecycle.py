"""Start the servers of a session, wait for them, and report them to threads.

Nothing of the SDK is imported here: `clients` is, in a thread, if a server is configured.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sakti.agent.judge.policy import find_tool
from sakti.agent.mcp.place import ServerWorkspace
from sakti.agent.mcp.servers import McpServer, ServerState, clean_name
from sakti.core.events import Notice
from sakti.core.text import to_one_line
from sakti.core.types import PREFIX, Json

if TYPE_CHECKING:
    from sakti.agent.mcp.clients import McpClients
    from sakti.agent.tools.approvals import Approvals
    from sakti.agent.tools.base import Tool
    from sakti.agent.tools.toolbox import Toolbox

log = logging.getLogger(__name__)

FIRST_WAIT_S = 2.0  # seconds that the first request of a thread waits for servers
MISSING_PACKAGE = "MCP servers need a package that is not installed: pip install 'sakti[mcp]'."


class SessionServers:
    """Servers of a session. `clients` is None until the SDK is loaded, or if no server is configured."""

    def __init__(self, workspace: ServerWorkspace, make_clients: Callable[[Sequence[McpServer]], McpClients]) -> None:
        self._workspace, self._make_clients = workspace, make_clients
        self.clients: McpClients | None = None
        self.problem = ""  # why no server could be started
        self._listed: Sequence[McpServer] = ()
        self._starting: asyncio.Task[None] | None = None
        self._waited = set[str]()  # threads whose first request has waited

    def begin(self, approvals: Callable[[], Approvals]) -> None:
        """Start the servers in the background."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(approvals))

    async def _start(self, approvals: Callable[[], Approvals]) -> None:
        ws = self._workspace
        try:
            listed = await asyncio.to_thread(ws.load_servers)
            for fault in listed.faults:
                ws.emit(Notice("warning", "MCP", fault))
            if not listed.servers:
                return
            self._listed = listed.servers
            clients = await asyncio.to_thread(self._make_clients, listed.servers)
            clients.approvals = approvals()
        except ImportError as e:
            self._fail(MISSING_PACKAGE if (e.name or "").startswith("mcp") else f"MCP servers do not start: {e}.")
            return
        except Exception as e:
            log.exception("MCP servers")
            self._fail(f"MCP servers do not start: {to_one_line(str(e), 200)}")
            return
        self.clients = clients
        clients.start()

    def _fail(self, problem: str) -> None:
        """Store why no server starts, and show it."""
        self.problem = problem
        self._workspace.emit(Notice("warning", "MCP", problem))

    async def close(self) -> None:
        """End all servers."""
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self.clients is not None:
            await self.clients.close()

    def states(self) -> list[ServerState]:
        """Return the servers that were started, by name, or all with the reason why none could be."""
        if self.clients is not None:
            return self.clients.states()
        servers = [server for server in self._listed if server.enabled] if self.problem else []
        return [ServerState(server, "failed", error=self.problem) for server in servers]

    # --- a thread -----------------------------------------------------------------------------------------------

    async def begin_turn(self, thread_id: str, toolbox: Toolbox, prompt: str) -> None:
        """Wait for servers before the first request of a thread, then apply their lists."""
        is_first = thread_id not in self._waited
        self._waited.add(thread_id)
        if is_first:
            await self._wait(toolbox, prompt)
        if self.clients is not None:
            self.clients.begin_turn()
            if is_first:
                toolbox.load_always(self.clients.list_always_loaded())

    async def _wait(self, toolbox: Toolbox, prompt: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FIRST_WAIT_S
        if self._starting is not None:
            await asyncio.wait({self._starting}, timeout=None if self._is_headless else FIRST_WAIT_S)
        clients, rules = self.clients, toolbox.rules.allow
        if self._is_headless:
            for sentence in _list_unknown(rules, clients.connections if clients is not None else ()):
                self._workspace.emit(Notice("warning", "MCP", sentence))
        if clients is None:
            return
        await clients.wait(clients.connections, max(0.0, deadline - loop.time()))
        if self._is_headless:
            named = clients.find_named("\n".join((prompt, *rules)))
            longest = max((clients.connections[name].server.startup_timeout for name in named), default=0.0)
            await clients.wait(named, longest)
            for sentence in clients.list_missing():
                self._workspace.emit(Notice("warning", "MCP", sentence))

    @property
    def _is_headless(self) -> bool:
        return not self._workspace.is_interactive

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools of all servers, by name."""
        return self.clients.tools() if self.clients is not None else {}

    def explain_missing(self, name: str) -> str:
        """Return why a tool that is not offered cannot be called; "" if its name is of no server."""
        if self.clients is not None:
            return self.clients.explain_missing(name)
        if self._starting is None or not name.startswith(PREFIX) or self._starting.done():
            return self.problem if name.startswith(PREFIX) else ""
        return "The MCP servers are still starting. Call again in a few seconds."

    def prompts(self) -> dict[str, str]:
        """Return the prompts of servers, as `server:prompt`, with their arguments in words."""
        return self.clients.prompt_names() if self.clients is not None else {}

    def resources(self) -> list[str]:
        """Return the resources of servers, as `server:uri`."""
        return self.clients.resource_names() if self.clients is not None else []

    def note_instructions(self, thread_id: str, names: Sequence[str]) -> str:
        """Return the instructions of these tools' servers, once per thread, as outside text."""
        return self.clients.note_instructions(thread_id, names) if self.clients is not None else ""

    def to_metadata(self) -> Json:
        """Return the metadata of a new thread: lines for its system prompt, hashes of tool names."""
        if self.clients is None or not self.clients.offered:
            return {}
        return {"mcp": {"lines": self.clients.lines(), "tools": self.clients.digests()}}

    def facts(self, begun: Mapping[str, str]) -> dict[str, str]:
        """Return news about servers for a thread that began with these hashes of tool names, by server."""
        if self.clients is None:
            return {}
        self.clients.begin_step()
        return self.clients.news(begun)


def _list_unknown(rules: Sequence[str], servers: Collection[str]) -> list[str]:
    """Return a sentence for each rule about a server's tools that names no server."""
    names = sorted(servers)
    there = f"There are: {', '.join(names)}." if names else "No server is configured here."

    def is_unknown(rule: str) -> bool:
        pattern = find_tool(rule).removeprefix(PREFIX).partition("__")[0]
        return rule.startswith(PREFIX) and not any(fnmatchcase(clean_name(name), pattern) for name in names)

    return [f"The rule {to_one_line(rule)} names no MCP server. {there}" for rule in rules if is_unknown(rule)]
