"""Keep a network namespace in which the commands of a session reach each other's servers.

A process keeps it open and waits for the end of a pipe, so that it ends with sakti, even if that is killed. A command
enters its namespaces by `nsenter` and starts bubblewrap there, which creates the other namespaces again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sakti.agent.sandbox import backends, relay

LIMIT = 5.0  # seconds until the process must wait
_ENV = {"PATH": os.defpath}
_READY = b"ready\n"
_WAITING = ("sh", "-c", "echo ready; exec cat")  # it writes when the loopback interface is up
_SHOWN = ("--unshare-user-try", "--unshare-pid", "--ro-bind", "/", "/", "--proc", "/proc")
_NAMED = ("readlink", "/proc/self/ns/net")


class SharedNetwork:
    """Network without a way out, made by the bubblewrap at `program` when it is opened."""

    def __init__(self, program: str) -> None:
        self._bwrap = program
        self._nsenter = backends.find_system_bwrap("nsenter")
        self._holder: subprocess.Popen[bytes] | None = None
        self._entry: tuple[str, ...] = ()
        self._ports: dict[int, tuple[int, subprocess.Popen[bytes]]] = {}  # in the network: the one here, its relay

    @property
    def entry(self) -> tuple[str, ...]:
        """Return the command that starts a program in the network; empty if it is not open."""
        return self._entry if self._holder is not None and self._holder.poll() is None else ()

    def open(self) -> bool:
        """Open the network if it is not; return whether it is open. It is tried once by entering it."""
        if self.entry:
            return True
        self.close()
        if not self._nsenter:
            return False
        try:
            pid = self._start()
            entry = (self._nsenter, "--preserve-credentials", "--user", "--net", "--target", str(pid))
            if self._is_apart((*entry, self._bwrap), pid):
                self._entry = entry
                return True
        except (OSError, ValueError, subprocess.SubprocessError):
            pass  # commands have a network each then
        self.close()
        return False

    def _start(self) -> int:
        """Start the process that waits; return its number. Raises `OSError`, `ValueError`."""
        info, theirs = os.pipe()
        command = (self._bwrap, "--unshare-user", "--unshare-net", "--ro-bind", "/", "/", "--info-fd", str(theirs))
        with open(info, "rb", buffering=0) as reader:  # noqa: PTH123 - a descriptor
            try:
                self._holder = subprocess.Popen(
                    (*command, "--", *_WAITING),
                    cwd="/",
                    env=_ENV,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs,),
                    start_new_session=True,
                )
            finally:
                os.close(theirs)
            assert self._holder.stdout is not None
            if not select.select((self._holder.stdout,), (), (), LIMIT)[0]:
                raise OSError("it does not answer")
            if os.read(self._holder.stdout.fileno(), len(_READY)) != _READY:
                raise OSError("it did not start")
            return int(json.loads(os.read(reader.fileno(), 4_096))["child-pid"])

    def _is_apart(self, command: Sequence[str], pid: int) -> bool:
        """Return whether a program that is started so is in the process's network, and that is not this one."""
        done = subprocess.run(
            (*command, *_SHOWN, "--", *_NAMED), cwd="/", env=_ENV, capture_output=True, timeout=LIMIT, check=False
        )
        entered = done.stdout.decode("ascii", "replace").strip()
        return entered == _read_link(Path(f"/proc/{pid}/ns/net")) != _read_link(Path("/proc/self/ns/net"))

    def open_port(self, port: int) -> int:
        """Let this machine's loopback reach a port of the network; return the port here. Raises `OSError`.

        It is the same one if it is free. The relay gets a socket that listens outside, and connects inside.
        """
        if port in self._ports and self._ports[port][1].poll() is None:
            return self._ports[port][0]
        if not self.entry:
            raise OSError("no background command can be reached")
        with _open_listener(port) as listener:
            number = str(listener.fileno())
            relaying = subprocess.Popen(
                (*self.entry, sys.executable, "-I", "-S", relay.__file__, number, str(port)),
                cwd="/",
                env=_ENV,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
            )
            here: int = listener.getsockname()[1]
        self._ports[port] = here, relaying
        return here

    def close(self) -> None:
        """End the processes; processes that still run in the network keep it."""
        started = [relaying for _, relaying in self._ports.values()]
        if self._holder is not None:
            started.append(self._holder)
        self._holder, self._entry, self._ports = None, (), {}
        for process in started:
            for pipe in filter(None, (process.stdin, process.stdout)):
                pipe.close()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LIMIT)


def _open_listener(port: int) -> socket.socket:
    """Listen at a port of this machine's loopback interface, or at a free one. Raises `OSError`."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:  # taken, or for root only
        return socket.create_server(("127.0.0.1", 0))


def _read_link(path: Path) -> str:
    return str(path.readlink())
