"""The profile for macOS, as text: rules are read as sandbox-exec reads them, the last one that fits decides."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sakti.agent.sandbox import backends
from sakti.agent.sandbox import sandbox as sandboxes
from sakti.agent.sandbox.boundary import Boundary
from sakti.agent.sandbox.sandbox import SystemSandbox
from tests.fakes import seatbelt as seatbelt_program
from tests.fakes.enclosed import made_place, run

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
TEXT = backends.make_seatbelt_profile(BOUNDARY, Path("/private/tmp/x"), Path('/private/tmp/n"t/proxy'))
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
    assert "network-outbound" not in backends.make_seatbelt_profile(BOUNDARY, Path("/private/tmp/x"))


def test_no_name_ends_a_rule() -> None:
    odd = backends.make_seatbelt_profile(Boundary((Path('/w")(allow default) "'),)), Path("/t"))
    assert "(allow default)" not in odd and all(line.count('"') % 2 == 0 for line in odd.splitlines())
    assert odd.count("(") - odd.count("\\(") == odd.count(")") - odd.count("\\)")


def on_a_mac(tmp_path: Path, stand_in: str) -> SystemSandbox:
    """A sandbox as on macOS, with a program in the place of sandbox-exec."""
    program = tmp_path / "sandbox-exec"
    program.write_text(f"#!/bin/sh\n{stand_in}\n")
    program.chmod(0o755)
    return SystemSandbox(
        made_place(tmp_path), home=tmp_path / "home", state=tmp_path / "state", system="darwin", seatbelt=program
    )


@pytest.fixture
def bubblewrap(tmp_path: Path) -> str:
    program, why = backends.find_bwrap(tmp_path)
    if not program or why:
        pytest.skip("there is no bubblewrap to hold commands")
    return f'exec "{sys.executable}" "{seatbelt_program.__file__}" "{program}" "$@"'


def test_a_profile_that_holds_is_a_whole_sandbox_without_hosts(tmp_path: Path, bubblewrap: str) -> None:
    sandbox = on_a_mac(tmp_path, bubblewrap)
    assert (sandbox.level.name, sandbox.level.own_network) == ("sandboxed", False), sandbox.level.text
    code, said = run(sandbox, "echo x > new && cat .env; echo $TMPDIR; echo x > $TMPDIR/y && echo x > ../out")
    assert (sandbox.workspace / "new").exists() and "inner-secret" not in said and "sakti-tmp-" in said
    assert code != 0 and not (sandbox.home / "out").exists()
    code, _ = run(sandbox, "echo x > other", read_only=True)
    assert code != 0 and not (sandbox.workspace / "other").exists()


@pytest.mark.parametrize(
    ("stand_in", "reason"),
    [
        ('shift 2; exec "$@"', "commands can write outside"),
        ("echo not permitted >&2; exit 71", "not permitted"),
        ("exit 0", "exit code 0"),
    ],
)
def test_a_profile_that_does_not_hold_is_no_sandbox(stand_in: str, reason: str, tmp_path: Path) -> None:
    level = on_a_mac(tmp_path, stand_in).level
    assert level.name == "unsandboxed" and "self-test failed" in level.text and reason in level.text


def test_one_hole_is_enough_to_fail(tmp_path: Path, bubblewrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = backends.make_seatbelt_profile
    monkeypatch.setattr(
        backends,
        "make_seatbelt_profile",
        lambda b, t: "\n".join(r for r in written(b, t).split("\n") if "file-read* file-w" not in r),
    )
    assert "can read files with secrets" in on_a_mac(tmp_path, bubblewrap).level.text


def test_a_self_test_that_cannot_fail_proves_nothing(
    tmp_path: Path, bubblewrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "_SCRIPT", ": > new && echo ran\n")
    level = on_a_mac(tmp_path, bubblewrap).level
    assert level.name == "unsandboxed" and "cannot tell" in level.text


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_a_machine_without_a_sandbox_says_so(system: str, tmp_path: Path) -> None:
    level = SystemSandbox(tmp_path, state=tmp_path / "state", system=system, seatbelt=tmp_path / "nothing").level
    assert level.name == "unsandboxed" and level.reason and not level.holds
