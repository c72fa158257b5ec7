"""Every setting says what it means, and the help page of the configuration lists all of them as declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from sakti.agent.settings import format_toml
from sakti.core.config import Config, flatten, get_meaning, iter_names
from sakti.core.config.fields import ProviderSettings
from sakti.core.config.load import replace_setting
from sakti.core.errors import ConfigError

PAGE = Path(__file__).parents[2] / "sakti/help/configuration.md"


def table() -> str:
    values = flatten(Config(providers={"NAME": ProviderSettings()}))
    rows = [(n, format_toml(v) or "not set", get_meaning(n)) for n, v in values.items()]
    lines = [
        f"| `{name}` | `{default}` | {told.help}{f' ({told.bounds})' if told.bounds else ''} |".replace("<=", "≤")
        for name, default, told in rows
    ]
    return "\n".join(["| setting | default | meaning |", "| --- | --- | --- |", *lines, ""])


@pytest.mark.parametrize("name", iter_names())
def test_each_setting_says_in_a_sentence_what_it_means(name: str) -> None:
    told = get_meaning(name)
    assert told.help.endswith(".") and "\n" not in told.help and len(told.help) < 120


def test_the_help_page_lists_every_setting_as_declared() -> None:
    listed = PAGE.read_text("utf-8").partition("## All settings\n\n")[2]
    assert listed == table(), f"it should be:\n{table()}"


@pytest.mark.parametrize("name", [n for n in iter_names() if get_meaning(n).bounds])
def test_a_value_outside_its_bounds_is_refused_by_name(name: str) -> None:
    told = get_meaning(name)
    low = told.above if told.above is not None else told.low
    outside = [low if told.above is not None else low - 1] + ([told.high + 1] if told.high is not None else [])
    for value in outside:
        with pytest.raises(ConfigError, match=f"{name} = .* must be {told.bounds}"):
            replace_setting(Config(), name, value)
