"""Open a database that is not saved: a copy in the memory of this process."""

from __future__ import annotations

import contextlib
import ctypes
import uuid
from pathlib import Path

import apsw

from sakti.core.errors import StoreError
from sakti.store import archive_file

FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
LARGEST = 4 << 30  # bytes that the copy may grow to
_VERSIONS = 18  # where a file says in two bytes whether it has a write-ahead log
_HEADER = 100


def new_name() -> str:
    """Make a name by which all connections of this process open the same database in memory."""
    return f"file:/sakti-{uuid.uuid4().hex}?vfs=memdb"


def fill(name: str, path: Path) -> apsw.Connection:
    """Copy the database at `path`, if there is one, to `name`, without its leases.

    It exists as long as a connection to it is open, such as the one returned. Raises `apsw.Error`, and `StoreError`
    where it is too large.
    """
    size = path.stat().st_size if path.exists() else 0
    if size > LARGEST:
        raise StoreError(
            f"{path} has {size >> 20:,} MB: what is not saved works on a copy in memory, of {LARGEST >> 20:,} MB at "
            "most. Name another file with SAKTI_DB.",
            code="too_large",
        )
    archive_file.know(path)
    if not size:
        return _open(name)
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        source.set_busy_timeout(5_000)
        source.execute("PRAGMA query_only = 1").fetchall()
        target = copy(source, name)
    finally:
        source.close()
    with contextlib.suppress(apsw.SQLError):  # an empty database has none
        target.execute("DELETE FROM leases").fetchall()
    return target


def copy(source: apsw.Connection, name: str) -> apsw.Connection:
    """Copy an open database to `name`; it exists while a connection, such as the returned one, is open.

    Raises `apsw.Error`.
    """
    target = _open(name)
    try:
        with target.backup("main", source, "main") as backup:
            backup.step(-1)
        return _without_log(name, target)
    except BaseException:
        target.close()
        raise


def _open(name: str) -> apsw.Connection:
    connection = apsw.Connection(name, flags=FLAGS)
    largest = ctypes.c_int64(LARGEST)
    connection.file_control("main", apsw.SQLITE_FCNTL_SIZE_LIMIT, ctypes.addressof(largest))
    return connection


def _without_log(name: str, filled: apsw.Connection) -> apsw.Connection:
    """Clear the header's mark that the copy has a write-ahead log, and return a fresh connection.

    In memory there is no such log, and SQLite would not open it.
    """
    file = apsw.VFSFile("memdb", name.removeprefix("file:").partition("?")[0], [FLAGS | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        if file.xFileSize() >= _HEADER:
            file.xWrite(b"\x01\x01", _VERSIONS)
        filled.close()  # it has the old header in its cache
        return _open(name)
    finally:
        file.xClose()
