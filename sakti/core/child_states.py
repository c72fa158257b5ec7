"""State of a child thread: the sign and the words that every line, list and screen shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

RunState: TypeAlias = Literal["running", "finished", "partial", "interrupted"]  # as it is stored
ChildState: TypeAlias = Literal["waiting", RunState]

SIGNS: Mapping[ChildState, str] = {"waiting": "◌", "running": "▸", "finished": "✓", "partial": "◐", "interrupted": "✗"}
RUNS_ELSEWHERE = "This child thread runs in another window: stop it there."
_WORDS: Mapping[ChildState, str] = {
    "waiting": "waiting for a free slot",
    "running": "running",
    "finished": "finished",
    "partial": "ended early",
    "interrupted": "interrupted",
}


def describe_state(state: ChildState, detail: str = "") -> str:
    """Return the words for a state; `detail` is the activity of a child, or the marks of its report."""
    return _WORDS[state] if state in ("waiting", "interrupted") else detail or _WORDS[state]
