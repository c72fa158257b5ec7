"""Another process that holds the database for long: who has something to save waits in sight, loses nothing, and says
the truth when it gives up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import apsw
import pytest

from tests.e2e.conftest import Place


@contextmanager
def locked(place: Place) -> Iterator[apsw.Connection]:
    other = apsw.Connection(str(place.path))
    other.setbusytimeout(30_000)  # the chat's own upkeep may be writing
    other.execute("BEGIN IMMEDIATE")
    try:
        yield other
    finally:
        other.close()


@pytest.fixture
def there(place: Place) -> Place:
    assert place.run("tasks", "create", "first").returncode == 0
    return place


def started(place: Place, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "sakti", *arguments],
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_command_waits_and_says_so(there: Place) -> None:
    there.model.play("the notes", "They drain.")
    for arguments in (("tasks", "create", "second"), ("run", "the notes", "--model", "openai/bench")):
        with locked(there) as other:
            process = started(there, *arguments)
            assert process.stderr is not None
            assert "waiting for another window that writes to the database, 90 s at most" in process.stderr.readline()
            other.execute("COMMIT")
            out, err = process.communicate(timeout=30)
            assert process.returncode == 0, err
    assert out == "They drain.\n"
    assert [t for (t,) in there.rows("SELECT title FROM tasks ORDER BY pk")] == ["first", "second"]


def test_a_command_that_gives_up_says_what_is_true(there: Place) -> None:
    there.env["SAKTI_STORE__WAIT"] = "0.2"
    with locked(there):
        for arguments in (("tasks", "create", "second"), ("run", "the notes", "--model", "openai/bench")):
            done = there.run(*arguments)
            assert (done.returncode, done.stdout) == (1, "")
            assert "Not saved. Another window has been writing" in done.stderr
            assert "Nothing was changed" in done.stderr and "un it again" in done.stderr
        read = there.run("tasks", "list")
        assert (read.returncode, "first" in read.stdout) == (0, True)
    assert there.rows("SELECT count(*) FROM tasks") == [(1,)] and there.threads() == []


def test_the_chat_waits_in_sight_and_sends_what_was_typed(there: Place) -> None:
    there.model.play("the notes", "They drain.")
    with there.open() as t:
        t.until("openai/bench")
        with locked(there) as other:
            t.keys("the notes please\r")
            t.until("waiting for another window")
            other.execute("COMMIT")
            t.until("They drain.")
        t.until(lambda text: "waiting for another window" not in text, "the wait is over")
        t.quit()
    assert there.messages() == [("user", "the notes please"), ("assistant", "They drain.")]
    there.sound()


def test_the_chat_that_gives_up_keeps_what_was_typed(there: Place) -> None:
    there.env["SAKTI_STORE__WAIT"] = "0.3"
    there.model.play("the notes", "They drain.")
    with there.open() as t:
        t.until("openai/bench")
        with locked(there):
            t.keys("the notes please\r")
            t.until("the text is in the prompt.")
        t.until("> the notes please")
        t.keys("\r")
        t.until("They drain.")
        t.quit()
    assert there.messages() == [("user", "the notes please"), ("assistant", "They drain.")]
    assert there.rows("SELECT count(*) FROM observational_memory") == [(1,)]


def test_line_by_line_it_is_said(there: Place) -> None:
    there.model.play("the notes", "They drain.")
    with there.open("--plain") as t:
        t.until("ready")
        with locked(there) as other:
            t.keys("the notes please\r")
            t.until("another window is writing to the database: waiting for it")
            other.execute("COMMIT")
            t.until("the other window is done")
        t.until("They drain.")
        assert t.leave() == 0
