"""Ask the user the questions of a server, and whether one may start without a sandbox.

The fields of a server's form become questions of a card, and the answers checked values.
"""

from __future__ import annotations

import asyncio
import math
import re
import shlex
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import mcp_types as types
from msgspec import Struct

from sakti.agent.judge.decide import Decision
from sakti.agent.judge.policy import names_tool
from sakti.agent.mcp import servers
from sakti.agent.mcp.place import ServerWorkspace
from sakti.agent.mcp.servers import McpServer, clean_text
from sakti.core import json_schema
from sakti.core import types as core_types
from sakti.core.errors import SaktiError
from sakti.core.events import (
    ApprovalAnswer,
    ApprovalRequested,
    CardAnswer,
    CardOption,
    CardQuestion,
    FreeQuestion,
    Notice,
)
from sakti.core.text import quote, to_one_line

if TYPE_CHECKING:
    from sakti.agent.tools.approvals import Approvals


LEAVE_OUT = "Leave it out"
MOST_OPTIONS = 6  # choices of one question; with more, the user types the answer
KINDS = ("string", "integer", "number", "boolean", "array")
Value = str | int | float | bool | list[Any] | None
# Limits in a schema, in words for the user.
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "above {}",
    "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "choose at least {}",
    "maxItems": "choose at most {}",
    "pattern": "matches {}",
}


class WrongAnswer(ValueError):
    """An answer that does not fit its field; the text is a sentence for the user."""


class FormField(Struct, frozen=True):
    """Field of a form; `choices` are its values by the labels shown, none for a free one."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool
    choices: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.schema.get("type", "string"))

    @property
    def default(self) -> str:
        """Return the default as the user would write it; "" without one."""
        default: Any = self.schema.get("default")
        if default is None:
            return ""
        values = _to_list(default) if isinstance(default, list) else [default]
        labels = (next((k for k, v in self.choices.items() if v == value), str(value)) for value in values)
        return to_one_line(clean_text(", ".join(labels)), 200)


def read_fields(schema: Mapping[str, Any]) -> list[FormField]:
    """Return the fields of a form, without those that lack a description."""
    names = _to_list(schema.get("required"))
    tables = {name: _to_table(table) for name, table in _to_table(schema.get("properties")).items()}
    return [FormField(name, table, name in names, _read_choices(table)) for name, table in tables.items() if table]


def is_unusable(field: FormField) -> bool:
    """Return whether a card cannot ask for a field."""
    return field.kind not in KINDS


def make_question(text: str, field: FormField, problem: str = "") -> CardQuestion:
    """Make the question for a field; `problem` says why the last answer did not fit."""
    name = to_one_line(clean_text(field.name), 60)
    title = to_one_line(clean_text(str(field.schema.get("title") or name)), 200)
    lines = [problem] * bool(problem) + [text, f"{title} ({'required' if field.is_required else 'optional'})"]
    lines += [hint] if (hint := _describe_field(field)) else []
    header = to_one_line(name, 20) or "answer"
    ways_out = () if field.is_required else (LEAVE_OUT,)
    if not 0 < len(field.choices) <= MOST_OPTIONS - len(ways_out) or len((*field.choices, *ways_out)) < 2:
        return FreeQuestion("\n".join(lines), header, tuple(map(CardOption, ways_out)), default=field.default)
    labels = sorted(field.choices, key=lambda label: label != field.default)  # the default first
    options = tuple(map(CardOption, dict.fromkeys((*labels, *ways_out))))
    return CardQuestion("\n".join(lines), header, options, field.kind == "array")


def _list_words(field: FormField, answer: CardAnswer) -> list[str]:
    """Return the values in an answer: its choices, those written in a list, or its text."""
    text = answer.text.strip()
    words = [choice for choice in answer.choices if choice != LEAVE_OUT or choice in field.choices]
    if field.kind == "array":
        return words + [part.strip() for part in text.split(",") if part.strip()]
    return [text] if text else words


def read_answer(field: FormField, answer: CardAnswer) -> Value:
    """Return the value of a field, None if it was left out. Raises `WrongAnswer`."""
    words = _list_words(field, answer)
    if not words:
        if field.is_required:
            raise WrongAnswer("An answer is required.")
        return None
    values = [_read_value(field, word) for word in words]
    value = list(dict.fromkeys(values)) if field.kind == "array" else values[0]
    _check(field, value)
    return value


def _read_value(field: FormField, word: str) -> Any:
    """Return the value that a word means. Raises `WrongAnswer`."""
    if field.choices:
        if word in field.choices:
            return field.choices[word]
        for label, value in field.choices.items():
            if word.casefold() in (label.casefold(), str(value).casefold()):
                return value
        raise WrongAnswer(f"{to_one_line(word)} is not one of: {to_one_line(', '.join(field.choices), 300)}.")
    if field.kind not in ("integer", "number"):
        return word
    try:
        number = int(word) if field.kind == "integer" else float(word)
    except ValueError:
        number = math.nan
    if isinstance(number, float) and not math.isfinite(number):
        raise WrongAnswer(f"{to_one_line(word)} is not a {'whole ' * (field.kind == 'integer')}number.")
    return number


def _check(field: FormField, value: Any) -> None:
    """Raise `WrongAnswer` if a value violates the schema of its field."""
    form: Any = field.schema.get("format")
    if isinstance(form, str) and isinstance(value, str) and form in _FORMATS:
        has_format, example = _FORMATS[form]
        if not has_format(value):
            raise WrongAnswer(f"{to_one_line(value)} is not of the format {form}, as in {example}.")
    try:
        json_schema.check_schema(field.schema)
        wrong = json_schema.find_violations(value, field.schema)
    except json_schema.UnusableSchema:
        return  # left to the server
    if wrong:
        raise WrongAnswer(f"{to_one_line(clean_text(wrong[0][1]), 300)}.")


def _read_choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a field that has a list of them, by their labels."""
    if schema.get("type") == "boolean":
        return {"Yes": True, "No": False}
    choices: dict[str, Any] = {}
    for value, title in _list_titles(_to_table(schema.get("items")) if schema.get("type") == "array" else schema):
        if isinstance(value, str | int | float):
            label = to_one_line(clean_text(str(title)), 80)
            choices[f"{label} ({to_one_line(clean_text(str(value)), 80)})" if label in choices else label or "-"] = (
                value
            )
    return choices


def _list_titles(schema: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return the values that a schema lists, each with its title."""
    if isinstance(schema.get("enum"), list):
        values = _to_list(schema["enum"])
        names = _to_list(schema.get("enumNames"))
        return [*zip(values, [*names, *values[len(names) :]], strict=False)]
    tables = map(_to_table, _to_list(schema.get("oneOf") or schema.get("anyOf")))
    return [(entry["const"], entry.get("title") or entry["const"]) for entry in tables if "const" in entry]


def _describe_field(field: FormField) -> str:
    """Return what a field is for and which values it takes, in one line."""
    schema = field.schema
    description = to_one_line(clean_text(str(schema.get("description") or "")), 300)
    hints = [
        text.format(to_one_line(clean_text(str(schema[key])), 60)) for key, text in _LIMITS.items() if key in schema
    ]
    form, is_long = str(schema.get("format") or ""), len(field.choices) >= MOST_OPTIONS
    ways = {
        "a whole number": field.kind == "integer",
        "a number": field.kind == "number",
        f"{form}, as in {_FORMATS[form][1] if form in _FORMATS else ''}": form in _FORMATS,
        f"one of: {to_one_line(', '.join(field.choices), 400)}": is_long,
        "commas between several": field.kind == "array" and (is_long or not field.choices),
        f"default: {field.default}": bool(field.default),
    }
    hints = [*(way for way, applies in ways.items() if applies), *hints]
    return " · ".join(part for part in (description, "; ".join(hints)) if part)


def _to_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _to_table(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


# --- formats ----------------------------------------------------------------------------------------------------------


def _is_email(text: str) -> bool:
    return re.fullmatch(r"[^@\s]+@[^@\s.]+(?:\.[^@\s.]+)*", text) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", text)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_date_time(text: str) -> bool:
    try:
        return _is_date(text[:10]) and text[10:11] in ("T", "t") and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


_FORMATS: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "email": (_is_email, "ann@example.org"),
    "uri": (_is_uri, "https://example.org/page"),
    "date": (_is_date, "2026-03-31"),
    "date-time": (_is_date_time, "2026-03-31T12:00:00Z"),
}


DECLINED = types.ElicitResult(action="decline")
CONFIRM, OPEN, DONE = "Confirm", "Open it in the browser", "I have done it"
MOST_QUESTIONS = 4  # of one card
MOST_CARDS = 5  # for one form
LONGEST_URL = 4_000  # characters of an address that the user is shown


async def ask_to_start(workspace: ServerWorkspace, approvals: Approvals | None, server: McpServer, level: str) -> None:
    """Ask whether a server may start without a sandbox. Raises `SaktiError` if not."""
    if workspace.is_full:
        return
    command = shlex.join((server.command, *server.args))
    name = core_types.PREFIX + core_types.clean_name(server.name)
    digest = servers.compute_digest(command)[:12]
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
        how = f"Start it in a chat, which asks, or add {quote(name)} to approval.allow."
        raise SaktiError(f"There is no sandbox here ({level}), and its start was not approved. {how}")
    if answer.grant == "workspace":
        workspace.save_rule(rule)


async def elicit(
    workspace: ServerWorkspace, approvals: Approvals | None, server: McpServer, params: types.ElicitRequestParams
) -> types.ElicitResult:
    """Ask the user the question of a server; declined without a terminal."""
    message = f"{server.name} asks: {servers.clean_text(params.message)}"
    if isinstance(params, types.ElicitRequestURLParams):
        if len(params.url) > LONGEST_URL or params.url != to_one_line(params.url, LONGEST_URL):
            text = f"The server {server.name} asked to open an address that cannot be shown, so it was declined."
            workspace.emit(Notice("warning", "MCP", text))
            return DECLINED
        return await _offer_url(workspace, approvals, to_one_line(message, 1_500), params.url)
    fields = read_fields(params.requested_schema)
    if fault := _find_fault(fields):
        text = f"The server {server.name} asked for a form that cannot be shown ({fault}), so it was declined."
        workspace.emit(Notice("warning", "MCP", text))
        return DECLINED
    if not fields:
        return await _confirm(workspace, approvals, to_one_line(message, 1_500))
    fields = [field for field in fields if not is_unusable(field)]
    content: dict[str, Value] = {}
    for begin in range(0, len(fields), MOST_QUESTIONS):
        values = await _ask_fields(
            workspace, approvals, to_one_line(message, 300), fields[begin : begin + MOST_QUESTIONS]
        )
        if values is None:
            return DECLINED
        content |= values
    return types.ElicitResult(action="accept", content=content)


def _find_fault(fields: Sequence[FormField]) -> str:
    """Return why the user cannot be asked for all required fields; "" if they can."""
    if len(fields) > MOST_QUESTIONS * MOST_CARDS:
        return f"more than {MOST_QUESTIONS * MOST_CARDS} fields"
    unusable = next((field for field in fields if field.is_required and is_unusable(field)), None)
    return f"{to_one_line(unusable.name)} is of the type {to_one_line(unusable.kind)}" if unusable is not None else ""


async def _ask_fields(
    workspace: ServerWorkspace, approvals: Approvals | None, text: str, fields: Sequence[FormField]
) -> dict[str, Value] | None:
    """Ask for fields on one card, again for those whose answer does not fit; None if the user declines."""
    values: dict[str, Value] = {}
    problems = dict.fromkeys((field.name for field in fields), "")
    while problems:
        open_fields = [field for field in fields if field.name in problems]
        questions = tuple(make_question(text, field, problems[field.name]) for field in open_fields)
        answers = await _ask_card(workspace, approvals, questions)
        if len(answers) < len(open_fields):
            return None
        problems = {}
        for field, answer in zip(open_fields, answers, strict=True):
            try:
                value = await asyncio.to_thread(read_answer, field, answer)
            except WrongAnswer as e:
                problems[field.name] = str(e)
                continue
            if value is not None:
                values[field.name] = value
    return values


async def _confirm(workspace: ServerWorkspace, approvals: Approvals | None, text: str) -> types.ElicitResult:
    """Ask the user to confirm a form without fields."""
    options = (CardOption(CONFIRM), CardOption("Decline"))
    answers = await _ask_card(workspace, approvals, (CardQuestion(text, "mcp", options),))
    return types.ElicitResult(action="accept", content={}) if answers and CONFIRM in answers[0].choices else DECLINED


async def _offer_url(
    workspace: ServerWorkspace, approvals: Approvals | None, text: str, url: str
) -> types.ElicitResult:
    """Show an address that a server wants the user to open; it is only opened if the user agrees."""
    options = (CardOption(OPEN), CardOption(DONE))
    answers = await _ask_card(workspace, approvals, (CardQuestion(f"{text}\n{url}", "mcp", options),))
    if not answers:
        return DECLINED
    if OPEN in answers[0].choices and url.startswith(("https://", "http://")):
        webbrowser.open(url)
    return types.ElicitResult(action="accept")


async def _ask_card(
    workspace: ServerWorkspace, approvals: Approvals | None, questions: Sequence[CardQuestion]
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
