"""Offer most tools by search: `search_tools` lists, `load_tool` describes, `call_tool` runs them.

The three stand among the tools from the start, so that what a thread's requests begin with never changes. A call by
`call_tool` is validated, judged and shown as one of the tool itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.errors import ToolError
from sakti.core.types import ToolSpec

CALL = "call_tool"
MOST = 5  # that a search finds


def make(offered: Callable[[], Sequence[ToolSpec]]) -> list[Tool]:
    """Make the three tools; `offered` are those that are found."""

    def found(name: str) -> ToolSpec:
        spec = next((t for t in offered() if t.name == name), None)
        if spec is None:
            raise ToolError(f"There is no tool {name!r} to load. search_tools finds them.")
        return spec

    @tool(effect="own", parallel=True)
    async def search_tools(run: ToolContext, query: Annotated[str, "words that say what is needed"]) -> Outcome:
        """Find more tools by words. Load one with load_tool, then run it with call_tool."""
        near = ranked(offered(), query)[:MOST]
        if not near:
            return Outcome(f"Nothing fits. There are: {', '.join(t.name for t in offered())}.")
        return Outcome("\n".join(f"- {t.name}: {_first(t.description)}" for t in near))

    @tool(effect="own", parallel=True)
    async def load_tool(run: ToolContext, name: Annotated[str, "as search_tools gives it"]) -> Outcome:
        """Describe a tool that was found, with the arguments that it takes."""
        spec = found(name)
        return Outcome(f"{spec.name}: {spec.description}\n\nArguments:\n{json.dumps(spec.parameters)}")

    @tool(effect="own", name=CALL)
    async def call_tool(
        run: ToolContext,
        name: Annotated[str, "of the tool"],
        arguments: Annotated[dict[str, Any], "as load_tool describes them"],
    ) -> Outcome:
        """Run a tool that load_tool has described."""
        found(name)
        raise ToolError(f"{name} cannot be called through {CALL}.")  # what can is run under its own name

    return [search_tools, load_tool, call_tool]


def ranked(tools: Sequence[ToolSpec], query: str) -> list[ToolSpec]:
    """Return the tools by the words of a query that they hold; a word of a name counts three times."""
    query_words = _words(query)
    scored = [(3 * len(query_words & _words(t.name)) + len(query_words & _words(t.description)), t) for t in tools]
    return [t for n, t in sorted(scored, key=lambda e: -e[0]) if n]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def _first(description: str) -> str:
    return re.split(r"(?<=[.!?])\s", description, maxsplit=1)[0]
