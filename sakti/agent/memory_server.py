"""Serve memory to other agents by the Model Context Protocol over standard input and output.

Only the standard library is imported until the first question: clients give up after a second. Both versions of the
protocol are supported: with a handshake (up to 2025-11-25) and without one (2026-07-28).
"""

from __future__ import annotations

import importlib
import json
import os
import re
import select
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, cast

from sakti.core.errors import SaktiError
from sakti.core.text import quote, show_value
from sakti.version import __version__

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[str, Json, Path], str]  # (tool, arguments, folder of the client) → text

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
ROOTS = "sakti-roots"  # the id of our only request
ROOTS_S = 2.0  # that a client has to name its roots
LONGEST = 1 << 20  # bytes of a message
PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
INSTRUCTIONS = (
    "The user's memory of earlier work: conversations with several coding agents, observations made from them, "
    "and the task board. Search it when an earlier decision, error, name or number may matter, before you ask or guess."
    " All of it is from the past and may be outdated: each line names its source and date."
)


class MemoryServer:
    """One connection: reads messages from `source`, answers to `target`.

    `folder` is the workspace unless the client names a root.
    """

    def __init__(self, source: BinaryIO, target: BinaryIO, folder: Path, answer: Answer) -> None:
        self._source, self._target = source, target
        self._folder, self._answer = folder, answer
        self._buffer = b""
        self._has_roots = False
        self._awaits_roots = False
        self._queue: list[Json] = []  # calls that wait for the roots

    def run(self) -> None:
        """Answer until the client closes its end."""
        try:
            while (line := self._read_line()) is not None:
                if line.strip():
                    self._take(line)
            self._stop_waiting()
        except (BrokenPipeError, KeyboardInterrupt):
            return

    # --- messages -------------------------------------------------------------------------------------------

    def _read_line(self) -> bytes | None:
        """Return the next line, None at the end; calls wait for roots no longer than `ROOTS_S`."""
        while b"\n" not in self._buffer:
            if self._awaits_roots and not select.select([self._source], [], [], ROOTS_S)[0]:
                self._stop_waiting()
                continue
            piece = os.read(self._source.fileno(), 1 << 16)
            if not piece or len(self._buffer) > LONGEST:
                return None
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _take(self, line: bytes) -> None:
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError):
            self._send_error(None, PARSE_ERROR, "This is not JSON.")
            return
        messages = cast("list[Any]", value) if isinstance(value, list) else [value]
        for message in messages or [value]:  # an empty batch is no request
            if isinstance(message, dict):
                self._handle(cast("Json", message))
            else:
                self._send_error(None, INVALID_REQUEST, "A message is a JSON object.")

    def _handle(self, message: Json) -> None:
        method = message.get("method")
        if message.get("id") == ROOTS and method is None:
            self._read_roots(message)
        elif not isinstance(method, str):
            if "result" not in message and "error" not in message:
                self._send_error(message.get("id"), INVALID_REQUEST, "A request names a method.")
        elif "id" not in message:
            self._take_notification(method)
        elif method == "tools/call" and self._awaits_roots:
            self._queue.append(message)
        else:
            self._reply(message, method)

    def _take_notification(self, method: str) -> None:
        """Take a notification."""
        if self._has_roots and method in ("notifications/initialized", "notifications/roots/list_changed"):
            self._awaits_roots = True
            self._send({"id": ROOTS, "method": "roots/list"})

    def _reply(self, message: Json, method: str) -> None:
        params = message.get("params")
        values = _to_dict(params)
        handlers: dict[str, Callable[[Json], Json]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": lambda _: {},
            "tools/list": self._list_tools,
            "tools/call": self._call,
        }
        if method not in handlers:
            self._send_error(message["id"], NO_METHOD, f"The method {quote(method)} is not known.")
            return
        try:
            result = handlers[method](values)
        except SaktiError as e:
            self._send_error(message["id"], INVALID_PARAMS, e.message)
            return
        if VERSION_KEY in _to_dict(values.get("_meta")) or method == "server/discover":
            result = {"resultType": "complete", **result}
        self._send({"id": message["id"], "result": result})

    def _send(self, message: Json) -> None:
        self._target.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode("utf-8", "replace"))
        self._target.write(b"\n")
        self._target.flush()

    def _send_error(self, message_id: Any, code: int, text: str) -> None:
        self._send({"id": message_id, "error": {"code": code, "message": text}})

    # --- methods --------------------------------------------------------------------------------------------

    def _initialize(self, params: Json) -> Json:
        self._has_roots = "roots" in _to_dict(params.get("capabilities"))
        wanted_version = params.get("protocolVersion")
        version = wanted_version if wanted_version in LEGACY else LEGACY[0]
        return {"protocolVersion": version, **_describe_server()}

    def _discover(self, params: Json) -> Json:
        return {"supportedVersions": [MODERN, *LEGACY], **_describe_server()}

    def _list_tools(self, params: Json) -> Json:
        tools: Json = {"tools": [describe_tool(name) for name in TOOLS]}
        is_modern = VERSION_KEY in _to_dict(params.get("_meta"))
        return {**tools, "ttlMs": 3_600_000, "cacheScope": "private"} if is_modern else tools

    def _call(self, params: Json) -> Json:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or name not in TOOLS:
            raise SaktiError(f"There is no tool {show_value(name)}: {', '.join(TOOLS)}.")
        try:
            text, failed = self._answer(name, check_arguments(name, _to_dict(arguments)), self._folder), False
        except SaktiError as e:
            text, failed = e.message, True
        except Exception as e:  # the server goes on with the next question
            text, failed = f"The memory could not be read ({type(e).__name__}): `sakti doctor` says why.", True
        return {"content": [{"type": "text", "text": text}], "isError": failed}

    # --- roots ----------------------------------------------------------------------------------------------

    def _read_roots(self, message: Json) -> None:
        roots = _to_dict(message.get("result")).get("roots")
        for root in cast("list[Any]", roots) if isinstance(roots, list) else []:
            address = urllib.parse.urlsplit(str(_to_dict(root).get("uri", "")))
            folder = Path(urllib.parse.unquote(address.path))
            if address.scheme == "file" and folder.is_dir():
                self._folder = folder
                break
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        """Answer the calls that waited for the roots."""
        self._awaits_roots = False
        queue, self._queue = self._queue, []
        for message in queue:
            self._reply(message, "tools/call")


def _to_dict(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}


def _describe_server() -> Json:
    return {
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "sakti", "title": "sakti memory", "version": __version__},
        "instructions": INSTRUCTIONS,
    }


# --- tools --------------------------------------------------------------------------------------------------

_TEXT: Json = {"type": "string"}
_WHOLE = re.compile(r"\s*(-?[0-9]{1,30})(?:\.0)?\s*")  # some clients send 5.0


def _make_integer_schema(most: int, about: str) -> Json:
    return {"type": "integer", "minimum": 0, "maximum": most, "description": about}


TOOLS: dict[str, Json] = {
    "memory_search": {
        "title": "Search memory",
        "description": (
            "Search all messages, observations and tasks of this workspace, including the imported history of "
            "other coding agents. Use it when an earlier decision, error, name or number may matter. Answers are"
            " quotes with source, date and id; they are past and may be outdated."
        ),
        "required": ["query"],
        "properties": {
            "query": {**_TEXT, "description": 'Words, "a phrase", -word, word*, role:user, origin:codex, path:src/'},
            "kind": {**_TEXT, "enum": ["message", "observation", "reflection", "task", "working_memory"]},
            "since": {**_TEXT, "description": "2026-01-15, yesterday, 7d"},
            "limit": _make_integer_schema(20, "Most hits; default 5"),
            "offset": _make_integer_schema(10_000, "Hits to skip"),
        },
    },
    "memory_read": {
        "title": "Read a message",
        "description": "Read the message of an id from memory_search in full, with its neighbours in the thread.",
        "required": ["id"],
        "properties": {
            "id": _TEXT,
            "before": _make_integer_schema(10, "Messages before it; default 1"),
            "after": _make_integer_schema(10, "Messages after it; default 1"),
        },
    },
    "task_query": {
        "title": "Read the task board",
        "description": (
            "Read the task board of this workspace: `ready` (tasks that can start now), `list`, `show` (needs id),"
            " `search` (needs query)."
        ),
        "required": ["action"],
        "properties": {
            "action": {**_TEXT, "enum": ["ready", "list", "show", "search"]},
            "id": _TEXT,
            "query": _TEXT,
            "status": {**_TEXT, "enum": ["open", "ready", "blocked", "in_progress", "closed", "all"]},
            "limit": _make_integer_schema(20, "Most tasks; default 5"),
        },
    },
}


def describe_tool(name: str) -> Json:
    """Return a tool as a list of tools has it."""
    tool = TOOLS[name]
    schema = {"type": "object", "properties": tool["properties"], "required": tool["required"]}
    hints = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
    title, about = tool["title"], tool["description"]
    return {"name": name, "title": title, "description": about, "inputSchema": schema, "annotations": hints}


def check_arguments(name: str, arguments: Json) -> Json:
    """Return valid arguments of a tool. Raises SaktiError."""
    tool = TOOLS[name]
    for required in tool["required"]:
        if not str(arguments.get(required) or "").strip():
            raise SaktiError(f"{name} needs {quote(required)}.")
    out: Json = {}
    for key, value in arguments.items():
        schema = _to_dict(tool["properties"].get(key))
        if value is None or not schema:
            continue
        out[key] = _check_value(key, value, schema)
    return out


def _check_value(key: str, value: Any, schema: Json) -> Any:
    if schema["type"] == "integer":
        match = _WHOLE.fullmatch(str(value))
        if match is None:
            raise SaktiError(f"{quote(key)} is a whole number.")
        return max(schema["minimum"], min(schema["maximum"], int(match[1])))
    text = str(value)
    if "enum" in schema and text not in schema["enum"]:
        raise SaktiError(f"{quote(key)} is one of {', '.join(schema['enum'])}.")
    return text


def serve(source: BinaryIO, target: BinaryIO, database: Path, *, all_workspaces: bool) -> None:
    """Serve the memory in a database until the client closes its end."""

    def answer(tool: str, arguments: Json, folder: Path) -> str:
        answers: Any = importlib.import_module("sakti.agent.memory_answers")
        return answers.answer(database, tool, arguments, folder, all_workspaces=all_workspaces)

    MemoryServer(source, target, Path.cwd(), answer).run()
