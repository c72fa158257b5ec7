"""A restore that is killed at any step is completed by the next look, and what others did meanwhile stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.fakes.checkpoints import Place, tree


def prepared(folder: Path) -> tuple[Place, dict[str, object], dict[str, object]]:
    place = Place(folder)
    for name in ("a", "b", "sub/c"):
        (place.root / name).parent.mkdir(exist_ok=True)
        (place.root / name).write_text(f"{name} of the user\n")
    (place.root / "b2").hardlink_to(place.root / "b")
    before = dict(tree(place.root))
    place.run("echo agent > a; echo agent > b; rm -r sub; mkdir new; echo x > new/file; ln -s a link")
    return place, before, dict(tree(place.root))


def killed_at(place: Place, number: int, *, redo: bool) -> str:
    """Undo in a process of its own that is killed at its `number`th step; return where, "" where it ended before."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        left = number
        restorer_of = place.shadow.restorer

        def reached(at: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.write(write, at.encode())
                os.kill(os.getpid(), signal.SIGKILL)

        def restorer():
            made = restorer_of()
            return type(made)(made.root, made.folder, made.objects, made.records, reached)

        type(place.shadow).restorer = lambda _self: restorer()  # in the child only
        if redo:
            place.redo(place.shadow.records.undone()[-1])
        else:
            place.undo()
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as f:
        return f.read().decode()


@pytest.mark.parametrize("redo", [False, True])
@pytest.mark.parametrize("number", range(1, 13))
def test_a_kill_at_each_step(tmp_path: Path, number: int, redo: bool) -> None:
    place, before, after = prepared(tmp_path)
    if redo:
        place.undo()
        before, after = after, before
    where = killed_at(place, number, redo=redo)
    seen = tree(place.root)
    fresh = place.opened()
    left = fresh.recover()
    if where in ("before the snapshot", "before the journal"):
        assert left is None
        assert seen == after == tree(place.root)
    else:
        assert (left.skipped if left is not None else None) == ([] if where else None)
        assert tree(place.root) == before
        assert fresh.recover() is None
        assert [u.redone for u in fresh.records.undone()] == [redo]


def test_all_steps_were_killed_at(tmp_path: Path) -> None:
    place, _, _ = prepared(tmp_path)
    assert killed_at(place, 99, redo=False) == ""
    place.redo(place.shadow.records.undone()[0])
    steps = len(place.plan().items)
    assert 5 + steps <= 12


def test_a_change_between_kill_and_completion_stays(tmp_path: Path) -> None:
    place, before, _ = prepared(tmp_path)
    assert killed_at(place, 4, redo=False).startswith("step ")
    (place.root / "a").write_text("written after the kill\n")
    recovery = place.opened().recover()
    assert recovery is not None and recovery.skipped == ["a"]
    assert recovery.in_words() == f"An interrupted undo was completed: {len(recovery.undo.steps) - 1} files."
    assert tree(place.root) == {**before, "a": ("0o644", b"written after the kill\n")}


def test_a_journal_that_is_no_journal_is_dropped(tmp_path: Path) -> None:
    place, _, after = prepared(tmp_path)
    (place.shadow.folder / "restoring.json").write_text('{"undo": {"id')
    assert place.shadow.recover() is None
    assert tree(place.root) == after


def test_a_cut_line_of_a_record_costs_only_itself(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.edit("a", b"1")
    (file,) = (place.shadow.folder / "turns" / "thread").iterdir()
    with file.open("ab") as f:
        f.write(b'{"at": 1, "changes": [["b", nul')
    place.edit("c", b"3")
    (turn,) = place.shadow.records.turns("thread")
    assert [c.path for c in turn.changes] == ["a", "c"]
