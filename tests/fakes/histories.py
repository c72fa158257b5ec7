"""Histories of other programs as they write them, small and made of invented texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

START = 1_795_000_000_000  # Unix ms


class ClaudeSession:
    """Session of claude-code that grows line by line; `parent` names the line that the next one hangs on."""

    def __init__(self, root: Path, name: str, cwd: str = "/home/dev/shop", number: int = 0) -> None:
        self.path = root / "projects" / "-home-dev-shop" / f"{name}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.name, self.cwd, self.number, self.parent = name, cwd, number, None

    def add(self, kind: str, message: dict[str, Any], **more: Any) -> str:
        self.number += 1
        uuid = f"{self.name}-{self.number:05d}"
        stamp = f"2026-11-20T10:{self.number // 60 % 60:02d}:{self.number % 60:02d}.000Z"
        line = {"type": kind, "uuid": uuid, "parentUuid": self.parent, "timestamp": stamp, "cwd": self.cwd,
                "sessionId": self.name, "version": "2.1.197", "message": message, **more}  # fmt: skip
        self.write(line)
        self.parent = uuid
        return uuid

    def write(self, line: Any) -> None:
        with self.path.open("a") as file:
            file.write((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n")

    def prompt(self, text: str, **more: Any) -> str:
        return self.add("user", {"role": "user", "content": text}, **more)

    def answer(self, text: str) -> str:
        content = [{"type": "text", "text": text}]
        return self._answer(content, "end_turn")

    def call(self, call_id: str, command: str, name: str = "Bash") -> str:
        return self._answer([{"type": "tool_use", "id": call_id, "name": name, "input": {"command": command}}])

    def _answer(self, content: list[Any], stop: str = "tool_use") -> str:
        message_id = f"msg_{self.name}_{self.number + 1}"
        return self.add("assistant", {"role": "assistant", "id": message_id, "content": content, "stop_reason": stop})

    def result(self, call_id: str, text: str) -> str:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        return self.add("user", {"role": "user", "content": [block]})

    def turn(self, text: str) -> None:
        """Add a prompt, a call, its result and an answer."""
        self.prompt(f"{text}, please")
        call_id = f"call-{self.name}-{self.number}"
        self.call(call_id, f"make {text}")
        self.result(call_id, f"{text}: built")
        self.answer(f"{text} is done.")


def write_codex(
    root: Path, session: str, prompts: list[str], cwd: str = "/home/dev/shop", first: int = 0, **more: Any
) -> Path:
    """Write a session of codex: prompt, call, result, answer for each of `prompts`.

    `first` is the ordinal of the first line, `more` what the line says of the session.
    """
    path = root / "sessions" / "2026" / "11" / "20" / f"rollout-2026-11-20T10-00-00-{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    items: list[dict[str, Any]] = []
    for number, text in enumerate(prompts):
        call = f"call-{number}"
        items += [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": f"think of {text}"}]},
            {"type": "function_call", "name": "exec", "arguments": '{"cmd": "ls"}', "call_id": call},
            {"type": "function_call_output", "call_id": call, "output": f"{text}: listed"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": f"{text}: done"}]},
        ]
    head = {"type": "session_meta", "payload": {"id": session, "cwd": cwd, "cli_version": "0.169.0", **more}}
    lines = [head, *({"type": "response_item", "payload": item} for item in items)]
    with path.open("a") as file:
        for number, line in enumerate(lines, first):
            file.write(json.dumps({"timestamp": "2026-11-20T10:00:00.000Z", "ordinal": number, **line}) + "\n")
    return path


def write_pi(
    root: Path, session: str, entries: list[tuple[str, str, str, Any]], cwd: str = "/home/dev/shop", before: str = ""
) -> Path:
    """Write a session of pi of (id, parent, role, content); `before` is the file of which it is a fork."""
    path = root / "sessions" / "--home-dev-shop--" / f"2026-11-20_{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {"type": "session", "version": 3, "id": session, "cwd": cwd}
    lines: list[dict[str, Any]] = [{**head, "parentSession": before} if before else head]
    for number, (entry, parent, role, content) in enumerate(entries):
        message = {"role": role, "content": content, "timestamp": START + number * 1000}
        lines.append({"type": "message", "id": entry, "parentId": parent or None, "message": message})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
