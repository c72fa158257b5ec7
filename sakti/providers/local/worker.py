"""Run the model in a process: `python -m sakti.providers.local.worker MODEL CONTEXT`.

It reads one JSON object a line from stdin and writes one a line to stdout. What the library prints goes to stderr,
which the parent process keeps as the log. The library's server requires a socket: it gets a Unix one in a folder of
its own that is deleted at once, so nothing listens where others could reach it.

In:  {"id": 1, "chat": {...}}   a body of Chat Completions, always streamed
     {"cancel": 1}              stop answering it
Out: {"ready": true, "seconds": 3.1}
     {"id": 1, "progress": [read, total]}   prompt tokens
     {"id": 1, "text": "…"}
     {"id": 1, "done": "stop", "prompt": 90, "cached": 60, "output": 12}
     {"id": 1, "error": "…", "code": 400, "kind": "…"}
     {"fatal": "…"}             the model could not be loaded
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, BinaryIO, TextIO, cast

BATCH = 256  # prompt tokens between two chances to cancel

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    out = _own_stdout()

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        out.flush()

    try:
        started = time.monotonic()
        server = _load(sys.argv[1], int(sys.argv[2]))
    except Exception as e:  # the root of this process: whatever it is, the other side has to hear of it
        send({"fatal": f"{type(e).__name__}: {e}"})
        os._exit(1)
    send({"ready": True, "seconds": round(time.monotonic() - started, 2)})
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    cancelled: set[int] = set()
    threading.Thread(target=_listen, args=(sys.stdin, requests, cancelled), daemon=True).start()
    while True:
        request = requests.get()
        try:
            _answer(server, request, cancelled, send)
        except BrokenPipeError:
            os._exit(0)


def _own_stdout() -> BinaryIO:
    """Reserve the real stdout for our messages; other prints go to the log."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _load(model: str, context: int) -> Any:
    library: Any = importlib.import_module("xllamacpp")  # has no types
    params: Any = library.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.n_batch = BATCH
    params.n_parallel = 1
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    params.cache_ram_mib = 0  # one conversation at a time: its own context is cache enough
    params.api_keys = [secrets.token_hex(16)]
    if os.name != "posix":
        return library.Server(params)
    folder = tempfile.mkdtemp(prefix="sakti-")
    try:
        params.hostnames = [f"{folder}/worker.sock"]  # the ending makes it a Unix socket
        return library.Server(params)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _listen(lines: TextIO, requests: queue.Queue[dict[str, Any]], cancelled: set[int]) -> None:
    """Read messages from stdin; end the process when the parent closes it."""
    for line in lines:
        message = cast("dict[str, Any]", json.loads(line))
        if "cancel" in message:
            cancelled.add(int(message["cancel"]))
        else:
            requests.put(message)
    os._exit(0)


def _answer(server: Any, request: dict[str, Any], cancelled: set[int], send: Send) -> None:
    number = int(request["id"])
    counts: dict[str, Any] = {"prompt": 0, "cached": 0, "output": 0}
    state = {"finish": ""}

    def on_chunk(chunk: dict[str, Any]) -> bool:
        """Send what a chunk holds; return True to make the library stop."""
        if "error" in chunk:
            error = chunk["error"]
            send(
                {
                    "id": number,
                    "error": str(error.get("message")),
                    "code": error.get("code"),
                    "kind": str(error.get("type") or ""),
                }
            )
            state["finish"] = "error"
            return True
        if progress := chunk.get("prompt_progress"):
            send({"id": number, "progress": [progress["processed"], progress["total"]]})
        if timings := chunk.get("timings"):
            counts.update(
                prompt=timings["cache_n"] + timings["prompt_n"],
                cached=timings["cache_n"],
                output=timings["predicted_n"],
            )
        for choice in chunk.get("choices") or ():
            if text := choice["delta"].get("content"):
                send({"id": number, "text": text})
            state["finish"] = choice.get("finish_reason") or state["finish"]
        return number in cancelled

    body = {**request["chat"], "stream": True, "return_progress": True, "timings_per_token": True}
    try:
        server.handle_chat_completions(body, on_chunk)
    except (RuntimeError, ValueError) as e:
        send({"id": number, "error": str(e), "code": 500, "kind": ""})
        return
    if state["finish"] != "error":
        send({"id": number, "done": state["finish"] or "cancelled", **counts})
    cancelled.discard(number)


if __name__ == "__main__":
    main()
