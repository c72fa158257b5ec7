"""One table: the judge does what the help page of approvals says."""

from __future__ import annotations

import re
from pathlib import Path

from sakti.agent.judge import modes, programs

PAGE = Path(__file__).parents[4] / "sakti/help/approvals.md"


def test_the_help_page_shows_the_table_of_modes() -> None:
    assert modes.table() in PAGE.read_text("utf-8")


def listed(lead: str) -> set[str]:
    """The words that the help page lists behind some words."""
    (words,) = re.findall(rf"- {re.escape(lead)}\s+`([^`]+)`", PAGE.read_text("utf-8"))
    return set(words.split())


def test_the_help_page_names_what_runs_free_without_a_sandbox() -> None:
    names = programs._index_tables()
    reading = {n for n in names if programs.find_program(n).reads is not None}
    assert listed("Programs that read:") == reading, f"it should be: {' '.join(sorted(reading))}"
    tell = {n for n in names if programs.find_program(n).tells_version}
    assert listed("Asked for their version or help only:") == tell, f"it should be: {' '.join(sorted(tell))}"
    commands = programs.find_program("git").commands
    reading = {n for n, c in commands.items() if c.reads is not None or any(x.reads for x in c.commands.values())}
    reading |= {"config", "reflog"}  # judged by their arguments
    assert listed("Commands of git that read or list:") == reading, f"it should be: {' '.join(sorted(reading))}"


def test_modes_go_from_strict_to_free() -> None:
    for _, verdicts in modes._VERDICTS.values():
        strict = [modes.STRICTNESS.index(v) for v in verdicts]
        assert strict == sorted(strict, reverse=True)
