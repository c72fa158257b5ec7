"""Repositories are found as git finds them; git only reads if nothing in them names a program."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from sakti.agent.judge.repositories import find_program_setting, has_repository, list_tracked
from sakti.agent.judge.workspace_view import LevelName, WorkspaceView
from tests.unit.agent.judge.conftest import Ask

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="needs git")


def run_git(folder: Path, *words: str) -> str:
    options = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always")
    done = subprocess.run([str(GIT), *options, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(place: WorkspaceView) -> Path:
    """The repository of `place` with a commit."""
    shutil.rmtree(place.workspace / ".git")
    run_git(place.workspace, "init", "-q")
    shutil.rmtree(place.workspace / ".git" / "hooks")
    run_git(place.workspace, "add", "a.py", "src")
    run_git(place.workspace, "commit", "-qm", "x")
    return place.workspace


def make_bare(folder: Path, setting: str) -> None:
    """A folder as it may be in a clone: git takes it for a repository."""
    (folder / "objects" / "info").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(f"[core]\n\trepositoryformatversion = 0\n{setting}")


def test_a_repository_as_git_makes_it_names_no_program(repository: Path, tmp_path: Path, bash: Ask) -> None:
    for command in ("git status", "git log -p", "git diff HEAD", "git show HEAD", "git add a.py", "git switch -c y"):
        assert bash(command, "edits").verdict == "allow", command
    clone = tmp_path / "clone"
    run_git(tmp_path, "clone", "-q", str(repository), str(clone))
    run_git(clone, "branch", "-q", "-u", "origin/HEAD")
    assert find_program_setting(clone) == ""
    assert has_repository(clone / "src")
    assert not has_repository(tmp_path)


def test_a_bare_repository_in_the_workspace_is_the_one_that_git_uses(repository: Path, bash: Ask) -> None:
    make_bare(repository / "examples" / "repo", "\tbare = false\n\tworktree = ..\n\tfsmonitor = touch x\n")
    for mode in ("plan", "ask", "edits"):
        assert bash("cd examples/repo && git status --short", mode).verdict != "allow"
        assert bash("cd examples/repo/objects; git status", mode).verdict != "allow"
        assert bash("git status", mode).verdict == "allow"


def test_a_repository_that_is_not_complete_does_not_hide_the_one_around_it(repository: Path) -> None:
    run_git(repository, "config", "core.pager", "evil")
    (repository / "src" / ".git").mkdir()
    (repository / "src" / ".git" / "config").write_text("")
    assert find_program_setting(repository / "src") == "core.pager"


def test_a_folder_without_a_valid_head_does_not_hide_the_repository_around_it(repository: Path) -> None:
    run_git(repository, "config", "core.pager", "evil")
    make_bare(repository / "src" / ".git", "")
    (repository / "src" / ".git" / "HEAD").write_text("garbage\n")
    assert find_program_setting(repository / "src") == "core.pager"


def test_files_that_name_a_repository_in_an_unusual_way_count_as_programs(tmp_path: Path) -> None:
    for number, link in enumerate(("gitdir: good\nevil\n", "gitdir:  good", "gitdir: good \n")):
        folder = tmp_path / str(number)
        make_bare(folder / "good", "")
        (folder / ".git").write_text(link)
        assert find_program_setting(folder) == ".git", link
    worktree = tmp_path / "worktree"
    make_bare(worktree / "good", "")
    (worktree / "good" / "commondir").write_text(" ../c\n")
    (worktree / ".git").write_text("gitdir: good\n")
    assert find_program_setting(worktree) == "commondir"


def test_a_repository_with_more_folders_than_are_searched_counts(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = repository / "z"
    run_git(repository, "init", "-q", str(inner))
    run_git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    run_git(repository, "add", "z")
    assert find_program_setting(repository) == ""
    for number in range(4):
        (repository / f"f{number}").mkdir()
    monkeypatch.setattr("sakti.agent.judge.repositories.MOST_FOLDERS", 2)
    assert "folders" in find_program_setting(repository)


def test_settings_of_a_repository_in_the_index_count(repository: Path, bash: Ask) -> None:
    inner = repository / "sub"
    run_git(inner, "init", "-q")
    (inner / "f").write_text("1\n")
    run_git(inner, "add", "f")
    run_git(inner, "commit", "-qm", "x")
    assert bash("git status").verdict == "allow"
    run_git(inner, "config", "core.fsmonitor", "touch x")
    assert bash("git status").verdict == "allow", "git does not enter a repository that it does not know"
    commit = run_git(inner, "rev-parse", "HEAD")
    run_git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    assert bash("git status").verdict == "ask"
    assert find_program_setting(repository / "src") == "core.fsmonitor"


def test_settings_of_a_submodule_count(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    run_git(other, "init", "-q")
    run_git(other, "commit", "-qm", "x", "--allow-empty")
    run_git(repository, "submodule", "add", "-q", str(other), "lib")
    assert find_program_setting(repository) == ""
    run_git(repository / "lib", "config", "core.sshCommand", "evil")
    assert find_program_setting(repository) == "core.sshcommand"
    assert find_program_setting(repository / "lib") == "core.sshcommand"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('[filter "lfs"]\nclean = git-lfs clean -- %f\nsmudge = git-lfs smudge -- %f\nrequired = true', ""),
        ('[filter "lfs"]\nprocess = git-lfs filter-process', ""),
        ('[filter "lfs"]\nclean = X', "filter.lfs.clean"),
        ('[filter "lfs"]\nclean = git-lfs clean -- %f\nclean = X', "filter.lfs.clean"),
        ('[filter "lfs"]\nclean = git-lfs clean -- %f; X', "filter.lfs.clean"),
        ("[core]\nalternateRefsCommand = X", "core.alternaterefscommand"),
        ("[core]\nattributesFile = X", "core.attributesfile"),
        ("[core] fsmonitor = X", "core.fsmonitor"),
        ("[core]\nworktree = ../..", "core.worktree"),
        ("[core]\nworktree = ..", ""),
        ("[new]\nsetting = X", "new.setting"),
        ("[diff]\ncolor = a\\\n[core]\nexternal = X", "config"),
        ('[branch "x"]\nremote = origin\nmerge = refs/heads/x\n[user]\nname = x\n[pull]\nrebase = true', ""),
        ('[remote "o"]\nurl = https://example.org/x\nfetch = +refs/*:refs/remotes/o/*', ""),
        ("[status]\nsubmoduleSummary = true", "status.submodulesummary"),
    ],
)
def test_only_settings_that_are_known_to_be_harmless_are(repository: Path, text: str, named: str) -> None:
    (repository / ".git" / "config").write_text(text)
    assert find_program_setting(repository) == named


def test_a_hook_that_runs_for_the_command_counts(repository: Path, bash: Ask) -> None:
    (repository / ".git" / "hooks").mkdir()
    (repository / ".git" / "hooks" / "post-checkout").write_text("#!/bin/sh\n")
    assert bash("git status", "edits").verdict == "allow"
    assert bash("git checkout -b x", "edits").verdict == "ask"
    (repository / ".git" / "hooks" / "post-index-change").write_text("#!/bin/sh\n")
    assert bash("git status", "edits").verdict == "ask"


def test_folders_outside_of_a_repository_are_not_compared_by_git(place: WorkspaceView, bash: Ask) -> None:
    shutil.rmtree(place.workspace / ".git")
    assert bash("git diff src sub").verdict == "ask"


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
SHOWN = [
    "git show HEAD",
    "git show",
    "git log -p",
    "git log -p -- '.e*'",
    "git log -p HEAD -- .",
    "git diff HEAD~1",
    "git diff HEAD~1 -- .",
    "git diff HEAD~1 HEAD sub a.py",
    "git diff TREE HEAD",
    "git show COMMIT",
    "git diff-tree -p HEAD",
    "git grep CANARY HEAD",
    "git grep -e CANARY HEAD -- .",
    "git whatchanged -p",
    "cd src && git log -p",
    "git log -p | head -100; git show HEAD",
    'echo "$(git show HEAD)"',
    "for r in HEAD; do git show $r; done",
    "git show BLOB",
    "git show a.py BLOB",
    "git diff TREE BLOB",
    "git grep x BLOB",
]


@pytest.fixture
def leaky(repository: Path) -> Path:
    """A repository whose second commit has secret files."""
    for name in (".env", "sub/.ENV", "sub/id_rsa", ".aws/x"):
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).write_text("K=CANARY\n")
    (repository / "a.py").write_text("y = 2\n")
    run_git(repository, "add", "-Af", ".")
    run_git(repository, "commit", "-qm", "secrets")
    return repository


@pytest.mark.parametrize("command", SHOWN)
@pytest.mark.parametrize("level", ["unsandboxed", "sandboxed"])
def test_git_leaves_out_files_with_secret_names(
    leaky: Path, place: WorkspaceView, bash: Ask, command: str, level: LevelName
) -> None:
    text = command.replace("TREE", EMPTY_TREE)
    for name, revision in (("COMMIT", "HEAD"), ("BLOB", "HEAD:.env")):
        text = text.replace(name, run_git(leaky, "rev-parse", revision))
    judged = bash(text, "ask", replace(place, level=level))
    if judged.verdict == "allow":
        done = subprocess.run(["bash", "-c", judged.command], cwd=leaky, capture_output=True, text=True, check=False)
        assert "CANARY" not in done.stdout + done.stderr
        assert "BLOB" in command or done.returncode in (0, 1), done.stderr
        assert done.returncode or "a.py" in done.stdout or "grep" in command or ".e*" in command


@pytest.fixture
def merged(leaky: Path) -> Path:
    """A history with a merge, an empty commit, and one that changed nothing but secret files."""
    run_git(leaky, "checkout", "-qb", "side", "HEAD~1")
    for number in range(2):
        (leaky / "b.py").write_text(f"{number}\n")
        run_git(leaky, "add", "-A")
        run_git(leaky, "commit", "-qm", f"side {number}")
    run_git(leaky, "checkout", "-q", "-")
    (leaky / ".env").write_text("K=CANARY 2\n")
    run_git(leaky, "commit", "-qam", "only secrets")
    run_git(leaky, "merge", "-q", "--no-edit", "side")
    run_git(leaky, "commit", "-q", "--allow-empty", "-m", "empty")
    return leaky


@pytest.mark.parametrize(
    "command",
    [
        "git log -p",
        "git log -p --graph --first-parent -m",
        "git log -p --stat -4",
        "git log -p --merges --cc HEAD",
        "git log -p --reverse HEAD --",
        "git -P log -p --oneline -- b.py src",
        "git log -p b.py",
        "git log -p '*.py'",
        "git show HEAD",
        "git show HEAD~1 HEAD~2",
        "git show HEAD -- b.py",
        "git log --stat",
        "git diff HEAD~4 HEAD",
        "git diff --stat HEAD~4",
    ],
)
def test_leaving_out_secrets_leaves_out_no_commit(merged: Path, bash: Ask, command: str) -> None:
    judged = bash(command)
    assert judged.verdict == "allow"
    shown, plain = (
        subprocess.run(["bash", "-c", c], cwd=merged, capture_output=True, text=True, check=True).stdout
        for c in (judged.command or command, command)
    )
    commits = re.compile(r"^[*|\\/ ]*commit .*", re.MULTILINE)
    assert commits.findall(shown) == commits.findall(plain)
    for name in ("a.py", "b.py"):
        assert shown.count(f"+++ b/{name}") == plain.count(f"+++ b/{name}")
    assert "CANARY" not in shown


@pytest.mark.parametrize(
    "command", ["git cat-file -p BLOB", "git log -p --follow -- '.e*'", "git stash show -p", "git status -v"]
)
def test_git_asks_before_it_shows_files_that_it_cannot_leave_out(leaky: Path, bash: Ask, command: str) -> None:
    assert bash(command.replace("BLOB", run_git(leaky, "rev-parse", "HEAD:.env"))).verdict == "ask"


def test_other_commands_run_as_they_are_written(repository: Path, bash: Ask) -> None:
    for command in ("git status", "git log --oneline", "ls", "git commit -m x", "cat a.py | head"):
        assert bash(command).command == "", command


def test_the_files_in_an_index_are_known(leaky: Path, tmp_path: Path) -> None:
    assert list_tracked(leaky / "src") == run_git(leaky, "ls-files").split()
    assert list_tracked(tmp_path) == []
    run_git(leaky, "update-index", "--index-version", "4")
    assert list_tracked(leaky) is None, "names are shortened there"


@pytest.mark.parametrize(
    "command",
    [
        "x=nv; git show HEAD:.e$x",
        "x=-p; git log $x",
        "x=1; git log -p",
        "sh -c 'git log -p'",
        "git cat-file --batch-all-objects --batch",
        "git archive HEAD | tar x -C src",
        "git checkout-index --temp -a",
        "git worktree add ../y",
        "git stash show -p",
        "git format-patch -1 --stdout",
        'python3 -c \'import subprocess; subprocess.run(["git", "show"])\'',
    ],
)
def test_git_asks_in_a_sandbox_if_secrets_that_it_keeps_may_show(
    leaky: Path, place: WorkspaceView, bash: Ask, command: str
) -> None:
    sandboxed = replace(place, level="sandboxed")
    assert bash(command, "auto", sandboxed).verdict == "ask"
    run_git(leaky, "rm", "-rqf", ".env", "sub", ".aws")
    assert bash(command, "auto", sandboxed).verdict == "allow", "it keeps none now"


def test_git_asks_for_nothing_else_because_of_secrets_that_it_keeps(
    leaky: Path, place: WorkspaceView, bash: Ask
) -> None:
    commands = (
        "git log -p",
        "git commit -am x",
        "git status",
        "sh -c 'git status'",
        "CI=1 make test",
        "x=1; git add a.py",
    )
    for command in (*commands, "git worktree list", "git stash", "python3 -c 'print(1)'", "git cat-file -t HEAD"):
        assert bash(command, "auto", replace(place, level="sandboxed")).verdict == "allow", command
