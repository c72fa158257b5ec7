"""Keep other processes of the same user from looking into this one, which holds keys."""

from __future__ import annotations

import ctypes
import sys

_SET_DUMPABLE = 4


def become() -> None:
    """Make this process not dumpable: no core file, no ptrace, and its /proc belongs to root.

    Its own look into /proc/self goes on working. Programs that it starts are not affected; root is not kept out.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
