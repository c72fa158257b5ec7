"""Evaluated prompts on disk: found again for the very same text, model and library; bounded; private."""

from __future__ import annotations

import json
import os
import socketserver
import stat
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from sakti.providers.local import model, worker
from sakti.providers.local.worker import Slots, States

SECRET = "s3cret"


class Server(socketserver.ThreadingUnixStreamServer):
    """Saves what is "evaluated" and loads it again, as the library's server does over HTTP."""

    def __init__(self, address: str, folder: Path) -> None:
        super().__init__(address, Handler)
        self.folder, self.evaluated, self.asked = folder, "", list[tuple[str, str]]()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        action, file = self.path.rpartition("=")[2], self.server.folder / body["filename"]
        self.server.asked.append((action, body["filename"]))
        good = self.headers["Authorization"] == f"Bearer {SECRET}"
        if good and action == "save":
            file.write_text(f"state of {self.server.evaluated}")
        elif good:
            content = file.read_text()
            good = content.startswith("state of ")
            self.server.evaluated = content.removeprefix("state of ")
        self.send_response(200 if good else 400)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the test's output."""

    def address_string(self) -> str:
        return "here"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "prompts"
    made.mkdir()
    return made


@pytest.fixture
def server(tmp_path: Path, folder: Path) -> Iterator[Server]:
    with Server(str(tmp_path / "s"), folder) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


class Run:
    """A run of the program: what it had to evaluate."""

    def __init__(self, server: Server, *, version: str = "1", secret: str = SECRET, limit: int = 10_000) -> None:
        self.server, self.read = server, list[str]()
        weights = server.folder.parent / "m.gguf"
        if not weights.exists():
            weights.write_text("weights")
        slots = Slots(str(server.server_address), secret)
        self.states = States(server.folder, slots, lambda t: worker.compute_state_key(t, weights, 8192, version), limit)

    def evaluate(self, text: str) -> bool:
        self.read.append(text)
        self.server.evaluated = text
        return True

    def prepare(self, *texts: str) -> list[str]:
        assert self.states.prepare(texts, self.evaluate)
        assert not texts or self.server.evaluated == texts[-1]
        return self.read


def test_the_second_run_evaluates_nothing(server: Server) -> None:
    assert Run(server).prepare("rules", "rules project") == ["rules", "rules project"]
    assert Run(server).prepare("rules", "rules project") == []


def test_another_project_has_the_rules_already(server: Server) -> None:
    Run(server).prepare("rules", "rules a")
    assert Run(server).prepare("rules", "rules b") == ["rules b"]


def test_another_library_model_or_text_is_another_state(server: Server) -> None:
    Run(server).prepare("rules")
    assert Run(server, version="2").prepare("rules") == ["rules"]
    assert Run(server).prepare("rules!") == ["rules!"]
    (server.folder.parent / "m.gguf").write_text("other weights")
    assert Run(server).prepare("rules") == ["rules"]
    assert worker.compute_state_key("a", Path(__file__), 1, "v") != worker.compute_state_key(
        "a", Path(__file__), 2, "v"
    )


def test_within_a_run_it_is_asked_once_and_again_after_something_else(server: Server) -> None:
    run = Run(server)
    run.prepare("rules")
    asked = len(server.asked)
    run.prepare("rules")
    assert len(server.asked) == asked
    run.states.forget()
    run.prepare("rules")
    assert server.asked[-1][0] == "restore" and run.read == ["rules"]


def test_what_cannot_be_loaded_is_deleted_and_made_anew(server: Server) -> None:
    Run(server).prepare("rules")
    (file,) = server.folder.iterdir()
    os.truncate(file, 3)
    asked = len(server.asked)
    assert Run(server).prepare("rules") == ["rules"]
    assert [action for action, _ in server.asked[asked:]] == ["save"], "the library never sees it"
    assert Run(server).prepare("rules") == []


def test_a_state_that_makes_the_library_crash_is_tried_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    Run(server).prepare("rules")

    def crash(self: Slots, name: str) -> bool:
        raise SystemExit

    with monkeypatch.context() as context, pytest.raises(SystemExit):
        context.setattr(Slots, "restore", crash)
        Run(server).prepare("rules")
    asked = len(server.asked)
    assert Run(server).prepare("rules") == ["rules"]
    assert [action for action, _ in server.asked[asked:]] == ["save"]
    (left,) = server.folder.glob("*.tried")
    os.utime(left, (0, 0))
    Run(server).prepare("others")
    assert not left.exists()


def test_stopped_means_nothing_kept(server: Server) -> None:
    run = Run(server)
    assert run.states.prepare(["rules"], lambda text: False) is False
    assert list(server.folder.iterdir()) == []


def test_a_server_that_refuses_or_is_not_there_costs_only_time(server: Server, tmp_path: Path) -> None:
    assert Run(server, secret="wrong").prepare("rules") == ["rules"]
    gone = States(server.folder, Slots(str(tmp_path / "nowhere"), SECRET), lambda t: t)
    assert gone.prepare(["rules"], lambda text: True)
    assert list(server.folder.iterdir()) == []


def test_the_oldest_go_and_files_are_private(server: Server) -> None:
    for number in range(6):
        Run(server, limit=60).prepare(f"rules {number}")
        for file in server.folder.iterdir():
            about = file.stat()
            os.utime(file, ns=(about.st_atime_ns - 10**9, about.st_mtime_ns - 10**9))
    assert sum(f.stat().st_size for f in server.folder.iterdir()) <= 60
    assert all(stat.S_IMODE(f.stat().st_mode) == 0o600 for f in server.folder.iterdir())
    assert Run(server).prepare("rules 5") == []
    assert Run(server).prepare("rules 0") == ["rules 0"]


def test_removing_the_model_removes_them(home: Path) -> None:
    model.prompts_folder().mkdir(parents=True)
    (model.prompts_folder() / "x.state").write_text("1234")
    assert model.remove() == 4
    assert not model.prompts_folder().exists()
