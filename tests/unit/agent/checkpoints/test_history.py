"""Whatever a command did to the repository, an undo brings back its branches, index and objects."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sakti.agent.checkpoints import history
from sakti.agent.checkpoints import shadow as shadows
from sakti.agent.checkpoints.objects import HISTORY
from tests.fakes.checkpoints import Place, git, tree


@pytest.fixture(params=["git", "dulwich"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "dulwich":
        monkeypatch.setattr(shadows, "find_git", lambda _workspace: None)
    for name in ("AUTHOR", "COMMITTER"):
        for word in ("NAME", "EMAIL"):
            monkeypatch.setenv(f"GIT_{name}_{word}", "t@example.org")
    return Place(tmp_path)


@pytest.fixture(scope="module", autouse=True)
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.getbasetemp() / "template"
    if not folder.exists():
        folder.mkdir()
        make_repository(folder)
    TEMPLATES[:] = [folder]
    return folder


TEMPLATES: list[Path] = []


def repository(root: Path) -> None:
    shutil.copytree(TEMPLATES[0], root, symlinks=True, dirs_exist_ok=True)
    git(root, "status")  # knows the copies as unchanged


def make_repository(root: Path) -> None:
    """Make commits on two branches, a tag, a stash, packed and loose objects, and staged and dangling ones."""
    git(root, "init", "-q", "-b", "main")
    for number in range(6):
        (root / "a.txt").write_text(f"{number}\n")
        (root / f"f{number}.txt").write_text(f"file {number}\n")
        git(root, "add", "-A")
        git(root, "commit", "-qm", f"commit {number}")
    git(root, "branch", "other", "HEAD~2")
    git(root, "tag", "-a", "-m", "first", "v1", "HEAD~3")
    git(root, "gc", "-q")
    (root / "a.txt").write_text("stashed\n")
    git(root, "stash")
    (root / "loose.txt").write_text("loose\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "loose")
    git(root, "commit", "-q", "--amend", "-m", "amended")
    (root / "a.txt").write_text("staged\n")
    git(root, "add", "a.txt")
    (root / "a.txt").write_text("not staged\n")


def state(root: Path) -> dict[str, object]:
    """What a user would miss: branches, reflogs, the index, the commit."""
    return {
        "refs": git(root, "for-each-ref"),
        "head": (git(root, "rev-parse", "HEAD"), (root / ".git/HEAD").read_text() if (root / ".git").is_dir() else ""),
        "index": git(root, "ls-files", "-s"),
        "reflog": git(root, "reflog", "show", "--all"),
        "status": git(root, "status", "--porcelain"),
    }


def objects(root: Path) -> set[str]:
    return set(git(root, "rev-list", "--objects", "--all", "--reflog", "--indexed-objects").split("\n"))


def clean(root: Path) -> bool:
    done = subprocess.run(("git", "fsck", "--full"), cwd=root, capture_output=True, text=True, check=False)
    return done.returncode == 0 and "missing" not in done.stdout + done.stderr


def overwrite(place: Place) -> None:
    pack = next((place.root / ".git/objects/pack").glob("*.pack"))
    pack.chmod(0o644)
    with pack.open("r+b") as f:
        f.seek(30)
        f.write(b"x" * 40)


ATTACKS = {
    "remove .git": "rm -rf .git",
    "remove objects": "rm -rf .git/objects",
    "remove refs": "rm -rf .git/refs .git/packed-refs .git/logs",
    "remove the index": "rm .git/index",
    "remove HEAD": "rm .git/HEAD",
    "truncate packs": "for f in .git/objects/pack/*; do chmod +w $f; : > $f; done",
    "truncate loose objects": "for f in .git/objects/??/*; do chmod +w $f; : > $f; done",
    "truncate refs": "for f in $(find .git/refs -type f) .git/packed-refs .git/HEAD; do : > $f; done",
    "another HEAD": "echo garbage > .git/HEAD",
    "collect garbage": "git reflog expire --expire=now --all; git gc -q --prune=now",
    "repack": "git repack -adq; git prune-packed; git prune --expire=now",
    "read another tree": "git read-tree --reset -u HEAD~5",
    "reset": "git reset -q --hard HEAD~4; git reflog expire --expire=now --all; git gc -q --prune=now",
    "delete a branch": "git branch -D other; git reflog expire --expire=now --all; git gc -q --prune=now",
    "delete a ref": "git update-ref -d refs/heads/main; git update-ref -d refs/tags/v1",
    "expire reflogs": "git reflog expire --expire=now --all",
    "drop the stash": "git stash drop -q; git gc -q --prune=now",
    "commit": "git commit -qam mine; git tag mine; git checkout -qb third",
    "rewrite": "git commit -q --amend -m x; git branch -f other HEAD; git pack-refs --all",
    "start again": "rm -rf .git; git init -q; git add -A; git commit -qm new",
    "move away": "mv .git elsewhere",
}


@pytest.mark.parametrize("name", ATTACKS)
def test_undo_restores_the_repository(place: Place, name: str) -> None:
    repository(place.root)
    before, reachable, files = state(place.root), objects(place.root), tree(place.root)
    place.run(ATTACKS[name])
    done, left = place.undo()
    assert left == []
    assert tree(place.root) == files
    assert state(place.root) == before
    assert objects(place.root) >= reachable
    assert clean(place.root)
    assert place.redo(done) == []
    place.shadow.undo(place.shadow.plan(s for s in done.steps), "thread", [])


def test_undo_restores_objects_that_were_overwritten_in_place(place: Place) -> None:
    repository(place.root)
    before = state(place.root)
    place.run(lambda: overwrite(place))
    assert not clean(place.root)
    assert place.undo()[1] == []
    assert state(place.root) == before
    assert clean(place.root)


def detached(root: Path) -> None:
    repository(root)
    git(root, "checkout", "-q", "--force", "--detach", "HEAD~1")


def unborn(root: Path) -> None:
    git(root, "init", "-q")
    (root / "a.txt").write_text("a")
    git(root, "add", "a.txt")


def packed(root: Path) -> None:
    repository(root)
    git(root, "pack-refs", "--all")
    git(root, "gc", "-q")


def submodule(root: Path) -> None:
    repository(root)
    other = root.parent / "library"
    other.mkdir()
    repository(other)
    git(root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "vendor/library")
    git(root, "commit", "-qm", "submodule")


def worktrees(root: Path) -> None:
    repository(root)
    git(root, "worktree", "add", "-q", str(root.parent / "linked"))


def worktree_below(root: Path) -> None:
    repository(root)
    git(root, "worktree", "add", "-q", "below")


def merging(root: Path) -> None:
    repository(root)
    git(root, "reset", "-q", "--hard")
    git(root, "checkout", "-q", "other")
    (root / "f5.txt").write_text("of another branch\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "conflicting")
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "main")


def nested(root: Path) -> None:
    repository(root)
    (root / "inner/deep").mkdir(parents=True)
    repository(root / "inner/deep")


def wide(root: Path) -> None:
    repository(root)
    git(root, "update-index", "--index-version", "4")


STATES: dict[str, Callable[[Path], object]] = {
    "detached": detached,
    "unborn": unborn,
    "packed refs": packed,
    "submodule": submodule,
    "linked worktrees": worktrees,
    "worktree below": worktree_below,
    "merging": merging,
    "nested": nested,
    "index of version 4": wide,
    "no repository": lambda root: (root / "a.txt").write_text("a"),
    "empty file": lambda root: (root / ".git").touch(),
    "file that names nothing": lambda root: (root / ".git").write_text("gitdir: ../nowhere\n"),
    "link": lambda root: (repository(root), (root / ".git").rename(root / "real"), (root / ".git").symlink_to("real")),
}


def everything(root: Path) -> dict[str, object]:
    """All of git's files by their content, the index by its entries."""
    out: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        if ".git" in path.parts and path.is_file() and not path.is_symlink() and path.name != "index":
            out[str(path.relative_to(root))] = path.read_bytes()
    return out


def without_indexes(root: Path) -> dict[str, tuple[str, object]]:
    return {p: entry for p, entry in tree(root).items() if not p.endswith("/.git/index")}


@pytest.mark.parametrize("name", STATES)
def test_undo_restores_every_kind_of_repository(place: Place, name: str) -> None:
    STATES[name](place.root)
    before, files = everything(place.root), without_indexes(place.root)
    place.run("rm -rf below; find . -name .git -prune -exec rm -rf {} +")
    assert place.undo()[1] == []
    assert everything(place.root) == before
    assert without_indexes(place.root) == files
    if (place.root / ".git/HEAD").is_file():
        assert clean(place.root)


def test_a_linked_worktree_gets_the_repository_back_that_it_shares(place: Place) -> None:
    main = place.root.parent / "main"
    main.mkdir()
    repository(main)
    place.root.rmdir()
    git(main, "worktree", "add", "-q", str(place.root))
    before = everything(main)
    place.run(f"rm -rf {main}/.git/objects {main}/.git/refs {main}/.git/worktrees")
    assert place.undo()[1] == []
    assert everything(main) == before
    assert clean(place.root)


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_repository_outside_of_the_workspace_is_restored(place: Place, kind: str) -> None:
    repository(place.root)
    outside = (place.root / ".git").rename(place.root.parent / "real")
    if kind == "file":
        (place.root / ".git").write_text("gitdir: ../real\n")
    else:
        (place.root / ".git").symlink_to("../real")
    before, reachable = state(place.root), objects(place.root)
    place.run(
        "git reset -q --hard HEAD~3; git branch -D other; git reflog expire --expire=now --all; git gc -q --prune=now"
    )
    place.run(f"rm -rf {outside}/objects {outside}/refs .git")
    assert place.undo()[1] == []
    assert state(place.root) == before
    assert objects(place.root) >= reachable
    assert clean(place.root)


def test_commits_of_the_user_after_the_turn_are_kept(place: Place) -> None:
    repository(place.root)
    git(place.root, "commit", "-qam", "start")
    place.run("echo mine > mine.txt; git add mine.txt; git commit -qm agent")
    (place.root / "user.txt").write_text("user\n")
    git(place.root, "add", "user.txt")
    git(place.root, "commit", "-qm", "user")
    head = git(place.root, "rev-parse", "HEAD")
    plan = place.plan()
    assert ".git/refs/heads/main" in {i.path for i in plan.conflicts}
    assert {i.path for i in plan.items if not i.conflict} == {"mine.txt"}
    place.undo()
    assert git(place.root, "rev-parse", "HEAD") == head
    assert (place.root / "user.txt").read_text() == "user\n"


def test_git_status_by_the_user_is_no_conflict(place: Place) -> None:
    repository(place.root)
    before = state(place.root)
    place.run("git add -A; git branch mine")
    for name in ("f1.txt", "f2.txt"):
        os.utime(place.root / name)
    git(place.root, "status")  # refreshes the index
    assert place.plan().conflicts == ()
    assert place.undo()[1] == []
    assert state(place.root) == before


def test_git_status_by_a_command_changes_nothing(place: Place) -> None:
    repository(place.root)
    place.run("touch f1.txt; git status; git diff")
    assert place.shadow.records.turns("thread") == []


def test_objects_are_copied_once_and_deleted_when_nothing_needs_them(place: Place) -> None:
    repository(place.root)
    place.run("true")
    copies = {p: p.stat().st_ino for p in place.shadow.objects.folder_of(HISTORY).iterdir()}
    place.run("true")
    assert {p: p.stat().st_ino for p in place.shadow.objects.folder_of(HISTORY).iterdir()} == copies
    git(place.root, "repack", "-adq")
    place.run("true")
    place.shadow.prune()
    left = set(place.shadow.objects.folder_of(HISTORY).iterdir())
    assert left
    assert not any("pack" in str(p) for p in left & set(copies))
    assert left < {*copies, *left}


def test_objects_too_large_to_be_copied_survive_a_removal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LARGEST", 0)
    repository(place.root)
    before = state(place.root)
    place.run("rm -rf .git/objects")
    assert place.undo()[1] == []
    assert state(place.root) == before
    assert clean(place.root)


def test_objects_for_which_there_is_no_room_are_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(place.root)
    monkeypatch.setattr(history, "SPARE", shutil.disk_usage(place.root).total * 2)
    looked = place.shadow.before()
    assert "no room" in looked.before.history.problem
    shutil.rmtree(place.root / ".git/objects")
    lost = place.shadow.after(looked)
    assert lost
    assert all(path.startswith(".git/objects/") for path in lost)


def test_a_branch_that_the_user_committed_to_keeps_its_other_files(place: Place) -> None:
    repository(place.root)
    git(place.root, "commit", "-qam", "start")
    place.run("git tag mine; git branch third")
    git(place.root, "commit", "-q", "--allow-empty", "-m", "user")
    plan = place.plan()
    assert {i.path for i in plan.items if not i.conflict} == set()
    assert ".git/refs/tags/mine" in {i.path for i in plan.conflicts}


@pytest.mark.parametrize(
    "later", ["true", "git add -A; git commit -qm two", "git gc -q --prune=now; git commit -qam 3"]
)
@pytest.mark.parametrize("folder", [".", "sub/lib"])
def test_undo_of_a_new_repository_leaves_nothing_of_it(place: Place, folder: str, later: str) -> None:
    top = place.root / folder
    top.mkdir(parents=True, exist_ok=True)
    (top / "a.txt").write_text("a\n")
    before = tree(place.root)
    place.run(lambda: [git(top, *words) for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one"))])
    place.run(f"cd {folder}; echo b > b.txt; {later}", turn=2)
    repository_state, objects_then = state(top), objects(top)
    done, left = place.undo()
    assert left == [] and tree(place.root) == before
    assert not (top / ".git").exists()
    assert place.redo(done) == []
    assert state(top) == repository_state and objects(top) == objects_then
    assert clean(top)


@pytest.mark.parametrize("words", [("commit", "-q", "--allow-empty", "-m", "mine"), ("branch", "mine")])
def test_a_new_repository_that_the_user_goes_on_with_keeps_its_objects(place: Place, words: tuple[str, ...]) -> None:
    (place.root / "a.txt").write_text("a\n")
    place.run(lambda: [git(place.root, *w) for w in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "one"))])
    git(place.root, *words)
    there = {p for p in (place.root / ".git" / "objects").rglob("*") if p.is_file()}
    place.undo()
    assert {p for p in (place.root / ".git" / "objects").rglob("*") if p.is_file()} == there
