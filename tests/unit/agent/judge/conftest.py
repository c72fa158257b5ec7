from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from sakti.agent.judge.decide import Decision, judge
from sakti.agent.judge.policy import Rules
from sakti.agent.judge.workspace_view import WorkspaceView
from tests.fakes.tools import TOOLS

Ask: TypeAlias = Callable[..., Decision]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".bashrc").write_text("x")
    monkeypatch.setenv("HOME", str(home))
    return home.resolve()


@pytest.fixture
def place(tmp_path: Path, home: Path) -> WorkspaceView:
    """A repository with two secret files, a symbolic and a hard link to one of them."""
    workspace = (tmp_path / "w").resolve()
    (workspace / "src").mkdir(parents=True)
    (workspace / "sub").mkdir()
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("[core]\n\tbare = false\n")
    for name in ("a.py", "src/b.py", "Makefile", "conftest.py"):
        (workspace / name).write_text("x = 1\n")
    return WorkspaceView(workspace, workspace, (home / ".local/share/sakti", home / ".config/sakti"))


@pytest.fixture
def secretive(place: WorkspaceView) -> WorkspaceView:
    for name in (".env", "sub/.env", "prod.env"):
        (place.workspace / name).write_text("K=1\n")
    (place.workspace / "link").symlink_to(".env")
    os.link(place.workspace / ".env", place.workspace / "hard")
    return place


@pytest.fixture
def bash(place: WorkspaceView) -> Ask:
    def ask(command: str, mode: str = "ask", where: WorkspaceView = place, **rules: Any) -> Decision:
        return judge(TOOLS["bash"], {"command": command}, mode=mode, rules=Rules(**rules), place=where)  # type: ignore[arg-type]

    return ask
