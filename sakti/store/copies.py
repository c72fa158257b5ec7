"""Open temporary copies of databases, in memory for unsaved work, on disk for other programs' data."""

from __future__ import annotations

import contextlib
import ctypes
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import apsw

from sakti.core.errors import StoreError, TaskError
from sakti.core.types import Json
from sakti.store import archive_file, files

FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
LARGEST = 4 << 30  # bytes that the copy may grow to
_VERSIONS = 18  # where a file says in two bytes whether it has a write-ahead log
_HEADER = 100

TRIES = 3  # copies of a database that changes meanwhile


def name_in_memory() -> str:
    """Make a name by which all connections of this process open the same database in memory."""
    return f"file:/sakti-{uuid.uuid4().hex}?vfs=memdb"


def copy_file_to_memory(name: str, path: Path) -> apsw.Connection:
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
        target = copy_to_memory(source, name)
    finally:
        source.close()
    with contextlib.suppress(apsw.SQLError):  # an empty database has none
        target.execute("DELETE FROM leases").fetchall()
    return target


def copy_to_memory(source: apsw.Connection, name: str) -> apsw.Connection:
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


class ForeignDatabase:
    """Open copy of another program's database."""

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        self._path, self._connection = path, connection

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table, () if it is missing."""
        cursor = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return tuple(str(name) for (name,) in cursor)

    def rows(self, sql: str, values: tuple[Any, ...] = ()) -> Iterator[Json]:
        """Yield rows as objects. Raises `StoreError` if the database is damaged."""
        names: list[str] = []
        try:
            cursor = self._connection.execute(sql, values)
            for row in cursor:
                names = names or [column[0] for column in cursor.get_description()]
                yield dict(zip(names, row, strict=True))
        except apsw.Error as e:
            raise _unreadable(self._path, e) from e

    def table(self, table: str, names: tuple[str, ...], order: str = "rowid", where: str = "") -> Iterator[Json]:
        """Yield rows with those of `names` that a table has; blobs are SQLite's own form of JSON."""
        there = [n for n in names if n in self.columns(table)]
        if there:
            chosen = ", ".join(f"CASE WHEN typeof({n}) = 'blob' THEN json({n}) ELSE {n} END AS {n}" for n in there)
            yield from self.rows(f"SELECT {chosen} FROM {table} {where} ORDER BY {order}")


@contextlib.contextmanager
def open_foreign(path: Path) -> Generator[ForeignDatabase]:
    """Open a copy of a database and its write-ahead log; it is removed afterwards. Raises `StoreError`."""
    folder = _copy(path)
    try:
        copy = folder / path.name
        try:
            connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except apsw.Error as e:
            raise _unreadable(path, e) from e
        with contextlib.closing(connection):
            yield ForeignDatabase(path, connection)
    finally:
        files.remove(folder)


def _copy(path: Path) -> Path:
    """Copy a database until it did not change meanwhile, at most `TRIES` times. Raises `StoreError`."""
    log = path.with_name(f"{path.name}-wal")
    try:
        for attempt in range(TRIES):
            before = _state(path), _state(log)
            folder = files.copy_to_folder(p for p in (path, log) if p.is_file())
            if before == (_state(path), _state(log)) or attempt == TRIES - 1:
                return folder
            files.remove(folder)
    except OSError as e:
        raise StoreError(f"{path} cannot be read: {e.strerror or e}.", code="unreadable") from e
    raise AssertionError("no attempt")


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} cannot be read: {error}.", code="unreadable")


def beads_issues(path: Path) -> list[Json]:
    """Return the issues of a beads database in the form of its JSONL export.

    Raises `TaskError` where it is no such database.
    """
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as e:
        raise TaskError(f"{path} cannot be opened: {e}.", code="invalid") from e
    try:
        issues = {r["id"]: r for r in _rows(connection, "SELECT * FROM issues ORDER BY rowid")}
        for edge in _rows(connection, "SELECT issue_id, depends_on_id, type FROM dependencies ORDER BY rowid"):
            if edge["issue_id"] in issues:
                issues[edge["issue_id"]].setdefault("dependencies", []).append(edge)
        for row in _rows(connection, "SELECT issue_id, label FROM labels ORDER BY label"):
            if row["issue_id"] in issues:
                issues[row["issue_id"]].setdefault("labels", []).append(row["label"])
        for row in _rows(connection, "SELECT * FROM comments ORDER BY rowid"):
            if row["issue_id"] in issues:
                issues[row["issue_id"]].setdefault("comments", []).append(row)
    except apsw.Error as e:
        raise TaskError(
            f"{path} is not a readable beads database: {e}. Export it with `bd export -o issues.jsonl`"
            " and import that.",
            code="invalid",
        ) from e
    finally:
        connection.close()
    return list(issues.values())


def _rows(connection: apsw.Connection, sql: str) -> list[dict[str, Any]]:
    """Return rows as objects, without empty values, and with bytes and the like as text."""
    cursor = connection.execute(sql)
    names: list[str] = []
    out: list[dict[str, Any]] = []
    for row in cursor:
        names = names or [d[0] for d in cursor.get_description()]
        pairs = zip(names, row, strict=True)
        out.append({k: v if isinstance(v, str | int | float) else str(v) for k, v in pairs if v not in (None, "")})
    return out
