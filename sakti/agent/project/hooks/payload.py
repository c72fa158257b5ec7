"""Translate events and threads to the JSON of claude-code's hooks and back. Pure.

A path is absolute there, with links followed; a timeout is in milliseconds. A thread is written as JSON Lines.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from msgspec import Struct

from sakti.agent.tools import patch
from sakti.agent.tools.context import Outcome
from sakti.core.text import cut_middle, to_one_line
from sakti.core.types import (
    FilePart,
    ImagePart,
    Json,
    Message,
    OutputPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from sakti.store.secrets import mask_secrets

# claude-code's name of each approval mode; it has its own `auto`.
MODES = {"plan": "plan", "ask": "default", "edits": "acceptEdits", "auto": "auto", "full": "bypassPermissions"}
LONGEST = 100_000  # characters of a result that a hook gets

_TOOLS = {
    "bash": "Bash",
    "bash_output": "BashOutput",
    "kill": "KillShell",
    "read": "Read",
    "write": "Write",
    "ls": "LS",
    "glob": "Glob",
    "grep": "Grep",
    "webfetch": "WebFetch",
    "websearch": "WebSearch",
}
# Our and claude-code's names of arguments that differ only in name.
_ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "bash": {"background": "run_in_background"},
    "bash_output": {"id": "bash_id"},
    "kill": {"id": "shell_id"},
    "read": {"path": "file_path"},
    "write": {"path": "file_path"},
    "edit": {"path": "file_path"},
    "grep": {"include": "glob", "ignore_case": "-i", "context": "-C", "limit": "head_limit"},
}
_EDIT = {"old": "old_string", "new": "new_string", "all": "replace_all", "after": "insert_line"}
_FOLDERS = ("ls", "glob", "grep")


class HookCall(Struct, frozen=True):
    """A call as hooks get it: the tool's name, its input, the files in it."""

    name: str
    input: Json
    paths: tuple[str, ...] = ()


def make_payload(
    event: str, session_id: str, transcript: str, cwd: str, mode: str, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the input of a hook: the fields of every event, then its own."""
    return {
        "session_id": session_id,
        "transcript_path": transcript,
        "cwd": cwd,
        "permission_mode": MODES.get(mode, "default"),
        "hook_event_name": event,
        **fields,
    }


def _convert_values(tool: str, fields: dict[str, Any]) -> None:
    """Change the values that claude-code writes in another way."""
    if tool == "bash" and isinstance(seconds := fields.get("timeout"), int):
        fields["timeout"] = seconds * 1_000
    if tool == "grep" and "files_only" in fields:
        fields["output_mode"] = "files_with_matches" if fields.pop("files_only") else "content"


def translate_call(tool: str, arguments: Json, resolve: Callable[[str], str]) -> list[HookCall]:
    """Return a call in the terms of claude-code, once for each file if it changes several.

    `resolve` makes a path absolute.
    """
    if tool == "apply_patch":
        return _convert_patch(arguments, resolve)
    names = _ARGUMENTS.get(tool, {})
    fields = {names.get(k, k): v for k, v in arguments.items()}
    path = arguments.get("path")
    if isinstance(path, str) and (tool in _TOOLS or tool == "edit"):
        fields["path" if tool in _FOLDERS else "file_path"] = resolve(path)
    if tool == "edit":
        return [_convert_edit(fields, resolve(path) if isinstance(path, str) else "")]
    _convert_values(tool, fields)
    paths = (resolve(path),) if isinstance(path, str) else ()
    return [HookCall(_TOOLS.get(tool, tool), fields, paths)]


def _convert_edit(given: Json, path: str) -> HookCall:
    edits = given.pop("edits", None)
    listed: list[Any] = cast("list[Any]", edits) if isinstance(edits, list) else []
    changes = [{_EDIT.get(k, k): v for k, v in cast("Json", e).items()} for e in listed if isinstance(e, dict)]
    paths = (path,) if path else ()
    if len(changes) == 1:
        return HookCall("Edit", {**given, **changes[0]}, paths)
    return HookCall("MultiEdit", {**given, "edits": changes}, paths)


def _convert_patch(arguments: Json, resolve: Callable[[str], str]) -> list[HookCall]:
    text = str(arguments.get("patch", ""))
    named = patch.list_paths(text)
    if not named:
        return [HookCall("apply_patch", dict(arguments))]
    return [HookCall("Edit", {"file_path": (full := resolve(p)), "patch": text}, (full,)) for p in named]


def translate_input(tool: str, given: Json) -> Json:
    """Return a call's input as a hook changed it, with our names; unknown ones stay and are refused.

    A timeout is in milliseconds.
    """
    names = {theirs: name for name, theirs in _ARGUMENTS.get(tool, {}).items()}
    out = {names.get(k, k): v for k, v in given.items()}
    if tool == "bash":
        out.pop("description", None)
        if isinstance(millis := out.get("timeout"), int | float) and not isinstance(millis, bool):
            out["timeout"] = max(1, round(millis / 1_000))
    if tool == "grep" and isinstance(shape := out.pop("output_mode", None), str):
        out["files_only"] = shape != "content"
    if tool == "edit":
        _rename_edits(out)
    return out


def _rename_edits(out: Json) -> None:
    """Give the replacements of an edit our names, the single one of another program too."""
    back = {theirs: name for name, theirs in _EDIT.items()}
    single = {back[k]: out.pop(k) for k in list(out) if k in back}
    listed: Any = out.get("edits")
    if isinstance(listed, list):
        each = cast("list[Any]", listed)
        out["edits"] = [
            {back.get(k, k): v for k, v in cast("Json", e).items()} if isinstance(e, dict) else e for e in each
        ]
    elif single:
        out["edits"] = [single]


def format_response(name: str, call: HookCall, outcome: Outcome) -> Json:
    """Return a tool's result in the shape that claude-code gives it, secrets masked."""
    content = mask_secrets(outcome.content[:LONGEST])
    if name == "bash":
        code = outcome.details.get("exit_code")
        return {"stdout": content, "stderr": "", "interrupted": False, "isImage": False, "exit_code": code}
    path = call.paths[0] if call.paths else ""
    if call.name in ("Write", "Edit", "MultiEdit"):
        return {"filePath": path, "success": not outcome.is_error, "content": content}
    if name == "read":
        return {"type": "text", "file": {"filePath": path, "content": content}}
    return {"content": content, "success": not outcome.is_error}


def name_of(tool: str) -> str:
    """Return claude-code's name of a tool."""
    return {"edit": "Edit"}.get(tool) or _TOOLS.get(tool, tool)


def split_lines(text: str) -> Sequence[str]:
    """Return the lines of a log that are not blank."""
    return [line for line in text.splitlines() if line.strip()]


def format_error(outcome: Outcome) -> str:
    """Return the error of a call, as a hook reads it."""
    return mask_secrets(cut_middle(outcome.content, LONGEST)[0])


def format_input(given: Json) -> str:
    """Return a call's input on one line, for the model."""
    return to_one_line(mask_secrets(json.dumps(given, ensure_ascii=False, default=str)), 400)


def format_transcript(messages: Iterable[Message], cwd: str, resolve: Callable[[str], str]) -> Iterator[str]:
    """Yield one line a message, without thinking, volatile facts and withheld messages."""
    for message in messages:
        content = [block for part in message.parts for block in _iter_blocks(part, resolve)]
        if message.state == "withheld" or message.role == "system" or not content:
            continue
        role = "assistant" if message.role == "assistant" else "user"
        record: dict[str, Any] = {
            "type": role,
            "uuid": message.id,
            "sessionId": message.thread_id,
            "timestamp": datetime.fromtimestamp(message.created_at / 1000, UTC).isoformat().replace("+00:00", "Z"),
            "cwd": cwd,
            "message": {"role": role, "content": content},
        }
        if message.role == "user" and all(b["type"] == "text" for b in content):
            record["message"]["content"] = "\n".join(b["text"] for b in content)
        yield json.dumps(record, default=str) + "\n"


def _iter_blocks(part: Part, resolve: Callable[[str], str]) -> Iterator[dict[str, Any]]:
    match part:
        case TextPart(text) if text.strip():
            yield {"type": "text", "text": text}
        case FilePart(path, text):
            yield {"type": "text", "text": f"@{path}\n{text}"}
        case OutputPart(command, text):
            yield {"type": "text", "text": f"!{command}\n{text}"}
        case ImagePart(name=name):
            yield {"type": "text", "text": f"[image {name}]"}
        case ToolCallPart(call_id, name, arguments):
            for tool_call in translate_call(name, arguments or {}, resolve)[:1]:
                yield {"type": "tool_use", "id": call_id, "name": tool_call.name, "input": tool_call.input}
        case ToolResultPart(call_id, _, content, is_error):
            yield {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        case _:
            return
