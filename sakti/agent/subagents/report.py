"""Define reports of children, check their quotations, render them, and make the tools of children.

A report becomes one block in the parent's context and one group in its log, a line per finding. The tool `agent` starts
children, `report` ends their work.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import replace

from sakti.agent.tools import textfile
from sakti.agent.tools.base import Parameter, Tool, tool
from sakti.agent.tools.context import Outcome, ToolContext
from sakti.core.clock import Ids, shorten_id
from sakti.core.lazy import lazy_pattern
from sakti.core.resources import read_prompt
from sakti.core.text import format_count, to_one_line
from sakti.core.tokens import Counter
from sakti.core.types import Json
from sakti.memory.log import dates, lines
from sakti.memory.modes import FieldType
from sakti.store.threads.runs import TOOL

Mark: TypeAlias = Literal["", "verified", "moved", "unverified"]  # "": nothing was quoted
SHORTEST_QUOTE = 20  # non-blank characters; a shorter quote must be a whole line
MEANING = 'A mark says that the quote is in the file ("quote found"), not that the claim is true.'
UNSTRUCTURED = "unstructured, unverified"
_RANGE = lazy_pattern(r"\s*(\d+)(?:\s*[-–:]\s*(\d+))?\s*")
_LONGEST_FILE = 10_000_000  # bytes of a file that quotes are looked for in


class QuotedFinding(Struct, frozen=True, omit_defaults=True):
    """Claim with the place that supports it."""

    claim: str
    file: str = ""
    lines: Annotated[str, Meta(description='such as "12-18"')] = ""
    quote: Annotated[str, Meta(description="exact text of those lines")] = ""
    source: Annotated[str, Meta(description="URL or command, if it is not a file")] = ""
    mark: Annotated[Mark, Meta(extra_json_schema={"unlisted": True})] = ""


class ChildReport(Struct, frozen=True):
    """Report of a child; `unstructured`: the child wrote none, so this is its last text.

    `partial` says why the child ended before it reported.
    """

    summary: str
    findings: tuple[QuotedFinding, ...] = ()
    not_found: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    fields: Json = field(default_factory=dict[str, Any])
    unstructured: bool = False
    partial: str = ""

    @property
    def quote_count(self) -> int:
        return sum(bool(f.mark) for f in self.findings)

    @property
    def verified_count(self) -> int:
        """Return how many quotes are on the disk, at their lines or at others."""
        return sum(f.mark in ("verified", "moved") for f in self.findings)

    def in_words(self) -> str:
        """Summarise its marks: `11 of 12 quotes found · 3 not found`."""
        parts = [UNSTRUCTURED] if self.unstructured else []
        parts += [f"ended early: {to_one_line(self.partial, 80)}"] if self.partial else []
        parts += (
            [f"{self.verified_count} of {format_count(self.quote_count, 'quote')} found"] if self.quote_count else []
        )
        parts += [f"{len(self.not_found)} not found"] if self.not_found else []
        return " · ".join(parts) or format_count(len(self.findings), "finding")


# --- quotations -----------------------------------------------------------------------------------------------


def check_quotes(findings: Sequence[QuotedFinding], read: Callable[[str], bytes | None]) -> tuple[QuotedFinding, ...]:
    """Mark each finding by its quote; `read` returns the bytes of a readable file."""
    files: dict[str, list[str] | None] = {}

    def text_of(path: str) -> list[str] | None:
        if path not in files:
            data = read(path)
            decoded = textfile.decode(data[:_LONGEST_FILE]) if data is not None else None
            files[path] = textfile.split_bodies(decoded.text) if decoded is not None else None
        return files[path]

    return tuple(_mark_finding(one, text_of(one.file) if one.quote and one.file else None) for one in findings)


def _mark_finding(finding: QuotedFinding, file: list[str] | None) -> QuotedFinding:
    if not finding.quote.strip():
        return replace(finding, mark="")
    at = None if file is None else _find(finding.quote, file, finding.lines)
    if at is None:
        return replace(finding, mark="unverified")
    first, last = at
    named = _parse_range(finding.lines)
    if named is not None and named[0] <= first and last <= named[1]:
        return replace(finding, mark="verified")
    span = f"{first}-{last}" if last > first else str(first)
    return replace(finding, lines=span, mark="moved" if named is not None else "verified")


def _parse_range(text: str) -> tuple[int, int] | None:
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last = int(match[1]), int(match[2] or match[1])
    return min(first, last), max(first, last)


def _remove_spaces(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _find(quote: str, file: Sequence[str], named: str) -> tuple[int, int] | None:
    """Return the lines that a quote is on, white space ignored; the named ones first."""
    needle = _remove_spaces(quote)
    squeezed = [_remove_spaces(line) for line in file]
    if len(needle) < SHORTEST_QUOTE and needle not in squeezed:
        return None
    span = _parse_range(named)
    if span is not None:
        first, last = max(1, span[0]), min(len(file), span[1])
        if needle in "".join(squeezed[first - 1 : last]):
            return first, max(first, last)
    text = "".join(squeezed)
    start = text.find(needle)
    if start < 0:
        return None
    return _line_at(squeezed, start), _line_at(squeezed, start + len(needle) - 1)


def _line_at(squeezed: Sequence[str], position: int) -> int:
    end = 0
    for number, line in enumerate(squeezed, 1):
        end += len(line)
        if position < end:
            return number
    return len(squeezed)


# --- texts ----------------------------------------------------------------------------------------------------


def place_of(finding: QuotedFinding) -> str:
    """Return the place of a finding: `src/app.py:12-18`, a source, or ""."""
    where = f"{finding.file}:{finding.lines}" if finding.file and finding.lines else finding.file
    return where or finding.source


def format_block(report: ChildReport, head: str) -> str:
    """Return the report as the parent's model reads it."""
    out = [f"[{head} · {report.in_words()}]", report.summary.strip()]
    for finding in report.findings:
        out += _show_finding(finding)
    for title, texts in (("Not found", report.not_found), ("Gaps", report.gaps)):
        out += [f"{title}:", *(f"- {text}" for text in texts)] if texts else []
    out += [f"{name}: {_show_field(value)}" for name, value in report.fields.items() if value]
    out += [MEANING] if report.quote_count else []
    return "\n".join(line for line in out if line)


def _show_finding(finding: QuotedFinding) -> list[str]:
    """Return the line of a claim, with the lines of its quotation below."""
    where, quote = place_of(finding), finding.quote.strip("\n")
    mark = f" [{finding.mark}]" if finding.mark else ""
    claim = f"- {finding.claim.strip()}{f' ({where})' if where else ''}{mark}"
    return [claim, *(f"    > {line}" for line in quote.split("\n"))] if quote else [claim]


def _show_field(value: Any) -> str:
    """Return a value of `fields` as the lines of a log have it."""
    if isinstance(value, dict):
        return "; ".join(f"{name} {text}" for name, text in cast("Json", value).items())
    return "; ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)


def _format_finding(finding: QuotedFinding) -> str:
    where = place_of(finding)
    quote = f' "{to_one_line(finding.quote, 1_000)}"' if finding.quote.strip() else ""
    mark = f" [{finding.mark}]" if finding.mark else ""
    return f"{f'{where} ' if where else ''}{finding.claim}{quote}{mark}"


def log_text(report: ChildReport, now: int, timezone: str) -> tuple[str, tuple[tuple[str, Json], ...]]:
    """Return the report as lines of a log, with the category and the `mode_specific` values of each line."""
    clock = dates.format_clock(now, timezone)
    out, kinds = [f"Date: {dates.format_day(now, timezone)}"], list[tuple[str, Json]]()

    def add(sign: str, text: str, category: str, values: Json | None = None) -> None:
        out.append(f"* {sign} ({clock}) {to_one_line(text, 2_000)}")
        kinds.append((category, values or {}))

    if report.summary.strip():
        add("🟡", f"Agent's report: {report.summary}", "summary")
    for one in report.findings:
        add("🔴" if one.mark in ("verified", "moved") else "🟡", _format_finding(one), "findings")
    for name, value in report.fields.items():
        if value:
            add("🟡", f"{name}: {_show_field(value)}", name.replace("_", "-"), {name: value})
    for text in report.not_found:
        add("🟡", f"Not found: {text}", "not-found", {"not_found": [text]})
    for text in report.gaps:
        add("🟢", f"Not examined: {text}", "gaps")
    return "\n".join(out), tuple(kinds)


def make_findings(report: ChildReport, ids: Ids, counter: Counter, now: int, timezone: str) -> Json:
    """Return the group of a report for its parent's log, in the form in which the run keeps it."""
    text, kinds = log_text(report, now, timezone)
    rows = list(lines.iter_rows(text))
    return {
        "group_id": ids.new(),
        "text": text,
        "tokens": counter.count(text),
        "lines": [
            {
                "id": ids.new(), "line": row.line, "depth": row.depth, "date": row.date, "time": row.time,
                "priority": row.priority, "content": row.content, "category": category,
                "metadata": row.metadata | {"mode_specific": values},
            }
            for row, (category, values) in zip(rows, kinds, strict=True)
        ],
    }  # fmt: skip


def make_partial_report(observed: Sequence[str], text: str, why: str) -> ChildReport:
    """Return the report of a child that ended early: observed lines and its last text."""
    findings = tuple(QuotedFinding(line) for line in observed)
    return ChildReport(text.strip() or "The child ended before it wrote a report.", findings, partial=why)


def format_head(child_id: str, name: str, steps: int, cost_usd: float | None) -> str:
    price = "" if cost_usd is None else f" · ${cost_usd:.2f}"
    return f"Report of the child thread {shorten_id(child_id)} ({name}) · {format_count(steps, 'step')}{price}"


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
    "background": Parameter(bool, False, "continue meanwhile; only if none of its tools needs approvals"),
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
