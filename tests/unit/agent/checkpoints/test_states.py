"""What a turn did is undone to the byte, whatever state the workspace and its git are in."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sakti.agent.checkpoints import safe_paths, surroundings
from sakti.agent.checkpoints import shadow as shadows
from sakti.agent.judge.expansion import read_targets
from sakti.agent.judge.workspace_view import WorkspaceView as Judged
from tests.fakes.checkpoints import Place, git, tree

Prepare = Callable[[Place], object]


@pytest.fixture(params=["git", "dulwich"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    if request.param == "dulwich":
        monkeypatch.setattr(shadows, "find_git", lambda _workspace: None)
    return Place(tmp_path)


def repository(place: Place) -> None:
    git(place.root, "init", "-q", "-b", "main")
    for name, text in (("a.txt", "one\n"), ("sub/b.txt", "two\n"), (".gitignore", "*.log\nbuild/\n")):
        file = place.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    git(place.root, "add", "-A")
    git(place.root, "commit", "-q", "-m", "first")


def commits(place: Place, *words: tuple[str, ...]) -> None:
    repository(place)
    for one in words:
        git(place.root, *one)


def rebasing(place: Place) -> None:
    repository(place)
    git(place.root, "checkout", "-q", "-b", "other")
    (place.root / "a.txt").write_text("other\n")
    git(place.root, "commit", "-qam", "other")
    git(place.root, "checkout", "-q", "main")
    (place.root / "a.txt").write_text("main\n")
    git(place.root, "commit", "-qam", "main")
    with pytest.raises(Exception, match="rebase"):
        git(place.root, "rebase", "other")


def submodule(place: Place) -> None:
    repository(place)
    other = place.root.parent / "library"
    other.mkdir()
    git(other, "init", "-q")
    (other / "lib.c").write_text("int x;\n")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "lib")
    git(place.root, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "vendor/library")
    git(place.root, "commit", "-qm", "submodule")


def worktree(place: Place) -> None:
    main = place.root.parent / "main"
    place.root.rmdir()
    main.mkdir()
    git(main, "init", "-q")
    (main / "a.txt").write_text("one\n")
    git(main, "add", "-A")
    git(main, "commit", "-qm", "first")
    git(main, "worktree", "add", "-q", str(place.root))


def bare(place: Place) -> None:
    git(place.root, "init", "-q", "--bare")


def nested(place: Place) -> None:
    repository(place)
    for name in ("inner", "inner/deeper"):
        folder = place.root / name
        folder.mkdir()
        git(folder, "init", "-q")
        (folder / "file.txt").write_text(name)
        (folder / ".gitignore").write_text("skip\n")
    git(place.root / "inner", "add", "file.txt")
    git(place.root / "inner", "commit", "-qm", "inner")


def links(place: Place) -> None:
    outside = place.root.parent / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    (place.root / "to-folder").symlink_to(outside)
    (place.root / "to-file").symlink_to(outside / "kept.txt")
    (place.root / "nowhere").symlink_to("no/such")


def modes(place: Place) -> None:
    for name, mode in (("run.sh", 0o755), ("private", 0o600), ("read-only", 0o444), ("group", 0o664)):
        (place.root / name).write_text(name)
        (place.root / name).chmod(mode)


def crlf(place: Place) -> None:
    repository(place)
    (place.root / ".gitattributes").write_text("* text=auto eol=lf ident\n*.txt working-tree-encoding=UTF-16\n")
    (place.root / "dos.txt").write_bytes(b"one\r\ntwo\r\nmixed\n$Id$\r\n")
    (place.root / "utf16.txt").write_bytes("ä\r\n".encode("utf-16"))


def filters(place: Place) -> None:
    repository(place)
    git(place.root, "config", "filter.x.clean", "touch ran; cat")
    git(place.root, "config", "core.hooksPath", str(place.root))
    (place.root / ".gitattributes").write_text("* filter=x\n")


def names(place: Place) -> None:
    for name in (b"line\nbreak", b"\xff\xfe", b"tab\t", b'quote"', b"-dash", b":(glob)*", b" space ", b"\xc3\xa4"):
        (Path(os.fsdecode(os.fsencode(place.root) + b"/" + name))).write_bytes(name)


def cases(place: Place) -> None:
    for name in ("Readme", "README", "readme"):
        (place.root / name).write_text(name)


def folders(place: Place) -> None:
    (place.root / "empty").mkdir()
    (place.root / "deep/er/empty").mkdir(parents=True)
    (place.root / "deep/file").write_text("x")


def ignored(place: Place) -> None:
    repository(place)
    (place.root / "build").mkdir()
    (place.root / "build/out.o").write_bytes(b"\0\1")
    (place.root / "x.log").write_text("log")


STATES: dict[str, Prepare] = {
    "no git": lambda p: (p.root / "a.txt").write_text("one\n"),
    "nothing at all": lambda p: None,
    "repository": repository,
    "no commit yet": lambda p: git(p.root, "init", "-q"),
    "staged": lambda p: (repository(p), (p.root / "a.txt").write_text("staged\n"), git(p.root, "add", "a.txt")),
    "not committed": lambda p: (repository(p), (p.root / "a.txt").write_text("dirty\n")),
    "untracked": lambda p: (repository(p), (p.root / "new").write_text("mine\n")),
    "bare": bare,
    "detached": lambda p: commits(p, ("checkout", "-q", "--detach")),
    "mid-rebase": rebasing,
    "submodule": submodule,
    "worktree": worktree,
    "nested repositories": nested,
    "links out": links,
    "modes": modes,
    "crlf and attributes": crlf,
    "filters and hooks": filters,
    "odd names": names,
    "names that differ in case": cases,
    "empty folders": folders,
    "ignored files": ignored,
    "assume unchanged": lambda p: commits(p, ("update-index", "--assume-unchanged", "a.txt")),
    "sparse": lambda p: commits(p, ("sparse-checkout", "set", "sub")),
    "stashed": lambda p: (repository(p), (p.root / "a.txt").write_text("stash\n"), git(p.root, "stash", "-q")),
}


def havoc(place: Place) -> None:
    """Change, delete, move and create all over, as a careless command would."""
    for folder, below, files in os.walk(place.root):
        if ".git" in below:
            below.remove(".git")
        for number, name in enumerate(sorted(files)):
            path = Path(folder, name)
            if name == ".git" or name.endswith((".log", ".o")) or path.is_symlink():
                continue
            match number % 3:
                case 0:
                    path.unlink()
                case 1:
                    path.chmod(0o755)
                    path.write_bytes(b"changed\r\n" + path.read_bytes())
                case _:
                    path.rename(path.with_name(f"{name}.moved"))
    for name in ("made.txt", "made/folder/file", "sub/c.txt"):
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).write_text("made")
    (place.root / "made/empty").mkdir()
    for link in ("to-file", "nowhere"):
        if (place.root / link).is_symlink():
            (place.root / link).unlink()
            (place.root / link).write_text("no link")


def git_files(place: Place) -> dict[str, bytes]:
    """The user's repository itself."""
    found = place.root / ".git"
    return {str(p): p.read_bytes() for p in found.rglob("*") if p.is_file()} if found.is_dir() else {}


@pytest.mark.parametrize("state", STATES)
def test_a_command_is_undone_to_the_byte_and_done_again(place: Place, state: str) -> None:
    STATES[state](place)
    before, own = tree(place.root), git_files(place)
    place.run(lambda: havoc(place))
    after = tree(place.root)
    assert after != before
    done, left = place.undo()
    assert left == []
    assert tree(place.root) == before
    assert git_files(place) == own  # index, HEAD, configuration: nothing of it is touched
    place.redo(done)
    assert tree(place.root) == after


def test_a_deleted_workspace_comes_back(place: Place) -> None:
    nested(place)
    folders(place)
    before = tree(place.root)
    place.run("rm -rf sub inner/file.txt a.txt deep empty")
    assert tree(place.root) != before
    place.undo()
    assert tree(place.root) == before


def test_files_and_folders_that_change_places(place: Place) -> None:
    repository(place)
    before = tree(place.root)
    place.run("rm a.txt; mkdir a.txt; echo x > a.txt/in; rm -r sub; echo y > sub")
    after = tree(place.root)
    done, _ = place.undo()
    assert tree(place.root) == before
    place.redo(done)
    assert tree(place.root) == after


def test_several_turns_are_undone_at_once(place: Place) -> None:
    repository(place)
    before = tree(place.root)
    place.edit("a.txt", b"turn 1\n", turn=1)
    middle = tree(place.root)
    place.run("echo turn 2 >> a.txt; echo new > new.txt", turn=3)
    place.edit("new.txt", b"newer\n", turn=5)
    last = tree(place.root)
    done, _ = place.undo(3)
    assert tree(place.root) == middle
    place.redo(done)
    assert tree(place.root) == last
    place.undo(1)
    assert tree(place.root) == before


# --- data that other agents lost ---------------------------------------------------------------------------------


def test_what_another_program_made_stays_however_large(place: Place) -> None:
    repository(place)
    place.run("echo made > made.txt")
    with (place.root / "dataset.bin").open("wb") as f:
        f.truncate(1_000_000_000)
    (place.root / "notes.txt").write_text("mine")
    place.run("echo again > again.txt", turn=2)
    place.undo()
    assert (place.root / "dataset.bin").stat().st_size == 1_000_000_000
    assert (place.root / "notes.txt").read_text() == "mine"
    assert not (place.root / "made.txt").exists()
    assert not (place.root / "again.txt").exists()


def test_a_changed_gitignore_neither_deletes_what_it_hid_nor_keeps_what_was_made(place: Place) -> None:
    ignored(place)
    before = tree(place.root)
    place.run("echo > .gitignore; echo made > made.log; echo made > build/made.o")
    place.undo()
    after = tree(place.root)
    made = {"made.log", "build/made.o"}  # .gitignore as it was does not cover them
    assert {k: v for k, v in after.items() if k not in made} == before


def test_a_deleted_tracked_file_returns(place: Place) -> None:
    repository(place)
    before = tree(place.root)
    place.run("git rm -q --cached a.txt; rm a.txt")
    place.undo()
    assert tree(place.root) == before


def test_what_stands_uncommitted_survives_a_hard_reset(place: Place) -> None:
    repository(place)
    (place.root / "a.txt").write_text("hours of work\n")
    (place.root / "untracked.txt").write_text("more of it\n")
    before = tree(place.root)
    place.run(lambda: (git(place.root, "reset", "-q", "--hard"), git(place.root, "clean", "-fdq")))
    assert tree(place.root) != before
    place.undo()
    assert tree(place.root) == before


# --- the user's own changes --------------------------------------------------------------------------------------


def test_a_file_that_the_user_changed_since_is_asked_about(place: Place) -> None:
    repository(place)
    place.edit("a.txt", b"agent\n")
    place.edit("sub/b.txt", b"agent\n")
    (place.root / "a.txt").write_text("user\n")
    plan = place.plan()
    assert [(i.path, i.conflict) for i in plan.items] == [("a.txt", "changed since"), ("sub/b.txt", "")]
    place.undo()
    assert (place.root / "a.txt").read_text() == "user\n"
    assert (place.root / "sub/b.txt").read_text() == "two\n"
    done, _ = place.undo(take=("a.txt",))
    assert (place.root / "a.txt").read_text() == "one\n"
    place.redo(done)
    assert (place.root / "a.txt").read_text() == "user\n"


def test_a_change_between_two_calls_is_asked_about(place: Place) -> None:
    repository(place)
    place.edit("a.txt", b"agent\n")
    (place.root / "a.txt").write_text("agent\nuser\n")
    place.run("echo more >> a.txt", turn=2)
    assert [(i.path, i.conflict) for i in place.plan().items] == [("a.txt", "changed by others between two calls")]
    assert place.plan(2).conflicts == ()


def test_a_file_of_the_user_is_not_deleted_with_the_folder_made_for_another(place: Place) -> None:
    place.run("mkdir out; echo x > out/made")
    (place.root / "out/mine").write_text("mine")
    place.undo()
    assert tree(place.root).keys() == {"out", "out/mine"}


def test_nothing_is_written_through_a_folder_that_is_a_link_now(place: Place) -> None:
    repository(place)
    outside = place.root.parent / "outside"
    outside.mkdir()
    (outside / "b.txt").write_text("agent\n")
    place.edit("sub/b.txt", b"agent\n")
    shutil.rmtree(place.root / "sub")
    (place.root / "sub").symlink_to(outside)
    _, left = place.undo(take=("sub/b.txt",))
    assert left == ["sub/b.txt"]
    assert (outside / "b.txt").read_text() == "agent\n"


def test_a_secret_file_is_kept_beside_the_repository(place: Place) -> None:
    (place.root / ".env").write_text("KEY=old\n")
    place.edit(".env", b"KEY=new\n")
    place.run("echo x > y; echo KEY=later > .env", turn=2)
    kept = list((place.shadow.folder / "secret").iterdir())
    assert {k.read_text() for k in kept} == {"KEY=old\n", "KEY=new\n"}
    assert {oct(k.stat().st_mode & 0o777) for k in kept} == {"0o600"}
    assert not any(
        b"KEY" in place.shadow.objects.get(o) for o, _, _ in place.shadow.objects.everything() if ":" not in o
    )
    place.undo()
    assert (place.root / ".env").read_text() == "KEY=old\n"


def test_hard_links_and_permissions_of_the_file_are_kept(place: Place) -> None:
    file = place.root / "a"
    file.write_text("old")
    file.chmod(0o640)
    (place.root / "b").hardlink_to(file)
    place.run("echo new > a")
    place.undo()
    assert (place.root / "b").read_text() == "old"
    assert file.stat().st_nlink == 2
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_new_large_file_is_removed_and_comes_back_with_a_redo(place: Place) -> None:
    place.run("head -c 11000000 /dev/urandom > large.bin; echo x > small")
    after = tree(place.root)
    done, left = place.undo()
    assert left == []
    assert tree(place.root) == {}
    assert place.redo(done) == []
    assert tree(place.root) == after


def test_a_large_file_that_a_command_changed_is_named(place: Place) -> None:
    (place.root / "large.bin").write_bytes(b"x" * 11_000_000)
    place.run(lambda: (place.root / "large.bin").write_bytes(b"y"))
    (turn,) = place.shadow.records.turns("thread")
    assert turn.left_out == ("large.bin",)


def test_what_is_old_or_too_much_is_pruned(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.edit("a", b"old")
    place.edit("a", b"newer")
    place.clock.advance(31 * 86_400)
    place.edit("b", b"of today", turn=2)
    place.run("echo x > c", turn=3)
    monkeypatch.setattr(shadows, "YOUNG_S", -10)
    place.shadow.prune()
    assert [t.index for t in place.shadow.records.turns("thread")] == [2, 3]
    kept = {place.shadow.objects.get(o) for o, _, _ in place.shadow.objects.everything()}
    assert b"old" not in kept
    assert b"of today" in kept
    (place.shadow.folder / "pruned").unlink()
    monkeypatch.setattr(shadows, "LARGEST", 0)
    place.clock.advance(60)
    place.shadow.prune()
    assert place.shadow.records.turns("thread") == []
    assert place.shadow.size() == 0


def test_a_thread_that_is_purged_takes_its_contents(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(place)
    place.edit("a.txt", b"only here\n")
    monkeypatch.setattr(shadows, "get_checkpoints_home", lambda: place.shadow.folder.parent)
    assert shadows.purge_thread("another") == 0
    assert shadows.purge_thread("thread") == 1
    assert place.shadow.records.turns("thread") == []
    assert list(place.shadow.objects.everything()) == []


@pytest.mark.parametrize(
    "command", ["rm kept", "rm kept; echo new > kept", "echo new > n; mv n kept", "chmod 644 kept; echo x > kept"]
)
def test_permissions_come_back_with_a_content_also_after_a_restart(tmp_path: Path, command: str) -> None:
    place = Place(tmp_path)
    (place.root / "kept").write_text("private\n")
    place.run("true")
    (place.root / "kept").chmod(0o600)  # by the user, the content stays
    place.shadow = place.opened()
    place.run(command)
    done, left = place.undo()
    assert left == [] and tree(place.root) == {"kept": ("0o600", b"private\n")}
    place.redo(done)
    assert (place.root / "kept").exists() is (command != "rm kept")


def test_permissions_that_the_user_set_since_stay(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "kept").write_text("old\n")
    place.run("echo new > kept")
    (place.root / "kept").chmod(0o600)
    place.undo()
    assert tree(place.root) == {"kept": ("0o600", b"old\n")}


def full(place: Place, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let writing one file fail as it does on a full disk."""
    write = safe_paths.write

    def fails(root: Path, path: str, *more: object) -> None:
        if path == name:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(root, path, *more)

    monkeypatch.setattr(safe_paths, "write", fails)


def test_an_undo_that_could_not_write_all_is_completed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "a").write_text("a")
    (place.root / "b").write_text("b")
    before = tree(place.root)
    place.run("echo x > a; echo y > b")
    with monkeypatch.context() as patched:
        full(place, patched, "b")
        done, left = place.undo()
    assert left == ["b"]
    (incomplete,) = place.shadow.records.undone()
    assert incomplete.unwritten == ("b",)
    plan = place.shadow.plan(s.reverse() for s in incomplete.steps if s.path in incomplete.unwritten)
    assert [i.path for i in plan.items] == ["b"]
    assert place.shadow.complete(incomplete, plan) == []
    assert tree(place.root) == before
    assert [u.unwritten for u in place.shadow.records.undone()] == [()]
    assert place.redo(done) == []
    assert (place.root / "b").read_text() == "y\n"


def test_permissions_pipes_and_folders_are_restored(place: Place) -> None:
    (place.root / "sub/deep").mkdir(parents=True)
    (place.root / "private").mkdir(mode=0o700)
    for name in ("a", "sub/b", "private/c"):
        (place.root / name).write_text(name)
    os.mkfifo(place.root / "old-pipe", 0o640)
    before, modes = tree_of_modes(place.root), {p: p.stat().st_mode for p in place.root.rglob("*")}
    place.run("chmod 000 a; rm -r private old-pipe; mkfifo pipe; rm sub/b; touch sub/new; chmod 555 sub")
    assert place.undo()[1] == []
    assert tree_of_modes(place.root) == before
    assert {p: p.stat().st_mode for p in place.root.rglob("*")} == modes


def tree_of_modes(root: Path) -> dict[str, object]:
    return {str(p): (oct(p.lstat().st_mode), p.read_text() if p.is_file() else "") for p in sorted(root.rglob("*"))}


def test_permissions_that_the_user_set_since_are_kept(place: Place) -> None:
    (place.root / "a").write_text("a")
    place.run("chmod 600 a")
    (place.root / "a").chmod(0o640)
    assert place.plan().items == ()


PREPARE = """
mkdir -p src d build/sub e/mpty node_modules
for f in src/a d/x build/o build/sub/p x.log y.log z.log node_modules/m .env; do echo $f > $f; done
printf 'build/\ndist/\nnode_modules\n*.log\n' > .gitignore
ln -s src/a link; ln -s build hidden.log; mkfifo pipe; head -c 11000000 /dev/zero > big.bin
"""
# Commands of which each file and folder of `PREPARE`, with its kind and permissions, is restored.
RESTORED = {
    "folders that become files and links": "rm -r d e; echo x > d; ln -s src e; rm -rf build; ln -s src build",
    "files that become folders": "rm src/a x.log link; mkdir src/a x.log link; echo 1 > src/a/1.log; mkdir -p x.log/e",
    "files that become links": "rm src/a x.log; ln -s ../d/x src/a; ln -s d/x x.log; rm link; echo x > link",
    "ignored links": 'python3 -c \'import os; os.remove("hidden.log"); os.symlink("x", "hidden.log")\'',
    "an ignored folder renamed": 'python3 -c \'import os; os.rename("build", "moved"); os.rename("big.bin", "big")\'',
    "ignored files renamed": 'mkdir n; python3 -c \'import os; os.rename("build", "n/b"); os.rename(".env", "e")\'',
    "an ignored folder renamed to another": 'python3 -c \'import os; os.rename("build", "dist")\'',
    "a folder of packages moved": "mv node_modules other",
    "folders with nothing in them": "rmdir e/mpty; mkdir -p dist/q/r",
    "permissions": "chmod 1770 .; chmod 755 x.log big.bin; chmod 700 build; chmod 600 .env y.log; chmod 000 d/x",
    "pipes": "rm pipe; mkdir pipe; echo 1 > pipe/1",
    "a pipe that becomes a file": "rm pipe; echo x > pipe; mkfifo p2",
    "everything": "find . -mindepth 1 -delete",
    "places exchanged": "mv src t; mv d src; mv t d; chmod 2755 src",
}


@pytest.mark.parametrize("name", RESTORED)
def test_kinds_permissions_and_ignored_files_are_restored(tmp_path: Path, name: str) -> None:
    place = Place(tmp_path)
    subprocess.run(("bash", "-ec", PREPARE), cwd=place.root, check=True)
    before = tree_of_kinds(place.root)
    place.run(RESTORED[name])
    after = tree_of_kinds(place.root)
    assert after != before
    assert all((t.left_out, t.stays) == ((), ()) for t in place.shadow.records.turns("thread"))
    done, left = place.undo()
    assert left == []
    assert tree_of_kinds(place.root) == before
    assert place.redo(done) == []
    assert tree_of_kinds(place.root) == after


def tree_of_kinds(root: Path) -> dict[str, object]:
    out: dict[str, object] = {".": root.stat().st_mode}
    for path in root.rglob("*"):
        found = path.lstat()
        is_link = stat.S_ISLNK(found.st_mode)
        content = path.readlink() if is_link else path.read_bytes() if stat.S_ISREG(found.st_mode) else None
        out[str(path.relative_to(root))] = (found.st_mode, content)
    return out


def test_the_only_copy_of_what_cannot_be_restored_is_not_deleted(tmp_path: Path) -> None:
    place = Place(tmp_path)
    subprocess.run(("bash", "-ec", PREPARE), cwd=place.root, check=True)
    place.run('python3 -c \'import os; os.rename("node_modules", "other"); os.remove("x.log")\'; echo 1 > dist.log')
    (turn,) = place.shadow.records.turns("thread")
    assert turn.left_out == ("node_modules (is now other)", "x.log")
    assert turn.stays == ("dist.log",)
    place.undo()
    assert (place.root / "other/m").read_text() == "node_modules/m\n"


def test_a_folder_in_the_place_of_a_file_blocks_until_its_content_is_moved(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.root / "a").write_text("a\n")
    place.run("rm a; mkdir a; echo x > a/x")
    (place.root / "a/mine").write_text("mine\n")
    assert place.undo()[1] == ["a"]
    (incomplete,) = place.shadow.records.undone()
    (place.root / "a/mine").rename(place.root / "mine")
    plan = place.shadow.plan(s.reverse() for s in incomplete.steps if s.path in incomplete.unwritten)
    assert place.shadow.complete(incomplete, plan) == []
    assert (place.root / "a").read_text() == "a\n"


NAMED = {
    "removed": "rm -rf data local.db",
    "moved": "mv data elsewhere; mv local.db other.db",
    "overwritten": "echo new > local.db; cp .gitignore data/1; sed -i s/d/e/ data/deep/2; echo more >> large.bin",
    "found": "find data -type f -delete; find . -name '*.db' -delete",
    "cleaned": "git init -q; git clean -qfdx",
    "globbed": "rm -rf da*; rm ./local.d?",
}


@pytest.mark.parametrize("name", NAMED)
def test_uncovered_files_that_a_command_names_are_restored(place: Place, name: str) -> None:
    (place.root / "data/deep").mkdir(parents=True)
    for path in ("data/1", "data/deep/2", "local.db", ".env"):
        (place.root / path).write_text(f"data of {path}")
    (place.root / "large.bin").write_bytes(b"x" * 11_000_000)
    (place.root / ".gitignore").write_text("data/\n*.db\nelsewhere\n")
    before = tree(place.root)
    place.run(NAMED[name])
    assert all(t.left_out == () for t in place.shadow.records.turns("thread"))
    assert place.undo()[1] == []
    after = tree(place.root)
    assert {p: after.get(p) for p in before} == before


def test_uncovered_files_that_no_command_names_are_told(place: Place) -> None:
    (place.root / "data").mkdir()
    (place.root / "data/1").write_text("1")
    (place.root / "local.db").write_text("2")
    (place.root / ".gitignore").write_text("data/\n*.db\n")
    place.run(lambda: (shutil.rmtree(place.root / "data"), (place.root / "local.db").write_text("3")))
    (turn,) = place.shadow.records.turns("thread")
    assert turn.left_out == ("data/1", "local.db")


def test_too_much_to_be_kept_is_refused_before(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.root / "data").mkdir()
    (place.root / "data/1").write_text("1" * 2_000)
    (place.root / ".gitignore").write_text("data/\n")
    monkeypatch.setattr(surroundings, "LARGEST", 1_000)
    named = read_targets("rm -rf data", Judged(place.root, place.root))
    assert place.shadow.explain_loss(named) == "data: 2.0 kB in 1 file"
    assert place.shadow.explain_loss(read_targets("rm -rf .gitignore", Judged(place.root, place.root))) == ""
