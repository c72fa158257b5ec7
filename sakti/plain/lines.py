"""Read the user's lines in a thread, with the system's line editor and its history."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from sakti.core import terminal

CANONICAL = 4095  # bytes of a line after which a terminal without a line editor drops what comes
PASTE = 0.02  # seconds within which the lines of a paste follow each other


class Lines:
    """Reader of lines; `heard` is called in the reading thread.

    It gets each line, and None at each end of input (ctrl+d). `suggest` is called there, too, with the text before
    the cursor when tab is pressed, and returns what the word can become.
    """

    def __init__(
        self, heard: Callable[[str | None], object], suggest: Callable[[str], list[str]], *, dumb: bool
    ) -> None:
        self._heard = heard
        self._suggest = suggest
        self._suggested: list[str] = []
        self.terminal = sys.stdin.isatty()
        self._readline = _line_editor() if self.terminal and sys.stdout.isatty() and not dumb else None
        self._modes = _terminal_modes() if self.terminal else None
        self._buffer = b""
        self._started = False
        self.whole = True  # whether the last line came as it was typed

    def start(self, older: Iterable[str]) -> None:
        """Start reading; the up key offers `older` input, oldest first. A second call only adds to it."""
        if self._readline is not None:
            for text in older:
                self._readline.add_history(text)
        if self._started:
            return
        self._started = True
        if self._readline is not None:
            self._readline.set_completer_delims(" \t\n")
            self._readline.set_completer(self._complete)
            mac = "libedit" in (self._readline.__doc__ or "")
            self._readline.parse_and_bind("bind ^I rl_complete" if mac else "tab: complete")
        threading.Thread(target=self._read, name="lines", daemon=True).start()

    @property
    def typed(self) -> str:
        """Return the text of the unfinished line, if the system tells."""
        return str(self._readline.get_line_buffer()) if self._readline is not None else ""

    def _complete(self, _: str, number: int) -> str | None:
        if number == 0 and self._readline is not None:
            before = self._readline.get_line_buffer()[: self._readline.get_endidx()]
            self._suggested = self._suggest(before)
        return self._suggested[number] if number < len(self._suggested) else None

    def _read(self) -> None:
        one = self._read_buffer if self._readline is not None else self._plain
        while True:
            try:
                line = one()
            except EOFError:
                self._heard(None)
                if self.terminal and not terminal.is_gone():
                    continue
                return
            except OSError:  # the terminal is gone
                self._heard(None)
                return
            self._heard(line)

    @staticmethod
    def _read_buffer() -> str:
        return input()

    def _plain(self) -> str:
        """Read one line, or the lines of one paste."""
        lines = [self._next()]
        self.whole = not self.terminal or len(lines[0].encode()) < CANONICAL
        while self.terminal and select.select([0], [], [], PASTE)[0]:
            try:
                lines.append(self._next())
            except EOFError:
                break
        return "\n".join(lines)

    def _next(self) -> str:
        while b"\n" not in self._buffer:
            data = os.read(0, 1 << 16)
            if not data:
                rest, self._buffer = self._buffer, b""
                if rest:
                    return rest.decode("utf-8", "replace")
                raise EOFError
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace").removesuffix("\r")

    def suspend(self) -> None:
        """Lend the terminal to the shell at ctrl+z, and take it back as the line editor had it."""
        reading = _terminal_modes()
        self.end()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._readline is not None and reading is not None:
            import termios

            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSADRAIN, reading)
                os.write(1, b"\x1b[?2004h")

    def end(self) -> None:
        """Give the terminal back as it was; the thread may still wait for a line."""
        if self._modes is None:
            return
        import termios

        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(0, termios.TCSADRAIN, self._modes)
            if self._readline is not None:
                os.write(1, b"\x1b[?2004l")  # the line editor had asked for pastes in brackets


def _line_editor() -> Any:
    try:
        import readline
    except ImportError:
        return None
    return readline


def _terminal_modes() -> Any:
    try:
        import termios

        return termios.tcgetattr(0)
    except (ImportError, OSError):
        return None
