"""What is said of a command that is not there."""

from __future__ import annotations

import pytest

from sakti.actions.line import make_unknown_command_error, parse


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/thread", "/thread does not exist. Did you mean /threads?"),
        ("/qqqqqq", "/qqqqqq does not exist. /help lists all commands."),
    ],
)
def test_it_says_what_to_do(typed, said):
    assert make_unknown_command_error(parse(typed)).message.startswith(said.removesuffix("?"))
