"""Keep the evaluated beginning of the prompt on disk: what every thread of a project begins with.

Reading it takes a small machine half a minute, loading what came of it some milliseconds. A kept state is used for the
very text, model file, window and version of the library that it was made with; the library compares the tokens again.
It holds sakti's own prompt and what it says of the project, nothing of a conversation.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

MOST_BYTES = 256 * 1024 * 1024
TIMEOUT = 30.0
LEFT_OVER = 3600.0  # seconds
_FORMAT = 1
_ENDING = ".state"


def key(text: str, model: Path, context: int, version: str) -> str:
    """Return the key of a text's state; it depends on model file, window and library version."""
    about = model.stat()
    parts = [_FORMAT, str(model), about.st_size, about.st_mtime_ns, context, version, text]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def trim(folder: Path, limit: int = MOST_BYTES) -> None:
    """Delete the least recently used states until at most `limit` bytes remain.

    And what processes that crashed have left an hour before the newest.
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
    """States in the private `folder`, at most `limit` bytes; `name_of` names a text's state."""

    folder: Path
    slots: Slots
    name_of: Callable[[str], str]
    limit: int = MOST_BYTES
    _now: str | None = field(default=None)  # the text that what is evaluated now begins with

    def forget(self) -> None:
        """Something else is evaluated from now on."""
        self._now = None

    def prepare(self, texts: Sequence[str], evaluate: Callable[[str], bool]) -> bool:
        """Have the last of `texts`, each the beginning of the next, evaluated.

        By loading it, else by evaluating what is missing and keeping that. `evaluate` returns False where it was
        stopped; then this does.
        """
        if not texts or self._now == texts[-1]:
            return True
        self._now = None
        done = next((n for n in range(len(texts), 0, -1) if self._load(texts[n - 1])), 0)
        for text in texts[done:]:
            if not evaluate(text):
                return False
            self._keep(text)
        self._now = texts[-1]
        return True

    def _load(self, text: str) -> bool:
        """Load the state of `text`.

        A damaged one makes the library crash: its digest is compared first, and it has another name while it is tried,
        so that one which crashes all the same is not tried again.
        """
        for file in self.folder.glob(f"{self.name_of(text)}.*{_ENDING}"):
            tried = file.with_suffix(f".{os.getpid()}.tried")
            with contextlib.suppress(OSError):
                file.replace(tried)
                if _digest(tried) == file.suffixes[-2] and self.slots.restore(tried.name):
                    os.utime(tried)
                    tried.replace(file)
                    return True
                tried.unlink()
        return False

    def _keep(self, text: str) -> None:
        """Store an evaluated prompt; after a failure it is evaluated again next time."""
        name = self.name_of(text)
        partial = self.folder / f"{name}.{os.getpid()}.new"
        with contextlib.suppress(OSError):
            if self.slots.save(partial.name):
                partial.chmod(0o600)
                partial.replace(self.folder / f"{name}{_digest(partial)}{_ENDING}")
                trim(self.folder, self.limit)
            partial.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    """Return a checksum suffix that proves a file complete."""
    with file.open("rb") as content:
        return f".{hashlib.file_digest(content, 'sha256').hexdigest()[:32]}"
