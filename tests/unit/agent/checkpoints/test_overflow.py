"""Changes where nothing is kept are named: in added folders, and beyond the limit of files that are noted."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from sakti.actions import undo
from sakti.agent.checkpoints import shadow as shadows
from sakti.agent.checkpoints import surroundings, undoing
from sakti.agent.checkpoints.records import RecordedTurn
from sakti.core.text import to_one_line
from sakti.providers.scripted import Answer, Call
from tests.fakes.checkpoints import Place, git, tree
from tests.fakes.session import start


def turn_of(place: Place) -> RecordedTurn | None:
    turns = place.shadow.records.turns(place.thread)
    return turns[0] if turns else None


@pytest.fixture
def added(tmp_path: Path) -> Path:
    folder = tmp_path / "other"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.txt", "b.txt", "sub/c.txt"):
        (folder / name).write_text(f"{name}\n")
    return folder


def run_beside(place: Place, added: Path, command: str) -> tuple[set[str], set[str]]:
    """Return what a command is recorded to have changed in an added folder, and what is new there."""
    first = place.shadow.before(turn=(place.thread, 1), added=[added])
    assert os.system(f"cd {added} && {command}") == 0
    place.shadow.after(first)
    turn = turn_of(place)
    paths = [{str(Path(p).relative_to(added)) for p in names} for names in (turn.left_out, turn.stays)] if turn else []
    return (paths[0], paths[1]) if paths else (set(), set())


@pytest.mark.parametrize(
    ("command", "lost", "new"),
    [
        ("cat a.txt", set(), set()),
        ("rm a.txt", {"a.txt"}, set()),
        ("echo A.TXT > a.txt; chmod 600 b.txt", {"a.txt", "b.txt"}, set()),
        ("rm -r sub; mkdir made", {"sub/c.txt"}, {"made"}),
        ("mv a.txt new.txt", {"a.txt"}, {"new.txt"}),
    ],
)
def test_changes_in_an_added_folder_are_named(tmp_path, added, command, lost, new):
    assert run_beside(Place(tmp_path), added, command) == (lost, new)


def test_the_repository_of_an_added_folder_is_looked_at(tmp_path, added):
    git(added, "init", "-q")
    git(added, "add", "-A")
    git(added, "commit", "-qm", "first")
    place = Place(tmp_path)
    assert run_beside(place, added, "touch a.txt && touch -d '2020-01-01' a.txt && git status -s")[0] == {"a.txt"}
    lost, _ = run_beside(place, added, "git branch -q -m other")
    assert ".git/HEAD" in lost and ".git/index" not in lost


@pytest.mark.parametrize("command", ["rm a.txt", "rm deep/er/5", "echo > deep/er/5", "touch deep/er/new"])
def test_changes_beyond_the_limit_of_an_added_folder_are_named(tmp_path, added, monkeypatch, command):
    monkeypatch.setattr(surroundings, "MOST", 4)
    (added / "deep" / "er").mkdir(parents=True)
    for number in range(9):
        (added / "deep" / "er" / str(number)).touch()
    time.sleep(0.02)  # the file system's clock ticks: what was written in the same tick may have been changed after
    lost, new = run_beside(Place(tmp_path), added, command)
    assert not new and {n.partition("/")[0] for n in lost} == {command.rpartition(" ")[2].partition("/")[0]}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("true", set()),
        ("rm a.txt; echo more >> b.txt; echo new > c.txt", set()),
        ("echo > out/deep/7.log", {"out/deep/7.log"}),
        ("python3 -c \"import os; os.remove('out/deep/7.log')\"", {"out/deep/"}),
        ("touch out/deep/new.log", {"out/deep/new.log"}),
        ("python3 -c \"import shutil; shutil.rmtree('out')\"", {"out/deep/"}),
    ],
)
def test_changes_of_ignored_files_beyond_the_limit_are_named(tmp_path, monkeypatch, command, names):
    monkeypatch.setattr(surroundings, "MOST", 3)
    place = Place(tmp_path)
    (place.root / ".gitignore").write_text("*.log\n")
    (place.root / "a.txt").write_text("a\n")
    (place.root / "b.txt").write_text("b\n")
    (place.root / "out" / "deep").mkdir(parents=True)
    for number in range(4):
        (place.root / f"{number}.log").touch()
    for number in range(9):
        (place.root / "out" / "deep" / f"{number}.log").touch()
    place.run(command)
    turn = turn_of(place)
    assert {*(turn.left_out if turn else ())} == names


async def test_undo_names_changes_in_a_folder_added_to_the_session(store, tmp_path, added):
    (tmp_path / "w").mkdir()
    call = Call("bash", {"command": f"python3 -c \"import os; os.remove('{added}/a.txt')\""})
    overrides = ("approval.mode=edits", 'approval.allow=["bash"]')
    here = await start(store, tmp_path / "w", [Answer(calls=(call,)), "removed"], overrides=overrides, added=(added,))
    await here.ask("remove it")
    preview = await undoing.make_undoing(here.session).preview(what="files")
    assert f"Cannot be restored: {to_one_line(str(added / 'a.txt'), 80)}" in undo.describe_preview(preview)
    result = await undoing.make_undoing(here.session).undo(preview)
    assert not result.is_complete
    await here.session.close()


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("sed -i /ign/d .gitignore", set()),
        ("rm .gitignore", set()),
        ("echo '!*' > ign/.gitignore", set()),
        ("echo '!a' > .ignored && mv .ignored sub/.gitignore", set()),
        ("sed -i /ign/d .gitignore; echo more >> ign/a", {"ign/a"}),
    ],
)
@pytest.mark.parametrize("scanner", ["git", "dulwich"])
def test_ignored_files_that_only_become_visible_are_not_changes(tmp_path, monkeypatch, scanner, command, lost):
    if scanner == "dulwich":
        monkeypatch.setattr(shadows, "find_git", lambda _workspace: None)
    place = Place(tmp_path)
    for name in ("ign/a", "sub/a", "sub/ign/b", "node_modules/c"):
        (place.root / name).parent.mkdir(parents=True, exist_ok=True)
        (place.root / name).write_text("text\n")
    (place.root / ".gitignore").write_text("ign/*\na\nnode_modules/*\n!.gitignore\n")
    before = tree(place.root)
    place.run(lambda: subprocess.run(("bash", "-c", command), cwd=place.root, check=True))
    turn = turn_of(place)
    assert {*turn.left_out} == lost
    place.undo()
    named = {*turn.left_out, *turn.stays}  # dulwich takes ign/.gitignore for ignored: it stays, and is named
    rows = {p: row for p, row in tree(place.root).items() if p not in named}
    assert rows == {p: row for p, row in before.items() if p not in named}
