"""Runs first in a command without namespaces: gives up rights, and executes the command.

    python -I -S restrict.py RULES FILTER FOLDER PROGRAM ARGUMENT…

RULES is the descriptor of Landlock's, FILTER that of a filter of system calls, FOLDER the one for temporary files.
Only the standard library is here: it is started for a command.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings  # noqa: F401  # pyright: ignore[reportUnusedImport] - `execvp` wants it, when it cannot be read

RESTRICT_SELF = 446  # a system call, of every architecture
DROP_CAPABILITY, NO_NEW_PRIVILEGES, FILTER_CALLS, BY_PROGRAM = 24, 38, 22, 2
CAPABILITIES = 64  # more than the kernel has


class SocketFilter(ctypes.Structure):
    """`struct sock_fprog`: steps of 8 bytes."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def main(rules: str, filters: str, folder: str, *command: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with os.fdopen(int(filters), "rb") as file:
        steps = file.read()
    for number in range(CAPABILITIES):  # root would have them again in programs that it executes
        libc.prctl(DROP_CAPABILITY, number, 0, 0, 0)
    program = SocketFilter(len(steps) // 8, steps)
    for failed in (
        libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0),
        libc.syscall(RESTRICT_SELF, int(rules), 0),
        libc.prctl(FILTER_CALLS, BY_PROGRAM, ctypes.byref(program), 0, 0),
    ):
        if failed:
            sys.exit(f"The command cannot be restricted: {os.strerror(ctypes.get_errno())}.")
    os.close(int(rules))
    os.environ["TMPDIR"] = folder
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
