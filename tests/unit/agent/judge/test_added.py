"""Folders opened beside the workspace: judged as it is, their secrets and protected files as there."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent.judge.decide import judge
from sakti.agent.judge.policy import Rules
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.sandbox.boundary import OpenFolders, draw_boundary
from sakti.core.config import SessionMode
from tests.fakes.tools import TOOLS


@pytest.fixture
def place(tmp_path: Path) -> WorkspaceView:
    for name in ("project", "library/.git/hooks", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "library" / ".env").write_text("KEY=1\n")
    (tmp_path / "library" / "a.py").write_text("print()\n")
    project = tmp_path / "project"
    return WorkspaceView(project, project, added=(tmp_path / "library",))


@pytest.mark.parametrize(
    ("mode", "tool", "path", "expected"),
    [
        ("ask", "read", "../library/a.py", "allow"),
        ("ask", "grep", "../library", "allow"),
        ("ask", "read", "../library/.env", "deny"),
        ("ask", "read", "../other", "ask"),
        ("ask", "edit", "../library/a.py", "ask"),
        ("edits", "edit", "../library/a.py", "allow"),
        ("edits", "write", "../other/a.py", "ask"),
        ("edits", "write", "../library/.git/hooks/post-commit", "ask"),
        ("plan", "edit", "../library/a.py", "deny"),
    ],
)
def test_files_of_an_added_folder_are_judged_as_the_workspaces(
    place: WorkspaceView, mode: SessionMode, tool: str, path: str, expected: str
) -> None:
    assert judge(TOOLS[tool], {"path": path}, mode=mode, rules=Rules(), place=place).verdict == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat ../library/a.py", "allow"),
        ("cd ../library && cat a.py", "allow"),
        ("cat ../library/.env", "deny"),
        ("cat ../other/a.py", "ask"),
        ("rm -rf ../library", "ask"),
    ],
)
def test_commands_read_an_added_folder_unasked(place: WorkspaceView, command: str, expected: str) -> None:
    assert judge(TOOLS["bash"], {"command": command}, mode="ask", rules=Rules(), place=place).verdict == expected


def test_all_of_an_added_folder_is_never_removed_unasked(place: WorkspaceView) -> None:
    rules = Rules(allow=("bash",))
    asked = judge(TOOLS["bash"], {"command": "rm -rf ../library"}, mode="edits", rules=rules, place=place)
    assert (asked.verdict, asked.rules) == ("ask", ())
    assert judge(TOOLS["bash"], {"command": "rm -rf ../library/x"}, mode="edits", rules=rules, place=place).verdict == (
        "allow"
    )


def test_commands_may_write_there_and_not_where_later_programs_look(place: WorkspaceView, tmp_path: Path) -> None:
    (library,) = place.added
    boundary = draw_boundary(OpenFolders(place.workspace, place.added), home=tmp_path / "home")
    assert library in boundary.write
    assert library / ".git" / "hooks" in boundary.read_only
