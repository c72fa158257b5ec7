"""What a call changed before sakti was killed belongs to its turn, once, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sakti.agent.checkpoints import records
from sakti.agent.checkpoints import shadow as shadows
from sakti.agent.checkpoints.recorder import TurnRecorder
from sakti.agent.checkpoints.records import CallMark
from sakti.agent.checkpoints.shadow import FirstLook
from sakti.agent.tools import changes
from sakti.agent.tools.context import ToolState
from sakti.core.clock import TimeIds
from tests.fakes.checkpoints import Place, git, tree

FILE = stat.S_IFREG | 0o644


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    git(place.root, "init", "-q")
    (place.root / "a").write_text("a of the user\n")
    (place.root / "b").write_text("b of the user\n")
    (place.root / ".gitignore").write_text("*.db\n")
    (place.root / "local.db").write_text("data\n")
    git(place.root, "add", "a")
    git(place.root, "commit", "-qm", "first")
    return place


def kill_in(work: Callable[[], object]) -> None:
    """Do something in a process that is killed then."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def kill_while(place: Place, command: str) -> None:
    """Run a command during which sakti is killed."""

    def work() -> None:
        place.shadow = place.opened()
        place.shadow.after = lambda _first: os.kill(os.getpid(), signal.SIGKILL)
        place.run(command)

    kill_in(work)


def test_changes_of_a_command_belong_to_its_turn_after_a_kill(place: Place) -> None:
    before = tree(place.root)
    kill_while(place, "echo agent > a; rm b local.db; mkdir new; echo x > new/file; git commit -qam agent; rm -rf .git")
    after = tree(place.root)
    first, second = place.opened(), place.opened()
    assert first.recover() is None
    assert second.recover() is None
    (turn,) = first.records.turns("thread")
    assert len({c.path for c in turn.changes}) == len(turn.changes)  # not doubled
    assert records.list_calls(first.folder) == []
    done, left = place.undo()
    assert left == [] and place.plan().conflicts == ()
    assert tree(place.root) == before
    assert git(place.root, "log", "--format=%s").split() == ["first"]
    place.redo(done)
    assert tree(place.root) == after


def test_another_window_records_the_changes_before_its_own_command(place: Place) -> None:
    kill_while(place, "echo agent > a")
    other = Place(place.root.parent, thread="other")
    other.run("echo other > b", turn=5)
    assert [c.path for t in place.shadow.records.turns("thread") for c in t.changes] == ["a"]
    assert [c.path for t in place.shadow.records.turns("other") for c in t.changes] == ["b"]


def test_changes_after_the_kill_are_asked_about(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shadows, "MARGIN_NS", 0)
    kill_while(place, "echo agent > a; echo agent > made")
    (mark,) = (place.shadow.folder / "pending").iterdir()
    killed = (place.root / "made").stat().st_ctime_ns
    os.utime(mark, ns=(killed, killed))
    while (place.root / "b").stat().st_ctime_ns <= killed:
        (place.root / "b").write_text("edited later\n")
    place.shadow.recover()
    assert {i.path: bool(i.conflict) for i in place.plan().items} == {"a": False, "made": False, "b": True}
    place.undo()
    assert (place.root / "b").read_text() == "edited later\n"


def test_a_kill_after_the_record_does_not_double_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(place.root)
    with monkeypatch.context() as patched:
        patched.setattr(CallMark, "end", lambda _self: os.kill(os.getpid(), signal.SIGKILL))
        kill_in(lambda: place.run("echo agent >> a"))
    place.shadow.recover()
    assert place.plan().conflicts == ()
    place.undo()
    assert tree(place.root) == before


def test_a_call_of_a_living_process_is_left_to_it(place: Place) -> None:
    first = place.shadow.before(turn=("thread", 1))
    (place.root / "a").write_text("agent\n")
    assert place.opened().recover() is None
    assert place.shadow.records.turns("thread") == []
    place.shadow.after(first)
    assert [c.path for t in place.shadow.records.turns("thread") for c in t.changes] == ["a"]


def test_a_killed_file_tool_leaves_no_temporary_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(place.root)

    async def write() -> None:
        state = ToolState(place.root, place.root, place.root.parent, place.clock, TimeIds(place.clock), {})
        state.recorder = recorder = TurnRecorder(place.opened(), lambda _why: None)
        recorder.begin("thread", 1)
        new = [changes.ChangedFile(place.root / name, name, None, "new\n", b"new\n") for name in ("a", "c")]
        changes.write_changes(state.make_context("call", "thread", "m"), new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        kill_in(lambda: asyncio.run(write()))
    assert len(tree(place.root)) == len(before) + 1
    place.shadow.recover()
    assert tree(place.root) == before
    assert place.plan().items == ()


def test_a_file_that_was_being_overwritten_is_restored(place: Place) -> None:
    (place.root / "other name").hardlink_to(place.root / "a")
    before = tree(place.root)

    def work() -> None:
        with place.opened().record_writes([(place.root / "a", b"new content\n", FILE)], ("thread", 1)):
            (place.root / "a").write_bytes(b"new ")
            os.kill(os.getpid(), signal.SIGKILL)

    kill_in(work)
    place.shadow.recover()
    assert place.undo()[1] == []
    assert tree(place.root) == before


def test_a_mark_that_cannot_be_read_is_named(place: Place) -> None:
    kill_while(place, "echo agent > a")
    (mark,) = (place.shadow.folder / "pending").iterdir()
    mark.write_bytes(mark.read_bytes().partition(b"\n")[0] + b"\n\x80\x05of another version")
    place.shadow.recover()
    (turn,) = place.shadow.records.turns("thread")
    assert turn.left_out == ("anything that a command changed",)


def begin_job(place: Place, turn: int, command: str) -> FirstLook:
    first = place.shadow.before(turn=("thread", turn), command=command)
    (place.root / f"at once {turn}").touch()
    job = place.shadow.follow(first)
    place.shadow.after(first, goes_on=True)
    return job


def test_a_background_command_does_not_take_what_other_calls_and_the_user_changed(place: Place) -> None:
    job = begin_job(place, 1, "make")
    place.clock.advance(1)
    place.edit("a", b"of another call\n", turn=3)
    (place.root / "out").write_text("of the job\n")
    place.clock.advance(1)
    place.shadow.after(job)
    assert [c.path for c in place.shadow.records.turns("thread")[0].changes] == ["at once 1", "out"]
    job = begin_job(place, 5, "npm run dev")
    assert [c.command for c in place.shadow.jobs()] == ["npm run dev"]
    (place.root / "b").write_text("of the user\n")
    place.clock.advance(600)
    place.shadow.after(job)
    assert place.shadow.jobs() == []
    assert {i.path: bool(i.conflict) for i in place.plan(5).items} == {"at once 5": False, "b": True}


@pytest.mark.parametrize(
    "names",
    [
        ("posix", "system"),
        ("sakti.agent.checkpoints.safe_paths", "os.system"),
        ("sakti.agent.checkpoints.records", "append"),
    ],
)
def test_notes_of_a_call_name_no_function(place: Place, tmp_path: Path, names: tuple[str, str]) -> None:
    """A file that somebody else wrote calls nothing when it is read."""
    module, function = (name.encode() for name in names)
    loading = b"\x80\x05" + b"".join(b"\x8c" + bytes([len(n)]) + n for n in (module, function)) + b"\x93"
    mark = records.begin_call(place.shadow.folder, records.PendingCall("1", "t", 0, 0))
    with mark.file.open("ab") as file:
        file.write(loading + b"\x8c\x04true\x85R.")
    assert mark.load() is None
    mark.end()
