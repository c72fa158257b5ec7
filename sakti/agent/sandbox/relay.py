"""Runs inside the sandbox: hands what arrives at a local port to the proxy's socket, and executes a command.

    python -I -S relay.py SOCKET PORT PROGRAM ARGUMENT…

Only the standard library is here: it is started for a command.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

CHUNK = 65_536


def serve(listener: socket.socket, path: str) -> None:
    """Accept connections for ever."""
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(path)
        except OSError:
            near.close()
            far.close()
            continue
        for source, goal in ((near, far), (far, near)):
            threading.Thread(target=copy, args=(source, goal), daemon=True).start()


def copy(source: socket.socket, goal: socket.socket) -> None:
    """Copy bytes until there are no more, and say so to the other side."""
    try:
        while data := source.recv(CHUNK):
            goal.sendall(data)
        goal.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, goal):
            end.close()


def main(path: str, port: str, *command: str) -> None:
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    if os.fork() == 0:
        os.setsid()  # the command's output is not waited for on its account
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        serve(listener, path)
    listener.close()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
