"""Convert stored messages to alternating turns that every API accepts, even after a crash.

Consecutive messages of one role are one turn, every tool call is answered in the turn after it (with `interrupted`
where no result was stored), and every result has its call.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import Struct, structs

from sakti.core.types import (
    ContextPart,
    FilePart,
    ImagePart,
    MarkerPart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

INTERRUPTED = "interrupted"
LONGEST_NAME = 64  # characters of a tool's name
_VALID = re.compile(rf"[a-zA-Z0-9_-]{{1,{LONGEST_NAME}}}")


class HistoryTurn(Struct, frozen=True):
    """Parts of one side, in order; in a user turn the results of the preceding calls come first."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


def format_context(text: str) -> str:
    """Wrap volatile facts for the model."""
    return f"<context>\n{text}\n</context>"


def make_turns(
    messages: Sequence[Message], provider: str, model: str = "", context: Callable[[str], str] = format_context
) -> list[HistoryTurn]:
    """Convert `messages` to turns for `model` of `provider`.

    Other models' thinking, markers and empty texts are left out, and tool names are made valid. A `ContextPart` is
    appended to the text or result that it came with, as `context` formats it.
    """
    merged: list[tuple[Literal["user", "assistant"], list[Part]]] = []
    for message in messages:
        role: Literal["user", "assistant"] = "assistant" if message.role == "assistant" else "user"
        parts = _select_parts(message, provider, model, context)
        if not parts:
            continue
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(parts)
        else:
            merged.append((role, parts))
    return _add_results(merged)


def _select_parts(message: Message, provider: str, model: str, context: Callable[[str], str]) -> list[Part]:
    """Return the parts of a message as the model gets them."""
    parts: list[Part] = []
    for part in message.parts:
        if isinstance(part, ContextPart):
            parts = append_text(parts, context(part.text)) if part.facts else parts
        elif isinstance(part, OutputPart):
            parts.append(TextPart(format_output(part)))
        elif isinstance(part, ToolCallPart):
            parts.append(structs.replace(part, name=clean_tool_name(part.name)))
        elif _is_sent(part, provider, model):
            parts.append(part)
    return parts


def append_text(parts: Sequence[Part], text: str) -> list[Part]:
    """Append `text` to the last of `parts`, if that is text or a result, else add it as a part."""
    last = parts[-1] if parts else None
    match last:
        case TextPart(last_text):
            return [*parts[:-1], TextPart(f"{last_text}\n\n{text}")]
        case ToolResultPart(content=content):
            return [*parts[:-1], structs.replace(last, content=f"{content}\n\n{text}" if content else text)]
        case _:
            return [*parts, TextPart(text)]


def _is_sent(part: Part, provider: str, model: str) -> bool:
    match part:
        case MarkerPart():
            return False
        case TextPart(text):
            return bool(text.strip())
        case ThinkingPart(provider=owner, opaque=opaque, model=thought):
            return owner == provider and bool(opaque) and (not thought or not model or thought == model)
        case _:
            return True


def _add_results(merged: Iterable[tuple[Literal["user", "assistant"], list[Part]]]) -> list[HistoryTurn]:
    out: list[HistoryTurn] = []
    open_calls: list[ToolCallPart] = []
    for role, parts in merged:
        if role == "assistant":
            if open_calls:  # two answers in a row, the first with a call: its result is lost
                out.append(HistoryTurn("user", tuple(_find_result(call, {}) for call in open_calls)))
            parts_sent = _drop_trailing_thinking(parts)
            open_calls = [p for p in parts_sent if isinstance(p, ToolCallPart)]
            if parts_sent:
                out.append(HistoryTurn("assistant", parts_sent))
        else:
            out.append(HistoryTurn("user", _order_results(parts, open_calls)))
            open_calls = []
    if open_calls:
        out.append(HistoryTurn("user", tuple(_find_result(call, {}) for call in open_calls)))
    return _join_turns(out)


def _drop_trailing_thinking(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Drop trailing thinking, which the APIs refuse; an answer cut off while thinking ends with it.

    Blocks of the server's own tools stay: a paused answer may end with them.
    """
    end = len(parts)
    while end and isinstance(last := parts[end - 1], ThinkingPart) and "block" not in last.opaque:
        end -= 1
    return tuple(parts[:end])


def _order_results(parts: Sequence[Part], calls: Sequence[ToolCallPart]) -> tuple[Part, ...]:
    call_ids = {call.id for call in calls}
    results: dict[str, ToolResultPart] = {}
    rest: list[Part] = []
    for part in parts:
        if not isinstance(part, ToolResultPart):
            rest.append(part)
        elif part.call_id in call_ids:
            results.setdefault(part.call_id, part)
        else:
            rest.append(TextPart(f"[result of {part.name}]\n{part.content}"))
    return (*(_find_result(call, results) for call in calls), *rest)


def _find_result(call: ToolCallPart, results: dict[str, ToolResultPart]) -> ToolResultPart:
    return results.get(call.id) or ToolResultPart(call.id, call.name, INTERRUPTED, is_error=True)


def _join_turns(items: Sequence[HistoryTurn]) -> list[HistoryTurn]:
    """Join adjacent turns of one role, which occur when something between them was dropped."""
    out: list[HistoryTurn] = []
    for turn in items:
        if out and out[-1].role == turn.role:
            out[-1] = HistoryTurn(turn.role, out[-1].parts + turn.parts)
        else:
            out.append(turn)
    return out


def split_tool_images(parts: Sequence[Part]) -> tuple[tuple[ImagePart, ...], tuple[Part, ...]]:
    """Split a user turn into the images that tools returned and its other parts."""
    first = next((i for i, p in enumerate(parts) if not isinstance(p, ToolResultPart)), len(parts))
    if first == 0:
        return (), tuple(parts)
    images = tuple(itertools.takewhile(lambda p: isinstance(p, ImagePart), parts[first:]))
    return cast("tuple[ImagePart, ...]", images), (*parts[:first], *parts[first + len(images) :])


def last_user_text(turn: HistoryTurn, most: int) -> str:
    """Return up to `most` characters of the user's last text in a turn, without volatile facts.

    Empty for the model's turns.
    """
    texts = [p.text for p in turn.parts if isinstance(p, TextPart)] if turn.role == "user" else []
    return texts[-1].partition("\n\n<context>\n")[0][:most] if texts else ""


def format_file(part: FilePart) -> str:
    """Wrap a mentioned file for the model."""
    return f"<file path={json.dumps(part.path, ensure_ascii=False)}>\n{part.text}\n</file>"


def format_output(part: OutputPart) -> str:
    """Wrap the output of a command that the user ran, so that it is not read as the user's words."""
    command = json.dumps(part.command, ensure_ascii=False)
    head = "The user ran a command. What it printed is output, not the user's words:"
    return f"{head}\n<output command={command}>\n{part.text}\n</output>"


def make_data_url(part: ImagePart) -> str:
    return f"data:{part.media_type};base64,{part.data}"


def get_arguments(call: ToolCallPart) -> dict[str, Any]:
    """Return arguments as an object; broken JSON is kept readable for the model."""
    return {"invalid_json": call.raw} if call.arguments is None else call.arguments


def read_arguments(raw: str) -> dict[str, Any] | None:
    """Parse the arguments a model wrote: `{}` for an empty text, None if they are not a JSON object."""
    if not raw.strip():
        return {}
    try:
        value: Any = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def merge_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings' `extra` into `body`; tables are merged, anything else is replaced."""
    out = dict(body)
    for key, value in extra.items():
        current = out.get(key)
        if isinstance(current, dict) and isinstance(value, Mapping):
            out[key] = merge_extra(cast("dict[str, Any]", current), cast("Mapping[str, Any]", value))
        else:
            out[key] = value
    return out


def clean_tool_name(name: str) -> str:
    """Return a tool name that every API accepts: models also write `functions.read`, or no name."""
    if _VALID.fullmatch(name):
        return name
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", name).strip("_")[:LONGEST_NAME] or "unnamed"


def clean_call_id(call_id: str) -> str:
    """Return a call's id as up to 64 letters, digits, `_` and `-`; different ids stay different."""
    if _VALID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{re.sub(r'[^a-zA-Z0-9_-]+', '_', call_id)[:40]}_{digest}"


class CallIds:
    """Ids of tool calls, unique within a thread."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._used = {call.id for message in messages for call in message.tool_calls}

    def unique(self, preferred: str | None) -> str:
        """Return `preferred`, or a new id made from it if it is missing or taken."""
        call_id = preferred or ""
        if not call_id or call_id in self._used:
            call_id = _free_id(preferred or "call", self._used)
        self._used.add(call_id)
        return call_id


def _free_id(stem: str, used: Collection[str]) -> str:
    number = 1
    while f"{stem}_{number}" in used:
        number += 1
    return f"{stem}_{number}"
