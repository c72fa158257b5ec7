"""One table: the judge does what the help page of approvals says."""

from __future__ import annotations

from pathlib import Path

from sakti.agent.judge import modes

PAGE = Path(__file__).parents[4] / "sakti/help/approvals.md"


def test_the_help_page_shows_the_table_of_modes() -> None:
    assert modes.table() in PAGE.read_text("utf-8")


def test_modes_go_from_strict_to_free() -> None:
    for _, verdicts in modes._VERDICTS.values():
        strict = [modes.STRICTNESS.index(v) for v in verdicts]
        assert strict == sorted(strict, reverse=True)
