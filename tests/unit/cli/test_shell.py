"""How the shell's commands end, whatever they are."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.fakes.shell import sakti


@pytest.mark.parametrize("line", [("--help",), ("tasks", "--help"), ("config",)])
def test_a_pipe_that_is_closed_early_ends_a_command_quietly(line: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as out:
        done = subprocess.run(
            [sys.executable, "-m", "sakti", *line], stdout=out, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_group_without_a_command_shows_its_commands() -> None:
    shown = sakti("threads")
    assert shown.exit_code == 2 and " rename " in shown.stdout
    assert sakti("threads", "-h").exit_code == 0
    wrong = sakti("threads", "renmae")
    assert wrong.exit_code == 2 and "Did you mean 'rename'?" in wrong.stderr


def test_what_was_written_wrongly_is_two_and_what_cannot_be_done_one() -> None:
    assert sakti("search").exit_code == 2
    assert sakti("search", "x", "--kind", "wish").exit_code == 2
    assert sakti("db", "purge", "--days", "-1").exit_code == 2
    assert sakti("run", "--output", "xml", "hello").exit_code == 2
    assert sakti("config", "nonsense").exit_code == 2
