"""Parse texts in which models write calls and changes. Pure.

These are heredocs of patches, SEARCH/REPLACE blocks, unified diffs, almost valid JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from sakti.core.errors import ToolError
from sakti.core.patterns import lazy_pattern
from sakti.core.types import Json

_HEREDOC = lazy_pattern(
    r"\s*(?:cd\s+(?P<dir>'[^'\n]*'|\"[^\"\n$`]*\"|[^\s;&|<>$`'\"]+)\s*&&\s*)?apply_?patch\s*<<-?\s*"
    r"(?P<q>['\"]?)(?P<word>\w+)(?P=q)[ \t]*\n(?P<body>.*?)\n(?P=word)\s*",
    re.DOTALL,
)
_ARGUMENT = lazy_pattern(
    r"\s*apply_?patch\s+(?P<q>['\"])(?P<body>\*\*\* Begin Patch\n.*?\*\*\* End Patch)\s*(?P=q)\s*", re.DOTALL
)


def heredoc(command: str) -> tuple[str, str] | None:
    """Return (folder, patch) of a command that only passes a patch to `apply_patch`."""
    found = _HEREDOC.fullmatch(command)
    if found is not None and "*** Begin Patch" in found["body"]:
        return (found["dir"] or "").strip("'\""), found["body"]
    found = _ARGUMENT.fullmatch(command)
    return ("", found["body"]) if found is not None else None


_BLOCK = lazy_pattern(
    r"^(?:<{5,9}|-{5,9}) ?SEARCH[^\n]*\n(?:(?::(?:start|end)_line:[^\n]*\n)+-{5,9}[ \t]*\n)?(.*?)"
    r"^={5,9}[ \t]*\n(.*?)^(?:>{5,9}|\+{5,9}) ?REPLACE[^\n]*$",
    re.DOTALL | re.MULTILINE,
)


def blocks(text: str) -> list[Json]:
    """Parse the replacements of `<<<<<<< SEARCH … ======= … >>>>>>> REPLACE` blocks."""
    return [{"old": old, "new": new} for old, new in _BLOCK.findall(text.replace("\r\n", "\n"))]


def hunks(text: str) -> list[Json]:
    """Parse the replacements of a unified diff, one per hunk."""
    out: list[Json] = []
    for hunk in re.split(r"^@@[^\n]*\n", text.replace("\r\n", "\n"), flags=re.MULTILINE)[1:]:
        rows = [r for r in hunk.split("\n") if r and not r.startswith(("\\", "--- ", "+++ ", "diff "))]
        old = "".join(r[1:] + "\n" for r in rows if r[0] in " -")
        new = "".join(r[1:] + "\n" for r in rows if r[0] in " +")
        out.append({"old": old, "new": new})
    return out


def loaded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError) as e:
        raise ToolError(f"edits is not a list but text that is no JSON: {e}. Give a list of objects.") from e


def parse_leniently(raw: str) -> Json | None:
    """Parse arguments that are almost a JSON object, None where they are not one.

    Accepts line breaks inside strings, a code fence around it, a JSON string of it; truncated text is never
    completed.
    """
    text = raw.strip()
    if fenced := re.fullmatch(r"```\w*\n(.*)\n```", text, re.DOTALL):
        text = fenced[1]
    try:
        value: Any = json.loads(text, strict=False)
        if isinstance(value, str):
            value = json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return None
    return cast("Json", value) if isinstance(value, dict) else None
