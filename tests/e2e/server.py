"""A model server on loopback that speaks Chat Completions and Anthropic Messages, and checks what it is sent."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """One model call's answer. `hold`: after the text is sent nothing more comes until the client hangs up.
    `status`: an HTTP error instead."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    hold: bool = False
    status: int = 200


@dataclass
class Said:
    """One message of a request, whatever the protocol."""

    role: str
    text: str
    calls: list[str] = field(default_factory=list)
    results: dict[str, str] = field(default_factory=dict)


OBSERVATIONS = (
    "<observations>\nDate: Jan 15, 2026\n* 🔴 (09:00) User asked about step {n} of the queue\n"
    "* 🟡 (09:01) The agent read notes.txt\n</observations>\n<current-task>Primary: the queue</current-task>\n"
    "<suggested-response>Go on.</suggested-response>"
)


class Model:
    """What the server answers: `plays[prompt]` by step, for a last user message that contains `prompt`; else "ok"."""

    def __init__(self) -> None:
        self.plays: dict[str, list[Reply]] = {}
        self.url = ""
        self.wrong: list[str] = []  # what no real server would accept
        self.requests: list[list[Said]] = []
        self.observed = 0
        self.observer_holds = False  # it begins an answer and never ends it
        self.holding = threading.Event()
        self._calls = 0
        self._lock = threading.Lock()

    def play(self, prompt: str, *replies: Reply | str) -> None:
        self.plays[prompt] = [Reply(r) if isinstance(r, str) else r for r in replies]

    def answer(self, said: list[Said], *, observer: bool) -> Reply:
        with self._lock:
            if observer:
                self.observed += 1
                return Reply(OBSERVATIONS.format(n=self.observed), hold=self.observer_holds)
            self.requests.append(said)
            self.wrong += problems(said)
            # the newest user message with a known prompt counts
            last, prompt = max(
                (
                    (i, p)
                    for i, m in enumerate(said)
                    if m.role == "user" and not m.results
                    for p in self.plays
                    if p in m.text
                ),
                key=lambda found: (found[0], len(found[1])),
                default=(len(said), ""),
            )
            step = sum(m.role == "assistant" for m in said[last + 1 :])
            replies = self.plays.get(prompt, [Reply("ok")])
            return replies[min(step, len(replies) - 1)]

    def call_id(self) -> str:
        with self._lock:
            self._calls += 1
            return f"call_{self._calls}"


def problems(said: list[Said]) -> list[str]:
    """What the real APIs refuse: empty messages, calls without a result right behind them, results without a call."""
    out: list[str] = []
    open_calls: set[str] = set()
    for m in said:
        if not m.text.strip() and not m.calls and not m.results:
            out.append(f"empty {m.role} message")
        for call_id in m.results:
            if call_id not in open_calls:
                out.append(f"result {call_id} without a call")
            open_calls.discard(call_id)
        if not m.results and open_calls:
            out.append(f"calls without result: {open_calls}")
        open_calls |= set(m.calls)
    if open_calls:
        out.append(f"calls without result at the end: {open_calls}")
    if said and said[-1].role == "assistant":
        out.append("the last message is the assistant's")
    return out


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(_text(c.get("text") or c.get("content") or "") for c in content if isinstance(c, dict))
    return content or ""


def read_chat(body: dict[str, Any]) -> tuple[list[Said], str]:
    said: list[Said] = []
    system = ""
    for m in body["messages"]:
        if m["role"] in ("system", "developer"):
            system += _text(m["content"])
        elif m["role"] == "tool":
            said.append(Said("user", "", results={m["tool_call_id"]: _text(m["content"])}))
        else:
            said.append(Said(m["role"], _text(m.get("content")), [c["id"] for c in m.get("tool_calls") or ()]))
    return said, system


def read_anthropic(body: dict[str, Any]) -> tuple[list[Said], str]:
    said: list[Said] = []
    for m in body["messages"]:
        blocks = m["content"] if isinstance(m["content"], list) else [{"type": "text", "text": m["content"]}]
        results = {b["tool_use_id"]: _text(b.get("content")) for b in blocks if b["type"] == "tool_result"}
        text = "\n".join(b["text"] for b in blocks if b["type"] == "text")
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if results:
            said.append(Said("user", "", results=results))
            if text.strip():
                said.append(Said("user", text))
        else:
            said.append(Said(m["role"], text, calls))
    return said, _text(body.get("system"))


class Handler(BaseHTTPRequestHandler):
    model: Model
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        served = {"id": "bench", "object": "model", "created": 1, "owned_by": "x", "max_model_len": 200_000}
        self._json(200, {"object": "list", "data": [served]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "messages" not in body:
            self._json(404, {"error": {"message": "there is nothing here"}})
            return
        anthropic = self.path.split("?")[0].endswith("/messages")
        said, system = read_anthropic(body) if anthropic else read_chat(body)
        observer = not body.get("tools") and "<observations>" in system
        reply = self.model.answer(said, observer=observer)
        if reply.status != 200:
            self._json(
                reply.status, {"type": "error", "error": {"type": "invalid_request_error", "message": "no such thing"}}
            )
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):  # the client hung up
            (self._anthropic if anthropic else self._chat)(reply)

    def _json(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send(self, value: Any, event: str = "") -> None:
        head = f"event: {event}\n" if event else ""
        text = value if isinstance(value, str) else json.dumps(value)
        self.wfile.write(f"{head}data: {text}\n\n".encode())
        self.wfile.flush()

    def _hold(self) -> None:
        self.model.holding.set()
        self.connection.settimeout(60)
        self.connection.recv(1)

    def _chat(self, reply: Reply) -> None:
        base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "bench"}

        def delta(value: dict[str, Any], finish: str | None = None) -> None:
            self._send({**base, "choices": [{"index": 0, "delta": value, "finish_reason": finish}]})

        delta({"role": "assistant", "content": ""})
        for piece in pieces(reply.text):
            delta({"content": piece})
        if reply.hold:
            return self._hold()
        for i, (name, arguments) in enumerate(reply.calls):
            call = {"index": i, "id": self.model.call_id(), "type": "function"}
            delta({"tool_calls": [{**call, "function": {"name": name, "arguments": ""}}]})
            delta({"tool_calls": [{"index": i, "function": {"arguments": json.dumps(arguments)}}]})
        delta({}, "tool_calls" if reply.calls else "stop")
        self._send(
            {**base, "choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}}
        )
        return self._send("[DONE]")

    def _anthropic(self, reply: Reply) -> None:
        def send(kind: str, **fields: Any) -> None:
            self._send({"type": kind, **fields}, kind)

        send(
            "message_start",
            message={
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "claude",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 100, "output_tokens": 1},
            },
        )
        index = 0
        if reply.text:
            send("content_block_start", index=0, content_block={"type": "text", "text": ""})
            for piece in pieces(reply.text):
                send("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
            if reply.hold:
                return self._hold()
            send("content_block_stop", index=0)
            index = 1
        for name, arguments in reply.calls:
            send(
                "content_block_start",
                index=index,
                content_block={"type": "tool_use", "id": self.model.call_id(), "name": name, "input": {}},
            )
            send(
                "content_block_delta",
                index=index,
                delta={"type": "input_json_delta", "partial_json": json.dumps(arguments)},
            )
            send("content_block_stop", index=index)
            index += 1
        send(
            "message_delta",
            delta={"stop_reason": "tool_use" if reply.calls else "end_turn", "stop_sequence": None},
            usage={"output_tokens": 10},
        )
        return send("message_stop")


def pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), 16):
        yield text[at : at + 16]


@contextmanager
def serving() -> Iterator[Model]:
    model = Model()
    handler = type("ModelHandler", (Handler,), {"model": model})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    model.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
