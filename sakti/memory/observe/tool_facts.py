"""Read facts from tool calls: queries, empty searches, errors, tests, answers of the user. Pure.

Root causes and conclusions need a model. Keys are those that modes declare in their `[fields]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import structs

from sakti.core.lazy import lazy_pattern
from sakti.core.types import Json, Message, TextPart, ToolCallPart, ToolResultPart
from sakti.memory.modes import FieldType

Facts: TypeAlias = Mapping[str, list[str]]  # values by key

_ANSWERED = ("ask_user", "present_plan")  # calls whose results contain words of the user
SEARCHES = ("grep", "glob", "memory-search", "websearch")
MOST, LONGEST = 12, 200  # most values of a key, most characters of a value
LOOKED_AT = 100_000  # characters at the end of a result that are searched

_SEARCH_COMMAND = lazy_pattern(r"\s*(?:git grep|grep|rg|ag|find|fd)\s")
_SENTENCE_END = lazy_pattern(r"[.?!:;]+(?=\s)")
_NOTHING = lazy_pattern(r"(?:No|Nothing)\b")
_ERROR_TYPE = lazy_pattern(r"(?:^|[\s:.(])([A-Z]\w*(?:Error|Exception))\b(?=[:\s]|$)")
_FRAME = lazy_pattern(
    r'File "([^"\n]+)", line (\d+)|\bat (?:[^\n(]*\()?([\w./@-]+\.\w+:\d+)|^\s*([\w./-]+\.\w+:\d+): in ', re.MULTILINE
)
_RESULT = lazy_pattern(r"^.*?\b\d+ (?:passed|failed|passing|failing)\b.*$|^test result: .*$", re.MULTILINE)
_TEST = lazy_pattern(r"\b([\w./-]+\.\w+::[\w:\[\]-]+)|^(?:=== RUN|--- \w+:)\s+(\w+)", re.MULTILINE)
_COVERAGE = lazy_pattern(
    r"^(TOTAL|All files)\b.*?(\d+(?:\.\d+)?\s?%)|(coverage)[: ]+(\d+(?:\.\d+)?\s?%)", re.MULTILINE | re.IGNORECASE
)


def with_user_answers(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages, with answers to questions and changed plans as statements of the user."""
    return tuple(out for message in messages for out in _split_answers(message))


def _split_answers(message: Message) -> Iterator[Message]:
    answers = [r for r in message.tool_results if r.name in _ANSWERED and r.details.keys() & {"answers", "edited"}]
    if not answers:
        yield message
        return
    others = tuple(p for p in message.parts if p not in answers)
    lines = [_state_answer(one) for r in answers for one in r.details.get("answers", ())]
    text = "\n".join(
        [*lines, *(f"I changed the plan to:\n{r.details['edited']}" for r in answers if "edited" in r.details)]
    )
    share = message.tokens // 2
    yield structs.replace(message, role="user", parts=(TextPart(text),), part_tokens=(share,), tokens=share)
    yield structs.replace(message, parts=others, part_tokens=(share,) * len(others), tokens=message.tokens - share)


def _state_answer(answer: Json) -> str:
    text = " ".join(str(answer["question"]).split()).rstrip("?.!: ").replace('"', "'")
    question = _SENTENCE_END.sub(",", text)  # question and answer become one sentence
    return f'My decision on "{question}" is: {", ".join(filter(None, [*answer["choices"], answer["text"]]))}.'


def read_facts(call: ToolCallPart | None, result: ToolResultPart) -> Facts:
    """Return the values in a call and its result, by key."""
    arguments: Json = (call.arguments if call is not None else None) or {}
    command, text = str(arguments.get("command") or ""), result.content[-LOOKED_AT:]
    query = _query(result.name, arguments, command)
    wrote = result.name in ("write", "edit") and not result.is_error
    values = {
        "search_queries": [query],
        "not_found": [query] if _is_empty(result, text) else [],
        "sources": [str(arguments.get("url") or "")],
        "files_affected": [str(arguments.get("path") or "")] if wrote else [],
        **(_find_output_facts(text) if command and not query else {}),
    }
    return {key: bounded for key, each in values.items() if (bounded := _bound_values(each))}


def fill_keys(
    lines: Mapping[str, Sequence[Facts]], declared: Mapping[str, FieldType], sections: Sequence[str]
) -> tuple[dict[str, str], dict[str, Json]]:
    """Return the section and the values of declared keys for each line that has some, by its content."""
    by_key = {name.replace("-", "_"): name for name in sections}
    fields = {content: values for content, facts in lines.items() if (values := _select(facts, declared))}
    categories = {c: by_key[key] for c, values in fields.items() for key in reversed(values) if key in by_key}
    return categories, fields


def _select(facts: Iterable[Facts], declared: Mapping[str, FieldType]) -> Json:
    """Return the values of the declared keys, in their types, of the calls that share a line."""
    merged: dict[str, list[str]] = {}
    for one in facts:
        for key in one.keys() & declared.keys():
            merged[key] = _bound_values([*merged.get(key, ()), *one[key]])
    return {key: _convert_values(merged[key], kind) for key, kind in declared.items() if key in merged}


def _convert_values(values: list[str], kind: FieldType) -> list[str] | dict[str, str] | str:
    if kind == "list":
        return values
    if kind == "table":
        return dict(v.split(": ", 1) for v in values if ": " in v)
    return "\n".join(values)


def _bound_values(values: Iterable[str]) -> list[str]:
    return [value[:LONGEST] for value in dict.fromkeys(values) if value][:MOST]


def _query(tool: str, arguments: Json, command: str) -> str:
    """Return the query of a call; empty if it does not search."""
    if tool in SEARCHES:
        words = (str(arguments[k]) for k in ("pattern", "query", "path", "site") if arguments.get(k))
        return " ".join((tool, *words))
    return " ".join(command.split()) if _SEARCH_COMMAND.match(command) else ""


def _is_empty(result: ToolResultPart, text: str) -> bool:
    """Return whether a search has no result."""
    if result.name in SEARCHES:
        matches = result.details.get("matches")
        return not result.is_error and (matches == 0 if matches is not None else _NOTHING.match(text) is not None)
    return text.strip().startswith(("[exit code 1]", "[no output]"))


def _find_output_facts(text: str) -> dict[str, list[str]]:
    """Return errors, stack frames, tests and their results from the output of a command."""
    return {
        "error_type": [m[1] for m in _ERROR_TYPE.finditer(text)][-1:],
        "stack_trace": [":".join(filter(None, m.groups())) for m in _FRAME.finditer(text)],
        "test_results": [m[0].strip(" =") for m in _RESULT.finditer(text)],
        "tests": [m[1] or m[2] for m in _TEST.finditer(text)],
        "coverage": [": ".join(filter(None, m.groups())).lower() for m in _COVERAGE.finditer(text)],
    }
