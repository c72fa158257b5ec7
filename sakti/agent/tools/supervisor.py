"""Run one command as the parent of all that it starts, so that everything can be found and ended.

A program of its own that imports nothing of sakti: `supervisor.py CONTROL COMMAND…`. On Linux it adopts orphans, so a
process that changes its group or session, or outlives its parent, stays below this one. To CONTROL, a socket, it writes
the command's process id and later its exit code, each on a line. It stays until all have ended. If the other end of
the socket closes, sakti is gone: then it ends them, or does not start the command at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

_ADOPT = 36  # PR_SET_CHILD_SUBREAPER
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_RESTORED = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
_ROUNDS = 100


def list_processes() -> dict[int, tuple[int, int, int]]:
    """Return parent, group and session of each living process; without /proc, session is the group."""
    if os.path.exists("/proc/self/stat"):  # noqa: PTH110 - imports cost each command
        return dict(_read_proc())
    table: dict[int, tuple[int, int, int]] = {}
    out = subprocess.run(("ps", "-axo", "pid=,ppid=,pgid=,state="), capture_output=True, text=True, check=False).stdout
    for row in out.splitlines():
        pid, parent, group, state = row.split()[:4]
        if not state.startswith("Z"):
            table[int(pid)] = int(parent), int(group), int(group)
    return table


def _read_proc() -> Iterator[tuple[int, tuple[int, int, int]]]:
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as f:  # noqa: PTH123
                state, parent, group, session = f.read().rpartition(b")")[2].split()[:4]
                if state not in b"ZX":
                    yield int(name), (int(parent), int(group), int(session))


def list_descendants(top: int, table: Mapping[int, tuple[int, int, int]], session: int = 0) -> set[int]:
    """Return the processes that descend from `top` or belong to a session, without `top` itself."""
    members = {pid for pid, facts in table.items() if session and session in (*facts[1:], pid)} | {top}
    while True:
        more = {pid for pid, facts in table.items() if facts[0] in members and pid not in members}
        if not more:
            return members - {top}
        members |= more


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_ADOPT, 1, 0, 0, 0)


def _start(control: int, command: list[str]) -> int:
    """Start the command in its own session; return its process id."""
    os.set_inheritable(control, False)
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.write(control, b"%d\n" % os.getpid())  # before the command runs; it fails if sakti is gone
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        os.execv(command[0], command)
    except OSError as e:
        os.write(2, f"{command[0]}: {e.strerror}\n".encode())
    os._exit(127)


def _close_files(kept: set[int]) -> None:
    """Close the descriptors that only the command needs: its output must end with it."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    for number in set(range(3, 1024)) - kept:
        with contextlib.suppress(OSError):
            os.close(number)


def _reap(command: int, control: int) -> bool:
    """Collect ended processes and report the command's end; return whether any process remains."""
    try:
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == command:
                with contextlib.suppress(OSError):
                    os.write(control, b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
    except ChildProcessError:
        return False
    return True


def _is_closed(control: int) -> bool:
    """Return whether sakti is gone; reading fails if it was killed before it read all output."""
    try:
        return not os.read(control, 4_096)
    except OSError:
        return True


def _end_all(command: int, control: int) -> None:
    for _ in range(_ROUNDS):
        for pid in list_descendants(os.getpid(), list_processes(), command):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not _reap(command, control):
            return
        time.sleep(0.01)


def main() -> None:
    control = int(sys.argv[1])
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _adopt_orphans()
    command = _start(control, sys.argv[2:])
    _close_files({control, reading, writing})
    while _reap(command, control):
        ready, _, _ = select.select([control, reading], [], [])
        if reading in ready:
            os.read(reading, 4_096)
        if control in ready and _is_closed(control):
            _end_all(command, control)
            return


if __name__ == "__main__":
    main()
