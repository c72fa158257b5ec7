"""Parse texts in which models write calls and changes. Pure.

These are heredocs of patches, SEARCH/REPLACE blocks, unified diffs, almost valid JSON.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any, cast

from sakti.core.errors import ToolError
from sakti.core.lazy import lazy_pattern
from sakti.core.types import DEEPEST, Json

_HEREDOC = lazy_pattern(
    r"\s*(?:cd\s+(?P<dir>'[^'\n]*'|\"[^\"\n$`]*\"|[^\s;&|<>$`'\"]+)\s*&&\s*)?apply_?patch\s*<<-?\s*"
    r"(?P<q>['\"]?)(?P<word>\w+)(?P=q)[ \t]*\n(?P<body>.*?)\n(?P=word)\s*",
    re.DOTALL,
)
_ARGUMENT = lazy_pattern(
    r"\s*apply_?patch\s+(?P<q>['\"])(?P<body>\*\*\* Begin Patch\n.*?\*\*\* End Patch)\s*(?P=q)\s*", re.DOTALL
)

# A string, a bracket, or (`odd`) anything else but separators, constants, numbers and names before a colon.
_PIECE = lazy_pattern(
    r'(?P<string>"(?:[^"\\]|\\.)*")|[{}\[\],:]|(?:true|false|null|True|False|None|-?\d[\d.eE+-]*)\b'
    r"|\w+(?=\s*:)|\s+|(?P<odd>.)",
    re.DOTALL,
)


def heredoc(command: str) -> tuple[str, str] | None:
    """Return (folder, patch) of a command that only passes a patch to `apply_patch`."""
    match = _HEREDOC.fullmatch(command)
    if match is not None and "*** Begin Patch" in match["body"]:
        return (match["dir"] or "").strip("'\""), match["body"]
    match = _ARGUMENT.fullmatch(command)
    return ("", match["body"]) if match is not None else None


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
    value = _repair(text)
    if value is None:
        raise ToolError("edits is not a list but text that is not JSON. Give a list of objects.")
    return value


def parse_leniently(raw: str) -> Json | None:
    """Parse arguments that are almost a JSON object, None if they are not one or not all of one.

    Accepts line breaks inside strings, a code fence or words around it, a JSON string of it, braces too many, a comma
    too many. A text that may have been cut is never completed: a file would be written in part.
    """
    value = _repair(raw)
    return cast("Json", value) if isinstance(value, dict) else None


def _repair(text: str, *, inside: bool = False) -> Any:
    """Return the one value that a text holds, None if it is cut, unclear or not the only one."""
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text, strict=False)
        return _repair(value, inside=True) if isinstance(value, str) and not inside else value
    if not _is_one_value(text):
        return None
    import json_repair  # 0.06 s, for a call that is not JSON

    try:
        return json_repair.loads(text, skip_json_loads=True)
    except (ValueError, RecursionError):
        return None


def _is_one_value(text: str) -> bool:
    """Return whether a text holds exactly one object or list, ended, of which only the punctuation is odd.

    Words outside of quotes, single quotes and two texts side by side leave open where a text begins and ends.
    """
    depth = values = 0
    before = ""
    for piece in _PIECE.finditer(text):
        sign = piece[0]
        if sign.isspace() or (not depth and sign not in "{["):
            continue  # outside: words around the value, and braces behind it
        if sign in "{[":
            values += not depth
            depth += 1
        elif sign in "}]":
            depth -= 1
        elif piece["odd"] or (piece["string"] and before):
            return False
        before = piece["string"] or ""
    return values == 1 and not depth


def explain_unreadable(raw: str) -> str:
    """Describe why arguments could not be parsed."""
    try:
        value = json.loads(raw)
    except RecursionError:
        return "are nested too deeply"
    except ValueError as e:
        return f"are not a JSON object ({e})"
    if not isinstance(value, dict):
        return "are not a JSON object"
    return f"are nested deeper than {DEEPEST} levels, or a text in them holds half of a surrogate pair"
