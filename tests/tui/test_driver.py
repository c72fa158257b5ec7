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
