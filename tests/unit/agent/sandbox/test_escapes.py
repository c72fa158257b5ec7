"""Real commands in the real sandbox: what they try must not work, and what work needs must."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sakti.agent.sandbox import backends
from sakti.agent.sandbox.sandbox import SystemSandbox
from tests.fakes.enclosed import git, made_place, made_sandbox, refused, run

COMMIT = "git -c user.name=x -c user.email=x@y commit"
KEY = "SANDBOX_TEST_KEY=outside"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return made_place(tmp_path)


@pytest.fixture
def sandbox(place: Path, tmp_path: Path) -> SystemSandbox:
    return made_sandbox(place, tmp_path)


def test_work_goes_on_as_outside(sandbox: SystemSandbox, place: Path) -> None:
    words = f"echo b > b && mkdir -p c/d && mv b c/d && cat c/d/b && git add c && {COMMIT} -qm second"
    code, said = run(sandbox, f"{words} && git log --oneline | wc -l && git checkout -qb other && echo $HOME")
    assert (code, said.split()) == (0, ["b", "2", str(place.parent)])
    assert (place / "c" / "d" / "b").read_text() == "b\n"


def test_an_added_folder_is_held_as_the_workspace(place: Path, tmp_path: Path) -> None:
    library = place.parent / "library"
    (library / "sub").mkdir(parents=True)
    (library / "sub" / ".env").write_text("TOKEN=inner-secret\n")
    git(library, "init", "-q")
    sandbox = made_sandbox(place, tmp_path, added=(library,))
    assert run(sandbox, "echo b > ../library/b && cat ../library/b") == (0, "b\n")
    for command in (
        "echo x > ../library/.git/hooks/post-commit",
        "echo x >> ../library/.git/config",
        "mv ../library/.git ../library/g",
        "cat ../library/sub/.env",
        "mv ../library ../l2",
    ):
        assert "inner-secret" not in refused(sandbox, command)


@pytest.mark.parametrize(
    "command",
    [
        "echo x > ../new",
        "echo x >> ~/.bashrc",
        "ln -s ../.bashrc link && echo x >> link",
        "echo x > .git/hooks/pre-commit",
        "echo x >> .git/config",
        "git config core.pager 'sh -c id'",
        "git config alias.x '!id'",
        "echo x > .git/info/attributes",
        "mv .git g2",
        "mv .git/hooks h",
        "rm -rf .git/hooks && mkdir .git/hooks && echo x > .git/hooks/pre-commit",
        "mv ../work ../work2",
        "rm -rf .git/config",
        "ln -f ../.bashrc .git/config",
        "mv .env e",
        "ln .env h",
        "rm .env",
        "cat .env",
        "cat sub/.env",
        "mv sub s2 && cat s2/.env",
        "tar cf - sub/.env | strings | grep inner-secret",
        "grep -r inner-secret .",
        "cat ~/.ssh/id",
        "ls ~/.ssh | grep id",
    ],
)
def test_files_outside_and_protected_ones_stay_as_they_are(sandbox: SystemSandbox, place: Path, command: str) -> None:
    hooks = sorted(p.name for p in (place / ".git" / "hooks").iterdir())
    config = (place / ".git" / "config").read_text()
    said = refused(sandbox, command)
    assert "inner-secret" not in said and "PRIVATE" not in said
    assert (place.parent / ".bashrc").read_text() == ""
    assert not (place.parent / "new").exists()
    assert sorted(p.name for p in (place / ".git" / "hooks").iterdir()) == hooks
    assert (place / ".git" / "config").read_text() == config


def test_another_name_of_a_secret_file_is_hidden(sandbox: SystemSandbox, place: Path) -> None:
    (place / "plain").hardlink_to(place / ".env")
    (place / "link").symlink_to(".env")
    for name in ("plain", "link"):
        assert "inner-secret" not in refused(sandbox, f"cat {name}")


def test_a_secret_file_is_hidden_as_soon_as_it_is_there(sandbox: SystemSandbox, place: Path) -> None:
    run(sandbox, "true")
    (place / "sub" / "deep").mkdir()
    (place / "sub" / "deep" / "server.key").write_text("inner-secret")
    assert "inner-secret" not in refused(sandbox, "cat sub/deep/server.key")


def test_no_process_of_the_outside_is_seen(sandbox: SystemSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(*KEY.split("="))
    _, said = run(sandbox, "cat /proc/*/environ | tr '\\0' '\\n'; echo; ls -d /proc/[0-9]* | wc -l")
    assert "SANDBOX_TEST_KEY" not in said
    assert int(said.split()[-1]) < 8


@pytest.mark.parametrize(
    "python",
    [
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        *(f"socket.socket({family}, socket.SOCK_STREAM)" for family in (38, 40)),  # alg, vsock
        *(f"socket.socket({family}, socket.SOCK_DGRAM)" for family in (29, 30, 31, 42, 44)),  # can, tipc, bluetooth, …
        "call(467, -100, b'/', 0, 0, 0)",  # open_tree_attr
        "socket.create_connection(('127.0.0.1', PORT), 2)",
        "socket.create_connection(('192.0.2.1', 80), 2)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))",
        "fcntl.ioctl(pty.openpty()[1], 0x5412, b'x')",
        "call(101 if X else 117, 16, 1, 0, 0)",  # ptrace
        "call(272 if X else 97, 0x10000000)",  # unshare
        "call(56 if X else 220, 0x10000000 | 17, 0, 0, 0, 0)",  # clone
        "call(165 if X else 40, b'x', b'/tmp', b'tmpfs', 0, 0)",  # mount
        "call(308 if X else 268, 0, 0)",  # setns
        "call(321 if X else 280, 0, 0, 0)",  # bpf
        "call(425, 1, 0)",  # io_uring_setup
        "call(250 if X else 219, 0, 0, 0, 0, 0)",  # keyctl
        "open('/proc/1/mem', 'rb+').read(1)",
        "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",  # opened only: a hole would change the machine
        "os.open('/proc/sys/kernel/modprobe', os.O_WRONLY)",
        "os.open('/proc/sysrq-trigger', os.O_WRONLY)",
    ],
)
def test_what_leads_out_of_the_namespaces_isrefused(sandbox: SystemSandbox, python: str) -> None:
    head = (
        "import ctypes, fcntl, platform, pty, socket, os\n"
        "X = platform.machine() == 'x86_64'\n"
        "def call(*a):\n"
        "    lib = ctypes.CDLL(None, use_errno=True)\n"
        "    if lib.syscall(*a) < 0: raise OSError(ctypes.get_errno(), 'refused')\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (sandbox.workspace / "try.py").write_text(head + python.replace("PORT", str(port)) + "\nprint('DONE')\n")
        code, said = run(sandbox, "/usr/bin/env python3 try.py || python3 try.py")
    if "not found" in said:
        pytest.skip("no python3 inside")
    assert code != 0 and "DONE" not in said and "Error" in said, said


def test_sockets_of_services_are_not_there(sandbox: SystemSandbox) -> None:
    assert run(sandbox, "ls -A /run")[1].strip() == ""
    refused(sandbox, "test -e /var/run/docker.sock")


def test_a_socket_of_another_program_is_not_reached(sandbox: SystemSandbox, tmp_path: Path) -> None:
    folder = sandbox.home / "agent"
    folder.mkdir()
    connect = "import socket; socket.socket(socket.AF_UNIX).connect('s')"
    with socket.socket(socket.AF_UNIX) as theirs, socket.socket(socket.AF_UNIX) as own:
        for end, place in ((theirs, folder), (own, sandbox.workspace)):
            with contextlib.chdir(place):  # a path of a socket is short
                end.bind(str(place / "s") if len(str(place)) < 90 else "s")
            end.listen()
        paths = backends.parse_sockets(Path("/proc/net/unix").read_text())
        if str(folder / "s") not in paths:
            pytest.skip("the folder's path is too long for a socket")
        assert "refused" in refused(sandbox, f'cd ../agent && {sys.executable} -c "{connect}"').lower()
        assert run(sandbox, f'{sys.executable} -c "{connect}"')[0] == 0


def test_files_with_keys_in_the_home_folder_are_empty_and_those_of_the_system_closed(sandbox: SystemSandbox) -> None:
    (sandbox.home / ".claude").mkdir()
    (sandbox.home / ".config" / "sops").mkdir(parents=True)
    for name in (".claude.json", ".npmrc", ".claude/.credentials.json", ".config/sops/key"):
        (sandbox.home / name).write_text("PRIVATE")
    (sandbox.home / ".pypirc").symlink_to(".claude.json")
    names = ".claude.json .npmrc .claude/.credentials.json .pypirc"
    assert run(sandbox, f"cd && cat {names} && ! ls .config/sops/key && echo read") == (
        0, "read\nls: cannot access '.config/sops/key': No such file or directory\n",
    )  # fmt: skip
    refused(sandbox, "cat /etc/shadow")


def test_libraries_of_the_workspace_are_loaded_inside_only(place: Path, tmp_path: Path) -> None:
    (place / "lib").mkdir()
    (place / "lib" / "libc.so.6").write_text("no library: whoever loads it fails")
    sandbox = made_sandbox(place, tmp_path)
    sandbox.loading = {"LD_LIBRARY_PATH": str(place / "lib")}
    said = refused(sandbox, "true")
    assert said.startswith("bash: error while loading shared libraries"), "bubblewrap itself has started"


def test_a_folder_that_holds_the_home_folder_is_no_whole_sandbox(place: Path, tmp_path: Path) -> None:
    for folder in (place.parent, place.parent.parent):
        sandbox = made_sandbox(folder, tmp_path, place.parent)
        assert (sandbox.level.name, sandbox.level.holds) == ("partial", False)
    refused(sandbox, f"cat {place.parent}/.ssh/id")


def test_a_folder_that_became_a_link_is_not_bound(place: Path, tmp_path: Path) -> None:
    """A command in the background can put a link in the place of a folder while the next command is started."""
    sandbox = made_sandbox(place, tmp_path)
    (place / "n" / ".git" / "hooks").mkdir(parents=True)
    boundary = sandbox.boundary()
    assert place / "n" in boundary.pinned
    with backends.open_bound_paths(boundary) as opened:
        assert {place / "n", place / "n" / ".git" / "hooks"} <= opened.keys()
    shutil.rmtree(place / "n")
    shutil.copytree(place / ".git", place.parent / "theirs" / ".git")
    (place / "n").symlink_to("../theirs")
    with pytest.raises(OSError), backends.open_bound_paths(boundary):
        pass


def test_kill_reaches_nothing_outside(sandbox: SystemSandbox) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        run(sandbox, "kill -9 -1")
        assert other.poll() is None
        other.kill()


def test_a_daemon_ends_with_its_command(sandbox: SystemSandbox, place: Path) -> None:
    run(
        sandbox,
        "setsid -f bash -c 'while :; do echo x >> alive; done' >/dev/null 2>&1; while [ ! -s alive ]; do :; done",
    )
    alive = place / "alive"
    deadline = time.monotonic() + 20
    size = -1
    while size != alive.stat().st_size and time.monotonic() < deadline:
        size = alive.stat().st_size
        time.sleep(0.05)
    assert alive.stat().st_size == size


def test_a_mounted_folder_cannot_be_unmounted(sandbox: SystemSandbox) -> None:
    refused(sandbox, "umount .env || umount -l ~/.ssh")
    refused(sandbox, "mount -t tmpfs x /mnt")
    refused(sandbox, "unshare -r true")


def test_sakti_and_its_python_are_read_only(sandbox: SystemSandbox) -> None:
    refused(sandbox, f"touch {sys.prefix}/x")


def test_exit_codes_come_through(sandbox: SystemSandbox) -> None:
    assert run(sandbox, "exit 7")[0] == 7


def test_a_linked_worktree_commits_and_its_repository_keeps_its_hooks(place: Path, tmp_path: Path) -> None:
    tree = place.parent / "tree"
    git(place, "worktree", "add", "-q", str(tree))
    sandbox = made_sandbox(tree, tmp_path)
    code, said = run(sandbox, f"echo b > b && git add b && {COMMIT} -qm b && git log")
    assert code == 0 and "b" in said
    for command in ("echo x > ../work/.git/hooks/x", "echo 'gitdir: /x' > .git", "mv .git g", "echo x > ../work/a"):
        refused(sandbox, command)


def test_a_git_file_that_names_a_foreign_folder_opens_nothing(place: Path, tmp_path: Path) -> None:
    tree, other = place.parent / "tree", place.parent / "other"
    tree.mkdir()
    other.mkdir()
    (tree / ".git").write_text(f"gitdir: {other}\n")
    (other / "commondir").write_text(".")
    (other / "gitdir").write_text(str(place / ".git"))
    sandbox = made_sandbox(tree, tmp_path)
    refused(sandbox, "echo x > ../other/x")
