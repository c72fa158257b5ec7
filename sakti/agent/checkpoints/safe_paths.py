"""Read, write and delete the files of a workspace without following links in their paths.

A folder may have become a link to elsewhere since a checkpoint; nothing is ever written through it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Collection, Generator
from pathlib import Path
from typing import BinaryIO

from sakti.agent.checkpoints.objects import FILE, HISTORY, INDEX, SECRET, compute_blob_id, compute_index_id, copy_file
from sakti.agent.checkpoints.plan import PathEntry
from sakti.core.errors import SaktiError
from sakti.core.text import quote

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
LARGEST = 64_000_000  # bytes of a file that is read to be compared or kept
TEMPORARY = ".sakti-"  # begins the name of a file that is renamed when it is written


class BlockedPath(SaktiError):
    """Error for an unreachable path: a folder in it is now a link or a file, or is not empty."""

    title = "Undo"


@contextlib.contextmanager
def open_parent(root: Path, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
    """Open the folder of a path (relative to `root`, or absolute); yield it with the name in it.

    For the path ".", which is `root` itself, the name is ".". `make`: create folders that are missing. Raises
    FileNotFoundError, `BlockedPath`.
    """
    full_path = Path(path)
    start = Path(full_path.anchor) if full_path.is_absolute() else root
    *folders, name = [p for p in path.split("/") if p]
    if (not folders and name == "..") or ".." in folders:
        raise BlockedPath(f"{quote(path)} is not a path in the workspace.")
    here = os.open(start, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        for folder in folders:
            below = _enter(here, folder, path, make=make)
            os.close(here)
            here = below
        yield here, name
    finally:
        os.close(here)


def _enter(here: int, folder: str, path: str, *, make: bool) -> int:
    try:
        return os.open(folder, _FOLDER, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(folder, dir_fd=here)
        return os.open(folder, _FOLDER, dir_fd=here)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise BlockedPath(f"{path}: {folder} is no longer the same folder.") from e
        raise


def read_entry(root: Path, path: str, named: Collection[str] = ()) -> tuple[PathEntry | None, bytes]:
    """Return the entry at a path and its content; its id is of the kind of those in `named`, else git's.

    Files identified by metadata, and files that are too large, are returned without content. An entry that is neither
    file, link nor folder has the id "other". Raises PermissionError if a folder in the path cannot be entered.
    """
    try:
        with open_parent(root, path) as (here, name):
            status = os.lstat(name, dir_fd=here)
            if stat.S_ISDIR(status.st_mode):
                return PathEntry(status.st_mode), b""
            if stat.S_ISLNK(status.st_mode):
                data = os.fsencode(os.readlink(name, dir_fd=here))
                return PathEntry(stat.S_IFLNK | 0o777, compute_blob_id(data)), data
            if not stat.S_ISREG(status.st_mode):
                return PathEntry(status.st_mode, "other"), b""
            by_facts = make_file_id(path, status), make_history_id(path, status)
            if oid := next((i for i in by_facts if i in named), by_facts[0] if status.st_size > LARGEST else ""):
                return PathEntry(status.st_mode, oid), b""
            data = _read(here, name, status)
            return PathEntry(status.st_mode, _compute_id(data, named)), data
    except (FileNotFoundError, NotADirectoryError, BlockedPath):
        return None, b""


def make_file_id(path: str, status: os.stat_result) -> str:
    """Return the id of a file that is stored entire, made from its path, size and time."""
    return f"{FILE}{_hash_path(path)}-{status.st_size:x}-{status.st_mtime_ns:x}"


def make_history_id(path: str, status: os.stat_result) -> str:
    """Return the id of an object of the user's repository, without its time, which git updates."""
    return f"{HISTORY}{_hash_path(path)}-{status.st_size:x}"


def _hash_path(path: str) -> str:
    return hashlib.sha1(os.fsencode(path), usedforsecurity=False).hexdigest()[:20]


def _compute_id(data: bytes, named: Collection[str]) -> str:
    kinds = {n.partition(":")[0] for n in named if ":" in n}
    if SECRET[:-1] in kinds:
        return SECRET + hashlib.sha256(data).hexdigest()
    return compute_index_id(data) if INDEX[:-1] in kinds else compute_blob_id(data)


def _read(here: int, name: str, status: os.stat_result) -> bytes:
    """Read a file, even if its permissions forbid that to its owner."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(name, flags, dir_fd=here)
    except PermissionError:
        mode = stat.S_IMODE(status.st_mode)
        os.chmod(name, mode | stat.S_IRUSR, dir_fd=here)
        try:
            handle = os.open(name, flags, dir_fd=here)
        finally:
            os.chmod(name, mode, dir_fd=here)
    with os.fdopen(handle, "rb") as f:
        return f.read()


def write(root: Path, path: str, entry: PathEntry, content: bytes | Path, temporary: str = "") -> None:
    """Write a file, link, pipe or folder to a path, durably; a file keeps its other links and its owner.

    `content` may be a file that is copied, with its time; `temporary` names the file in the folder that is renamed.
    Raises OSError, `BlockedPath` if there is a folder that is not empty.
    """
    with open_parent(root, path, make=True) as (here, name):
        there = _read_status(here, name)
        if there is not None and stat.S_ISDIR(there.st_mode):
            if entry.is_folder:
                return
            _remove_folder(here, name, path)
        elif there is not None and (entry.is_folder or stat.S_ISFIFO(entry.mode)):
            os.unlink(name, dir_fd=here)
        if entry.is_folder or stat.S_ISFIFO(entry.mode):
            _make(here, name, entry)
        elif stat.S_ISREG(entry.mode) and is_overwritten(there):
            _overwrite(here, name, entry, content)
        else:
            _replace(here, name, entry, content, temporary or f"{TEMPORARY}{os.urandom(6).hex()}")
        os.fsync(here)


def _make(here: int, name: str, entry: PathEntry) -> None:
    """Create a pipe, or a folder that is writable for now."""
    mode = stat.S_IMODE(entry.mode)
    if entry.is_folder:
        os.mkdir(name, 0o700, dir_fd=here)
        mode = (mode or 0o755) | 0o300
    else:
        os.mkfifo(name, 0o600, dir_fd=here)
    os.chmod(name, mode, dir_fd=here)


def set_mode(root: Path, path: str, mode: int) -> None:
    """Change the permissions of a file or folder, not of a link. Raises OSError, `BlockedPath`."""
    with open_parent(root, path) as (here, name):
        if not stat.S_ISLNK(os.lstat(name, dir_fd=here).st_mode):
            os.chmod(name, stat.S_IMODE(mode), dir_fd=here)


def remove_temporary(root: Path, path: str, temporary: str) -> None:
    """Delete what a killed `write` to this path left under the name `temporary`."""
    with contextlib.suppress(OSError, BlockedPath), open_parent(root, path) as (here, _):
        os.unlink(temporary, dir_fd=here)


def _read_status(here: int, name: str) -> os.stat_result | None:
    try:
        return os.lstat(name, dir_fd=here)
    except FileNotFoundError:
        return None


def is_overwritten(there: os.stat_result | None) -> bool:
    """Return whether a file is overwritten: a new one would lose its other links or its owner."""
    return there is not None and stat.S_ISREG(there.st_mode) and (there.st_nlink > 1 or there.st_uid != os.geteuid())


def _remove_folder(here: int, name: str, path: str) -> None:
    """Remove a folder that contains only empty folders. Raises `BlockedPath`."""
    try:
        for _, folders, _, above in os.fwalk(name, topdown=False, dir_fd=here):
            for folder in folders:
                with contextlib.suppress(OSError):
                    os.rmdir(folder, dir_fd=above)
        os.rmdir(name, dir_fd=here)
    except OSError as e:
        raise BlockedPath(f"{path} is now a folder that is not empty.") from e


def _overwrite(here: int, name: str, entry: PathEntry, content: bytes | Path) -> None:
    with os.fdopen(os.open(name, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), dir_fd=here), "wb") as f:
        _fill(f, entry, content)


def _replace(here: int, name: str, entry: PathEntry, content: bytes | Path, temporary: str) -> None:
    try:
        if stat.S_ISLNK(entry.mode):
            assert isinstance(content, bytes)
            os.symlink(os.fsdecode(content), temporary, dir_fd=here)
        else:
            handle = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600, dir_fd=here)
            with os.fdopen(handle, "wb") as f:
                _fill(f, entry, content)
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=here)
        raise


def _fill(f: BinaryIO, entry: PathEntry, content: bytes | Path) -> None:
    """Write a file's content and permissions; a copy gets the time of its original, which identifies it."""
    if isinstance(content, bytes):
        f.write(content)
        f.truncate()
        f.flush()
    else:
        with content.open("rb") as source:
            copy_file(source.fileno(), f.fileno())
            status = os.fstat(source.fileno())
        os.ftruncate(f.fileno(), status.st_size)
        os.utime(f.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    with contextlib.suppress(PermissionError):
        os.fchmod(f.fileno(), stat.S_IMODE(entry.mode))
    os.fsync(f.fileno())


def remove(root: Path, path: str, keep: Collection[str] = ()) -> None:
    """Delete a file, link or empty folder, then parent folders that become empty, except those in `keep`.

    Missing paths and non-empty folders are ignored. The folder of a path outside the workspace is never removed.
    """
    try:
        with open_parent(root, path) as (here, name):
            if stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode):
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=here)
            else:
                os.unlink(name, dir_fd=here)
            os.fsync(here)
    except (FileNotFoundError, NotADirectoryError, BlockedPath):
        return
    above = "" if path.startswith("/") else path
    while (above := above.rpartition("/")[0]) and above not in keep:
        try:
            with open_parent(root, above) as (here, name):
                os.rmdir(name, dir_fd=here)
        except (OSError, BlockedPath):
            return
