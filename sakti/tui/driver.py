"""Write to a terminal that may be gone, and read from one that may send a paste of any size.

`PasteSplitter` extracts pastes before the input is parsed by character; it is pure, and times are passed in.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, cast

from msgspec import Struct
from textual import events
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.message import Message

from sakti.core import terminal

PASTE_START = "\x1b[200~"
PASTE_END = "\x1b[201~"
PASTE_TIMEOUT_S = 3.0  # seconds without a byte after which an incomplete paste is shown
STALLED_TIMEOUT_S = 0.25  # the same after a stall: later input may be typed
# ctrl+c and Esc, as characters and in the keyboard protocol: they end a paste without an end marker
_CANCEL_KEYS = ("\x03", "\x1b", "\x1b[99;5u", "\x1b[27u", "\x1b[27;1u")


class PastedText(Struct, frozen=True):
    """The text of a paste, unchanged."""

    text: str


class PasteSplitter:
    """Splits the decoded input of a terminal into text for the parser of keys and `PastedText`.

    A start marker goes to the parser as well, since its beginning may have gone there already; so does the end marker.
    Between the two the parser sees nothing.
    """

    def __init__(self) -> None:
        self._matched = 0  # characters of START at the end of the text so far
        self._inside = False
        self._parts: list[str] = []
        self._carry = ""  # the end of the last part: the end marker may begin there
        self._last = 0.0
        self._stalled = False

    def feed(self, text: str, now: float) -> list[str | PastedText]:
        """Split `text` into keys and pastes, in order. `now`: seconds of a monotonic clock."""
        out: list[str | PastedText] = []
        if self._inside and self._stalled and not self._parts and text in _CANCEL_KEYS:
            self._end_paste(out)
        self._last = now
        while text:
            text = self._split_paste(text, out) if self._inside else self._split_keys(text, out)
        return out

    def flush_pause(self, now: float) -> list[str | PastedText]:
        """Return the content of a paste if no input arrived until `now`; else []."""
        if (
            not self._inside
            or not self._parts
            or now - self._last < (STALLED_TIMEOUT_S if self._stalled else PASTE_TIMEOUT_S)
        ):
            return []
        text = "".join(self._parts)
        overlap = 0 if self._stalled else _count_overlap(text, PASTE_END)
        shown = text[: len(text) - overlap]
        self._carry = text[len(shown) :]
        self._parts = [self._carry] if overlap else []
        self._stalled = True
        return [PastedText(shown)] if shown else []

    def reset_match(self) -> None:
        """Drop the beginning of a marker: the parser of keys gave up waiting, so it was a key."""
        self._matched = 0

    def _split_keys(self, text: str, out: list[str | PastedText]) -> str:
        """Add text up to the end of a start marker; returns the rest."""
        before, self._matched = self._matched, 0
        if before and text.startswith(PASTE_START[before:]):
            end = len(PASTE_START) - before
        elif before and PASTE_START[before:].startswith(text):
            self._matched = before + len(text)
            out.append(text)
            return ""
        else:
            at = text.find(PASTE_START)
            end = at + len(PASTE_START) if at >= 0 else 0
        if not end:
            self._matched = _count_overlap(text, PASTE_START)
            out.append(text)
            return ""
        out.append(text[:end])
        self._inside, self._stalled, self._carry = True, False, ""
        return text[end:]

    def _split_paste(self, text: str, out: list[str | PastedText]) -> str:
        """Add text up to the end of an end marker; returns the rest."""
        carried = len(self._carry)
        looked = self._carry + text
        at = looked.find(PASTE_END)
        if at < 0:
            self._parts.append(text)
            self._carry = looked[-(len(PASTE_END) - 1) :]
            return ""
        rest = looked[at + len(PASTE_END) :]
        self._parts.append(looked[carried : at + len(PASTE_END)])
        content = "".join(self._parts)
        self._parts = [content[: -len(PASTE_END)]]
        self._end_paste(out)
        return rest

    def _end_paste(self, out: list[str | PastedText]) -> None:
        """End the paste; the end marker goes first, so that the key parser returns to its normal state."""
        text = "".join(self._parts)
        out.append(PASTE_END)
        if text or not self._stalled:
            out.append(PastedText(text))
        self._inside, self._stalled, self._parts, self._carry = False, False, [], ""


def _count_overlap(text: str, marker: str) -> int:
    """Return how many characters at the end of `text` are the beginning of `marker`."""
    return next((n for n in range(min(len(text), len(marker) - 1), 0, -1) if text.endswith(marker[:n])), 0)


READ_SIZE = 1 << 16  # bytes of one read
STOP_DELAY_S = 0.01  # seconds before the process stops: a signal to continue may be pending
TICK_S = 0.1  # seconds after which the parser may give up waiting for the rest of an escape sequence


class SafeOutput:
    """A file to which writing never fails.

    Textual writes in a thread. An error would end that thread, and every later write, including those at exit, would
    block forever.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            return self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class TerminalInput:
    """Turns the bytes of a terminal into messages for the app, in order."""

    def __init__(self, debug: bool = False, now: Callable[[], float] = time.monotonic) -> None:
        self._parser = XTermParser(debug)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")  # invalid bytes are ignored
        self._pastes = PasteSplitter()
        self._now = now

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that `data` completes."""
        text = self._decoder.decode(data)
        yield from self._iter_messages(self._pastes.feed(text, self._now()) if text else ())
        yield from self.tick()

    def tick(self) -> Iterator[Message]:
        """Yield the messages that a pause completes: a single Esc, a paste without an end."""
        waited = list(self._parser.tick())
        if waited:
            self._pastes.reset_match()
        yield from waited
        yield from self._iter_messages(self._pastes.flush_pause(self._now()))

    def close(self) -> None:
        """Close the parser and its debug log."""
        with contextlib.suppress(ParseError):
            list(self._parser.feed(""))

    def _iter_messages(self, parts: Iterable[str | PastedText]) -> Iterator[Message]:
        for part in parts:
            if isinstance(part, PastedText):
                yield events.Paste(part.text)
            else:  # the parser sees only the markers of a paste: its own events are empty
                yield from (m for m in self._parser.feed(part) if not isinstance(m, events.Paste))


class StopEvent(threading.Event):
    """Tells the input thread to end. `for_good`: it cannot be cleared."""

    for_good = False

    def is_set(self) -> bool:
        return self.for_good or super().is_set()


class SafeSuspension:
    """Suspension of a driver that restarts only in the foreground, however many signals arrive.

    The event loop handles the signals one after the other. A handler that interrupts other code could wait for ever for
    a lock of the writer's queue, or give the terminal back while the input thread still reads it.
    """

    exit_event: StopEvent
    _app: Any
    _suspended = False
    _writes = True
    _auto_restart: bool
    _must_signal_resume = False
    _stop: asyncio.TimerHandle | None = None

    def _handle_signals_in_loop(self) -> None:
        """Let the event loop handle the signals for stopping and continuing."""
        with contextlib.suppress(RuntimeError, NotImplementedError):  # no loop, or one that does not support signals
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTSTP, self._sigtstp_application)
            loop.add_signal_handler(signal.SIGCONT, self._sigcont_application)

    def suspend_application_mode(self) -> None:
        self._suspended = True
        super().suspend_application_mode()  # pyright: ignore
        self._writes = False

    def _sigtstp_application(self, *_: object) -> None:
        """Suspend, and stop the process unless it is continued at once."""
        if self._auto_restart and not self._suspended:
            self.suspend_application_mode()
            self._must_signal_resume = True
        self._cancel_stop()
        self._stop = asyncio.get_running_loop().call_later(STOP_DELAY_S, os.kill, os.getpid(), signal.SIGSTOP)

    def _sigcont_application(self, *_: object) -> None:
        self._cancel_stop()
        if self._auto_restart:
            self.resume_application_mode()

    def _cancel_stop(self) -> None:
        if self._stop is not None:
            self._stop.cancel()
            self._stop = None

    def resume_application_mode(self) -> None:
        """Start again after a suspension. Without one, only paint: the shell may have written on the screen.

        In the background the base class starts nothing and stops the process: the next SIGCONT tries again.
        """
        if self.exit_event.for_good:
            return
        if self._suspended:
            self._restart()
        else:
            self._request_repaint()

    def _restart(self) -> None:
        before = self._get_writer_thread()
        self._writes = True
        super().resume_application_mode()  # pyright: ignore
        self._suspended = self._get_writer_thread() is before
        self._writes = not self._suspended

    def _get_writer_thread(self) -> object:
        """Return the thread that writes; starting the application mode makes a new one."""
        return getattr(self, "_writer_thread", None)

    def _request_repaint(self) -> None:
        with contextlib.suppress(RuntimeError):  # no event loop runs at the end
            self._app.post_message(Driver.SignalResume())

    def write(self, data: str) -> None:
        """Write to the terminal unless it is suspended; resuming repaints everything."""
        if self._writes:
            super().write(data)  # pyright: ignore


def make_safe_driver(base: type[Driver]) -> type[Driver]:
    """Return the driver `base` with a `SafeOutput`, which stops reading when the terminal is gone.

    A closed terminal sends SIGCONT after SIGHUP. Textual then starts a second thread that reads it and ends only one of
    the two, or none if the program is already leaving. A closed terminal is always readable and returns nothing, so a
    remaining thread would occupy a core forever.
    """

    class SafeDriver(SafeSuspension, base):  # pyright: ignore
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            if (file := getattr(self, "_file", None)) is not None:
                self._file = SafeOutput(file)
            self.exit_event = StopEvent()
            if self.can_suspend:
                self._handle_signals_in_loop()

        def hang_up(self) -> None:
            """Stop reading for good."""
            self.exit_event.for_good = True

        def run_input_thread(self) -> None:
            """Read until the end; treat an error of a closed terminal as the end."""
            try:
                super().run_input_thread()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            except OSError:
                if not terminal.is_gone():
                    raise
                self.hang_up()

        def close(self) -> None:
            if not self._suspended:  # at the end
                self.hang_up()
            super().close()

    return _with_input_thread(SafeDriver) if sys.platform != "win32" else SafeDriver


def _with_input_thread(base: type[Driver]) -> type[Driver]:
    """Return the driver `base` with our input thread, if it reads a terminal."""
    from textual.drivers.linux_driver import LinuxDriver  # not there on Windows

    if not issubclass(base, LinuxDriver):
        return base

    class StoppableDriver(base):
        def run_input_thread(self) -> None:
            """Process terminal input until the driver or the terminal ends."""
            source = TerminalInput(self._debug)
            with selectors.SelectSelector() as selector, contextlib.closing(source):
                selector.register(self.fileno, selectors.EVENT_READ)
                ends = False
                while not ends:
                    ends = self.exit_event.is_set()  # then read the remaining input once more
                    data = _read(self.fileno) if selector.select(0 if ends else TICK_S) else None
                    for message in source.tick() if data is None else source.feed(data):
                        self.process_message(message)
                    if data == b"" and terminal.is_gone(self.fileno):  # reading on would be a busy loop
                        ends = True
                        cast("StopEvent", self.exit_event).for_good = True
                    elif data == b"":  # ctrl+d in another program: it ended a line there, not the terminal
                        self.exit_event.wait(TICK_S)

    return StoppableDriver


def _read(fd: int) -> bytes:
    """Read the available bytes; b"" if the other side is closed."""
    try:
        return os.read(fd, READ_SIZE)
    except OSError:
        return b""
