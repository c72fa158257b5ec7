"""Run commands as processes: read output as it comes, and leave no process running.

A process left running by a command may hold its pipe open for ever, so the command itself is waited for. A supervisor
is the parent of all that a command starts, and ends it if sakti is gone. A sandbox alone does not: bubblewrap asks the
kernel to end it with its parent only once it runs, which is too late if the parent had died before.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from msgspec import Struct, field

from sakti.agent.tools import supervisor
from sakti.agent.tools.terminal_text import TerminalText, split_unfinished, to_plain_text
from sakti.core.text import to_one_line
from sakti.store import secrets

MEMORY_LIMIT = 200_000  # characters of an output kept in memory: its head and its tail
FILE_LIMIT = 64_000_000  # bytes of an output kept in its file
GRACE = 2.0  # seconds between TERM and KILL
ROUNDS = 200  # looks for processes that are left after KILL
POLL = 0.05  # seconds between two looks for processes that are left
CHUNK = 1 << 16
PAUSE = 0.002  # seconds between two reads of an output that is too long to be kept


class Output(Struct):
    """Output of a command as plain text: head and tail in memory, all of it (up to a limit) in a file.

    Redrawn lines are kept as they end up; `total` and the file count what is kept. `unread` is as it came.
    """

    path: Path
    head: str = ""
    tail: str = ""
    total: int = 0
    unread: str = ""
    cut: bool = False  # the file does not hold all of it
    received: int = 0  # characters, with those that were redrawn
    is_matched: bool = False  # the text that is waited for has appeared
    _watched: str = ""
    _before: str = ""  # the end of the output so far, in which the text may have begun
    _written: int = field(default=0)
    _unsaved: str = ""
    _screen: TerminalText = field(default_factory=TerminalText)

    def add(self, text: str) -> None:
        text = text.replace("\0", "\u2400")  # it separates names (find -print0, grep -Z), which must not run together
        self.received += len(text)
        self.unread = (self.unread + text)[-MEMORY_LIMIT // 2 :]
        if self._watched and not self.is_matched:
            self._match(text)
        self._keep(self._screen.feed(text))

    def watch(self, text: str) -> None:
        """Look for a text in the output, past and future."""
        self._watched, self.is_matched, self._before = text, False, ""
        if text:
            self._match(self.current_text())

    def _match(self, text: str) -> None:
        """Look for the watched text in the next piece; a text that began in the piece before counts."""
        text = to_plain_text(self._before + text)
        self.is_matched = self._watched in text
        self._before = text[-len(self._watched) :]

    def settle(self) -> None:
        """Take the last lines as they are now: no later output redraws them."""
        self._keep(self._screen.flush())

    def _keep(self, text: str) -> None:
        if not text:
            return
        self.total += len(text)
        room = MEMORY_LIMIT // 2 - len(self.head)
        if room > 0:
            self.head, text_rest = self.head + text[:room], text[room:]
        else:
            text_rest = text
        self.tail = (self.tail + text_rest)[-MEMORY_LIMIT // 2 :]
        if self._written >= FILE_LIMIT:
            self.cut = True
            return
        self._unsaved += text
        if len(self._unsaved) >= CHUNK:
            self._save(secrets.find_safe_cut(self._unsaved))

    def save(self) -> None:
        """Write the unsaved output to the file; a short output is in no file until then."""
        self._save(len(self._unsaved))

    def _save(self, end: int) -> None:
        """Append the text up to `end` to the file, secrets masked."""
        data = secrets.mask_secrets(self._unsaved[:end]).encode("utf-8", "replace")
        self._unsaved = self._unsaved[end:]
        if not data:
            return
        self.cut = len(data) > FILE_LIMIT - self._written
        handle = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        try:
            self._written += os.write(handle, data[: FILE_LIMIT - self._written])
        finally:
            os.close(handle)

    def text(self) -> str:
        left_out = self.total - len(self.head) - len(self.tail)
        gap = f"\n[… {left_out:,} characters left out …]\n" if left_out > 0 else ""
        return self.head + gap + self.tail

    def current_text(self) -> str:
        """Return the output with the lines that may still be redrawn."""
        return self.text() + self._screen.pending

    def take_unread(self) -> str:
        r"""Return the new output as plain text; a leading \r means that it redraws the line before it."""
        text, self.unread = split_unfinished(self.unread)
        redraws = "\r" in text.partition("\n")[0].removesuffix("\r")
        return "\r" * redraws + to_plain_text(text)


class ProcessTree:
    """Started program with everything that it started."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.over = False  # no process was left: the system may have reused their ids

    async def wait_for_exit(self) -> int:
        """Wait for the command itself; return its exit code."""
        handle, ended = self.process.end_handle(), asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, ended.set)
        try:
            while self.process.poll() is None:
                await ended.wait()
                ended.clear()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        return self.process.code

    def members(self) -> dict[int, str]:
        """Return the processes of the command that still run: pid and command line."""
        self.process.poll()
        if self.over:
            return {}
        pids = self.process.members()
        self.over = not pids
        return {pid: _read_command_line(pid) for pid in pids}

    async def end(self, grace: float = GRACE) -> dict[int, str]:
        """End all processes: TERM, a grace period, KILL; return those that could not be ended.

        Cancelling skips the grace period.
        """
        self._signal(signal.SIGTERM)
        try:
            for _ in range(round(grace / POLL)):
                if not self.members():
                    break
                await asyncio.sleep(POLL)
        finally:
            survivors = self._kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace if survivors else None):
                await self.wait_for_exit()
        return survivors

    def _kill(self) -> dict[int, str]:
        """Kill in rounds until no process remains: children of a killed one appear in the next round."""
        for _ in range(ROUNDS):
            refused = self._signal(signal.SIGKILL)
            members = self.members()
            if members.keys() <= refused:
                return members
            time.sleep(POLL / 10)  # not awaited: this must be done also when the task is cancelled
        return self.members()

    def _signal(self, number: signal.Signals) -> set[int]:
        """Send a signal to all; return the processes that may not be signalled."""
        refused: set[int] = set()
        for pid in sorted(self.process.members()):  # a shell before its commands, whose end it would report
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                refused.add(pid)
        return refused


class Running(ProcessTree):
    """Command that runs or ran, with everything it started."""

    def __init__(self, command: str, process: Process, output: Output) -> None:
        super().__init__(process)
        self.command = command
        self.output = output
        self.notes: tempfile.TemporaryDirectory[str] | None = None  # a folder that goes when it is closed
        self.began = time.monotonic()
        self.is_reported = False  # the model knows of its end
        self.job: tuple[str, int] | None = None  # thread and number, if it runs in the background
        self.was_stopped = False
        self.closed = asyncio.Event()
        self._pipe = process.stdout.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(self._pipe, False)
        self._start_reading()

    def _read(self) -> bool:
        """Read from the pipe; return False if it is empty for now."""
        if self.closed.is_set():
            return False
        try:
            data = os.read(self._pipe, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.close()
            return False
        self.output.add(self._decoder.decode(data))
        return True

    def _on_data(self) -> None:
        """Read the output that arrived, within a time limit when the pipe is flooded."""
        loop = asyncio.get_running_loop()
        if self._read() and self.output.received > FILE_LIMIT:
            loop.remove_reader(self._pipe)
            loop.call_later(PAUSE, self._start_reading)

    def _start_reading(self) -> None:
        if not self.closed.is_set():
            asyncio.get_running_loop().add_reader(self._pipe, self._on_data)

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the command; None while anything of it runs."""
        return None if self.members() else self.process.returncode

    def drain(self) -> None:
        """Read the content of the pipe, without waiting for more."""
        for _ in range(64):
            if not self._read():
                return

    def close(self) -> None:
        """Stop reading."""
        if not self.closed.is_set():
            self.closed.set()
            asyncio.get_running_loop().remove_reader(self._pipe)
            self.process.stdout.close()
            self.output.add(self._decoder.decode(b"", final=True))
            self.output.settle()
            if self.output.total > MEMORY_LIMIT:
                self.output.save()
        if self.notes is not None:
            self.notes.cleanup()
            self.notes = None

    async def stop(self) -> list[str]:
        """End all processes; return the names of those that could not be ended."""
        self.was_stopped = self.was_stopped or bool(self.members())
        survivors = await self.end()
        self.drain()
        self.close()
        return [f"{name} (process {pid})" for pid, name in survivors.items()]


def _read_command_line(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return "a process"
    return to_one_line(line.strip() or "?", 100)


class Process:
    """Program below a supervisor, which adopts all that it starts; `control` says when the program ends."""

    def __init__(self, supervisor_process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._supervisor = supervisor_process
        self._control, self._text, self._ended = control, b"", False
        control.setblocking(False)
        self._session = 0
        assert supervisor_process.stdout is not None
        self.stdin, self.stdout = supervisor_process.stdin, supervisor_process.stdout
        self.stderr = supervisor_process.stderr

    @property
    def returncode(self) -> int | None:
        lines = self._text.split(b"\n")
        if len(lines) > 2:
            return int(lines[1])
        return -signal.SIGKILL if self._ended else None

    @property
    def code(self) -> int:
        """Return the exit code of a program that has ended."""
        return self.returncode or 0

    @property
    def pid(self) -> int:
        return self._supervisor.pid

    def poll(self) -> int | None:
        if not self._ended:
            with contextlib.suppress(BlockingIOError):
                data = self._control.recv(100)
                self._text += data
                self._ended = not data
            if b"\n" in self._text:
                self._session = int(self._text.partition(b"\n")[0])
        return self.returncode

    def end_handle(self) -> int:
        """Return a descriptor that becomes readable when the program begins or ends."""
        return os.dup(self._control.fileno())

    def members(self) -> set[int]:
        """Return the processes that still run."""
        self.poll()
        supervisor_code = self._supervisor.poll()
        if self._ended and supervisor_code is not None and supervisor_code >= 0:
            return set()  # the supervisor ended by itself: it saw to the end of all
        starting = {self.pid} if not self._session and supervisor_code is None else set[int]()
        return starting | supervisor.list_descendants(self.pid, supervisor.list_processes(), self._session)


def spawn(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    descriptors: Sequence[int] = (),
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int = subprocess.STDOUT,
) -> Process:
    """Start a program in its own session, which inherits `descriptors`. Raises OSError.

    Its output is a pipe.
    """
    ours, theirs = socket.socketpair()
    try:
        started = subprocess.Popen(
            (sys.executable, "-I", "-S", supervisor.__file__, str(theirs.fileno()), *command),
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            pass_fds=(*descriptors, theirs.fileno()),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return Process(started, ours)
