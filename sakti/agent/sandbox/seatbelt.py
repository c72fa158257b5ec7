"""Say in the language of macOS's sandbox-exec what a boundary is. Pure.

The last rule that fits decides. Paths are real ones (/tmp is /private/tmp there) and compared without case, as the file
system does. It was not run on a Mac yet: the self-test at the start decides whether it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sakti.agent.sandbox.boundary import Boundary

PROGRAM = Path("/usr/bin/sandbox-exec")
_HEAD = """\
(version 1)
(deny default)
(allow process-fork process-exec)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read*)
(allow file-ioctl (regex #"^/dev/tty"))
(allow file-write-data (literal "/dev/null") (literal "/dev/zero") (literal "/dev/stdout") (literal "/dev/stderr"))
(allow mach-lookup (global-name "com.apple.system.logger") (global-name "com.apple.system.opendirectoryd.libinfo"))
"""


def profile(boundary: Boundary, temporary: Path, proxy: Path | None = None) -> str:
    """Return the profile for a boundary.

    `temporary` is a new folder for the command's own files, `proxy` the socket by which it reaches hosts.
    """
    out = [_HEAD.rstrip("\n")]
    out += _rule("allow", "file-write*", "subpath", (*boundary.write, temporary))
    out += _rule("deny", "file-write*", "subpath", boundary.read_only)
    # what keeps its place is neither renamed nor deleted
    out += _rule("deny", "file-write-unlink", "literal", (*boundary.write, *boundary.pinned))
    out += _rule("deny", "file-read* file-write*", "subpath", boundary.hidden)
    out += _rule("deny", "file-read* file-write*", "literal", (*boundary.masked, *boundary.emptied))
    out += _rule("allow", "file-read*", "subpath", boundary.shown)
    if proxy is not None:
        out += [f"(allow network-outbound (remote unix-socket (path-literal {_quote(str(proxy))})))"]
    return "\n".join(out) + "\n"


def _rule(verdict: str, what: str, kind: str, paths: Iterable[Path]) -> list[str]:
    filters = [f"({_without_case(path, kind)})" for path in dict.fromkeys(paths)]
    return [f"({verdict} {what} {' '.join(filters)})"] if filters else []


def _without_case(path: Path, kind: str) -> str:
    """Return a filter that fits a path in any case; `subpath`: and all below it."""
    letters = "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else _escape(c) for c in str(path))
    return f'regex #"^{letters}{"($|/)" if kind == "subpath" else "$"}"'


def _escape(c: str) -> str:
    # the pattern stands between quotes in which nothing can be escaped
    return "." if c in '"\n\r' else re.escape(c) if c in r".^$*+?()[]{}|\\" else c


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
