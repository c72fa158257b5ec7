"""Standard streams that are closed, full, not UTF-8, or stay open, with every kind of command."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.shell import sakti

ODD = "Antwort: é 日本 — fertig"
SAKTI = f"{shlex.quote(sys.executable)} -m sakti"
# of every kind: board, store, documents, reports, help, the chat in its forms
COMMANDS = (
    "--help",
    "tasks list",
    "tasks import -",
    "tasks nope",
    "config --json",
    "run",
    "run --input-format stream-json",
    "",
    "--plain",
    "tour",
)
JSON_COMMANDS = ("tasks list --json", "threads list --json", "config --json", "doctor --json", "tasks export")


@pytest.fixture
def board(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a task whose title no 8-bit encoding holds."""
    monkeypatch.setenv("SAKTI_DB", str(tmp_path / "x.db"))
    (tmp_path / "w").mkdir()
    monkeypatch.chdir(tmp_path / "w")
    assert sakti("tasks", "create", ODD).exit_code == 0
    return tmp_path


def run(line: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of sh in which `sakti` is the program."""
    script = f'sakti() {{ {SAKTI} "$@"; }}\n{line}'
    return subprocess.run(["sh", "-c", script], env=os.environ | env, capture_output=True, check=False, timeout=60)


# neighbours are alike: one half of the commands meets the first, the other half the second
REDIRECTIONS = ("<&-", "0>/dev/null", ">&-", "<&- >&- 2>&-", "2>/dev/full", "2>&-", ">/dev/full", ">/dev/full 2>&1",
                "| head -c 1", "2>&1 | head -c 1")  # fmt: skip


@pytest.mark.parametrize("number", range(len(REDIRECTIONS)))
def test_no_stream_ends_a_command_with_a_traceback(number: int, board: Path) -> None:
    redirection = REDIRECTIONS[number]
    given = "" if redirection.startswith(("<", "0")) else "</dev/null"
    for command in COMMANDS[number % 2 :: 2]:  # half of them: each stream is closed, full or cut for every command
        done = run(f"sakti {command} {given} {redirection}")
        told = (done.stdout + done.stderr).decode("utf-8", "replace")
        assert "Traceback" not in told and "Exception ignored" not in told, (command, told)
        assert done.returncode in (0, 1, 2, 5, 129), (command, done.returncode)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_an_unwritable_error_output_changes_no_exit_code(redirection: str, board: Path) -> None:
    assert run(f"sakti tasks bogus {redirection}").returncode == 2
    assert run(f"sakti tasksx {redirection}").returncode == 2
    done = run(f"sakti run hi {redirection}")
    assert done.returncode == 5, "no model"


@pytest.mark.parametrize("command", ["tasks list", "config --json", "--version", "tasks --help"])
def test_a_full_disk_is_one_sentence(command: str, board: Path) -> None:
    done = run(f"sakti {command} </dev/null >/dev/full")
    assert done.returncode == 1
    assert done.stderr == b"sakti: The disk is full: make room, then run it again.\n"


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-16"])
def test_json_is_utf8_whatever_the_encoding_of_the_output(encoding: str, board: Path) -> None:
    for command in JSON_COMMANDS:
        done = run(f"sakti {command} </dev/null", PYTHONIOENCODING=encoding)
        assert isinstance(json.loads(done.stdout.decode("utf-8")), dict), (command, done.stderr)
    assert ODD in run("sakti tasks list --json", PYTHONIOENCODING=encoding).stdout.decode("utf-8")


@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_text_escapes_what_the_encoding_of_the_output_lacks(encoding: str, board: Path) -> None:
    done = run("sakti tasks list", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\\u65e5\\u672c" in done.stdout and b"fertig" in done.stdout
    for command in ("search 日本", "doctor", "config", "--help", "tasks --help", "nope é日"):
        done = run(f"sakti {command} </dev/null", PYTHONIOENCODING=encoding)
        assert b"Traceback" not in done.stderr and done.stdout + done.stderr, command


POSIX = {"LC_ALL": "POSIX"}


@pytest.mark.parametrize("locale", [POSIX, POSIX | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_a_locale_without_letters_changes_no_text(locale: dict[str, str], board: Path) -> None:
    done = run("sakti tasks create 'né 日' --json", **locale)
    assert json.loads(done.stdout.decode("utf-8"))["task"]["title"] == "né 日", done.stderr
    assert "né 日" in run("sakti tasks list").stdout.decode()
    assert b"Traceback" not in run("sakti search 日 </dev/null", **locale).stderr


@pytest.mark.parametrize(
    ("line", "purpose"),
    [
        ("sakti run -m none/none hello", ", which is added to the prompt"),
        ("sakti -p hello -m none/none", ", which is added to the prompt"),
        ("sakti run -m none/none", ""),
        ("sakti tasks import -", ""),
        ("sakti memory working --update -", ""),
    ],
)
def test_waiting_for_a_pipe_that_stays_open_is_announced(line: str, purpose: str, board: Path) -> None:
    script = f'sakti() {{ {SAKTI} "$@"; }}\n{line}'
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        first = process.stderr.readline().decode()  # comes while standard input is open
        assert first == f"sakti: waiting for the end of standard input{purpose} (`< /dev/null` skips it)\n"
        process.stdin.close()
        process.wait(60)


def test_a_pipe_that_ends_at_once_is_not_announced(board: Path) -> None:
    assert run("echo '' | sakti tasks import -").stderr == b""
