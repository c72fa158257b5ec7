"""Every git that a command starts runs no program that a repository names; the user's own settings stay."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sakti.agent.sandbox.environment import make_git_variables
from sakti.agent.tools.bash import bash
from sakti.agent.tools.context import Outcome, ToolState
from sakti.core.clock import SystemClock, TimeIds
from tests.fakes.repository import Trap, lacking_objects, nested, plain, run_git, touch

USER = {"PATH": "/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1", "LANG": "C.UTF-8"}


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


def tools_at(folder: Path, tmp_path: Path, env: Mapping[str, str] = USER) -> ToolState:
    clock, whole = SystemClock(), {**env, "HOME": str(tmp_path)}
    return ToolState(folder, folder, tmp_path / "out", clock, TimeIds(clock), whole, own_env=whole)


async def model_runs(
    tools: ToolState, command: str, *, reads: bool = True, outside: str = "", by_user: bool = False
) -> Outcome:
    run = tools.make_context("call-1", "t", "m")
    run.read_only = reads
    run.is_user_command = by_user
    return await bash(run, {"command": command, "outside": outside})


def user_runs(folder: Path, command: str, tmp_path: Path) -> None:
    env = {**USER, "HOME": str(tmp_path)}
    subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=env,
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=30,
    )


def bare_in_clone(folder: Path, trap: Trap) -> None:
    inner = folder / "examples" / "repo"
    for part in ("objects/info", "refs"):
        (inner / part).mkdir(parents=True)
    (inner / "HEAD").write_text("ref: refs/heads/main\n")
    (inner / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n"
        f"\tfsmonitor = {trap.program('fsmonitor')}\n"
    )


def large_files(folder: Path, trap: Trap) -> None:
    for name in ("clean", "process"):
        run_git(folder, "config", f"filter.lfs.{name}", str(trap.program(name)))
    run_git(folder, "config", "filter.lfs.required", "true")
    (folder / ".gitattributes").write_text("*.txt filter=lfs\n")


def alternates(folder: Path, trap: Trap) -> None:
    other = plain(folder.parent / "other")
    (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{other}/.git/objects\n")
    run_git(folder, "config", "core.alternateRefsCommand", str(trap.program("alternates")))


def external(folder: Path, trap: Trap) -> None:
    run_git(folder, "config", "diff.external", str(trap.program("external")))


def included_external(folder: Path, trap: Trap) -> None:
    (folder / ".git" / "more").write_text(f"[diff]\n\texternal = {trap.program('external')}\n")
    run_git(folder, "config", "include.path", "more")


def hooked(folder: Path, trap: Trap) -> None:
    (folder / ".git" / "hooks").mkdir(exist_ok=True)
    trap.program("post-index-change", folder / ".git" / "hooks")


def looked_into(folder: Path, trap: Trap) -> None:
    nested(folder, trap)
    (folder / ".gitmodules").write_text('[submodule "In ner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n')


def partial_clone(folder: Path, trap: Trap) -> None:
    lacking_objects(folder, trap, f"file://{plain(folder.parent / 'other')}")
    program = trap.marks.parent / "uploadpack"
    program.write_text(program.read_text().replace("cat 2>/dev/null", "exit 1"))  # git waits for its end


def signed(folder: Path, trap: Trap) -> None:
    run_git(folder, "config", "log.showSignature", "true")
    run_git(folder, "config", "gpg.program", str(trap.program("gpg")))
    commit = run_git(folder, "cat-file", "commit", "HEAD").replace(
        "\n\n", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n a\n -----END PGP SIGNATURE-----\n\n", 1
    )
    (folder / "commit").write_text(commit)
    run_git(folder, "update-ref", "HEAD", run_git(folder, "hash-object", "-t", "commit", "-w", "commit").strip())


@pytest.mark.parametrize(
    ("prepare", "command"),
    [
        (bare_in_clone, "cd examples/repo && git status --short"),
        (large_files, "git diff"),
        (large_files, "git status"),
        (alternates, "git rev-list --alternate-refs --max-count=1"),
        (alternates, "git log --alternate-refs --oneline"),
        (external, "git diff"),
        (external, "git log -p --ext-diff"),
        (included_external, "git diff"),
        (hooked, "git status"),
        (hooked, "git diff"),
        (hooked, "git describe --always --dirty"),
        (nested, "git status"),
        (nested, "git diff"),
        (looked_into, "git status"),
        (looked_into, "git diff HEAD"),
        (partial_clone, "git log -p"),
        (signed, "git log -1"),
    ],
)
async def test_no_program_of_a_repository_runs_when_a_command_looks_at_it(
    prepare: Callable[[Path, Trap], None], command: str, tmp_path: Path, trap: Trap
) -> None:
    folder = plain(tmp_path / "w")
    prepare(folder, trap)
    touch(folder)
    trap.reset()
    user_runs(folder, command, tmp_path)
    assert trap.sprung, "this repository does not run anything by itself"
    touch(folder)
    for inner in folder.glob("inner"):
        touch(inner)
        os.utime(inner / "kept.txt", (1_100_000_000, 1_100_000_000))
    trap.reset()
    await model_runs(tools_at(folder, tmp_path), command)
    assert trap.sprung == []


async def test_ordinary_repositories_look_as_ever(tmp_path: Path) -> None:
    folder = plain(tmp_path / "w")
    tools = tools_at(folder, tmp_path)
    done = await model_runs(tools, "git status --short; git diff; git log --oneline")
    assert " M changed.txt" in done.content and "+two" in done.content and "first" in done.content
    assert not done.is_error


async def test_hooks_of_the_repository_run_when_a_command_commits(tmp_path: Path, trap: Trap) -> None:
    folder = plain(tmp_path / "w")
    (folder / ".git" / "hooks").mkdir(exist_ok=True)
    trap.program("pre-commit", folder / ".git" / "hooks")
    command = "git -c user.name=a -c user.email=a@b commit -qam two"
    done = await model_runs(tools_at(folder, tmp_path), command, reads=False)
    assert trap.sprung == ["pre-commit"], done.content


async def test_the_users_own_command_gets_the_users_git(tmp_path: Path, trap: Trap) -> None:
    folder = plain(tmp_path / "w")
    external(folder, trap)
    await model_runs(tools_at(folder, tmp_path), "git diff", by_user=True)
    assert trap.sprung == ["external"]


@pytest.mark.parametrize("outside", ["", "the user's own command", "it needs the network"])
async def test_no_argument_of_the_model_gives_it_the_users_variables(tmp_path: Path, outside: str) -> None:
    tools = tools_at(tmp_path, tmp_path, USER)
    tools.own_env = {**USER, "ANTHROPIC_API_KEY": "canary"}
    done = await model_runs(tools, "env", outside=outside)
    assert "canary" not in done.content
    done = await model_runs(tools, "env", by_user=True)
    assert "canary" in done.content


def settings_in(env: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(env[f"GIT_CONFIG_KEY_{n}"], env[f"GIT_CONFIG_VALUE_{n}"]) for n in range(int(env["GIT_CONFIG_COUNT"]))]


def test_settings_of_the_users_environment_are_kept_and_win(tmp_path: Path) -> None:
    own = [
        ("safe.directory", "/a"),
        ("safe.directory", "/b"),
        ("Safe.BareRepository", "all"),
        ("http.extraHeader", "Authorization: basic abc"),
        ("url.https://ann:h7Gf2kQ9@example.org/.insteadOf", "https://example.org/"),
    ]
    env = {"GIT_CONFIG_COUNT": str(len(own))}
    for number, (key, value) in enumerate(own):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    made = settings_in(make_git_variables(env, tmp_path, tmp_path, reads=False))
    assert made[-3:] == own[:3] and ("core.fsmonitor", "false") in made
    assert not [key for key, _ in made if key == "safe.bareRepository"], "one value for each setting"


@pytest.mark.parametrize("count", ["", "x", "-1", "9" * 40, "2"])
def test_a_damaged_count_of_settings_does_no_harm(count: str, tmp_path: Path) -> None:
    made = settings_in(make_git_variables({"GIT_CONFIG_COUNT": count}, tmp_path, tmp_path, reads=True))
    assert ("safe.bareRepository", "explicit") in made and ("core.hooksPath", "/dev/null") in made


@pytest.mark.parametrize(("own", "smudge"), [("", "git-lfs smudge -- %f"), ("--skip", "git-lfs smudge --skip -- %f")])
def test_the_filter_for_large_files_is_the_usual_one(own: str, smudge: str, tmp_path: Path) -> None:
    programs, work = tmp_path / "bin", tmp_path / "w"
    programs.mkdir()
    work.mkdir()
    (tmp_path / ".gitconfig").write_text(f'[filter "lfs"]\n\tprocess = git-lfs filter-process {own}\n')
    env = {"PATH": str(programs), "HOME": str(tmp_path)}
    assert ("filter.lfs.process", "") in settings_in(make_git_variables(env, work, work, reads=False))
    (programs / "git-lfs").write_text("#!/bin/sh\n")
    (programs / "git-lfs").chmod(0o755)
    made = settings_in(make_git_variables(env, work, work, reads=False))
    assert ("filter.lfs.smudge", smudge) in made and ("filter.lfs.required", "true") in made
    assert ("filter.lfs.process", "") in settings_in(make_git_variables(env, tmp_path, tmp_path, reads=False)), (
        "of the workspace"
    )


def test_configurations_that_include_one_another_end(tmp_path: Path) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    for number in range(80):
        (git / f"c{number}").write_text("".join(f"[include]\n\tpath = c{n}\n" for n in range(80)))
    (git / "config").write_text("[include]\n\tpath = c0\n[include]\n\tpath = ~nosuch/x\n")
    assert ("diff.external", "") not in settings_in(make_git_variables({}, tmp_path, tmp_path, reads=True))
