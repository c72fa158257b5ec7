"""Explain errors of the SDK, of HTTP and of servers to the user, without the texts of libraries.

An explanation continues a sentence about the server ("it ended before it was ready"), lower case, without a full stop.
"""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from mcp import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from sakti.agent.mcp.messages import UNREADABLE, describe_fault
from sakti.core import http
from sakti.core.errors import SaktiError
from sakti.core.text import one_line

if TYPE_CHECKING:
    from sakti.agent.mcp.servers import McpServer, ServerState

log = logging.getLogger(__name__)

_PATH = re.compile(r"/[^\s:'\"]+")
HTTP_ERROR = "it answered with an HTTP error"
# Beginnings of texts that the SDK, not the server, writes into errors, and what they mean.
_SDK_TEXTS = {
    "Failed to parse": UNREADABLE,
    "SSE stream": "it ended its answer too early",
    "Session terminated": "it ended the session",
    "Not Found": "nothing answers at its address (HTTP 404): check its url",
    "Server returned an error response": HTTP_ERROR,
    "Unexpected content type": "it answered with something else than the protocol: check its url",
    "Unsupported protocol version": "it speaks another version of the protocol than sakti",
    "Invalid structured content": "its structured content does not fit the output schema of the tool",
    "Invalid schema for tool": "the output schema of the tool is not valid",
}


def explain(error: BaseException, server: McpServer) -> str:
    """Return why a server could not be used."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, SaktiError):
        return error.message.removesuffix(".")
    if isinstance(error, MCPError):
        ended = "it ended before it was ready" if is_closed(error) else one_line(error.error.message, 1_000)
        return _translate(error.error.message) or ended.removesuffix(".") or "it answered with an error without a text"
    if isinstance(error, ValidationError):
        return f"its answer {describe_fault(error)}"
    failure = http.explain_failure(urlsplit(server.url).hostname or server.url, error)
    return failure or _explain_other(error, server)


def _explain_other(error: BaseException, server: McpServer) -> str:
    if isinstance(error, TimeoutError):
        return f"it was not ready within {server.startup_timeout:g} s"
    if isinstance(error, OSError):
        return error.strerror or one_line(str(error), 200)
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
    """Return the file that a server in the sandbox did not find, though it exists; "" without one."""
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
