"""Between the question and the write a file may become another one: then nothing is written."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sakti.agent.tools import changes
from sakti.agent.tools.changes import remove_file, replace_file
from sakti.agent.tools.files import open_folder, read_file
from sakti.core.errors import ToolError
from sakti.core.events import ApprovalRequested, ToolFinished
from sakti.core.types import ToolResultPart
from sakti.providers.scripted import Answer, Call
from sakti.store.database import Store
from tests.fakes.session import start


async def asked(
    store: Store, ws: Path, calls: list[Call], meanwhile: Callable[[], object]
) -> tuple[list[ToolResultPart], int]:
    """Play calls whose questions are answered with yes, after `meanwhile`; returns results and number of questions."""
    run = await start(store, ws, [*(Answer(calls=(c,)) for c in calls), "done"])
    questions: list[str] = []

    def answer(event: Any) -> None:
        if isinstance(event, ApprovalRequested):
            questions.append(event.id)
            meanwhile()
            run.session.resolve(event.id, True)

    run.session.subscribe(answer)
    await run.ask("do it")
    return [e.result for e in run.of(ToolFinished)], len(questions)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "w" / "sub").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    return tmp_path / "w"


async def test_a_folder_that_becomes_a_link_is_no_way_out(store: Store, ws: Path, tmp_path: Path) -> None:
    def swap() -> None:
        (ws / "sub").rmdir()
        (ws / "sub").symlink_to(tmp_path / "out")

    results, questions = await asked(store, ws, [Call("write", {"path": "sub/f", "content": "x"})], swap)
    assert questions == 1 and results[0].is_error and "no longer the file that was allowed" in results[0].content
    assert list((tmp_path / "out").iterdir()) == []


async def test_a_dangling_link_under_the_name_of_a_new_file(store: Store, ws: Path, tmp_path: Path) -> None:
    results, _ = await asked(
        store,
        ws,
        [Call("write", {"path": "new.txt", "content": "x"})],
        lambda: (ws / "new.txt").symlink_to(tmp_path / "out" / "there"),
    )
    assert results[0].is_error and not (tmp_path / "out" / "there").exists()


@pytest.mark.parametrize("path", ["a.txt", "made.txt"])
async def test_a_change_of_what_was_shown_of_equal_size_and_time(store: Store, ws: Path, path: str) -> None:
    """`made.txt` is known only as the product of a command."""
    (ws / "a.txt").write_text("one two\n")

    def swap() -> None:
        if not (ws / path).exists():
            return
        before = (ws / path).stat()
        (ws / path).write_text("owe two\n")
        os.utime(ws / path, ns=(before.st_atime_ns, before.st_mtime_ns))

    know = Call("read", {"path": path}) if path == "a.txt" else Call("bash", {"command": f"cp a.txt {path}"})
    edit = Call("edit", {"path": path, "edits": [{"old": "two", "new": "three"}]})
    results, _ = await asked(store, ws, [know, edit], swap)
    assert results[-1].is_error
    assert (ws / path).read_text() == "owe two\n"


def test_what_is_written_follows_no_link_that_appears_on_the_way(ws: Path, tmp_path: Path) -> None:
    (ws / "sub").rmdir()
    (ws / "sub").symlink_to(tmp_path / "out")
    for act in (lambda: replace_file(ws / "sub" / "f", b"x", ".f"), lambda: remove_file(ws / "sub" / "f")):
        with pytest.raises(ToolError, match="now leads elsewhere"):
            act()
    (ws / "file").symlink_to(tmp_path / "out" / "g")
    with pytest.raises(ToolError, match="now leads elsewhere"):
        replace_file(ws / "file", b"x", ".f")
    (ws / ".f").symlink_to(tmp_path / "out" / "h")
    with pytest.raises(FileExistsError):
        replace_file(ws / "new", b"x", ".f")
    assert list((tmp_path / "out").iterdir()) == []


def test_missing_folders_are_made_and_modes_kept(ws: Path) -> None:
    replace_file(ws / "a" / "b" / "c.txt", b"one", ".c")
    (ws / "a" / "b" / "c.txt").chmod(0o750)
    replace_file(ws / "a" / "b" / "c.txt", b"two", ".c")
    assert (ws / "a" / "b" / "c.txt").read_bytes() == b"two"
    assert (ws / "a" / "b" / "c.txt").stat().st_mode & 0o777 == 0o750
    assert [p.name for p in (ws / "a" / "b").iterdir()] == ["c.txt"], "no temporary file is left"
    with open_folder(ws / "a" / "b" / "c.txt") as folder:
        assert changes.stat_in_folder(folder, ws / "a" / "b" / "none") is None


@pytest.mark.parametrize("name", ["read", "ls", "grep", "glob"])
async def test_a_link_that_changes_after_the_question_shows_nothing_else(
    store: Store, ws: Path, tmp_path: Path, name: str
) -> None:
    other = tmp_path / "other"
    for folder in (tmp_path / "out", other):
        (folder / "f").mkdir(parents=True)
        (folder / "f" / "note.txt").write_text(f"canary {folder.name}\n")
    link = ws / "link"
    link.symlink_to(tmp_path / "out" / "f")
    path = "link/note.txt" if name == "read" else "link"

    def swap() -> None:
        link.unlink()
        link.symlink_to(other / "f")

    arguments = {"path": path} | (
        {} if name in ("read", "ls") else {"pattern": "*.txt" if name == "glob" else "canary"}
    )
    results, questions = await asked(store, ws, [Call(name, arguments)], swap)
    assert questions == 1 and results[0].is_error, results[0].content
    assert "no longer the file that was allowed" in results[0].content


def test_reading_follows_no_link_that_appears_on_the_way(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "f").write_text("canary")
    (ws / "sub").rmdir()
    (ws / "sub").symlink_to(tmp_path / "out")
    (ws / "file").symlink_to(tmp_path / "out" / "f")
    for path in (ws / "sub" / "f", ws / "file"):
        with pytest.raises(ToolError, match="now leads elsewhere"):
            read_file(path)
    assert read_file(tmp_path / "out" / "f")[1].text == "canary"
