"""The profile for macOS, as text: rules are read as sandbox-exec reads them, the last one that fits decides."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sakti.agent.sandbox import seatbelt
from sakti.agent.sandbox.boundary import Boundary

HOME, WORK = Path("/Users/me"), Path("/Users/me/work (1)")
BOUNDARY = Boundary(
    write=(WORK,),
    pinned=(WORK / ".git",),
    read_only=(WORK / ".git" / "hooks", WORK / ".git" / "config", WORK / ".sakti"),
    masked=(WORK / ".env",),
    hidden=(HOME / ".ssh", HOME / ".config" / "sakti"),
    shown=(HOME / ".config" / "sakti" / "skills",),
    emptied=(HOME / ".npmrc",),
)
TEXT = seatbelt.profile(BOUNDARY, Path("/private/tmp/x"), Path('/private/tmp/n"t/proxy'))
_RULE = re.compile(r"\((allow|deny) ([a-z*\- ]+?)((?: \(.*\))?)\)$")
_FILTER = re.compile(r'\(regex #"([^"]*)"\)|\((literal|subpath) "([^"]*)"\)')


def allowed(operation: str, path: str) -> bool:
    verdict = False
    for line in TEXT.splitlines():
        if (rule := _RULE.match(line)) is None:
            continue
        wanted = rule[2].split()
        names = any(w in (operation, "default") or (w.endswith("*") and operation.startswith(w[:-1])) for w in wanted)
        filters = _FILTER.findall(rule[3])
        fits = not rule[3] or any(re.search(f, path) if f else path == name for f, _, name in filters)
        if names and fits:
            verdict = rule[1] == "allow"
    return verdict


@pytest.mark.parametrize(
    ("operation", "path", "expected"),
    [
        ("file-read-data", "/usr/lib/x", True),
        ("file-write-data", "/usr/lib/x", False),
        ("file-write-data", f"{WORK}/a", True),
        ("file-write-create", "/private/tmp/x/y", True),
        ("file-write-create", "/private/tmp/xy", False),
        ("file-write-data", "/Users/me/work X1Y/a", False),
        ("file-write-data", f"{HOME}/.bashrc", False),
        ("file-write-data", f"{WORK}/.git/index", True),
        ("file-write-create", f"{WORK}/.git/hooks/pre-commit", False),
        ("file-write-create", f"{WORK}/.GIT/Hooks/pre-commit", False),
        ("file-write-create", f"{WORK}/.git/hooks2", True),
        ("file-write-data", f"{WORK}/.git/config", False),
        ("file-write-data", f"{WORK}/.Sakti/config.toml", False),
        ("file-write-unlink", f"{WORK}/.git", False),
        ("file-write-unlink", f"{WORK}/.git/index", True),
        ("file-write-unlink", f"{WORK}", False),
        ("file-read-data", f"{WORK}/.env", False),
        ("file-read-data", f"{WORK}/.ENV", False),
        ("file-read-data", f"{WORK}/.env.example", True),
        ("file-read-data", f"{HOME}/.ssh/id", False),
        ("file-read-data", f"{HOME}/.ssh2", True),
        ("file-read-data", f"{HOME}/.npmrc", False),
        ("file-read-data", f"{HOME}/.config/sakti/auth", False),
        ("file-read-data", f"{HOME}/.config/sakti/skills/a", True),
        ("file-write-data", f"{HOME}/.config/sakti/skills/a", False),
        ("file-write-data", "/dev/null", True),
        ("network-outbound", "1.2.3.4:443", False),
        ("mach-register", "x", False),
    ],
)
def test_what_a_path_may_do(operation: str, path: str, expected: bool) -> None:
    assert allowed(operation, path) is expected


def test_everything_is_denied_first_and_the_proxy_named_last() -> None:
    lines = TEXT.splitlines()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert lines[-1] == '(allow network-outbound (remote unix-socket (path-literal "/private/tmp/n\\"t/proxy")))'
    assert "network-outbound" not in seatbelt.profile(BOUNDARY, Path("/private/tmp/x"))


def test_no_name_ends_a_rule() -> None:
    odd = seatbelt.profile(Boundary((Path('/w")(allow default) "'),)), Path("/t"))
    assert "(allow default)" not in odd and all(line.count('"') % 2 == 0 for line in odd.splitlines())
    assert odd.count("(") - odd.count("\\(") == odd.count(")") - odd.count("\\)")
