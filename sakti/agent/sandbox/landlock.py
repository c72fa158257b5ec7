"""Make a boundary of Landlock's rules, for machines without user namespaces.

Landlock only allows: what lies in a folder that may be written can be neither hidden nor kept from changes. Rights and
structures are those of the kernel's documentation, `userspace-api/landlock`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import stat
import struct
import sys
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sakti.agent.sandbox.boundary import Boundary

LEAST = 3  # version: before it, any file could be cut to nothing
_CREATE, _ADD, _ASK_VERSION, _BENEATH = 444, 445, 1, 1  # system calls, of every architecture; flag; kind of rule
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CUT, _IOCTL = 1 << 14, 1 << 15
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _CUT | _IOCTL
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # from these versions on
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract Unix sockets and signals
_MAKE_DEVICE = 1 << 6 | 1 << 11
_DEVICES = tuple(Path("/dev", n) for n in ("null", "zero", "full", "random", "urandom", "tty"))
_CLOSED = (Path("/dev"), Path("/sys/kernel/debug"), Path("/sys/kernel/tracing"))  # root could read the machine there


@functools.cache
def version() -> int:
    """Return the kernel's Landlock version, or 0 if it has no Landlock."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


@contextmanager
def rules(boundary: Boundary, temporary: Path) -> Generator[int]:
    """Give the descriptor of rules for a boundary; `temporary` is a folder that may be written besides.

    Raises `OSError` where the kernel makes none.
    """
    kernel_version = version()
    everything = next(rights for least, rights in sorted(_ALL.items(), reverse=True) if kernel_version >= least)
    attributes = struct.pack("=QQQ", everything, _TCP, _SCOPES)[
        : 24 if kernel_version >= 6 else 16 if kernel_version >= 4 else 8
    ]
    number = _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if number < 0:
        raise OSError(ctypes.get_errno(), "Landlock cannot create rules")
    try:
        _add(number, Path("/"), _LIST)  # names are no secret, and tools look for files from the root on
        for path in readable(boundary):
            _add(number, path, _EXECUTE | _READ | _LIST)
        for path in _DEVICES:
            _add(number, path, (_READ | _WRITE | _IOCTL) & everything)
        for path in (*outermost(boundary.write), temporary):
            _add(number, path, everything & ~_MAKE_DEVICE)
        yield number
    finally:
        os.close(number)


def readable(boundary: Boundary) -> Iterator[Path | str]:
    """Yield the fewest paths that hold everything that a boundary shows, and nothing else."""
    away = {*boundary.hidden, *boundary.masked, *boundary.emptied, *boundary.temporary, *_CLOSED}
    away = {path for path in away if not any(path.is_relative_to(root) for root in boundary.write)}
    hidden, above = {str(p) for p in away}, {str(above) for p in away for above in p.parents}
    yield from _without(hidden, above, "/")
    # what lies in a folder that may be written is readable, and a command could have put a link in its place meanwhile
    for path in (*boundary.read_only, *boundary.shown):
        if not any(map(path.is_relative_to, boundary.write)):
            yield from _without(hidden, above, str(path)) if str(path) in above else (path,)


def outermost(folders: Sequence[Path]) -> list[Path]:
    """Return the folders outside of all others; a command could replace a nested one with a link."""
    return [f for f in folders if not any(f != other and f.is_relative_to(other) for other in folders)]


def _without(away: Collection[str], above: Collection[str], at: str) -> Iterator[str]:
    """Yield the entries of a folder except for those in `away`.

    `above` are the folders that hold some of `away`.
    """
    with contextlib.suppress(OSError), os.scandir(at) as entries:
        for entry in entries:
            if entry.path in above and entry.path not in away:
                yield from _without(away, above, entry.path)
            elif entry.path not in away and not entry.is_symlink():
                yield entry.path


def _add(rules: int, path: Path | str, rights: int) -> None:
    """Allow `rights` at and below a path; nothing for one that is gone."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_A_FILE
        beneath = struct.pack("=Qi", rights, place)
        if rights and _call(_ADD, ctypes.c_int(rules), ctypes.c_int(_BENEATH), beneath, ctypes.c_uint32(0)) < 0:
            raise OSError(ctypes.get_errno(), f"Landlock accepts no rule for {path}")
    finally:
        os.close(place)


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    return int(_library().syscall(ctypes.c_long(number), *arguments))
