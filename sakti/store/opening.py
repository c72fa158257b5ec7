"""Create a database file or decide how to open it: for writing, read-only, or not at all and why.

A new database is created under another name and renamed once it is complete, so an empty file is always a damaged
one. `read_once` runs one query in the calling thread for commands that end then: they need neither an event loop nor
peewee, which would be most of their run time.

Raw SQL: pragmas, a schema that is not known yet, and names that a shell completes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import apsw

from sakti.core.errors import SaktiError, StoreError
from sakti.core.lazy import lazy_pattern
from sakti.store import archive_file, copies, database_file, failures, files, migrate
from sakti.store.connection import Connection, Snapshot, wrap_connection
from sakti.store.database_file import DatabaseFile

if TYPE_CHECKING:
    from sakti.core.clock import Clock

# 3.7.0 to 3.51.2 can corrupt a WAL that two connections write and checkpoint at once (sqlite.org/wal.html).
WAL_SAFE_FROM = (3, 51, 3)
APPLICATION_ID = int.from_bytes(b"sakt", "big")
CACHE_KB = 8_000
COPY_LIMIT = 512 << 20  # largest database, in bytes, of which a copy is made only to write to it
JOURNAL_LIMIT = 8 << 20  # bytes to which a write-ahead log is truncated
ANOTHER = "name another file with SAKTI_DB"

_RECOVERED = lazy_pattern(r"recovered \d+ (?:frames from WAL file|pages from) (.+)-(?:wal|journal)$")
_unclean: set[str] = set()

P = ParamSpec("P")
R = TypeVar("R")
_HERE = "SELECT id, title FROM threads WHERE resource_id = ? AND deleted_at"


def _note_unclean_database(code: int, message: str) -> None:
    """Note databases that SQLite reports as not closed properly; its log callback."""
    if code in (apsw.SQLITE_NOTICE_RECOVER_WAL, apsw.SQLITE_NOTICE_RECOVER_ROLLBACK) and (
        match := _RECOVERED.match(message)
    ):
        _unclean.add(os.path.realpath(match[1]))


with contextlib.suppress(apsw.Error):
    apsw.config(apsw.SQLITE_CONFIG_LOG, _note_unclean_database)


def was_interrupted(path: Path) -> bool:
    """Return whether this process found that the last user of a database was killed or lost power."""
    return os.path.realpath(path) in _unclean


def mark_interrupted(path: Path) -> None:
    """Note that a database has to be checked for damage."""
    _unclean.add(os.path.realpath(path))


def mark_checked(path: Path) -> None:
    """Note that the database was checked for damage since."""
    _unclean.discard(os.path.realpath(path))


class NotWritable(Exception):
    """Error for a missing database that cannot be created; the message is the reason."""


def refuse_unusable(path: Path) -> None:
    """Raise `StoreError` for a folder, a device, an empty file or a link to nothing."""
    if path.is_symlink() and not path.exists():
        raise StoreError(f"{path} is a link to {path.readlink()}, which does not exist: {ANOTHER}.", code="not_a_file")
    try:
        file_stat = path.stat()
    except OSError:
        return  # opening it reports the reason
    if not stat.S_ISREG(file_stat.st_mode):
        raise StoreError(f"{path} is not a file: {ANOTHER}.", code="not_a_file")
    if not file_stat.st_size:
        raise StoreError(f"{path} is damaged: it is empty. {failures.RECOVER}", code="damaged")


def is_wal_safe(path: Path) -> bool:
    """Return whether the write-ahead log may be used: with a safe SQLite, and on a local disk."""
    return check_sqlite()[1] and not files.find_network_type(path)


def create(path: Path, clock: Clock, *, wal: bool) -> None:
    """Create an empty database of this version at `path` (mode 0600; a new folder 0700).

    If another process is faster, its file stays. Raises `NotWritable`, and `StoreError` if the disk is full.
    """
    new = files.make_unfinished_path(path, "new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        build(new, clock, wal=wal)
        try:
            os.link(new, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not path.exists():
                new.rename(path)
    except OSError as e:
        raise NotWritable(f"{path} cannot be created ({e.strerror}): {ANOTHER}.") from e
    except apsw.Error as e:
        if failures.classify_error_at(e, path) == "full":
            raise failures.to_store_error(e, path, saving=False) from e
        raise NotWritable(f"{path} cannot be created ({e}): {ANOTHER}.") from e
    finally:
        files.delete_database(new)


def build(path: Path, clock: Clock, *, wal: bool) -> None:
    """Write a complete, empty database into a new file and sync it."""
    # created here, so that the file (and its -wal, which copies the mode) is private from the beginning
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.closing(DatabaseFile(str(path)).connect()) as connection:
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        migrate.upgrade(wrap_connection(connection), path, clock)
        connection.execute(f"PRAGMA user_version = {database_file.CLEAN}")
        connection.execute(f"PRAGMA journal_mode = {'wal' if wal else 'delete'}").fetchall()
    with path.open("rb") as file:
        os.fsync(file.fileno())


def open_read_only(path: Path) -> DatabaseFile:
    """Return how to open a database that may not be written: SQLite can create no files beside it.

    Raises `apsw.Error` if it cannot be read either.
    """
    archive_file.register_database(path)
    wal = files.append_suffix(path, "-wal")
    if not wal.exists() or not wal.stat().st_size:
        return database_file.make_read_only(path, immutable=True)
    database = database_file.make_read_only(path, immutable=False)
    try:
        connection = database.connect()
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        connection.close()
        return database
    except (apsw.CantOpenError, apsw.IOError):  # its -shm is gone, may not be read, or has no room
        return copies.copy_untouched(path, wal)


def read_version(database: DatabaseFile) -> int:
    """Return the number of the last migration applied to a database."""
    with contextlib.closing(database.connect()) as connection:
        return migrate.read_current_version(wrap_connection(connection))


def make_scratch_copy(database: DatabaseFile | None, clock: Clock) -> DatabaseFile:
    """Copy a database to memory (None: an empty one) for writing; a temporary original is removed.

    Raises `OSError` or `apsw.Error` if there is no room for it.
    """
    if database is None:
        copy = copies.copy_to_memory(None)
        with contextlib.closing(copy.connect()) as connection:
            migrate.upgrade(wrap_connection(connection), None, clock)
            connection.execute(f"PRAGMA user_version = {database_file.CLEAN}")
        return copy
    if files.get_size(Path(database.filename)) > COPY_LIMIT:
        raise OSError("too large to be copied")
    with contextlib.closing(database.connect()) as source:
        copy = copies.copy_to_memory(source)
    database.remove()
    return copy


def make_pragmas(*, synchronous: str, writes: bool) -> dict[str, str | int]:
    common: dict[str, str | int] = {"temp_store": "memory", "cache_size": -CACHE_KB}
    if not writes:
        return {**common, "query_only": 1}
    return {
        **common,
        "synchronous": synchronous,
        "foreign_keys": 1,
        "secure_delete": 1,
        "wal_autocheckpoint": 8000,  # pages; upkeep after the writes checkpoints earlier
        "journal_size_limit": JOURNAL_LIMIT,
    }


def choose_journal(connection: apsw.Connection, *, wal: bool) -> None:
    """Switch the write-ahead log on or off, unless another process has the database open."""
    journal_mode = "wal" if wal else "delete"
    if connection.execute("PRAGMA journal_mode").get != journal_mode:
        with contextlib.suppress(apsw.BusyError):
            connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchall()


def is_alone(path: Path) -> bool:
    """Return whether no other connection to the database is open, in any process.

    A process that has it open in WAL mode holds a lock on it all the time.
    """
    with contextlib.closing(DatabaseFile(str(path)).connect()) as connection:
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("ROLLBACK")
        except (apsw.BusyError, apsw.LockedError):
            return False
        except apsw.Error:
            return True  # damaged: no process is using it
    return True


def refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    """Raise `StoreError` for the database of another program."""
    number = connection.execute("PRAGMA application_id").get
    db = wrap_connection(connection)
    # SQL: the schema itself, which no model describes
    tables = db.execute_sql("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if number not in (0, APPLICATION_ID) or (tables and not migrate.read_current_version(db)):
        raise StoreError(f"{path} is the database of another program: {ANOTHER}.", code="not_ours")


def check_sqlite() -> tuple[str, bool]:
    """Return SQLite's version, and whether its WAL is safe with two connections."""
    version = apsw.sqlite_lib_version()
    return version, tuple(int(n) for n in version.split(".")) >= WAL_SAFE_FROM


class NotReady(Exception):
    """Error for a database that is missing, cannot be opened or has another schema.

    `Store.open` creates it, migrates it or explains the failure.
    """


def open_another(connection: apsw.Connection) -> apsw.Connection:
    """Open another read-only connection to the same file, or to a copy of a database in memory."""
    path = Path(connection.filename)
    if not connection.filename:
        database = copies.copy_to_memory(connection)
    else:
        database = open_read_only(path) if connection.readonly("main") else DatabaseFile(str(path))
    second = database.connect()
    database.remove()
    second.set_busy_timeout(5_000)
    second.execute("PRAGMA query_only = 1")
    return second


def read_once(path: Path, fn: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run the read-only `fn(db, …)`, in plain SQL, in one transaction on the database at `path`.

    Raises `NotReady`.
    """
    had_log = database_file.has_log(path)
    try:
        # not READONLY: such a connection leaves the files behind that it needs beside a database in WAL mode
        connection = DatabaseFile(str(path)).connect()
    except apsw.Error as e:
        raise NotReady from e
    try:
        connection.set_busy_timeout(1_000)  # `Store.read` shows longer waits
        connection.execute("PRAGMA query_only = 1")
        db = wrap_connection(connection)
        with Snapshot(connection):
            if migrate.read_current_version(db) != migrate.LATEST or was_interrupted(path):
                raise NotReady
            if not had_log and database_file.lacks_log(db, path):
                raise NotReady
            return fn(db, *args, **kwargs)
    except (SaktiError, NotReady):
        raise
    except Exception as e:  # `Store.read` finds out whether the file is damaged
        raise NotReady from e
    finally:
        connection.close()


def list_newest_threads(db: Connection, resource_id: str, limit: int, deleted: bool) -> list[tuple[str, str]]:
    """Return ids and titles of a workspace's threads, the newest first, or of its deleted ones."""
    which = "IS NOT NULL ORDER BY deleted_at" if deleted else "IS NULL ORDER BY updated_at"
    # SQL: runs without peewee, whose import takes 60 ms
    return list(db.execute_sql(f"{_HERE} {which} DESC LIMIT ?", (resource_id, limit)))
