"""Find the sockets that other programs of this machine listen at.

A folder that is read-only does not keep a command from connecting to one, and behind it may be a service that does
anything: docker, an agent for keys.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

_KERNELS = Path("/proc/net/unix")
MOST = 500
# Bound by another container or before this one was, they are in no list of the kernel's.
_USUAL = (
    "/var/run/docker.sock /run/docker.sock /var/run/containerd/containerd.sock /var/lib/lxd/unix.socket"
    " /var/snap/lxd/common/lxd/unix.socket /var/lib/incus/unix.socket /var/lib/mysql/mysql.sock"
).split()


def listed(table: str) -> list[str]:
    """Return the paths in the kernel's list of Unix sockets, in its order."""
    rows = (line.split(maxsplit=7) for line in table.splitlines()[1:])
    return list(dict.fromkeys(row[7] for row in rows if len(row) == 8 and row[7].startswith("/")))


def of_others(inside: Iterable[Path]) -> list[Path]:
    """Return the sockets that are there, but those in the folders `inside`, which belong to the work."""
    try:
        table = _KERNELS.read_text("utf-8", "surrogateescape")
    except OSError:
        table = ""
    own_folders = tuple(inside)
    candidates = dict.fromkeys(p for name in (*listed(table), *_USUAL) if (p := _socket(name)) is not None)
    return [p for p in candidates if not any(p.is_relative_to(folder) for folder in own_folders)][:MOST]


def _socket(name: str) -> Path | None:
    try:
        path = os.path.realpath(name)
        return Path(path) if stat.S_ISSOCK(os.stat(path).st_mode) else None  # noqa: PTH116 - hundreds of them
    except (OSError, ValueError):
        return None
