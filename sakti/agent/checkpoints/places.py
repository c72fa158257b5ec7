"""Read, write and delete the files of a workspace without following a link on the way.

A folder may have become a link to elsewhere since a checkpoint: what was kept is never written through it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Generator
from pathlib import Path

from sakti.agent.checkpoints.objects import blob_id
from sakti.agent.checkpoints.plan import Entry
from sakti.core.errors import SaktiError

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
LARGEST = 64_000_000  # bytes of a file that is read to be compared or kept


class Blocked(SaktiError):
    """A path that cannot be reached as it was: a folder on the way is now a link or a file, or is not empty."""

    title = "Undo"


@contextlib.contextmanager
def parent(root: Path, path: str, *, make: bool = False) -> Generator[tuple[int, str]]:
    """Open the folder of a path (relative to `root`, or absolute); give it with the name in it.

    `make`: create folders that are missing. Raises FileNotFoundError, `Blocked`.
    """
    whole = Path(path)
    start = Path(whole.anchor) if whole.is_absolute() else root
    *folders, name = [p for p in path.split("/") if p]
    if (not folders and name in (".", "..")) or ".." in folders:
        raise Blocked(f"{path!r} is no path in the workspace.")
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
            raise Blocked(f"{path}: {folder} is not the folder that it was.") from e
        raise


def look(root: Path, path: str) -> tuple[Entry | None, bytes]:
    """Return what stands at a path, and its content; the content's id is git's.

    A file that is too large has the id "large", what is neither file, link nor folder the id "other".
    """
    try:
        with parent(root, path) as (here, name):
            found = os.lstat(name, dir_fd=here)
            if stat.S_ISDIR(found.st_mode):
                return Entry(found.st_mode), b""
            if stat.S_ISLNK(found.st_mode):
                data = os.fsencode(os.readlink(name, dir_fd=here))
                return Entry(stat.S_IFLNK | 0o777, blob_id(data)), data
            if not stat.S_ISREG(found.st_mode):
                return Entry(found.st_mode, "other"), b""
            if found.st_size > LARGEST:
                return Entry(found.st_mode, "large"), b""
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with os.fdopen(os.open(name, flags, dir_fd=here), "rb") as f:
                data = f.read()
            return Entry(found.st_mode, blob_id(data)), data
    except (FileNotFoundError, NotADirectoryError, Blocked):
        return None, b""


def write(root: Path, path: str, entry: Entry, data: bytes) -> None:
    """Put a file, link or folder at a path, durably; a file with several links or another owner keeps them.

    Raises OSError, `Blocked` where a folder with something in it stands there.
    """
    with parent(root, path, make=True) as (here, name):
        try:
            there = os.lstat(name, dir_fd=here)
        except FileNotFoundError:
            there = None
        if there is not None and stat.S_ISDIR(there.st_mode):
            if entry.is_folder:
                return
            _remove_folder(here, name, path)
            there = None
        if entry.is_folder:
            os.mkdir(name, stat.S_IMODE(entry.mode) or 0o777, dir_fd=here)
        elif stat.S_ISREG(entry.mode) and there is not None and in_place(there):
            _overwrite(here, name, entry, data)
        else:
            _replace(here, name, entry, data)
        os.fsync(here)


def in_place(there: os.stat_result) -> bool:
    """Return whether a file is overwritten: a new one in its stead would lose its other links or its owner."""
    return stat.S_ISREG(there.st_mode) and (there.st_nlink > 1 or there.st_uid != os.geteuid())


def _remove_folder(here: int, name: str, path: str) -> None:
    try:
        os.rmdir(name, dir_fd=here)
    except OSError as e:
        raise Blocked(f"{path} is a folder now, with something in it.") from e


def _overwrite(here: int, name: str, entry: Entry, data: bytes) -> None:
    with os.fdopen(os.open(name, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), dir_fd=here), "wb") as f:
        f.write(data)
        f.truncate()
        f.flush()
        with contextlib.suppress(PermissionError):
            os.fchmod(f.fileno(), stat.S_IMODE(entry.mode))
        os.fsync(f.fileno())


def _replace(here: int, name: str, entry: Entry, data: bytes) -> None:
    temporary = f".sakti-{os.urandom(6).hex()}"
    try:
        if stat.S_ISLNK(entry.mode):
            os.symlink(os.fsdecode(data), temporary, dir_fd=here)
        else:
            made = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600, dir_fd=here)
            with os.fdopen(made, "wb") as f:
                f.write(data)
                f.flush()
                os.fchmod(f.fileno(), stat.S_IMODE(entry.mode))
                os.fsync(f.fileno())
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=here)
        raise


def remove(root: Path, path: str, keep: Collection[str] = ()) -> None:
    """Delete a file, link or empty folder, then the folders that are empty by that, but those in `keep`.

    Nothing happens where it is gone, or is a folder that is not empty. A path outside of the workspace leaves its
    folder.
    """
    try:
        with parent(root, path) as (here, name):
            if stat.S_ISDIR(os.lstat(name, dir_fd=here).st_mode):
                with contextlib.suppress(OSError):
                    os.rmdir(name, dir_fd=here)
            else:
                os.unlink(name, dir_fd=here)
            os.fsync(here)
    except (FileNotFoundError, NotADirectoryError, Blocked):
        return
    above = "" if path.startswith("/") else path
    while (above := above.rpartition("/")[0]) and above not in keep:
        try:
            with parent(root, above) as (here, name):
                os.rmdir(name, dir_fd=here)
        except (OSError, Blocked):
            return
