"""Run the model in a process: `python -m sakti.providers.local.worker MODEL CONTEXT FOLDER`.

It reads one JSON object a line from stdin and writes one a line to stdout. What the library prints goes to stderr,
which the parent process keeps as the log. The library's server requires a socket: it gets a Unix one in a folder of
its own that is deleted at once, so nothing listens where others could reach it.

In:  {"id": 1, "chat": {...}, "begins": ["…", "…"]}   a body of Chat Completions, always streamed; texts that its
                                system prompt begins with, each the beginning of the next, to be kept in FOLDER
     {"id": 1, "begins": […]}   only evaluate those
     {"cancel": 1}              stop answering it
Out: {"ready": true}
     {"id": 1, "progress": [read, total]}   prompt tokens
     {"id": 1, "begin": [read, total]}      the same while the beginning is evaluated, `total` estimated
     {"id": 1, "text": "…"}
     {"id": 1, "done": "stop", "prompt": 90, "cached": 60, "output": 12}
     {"id": 1, "error": "…", "code": 400, "kind": "…"}
     {"fatal": "…"}             the model could not be loaded
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import importlib
import json
import os
import queue
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from msgspec import Struct, field

MOST_BYTES = 256 * 1024 * 1024  # of all states
TIMEOUT = 30.0  # seconds
LEFT_OVER = 3600.0  # seconds
_FORMAT = 1
_ENDING = ".state"


def compute_state_key(text: str, model: Path, context: int, version: str) -> str:
    """Return the key of a text's state; it depends on model file, window and library version."""
    about = model.stat()
    parts = [_FORMAT, str(model), about.st_size, about.st_mtime_ns, context, version, text]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def trim_states(folder: Path, limit: int = MOST_BYTES) -> None:
    """Delete the least recently used states until at most `limit` bytes remain.

    Also deletes files of crashed processes that are an hour older than the newest one.
    """
    size = 0
    files = [(f.stat(), f) for f in folder.iterdir() if f.is_file()]
    newest = max((about.st_mtime for about, _ in files), default=0.0)
    for about, file in sorted(files, key=lambda f: f[0].st_mtime_ns, reverse=True):
        size += about.st_size
        if size > limit or (file.suffix != _ENDING and newest - about.st_mtime > LEFT_OVER):
            file.unlink(missing_ok=True)


class Slots:
    """Save and load evaluated prompts in the library's server, over its Unix socket."""

    def __init__(self, address: str, secret: str) -> None:
        self._address = address
        self._secret = secret

    def save(self, name: str) -> bool:
        return self._ask("save", name)

    def restore(self, name: str) -> bool:
        return self._ask("restore", name)

    def _ask(self, action: str, name: str) -> bool:
        connection = _StateConnection(self._address)
        headers = {"Authorization": f"Bearer {self._secret}", "Content-Type": "application/json"}
        try:
            connection.request("POST", f"/slots/0?action={action}", json.dumps({"filename": name}), headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class _StateConnection(http.client.HTTPConnection):
    def __init__(self, address: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._address = address

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._address)


class States(Struct):
    """Evaluated beginnings of prompts, at most `limit` bytes in the private `folder`.

    `name_of` names the state of a text. Evaluating the prefix takes a small machine half a minute, loading its state a
    few milliseconds. A state is only used for the text, model file, window and library version that it was made with;
    the library compares the tokens again. It contains sakti's own prompt and its facts about the project, nothing of a
    conversation.
    """

    folder: Path
    slots: Slots
    name_of: Callable[[str], str]
    limit: int = MOST_BYTES
    _evaluated: str | None = field(default=None)  # the prefix of the text being evaluated

    def forget(self) -> None:
        """Forget the current prefix: something else is evaluated from now on."""
        self._evaluated = None

    def prepare(self, texts: Sequence[str], evaluate: Callable[[str], bool]) -> bool:
        """Evaluate the last of `texts`, each a prefix of the next.

        Its state is loaded if stored; otherwise the missing part is evaluated and stored. `evaluate` returns False if
        it was stopped; so does this method.
        """
        if not texts or self._evaluated == texts[-1]:
            return True
        self._evaluated = None
        done = next((n for n in range(len(texts), 0, -1) if self._load(texts[n - 1])), 0)
        for text in texts[done:]:
            if not evaluate(text):
                return False
            self._keep(text)
        self._evaluated = texts[-1]
        return True

    def _load(self, text: str) -> bool:
        """Load the state of `text`.

        A damaged state crashes the library, so its digest is compared first. It is renamed while it is being loaded, so
        that a state that still crashes is not tried again.
        """
        for file in self.folder.glob(f"{self.name_of(text)}.*{_ENDING}"):
            tried = file.with_suffix(f".{os.getpid()}.tried")
            with contextlib.suppress(OSError):
                file.replace(tried)
                if _compute_digest(tried) == file.suffixes[-2] and self.slots.restore(tried.name):
                    os.utime(tried)
                    tried.replace(file)
                    return True
                tried.unlink()
        return False

    def _keep(self, text: str) -> None:
        """Store an evaluated prompt; if that fails, it is evaluated again next time."""
        name = self.name_of(text)
        partial = self.folder / f"{name}.{os.getpid()}.new"
        with contextlib.suppress(OSError):
            if self.slots.save(partial.name):
                partial.chmod(0o600)
                partial.replace(self.folder / f"{name}{_compute_digest(partial)}{_ENDING}")
                trim_states(self.folder, self.limit)
            partial.unlink(missing_ok=True)


def _compute_digest(file: Path) -> str:
    """Return a checksum suffix that proves a file complete."""
    with file.open("rb") as content:
        return f".{hashlib.file_digest(content, 'sha256').hexdigest()[:32]}"


BATCH = 128  # prompt tokens between two chances to cancel

Send = Callable[[dict[str, Any]], None]


def main() -> None:
    out = _reserve_stdout()
    os.umask(0o077)  # nobody else may read files that the library writes

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
        out.flush()

    try:
        server, states = _load(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    except Exception as e:  # top level of this process: the parent must learn of every failure
        send({"fatal": f"{type(e).__name__}: {e}"})
        os._exit(1)
    send({"ready": True})
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    cancelled: set[int] = set()
    threading.Thread(target=_follow_input, args=(sys.stdin, requests, cancelled), daemon=True).start()
    while True:
        request = requests.get()
        try:
            _LocalAnswer(server, states, request, cancelled, send).run()
        except BrokenPipeError:
            os._exit(0)


def _reserve_stdout() -> BinaryIO:
    """Reserve the real stdout for our messages; other prints go to the log."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return out


def _load(model: str, context: int, folder: str) -> tuple[Any, States | None]:
    """Return the library's server and, if `folder` is set, the stored states of prompts."""
    library: Any = importlib.import_module("xllamacpp")  # it has no types
    secret = secrets.token_hex(16)
    params: Any = library.CommonParams()
    params.model.path = model
    params.n_ctx = context
    params.n_batch = BATCH
    params.n_parallel = 1
    params.warmup = False
    params.ui = False
    params.endpoint_slots = False
    params.cache_ram_mib = 0  # one conversation at a time: its own context is cache enough
    params.api_keys = [secret]
    if os.name != "posix":
        return library.Server(params), None
    keeps = bool(folder) and sys.platform == "linux"
    if keeps:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        params.slot_save_path = f"{folder}/"
    place = tempfile.mkdtemp(prefix="sakti-")
    try:
        params.hostnames = [f"{place}/worker.sock"]  # the suffix makes it a Unix socket
        server = library.Server(params)
        if not keeps:
            return server, None
        descriptor = os.open(f"{place}/worker.sock", os.O_PATH)  # only we can reach it once its name is gone
    finally:
        shutil.rmtree(place, ignore_errors=True)
    slots = Slots(f"/proc/self/fd/{descriptor}", secret)
    version = str(getattr(library, "__version__", ""))
    return server, States(Path(folder), slots, lambda text: compute_state_key(text, Path(model), context, version))


def _follow_input(lines: TextIO, requests: queue.Queue[dict[str, Any]], cancelled: set[int]) -> None:
    """Read messages from stdin; end the process when the parent closes it."""
    for line in lines:
        message = cast("dict[str, Any]", json.loads(line))
        if "cancel" in message:
            cancelled.add(int(message["cancel"]))
        else:
            requests.put(message)
    os._exit(0)


class _LocalAnswer:
    """One request: first the prefix of its prompt, then the rest and the model's answer."""

    def __init__(
        self,
        server: Any,
        states: States | None,
        request: dict[str, Any],
        cancelled: set[int],
        send: Send,
    ) -> None:
        self._server, self._states, self._send = server, states, send
        self._number = int(request["id"])
        self._chat: dict[str, Any] | None = request.get("chat")
        self._begins: list[str] = request.get("begins") or []
        self._cancelled = cancelled
        self._counts: dict[str, Any] = {"prompt": 0, "cached": 0, "output": 0}
        self._finish = ""

    def run(self) -> None:
        try:
            if self._prepare() and self._chat is not None:
                if not self._begins and self._states is not None:
                    self._states.forget()
                self._ask(self._chat, self._on_chunk)
        except (RuntimeError, ValueError) as e:
            if self._states is not None:
                self._states.forget()
            self._say(error=str(e), code=500, kind="")
            return
        if self._finish != "error":
            self._say(done=self._finish or "cancelled", **self._counts)
        self._cancelled.discard(self._number)

    def _say(self, **message: Any) -> None:
        self._send({"id": self._number, **message})

    def _ask(self, chat: dict[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        body = {**chat, "stream": True, "return_progress": True, "timings_per_token": True}
        self._server.handle_chat_completions(body, on_chunk)

    def _prepare(self) -> bool:
        """Evaluate the prompt's beginning if it can be stored; False if stopped."""
        return self._states is None or self._states.prepare(self._begins, self._evaluate)

    def _evaluate(self, text: str) -> bool:
        """Evaluate exactly `text`; False if stopped or failed."""
        characters = sum(len(m["content"]) for m in self._chat["messages"]) if self._chat else len(self._begins[-1])
        failed = False

        def on_chunk(chunk: dict[str, Any]) -> bool:
            nonlocal failed
            failed = failed or "error" in chunk
            if progress := chunk.get("prompt_progress"):
                total = round(progress["total"] * max(1.0, characters / len(text)))
                self._say(begin=[progress["processed"], total])
            return failed or self._number in self._cancelled

        system = {"role": "system", "content": text}
        self._ask({"messages": [system], "max_tokens": 1, "cache_prompt": True}, on_chunk)
        if failed:  # the template needs more messages, or the text is too long: the answer will report it
            self._states = None
        return self._number not in self._cancelled and not failed

    def _on_chunk(self, chunk: dict[str, Any]) -> bool:
        """Send the contents of a chunk; return True to make the library stop."""
        if "error" in chunk:
            error = chunk["error"]
            self._say(error=str(error.get("message")), code=error.get("code"), kind=str(error.get("type") or ""))
            self._finish = "error"
            return True
        if progress := chunk.get("prompt_progress"):
            self._say(progress=[progress["processed"], progress["total"]])
        if timings := chunk.get("timings"):
            self._counts.update(
                prompt=timings["cache_n"] + timings["prompt_n"],
                cached=timings["cache_n"],
                output=timings["predicted_n"],
            )
        for choice in chunk.get("choices") or ():
            if text := choice["delta"].get("content"):
                self._say(text=text)
            self._finish = choice.get("finish_reason") or self._finish
        return self._number in self._cancelled


if __name__ == "__main__":
    main()
