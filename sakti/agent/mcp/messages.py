"""Read messages of servers leniently, and explain the errors of servers, HTTP and the SDK to the user.

A broken message affects neither others nor the server: an unreadable answer ends its call at once, and list entries
that violate the protocol are dropped.

An explanation continues a sentence about the server ("it ended before it was ready"), lower case, without a full stop.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from mcp import MCPError
from mcp.client import Transport
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from mcp_types.methods import parse_server_result
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from sakti.core import http, json_schema
from sakti.core.errors import SaktiError
from sakti.core.text import to_one_line

UNREADABLE = "its answer cannot be read: it is not a message of the protocol"
LISTS = {"tools/list": "tools", "resources/list": "resources", "prompts/list": "prompts"}
_ID = rb'"id"\s*:\s*(-?\d{1,15}|"(?:[^"\\]|\\.){1,100}")\s*'
_FIRST_ID = re.compile(rb'\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?' + _ID + b",")
_LAST_ID = re.compile(rb",\s*" + _ID + rb"\}$")
_HEAD = 400  # bytes of a line that are searched for the fields of its message


def read_message(line: bytes) -> JSONRPCMessage | None:
    """Return the message on a line, or None.

    An unreadable answer becomes an error that ends its call. Lone surrogates and broken UTF-8 are replaced.
    """
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        pass
    try:
        value: Any = json.loads(line.decode("utf-8", "replace"))
        repaired = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, RecursionError):
        return _make_error(_find_id(line))
    try:
        return jsonrpc_message_adapter.validate_json(repaired, by_name=False)
    except ValueError:
        table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        return _make_error(None if "method" in table else table.get("id"))


def _make_error(request_id: Any) -> JSONRPCError | None:
    if isinstance(request_id, bool) or not isinstance(request_id, int | str):
        return None
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=PARSE_ERROR, message=UNREADABLE))


def _find_id(line: bytes) -> Any:
    """Return the id of an answer that is not JSON, None if it is not at its beginning or end."""
    match = _FIRST_ID.match(line[:_HEAD]) or _LAST_ID.search(line[-_HEAD:])
    if match is None or b'"method"' in line[:_HEAD]:
        return None
    return json.loads(match[1].decode("utf-8", "replace"))


class ListScreen:
    """Drops list entries of a server that violate the protocol.

    It filters answers before the SDK reads them, which would reject a whole page for one bad entry. `dropped` describes
    the dropped entries of the last listing, by method.
    """

    def __init__(self) -> None:
        self.dropped: dict[str, list[str]] = {method: [] for method in LISTS}
        self._asked: dict[RequestId, tuple[str, str]] = {}
        self._version = LATEST_HANDSHAKE_VERSION

    def note_request(self, item: SessionMessage) -> None:
        """Remember a request whose answer is a list."""
        message = item.message
        if not isinstance(message, JSONRPCRequest) or message.method not in (*LISTS, "initialize"):
            return
        params: Mapping[str, Any] = message.params or {}
        version = params.get("_meta", {}).get(PROTOCOL_VERSION_META_KEY, self._version)
        self._asked[message.id] = message.method, version
        if message.method in LISTS and not params.get("cursor"):
            self.dropped[message.method] = []

    def screen(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        """Return an item of the stream, without broken entries if it is a list."""
        message = item.message if isinstance(item, SessionMessage) else None
        if not isinstance(message, JSONRPCResponse) or message.id not in self._asked:
            return item
        method, version = self._asked.pop(message.id)
        if method == "initialize":
            self._version = str(message.result.get("protocolVersion", self._version))
        elif isinstance(message.result.get(LISTS[method]), list):
            message.result[LISTS[method]] = self._select(method, version, message.result)
        return item

    def _select(self, method: str, version: str, result: dict[str, Any]) -> list[Any]:
        field = LISTS[method]
        entries = [_repair(method, entry) for entry in result[field]]
        if _find_fault(method, version, {**result, field: []}):
            return entries  # the SDK reports what is wrong with the answer itself
        usable: list[Any] = []
        for entry in entries:
            if fault := _find_fault(method, version, {**result, field: [entry]}):
                name = cast("dict[str, Any]", entry).get("name") if isinstance(entry, dict) else None
                self.dropped[method].append(f"{to_one_line(str(name or f'one of its {field}'), 60)} {fault}")
            else:
                usable.append(entry)
        return usable


def _repair(method: str, entry: Any) -> Any:
    """Return a tool with the type of its input schema, and without an invalid output schema."""
    if method != "tools/list" or not isinstance(entry, dict):
        return entry
    tool = dict(cast("dict[str, Any]", entry))
    if isinstance(tool.get("inputSchema"), dict):
        tool["inputSchema"] = {"type": "object", **tool["inputSchema"]}
    try:
        json_schema.check_schema(tool.get("outputSchema") or {})
    except json_schema.UnusableSchema:
        del tool["outputSchema"]
    return tool


def _find_fault(method: str, version: str, result: dict[str, Any]) -> str:
    """Return the fault of an answer, as the end of a sentence; "" for a valid one."""
    try:
        parse_server_result(method, version, result)
    except ValidationError as e:
        return describe_fault(e)
    except (KeyError, ValueError):
        return ""  # the SDK does not check such an answer, or refuses its version
    except RecursionError:
        return "is nested too deep"
    return ""


def describe_fault(error: ValidationError) -> str:
    """Return which field of an answer is missing or wrong, as the end of a sentence."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    places = [part for part in first["loc"] if isinstance(part, str) and part[:1].islower()]
    fields = [part for part in places if part not in LISTS.values()]
    if not fields:
        return "is no object"
    return f"has {'no' if first['type'] == 'missing' else 'a wrong'} {to_one_line('.'.join(fields), 80)}"


class _ScreenedStream:
    """Stream from or to a server whose items pass the screen."""

    def __init__(self, stream: Any, screen: ListScreen) -> None:
        self._stream, self._screen = stream, screen

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def send(self, item: SessionMessage) -> None:
        self._screen.note_request(item)
        await self._stream.send(item)

    async def receive(self) -> SessionMessage | Exception:
        return self._screen.screen(await self._stream.receive())

    def __aiter__(self) -> _ScreenedStream:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._screen.screen(await anext(self._stream))

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> _ScreenedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


class ScreenedTransport(AbstractAsyncContextManager[Any]):
    """Transport of the SDK whose lists pass a screen."""

    def __init__(self, transport: Transport, screen: ListScreen) -> None:
        self._transport, self._screen = transport, screen

    async def __aenter__(self) -> tuple[Any, Any]:
        reads, writes = await self._transport.__aenter__()
        return _ScreenedStream(reads, self._screen), _ScreenedStream(writes, self._screen)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


if TYPE_CHECKING:
    from sakti.agent.mcp.servers import McpServer, ServerState

log = logging.getLogger(__name__)

_PATH = re.compile(r"/[^\s:'\"]+")
HTTP_ERROR = "it answered with an HTTP error"
# Beginnings of error texts written by the SDK, not the server, and their meanings.
_SDK_TEXTS = {
    "Failed to parse": UNREADABLE,
    "SSE stream": "it ended its answer too early",
    "Session terminated": "it ended the session",
    "Not Found": "nothing answers at its address (HTTP 404): check its url",
    "Server returned an error response": HTTP_ERROR,
    "Unexpected content type": "its answer does not follow the protocol: check its url",
    "Unsupported protocol version": "it speaks a version of the protocol that sakti does not support",
    "Invalid structured content": "its structured content does not match the output schema of the tool",
    "Invalid schema for tool": "the output schema of the tool is not valid",
}


def explain(error: BaseException, server: McpServer) -> str:
    """Return why a server could not be used."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, SaktiError):
        return error.message.removesuffix(".")
    if isinstance(error, MCPError):
        ended = "it ended before it was ready" if is_closed(error) else to_one_line(error.error.message, 1_000)
        return _translate(error.error.message) or ended.removesuffix(".") or "it answered with an error without a text"
    if isinstance(error, ValidationError):
        return f"its answer {describe_fault(error)}"
    failure = http.explain_failure(urlsplit(server.url).hostname or server.url, error)
    return failure or _explain_other(error, server)


def _explain_other(error: BaseException, server: McpServer) -> str:
    if isinstance(error, TimeoutError):
        return f"it was not ready within {server.startup_timeout:g} s"
    if isinstance(error, OSError):
        return error.strerror or to_one_line(str(error), 200)
    text = str(error)
    if "output schema but did not return" in text:
        return "it returned no structured content, though the tool has an output schema"
    if meaning := _translate(text):
        return meaning
    log.warning("MCP server %s: %r", server.name, error)
    return "its answer cannot be used"


def _translate(text: str) -> str:
    return next((meaning for begin, meaning in _SDK_TEXTS.items() if text.startswith(begin)), "")


def find_hidden(line: str) -> str:
    """Return the existing file that a sandboxed server did not find; "" without one."""
    paths = _PATH.findall(line) if "No such file or directory" in line else []
    return paths[-1] if paths and os.path.lexists(paths[-1]) else ""


def is_closed(error: MCPError) -> bool:
    """Return whether the SDK reports the end of a connection; servers use its code for other errors."""
    return error.error.code == CONNECTION_CLOSED and error.error.message == "Connection closed"


def explain_state(state: ServerState) -> str:
    """Return a sentence on why a server takes no calls now, and what to do."""
    name, why = state.server.name, f" ({state.error.removesuffix('.')})" if state.error else ""
    match state.state:
        case "starting" if state.error:
            return f"The MCP server {name} starts again{why}. Call again in a few seconds."
        case "starting":
            return f"The MCP server {name} is still starting. Call again in a few seconds."
        case "needs login":
            return f"The MCP server {name} needs a login: the user can run `sakti mcp login {name}`."
        case "disabled":
            return f"The MCP server {name} is off; the user can turn it on with `/mcp restart {name}`."
        case "failed":
            return f"The MCP server {name} does not run{why}. The user can start it with `/mcp restart {name}`."
        case "ready":
            return f"The MCP server {name} is ready. Call again."
