"""Ask the user what a server wants to know, and whether one may start without a sandbox."""

from __future__ import annotations

import shlex
import webbrowser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types

from sakti.agent.judge.decide import Decision
from sakti.agent.judge.policy import names_tool
from sakti.agent.mcp import schemas
from sakti.agent.mcp.place import ServerPlace
from sakti.agent.mcp.servers import McpServer
from sakti.core import tool_names
from sakti.core.errors import SaktiError
from sakti.core.events import ApprovalAnswer, ApprovalRequested, CardAnswer, CardOption, CardQuestion
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.agent.tools.approvals import Approvals

DECLINED = types.ElicitResult(action="decline")
LEAVE_OUT, OPEN, DONE = "Leave it out", "Open it in the browser", "I have done it"
MOST_QUESTIONS, MOST_OPTIONS = 4, 6  # of one card; of one question
MOST_CARDS = 5  # for one form
Value = str | int | float | bool | list[str] | None


async def ask_to_start(workspace: ServerPlace, approvals: Approvals | None, server: McpServer, level: str) -> None:
    """Ask whether a server may start without a sandbox. Raises `SaktiError` if not."""
    if workspace.is_full:
        return
    command = shlex.join((server.command, *server.args))
    name = tool_names.PREFIX + tool_names.clean_name(server.name)
    digest = schemas.digest(command)[:12]
    rule = f"{name} # {digest}"
    allowed = (*workspace.config.approval.allow, *await workspace.allowed_rules())
    if names_tool(allowed, name, digest):
        return
    answer = None
    if approvals is not None:
        reason = f"Starts an MCP server without a sandbox ({level})"
        request = ApprovalRequested(workspace.new_id(), name, reason, command, str(workspace.root), rule=rule)
        answer = await _ask(approvals, request)
    if answer is None or not answer.approved:
        how = f"Start it in a chat, which asks, or add {name!r} to approval.allow."
        raise SaktiError(f"There is no sandbox here ({level}), and its start was not approved. {how}")
    if answer.grant == "workspace":
        workspace.save_rule(rule)


async def elicit(
    workspace: ServerPlace, approvals: Approvals | None, server: McpServer, params: types.ElicitRequestParams
) -> types.ElicitResult:
    """Ask the user what a server wants to know; declined without a terminal."""
    text = one_line(f"{server.name} asks: {schemas.clean_text(params.message)}", 1_500)
    if isinstance(params, types.ElicitRequestURLParams):
        return await _offer_url(workspace, approvals, text, one_line(params.url, 500))
    fields = _fields(params.requested_schema)
    if len(fields) > MOST_QUESTIONS * MOST_CARDS:
        return DECLINED
    content: dict[str, Value] = {}
    for begin in range(0, len(fields), MOST_QUESTIONS):
        part = fields[begin : begin + MOST_QUESTIONS]
        questions = tuple(_question(text, name, schema) for name, schema in part)
        answers = await _ask_card(workspace, approvals, questions)
        if len(answers) < len(part):
            return DECLINED
        for (name, schema), answer in zip(part, answers, strict=True):
            value = _value(schema, answer)
            if value is not None:
                content[name] = value
    required: Any = params.requested_schema.get("required", ())
    if any(name not in content for name in required if name in dict(fields)):
        return DECLINED
    return types.ElicitResult(action="accept", content=content)


async def _offer_url(workspace: ServerPlace, approvals: Approvals | None, text: str, url: str) -> types.ElicitResult:
    """Show an address that a server wants the user to open; it is opened only if they choose so."""
    options = (CardOption(OPEN), CardOption(DONE))
    answers = await _ask_card(workspace, approvals, (CardQuestion(f"{text}\n{url}", "mcp", options),))
    if not answers:
        return DECLINED
    if OPEN in answers[0].choices and url.startswith(("https://", "http://")):
        webbrowser.open(url)
    return types.ElicitResult(action="accept")


def _fields(schema: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    properties: Any = schema.get("properties")
    table = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
    return [(name, cast("dict[str, Any]", field)) for name, field in table.items() if isinstance(field, dict)]


def _question(text: str, name: str, schema: Mapping[str, Any]) -> CardQuestion:
    """Make the question for one field of a form."""
    title = one_line(schemas.clean_text(str(schema.get("title") or schema.get("description") or name)), 300)
    choices, default = _choices(schema)[:MOST_OPTIONS], _show_default(schema)
    if default in choices:
        choices = [default, *(c for c in choices if c != default)]
    if len(choices) < 2:
        choices = [*choices, *([default] if default else []), LEAVE_OUT, "Write it"][:MOST_OPTIONS]
    options = tuple(CardOption(one_line(choice, 100)) for choice in dict.fromkeys(choices))
    header = one_line(schemas.clean_text(name), 20) or "answer"
    return CardQuestion(f"{text}\n{title}", header, options, schema.get("type") == "array")


def _show_default(schema: Mapping[str, Any]) -> str:
    """Return the default of a field as its option shows it; "" without one."""
    default: Any = schema.get("default")
    if default is None or isinstance(default, list):
        return ""
    return ("Yes" if default else "No") if isinstance(default, bool) else one_line(str(default), 100)


def _choices(schema: Mapping[str, Any]) -> list[str]:
    """Return the values among which a field's is chosen; none for a free one."""
    if schema.get("type") == "boolean":
        return ["Yes", "No"]
    items: Any = schema.get("items") if schema.get("type") == "array" else schema
    table = cast("dict[str, Any]", items) if isinstance(items, dict) else {}
    listed: Any = table.get("enum") or [
        o["const"] for o in table.get("oneOf") or table.get("anyOf") or () if isinstance(o, dict) and "const" in o
    ]
    return [str(value) for value in listed]


def _value(schema: Mapping[str, Any], answer: CardAnswer) -> Value:
    """Return the value of a field; None if it was left out or cannot be read."""
    text = answer.text.strip() or (answer.choices[0] if answer.choices else "")
    kind = schema.get("type")
    if kind == "array":
        return list(answer.choices) or [part.strip() for part in text.split(",") if part.strip()]
    if not text or (not answer.text.strip() and text in (LEAVE_OUT, "Write it")):
        return None
    try:
        if kind == "boolean":
            return text.lower() in ("yes", "true", "y", "1")
        return int(text) if kind == "integer" else float(text) if kind == "number" else text
    except ValueError:
        return None


async def _ask_card(
    workspace: ServerPlace, approvals: Approvals | None, questions: Sequence[CardQuestion]
) -> tuple[CardAnswer, ...]:
    request = ApprovalRequested(
        workspace.new_id(), "ask_user", "", questions[0].question, ".", questions=tuple(questions)
    )
    answer = await _ask(approvals, request)
    return answer.answers if answer is not None and answer.approved else ()


async def _ask(approvals: Approvals | None, request: ApprovalRequested) -> ApprovalAnswer | None:
    """Show a question and wait for its answer; None without a terminal."""
    if approvals is None or not approvals.interactive:
        return None
    decision = Decision("ask", request.reason, request.target)
    answer, _ = await approvals.ask(request, decision, lambda: decision)
    return answer
