"""Open a folder by its resolved path without following links that have appeared since."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Generator
from pathlib import Path

from sakti.core.errors import ToolError

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def folder_of(path: Path) -> Generator[int]:
    """Give a descriptor of the folder of `path`, which is resolved; missing folders are made.

    Raises `ToolError` where a link stands on the way now.
    """
    at = os.open(path.anchor, _FOLDER)
    try:
        for part in path.parts[1:-1]:
            below = _enter(at, part, path)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _enter(at: int, part: str, path: Path) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=at)
    except FileNotFoundError:
        os.mkdir(part, dir_fd=at)
        return os.open(part, _FOLDER, dir_fd=at)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _link_error(path) from e
        raise


def there(folder: int, path: Path) -> os.stat_result | None:
    """Return the status of `path` in its folder, or None. Raises `ToolError` for a link."""
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise _link_error(path)
    return status


def _link_error(path: Path) -> ToolError:
    return ToolError(f"{path} now leads elsewhere: a link appeared on the way. Nothing was written there.")
