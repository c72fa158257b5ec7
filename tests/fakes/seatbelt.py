"""Stands in for sandbox-exec: reads the profile and lets bubblewrap hold what it says.

python seatbelt.py BUBBLEWRAP -p PROFILE PROGRAM ARGUMENT…
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_FILTER = re.compile(r'\(regex #"\^(.*?)(?:\(\$\|/\)|\$)"\)')


# In the order in which one lies over another.
_RULES = (
    ("(allow file-write* ", "--bind"),
    ("(deny file-write-unlink ", "--bind"),
    ("(deny file-write* ", "--ro-bind"),
)


def main(bubblewrap: str, option: str, profile: str, *command: str) -> None:
    assert option == "-p"
    lines = profile.splitlines()
    words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net", "--die-with-parent"]
    for rule, bound in _RULES:
        words += [word for path in _paths(lines, rule) for word in (bound, path, path)]
    for path in _paths(lines, "(deny file-read* file-write* "):
        if Path(path).is_file():
            words += ["--ro-bind", "/dev/null", path]
    os.execv(bubblewrap, [bubblewrap, *words, "--", *command])


def _paths(lines: Sequence[str], rule: str) -> list[str]:
    return [_real(text) for line in lines if line.startswith(rule) for text in _FILTER.findall(line)]


def _real(text: str) -> str:
    """Return the path that a filter without case means."""
    wanted = re.sub(r"\\(.)", r"\1", re.sub(r"\[(.).\]", r"\1", text))
    path = Path("/")
    for part in wanted.strip("/").split("/"):
        path = next(p for p in path.iterdir() if p.name.lower() == part)
    return str(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
