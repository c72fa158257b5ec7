"""What a command leaves in repositories does not run when the user runs git there: each attack in the real sandbox."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sakti.agent.judge import repositories
from sakti.agent.sandbox.sandbox import SystemSandbox
from tests.fakes.enclosed import git, made_place, made_sandbox, refused, run

RUNS = r"printf '[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"touch ran-outside; false\"\n'"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return made_place(tmp_path)


def attacked(sandbox: SystemSandbox, command: str) -> list[tuple[str, str]]:
    """Run a command as the tool does, then look at what it left; the user runs git in every folder afterwards."""
    sandbox.watch.begin(running=False)
    code, said = run(sandbox, command)
    assert code == 0, said
    moved = sandbox.watch.look()
    ran_inside = {p for p in sandbox.home.rglob("ran-outside") if p.unlink() is None}
    assert not ran_inside or "git" in command
    for folder in (sandbox.workspace, *(p for p in sandbox.workspace.iterdir() if p.is_dir())):
        git(folder, "status")
    assert not list(sandbox.home.rglob("ran-outside")), f"it ran: {moved}"
    return moved


def with_submodule(place: Path) -> None:
    other = place.parent / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "x").write_text("x")
    git(other, "add", "x")
    git(other, "commit", "-qm", "x")
    git(place, "submodule", "add", str(other), "mod")
    git(place, "commit", "-qm", "mod")
    assert (place / "mod" / ".git").is_file()


def test_another_configuration_in_the_place_of_the_repositorys(place: Path, tmp_path: Path) -> None:
    command = f"cp -r .git evil; rm -f evil/config; {RUNS} > evil/config; echo ../evil > .git/commondir"
    moved = dict(attacked(made_sandbox(place, tmp_path), command))
    assert moved[".git/commondir"] == ".git/commondir.set-aside-1"


def test_a_configuration_of_the_worktree(place: Path, tmp_path: Path) -> None:
    git(place, "config", "extensions.worktreeConfig", "true")
    assert attacked(made_sandbox(place, tmp_path), f"{RUNS} > .git/config.worktree")


def test_settings_and_hooks_of_a_submodule(place: Path, tmp_path: Path) -> None:
    with_submodule(place)
    sandbox = made_sandbox(place, tmp_path)
    for command in (
        "git -C mod config core.fsmonitor 'touch ran-outside; false'",
        "echo x > .git/modules/mod/hooks/pre-commit",
        "echo 'gitdir: ../evil' > mod/.git",
        "mv mod mod2 && mkdir mod && echo 'gitdir: ../evil' > mod/.git",
    ):
        refused(sandbox, command)
    assert attacked(sandbox, "mkdir e; echo $PWD/e > .git/modules/mod/commondir")
    run(sandbox, "rm .git/modules/mod/HEAD")
    refused(sandbox, f"{RUNS} > .git/modules/mod/config")


def test_a_workspace_that_is_a_submodule_keeps_its_repository(place: Path, tmp_path: Path) -> None:
    with_submodule(place)
    sandbox = made_sandbox(place / "mod", tmp_path, place.parent)
    refused(sandbox, "echo 'gitdir: ./evil' > .git")
    refused(sandbox, "mv .git g")


def test_another_worktree_keeps_its_repository(place: Path, tmp_path: Path) -> None:
    git(place, "worktree", "add", "-q", str(place.parent / "tree"))
    sandbox = made_sandbox(place, tmp_path)
    refused(sandbox, "echo /x > .git/worktrees/tree/commondir")
    refused(sandbox, "mv .git/worktrees/tree t")
    assert attacked(sandbox, f"{RUNS} > .git/worktrees/tree/config.worktree")


@pytest.mark.parametrize(
    "command",
    [
        "git init -q n; {run} > n/.git/config; git -c user.name=x -c user.email=x@y -C n commit -q --allow-empty -m x;"
        " git add n",
        "git init -q n; echo 'touch ran-outside' > n/.git/hooks/post-checkout; chmod +x n/.git/hooks/post-checkout",
        "git init -q e; {run} > e/.git/config; mkdir n; echo 'gitdir: ../e/.git' > n/.git",
        "git init -q e; mv e/.git d; {run} > d/config; mkdir n; ln -s ../d n/.git",
        "mkdir -p n/objects n/refs; echo 'ref: refs/heads/x' > n/HEAD; {run} > n/config;"
        " echo 'worktree = .' >> n/config",
        "git init -q n; cp -r n/.git e; {run} > e/config; echo ../../e > n/.git/commondir",
    ],
)
def test_a_repository_that_a_command_makes_runs_nothing(place: Path, tmp_path: Path, command: str) -> None:
    assert attacked(made_sandbox(place, tmp_path), command.replace("{run}", RUNS))


def test_a_repository_that_a_command_makes_works(place: Path, tmp_path: Path) -> None:
    commit = "git -c user.name=x -c user.email=x@y commit -q --allow-empty -m x"
    command = f"git init -q n && cd n && {commit} && git worktree add -q ../t && cd .. && git clone -q n c"
    assert attacked(made_sandbox(place, tmp_path), command) == []
    assert "nothing to commit" in git(place / "c", "status")


def test_a_workspace_without_a_repository_becomes_none(place: Path, tmp_path: Path) -> None:
    shutil.rmtree(place / ".git")
    sandbox = made_sandbox(place, tmp_path)
    bare = "mkdir objects refs; echo 'ref: refs/heads/x' > HEAD; "
    assert attacked(sandbox, f"{bare}{RUNS} > config; echo 'worktree = .' >> config")


def test_what_a_repository_names_as_hooks_and_settings_is_read_only(place: Path, tmp_path: Path) -> None:
    (place / ".githooks").mkdir()
    (place / ".gitsettings").write_text("[alias]\n")
    git(place, "config", "core.hooksPath", ".githooks")
    git(place, "config", "include.path", "../.gitsettings")
    sandbox = made_sandbox(place, tmp_path)
    for command in ("echo x > .githooks/pre-commit", "mv .githooks g", "echo x >> .gitsettings"):
        refused(sandbox, command)


@pytest.mark.parametrize("name", [".claude", ".github"])
def test_a_link_to_a_folder_of_another_is_set_aside_and_nothing_behind_it(
    place: Path, tmp_path: Path, name: str
) -> None:
    theirs = place.parent / "theirs" / name
    (theirs / "workflows").mkdir(parents=True)
    (theirs / "settings.json").write_text("{}")
    sandbox = made_sandbox(place, tmp_path)
    assert attacked(sandbox, f"ln -s ../theirs/{name} {name}") == [(name, f"{name}.set-aside-1")]
    assert sorted(p.name for p in theirs.iterdir()) == ["settings.json", "workflows"]


def test_a_link_in_the_place_of_a_secret_file_stops_no_command(place: Path, tmp_path: Path) -> None:
    sandbox = made_sandbox(place, tmp_path)
    run(sandbox, "ln -s /proc/1/environ prod.env; ln -s /sys/kernel/notes a.env; ln -s nowhere b.env; ln -s . c.env")
    assert run(sandbox, "echo on") == (0, "on\n")


def test_a_secret_is_hidden_although_its_folder_was_dated_back(place: Path, tmp_path: Path) -> None:
    sandbox = made_sandbox(place, tmp_path)
    (place / "d").mkdir()
    run(sandbox, "true")
    run(sandbox, "touch -r d now; (while :; do touch -r now d; done) & sleep 0.1; kill $!")
    (place / "d" / ".env").write_text("inner-secret")
    run(sandbox, "touch -r now d")
    assert "inner-secret" not in refused(sandbox, "cat d/.env")


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = x",
        "[core] fsmonitor = x",
        "[a] [core] fsmonitor = x",
        '[a "b"] [ CORE] FSMonitor=x',
        "\ufeff[core]\nfsmonitor = x",
        "[core]\n# no\nfsmonitor",
    ],
)
def test_a_setting_is_found_however_it_is_written(text: str, tmp_path: Path) -> None:
    assert "core.fsmonitor" in repositories.list_settings(text)
    (tmp_path / "config").write_text(text)
    assert repositories.list_running_files(tmp_path) == [tmp_path / "config"]


def test_settings_of_a_usual_clone_run_nothing(tmp_path: Path) -> None:
    text = '[core]\nbare = false\nworktree = ../../../mod\n[remote "origin"]\nurl = x\n[branch "main"]\nmerge = y\n'
    (tmp_path / "config").write_text(text)
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "pre-commit.sample").touch()
    assert repositories.list_running_files(tmp_path) == []
