"""Runs inside the sandbox: passes a local port's data to the proxy, and executes a command.

    python -I -S relay.py SOCKET PORT PROGRAM ARGUMENT…

Or it passes connections of a listening socket, a descriptor from outside, to a local port until its input ends:

    python -I -S relay.py DESCRIPTOR PORT

Only the standard library is here: it is started for a command.
"""

from __future__ import annotations

import _socket  # a command waits for this program: modules in C alone take a third of the time
import _thread
import os
import sys
import time

CHUNK = 65_536
PAUSE = 0.05  # seconds until the next try if there are too many connections


def serve(listener: _socket.socket, goal: str | int) -> None:
    """Accept connections for ever; they go to a Unix socket or to a local port."""
    while True:
        near = far = None
        try:
            near = _socket.socket(fileno=listener._accept()[0])  # pyright: ignore
            far = connect_unix(goal) if isinstance(goal, str) else connect_port(goal)
            _thread.start_new_thread(copy, (near, far))
            _thread.start_new_thread(copy, (far, near))
        except (OSError, RuntimeError):  # too many files or threads, or the proxy is gone
            for end in (near, far):
                if end is not None:
                    end.close()
            time.sleep(PAUSE)


def connect_unix(path: str) -> _socket.socket:
    """Connect to a Unix socket. Raises `OSError`."""
    far = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    far.connect(path)
    return far


def connect_port(port: int) -> _socket.socket:
    """Connect to a local port; a server may listen at one of the two addresses only. Raises `OSError`."""
    try:
        far = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        far.connect(("127.0.0.1", port))
    except OSError:
        far = _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM)
        far.connect(("::1", port))
    return far


def copy(source: _socket.socket, goal: _socket.socket) -> None:
    """Copy bytes until there are no more, and say so to the other side."""
    try:
        while data := source.recv(CHUNK):
            goal.sendall(data)
        goal.shutdown(_socket.SHUT_WR)
    except OSError:
        for end in (source, goal):
            try:
                end.shutdown(_socket.SHUT_RDWR)  # the other thread waits in one of them
            except OSError:
                continue


def _replace_port(port: str, now: str) -> None:
    """Put the relay's port into the environment of the command."""
    for name, value in os.environ.items():
        if value == f"http://127.0.0.1:{port}":
            os.environ[name] = f"http://127.0.0.1:{now}"


def forward(descriptor: str, port: str) -> None:
    """Pass connections to a local port until the input ends, with the program that started this."""
    _thread.start_new_thread(serve, (_socket.socket(fileno=int(descriptor)), int(port)))
    while os.read(0, CHUNK):
        pass
    os._exit(0)


def main(path: str, port: str, *command: str) -> None:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", int(port)))
    except OSError:  # another command of the same network listens there
        listener.bind(("127.0.0.1", 0))
        _replace_port(port, str(listener.getsockname()[1]))
    listener.listen(64)
    child = os.fork()
    if child == 0:
        if os.fork():  # none of the command's children: it may wait for all of these
            os._exit(0)
        os.setsid()  # the command's output is not waited for on its account
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        serve(listener, path)
    os.waitpid(child, 0)
    listener.close()
    os.execvp(command[0], command)


if __name__ == "__main__":
    (main if sys.argv[3:] else forward)(*sys.argv[1:])
