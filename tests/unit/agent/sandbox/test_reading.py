"""A command that only reads runs where nothing can be written; in plan mode every command does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.judge import commands
from sakti.agent.judge.decide import judge
from sakti.agent.judge.policy import Rules
from sakti.agent.judge.workspace_view import WorkspaceView
from sakti.agent.sandbox import backends
from sakti.agent.sandbox.boundary import Boundary, LevelName
from sakti.agent.sandbox.sandbox import SystemSandbox
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import ToolState
from sakti.core.clock import SystemClock, TimeIds
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.enclosed import git, made_place, made_sandbox, run
from tests.fakes.sandbox import FakeSandbox
from tests.fakes.session import start


@pytest.fixture(params=["bubblewrap", "landlock"])
def sandbox(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemSandbox:
    if request.param == "landlock":
        if backends.read_landlock_version() < backends.LANDLOCK_LEAST:
            pytest.skip("this kernel has no Landlock to speak of")
        monkeypatch.setattr(backends, "find_bwrap", lambda _workspace: ("", "bubblewrap is not installed"))
    added = tmp_path / "added"
    added.mkdir()
    return made_sandbox(made_place(tmp_path), tmp_path, added=(added,))


@pytest.mark.parametrize(
    "command",
    [
        "echo x > new",
        "echo x >> a",
        ": > a",
        "rm a",
        "mv a b",
        "touch sub/new",
        "ln -s a b",
        "mkdir d",
        "echo x > .git/HEAD",
        "echo x > .git/hooks/pre-commit",
        "touch .git/index.lock",
        "rm -rf .git/objects",
        "python3 -c \"open('a', 'r+').truncate(0)\"",
        "python3 -c \"import os; os.rename('a', 'b')\"",
        "git -c user.name=x -c user.email=x@example.org commit --allow-empty -m x",
        "git update-index --assume-unchanged a",
        "echo x > ../new",
        "echo x > ../../added/new",
        "echo x > $PWD/../work/new",
        "cp a /proc/self/cwd/new",
    ],
)
def test_nothing_can_be_written(sandbox: SystemSandbox, command: str) -> None:
    before = everything(sandbox)
    code, said = run(sandbox, f"({command}) && echo DONE", read_only=True)
    assert "DONE" not in said and code != 0, said
    assert everything(sandbox) == before


def everything(sandbox: SystemSandbox) -> list[tuple[str, int, int, bytes]]:
    paths = sorted(p for root in (sandbox.home, *sandbox.added) for p in root.rglob("*"))
    return [(str(p), (s := p.lstat()).st_mode, s.st_ino, p.read_bytes() if p.is_file() else b"") for p in paths]


def test_reading_goes_on_as_ever(sandbox: SystemSandbox, tmp_path: Path) -> None:
    work = sandbox.workspace
    os.utime(work / "a", (1_000_000_000, 1_000_000_000))  # so that git wants to refresh its index
    (work / "b").write_text("b\n")
    git(work, "add", "b")
    (work / "b").write_text("c\n")
    code, said = run(sandbox, "git status --short && git diff && git log --oneline && git stash list", read_only=True)
    assert code == 0 and "AM b" in said and "+c" in said and "first" in said, said
    code, said = run(
        sandbox,
        f"export TMPDIR=${{TMPDIR:-{tmp_path}/tmp}}; grep -rn a . --include=a; seq 300000 | sort -R | wc -l",
        read_only=True,
    )
    assert code == 0 and "./a:1:a" in said and "300000" in said, said


def test_secret_files_are_hidden_where_nothing_can_be_written(sandbox: SystemSandbox) -> None:
    _, said = run(sandbox, "cat .env sub/.env; cat ../.ssh/id; ls", read_only=True)
    assert "inner-secret" not in said and "PRIVATE" not in said and "sub" in said


def test_folders_for_the_commands_own_notes_can_be_written(sandbox: SystemSandbox, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    code, said = run(sandbox, f"echo x > {notes}/cwd", read_only=True, shown=(notes,))
    assert code == 0 and (notes / "cwd").read_text() == "x\n", said


async def test_the_current_folder_carries_over(sandbox: SystemSandbox, tmp_path: Path) -> None:
    clock, work = SystemClock(), sandbox.workspace
    env = {"PATH": os.environ["PATH"], "HOME": str(sandbox.home)}
    tools = ToolState(work, work, tmp_path / "out", clock, TimeIds(clock), env, sandbox=sandbox)
    reading = tools.make_context("call-1", "t", "m")
    reading.read_only = True
    done = await bash(reading, {"command": "cd sub && pwd; echo x > new"})
    assert tools.cwd == work / "sub", done.content
    assert not (work / "sub" / "new").exists()
    await bash(tools.make_context("call-2", "t", "m"), {"command": "echo x > new"})
    assert (work / "sub" / "new").exists()


async def test_in_plan_mode_tests_run_and_the_result_says_why_they_cannot_write(
    sandbox: SystemSandbox, tmp_path: Path
) -> None:
    place = WorkspaceView(sandbox.workspace, sandbox.workspace, level="sandboxed")

    def verdict(command: str, level: LevelName = "sandboxed") -> str:
        judged = judge(bash, {"command": command}, mode="plan", rules=Rules(), place=replace(place, level=level))
        return judged.verdict

    assert [verdict(c) for c in ("pytest -q", "frobnicate", "touch x", "git commit -m x")] == [
        "allow", "ask", "deny", "allow"
    ]  # fmt: skip
    assert [verdict("pytest -q", level) for level in ("partial", "unsandboxed")] == ["deny", "deny"]
    clock, work = SystemClock(), sandbox.workspace
    env = {"PATH": os.environ["PATH"], "HOME": str(sandbox.home)}
    tools = ToolState(work, work, tmp_path / "out", clock, TimeIds(clock), env, sandbox=sandbox)
    planning = tools.make_context("call-1", "t", "m")
    planning.read_only = planning.is_planning = True
    done = await bash(planning, {"command": "echo x > new"})
    assert done.is_error and "in this mode commands change nothing" in done.content
    assert "outside" not in done.content and not (work / "new").exists()


def test_a_boundary_for_reading_writes_nothing_but_what_is_kept(tmp_path: Path) -> None:
    work, git_folder = tmp_path / "w", tmp_path / "w" / ".git"
    (git_folder / "lfs").mkdir(parents=True)
    whole = Boundary(
        (work, tmp_path / "cache", tmp_path / "notes"),
        (git_folder,),
        (git_folder / "hooks", Path("/opt/x")),
        (work / ".env",),
    )
    reading = whole.without_writing((tmp_path / "notes",))
    assert reading.write == (tmp_path / "notes",) and reading.pinned == ()
    assert reading.read_only == (work, tmp_path / "cache", Path("/opt/x")) and reading.masked == (work / ".env",)
    assert reading.hidden == (git_folder / "lfs",) and reading.sees(work / "sub")


@pytest.mark.parametrize(
    ("command", "reads"),
    [
        ("ls", True),
        ("git status && cat a | wc -l", True),
        ("cat a > /dev/null 2>&1", True),
        ("cat /etc/hostname", True),
        ("grep -r x .", True),
        ("cat a > b", False),
        ("cat a >> b", False),
        ("sed -i s/a/b/ a", False),
        ("python3 x.py", False),
        ("ls && touch b", False),
        ("rm -rf .git", False),
        ("git commit -m x", False),
        ("cat $(touch x)", False),
        ("for x in a; do $x; done", False),
    ],
)
def test_which_commands_only_read(command: str, reads: bool, tmp_path: Path) -> None:
    place = WorkspaceView(tmp_path, tmp_path)
    assert commands.analyse(command, place).only_reads is reads
    decision = judge(bash, {"command": command}, mode="ask", rules=Rules(), place=place)
    assert decision.only_reads is reads


async def _read_only(store: Store, folder: Path, mode: str, commands: Sequence[dict[str, str]]) -> list[bool]:
    calls = [Answer(calls=[Call("bash", c)]) for c in commands]
    run = await start(store, folder, [*calls, Answer("x")], overrides=(f"approval.mode={mode}",), interactive=False)
    await run.ask("go")
    made = run.session.workspace._sandbox
    assert isinstance(made, FakeSandbox)
    return made.read_only


async def test_free_reading_is_started_read_only(store: Store, tmp_path: Path) -> None:
    started = [{"command": "ls"}, {"command": "true > new"}, {"command": "git status"}]
    assert await _read_only(store, tmp_path / "w", "auto", started) == [True, False, True]


async def test_plan_mode_starts_everything_read_only_and_nothing_outside(store: Store, tmp_path: Path) -> None:
    started = [{"command": "ls"}, {"command": "true > new"}, {"command": "ls", "outside": "because"}]
    assert await _read_only(store, tmp_path / "w", "plan", started) == [True]
