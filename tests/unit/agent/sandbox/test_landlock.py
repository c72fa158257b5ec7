"""Landlock where namespaces are refused: writing outside, hidden folders, the network and other processes are held."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.sandbox import backends
from sakti.agent.sandbox.boundary import Boundary
from sakti.agent.sandbox.sandbox import SystemSandbox
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import ToolState
from sakti.core.clock import SystemClock, TimeIds
from tests.fakes.enclosed import git, made_place, made_sandbox, refused, run
from tests.fakes.tools import call

pytestmark = pytest.mark.skipif(
    backends.read_landlock_version() < backends.LANDLOCK_LEAST, reason="this kernel has no Landlock to speak of"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(backends, "find_bwrap", lambda _workspace: ("", "bubblewrap is not installed"))
    return made_place(tmp_path)


@pytest.fixture
def sandbox(place: Path, tmp_path: Path) -> SystemSandbox:
    return made_sandbox(place, tmp_path)


def test_it_is_said_to_be_partial_with_what_mends_it(sandbox: SystemSandbox) -> None:
    level = sandbox.level
    assert (level.name, level.holds, level.own_network) == ("partial", False, False)
    assert (
        "Landlock" in level.reason and "bubblewrap is not installed" in level.reason and "apt install" in level.remedy
    )


def test_work_goes_on_as_outside(sandbox: SystemSandbox) -> None:
    git = "git -c user.name=x -c user.email=x@example.org"
    code, said = run(sandbox, f"echo b > b && mkdir -p d/e && mv b d/e && rm a && {git} commit -qam two && git log -1")
    assert code == 0 and "two" in said, said
    code, said = run(sandbox, 'f=$(mktemp) && echo kept > "$f" && cat "$f" /proc/self/comm && cat <<< here; exit 7')
    assert (code, said) == (7, "kept\ncat\nhere\n")
    assert run(sandbox, "echo x > /dev/null; head -c 4 /dev/urandom | wc -c") == (0, "4\n")


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ../.bashrc",
        "echo x >> ../new",
        "truncate -s 0 ../.bashrc",
        "mv ../.bashrc taken",
        "rm ../.bashrc",
        "ln ../.bashrc linked",
        "ln -s ../.bashrc s; echo x > s",
        "mkdir ../folder",
        "cat ../.ssh/id",
        "cp -r ../.ssh taken",
        "ln -s ../.ssh s; cat s/id",
        "ln ../.ssh/id linked; cat linked",
        "cat ../.netrc",
        "echo x > /dev/shm/new",
        "head -c 1 /dev/mem",
        "mknod d b 7 0",
        "unshare -r true",
        "unshare -m true",
        "mount -t tmpfs x sub",
        "chroot . true",
    ],
)
def test_what_is_outside_stays_as_it_is(sandbox: SystemSandbox, command: str) -> None:
    (sandbox.home / ".netrc").write_text("password PRIVATE")
    (sandbox.home / ".bashrc").write_text("mine")
    assert "PRIVATE" not in refused(sandbox, command)
    assert (sandbox.home / ".bashrc").read_text() == "mine"
    assert not {"new", "folder"} & {p.name for p in sandbox.home.iterdir()}


@pytest.mark.parametrize("kind", ["AF_INET, SOCK_STREAM", "AF_INET, SOCK_DGRAM", "AF_INET6, SOCK_STREAM", "AF_UNIX, 1"])
def test_no_socket_is_made(sandbox: SystemSandbox, kind: str) -> None:
    assert "Operation not permitted" in refused(sandbox, f"python3 -c 'from socket import *; socket({kind})'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        refused(sandbox, f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}")
    code, _ = run(sandbox, "python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1)'")
    assert code == 0, "programs talk to what they start"


def test_other_processes_are_neither_read_nor_ended(sandbox: SystemSandbox) -> None:
    mine = os.getpid()
    for command in (f"cat /proc/{mine}/environ", f"ls -l /proc/{mine}/fd/", f"kill -0 {mine}"):
        refused(sandbox, command)
    code, said = run(sandbox, "grep CapBnd /proc/self/status")
    assert code == 0 and said.split()[1].strip("0") == "", "root has no capability left"


def test_a_workspace_that_holds_what_must_be_hidden_has_no_such_sandbox(place: Path, tmp_path: Path) -> None:
    found = SystemSandbox(place.parent, home=place.parent, state=tmp_path / "state").level
    assert found.name == "unsandboxed"
    kept = SystemSandbox(place, own=(place / "own",), home=place.parent, state=tmp_path / "state").level
    assert kept.name == "unsandboxed"


def test_what_restricts_commands_must_not_lie_where_they_write(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.prefix", str(place / "venv"))
    assert SystemSandbox(place, home=place.parent, state=tmp_path / "state").level.name == "unsandboxed"


def test_libraries_of_the_workspace_are_loaded_inside_only(place: Path, tmp_path: Path) -> None:
    temporary = (tmp_path / "tmp", Path("/run"))
    given = {"LD_LIBRARY_PATH": str(place)}
    made = SystemSandbox(place, home=place.parent, state=tmp_path / "state", temporary=temporary, loading=given)
    assert made.level.name == "partial"
    assert run(made, "echo $LD_LIBRARY_PATH") == (0, f"{place}\n")


def test_a_failed_self_test_is_no_sandbox(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = backends.open_landlock_rules
    everything = (Path("/"),)
    monkeypatch.setattr(
        backends, "open_landlock_rules", lambda b, temporary: real(replace(b, write=everything), temporary)
    )
    found = SystemSandbox(place, home=place.parent, state=tmp_path / "state").level
    assert found.name == "unsandboxed" and "bubblewrap" in found.reason


def test_what_is_readable_is_all_but_what_is_away(tmp_path: Path) -> None:
    for name in ("a/b/secret", "a/b/open", "a/other", "c/x"):
        (tmp_path / name).mkdir(parents=True)
    hidden = (tmp_path / "a/b/secret", tmp_path / "c", tmp_path / "c/x")
    found = {str(p) for p in backends.list_readable(Boundary((), hidden=hidden, temporary=()))}
    here = {p.removeprefix(f"{tmp_path}/") for p in found if p.startswith(str(tmp_path))}
    assert here >= {"a/b/open", "a/other"} and not here & {"a", "a/b", "a/b/secret", "c", "c/x"}
    assert not {str(p) for p in (tmp_path, *tmp_path.parents)} & found


def test_no_rule_is_made_for_what_a_command_could_replace_by_a_link(tmp_path: Path) -> None:
    inside, beside = tmp_path / "w" / "AGENTS.md", tmp_path / "python"
    found = backends.list_readable(Boundary((tmp_path / "w",), read_only=(inside, beside), temporary=(tmp_path,)))
    assert beside in (rules := list(found)) and inside not in rules
    assert backends.select_outermost((tmp_path / "w", tmp_path / "w" / "cache", beside)) == [tmp_path / "w", beside]


HOOK = "#!/bin/sh\nexit 0\n"


@pytest.mark.parametrize(
    "command",
    [
        "echo evil > .git/hooks/pre-commit",
        "echo evil >> .git/hooks/commit-msg",
        "rm .git/hooks/commit-msg; ln -s ../../evil .git/hooks/commit-msg",
        "mv .git/hooks/commit-msg .git/hooks/pre-push",
        "chmod +x .git/hooks/commit-msg; cp .git/hooks/commit-msg .git/hooks/post-checkout",
        "git config core.fsmonitor ./evil",
        "git config core.hooksPath .",
        "mkdir -p .git/hooks/pre-commit && rmdir .git/hooks/pre-commit && echo evil > .git/hooks/pre-commit",
    ],
)
def test_hooks_and_settings_in_their_usual_places_are_put_back(sandbox: SystemSandbox, command: str) -> None:
    hooks = sandbox.workspace / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / "commit-msg").write_text(HOOK)
    settings = (sandbox.workspace / ".git" / "config").read_text()
    sandbox.watch.begin(running=False)
    code, said = run(sandbox, command)
    assert code == 0, said
    moved = sandbox.watch.look()
    assert moved and all(new for _, new in moved), moved
    left = {f.name: f for f in hooks.iterdir() if not f.name.endswith(".sample") and ".set-aside-" not in f.name}
    assert set(left) <= {"commit-msg"} and all(f.read_text() == HOOK and not f.is_symlink() for f in left.values())
    assert (sandbox.workspace / ".git" / "config").read_text() == settings
    sandbox.watch.begin(running=False)
    run(sandbox, "true")
    assert sandbox.watch.look() == []


@pytest.mark.parametrize(
    "command",
    [
        "rm .git/hooks/commit-msg",
        "rm -r .git/hooks",
        "mv .git/hooks old",
        "mv .git/hooks old; ln -s ../old .git/hooks",
        "chmod -x .git/hooks/commit-msg",
        "ln -sf /bin/true .git/hooks/commit-msg",
        "echo evil >> checks/lint.sh",
        "rm checks/lint.sh",
        "ln -sf ../../evil .git/hooks/pre-push",
        "echo evil > .githooks/pre-commit",
        "rm .githooks/pre-commit",
        "chmod -x .githooks/pre-commit",
        "ln -sf /bin/true .githooks/pre-commit",
        "echo evil > .githooks/post-commit",
        "echo '[core] fsmonitor = ./evil' >> more.cfg",
        "git config core.hooksPath checks",
        "rm .git/config",
    ],
)
def test_hooks_are_put_back_wherever_they_lie(sandbox: SystemSandbox, command: str) -> None:
    work = sandbox.workspace
    for name in (".git/hooks/commit-msg", ".githooks/pre-commit", "checks/lint.sh"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text(HOOK)
        (work / name).chmod(0o755)
    (work / ".git/hooks/pre-push").symlink_to("../../checks/lint.sh")
    (work / "more.cfg").write_text("[user]\n\tname = x\n")
    git(work, "config", "core.hooksPath", ".githooks")
    git(work, "config", "include.path", "../more.cfg")
    before = hooks_of(work)
    sandbox.watch.begin(running=False)
    code, said = run(sandbox, command)
    assert code == 0 and hooks_of(work) != before, said
    moved = sandbox.watch.look()
    assert moved and all(new for _, new in moved), moved
    assert hooks_of(work) == before
    assert "checks/lint.sh" not in [old for old, _ in moved] or "checks/lint" in command
    sandbox.watch.begin(running=False)
    assert sandbox.watch.look() == []


def hooks_of(work: Path) -> dict[str, tuple[int, bytes]]:
    """What git would run or read, with permissions and texts."""
    folders = [work / ".git" / "hooks", work / ".githooks", work / "checks"]
    hooks = [f for folder in folders if folder.is_dir() for f in folder.iterdir() if ".set-aside-" not in f.name]
    files = [*hooks, work / ".git" / "config", work / "more.cfg", work / ".git" / "hooks"]
    there = [f for f in files if f.suffix != ".sample" and os.path.lexists(f)]
    return {str(f): (f.lstat().st_mode, f.read_bytes() if f.is_file() else b"") for f in there}


def test_a_repository_that_a_command_removes_gets_no_hooks_back(sandbox: SystemSandbox) -> None:
    (sandbox.workspace / ".git" / "hooks").mkdir(exist_ok=True)
    (sandbox.workspace / ".git" / "hooks" / "commit-msg").write_text(HOOK)
    sandbox.watch.begin(running=False)
    assert run(sandbox, "rm -rf .git")[0] == 0
    assert sandbox.watch.look() == [] and not (sandbox.workspace / ".git").exists()


def test_settings_that_run_nothing_stay_changed(sandbox: SystemSandbox) -> None:
    sandbox.watch.begin(running=False)
    run(sandbox, "git config user.name Ann; git config branch.main.remote origin")
    assert sandbox.watch.look() == [] and "Ann" in (sandbox.workspace / ".git" / "config").read_text()


async def test_a_command_of_the_model_is_told_what_stopped_it(sandbox: SystemSandbox, tmp_path: Path) -> None:
    clock, work = SystemClock(), sandbox.workspace
    env = {"PATH": os.environ["PATH"], "HOME": str(sandbox.home)}
    tools = ToolState(work, work, tmp_path / "out", clock, TimeIds(clock), env, sandbox=sandbox)
    done = await call(tools, bash, command="echo x > ../new")
    assert done.is_error and "The sandbox does not permit this. With outside=" in done.content
    assert "reach" not in done.content
    done = await call(tools, bash, command="mkdir -p deep/er && cd deep/er && pwd")
    assert tools.cwd == sandbox.workspace / "deep" / "er", done.content
