"""Make the filter of system calls (BPF, without a library), and find sockets of other programs."""

from __future__ import annotations

import errno
import functools
import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; 8 bytes for each argument, low word first
_X32 = 0x40000000  # calls of another table of the same architecture
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TERMINAL = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into a terminal
_FAMILIES = (1, 2, 10)  # Unix and internet: others are not all kept in by a namespace, or load parts of the kernel

# Calls with which a program looks into others, mounts, changes namespaces or the kernel.
_SAME = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442},
    "open_tree_attr": 467,
}
_X86_64 = {
    **{"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312},
    **{"add_key": 248, "request_key": 249, "keyctl": 250, "bpf": 321, "userfaultfd": 323, "perf_event_open": 298},
    **{"mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308},
    **{"init_module": 175, "finit_module": 313, "delete_module": 176, "kexec_load": 246, "kexec_file_load": 320},
    **{"open_by_handle_at": 304, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "syslog": 103},
}
_AARCH64 = {
    **{"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272},
    **{"add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280, "userfaultfd": 282, "perf_event_open": 241},
    **{"mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268},
    **{"init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104, "kexec_file_load": 294},
    **{"open_by_handle_at": 265, "reboot": 142, "swapon": 224, "swapoff": 225, "acct": 89, "syslog": 116},
}


class _Machine(Struct, frozen=True):
    """Numbers of an architecture: its own, and those of its system calls."""

    arch: int
    refused: Mapping[str, int]
    ioctl: int
    socket: int
    clone: int
    clone3: int = 435


_MACHINES: Mapping[str, _Machine] = {
    "x86_64": _Machine(0xC000003E, {**_SAME, **_X86_64}, ioctl=16, socket=41, clone=56),
    "aarch64": _Machine(0xC00000B7, {**_SAME, **_AARCH64}, ioctl=29, socket=198, clone=220),
}


@functools.cache
def program(machine: str, families: Sequence[int] = _FAMILIES) -> bytes | None:
    """Return the filter for a machine named as by `platform.machine()`; None if it is not supported.

    What is refused fails with EPERM, sockets of other `families` among it; calls of another architecture end the
    process.
    """
    system = _MACHINES.get(machine)
    if system is None:
        return None
    refuse = _ERRNO | errno.EPERM
    code = [_step(_LOAD, _ARCH), _step(_EQUAL, system.arch, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, _NUMBER)]
    if machine == "x86_64":
        code += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _KILL)]
    for number in sorted(system.refused.values()):
        code += [_step(_EQUAL, number, 0, 1), _step(_RETURN, refuse)]
    # the C library falls back to clone, whose flags can be read here
    code += [_step(_EQUAL, system.clone3, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    code += _of_argument(system.clone, 0, [_step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _step(_RETURN, refuse)])
    refused = [step for value in _TERMINAL for step in (_step(_EQUAL, value, 0, 1), _step(_RETURN, refuse))]
    code += _of_argument(system.ioctl, 1, refused)
    allowed = [step for value in families for step in (_step(_EQUAL, value, 0, 1), _step(_RETURN, _ALLOW))]
    code += _of_argument(system.socket, 0, [*allowed, _step(_RETURN, refuse)])
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def _of_argument(number: int, place: int, tests: Sequence[bytes]) -> list[bytes]:
    """Return the steps that test an argument of one call, and allow the call where no test refuses it."""
    body = [_step(_LOAD, _ARGUMENTS + 8 * place), *tests, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(body)), *body]


def _step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)


_KERNELS = Path("/proc/net/unix")
MOST = 500
# Bound by another container or before this one was, they are in no list of the kernel's.
_USUAL = (
    "/var/run/docker.sock /run/docker.sock /var/run/containerd/containerd.sock /var/lib/lxd/unix.socket"
    " /var/snap/lxd/common/lxd/unix.socket /var/lib/incus/unix.socket /var/lib/mysql/mysql.sock"
).split()


def parse_sockets(table: str) -> list[str]:
    """Return the paths in the kernel's list of Unix sockets, in its order."""
    rows = (line.split(maxsplit=7) for line in table.splitlines()[1:])
    return list(dict.fromkeys(row[7] for row in rows if len(row) == 8 and row[7].startswith("/")))


def find_foreign_sockets(inside: Iterable[Path]) -> list[Path]:
    """Return the sockets that are there, but those in the folders `inside`, which belong to the work."""
    try:
        table = _KERNELS.read_text("utf-8", "surrogateescape")
    except OSError:
        table = ""
    own_folders = tuple(inside)
    candidates = dict.fromkeys(p for name in (*parse_sockets(table), *_USUAL) if (p := _socket(name)) is not None)
    return [p for p in candidates if not any(p.is_relative_to(folder) for folder in own_folders)][:MOST]


def _socket(name: str) -> Path | None:
    try:
        path = os.path.realpath(name)
        return Path(path) if stat.S_ISSOCK(os.stat(path).st_mode) else None  # noqa: PTH116 - hundreds of them
    except (OSError, ValueError):
        return None
