from __future__ import annotations

import pytest

from sakti.cli.app import COMMANDS
from sakti.cli.route import UsageError, route


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], []),
        (["-c"], ["-c"]),
        (["fix the bug"], ["--prompt=fix the bug"]),
        (["--", "fix", "it"], ["--prompt=fix it"]),
        (["-m", "a/b", "fix the bug"], ["-m", "a/b", "--prompt=fix the bug"]),
        (["-p", "hello", "--output", "json"], ["run", "hello", "--output", "json"]),
        (["-m", "a/b", "-p", "hello"], ["run", "-m", "a/b", "hello"]),
        (["-r"], ["--pick"]),
        (["-r", "login"], ["--resume=login"]),
        (["-r", "-m", "x/y"], ["--pick", "-m", "x/y"]),
        (["search", "a", "b"], ["search", "a", "b"]),
        (["run", "-"], ["run", "-"]),
    ],
)
def test_prompts_stand_where_commands_would(argv: list[str], expected: list[str]) -> None:
    assert route(argv, COMMANDS) == expected


def test_a_single_unknown_word_is_an_error_with_suggestions() -> None:
    with pytest.raises(UsageError, match="Did you mean `sakti search`"):
        route(["serach"], COMMANDS)
    with pytest.raises(UsageError, match="sakti -- fix the bug"):
        route(["fix", "the", "bug"], COMMANDS)
