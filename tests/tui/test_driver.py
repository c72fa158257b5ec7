"""A terminal whose other side is closed takes what is written, and holds nobody up."""

from __future__ import annotations

import contextlib
import os
import pty

import pytest
from textual.drivers._writer_thread import WriterThread
from textual.drivers.linux_driver import LinuxDriver

from sakti.tui.driver import Output, forgiving


def test_more_than_the_queue_holds_goes_to_a_terminal_that_is_gone() -> None:
    other, terminal = pty.openpty()
    os.close(other)
    file = os.fdopen(terminal, "w")  # closed by hand: what it still holds cannot be written
    writer = WriterThread(Output(file))  # type: ignore[arg-type]
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
    class App:
        debug = False

    driver = forgiving(LinuxDriver)(App())
    assert isinstance(driver._file, Output)
    assert driver._file.fileno() == 2


class Reading:
    """A driver that counts how often it began to read."""

    def __init__(self, app: object, **_: object) -> None:
        self.begun = 1
        self.error: OSError | None = None

    def start_application_mode(self) -> None:
        self.begun += 1

    def suspend_application_mode(self) -> None:
        self.close()

    def resume_application_mode(self) -> None:
        self.start_application_mode()

    def close(self) -> None:
        pass

    def run_input_thread(self) -> None:
        if self.error is not None:
            raise self.error


def test_it_reads_again_after_a_suspension_only() -> None:
    driver = forgiving(Reading)(None)  # type: ignore[arg-type]
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


def test_what_reads_a_terminal_that_is_gone_ends_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = forgiving(Reading)(None)  # type: ignore[arg-type]
    driver.error = OSError(5, "Input/output error")
    monkeypatch.setattr("sakti.core.terminal.is_gone", lambda: False)
    with pytest.raises(OSError):
        driver.run_input_thread()
    monkeypatch.setattr("sakti.core.terminal.is_gone", lambda: True)
    driver.run_input_thread()
    driver.exit_event.clear()
    assert driver.exit_event.is_set()
