"""Searches of folders outside of a full sandbox run unasked, and leave out the files with secrets."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from msgspec.structs import replace

from sakti.agent.judge.workspace_view import LevelName, WorkspaceView
from tests.unit.agent.judge.conftest import Ask

CANARY = "canary"
FREE = [
    "grep -rn canary .",
    "grep -r canary",
    "grep -rh --include='*' canary .",
    "grep -rl canary . | sort | head -3",
    "for d in src .; do grep -rn canary $d; done",
    "grep -rq canary src || grep -rc canary .",
    "rg canary",
    "rg --hidden -u -g '*' canary .",
    "git grep canary",
]
ASKED = [
    "grep -r canary . -e",
    "grep -re -- canary .",
    "grep -R canary .",
    "timeout 5 grep -r canary .",
    "echo . | xargs grep -r canary",
    "find . -exec grep -r canary {} +",
    "grep -r canary . $(cat a.py)",
]


@pytest.fixture
def searched(secretive: WorkspaceView) -> WorkspaceView:
    root = secretive.workspace
    (root / "hard").unlink()
    for name in (".env", "sub/.env", "prod.env", "Server.KEY", "sub/[x].pem", "node_modules/x/id_rsa", ".ssh/config"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"SECRET {CANARY}\n")
    (root / "a.py").write_text(f"plain {CANARY}\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "-A"], cwd=root, check=True)
    return secretive


@pytest.mark.parametrize("level", ["unsandboxed", "partial"])
def test_a_search_is_free_and_shows_no_secrets(bash: Ask, searched: WorkspaceView, level: LevelName) -> None:
    place = replace(searched, level=level)
    for command in FREE:
        for mode in ("plan", "ask", "edits"):
            decision = bash(command, mode, place)
            assert (decision.verdict, decision.only_reads) == ("allow", True), (command, decision.reason)
        if command.startswith("rg") and shutil.which("rg") is None:
            continue
        ran = subprocess.run(
            ["bash", "-c", decision.command],
            cwd=place.workspace,
            env={"PATH": os.environ["PATH"], "HOME": str(place.workspace.parent)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        shown = ran.stdout + ran.stderr
        assert "SECRET" not in shown and ("a.py" in shown or "plain" in shown), (command, shown)
        assert not any(name in shown for name in (".env", "Server", "pem", "rsa", ".ssh")), (command, shown)


def test_a_search_that_options_cannot_limit_asks(bash: Ask, searched: WorkspaceView) -> None:
    assert [c for c in ASKED if bash(c, "edits", searched).verdict == "allow"] == []
    os.link(searched.workspace / ".env", searched.workspace / "other")
    assert [c for c in FREE if bash(c, "edits", searched).verdict == "allow"] == []


def test_a_search_says_what_it_left_out(bash: Ask, searched: WorkspaceView) -> None:
    for place in (searched, replace(searched, level="sandboxed")):  # where grep would complain of what is masked
        decision = bash("grep -rn canary .", "edits", place)
        assert ".env" in decision.note and decision.command.startswith("grep -rn canary . --exclude=")


def test_a_search_in_a_sandbox_without_secrets_is_left_as_it_is(bash: Ask, place: WorkspaceView) -> None:
    decision = bash("grep -rn canary .", "edits", replace(place, level="sandboxed"))
    assert (decision.verdict, decision.command, decision.note) == ("allow", "", "")
