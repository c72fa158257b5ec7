"""What is left when the window goes: on purpose, by a signal, or without warning."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Place
from tests.e2e.server import Reply
from tests.e2e.terminal import Terminal
from tests.e2e.test_chat import restored


def test_killed_with_a_queue_and_a_draft_it_brings_both_back_unsent(place: Place) -> None:
    place.model.play("first thing", Reply("A long answer that never ", hold=True))
    with place.open() as t:
        t.started()
        t.say("first thing", "that never")
        t.say("queued meanwhile", "queued: queued meanwhile")
        t.keys("half a sentence")
        t.until("half a sentence")
        t.until(lambda _: place.rows("SELECT draft FROM unsent") == [("half a sentence",)], "the draft in the store")
        t.process.send_signal(signal.SIGKILL)
        t.process.wait(10)
    with place.open("-c") as t:
        t.until("half a sentence")
        t.until("1 message was queued when sakti ended")
        assert "queued meanwhile" in t.text
        t.keys("!")
        t.until("half a sentence!")
        assert t.quit() == 0
    assert [text for role, text in place.messages() if role == "user"] == ["first thing"]
    assert place.rows("SELECT count(*) FROM unsent") == [(0,)]
    place.sound()


LONG = (Reply("", calls=(("bash", {"command": "echo $$ > child; sleep 600"}),)),)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, None], ids=["SIGTERM", "SIGHUP", "closed terminal"])
def test_told_to_go_it_keeps_everything_and_leaves_nothing_running(place: Place, how: signal.Signals | None) -> None:
    place.model.play("run it", *LONG)
    child = place.folder / "child"
    with place.open("-o", "approval.allow=['bash']") as t:
        t.started().say("run it", lambda _: child.exists() and child.read_text().strip())
        t.keys("a draft")
        t.until("a draft")
        if how is None:
            t.hang_up()
            assert t.process.wait(20) == 128 + signal.SIGHUP
        else:
            t.process.send_signal(how)
            assert t.ended() == 128 + how
            restored(t)
            assert f"Resume with: sakti -c, or at any time: sakti -r {place.threads()[0][-8:]}" in t.text
    assert running_in(place.folder) == []
    assert [role for role, _ in place.messages()] == ["user", "assistant", "tool"]
    assert place.rows("SELECT draft, owner FROM unsent") == [("a draft", "")]
    place.model.play("again", "Here I am.")
    with place.open("-r", place.threads()[0][-8:]) as t:
        t.until("a draft")
        t.until("run it")
        t.keys("\x15again\r")
        t.until("Here I am.")
        assert t.quit() == 0
    place.sound()


def running_in(folder: Path) -> list[str]:
    """The processes whose folder that is; those of a sandbox have other numbers inside."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append((process / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize("observes", [False, True])
def test_quitting_and_closing_the_window_at_once_leaves_no_process(place: Place, *, observes: bool) -> None:
    if observes:
        place.env["SAKTI_MEMORY__OBSERVE_ON_EXIT"] = "true"
        place.model.observer_holds = True
    place.model.play("the queue", "It drains at midnight.")
    for _ in range(3):
        with place.open() as t:
            t.started()
            t.say("what of the queue", "drains at midnight")
            t.quit_and_close()
            t.process.wait(20)
    place.sound()


@pytest.mark.parametrize("skip", [False, True], ids=["observed", "skipped"])
def test_what_is_pending_is_observed_before_leaving_and_ctrl_c_skips_it(place: Place, *, skip: bool) -> None:
    place.env["SAKTI_MEMORY__OBSERVE_ON_EXIT"] = "true"
    place.model.play("the queue", "It drains at midnight.")
    place.model.observer_holds = skip
    with place.open() as t:
        t.started()
        t.say("what of the queue", "drains at midnight")
        t.until_idle()
        t.keys("\x03")
        t.until("ctrl+c again quits")
        t.keys("\x03")
        t.until("before leaving; ctrl+c skips it")
        if skip:
            t.until(lambda _: place.model.holding.is_set(), "the Observer being asked")
            t.process.send_signal(signal.SIGINT)  # ctrl+c, now that the terminal is given back
            t.until("Skipped: it is observed when the thread continues.")
        assert t.ended() == 0
        restored(t)
    active = place.rows("SELECT text FROM observation_groups WHERE state = 'active'")
    assert ["asked about step" in text for (text,) in active] == ([] if skip else [True])
    assert [text for _, text in place.messages()] == ["what of the queue", "It drains at midnight."]
    place.sound()


SLOW_END = """
import threading, time

threading.Timer.start = lambda timer: None  # what ends the process late must not hide what ends it at once

class Last:
    def __del__(self, sleep=time.sleep):
        sleep(600)

last = Last()  # goes when the interpreter takes its modules apart
"""


@pytest.mark.parametrize("streams", [False, True], ids=["idle", "in a stream"])
def test_leaving_is_over_when_everything_is_stored(place: Place, *, streams: bool) -> None:
    site = place.home / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLOW_END)
    before = place.env.get("PYTHONPATH", "")
    place.env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), before)))
    place.model.play("first thing", Reply("A long answer that never ", hold=True))
    with place.open(forked=False) as t:
        t.started()
        if streams:
            t.say("first thing", "that never")
        assert t.quit() == 0
        restored(t)
        assert not streams or "Resume with: sakti -c" in t.text
    place.env["PYTHONPATH"] = before
    if streams:
        assert place.messages() == [("user", "first thing"), ("assistant", "A long answer that never ")]
    place.sound()


STUCK_END = """
import asyncio
from sakti.agent.session.session import Session

async def close(self):
    print("closing", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

Session.close = close
"""


@pytest.mark.parametrize("options", [(), ("--plain",)], ids=["screen", "plain"])
def test_a_second_sigterm_ends_a_chat_that_hangs(place: Place, options: tuple[str, ...]) -> None:
    site = place.home / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(STUCK_END)
    place.env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), place.env.get("PYTHONPATH", ""))))
    with place.open(*options, forked=False) as t:
        t.until("ready") if options else t.started()
        t.process.send_signal(signal.SIGTERM)
        t.until("closing")
        t.process.send_signal(signal.SIGTERM)
        assert t.ended() == 128 + signal.SIGTERM
        if not options:
            restored(t)


def test_suspended_and_brought_back(place: Place) -> None:
    place.model.play("say", "Said it.")
    with place.open() as t:
        t.started()
        t.keys("half")
        t.until("half")
        t.keys("\x1a")
        # stopped, and what it wrote before that is read
        t.until(lambda _: stopped(t.process.pid) and b"\x1b[?1049l" in t.raw, "being stopped")
        restored(t)
        t.raw = b""
        os.kill(t.process.pid, signal.SIGCONT)
        t.until(lambda _: b"half" in t.raw, "the screen drawn again")
        t.say("\x15say something", "Said it.")
        assert t.quit() == 0
    place.sound()


def test_the_editor_has_the_terminal_and_gives_it_back(place: Place) -> None:
    editor = place.folder / "editor.sh"
    editor.write_text('#!/bin/sh\necho EDITOR IS HERE\nread answer\necho "$answer" >> "$1"\n')
    editor.chmod(0o700)
    place.env["EDITOR"] = str(editor)
    with place.open() as t:
        t.started()
        t.keys("from the prompt, ")
        t.until("from the prompt")
        t.keys("\x07")
        t.until("EDITOR IS HERE")
        t.keys("from the editor\n")
        t.until("from the prompt, from the editor")
        t.until("F2 memory")
        assert t.quit() == 0


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


# A shell with job control: it makes the terminal its own first.
SHELL = "import fcntl, os, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp('bash', ['bash', '--norc', '-i'])"


def test_job_control_restores_the_screen_and_the_draft(place: Place) -> None:
    """Ctrl+Z, bg, a continue in the background, fg; then stops from outside."""
    with Terminal(place.folder, {**place.env, "PS1": "$"}, program=(sys.executable, "-c", SHELL)) as t:
        t.until("$")
        t.keys(f"{sys.executable} -m sakti --model openai/bench & echo $! > child; fg\r")
        t.started()
        child = int((place.folder / "child").read_text())

        def continue_by(keys: str, wanted: bytes, what: str) -> None:
            t.until(lambda _: state_of(child) == "T", "the process stops")
            written = len(t.raw)
            t.keys(keys)
            t.until(lambda _: wanted in t.raw[written:], what)

        draft = "my draft"
        t.keys(draft)
        t.until(f"> {draft}")
        t.keys("\x1a")
        continue_by("bg\r", b"&\r\n", "the shell continues it in the background")
        os.kill(child, signal.SIGCONT)
        for stop in (None, signal.SIGTSTP, signal.SIGSTOP):
            if stop is not None:
                os.kill(child, stop)
            continue_by("fg\r", draft.encode(), "the draft is painted again")
            draft += "!"
            t.keys("!")
            t.until(f"> {draft}")
        t.keys("\x03\x03")
        t.until(lambda _: t.raw.endswith(b"$"), "the shell again")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
