"""Describe how a database's file is opened."""

from __future__ import annotations

import urllib.parse
from pathlib import Path

import apsw
from msgspec import Struct

from sakti.core.lazy import lazy_imports
from sakti.store import archive_file, functions

with lazy_imports:
    from sakti.store import scratch

# views and triggers call them, so no connection of this process is without
apsw.connection_hooks.append(functions.register)


class DatabaseFile(Struct, frozen=True):
    """Database file and the flags to open it; `folder` is the temporary copy's, deleted on close."""

    filename: str
    flags: int = apsw.SQLITE_OPEN_READWRITE
    folder: Path | None = None

    @property
    def writes(self) -> bool:
        return bool(self.flags & apsw.SQLITE_OPEN_READWRITE)

    def connect(self) -> apsw.Connection:
        """Open a new connection; the file must exist."""
        if not self.flags & apsw.SQLITE_OPEN_URI:
            archive_file.know(self.filename)
        return apsw.Connection(self.filename, flags=self.flags)

    def remove(self) -> None:
        if self.folder is not None:
            scratch.remove(self.folder)


def copy_files(*paths: Path) -> DatabaseFile:
    """Copy a database and the files beside it to a private temporary folder. Raises `OSError`."""
    folder = scratch.copied(paths)
    return DatabaseFile(str(folder / paths[0].name), folder=folder)


def make_temporary(name: str) -> DatabaseFile:
    """Return how to open a new database in a private temporary folder."""
    folder = scratch.make_folder()
    return DatabaseFile(str(folder / name), folder=folder)


def make_read_only(path: Path, *, immutable: bool) -> DatabaseFile:
    """Return how to open a database for reading.

    SQLite makes no files beside an `immutable` one, and reads no write-ahead log.
    """
    options = "mode=ro&immutable=1" if immutable else "mode=ro"
    name = f"file:{urllib.parse.quote(str(path.absolute()))}?{options}"
    return DatabaseFile(name, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
