from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sakti.store.threads import codec
from tests.e2e.server import Model, serving
from tests.e2e.terminal import BOUND, Terminal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model() -> Iterator[Model]:
    with serving() as model:
        yield model


class Place:
    """A workspace, a home and the model: where the program is started. `database` is read from outside."""

    def __init__(self, folder: Path, home: Path, model: Model, server: Path | None = None) -> None:
        self.folder, self.home, self.model, self.server = folder, home, model, server
        forked = ["-S", "-E", str(Path(__file__).with_name("forked.py")), str(server)]
        self.program = [sys.executable, *(forked if server else ("-m", "sakti"))]
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "OPENAI_BASE_URL": f"{model.url}/v1",
            "OPENAI_API_KEY": "x",
            "SAKTI_DB": str(self.path),
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "x",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
            **{n: os.environ[n] for n in ("PYTHONPATH",) if n in os.environ},
            **{f"XDG_{n}_HOME": str(home / n.lower()) for n in ("CONFIG", "DATA", "STATE", "CACHE")},
        }

    @property
    def path(self) -> Path:
        return self.home / "sakti.db"

    def open(
        self, *arguments: str, model: str = "openai/bench", size: tuple[int, int] = (140, 44), forked: bool = True
    ) -> Terminal:
        """Start sakti in a terminal; with `forked=False` all that it needs is imported as on a user's machine."""
        server = self.server if forked else None
        return Terminal(self.folder, self.env, *arguments, "--model", model, size=size, server=server)

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run one command of the shell to its end."""
        return subprocess.run(
            [*self.program, *arguments],
            cwd=self.folder,
            env=self.env,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=BOUND,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=20)
        connection.create_function("sakti_text", 2, codec.read_text)
        try:
            return connection.execute(sql, values).fetchall()
        finally:
            connection.close()

    def messages(self) -> list[tuple[str, str]]:
        return self.rows("SELECT role, sakti_text(raw_content, parts) FROM messages ORDER BY thread_id, message_index")

    def threads(self) -> list[str]:
        return [id for (id,) in self.rows("SELECT id FROM threads ORDER BY updated_at DESC")]

    def sound(self) -> None:
        """Nothing is broken, and the model was never sent what a real one refuses."""
        assert self.json("db", "check")["ok"]
        assert self.model.wrong == []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the process whose forks are sakti."""
    path = tmp_path_factory.mktemp("forked") / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        process = subprocess.Popen([sys.executable, "-m", "tests.e2e.forked"], stdin=listener, cwd=ROOT)
    yield path
    process.terminate()
    process.wait()


@pytest.fixture
def place(tmp_path: Path, home: Path, model: Model, server: Path) -> Place:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("the queue drains at midnight\n")
    return Place(folder, home, model, server)
