"""Describe tool calls as text: in one line for lists and progress, with all arguments for readers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from sakti.core.lazy import lazy_pattern
from sakti.core.text import to_one_line
from sakti.core.types import PREFIX, Json, Part, ToolCallPart, join_plain_text, list_arguments

CHILD_TOOL = "agent"  # the tool that starts child threads
# names of the arguments that describe a call, the most informative ones first
MAIN_ARGUMENTS = (
    *("command", "pattern", "path", "file_path", "file", "query", "url", "title", "prompt", "questions", "question"),
    *("summary", "goal", "patch", "name", "label", "job", "text", "id", "action"),
)
_PATCHED_FILES = lazy_pattern(r"(?m)^\*\*\* (?:Add|Update|Delete) File: (.+)$")


def summarize_call(call: ToolCallPart) -> str:
    """Return the most informative argument of a call."""
    arguments = call.arguments
    if arguments is None:
        return to_one_line(call.raw, 300)
    if call.name == CHILD_TOOL:
        return to_one_line(str(arguments.get("goal", "")), 300)
    if call.name.startswith(PREFIX):
        return list_arguments(arguments)
    texts = {n: text for n, v in arguments.items() if (text := str(v) if isinstance(v, bool) else _find_text(v))}
    key = next((k for k in MAIN_ARGUMENTS if k in texts and not isinstance(arguments[k], bool)), "")
    return _summarize_by(key, texts[key], arguments) if key else list_arguments(texts)


def _summarize_by(key: str, value: str, arguments: Json) -> str:
    """Return the text `value` of argument `key`, with its action and range."""
    if key == "patch":
        return ", ".join(to_one_line(path, 100) for path in _PATCHED_FILES.findall(value)) or to_one_line(value, 300)
    value = value.removeprefix("https://") if key == "url" else value
    action = f"{arguments['action']} " if key != "action" and isinstance(arguments.get("action"), str) else ""
    return to_one_line(f"{action}{value}", 300) + _describe_range(key, arguments)


def _describe_range(key: str, arguments: Json) -> str:
    """Return the range of the argument `key`: the searched path of a pattern, the lines of a file."""
    if key == "pattern":
        return f"  in {to_one_line(str(arguments['path']), 100)}" if arguments.get("path") else ""
    if key == "questions" and isinstance(arguments[key], list):
        others = len(cast("list[object]", arguments[key])) - 1
        return f"  and {others} more" if others else ""
    return _describe_lines(arguments) if key.endswith(("path", "file")) else ""


def _describe_lines(arguments: Json) -> str:
    """Return the line range of a call on a file; "" for the entire file."""
    start, end = arguments.get("start", arguments.get("offset")), arguments.get("end", arguments.get("limit"))
    return f"  ({start or 1}-{end or ''})" if start or end else ""


def _find_text(value: object) -> str:
    """Return a value as readable text: the first text of a list, the most informative one of an object.

    A boolean says nothing without a name.
    """
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, list):
        return next((text for each in cast("list[object]", value) if (text := _find_text(each))), "")
    if isinstance(value, dict):
        values = cast("dict[str, object]", value)
        ranked = [*(values[k] for k in MAIN_ARGUMENTS if k in values), *values.values()]
        return next((text for each in ranked if (text := _find_text(each))), "")
    return ""


def format_value(value: object) -> str:
    """Return an argument as text: JSON if it is no text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def format_parts(parts: Sequence[Part]) -> str:
    """Join the text of `parts` for readers, without thinking; the arguments of calls have their names."""
    texts = (_format_call(p) if isinstance(p, ToolCallPart) else join_plain_text((p,)) for p in parts)
    return "\n".join(t for t in texts if t)


def _format_call(call: ToolCallPart) -> str:
    if call.arguments is None:
        return f"{call.name} {call.raw}"
    return "\n".join([call.name, *(f"{name}: {format_value(value)}" for name, value in call.arguments.items())])
