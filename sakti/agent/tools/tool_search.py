"""Offer most tools by search: `search_tools` lists, `load_tool` describes, `call_tool` runs them.

The three are among the tools from the first request, so that the beginning of a thread's requests never changes. A call
by `call_tool` is validated, judged and shown as a call of the tool itself.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from sakti.agent.tools.base import Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.errors import ToolError
from sakti.core.text import quote
from sakti.core.types import ToolSpec

CALL = "call_tool"
NAMED = 60  # tools that an answer without a hit names
_SATURATION, _LENGTH = 1.5, 0.75  # parameters of BM25
_NAME_WEIGHT = 3  # weight of a word in a name, relative to the description

Notes = Callable[[str, Sequence[str]], str]


def no_notes(_thread_id: str, _names: Sequence[str]) -> str:
    """Add nothing to an answer."""
    return ""


def make_search_tools(
    deferred: Callable[[], Mapping[str, ToolSpec]],
    top_k: Callable[[], int],
    notes: Notes = no_notes,
    explain_missing: Callable[[str], str] = lambda _name: "",
) -> list[Tool]:
    """Make the three tools for the `deferred` tools, by name.

    `notes` adds remarks on the named tools to an answer, once. `explain_missing` says why others are not there.
    """

    def get(name: str) -> ToolSpec:
        offered = deferred()
        if name in offered:
            return offered[name]
        short = [spec for spec in offered.values() if spec.name.endswith(f"__{name}")]
        if len(short) == 1:
            return short[0]
        raise ToolError(explain_missing(name) or f"There is no tool {quote(name)} to load. search_tools finds them.")

    @tool(effect="own", parallel=True)
    async def search_tools(run: ToolContext, query: Annotated[str, "words, or a name"]) -> Outcome:
        """Find more tools, as of MCP servers, by words. Load one with load_tool, then run it with call_tool."""
        offered = deferred()
        hits = rank(list(offered.values()), query)[: top_k()]
        if not hits:
            names = list(offered)
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            return Outcome(f"Nothing matches. Available: {', '.join(names[:NAMED]) or 'none'}{more}.")
        lines = [f"- {t.name}({', '.join(_list_arguments(t))}): {_cut_first_sentence(t.description)}" for t in hits]
        return Outcome("\n".join(lines) + notes(run.thread_id, [t.name for t in hits]))

    @tool(effect="own", parallel=True)
    async def load_tool(run: ToolContext, name: Annotated[str, "as search_tools gives it"]) -> Outcome:
        """Describe a tool that was found, with its arguments."""
        spec = get(name)
        schema = json.dumps(spec.parameters, ensure_ascii=False)
        return Outcome(f"{spec.name}: {spec.description}\n\nArguments:\n{schema}" + notes(run.thread_id, [spec.name]))

    @tool(effect="own", name=CALL)
    async def call_tool(
        run: ToolContext,
        name: Annotated[str, "of the tool"],
        arguments: Annotated[dict[str, Any], "as load_tool describes them"],
    ) -> Outcome:
        """Run a tool that was found."""
        get(name)
        raise ToolError(f"{name} cannot be called through {CALL}.")  # a tool that can runs under its own name

    return [search_tools, load_tool, call_tool]


def rank(tools: Sequence[ToolSpec], query: str) -> list[ToolSpec]:
    """Return the tools that hold a word of the query, by BM25 over name, description and argument names.

    A tool whose name, or last part of it, is the query comes first.
    """
    wanted, exact = set(_split_words(query)), query.strip().lower()
    documents = [_count_words(t) for t in tools]
    mean = sum(d.total() for d in documents) / len(documents) if documents else 0.0
    holding = {word: sum(word in d for d in documents) for word in wanted}

    def score(document: Counter[str]) -> float:
        long = _SATURATION * (1 - _LENGTH + _LENGTH * document.total() / mean)
        total = 0.0
        for word in wanted & document.keys():
            rarity = math.log(1 + (len(documents) - holding[word] + 0.5) / (holding[word] + 0.5))
            total += rarity * document[word] * (_SATURATION + 1) / (document[word] + long)
        return total

    def is_exact(tool: ToolSpec) -> bool:
        name = tool.name.lower()
        return name == exact or name.endswith(f"__{exact}")

    scored = [(is_exact(t), score(d), t) for t, d in zip(tools, documents, strict=True)]
    return [t for named, value, t in sorted(scored, key=lambda e: (not e[0], -e[1])) if named or value > 0]


def _count_words(tool: ToolSpec) -> Counter[str]:
    return Counter(
        [
            *_split_words(tool.name) * _NAME_WEIGHT,
            *_split_words(tool.description),
            *_split_words(" ".join(_list_arguments(tool))),
        ]
    )


def _split_words(text: str) -> list[str]:
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)  # readFile has two
    return [w.removesuffix("s") if len(w) > 3 else w for w in re.findall(r"[^\W_]+", text.lower())]


def _list_arguments(tool: ToolSpec) -> list[str]:
    return list(tool.parameters.get("properties", {}))


def _cut_first_sentence(description: str) -> str:
    return re.split(r"(?<=[.!?])\s|\n", description, maxsplit=1)[0][:300]
