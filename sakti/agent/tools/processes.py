"""Run commands as processes: an own process group, output read as it comes, an end that ignores the pipe.

A process left running by a command may hold its pipe open for ever, so the command itself is waited for. The group
serves to end all that a command started, and to find what it left running.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from sakti.agent.tools.terminal_text import TerminalText, plain_text, split_unfinished
from sakti.core.text import one_line
from sakti.store import secrets

MEMORY_LIMIT = 200_000  # characters of an output kept in memory: its head and its tail
FILE_LIMIT = 64_000_000  # bytes of an output kept in its file
GRACE = 2.0  # seconds between TERM and KILL
POLL = 0.05  # seconds between two looks where the system cannot tell by itself
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
    _written: int = field(default=0)
    _unsaved: str = ""
    _screen: TerminalText = field(default_factory=TerminalText)

    def add(self, text: str) -> None:
        self.received += len(text)
        self.unread = (self.unread + text)[-MEMORY_LIMIT // 2 :]
        self._keep(self._screen.feed(text))

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
            self._save(secrets.whole_until(self._unsaved))

    def save(self) -> None:
        """Write what is not in the file yet; a short output is in no file until then."""
        self._save(len(self._unsaved))

    def _save(self, end: int) -> None:
        """Append the text up to `end` to the file, secrets masked."""
        data = secrets.masked(self._unsaved[:end]).encode("utf-8", "replace")
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

    def take_unread(self) -> str:
        r"""Return the new output as plain text; a leading \r means that it redraws the line before it."""
        text, self.unread = split_unfinished(self.unread)
        redraws = "\r" in text.partition("\n")[0].removesuffix("\r")
        return "\r" * redraws + plain_text(text)


class Running:
    """Command that runs or ran, with everything it started that stayed in its group."""

    def __init__(self, command: str, process: subprocess.Popen[bytes], output: Output) -> None:
        self.command = command
        self.process = process
        self.output = output
        self.group = process.pid  # start_new_session made it the leader
        self.over = False  # seen without a member: the number may be another group's by now
        self.notes: tempfile.TemporaryDirectory[str] | None = None  # a folder that goes when it is closed
        self.closed = asyncio.Event()
        assert process.stdout is not None
        self._pipe = process.stdout.fileno()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        os.set_blocking(self._pipe, False)
        self._listen()

    def _read(self) -> bool:
        """Read what the pipe holds now; False where it holds nothing more."""
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

    def _arrived(self) -> None:
        """Read what arrived, within a time limit when the pipe is flooded."""
        loop = asyncio.get_running_loop()
        if self._read() and self.output.received > FILE_LIMIT:
            loop.remove_reader(self._pipe)
            loop.call_later(PAUSE, self._listen)

    def _listen(self) -> None:
        if not self.closed.is_set():
            asyncio.get_running_loop().add_reader(self._pipe, self._arrived)

    def drain(self) -> None:
        """Read what the pipe holds, without waiting for more."""
        for _ in range(64):
            if not self._read():
                return

    def close(self) -> None:
        """Stop reading."""
        if not self.closed.is_set():
            self.closed.set()
            asyncio.get_running_loop().remove_reader(self._pipe)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.output.add(self._decoder.decode(b"", final=True))
            self.output.settle()
            if self.output.total > MEMORY_LIMIT:
                self.output.save()
        if self.notes is not None:
            self.notes.cleanup()
            self.notes = None

    async def exited(self) -> int:
        """Wait for the command itself; return its exit code."""
        try:
            handle = os.pidfd_open(self.process.pid)
        except (AttributeError, OSError):
            while self.process.poll() is None:  # noqa: ASYNC110 - nothing tells of its end
                await asyncio.sleep(POLL)
            return self.process.returncode
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(handle, ended.set)
        try:
            if self.process.poll() is None:
                await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)
        return self.process.wait()

    def members(self) -> dict[int, str]:
        """Return the processes of the group that still run: pid and command line."""
        self.process.poll()
        if self.over:
            return {}
        try:
            os.killpg(self.group, 0)
        except (ProcessLookupError, PermissionError):
            self.over = True
            return {}
        found = _members(self.group)
        self.over = not found
        return found

    async def stop(self) -> None:
        """End the whole group: TERM, a grace period, KILL; also orphans that ignored TERM.

        Cancelling skips the grace period.
        """
        self._signal(signal.SIGTERM)
        try:
            for _ in range(round(GRACE / POLL)):
                if not self.members():
                    break
                await asyncio.sleep(POLL)
        finally:
            self._signal(signal.SIGKILL)
        await self.exited()
        self.drain()
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self.members():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, number)


def _members(group: int) -> dict[int, str]:
    """Return the living processes of a group, by /proc; without it the group itself."""
    if not Path("/proc/self/stat").exists():
        return {group: "what it started"}
    out: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        try:
            state, _, of = Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:3]
            if int(of) == group and state not in "ZX":
                line = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                out[int(entry.name)] = one_line(line.strip() or "?", 100)
        except (OSError, ValueError):
            continue
    return out


def spawn(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, without input; it inherits `descriptors`. Raises OSError."""
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        pass_fds=tuple(descriptors),
    )
