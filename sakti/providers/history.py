"""Stored messages as the alternating turns that every API accepts, whatever a crash or an interrupt left.

Consecutive messages of one role are one turn, every tool call is answered in the turn after it (with
`interrupted` where no result was stored), and no result stands without its call.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from sakti.core.types import (
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Turn:
    """Parts of one side, in order. In a user turn the results of the calls before it come first."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


def turns(messages: Sequence[Message], provider: str) -> list[Turn]:
    """`messages` as turns for `provider`, without other providers' thinking, markers and empty texts."""
    merged: list[tuple[Literal["user", "assistant"], list[Part]]] = []
    for message in messages:
        role: Literal["user", "assistant"] = "assistant" if message.role == "assistant" else "user"
        parts = [p for p in message.parts if _is_sent(p, provider)]
        if not parts:
            continue
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(parts)
        else:
            merged.append((role, parts))
    return _answered(merged)


def _is_sent(part: Part, provider: str) -> bool:
    match part:
        case MarkerPart():
            return False
        case TextPart(text):
            return bool(text.strip())
        case ThinkingPart(provider=owner, opaque=opaque):
            return owner == provider and bool(opaque)
        case _:
            return True


def _answered(merged: Iterable[tuple[Literal["user", "assistant"], list[Part]]]) -> list[Turn]:
    out: list[Turn] = []
    open_calls: list[ToolCallPart] = []
    for role, parts in merged:
        if role == "assistant":
            if open_calls:  # two answers in a row with a call between them: its result is lost
                out.append(Turn("user", tuple(_result_for(call, {}) for call in open_calls)))
            kept = _without_trailing_thinking(parts)
            open_calls = [p for p in kept if isinstance(p, ToolCallPart)]
            if kept:
                out.append(Turn("assistant", kept))
        else:
            out.append(Turn("user", _with_results(parts, open_calls)))
            open_calls = []
    if open_calls:
        out.append(Turn("user", tuple(_result_for(call, {}) for call in open_calls)))
    return _joined(out)


def _without_trailing_thinking(parts: Sequence[Part]) -> tuple[Part, ...]:
    """An answer that was cut in its thinking has nothing behind it, which the APIs refuse."""
    end = len(parts)
    while end and isinstance(parts[end - 1], ThinkingPart):
        end -= 1
    return tuple(parts[:end])


def _with_results(parts: Sequence[Part], calls: Sequence[ToolCallPart]) -> tuple[Part, ...]:
    wanted = {call.id for call in calls}
    results: dict[str, ToolResultPart] = {}
    rest: list[Part] = []
    for part in parts:
        if not isinstance(part, ToolResultPart):
            rest.append(part)
        elif part.call_id in wanted:
            results.setdefault(part.call_id, part)
        else:
            rest.append(TextPart(f"[result of {part.name}]\n{part.content}"))
    return (*(_result_for(call, results) for call in calls), *rest)


def _result_for(call: ToolCallPart, results: dict[str, ToolResultPart]) -> ToolResultPart:
    return results.get(call.id) or ToolResultPart(call.id, call.name, INTERRUPTED, is_error=True)


def _joined(items: Sequence[Turn]) -> list[Turn]:
    """Turns of one role that met because what stood between them was dropped are one again."""
    out: list[Turn] = []
    for turn in items:
        if out and out[-1].role == turn.role:
            out[-1] = Turn(turn.role, out[-1].parts + turn.parts)
        else:
            out.append(turn)
    return out


def file_text(part: FilePart) -> str:
    """A mentioned file as the model is shown it."""
    return f"<file path={json.dumps(part.path, ensure_ascii=False)}>\n{part.text}\n</file>"


def data_url(part: ImagePart) -> str:
    return f"data:{part.media_type};base64,{part.data}"


def call_arguments(call: ToolCallPart) -> dict[str, Any]:
    """Arguments as an object; what the model wrote as broken JSON is kept readable for it."""
    return {"invalid_json": call.raw} if call.arguments is None else call.arguments


def read_arguments(raw: str) -> dict[str, Any] | None:
    """The arguments a model wrote, `{}` for nothing at all, None where they are not a JSON object."""
    if not raw.strip():
        return {}
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class CallIds:
    """Gives every tool call of an answer an id that no other call of the conversation has."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._used = {call.id for message in messages for call in message.tool_calls}

    def unique(self, wanted: str | None) -> str:
        """`wanted` when it is free; a new id made from it where it is missing or taken."""
        call_id = wanted or ""
        if not call_id or call_id in self._used:
            call_id = _free_id(wanted or "call", self._used)
        self._used.add(call_id)
        return call_id


def _free_id(stem: str, used: Collection[str]) -> str:
    number = 1
    while f"{stem}_{number}" in used:
        number += 1
    return f"{stem}_{number}"
