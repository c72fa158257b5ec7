"""A terminal whose other side is closed takes what is written, and holds nobody up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import signal
import sys
import threading
from typing import Any

import pytest
from textual.driver import Driver
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver

from sakti.tui.driver import SafeOutput, make_safe_driver


def test_more_than_the_queue_holds_goes_to_a_terminal_that_is_gone() -> None:
    other, terminal = pty.openpty()
    os.close(other)
    file = os.fdopen(terminal, "w")  # closed by hand: what it still holds cannot be written
    writer = WriterThread(SafeOutput(file))  # type: ignore[arg-type]
    writer.start()
    for _ in range(100):
        writer.write("a line\n" * 1000)
    writer.stop()
    assert not writer.is_alive()
    with pytest.raises(OSError):
        os.write(terminal, b"x")
    with contextlib.suppress(OSError):
        file.close()


async def test_the_driver_writes_to_one() -> None:
    class Debugging:
        debug = False

    driver = make_safe_driver(LinuxDriver)(Debugging())
    assert isinstance(driver._file, SafeOutput)
    assert driver._file.fileno() == 2


class App:
    """Keeps the messages that a driver posts."""

    def __init__(self) -> None:
        self.messages: list[object] = []

    def post_message(self, message: object) -> None:
        self.messages.append(message)


class Reading:
    """Driver that counts its starts and keeps what it wrote; in the background it starts nothing."""

    can_suspend = True

    def __init__(self, app: App, **_: object) -> None:
        self._app = app
        self.begun = 1
        self.background = False
        self.written: list[str] = []
        self.error: OSError | None = None
        self._writer_thread = object()

    def start_application_mode(self) -> None:
        if self.background:
            return
        self.begun += 1
        self._writer_thread = object()
        self.write("start")

    def suspend_application_mode(self) -> None:
        self.write("stop")
        self.close()

    def resume_application_mode(self) -> None:
        self.start_application_mode()

    def write(self, data: str) -> None:
        self.written.append(data)

    def close(self) -> None:
        pass

    def run_input_thread(self) -> None:
        if self.error is not None:
            raise self.error


def test_it_reads_again_after_a_suspension_only() -> None:
    driver = make_safe_driver(Reading)(App())  # type: ignore[arg-type]
    driver.resume_application_mode()  # SIGCONT comes behind the SIGHUP of a closed terminal, too
    assert driver.begun == 1
    driver.suspend_application_mode()
    assert not driver.exit_event.is_set()
    driver.resume_application_mode()
    driver.resume_application_mode()
    assert driver.begun == 2
    driver.close()
    driver.suspend_application_mode()
    driver.resume_application_mode()
    assert driver.begun == 2, "the program leaves"


def test_a_resume_in_the_background_is_tried_again_in_the_foreground() -> None:
    driver = make_safe_driver(Reading)(App())  # type: ignore[arg-type]
    driver.suspend_application_mode()
    driver.background = True
    for _ in range(2):  # bg, kill -CONT
        driver.resume_application_mode()
    driver.write("while nobody takes it, the queue of the writer would fill up")
    assert (driver.begun, driver.written) == (1, ["stop"])
    driver.background = False
    driver.resume_application_mode()
    driver.write("picture")
    assert (driver.begun, driver.written) == (2, ["stop", "start", "picture"])


def test_a_stop_without_warning_repaints_the_screen_on_resuming() -> None:
    driver = make_safe_driver(Reading)(App())  # type: ignore[arg-type]
    driver.resume_application_mode()
    assert [type(m) for m in driver._app.messages] == [Driver.SignalResume]


def test_what_reads_a_terminal_that_is_gone_ends_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = make_safe_driver(Reading)(App())  # type: ignore[arg-type]
    driver.error = OSError(5, "Input/output error")
    monkeypatch.setattr("sakti.core.terminal.is_gone", lambda: False)
    with pytest.raises(OSError):
        driver.run_input_thread()
    monkeypatch.setattr("sakti.core.terminal.is_gone", lambda: True)
    driver.run_input_thread()
    driver.exit_event.clear()
    assert driver.exit_event.is_set()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
async def test_stop_and_continue_are_answered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """T: stop, C: continue; sent at once, as on a busy machine, in the middle of anything that the program does."""
    stopped: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *sent: stopped.append(sent))
    start, again = ["stop", "start"], [Driver.SignalResume]
    cases = {
        "T": (["stop"], [], 1),
        "TT": (["stop"], [], 1),
        "C": ([], again, 0),
        "CT": (["stop"], again, 1),
        "TC": (start, [], 0),
        "TCC": (start, again, 0),
        "TCT": ([*start, "stop"], [], 1),
        "TCTC": (start * 2, [], 0),
    }
    for signals, (written, posted, stops) in cases.items():
        stopped.clear()
        driver: Any = make_safe_driver(Reading)(App())  # type: ignore[arg-type]
        driver._auto_restart = True
        for one in signals:
            signal.raise_signal({"T": signal.SIGTSTP, "C": signal.SIGCONT}[one])
        assert not driver.written and not driver._app.messages, "nothing is nested in anything else"
        await asyncio.sleep(0.03)
        assert (driver.written, [type(m) for m in driver._app.messages], len(stopped)) == (written, posted, stops)
        driver._cancel_stop()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
async def test_an_editor_is_stopped_with_the_program_and_keeps_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[object] = []
    monkeypatch.setattr(os, "kill", lambda *sent: stopped.append(sent))
    driver: Any = make_safe_driver(Reading)(App())  # type: ignore[arg-type]
    driver._auto_restart = False
    driver.suspend_application_mode()
    signal.raise_signal(signal.SIGTSTP)
    await asyncio.sleep(0.03)
    signal.raise_signal(signal.SIGCONT)
    await asyncio.sleep(0.03)
    assert (driver.written, len(stopped)) == (["stop"], 1)


async def test_an_end_of_file_while_the_terminal_was_lent_does_not_end_reading() -> None:
    """ctrl+d ends a line there: the read gives nothing, and the terminal is still open."""
    other, tty_end = pty.openpty()
    keys: list[str] = []

    class Debugging:
        debug = _debug = False

    driver = make_safe_driver(LinuxDriver)(Debugging())  # type: ignore[arg-type]
    driver.fileno = tty_end
    driver.process_message = lambda message: keys.append(getattr(message, "character", "")) or driver.exit_event.set()  # type: ignore[method-assign, func-returns-value]
    os.write(other, b"\x04")  # the line discipline takes it: not raw yet
    threading.Timer(0.3, os.write, (other, b"a\n")).start()
    await asyncio.to_thread(driver.run_input_thread)
    assert "a" in keys and not driver.exit_event.for_good
    for end in (other, tty_end):
        os.close(end)
