from __future__ import annotations

import pytest

from sakti.cli import shell
from sakti.cli.route import Chat, Command, UsageError, route


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Chat()),
        (["-c", "--debug"], Chat(continue_last=True, debug=True)),
        (["fix the bug"], Chat(prompt="fix the bug")),
        (["--plain", "fix the bug"], Chat(prompt="fix the bug", plain=True)),
        (["--no-save", "fix the bug"], Chat(prompt="fix the bug", no_save=True)),
        (["--no-save", "-p", "hello"], Command(["run", "--no-save", "hello"])),
        (["--", "fix", "it"], Chat(prompt="fix it")),
        (["-m", "a/b", "fix the bug"], Chat(model="a/b", prompt="fix the bug")),
        (["--model=a/b", "-o", "x=1", "--set", "y=2"], Chat(model="a/b", overrides=["x=1", "y=2"])),
        (["-o", "memory.enabled=false"], Chat(overrides=["memory.enabled=false"])),
        (["-p", "hello", "--output", "json"], Command(["run", "hello", "--output", "json"])),
        (["-m", "a/b", "-p", "hello"], Command(["run", "-m", "a/b", "hello"])),
        (["-r"], Chat(resume="")),
        (["-r", "login"], Chat(resume="login")),
        (["--resume=login"], Chat(resume="login")),
        (["-r", "-m", "x/y"], Chat(resume="", model="x/y")),
        (["search", "a", "b"], Command(["search", "a", "b"])),
        (["run", "-"], Command(["run", "-"])),
        (["--help"], Command(["--help"])),
    ],
)
def test_prompts_stand_where_commands_would(argv: list[str], expected: Chat | Command) -> None:
    assert route(argv, shell.subject) == expected


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["serach"], "Did you mean `sakti search`"),
        (["fix", "the", "bug"], "sakti -- fix the bug"),
        (["--modle", "x"], "no option --modle"),
        (["-m"], "needs a value"),
        (["-m", "a/b", "run", "x"], "after the command"),
    ],
)
def test_what_means_nothing_is_one_clear_sentence(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        route(argv, shell.subject)
