"""Write a thread as JSON Lines for hooks, one message a line, in claude-code's format. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from sakti.agent.project.hooks import payload
from sakti.core.types import (
    FilePart,
    ImagePart,
    Message,
    OutputPart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)


def lines(messages: Iterable[Message], cwd: str, resolve: Callable[[str], str]) -> Iterator[str]:
    """Yield one line a message, without thinking, volatile facts and withheld messages."""
    for message in messages:
        content = [block for part in message.parts for block in _blocks(part, resolve)]
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


def _blocks(part: Part, resolve: Callable[[str], str]) -> Iterator[dict[str, Any]]:
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
            for tool_call in payload.translate_call(name, arguments or {}, resolve)[:1]:
                yield {"type": "tool_use", "id": call_id, "name": tool_call.name, "input": tool_call.input}
        case ToolResultPart(call_id, _, content, is_error):
            yield {"type": "tool_result", "tool_use_id": call_id, "content": content, "is_error": is_error}
        case _:
            return
