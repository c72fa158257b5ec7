"""Ask the user what a server wants to know, and whether one may start without a sandbox."""

from __future__ import annotations

import asyncio
import shlex
import webbrowser
from collections.abc import Sequence
from typing import TYPE_CHECKING

import mcp_types as types

from sakti.agent.judge.decide import Decision
from sakti.agent.judge.policy import names_tool
from sakti.agent.mcp import forms, schemas
from sakti.agent.mcp.place import ServerPlace
from sakti.agent.mcp.servers import McpServer
from sakti.core import types as core_types
from sakti.core.errors import SaktiError
from sakti.core.events import ApprovalAnswer, ApprovalRequested, CardAnswer, CardOption, CardQuestion, Notice
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.agent.tools.approvals import Approvals

DECLINED = types.ElicitResult(action="decline")
CONFIRM, OPEN, DONE = "Confirm", "Open it in the browser", "I have done it"
MOST_QUESTIONS = 4  # of one card
MOST_CARDS = 5  # for one form


async def ask_to_start(workspace: ServerPlace, approvals: Approvals | None, server: McpServer, level: str) -> None:
    """Ask whether a server may start without a sandbox. Raises `SaktiError` if not."""
    if workspace.is_full:
        return
    command = shlex.join((server.command, *server.args))
    name = core_types.PREFIX + core_types.clean_name(server.name)
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
    message = f"{server.name} asks: {schemas.clean_text(params.message)}"
    if isinstance(params, types.ElicitRequestURLParams):
        return await _offer_url(workspace, approvals, one_line(message, 1_500), one_line(params.url, 500))
    fields = forms.read_fields(params.requested_schema)
    if fault := _find_fault(fields):
        text = f"The server {server.name} asked for a form that cannot be shown ({fault}), so it was declined."
        workspace.emit(Notice("warning", "MCP", text))
        return DECLINED
    if not fields:
        return await _confirm(workspace, approvals, one_line(message, 1_500))
    fields = [field for field in fields if not forms.is_unusable(field)]
    content: dict[str, forms.Value] = {}
    for begin in range(0, len(fields), MOST_QUESTIONS):
        values = await _ask_fields(workspace, approvals, one_line(message, 300), fields[begin : begin + MOST_QUESTIONS])
        if values is None:
            return DECLINED
        content |= values
    return types.ElicitResult(action="accept", content=content)


def _find_fault(fields: Sequence[forms.FormField]) -> str:
    """Return why the user cannot be asked for all required fields; "" if they can."""
    if len(fields) > MOST_QUESTIONS * MOST_CARDS:
        return f"more than {MOST_QUESTIONS * MOST_CARDS} fields"
    unusable = next((field for field in fields if field.is_required and forms.is_unusable(field)), None)
    return f"{one_line(unusable.name)} is of the type {one_line(unusable.kind)}" if unusable is not None else ""


async def _ask_fields(
    workspace: ServerPlace, approvals: Approvals | None, text: str, fields: Sequence[forms.FormField]
) -> dict[str, forms.Value] | None:
    """Ask for fields on one card, again for those whose answer does not fit; None if the user declines."""
    values: dict[str, forms.Value] = {}
    problems = dict.fromkeys((field.name for field in fields), "")
    while problems:
        open_fields = [field for field in fields if field.name in problems]
        questions = tuple(forms.make_question(text, field, problems[field.name]) for field in open_fields)
        answers = await _ask_card(workspace, approvals, questions)
        if len(answers) < len(open_fields):
            return None
        problems = {}
        for field, answer in zip(open_fields, answers, strict=True):
            try:
                value = await asyncio.to_thread(forms.read_answer, field, answer)
            except forms.WrongAnswer as e:
                problems[field.name] = str(e)
                continue
            if value is not None:
                values[field.name] = value
    return values


async def _confirm(workspace: ServerPlace, approvals: Approvals | None, text: str) -> types.ElicitResult:
    """Ask the user to confirm a form without fields."""
    options = (CardOption(CONFIRM), CardOption("Decline"))
    answers = await _ask_card(workspace, approvals, (CardQuestion(text, "mcp", options),))
    return types.ElicitResult(action="accept", content={}) if answers and CONFIRM in answers[0].choices else DECLINED


async def _offer_url(workspace: ServerPlace, approvals: Approvals | None, text: str, url: str) -> types.ElicitResult:
    """Show an address that a server wants the user to open; it is opened only if they choose so."""
    options = (CardOption(OPEN), CardOption(DONE))
    answers = await _ask_card(workspace, approvals, (CardQuestion(f"{text}\n{url}", "mcp", options),))
    if not answers:
        return DECLINED
    if OPEN in answers[0].choices and url.startswith(("https://", "http://")):
        webbrowser.open(url)
    return types.ElicitResult(action="accept")


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
