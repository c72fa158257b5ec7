"""One table: what the judge does is what the README says."""

from __future__ import annotations

from pathlib import Path

from sakti.agent.judge import modes

README = Path(__file__).parents[4] / "README.md"


def test_the_readme_shows_the_table() -> None:
    assert modes.table() in README.read_text("utf-8")


def test_modes_go_from_strict_to_free() -> None:
    for _, verdicts in modes._VERDICTS.values():
        strict = [modes.STRICTNESS.index(v) for v in verdicts]
        assert strict == sorted(strict, reverse=True)
