"""Make the tools `agent`, which starts children, and `report`, which ends their work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import replace

from sakti.agent.subagents.report import ChildReport, QuotedFinding
from sakti.agent.tools.base import Parameter, Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.resources import read_prompt
from sakti.core.types import Json
from sakti.memory.modes import FieldType
from sakti.store.threads.runs import TOOL

LONGEST_GOAL = 8_000  # characters


class AgentTask(Struct, frozen=True):
    """Arguments of a call of `agent`; `tools` are fewer than its mode's, None for those."""

    mode: str
    goal: str
    context: str = ""
    tools: list[str] | None = None
    model: str = ""
    background: bool = False
    resume: str = ""


_GOAL = Annotated[str, Meta(min_length=1, max_length=LONGEST_GOAL)]
_PARAMETERS = {
    "mode": Parameter(str, description="mode (explore, research, default, …) or custom agent"),
    "goal": Parameter(_GOAL, description="what to find out or do"),
    "context": Parameter(str, "", "facts it needs"),
    "tools": Parameter(list[str] | None, None, "fewer tools than the mode's"),
    "model": Parameter(str, "", "provider/name"),
    "background": Parameter(bool, False, "continue meanwhile; read-only modes only"),
    "resume": Parameter(str, "", "id of a child to continue"),
}


def make_agent(call: Callable[[ToolContext, AgentTask], Awaitable[Outcome]], use: str, agents: str) -> Tool:
    """Make the tool of a thread that may have children; `agents` lists the custom ones."""

    async def agent(run: ToolContext, **arguments: Any) -> Outcome:
        return await call(run, AgentTask(**arguments))

    texts = (read_prompt(f"tools/{TOOL}"), read_prompt(f"subagents#{use}"), agents)
    description = "\n\n".join(text for text in texts if text)
    return Tool(TOOL, description, _PARAMETERS, agent, "own", parallel=True, rule_name=TOOL)


def make_report(
    declared: Mapping[str, FieldType],
    take: Callable[[ChildReport], Awaitable[Outcome]],
    refuse: Callable[[str], Outcome],
) -> Tool:
    """Make the tool of one child; `refuse` answers a report with wrong arguments.

    `declared` are the fields of its mode; others are taken as they are.
    """
    wanted: dict[str, FieldType] = {name: kind for name, kind in declared.items() if name != "not_found"}
    schema = Meta(extra_json_schema={"properties": {name: _SCHEMAS[kind] for name, kind in wanted.items()}})

    @tool(effect="own", name="report", parallel=False, small=7, refuse=refuse)
    async def report(
        run: ToolContext,
        summary: str,
        findings: list[QuotedFinding],
        not_found: list[str],
        gaps: list[str],
        fields: dict[str, Any] | None = None,
    ) -> Outcome:
        """Hand in the report."""
        values = fields or {}
        if problems := _check_fields(values, wanted):
            return refuse(f"report was called with wrong arguments: {'; '.join(problems)}.")
        return await take(ChildReport(summary, tuple(findings), tuple(not_found), tuple(gaps), values))

    hint: Any = Annotated[dict[str, Any], schema]
    typed = Parameter(hint | None, None, "values that the mode asks for")
    return replace(report, parameters={**report.parameters, "fields": typed})


_TYPES: Mapping[FieldType, Any] = {"text": str, "list": list[str], "table": dict[str, Any]}
_SCHEMAS: Mapping[FieldType, Json] = {
    "text": {"type": "string"},
    "list": {"type": "array", "items": {"type": "string"}},
    "table": {"type": "object"},
}


def _check_fields(values: Json, declared: Mapping[str, FieldType]) -> list[str]:
    """Return the faults in the fields of a report, each with its path."""
    problems: list[str] = []
    for name in values.keys() & declared.keys():
        try:
            convert(values[name], _TYPES[declared[name]])
        except ValidationError as e:
            problem, _, place = str(e).partition(" - at `$")
            problems.append(f"fields.{name}{place.rstrip('`')}: {problem.replace('`', '')}")
    return sorted(problems)
