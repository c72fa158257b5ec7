"""Manage the files of a database: names, permissions, file systems, leftovers of ended processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sakti.core import resources
from sakti.core.lazy import lazy_pattern

SIDES = ("-wal", "-shm", "-journal")
# File systems on which locks or shared memory may not work: SQLite's WAL needs both.
_NETWORK = lazy_pattern(
    r"nfs4?|cifs|smb[23]?|smbfs|9p|afs|ceph|gfs2?|lustre|davfs2?|ncpfs|glusterfs|fuse\.(?!portal\b).+"
)
_UNFINISHED = lazy_pattern(r"\.(?:new|part|recovering)-(\d+)$|\.before-\d+\.(\d+)$")
_START = 19  # of the fields in /proc/PID/stat after the name of the program
_ENDED = (b"Z", b"X")  # states of an ended process: without a parent that waits, its entry stays


def append_suffix(path: Path, end: str) -> Path:
    """Return the path with a suffix added to the file's name."""
    return path.with_name(path.name + end)


def list_files(path: Path) -> list[Path]:
    """Return the existing files of a database: its own and SQLite's beside it."""
    return [p for p in (path, *(append_suffix(path, s) for s in SIDES)) if p.exists()]


def delete_database(path: Path) -> None:
    """Delete a database and SQLite's files beside it. Raises `OSError`."""
    for file in list_files(path):
        file.unlink(missing_ok=True)


def get_size(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it is missing or inaccessible."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def make_unfinished_path(path: Path, kind: str) -> Path:
    """Return a path for an unfinished file beside the database, unique to this process.

    `kind` is new, part or recovering. `delete_leftovers` removes such files of ended processes.
    """
    return append_suffix(path, f".{kind}-{os.getpid()}")


def delete_leftovers(path: Path) -> list[Path]:
    """Remove unfinished files of ended processes beside the database; return them."""
    removed: list[Path] = []
    for leftover in find_leftovers(path):
        with contextlib.suppress(OSError):
            leftover.unlink()
            removed.append(leftover)
    return removed


def find_leftovers(path: Path) -> list[Path]:
    """List unfinished files of ended processes beside the database."""
    try:
        names = [p.name for p in path.parent.iterdir() if p.name.startswith(f"{path.name}.")]
    except OSError:
        return []
    out: list[Path] = []
    for name in names:
        plain = next((name.removesuffix(s) for s in SIDES if name.endswith(s)), name)
        match = _UNFINISHED.search(plain.removeprefix(path.name))
        if match and not is_process_running(int(match[1] or match[2])):
            out.append(path.with_name(name))
    return out


def read_start_time(pid: int) -> int | None:
    """Return the start time of a process in ticks of the system; None if unknown."""
    fields = _read_process_state(pid)
    return int(fields[_START]) if fields else None


def _read_process_state(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; none if it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return []
    return fields if len(fields) > _START else []


def is_process_running(pid: int, started: int | None = None) -> bool:
    """Return whether a process of this machine is running; True if unknown.

    `started` is its start time: its id may belong to another process now.
    """
    if os.name != "posix":
        return True
    if fields := _read_process_state(pid):
        return fields[0] not in _ENDED and started in (None, int(fields[_START]))
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    return True


def is_owner_running(owner: str) -> bool:
    """Return whether the process of an owner (`leases.make_owner`) is running; True if unknown.

    Owners made by earlier versions have no start time.
    """
    process, _, name = owner.rpartition(":")
    host, _, pid = process.rpartition(":")
    start = name.partition(".")[2]
    is_here = host == socket.gethostname() and pid.isdigit()
    return not is_here or is_process_running(int(pid), int(start) if start.isdigit() else None)


def is_writable(path: Path) -> bool:
    """Return whether the database can be written: its file and its folder, for SQLite's own files."""
    return os.access(path.parent, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))


def find_open_mode(path: Path) -> int | None:
    """Return the mode of a user's file or folder that others may read or write.

    None if they may not, or if it belongs to another user.
    """
    try:
        file_stat = path.stat()
    except OSError:
        return None
    mode = stat.S_IMODE(file_stat.st_mode)
    is_open = mode & 0o077 and os.name == "posix" and file_stat.st_uid == os.geteuid()
    return mode if is_open else None


def make_private(path: Path) -> list[tuple[Path, int]]:
    """Remove others' permissions on the database's files; return changed files with their former modes.

    If the database is in sakti's data folder, write permission of others on that folder is removed, too.
    """
    changed: list[tuple[Path, int]] = []
    folder = path.parent
    if (mode := find_open_mode(folder)) is not None and mode & 0o022 and _is_ours(folder):
        with contextlib.suppress(OSError):
            folder.chmod(0o700)
            changed.append((folder, mode))
    for file in (*list_files(path), *list_files(append_suffix(path, ".archive"))):
        mode = find_open_mode(file)
        if mode is not None:
            with contextlib.suppress(OSError):
                file.chmod(0o600)
                changed.append((file, mode))
    return changed


def _is_ours(folder: Path) -> bool:
    try:
        return folder.samefile(resources.data_home())
    except OSError:
        return False


def find_network_type(path: Path, mounts: Path = Path("/proc/mounts")) -> str | None:
    """Return the type of network file system of a path; None for a local or unknown one."""
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
        real = os.path.realpath(path)
    except OSError:
        return None
    best, kind = "", ""
    for line in lines:
        _, mount, mount_type, *_ = [*line.split(" "), "", ""]
        mount = mount.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # of two mounts at one place the later one is visible
            best, kind = mount, mount_type
    return kind if _NETWORK.fullmatch(kind) else None


_NAME = "sakti-copy-"


def copy_to_folder(paths: Iterable[Path]) -> Path:
    """Copy files to a private temporary folder, and remove those of ended processes; return that folder."""
    top = Path(tempfile.gettempdir())
    for old in top.glob(f"{_NAME}*-*"):
        pid = old.name.removeprefix(_NAME).partition("-")[0]
        if pid.isdigit() and not is_process_running(int(pid)) and old.stat().st_uid == os.geteuid():
            remove_folder(old)
    folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))
    try:
        for path in paths:
            shutil.copyfile(path, folder / path.name)
    except BaseException:
        remove_folder(folder)
        raise
    return folder


def remove_folder(folder: Path) -> None:
    """Delete a folder and its files, ignoring failures."""
    shutil.rmtree(folder, ignore_errors=True)
