"""Compare two texts for people: unified diffs of bounded size."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from sakti.agent.tools import textfile
from sakti.core.patterns import lazy_pattern

CONTEXT = 3  # lines round each change in a diff
LARGEST_DIFF = 50_000  # lines that are compared
_HUNK = lazy_pattern(r"^@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@$")


def unified_diff(name: str, before: str, after: str) -> str:
    """Compare both texts line by line; a changed line end shows as ␍ at the end of its line."""
    old, new = textfile.bodies(before), textfile.bodies(after)
    if old == new and before != after:
        old, new = _with_ends(before), _with_ends(after)
    start, tail = _common(old, new)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    if len(old) + len(new) > LARGEST_DIFF:
        return f"--- a/{name}\n+++ b/{name}\n@@ lines {start + 1} to {start + len(new)}: too many to compare @@"
    rows = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm="", n=CONTEXT)
    return "\n".join(_HUNK.sub(lambda m: _hunk(m, start), row) for row in rows)


def _hunk(found: re.Match[str], start: int) -> str:
    """Return the header of a hunk, shifted by the lines before the compared part."""
    old, old_size, new, new_size = found.groups(default="")
    return f"@@ -{int(old) + start}{old_size} +{int(new) + start}{new_size} @@"


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many lines at the beginning and end are equal and need no comparing, without context."""
    shortest = min(len(old), len(new))
    head = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    tail = next((i for i in range(shortest - head) if old[-1 - i] != new[-1 - i]), shortest - head)
    return max(0, head - CONTEXT), max(0, tail - CONTEXT)


def _with_ends(text: str) -> list[str]:
    return [line.body + ("␍" if "\r" in line.end else "") for line in textfile.lines(text)]
