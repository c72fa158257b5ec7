"""Detect a closed terminal, end the process in time, and report writes that have to wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
from typing import NoReturn

CLOSING_S = 20.0  # maximum seconds for closing: waits for other processes give up well before
STOPPING_S = 2.0  # seconds left after the second signal; timeout(1) sends each signal twice at once
GRACE = 0.3  # seconds for threads to end after everything is stored
WAIT_NOTICE_AFTER = 2.0  # seconds of waiting for another process before a notice


def on_hangup(call: Callable[[], object], fd: int = 0) -> None:
    """Run `call` in a thread when the other side of the terminal is closed.

    Not every closed terminal sends SIGHUP, and writing to one always fails, so output then goes to the null device.
    """
    if not hasattr(select, "poll") or not os.isatty(fd):
        return

    def watch() -> None:
        poll = select.poll()
        poll.register(fd, 0)  # hang-ups are always reported; no other event is requested
        if any(event & select.POLLHUP for _, event in poll.poll()):
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            call()

    threading.Thread(target=watch, name="terminal-watch", daemon=True).start()


def end_within(seconds: float, code: int) -> threading.Timer:
    """End the process in `seconds`, even if threads still run, unless the timer is cancelled.

    A thread that waits for the network or a closed terminal would block the exit forever.
    """
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
    return timer


def stop_by_signals(numbers: Iterable[int], stop: Callable[[], object], code: int, undo: ExitStack) -> None:
    """Call `stop` in the running loop at the first of these signals; the second ends the process.

    The process then ends with `code` within `STOPPING_S`, even if it hangs. `undo` restores the handlers.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def on_signal(number: int, _: object) -> None:
        received.append(number)
        if len(received) == 2:
            end_within(STOPPING_S, code)
        elif len(received) == 1 and not loop.is_closed():
            loop.call_soon_threadsafe(stop)

    for number in numbers:
        with contextlib.suppress(ValueError):  # only the main thread has signals
            undo.callback(signal.signal, number, signal.signal(number, on_signal))


def end_on_second_sigterm(number: int, received: set[int]) -> None:
    """Note a signal; the second SIGTERM ends the process within `STOPPING_S`, even if it hangs."""
    if number == signal.SIGTERM and number in received:
        end_within(STOPPING_S, 128 + number)
    received.add(number)


def end_process(code: int) -> NoReturn:
    """End the process at once with `code`, after flushing output and logs.

    The interpreter's shutdown tears down every loaded module, which takes seconds on a busy machine and can no longer
    be interrupted. Everything must be stored and closed before.
    """
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone
            stream.flush()
    os._exit(code)


async def run_then_end(work: Awaitable[int]) -> int:
    """Return the exit code of `work`; the process ends with it within `GRACE` seconds.

    The end of an event loop waits for its threads: imports for a first answer that is no longer needed would delay
    the shell by seconds.
    """
    code = await work
    end_within(GRACE, code)
    return code


def is_gone(fd: int = 0) -> bool:
    """Return whether `fd` is no longer a terminal, or its other side is closed."""
    if not os.isatty(fd) or not hasattr(select, "poll"):
        return not os.isatty(fd)
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def ignore_interrupts() -> None:
    """Ignore ctrl+c: the program is about to end, and an interrupt would print a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class WaitNotice:
    """Prints a notice on standard error, once per wait, that another window writes to the database.

    `limit`: seconds after which the writer gives up.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._is_shown = False

    def on_wait(self, seconds: float | None) -> None:
        """Receive the seconds waited so far; None: the wait is over."""
        if seconds is None:
            self._is_shown = False
        elif seconds >= WAIT_NOTICE_AFTER and not self._is_shown:
            self._is_shown = True
            print(
                f"sakti: waiting for another window that writes to the database, {self._limit:.0f} s at most",
                file=sys.stderr,
                flush=True,
            )
