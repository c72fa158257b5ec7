"""Store the tools that servers listed last, and the descriptions that the user has approved."""

from __future__ import annotations

import contextlib
import difflib
import json
import tempfile
from pathlib import Path
from typing import Any, cast

import msgspec

from sakti.agent.mcp import schemas
from sakti.agent.mcp.servers import McpServer, McpTool
from sakti.core import resources
from sakti.core.types import Json


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
