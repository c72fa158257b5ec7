"""Search the web."""

from __future__ import annotations

from sakti.agent.tools.context import Outcome, ToolContext


class WebSearch:
    service: str = ""

    async def search(self, run: ToolContext, query: str, limit: int, site: str | None) -> Outcome: ...
