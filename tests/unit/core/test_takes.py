"""What may be written for a setting, in words."""

from __future__ import annotations

import pytest

from sakti.core.config import describe_values, get_meaning, iter_names, list_choices


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ui.notify", "off, bell or desktop"),
        ("ui.mouse", "true or false"),
        ("agent.max_steps", "a whole number above 0"),
        ("memory.observation.buffer_tokens", "a number or false"),
        ("memory.observation.model_settings.temperature", "a number from 0 to 2 or none"),
        ("memory.observation.model", "text, a list of texts or none"),
        ("approval.allow", "a list of texts"),
        ("providers.mine.base_url", "text or none"),
        ("providers.mine.context_window", "a whole number above 0 or none"),
        ("no.such", "none"),
    ],
)
def test_a_setting_says_what_it_takes(name: str, words: str) -> None:
    assert describe_values(name) == words


def test_every_setting_has_a_sentence_and_says_what_it_takes() -> None:
    silent = [n for n in iter_names() if not get_meaning(n).help.endswith(".") or not describe_values(n)]
    assert not silent


def test_choices_are_offered_where_there_are_some() -> None:
    assert list_choices("approval.mode") == ("plan", "ask", "edits", "auto")
    assert list_choices("model") == ()
