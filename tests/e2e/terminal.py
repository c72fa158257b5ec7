"""The program in a pseudo-terminal, its screen read through pyte, every byte it wrote kept."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import pyte
from pyte.screens import wcwidth

from tests.e2e.forked import ForkedProcess

BOUND = 60.0  # seconds that anything on the screen may take, on a machine that does other things as well
# What pyte does not know, and colours: nobody looks at these here, and they are nine tenths of what it would read.
_NOT_FOR_PYTE = re.compile(rb"\x1b\[[<>=?][0-9;]*[umqn]|\x1b\[\?[0-9;]*\$p|\x1b\[\?2026[hl]|\x1b\[[0-9;]*m")
# Synchronized output: the program asks for it, and then says where each picture begins and ends.
_ASKED, _KNOWN = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
_BEGIN, _END = b"\x1b[?2026h", b"\x1b[?2026l"


class Terminal:
    """A program in a terminal; as a context manager it ends with its block.

    `Terminal(folder, env, *arguments)` starts `sakti`: a fork if there is a `server`, else `program`.
    """

    def __init__(
        self,
        folder: Path,
        env: Mapping[str, str],
        *arguments: str,
        size: tuple[int, int] = (140, 44),
        program: Sequence[str] = (sys.executable, "-m", "sakti"),
        server: Path | None = None,
    ) -> None:
        self.columns, self.lines = size
        self.screen = pyte.Screen(self.columns, self.lines)
        self._stream = pyte.ByteStream(self.screen)
        self._shown = [""] * self.lines
        self.raw = b""
        self._fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))
        self.process: subprocess.Popen[bytes] | ForkedProcess
        if server:
            self.process = ForkedProcess(
                str(server), arguments, cwd=str(folder), env=env, streams=(slave,) * 3, start_new_session=True
            )
        else:
            self.process = subprocess.Popen(
                [*program, *arguments],
                cwd=folder,
                env=dict(env),
                stdin=slave,
                stdout=slave,
                stderr=slave,
                start_new_session=True,
                close_fds=True,
            )
        os.close(slave)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)
        self.hang_up()
        if error is not None:
            print(self.text)

    def resize(self, columns: int, lines: int) -> None:
        """Give the window another size and tell the program, as a terminal does."""
        self.columns, self.lines = columns, lines
        self.screen.resize(lines, columns)
        self._shown = [""] * lines
        self.screen.dirty.clear()
        self.screen.dirty.update(range(lines))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    # --- reading ----------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The screen. Only lines that were written to are read again: all of them, at each look, took longer than what
        is tested."""
        for y in self.screen.dirty & set(range(self.lines)):  # a line may be gone since
            self._shown[y] = self._read_line(y)
        self.screen.dirty.clear()
        return "\n".join(self._shown)

    def _read_line(self, y: int) -> str:
        """As `Screen.display` does: behind a wide character there is a column without one."""
        cells, out, x = self.screen.buffer[y], [], 0
        while x < self.columns:
            data = cells[x].data
            out.append(data)
            x += 1 if data.isascii() or wcwidth(data[0]) != 2 else 2
        return "".join(out).rstrip()

    @property
    def line(self) -> str:
        """The line that the cursor is in."""
        return self._read_line(self.screen.cursor.y)

    def read(self, seconds: float) -> bool:
        """What comes within `seconds` goes to the screen; false at the end of the output."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # the other side is closed
            return False
        self.raw += data
        if _ASKED in self.raw[1 - len(_ASKED) - len(data) :]:
            self.bytes(_KNOWN)
        self._stream.feed(_NOT_FOR_PYTE.sub(b"", data))
        return bool(data)

    def until(self, wanted: str | Callable[[str], object], what: str = "") -> str:
        """Read until `wanted` is on the screen (or true of it); returns the screen."""
        check = (lambda text: wanted in text) if isinstance(wanted, str) else wanted
        end = time.monotonic() + BOUND
        while self.raw.rfind(_BEGIN) > self.raw.rfind(_END) or not check(self.text):  # half a picture is none
            assert time.monotonic() < end, f"never seen: {what or wanted}\n{self.text}"
            assert self.read(0.05), f"ended before: {what or wanted}\n{self.text}\n{self.raw[-2000:]!r}"
        return self.text

    def until_idle(self) -> str:
        """Read until no turn is under way: what ctrl+c does says so."""
        return self.until("^C quit", "the end of the turn")

    def ended(self) -> int:
        """Read until the program ends; returns its exit code."""
        end = time.monotonic() + BOUND
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end\n{self.text}"
            self.read(0.05)
        while select.select([self._fd], [], [], 0)[0] and self.read(0):
            pass
        return self.process.returncode

    # --- writing ----------------------------------------------------------------------------------------------

    def keys(self, data: str) -> None:
        os.write(self._fd, data.encode())

    def bytes(self, data: bytes) -> None:
        """All of `data`, however little the terminal takes at once."""
        while data:
            data = data[os.write(self._fd, data[: 1 << 16]) :]

    def started(self) -> Terminal:
        """Wait for the prompt, and for the database and the model behind it."""
        self.until("Message sakti")
        self.until(lambda text: "Messages " in text or "no model" in text, "the first numbers")
        return self

    def say(self, text: str, seen: str | Callable[[str], object] = "") -> str:
        """Type `text`, see it in the prompt, press Enter; then wait for `seen`."""
        self.keys(text)
        self.until(text.split()[-1])
        self.keys("\r")
        return self.until(seen) if seen else self.text

    def allow(self) -> None:
        """Answer the open question with y. Right after it appears it takes no keys: they may be for the prompt."""
        self.until("Allow once")
        end = time.monotonic() + BOUND
        while "Allow once" in self.text:
            assert time.monotonic() < end, f"y does not answer\n{self.text}"
            self.keys("y")
            again = time.monotonic() + 0.5
            while "Allow once" in self.text and time.monotonic() < again:
                self.read(0.05)

    def quit_and_close(self) -> None:
        """ctrl+c twice, and the window is closed at once: what a closed terminal sends comes while it leaves."""
        self.keys("\x03")
        self.until("ctrl+c again quits")
        self.keys("\x03")
        self.hang_up()
        for number in (signal.SIGHUP, signal.SIGCONT):
            self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def quit(self) -> int:
        """ctrl+c twice, and again where the machine was too busy for the second to come in time."""
        self.keys("\x03")
        self.until("ctrl+c again quits")
        self.keys("\x03")
        return self._ended_by("\x03\x03")

    def leave(self) -> int:
        """ctrl+d of the plain chat, again where it came while no line was being read."""
        self.keys("\x04")
        return self._ended_by("\x04")

    def _ended_by(self, keys: str) -> int:
        end = time.monotonic() + BOUND
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it does not end\n{self.text}"
            again = time.monotonic() + 2.0
            while self.process.poll() is None and time.monotonic() < again:
                self.read(0.05)
            self.keys(keys)
        return self.ended()
