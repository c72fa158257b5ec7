"""What the repository promises about itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sakti.cli import shell
from tests.fakes.shell import sakti

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "pyproject.toml",
    "sakti",
    "tests",
    "prompts",
    "themes",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
}


def tracked() -> list[str]:
    import subprocess

    out = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if out.returncode:
        pytest.skip("not a checkout")
    return out.stdout.splitlines()


def test_nothing_else_stands_at_the_top() -> None:
    top = {p.split("/")[0] for p in tracked()}
    assert {t for t in top if not t.startswith(".")} <= ALLOWED


def test_the_readme_gives_the_commands_that_ci_runs() -> None:
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci/run").read_text()
    assert "pip install '.[local]' && sakti local install && sakti" in readme
    assert "pip install -e '.[test]' && pytest -n auto" in readme
    assert re.search(r"pip install -e '\.\[test\]'.* && pytest -n auto", ci)


def test_help_shows_every_command_and_no_other() -> None:
    result = sakti("--help")
    assert result.exit_code == 0
    commands = result.output.partition("─ Chat ─")[2]
    shown = set(re.findall(r"^│ ([a-z]+)  ", commands, re.MULTILINE))
    assert shown == set(shell.list_words())


def test_no_file_of_code_is_a_heap() -> None:
    for path in (ROOT / "sakti").rglob("*.py"):
        assert len(path.read_text("utf-8").splitlines()) <= 600, path
