"""Describe how a database's file is opened, and the SQL functions that every connection has."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from sakti.core.lazy import lazy_imports
from sakti.store import archive_file, secrets
from sakti.store.search.folding import folded
from sakti.store.search.index import identifiers, touched
from sakti.store.threads import codec

with lazy_imports:
    from sakti.store import files


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
            files.remove(self.folder)


def copy_files(*paths: Path) -> DatabaseFile:
    """Copy a database and the files beside it to a private temporary folder. Raises `OSError`."""
    folder = files.copied(paths)
    return DatabaseFile(str(folder / paths[0].name), folder=folder)


def make_temporary(name: str) -> DatabaseFile:
    """Return how to open a new database in a private temporary folder."""
    folder = files.make_folder()
    return DatabaseFile(str(folder / name), folder=folder)


def make_read_only(path: Path, *, immutable: bool) -> DatabaseFile:
    """Return how to open a database for reading.

    SQLite makes no files beside an `immutable` one, and reads no write-ahead log.
    """
    options = "mode=ro&immutable=1" if immutable else "mode=ro"
    name = f"file:{urllib.parse.quote(str(path.absolute()))}?{options}"
    return DatabaseFile(name, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


CLEAN = 1  # the free space holds nothing of what was removed; the file was made, or written anew, since that is kept up
PENDING = 4  # the write-ahead log may hold more than the file (`log_mark`)
UNMERGED = 2  # the search indexes hold words of texts that were taken out of them


# A text that is put into an index is asked for them by several expressions.
_identifiers = lru_cache(maxsize=8)(identifiers)


def register(connection: apsw.Connection) -> None:
    """Register the functions with a connection."""
    functions: dict[str, tuple[Callable[..., Any], int]] = {
        "sakti_text": (codec.text_of, 2),  # (raw_content, parts) of a message: its text
        "sakti_unpacked": (codec.readable, 1),  # a packed column: its text, '' if unreadable
        "sakti_folded": (_of_texts(folded), 1),
        "sakti_identifiers": (_of_texts(_identifiers), 1),
        "sakti_masked": (_of_texts(secrets.masked), 1),
        "sakti_touched": (_of_texts(touched), 2),
    }
    for name, (function, arguments) in functions.items():
        connection.create_scalar_function(name, function, arguments, deterministic=True)


def _of_texts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of texts for SQL: NULL if an argument is NULL, numbers and bytes as text.

    A column, or a value in JSON, may have any type. An exception here would end the whole statement, and a migration
    with it.
    """

    def call(*values: Any) -> Any:
        if None in values:
            return None
        return function(*(value if isinstance(value, str) else _as_text(value) for value in values))

    return call


def _as_text(value: float | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# views and triggers call them, so no connection of this process is without
apsw.connection_hooks.append(register)
