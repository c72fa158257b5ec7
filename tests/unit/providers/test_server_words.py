"""Words of servers as data: each entry is a pattern, and each kind that the code asks for has entries."""

from __future__ import annotations

import re

import pytest

from sakti.providers import errors, omissions, openai_responses, parser, server_words

WORDS = server_words.read()
PATTERNS = [*WORDS.texts.values(), *(v for k, v in WORDS.ends.items() if k not in ("complete", "calls"))]


@pytest.mark.parametrize("entry", sorted({entry for entries in PATTERNS for entry in entries}))
def test_entry_is_a_pattern_that_does_not_match_everything(entry: str) -> None:
    assert re.compile(entry, re.IGNORECASE).search("-") is None


def test_every_pattern_of_the_code_has_entries() -> None:
    patterns = [
        value
        for module in (errors, omissions, openai_responses, parser)
        for value in vars(module).values()
        if type(value).__name__ == "_LazyPattern"
    ]
    assert len(patterns) > len(WORDS.texts)
    assert all(pattern.pattern for pattern in patterns)


def test_first_word_of_an_error_type_decides_its_status() -> None:
    error = errors.from_event(
        {"error": {"type": "rate_limit_server_error", "message": "slow down"}}, errors.ErrorContext("x")
    )
    assert (error.code, error.status) == ("rate_limit", 429)
