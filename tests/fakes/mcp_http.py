"""A server of the Model Context Protocol over streamable HTTP on loopback, as far as one tool needs it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOL = {"name": "echo", "description": "Echo a text.", "inputSchema": {"type": "object"}}


@contextmanager
def serve(
    token: str = "", refused: str = "", *, late: str = "", stuck: bool = False
) -> Generator[tuple[str, list[str]]]:
    """Serve; yields the URL and the methods that were asked for.

    Requests of the method `refused` and those without `token` get 401. `stuck`: there are sessions, and the request
    that ends one is never answered; the method `late` is, once it came.
    """
    methods: list[str] = []
    ending, served = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            methods.append(request["method"])
            is_allowed = not token or self.headers.get("Authorization") == f"Bearer {token}"
            if not is_allowed or request["method"] == refused:
                self.send_response(401)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if request["method"] == late:
                ending.wait()
            result = _answer(request)
            body = json.dumps({"jsonrpc": "2.0", "id": request.get("id"), **result}).encode() if result else b""
            self.send_response(200 if body else 202)
            self.send_header("Content-Type", "application/json")
            if stuck:
                self.send_header("Mcp-Session-Id", "s1")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            methods.append("DELETE")
            ending.set()
            served.wait()

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", methods
    finally:
        ending.set()
        served.set()
        server.shutdown()
        server.server_close()


def _answer(request: dict[str, Any]) -> dict[str, Any] | None:
    match request["method"]:
        case "initialize":
            info = {"name": "web", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [TOOL]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": f"echo {request['params']['arguments']}"}]}
        case method if "id" in request:
            return {"error": {"code": -32601, "message": f"no method {method}"}}
        case _:
            return None
    return {"result": result}
