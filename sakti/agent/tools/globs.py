"""Match paths by globs as models write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pathspec


def matcher(pattern: str, root: Path) -> Callable[[str], bool]:
    """Return a test whether a path relative to `root` matches a glob.

    Braces, `./`, `!` and absolute patterns work as models write them; a pattern without a slash is matched by name.
    """
    no = pattern.startswith("!")
    lines: list[str] = []
    for each in braces(pattern.removeprefix("!")):
        one = each.removeprefix("./")
        if one.startswith(f"{root.as_posix()}/"):
            one = "/" + one[len(root.as_posix()) + 1 :]
        lines.append(one.replace("#", r"\#", 1) if one.startswith("#") else one)
    spec = pathspec.GitIgnoreSpec.from_lines(lines)
    return (lambda p: not spec.match_file(p)) if no else spec.match_file


def braces(pattern: str, most: int = 200) -> list[str]:
    """Expand braces: `*.{ts,tsx}` to `*.ts` and `*.tsx`."""
    out, todo = list[str](), [pattern]
    while todo and len(out) + len(todo) <= most:
        one = todo.pop(0)
        inner = re.search(r"\{([^{}]*,[^{}]*)\}", one)
        if inner is None:
            out.append(one)
        else:
            todo += [one[: inner.start()] + choice + one[inner.end() :] for choice in inner[1].split(",")]
    return list(dict.fromkeys([*out, *todo]))
