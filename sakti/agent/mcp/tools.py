"""Make tools of servers for the toolbox; store their last list and the approved descriptions."""

from __future__ import annotations

import contextlib
import difflib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from sakti.agent.judge.where import RemoteFacts
from sakti.agent.mcp import results, schemas
from sakti.agent.mcp.connection import Connection
from sakti.agent.mcp.servers import McpServer, McpTool
from sakti.agent.tools.base import Tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core import json_schema, resources
from sakti.core.errors import ToolError
from sakti.core.tokens import Counter
from sakti.core.types import Json, ToolSpec


class KnownTools:
    """The record of one server: one file, by the server's name and the file that names it."""

    def __init__(self, server: McpServer, folder: Path | None = None) -> None:
        self._server = server
        name = schemas.digest(f"{server.source}\n{server.name}")[:16]
        self._path = (folder or resources.state_home() / "mcp") / f"{name}.json"
        self._record: Json = {}
        with contextlib.suppress(OSError, ValueError):
            record: Any = json.loads(self._path.read_text())
            self._record = cast("Json", record) if isinstance(record, dict) else {}

    def listed(self) -> tuple[McpTool, ...]:
        """Return the tools of the last connection."""
        try:
            return msgspec.convert(self._record.get("tools", []), tuple[McpTool, ...])
        except msgspec.ValidationError:
            return ()

    def keep(self, tools: tuple[McpTool, ...]) -> None:
        """Store the tools that the server lists now."""
        if tools != self.listed():
            self._save({"tools": msgspec.to_builtins(tools)})

    def approve(self, tool: McpTool) -> None:
        """Store the description and schema that the user has approved."""
        text = schemas.describe(tool)
        if self._approved.get(tool.original_name) != text:
            self._save({"approved": {**self._approved, tool.original_name: text}})

    def is_new(self, tool: McpTool) -> bool:
        """Return whether no text of the tool was approved yet."""
        return tool.original_name not in self._approved

    def diff(self, tool: McpTool) -> str:
        """Return how description and schema differ from the approved ones; "" if they do not, or are new."""
        before, now = self._approved.get(tool.original_name), schemas.describe(tool)
        if before is None or before == now:
            return ""
        names = (f"{tool.name} as approved", f"{tool.name} now")
        return "".join(difflib.unified_diff(before.splitlines(True), now.splitlines(True), *names))

    @property
    def _approved(self) -> dict[str, str]:
        texts = self._record.get("approved")
        return cast("dict[str, str]", texts) if isinstance(texts, dict) else {}

    def _save(self, changes: Json) -> None:
        self._record = {**self._record, **changes}
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self._path.parent, delete=False) as file:
                json.dump(self._record, file)
            Path(file.name).replace(self._path)


MOST_PROBLEMS = 5  # of arguments that an error names


async def _refuse_call(*_: Any) -> Outcome:
    raise NotImplementedError  # a ServerTool calls its server


class ServerTool(Tool, frozen=True, kw_only=True):
    """Tool of a server. `takes_images` says whether the model does."""

    offer: McpTool
    connection: Connection
    counter: Counter
    takes_images: Callable[[], bool]

    def spec(self) -> ToolSpec:
        text = f"{self.description}\n(Text of the MCP server {self.offer.server}.)".strip()
        return ToolSpec(self.name, text, self.offer.schema)

    async def __call__(self, run: ToolContext, arguments: Json) -> Outcome:
        """Check the arguments and call the server. Raises `ToolError`."""
        state = self.connection.state
        if state.state == "ready" and all(tool.name != self.name for tool in state.tools):
            raise ToolError(f"{self.name} is no longer offered by the MCP server {self.offer.server}.")
        self.check(arguments, run.cwd)
        answer = await self.connection.call_tool(self.offer, arguments, run.show_progress)
        outcome = results.make_outcome(answer, run, self.counter, takes_images=self.takes_images())
        if outcome.is_error and self.connection.is_sandboxed:
            outcome = results.add_sandbox_hint(outcome, self.offer.server)
        return outcome

    def check(self, arguments: Json, cwd: Path) -> Json:
        """Return the arguments unchanged. Raises `ToolError` if the schema forbids them."""
        try:
            wrong = json_schema.violations(arguments, schemas.without_patterns(self.offer.schema))
        except json_schema.UnusableSchema:
            return arguments  # the server says what is wrong
        if wrong:
            problems = "; ".join(f"{path}: {text}" for path, text in wrong[:MOST_PROBLEMS])
            raise ToolError(f"{self.name} was called with wrong arguments: {problems}. load_tool shows its schema.")
        return arguments


def make_tool(
    offer: McpTool,
    connection: Connection,
    known: KnownTools,
    counter: Counter,
    takes_images: Callable[[], bool],
    *,
    is_confined: bool,
) -> ServerTool:
    """Make the tool that calls a server."""
    return ServerTool(
        name=offer.name,
        description=offer.description,
        parameters={},
        function=_refuse_call,
        effect="remote",
        parallel=offer.is_read_only,
        rule_name=offer.name,
        remote=RemoteFacts(
            reads_only=offer.is_read_only,
            is_destructive=offer.is_destructive,
            is_confined=is_confined,
            fingerprint=schemas.fingerprint(offer),
            diff=lambda: known.diff(offer),
            note_use=lambda by_user: known.approve(offer) if by_user or known.is_new(offer) else None,
        ),
        offer=offer,
        connection=connection,
        counter=counter,
        takes_images=takes_images,
    )
