"""The shell's commands as typer reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sakti.actions import registry
from sakti.actions.spec import action, arg, flag, limit, option
from sakti.cli import app, shell
from tests.fakes.shell import sakti


@action(
    arg("task"),
    arg("labels", many=True, default=None),
    option("-p", "--priority", kind="whole", low=0, high=4, default=2),
    option("--meta", many=True),
    option("--status", choices=("open", "closed")),
    option("--form", choices=("a", "b"), many=True),
    option("-o", "--output", kind="path"),
    option("--rate", kind="number", low=0, high=1),
    flag("--force"),
    limit(20),
    shell="try",
    json=False,
)
async def attempt(**values: Any) -> None:
    """Try [everything]."""


NOTHING: dict[str, Any] = {"labels": [], "priority": 2, "meta": [], "status": None, "form": [], "output": None,
                           "rate": None, "force": False, "limit": 20}  # fmt: skip


@pytest.fixture(autouse=True)
def one_more_command(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = shell.find_subject
    monkeypatch.setattr(
        shell, "find_subject", lambda word: registry.Subject((attempt,), ()) if word == "try" else subject(word)
    )


def read(*words: str) -> dict[str, Any]:
    request = app.read_command(["try", *words])
    assert request is not None and request[0] is attempt and request[1].keys() == {a.name for a in attempt.args}
    return {k: v for k, v in request[1].items() if k == "task" or v != NOTHING[k]}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("t", {"task": "t"}),
        ("t a b", {"task": "t", "labels": ["a", "b"]}),
        ("--force t -p 1 a", {"task": "t", "labels": ["a"], "force": True, "priority": 1}),
        ("-p1 t", {"task": "t", "priority": 1}),
        ("--priority=4 t", {"task": "t", "priority": 4}),
        ("t --meta a=b --meta=c=d=e", {"task": "t", "meta": ["a=b", "c=d=e"]}),
        ("-- --force -p", {"task": "--force", "labels": ["-p"]}),
        ("- -o -", {"task": "-", "output": Path("-")}),
        ("t --rate .5 --limit 3", {"task": "t", "rate": 0.5, "limit": 3}),
        ("t --status open --form a --form b", {"task": "t", "status": "open", "form": ["a", "b"]}),
    ],
)
def test_options_and_arguments_stand_in_any_order(words: str, expected: dict[str, Any]) -> None:
    assert read(*words.split()) == expected


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("", "Missing argument 'TASK'. `sakti try --help`"),
        ("t --frce", "No such option: --frce (Possible options: --force, --form, --rate). "),
        ("t --lim 3", "No such option: --lim (Possible options: --limit)"),
        ("t -p", "Option '-p' requires an argument."),
        ("t --force=1", "Option '--force' does not take a value."),
        ("t -p 9", "--priority: '9' is not a whole number, 0 to 4."),
        ("t -p -1", "--priority: '-1' is not a whole number, 0 to 4."),
        ("t --limit x", "--limit: 'x' is not a whole number, 1 or more."),
        ("t --rate nan", "--rate: 'nan' is not a number, 0 to 1."),
        ("t --status stuck", "--status: 'stuck' is not one of open, closed."),
        ("t --form c", "--form: 'c' is not one of a, b."),
    ],
)
def test_a_line_that_cannot_be_read_is_one_error_line(
    words: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as e:
        read(*words.split())
    told = capsys.readouterr()
    assert (e.value.code, told.out) == (2, "")
    assert told.err.startswith("sakti: ") and told.err.count("\n") == 1
    assert error in told.err


def test_help_keeps_square_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.read_command(["try", "-h"]) is None
    assert "Try [everything]." in capsys.readouterr().out


def test_only_the_command_that_was_typed_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    build = app._build_action
    monkeypatch.setattr(app, "_build_action", lambda action, *rest: built.append(action.shell) or build(action, *rest))
    app.read_command(["tasks", "ready"])
    assert built == ["tasks ready"]


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_help_fits_the_terminal(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    for line in (("--help",), ("run", "--help"), ("tasks",), ("search", "--help")):
        assert max(map(len, sakti(*line).stdout.splitlines())) <= int(width), line


@pytest.mark.parametrize(
    "line",
    [
        ["-m", "none/none"],
        ["-c"],
        ["-r", "x"],
        ["-r"],
        ["fix the bug"],
        ["--", "fix"],
        ["-p", "hello"],
        ["-p", "hello", "--output=json"],
    ],
    ids=" ".join,
)
def test_the_chat_and_one_prompt_are_read_without_typer(line: list[str], tmp_path: Path) -> None:
    """Both end at once: the chat has no terminal, the prompt no model."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SAKTI_DB": str(tmp_path / "x.db")}
    code = (
        "import atexit, os, sys\n"
        "atexit.register(lambda: print('modules', *sys.modules))\n"
        "from sakti.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *line],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (1, 2, 5), done.stderr
    loaded = done.stdout.rpartition("modules ")[2].split()
    assert "sakti.cli.start" in loaded
    assert not {m.partition(".")[0] for m in loaded} & {"typer", "click", "pydantic"}
