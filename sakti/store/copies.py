"""Copy databases: backups on disk, temporary copies in memory, and databases of other programs.

A backup is a consistent, checked copy of a database in use; it gets its name when it is complete. A temporary copy is
only in memory. Files that SQLite must not touch are copied to a private folder first.
"""

from __future__ import annotations

import array
import contextlib
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from sakti.core.errors import StoreError, TaskError
from sakti.core.types import Json
from sakti.store import archive_file, database_file, failures, files
from sakti.store.connection import Snapshot, wrap_connection
from sakti.store.database_file import DatabaseFile

if TYPE_CHECKING:
    from sakti.store.connection import Database

# --- temporary copies -----------------------------------------------------------------------------------------

LARGEST = 4 << 30  # most bytes of a copy
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
_VERSIONS = 18  # offset of the two bytes of a file that say whether it has a write-ahead log
_HEADER = 100


def copy_to_memory(source: apsw.Connection | None) -> DatabaseFile:
    """Copy an open database to memory; None makes an empty one. It exists until it is removed.

    Raises `apsw.Error`.
    """
    # all connections of this process to this name open the same database
    name = f"file:/sakti-{secrets.token_hex(16)}?vfs=memdb"
    holder = _open(name)
    try:
        if source is not None:
            with holder.backup("main", source, "main") as backup:
                backup.step(-1)
            holder = _reopen_without_log(name, holder)
    except BaseException:
        holder.close()
        raise
    return DatabaseFile(name, _FLAGS, holder)


def copy_file_to_memory(path: Path) -> DatabaseFile:
    """Copy the database at `path`, if there is one, to memory, without its leases.

    Raises `apsw.Error`, and `StoreError` if it is too large.
    """
    size = path.stat().st_size if path.exists() else 0
    if size > LARGEST:
        raise StoreError(
            f"{path} has {size >> 20:,} MB: unsaved work needs a copy in memory, of {LARGEST >> 20:,} MB at "
            "most. Name another file with SAKTI_DB.",
            code="too_large",
        )
    archive_file.register_database(path)
    if not size:
        return copy_to_memory(None)
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)) as source:
        source.set_busy_timeout(5_000)
        source.execute("PRAGMA query_only = 1").fetchall()
        copy = copy_to_memory(source)
    with contextlib.closing(copy.connect()) as target, contextlib.suppress(apsw.SQLError):  # an empty database has none
        target.execute("DELETE FROM leases").fetchall()
    return copy


def copy_untouched(*paths: Path) -> DatabaseFile:
    """Copy a database and the files beside it to memory without opening them.

    Raises `apsw.Error`, `OSError`.
    """
    folder = files.copy_to_folder(paths)
    try:
        with contextlib.closing(apsw.Connection(str(folder / paths[0].name))) as source:
            return copy_to_memory(source)
    finally:
        files.remove_folder(folder)


def _open(name: str) -> apsw.Connection:
    connection = apsw.Connection(name, flags=_FLAGS)
    limit = array.array("q", [LARGEST])
    connection.file_control("main", apsw.SQLITE_FCNTL_SIZE_LIMIT, limit.buffer_info()[0])
    return connection


def _reopen_without_log(name: str, filled: apsw.Connection) -> apsw.Connection:
    """Clear the header's mark that the copy has a write-ahead log, and return a fresh connection.

    In memory there is no such log, and SQLite would not open it.
    """
    file = apsw.VFSFile("memdb", name.removeprefix("file:").partition("?")[0], [_FLAGS | apsw.SQLITE_OPEN_MAIN_DB, 0])
    try:
        if file.xFileSize() >= _HEADER:
            file.xWrite(b"\x01\x01", _VERSIONS)
        filled.close()  # its cache has the old header
        return _open(name)
    finally:
        file.xClose()


# --- backups --------------------------------------------------------------------------------------------------

PAGES = 2_000  # copied per step


def backup(db: Database, path: Path, target: Path) -> list[Path]:
    """Copy a database in use, with its archive; return the copies."""
    _refuse_existing(db, target)
    copy_database(db, target)
    try:  # after the database, so that the copy has everything it refers to
        archive = _copy_archive(db, path, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return [target, *([archive] if archive else [])]


def copy_database(
    db: Database, target: Path, *, replace: bool = False, wanted: Callable[[Database], bool] | None = None
) -> None:
    """Copy the current state of the database into a new file `target` (mode 0600) by online backup.

    Concurrent writers are not delayed, and their changes are not copied. A copy that is not `wanted` is removed.
    Raises `StoreError` (exists, unless `replace`; damaged, full, io): then there is no `target`, or the previous one.
    """
    if target.exists() and not replace:
        raise StoreError(f"{target} already exists; name another file.", code="exists")
    part = files.make_unfinished_path(target, "part")
    try:
        files.delete_leftovers(target)
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _copy_pages(db.connection(), part)
        if fault := failures.find_damage(DatabaseFile(str(part))):
            raise _make_damage_error(fault)
        with contextlib.closing(apsw.Connection(str(part))) as connection:
            is_wanted = wanted is None or wanted(wrap_connection(connection))
        if is_wanted:
            _give_name(part, target, replace=replace)
    except OSError as e:
        raise StoreError(f"{target} cannot be written: {e.strerror}.", code="io") from e
    except apsw.Error as e:
        if failures.classify_error(e) == "damaged":  # only the source can be damaged: the copy is new
            raise _make_damage_error(str(e)) from e
        raise failures.to_store_error(e, target, saving=False) from e
    finally:
        files.delete_database(part)


def _make_damage_error(words: str) -> StoreError:
    return StoreError(f"Nothing was copied: the database is damaged ({words}). {failures.RECOVER}", code="damaged")


def _copy_pages(source: apsw.Connection, part: Path) -> None:
    with contextlib.closing(apsw.Connection(str(part))) as destination:
        # without a transaction, it would restart after each commit of another process
        with contextlib.nullcontext() if source.in_transaction else Snapshot(source):
            source.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            with destination.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(PAGES)
        version = int(str(destination.execute("PRAGMA user_version").get))
        if version & database_file.PENDING:  # the copy is complete
            destination.execute(f"PRAGMA user_version = {version & ~database_file.PENDING}")


def _give_name(part: Path, target: Path, *, replace: bool) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    if replace:
        part.replace(target)
        return
    try:
        os.link(part, target)
    except FileExistsError as e:
        raise StoreError(f"{target} already exists; name another file.", code="exists") from e
    except OSError:  # a file system without links
        part.rename(target)


def _refuse_existing(db: Database, target: Path) -> None:
    """Raise StoreError (exists) if the place of the archive of `target` is taken by another archive."""
    place = archive_file.get_path(target)
    if place.exists() and archive_file.find_reference(db) is not None:
        raise StoreError(f"{place} already exists; name another file.", code="exists")


def _copy_archive(db: Database, path: Path, target: Path) -> Path | None:
    """Copy the archive of the database at `path` for its copy `target`; None without an archive.

    Raises `StoreError` (full, io).
    """
    place, new_place = archive_file.get_path(path), archive_file.get_path(target)
    if archive_file.find_reference(db) is None or not place.exists():
        return None
    part = files.make_unfinished_path(new_place, "part")
    try:
        files.delete_leftovers(new_place)
        with contextlib.closing(archive_file.connect(place, query_only=True)) as source:
            part.touch(mode=0o600, exist_ok=True)
            with contextlib.closing(apsw.Connection(str(part))) as copy, copy.backup("main", source, "main") as backup:
                backup.step(-1)
        part.rename(new_place)
    except (apsw.Error, OSError) as e:
        raise failures.to_archive_error(e, new_place) from e
    finally:
        files.delete_database(part)
    return new_place


# --- other programs' data -------------------------------------------------------------------------------------

TRIES = 3  # attempts to copy a database that changes meanwhile


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
            raise _to_unreadable_error(self._path, e) from e

    def table(self, table: str, names: tuple[str, ...], order: str = "rowid", where: str = "") -> Iterator[Json]:
        """Yield rows with those of `names` that a table has; JSON blobs become text."""
        there = [n for n in names if n in self.columns(table)]
        if there:
            chosen = ", ".join(f"CASE WHEN typeof({n}) = 'blob' THEN json({n}) ELSE {n} END AS {n}" for n in there)
            yield from self.rows(f"SELECT {chosen} FROM {table} {where} ORDER BY {order}")


@contextlib.contextmanager
def open_foreign(path: Path) -> Generator[ForeignDatabase]:
    """Open a copy of a database and its write-ahead log; it is removed afterwards. Raises `StoreError`."""
    folder = _copy_until_stable(path)
    try:
        copy = folder / path.name
        try:
            connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except apsw.Error as e:
            raise _to_unreadable_error(path, e) from e
        with contextlib.closing(connection):
            yield ForeignDatabase(path, connection)
    finally:
        files.remove_folder(folder)


def _copy_until_stable(path: Path) -> Path:
    """Copy a database that does not change during the copy, in up to `TRIES` attempts.

    Raises `StoreError`.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        for attempt in range(TRIES):
            before = _read_state(path), _read_state(log)
            folder = files.copy_to_folder(p for p in (path, log) if p.is_file())
            if before == (_read_state(path), _read_state(log)) or attempt == TRIES - 1:
                return folder
            files.remove_folder(folder)
    except OSError as e:
        raise StoreError(f"{path} cannot be read: {e.strerror or e}.", code="unreadable") from e
    raise AssertionError("no attempt")


def _read_state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _to_unreadable_error(path: Path, error: Exception) -> StoreError:
    return StoreError(f"{path} cannot be read: {error}.", code="unreadable")


def read_beads_issues(path: Path) -> list[Json]:
    """Return the issues of a beads database in the form of its JSONL export.

    Raises `TaskError` if it is not one.
    """
    try:
        with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return _read_issues(ForeignDatabase(path, connection))
    except (apsw.Error, StoreError) as e:
        raise TaskError(
            f"{path} is not a readable beads database: {e}. Export it with `bd export -o issues.jsonl`"
            " and import that.",
            code="invalid",
        ) from e


def _read_issues(db: ForeignDatabase) -> list[Json]:
    issues = {row["id"]: _to_plain_values(row) for row in db.rows("SELECT * FROM issues ORDER BY rowid")}
    for name, sql in (
        ("dependencies", "SELECT issue_id, depends_on_id, type FROM dependencies ORDER BY rowid"),
        ("labels", "SELECT issue_id, label FROM labels ORDER BY label"),
        ("comments", "SELECT * FROM comments ORDER BY rowid"),
    ):
        for row in map(_to_plain_values, db.rows(sql)):
            if row["issue_id"] in issues:
                issues[row["issue_id"]].setdefault(name, []).append(row["label"] if name == "labels" else row)
    return list(issues.values())


def _to_plain_values(row: Json) -> Json:
    """Leave out empty values; bytes and other types become text."""
    return {k: v if isinstance(v, str | int | float) else str(v) for k, v in row.items() if v not in (None, "")}
