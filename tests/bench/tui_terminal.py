"""Run a program in a pseudo-terminal and measure what it paints, when, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import struct
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sakti.core.errors import SaktiError
from sakti.core.text import to_one_line

BOUND = 90.0  # seconds that anything may take
LEAVING = 5.0  # seconds it has to end after SIGTERM
COLUMNS, LINES = 160, 50
KEPT = 20_000  # characters of what was painted last that are looked at
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\"
    r"|\x1b[ -/]*[0-Z\\^-~]|[\x00-\x1a]"
)


class Terminal:
    """Terminal with a program: `async with Terminal(argv, env, cwd)` runs it and ends it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path) -> None:
        self._argv, self._env, self._cwd = argv, env, cwd
        self._fd = -1
        self._process: subprocess.Popen[bytes] | None = None
        self._raw = ""
        self._text = ""
        self._came = asyncio.Event()
        self._ended = False
        self.began = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    async def __aenter__(self) -> Terminal:
        self._start()
        asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def _start(self) -> None:
        try:
            import fcntl
            import pty
            import termios
        except ImportError as e:
            raise SaktiError("This needs a pseudo-terminal, which this system does not have.", title="Bench") from e
        self._fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            self._argv,
            cwd=self._cwd,
            env=dict(self._env),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self._fd, False)

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            limit = time.perf_counter() + LEAVING
            while self._process.poll() is None and time.perf_counter() < limit:
                self._came.clear()  # it may still write while it ends: what it writes has to be read
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._came.wait(), 0.05)
            self._process.kill()
            self._process.wait()
        loop.remove_reader(self._fd)
        os.close(self._fd)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:  # the other side is closed
            data = b""
        if not data:
            self._ended = True
            asyncio.get_running_loop().remove_reader(self._fd)
        raw = self._raw + data.decode("utf-8", "replace")
        cut = raw.rfind("\x1b")
        whole = cut < 0 or len(raw) - cut > 256 or _CONTROL.match(raw, cut) is not None
        ready, self._raw = (raw, "") if whole else (raw[:cut], raw[cut:])  # half a sequence waits for its rest
        self._text = (self._text + _CONTROL.sub("", ready))[-KEPT:]
        self._came.set()

    def keys(self, text: str) -> None:
        """Press keys; earlier output is ignored from then on."""
        self._text = ""
        os.write(self._fd, text.encode())

    async def until(self, wanted: str) -> float:
        """Wait until `wanted` is painted; return the time of `time.perf_counter()`.

        Raises `SaktiError` where it is not, or the program ends.
        """
        limit = time.perf_counter() + BOUND
        while wanted not in self._text:
            if self._ended or time.perf_counter() > limit:
                what = "ended" if self._ended else f"did not show it in {BOUND:.0f} s"
                last = to_one_line(self._text[-300:], 300)
                raise SaktiError(f"{wanted!r} was not seen: the program {what}. It said last: {last}", title="Bench")
            self._came.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), 1.0)
        return time.perf_counter()

    def cpu_s(self) -> float:
        """Return the CPU seconds, user and system, that the program has used."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        seconds = 0.0
        for part in self._ps("time").replace("-", ":").split(":"):
            seconds = seconds * 60 + float(part)
        return seconds

    def run_s(self) -> float:
        """Return the CPU seconds as `cpu_s`, to the microsecond where the system provides it."""
        with contextlib.suppress(OSError, ValueError):
            tasks = Path(f"/proc/{self.pid}/task").iterdir()
            return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
        return self.cpu_s()

    def mb(self) -> float:
        """Return the megabytes of memory with its share of shared pages (PSS), else all resident ones (RSS)."""
        with contextlib.suppress(OSError):
            found = re.search(r"(?m)^Pss: *(\d+)", Path(f"/proc/{self.pid}/smaps_rollup").read_text())
            if found:
                return int(found[1]) / 1024
        return float(self._ps("rss")) / 1024

    def _ps(self, what: str) -> str:
        asked: Any = subprocess.run(
            ["ps", "-o", f"{what}=", "-p", str(self.pid)], capture_output=True, text=True, check=False
        )
        return asked.stdout.strip() or "0"
