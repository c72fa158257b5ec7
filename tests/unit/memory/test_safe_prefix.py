"""Which messages a background observation may read: nothing that a running tool call touches."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sakti.core.types import Message, Part, TextPart, ToolCallPart, ToolResultPart
from sakti.memory import policy


def messages(script: str) -> list[Message]:
    """`u` a prompt, `t` a text of the agent, `c1` a call, `c12` two at once, `r1` the result of call 1."""
    out: list[Message] = []
    for index, word in enumerate(script.split()):
        kind, numbers = word[0], word[1:]
        parts: Sequence[Part] = [TextPart(word)]
        if kind == "c":
            parts = [ToolCallPart(n, "bash", {}) for n in numbers]
        elif kind == "r":
            parts = [ToolResultPart(n, "bash", "done") for n in numbers]
        role = {"u": "user", "r": "tool"}.get(kind, "assistant")
        out.append(Message(word, "t", "w", role, tuple(parts), 0, index))  # pyright: ignore[reportArgumentType]
    return out


@pytest.mark.parametrize(
    ("script", "prefix"),
    [
        ("", ""),
        ("u t", "u t"),
        ("u c1 r1 t", "u c1 r1 t"),
        ("u c1", "u"),  # it runs
        ("u c12 r1", "u"),  # one of two runs: neither the call nor the result that is there goes
        ("u t c1 r1 c2", "u t c1 r1"),
        ("u c1 u", "u c1 u"),  # nobody answered it, and the user went on
        ("u c12 r1 t", "u c12 r1 t"),
        ("u c1 u c2", "u c1 u"),  # the one is over, the other runs
        ("c1", ""),
    ],
)
def test_a_running_call_and_what_follows_it_stay_out(script: str, prefix: str) -> None:
    # all of one moment: what has run is told by the order, not by the clock
    assert [m.id for m in policy.select_safe_buffer_prefix(messages(script))] == prefix.split()
