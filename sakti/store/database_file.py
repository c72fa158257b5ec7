"""Describe how a database's file is opened, and detect that it was removed, replaced or truncated.

Every connection gets the SQL functions of `register`. If another program replaces the file, SQLite keeps using the
old one, and later starts would never see these writes. The identity of the file is therefore checked before each
transaction, with two calls of `stat`. A file with a long log is marked, so that a copy without its log is recognised.
Raw SQL: pragmas, and the mark, which is read before the schema is known.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import urllib.parse
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct

from sakti.store import archive_file, files, secrets
from sakti.store.connection import Connection, Database, wrap_connection
from sakti.store.search.folding import fold_text
from sakti.store.search.index import list_identifier_parts, matches_path
from sakti.store.text_registry import mask_for_storage
from sakti.store.threads import codec

# Flags in `user_version`:
CLEAN = 1  # the free space has no removed text: the file was created or vacuumed since sakti overwrites removed text
UNMERGED = 2  # the search indexes still contain words of removed texts
PENDING = 4  # the write-ahead log may contain more than the file (`mark_log`)
# Several SQL expressions need the identifiers of each indexed text.
_identifiers = lru_cache(maxsize=8)(list_identifier_parts)
WARNING = (
    "{path} is a copy that was made while the original was in use, without the file ending in -wal: the newest messages"
    " and changes may be missing. Copy both files, or use `sakti db backup`."
)
LOG_HEADER, FRAME_HEADER = 32, 24  # bytes of a write-ahead log
_MARKED_FILE = "marked_file"  # key in ui_state: inode and generation, separated by a colon
AGAIN_S = 0.05  # seconds before a file that seems older is read again


class DatabaseFile(Struct, frozen=True):
    """Database and the flags to open it.

    A temporary one is in memory and exists until its last connection is closed; `holder` keeps it open.
    """

    filename: str
    flags: int = apsw.SQLITE_OPEN_READWRITE
    holder: apsw.Connection | None = None

    @property
    def is_temporary(self) -> bool:
        return self.holder is not None

    @property
    def writes(self) -> bool:
        return bool(self.flags & apsw.SQLITE_OPEN_READWRITE)

    def connect(self) -> apsw.Connection:
        """Open a new connection; the file must exist."""
        if not self.flags & apsw.SQLITE_OPEN_URI:
            archive_file.register_database(self.filename)
        return apsw.Connection(self.filename, flags=self.flags)

    def remove(self) -> None:
        if self.holder is not None:
            self.holder.close()


def make_read_only(path: Path, *, immutable: bool) -> DatabaseFile:
    """Return how to open a database for reading.

    SQLite creates no files beside an `immutable` one, and ignores its write-ahead log.
    """
    options = "mode=ro&immutable=1" if immutable else "mode=ro"
    name = f"file:{urllib.parse.quote(str(path.absolute()))}?{options}"
    return DatabaseFile(name, apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def register(connection: apsw.Connection) -> None:
    functions: dict[str, tuple[Callable[..., Any], int]] = {
        "sakti_text": (codec.read_text, 2),  # (raw_content, parts) of a message: its text
        "sakti_unpacked": (codec.unpack_or_empty, 1),  # text of a packed column, '' if unreadable
        "sakti_folded": (_wrap_text_function(fold_text), 1),
        "sakti_identifiers": (_wrap_text_function(_identifiers), 1),
        "sakti_masked": (_wrap_text_function(secrets.mask_secrets), 1),
        "sakti_touched": (_wrap_text_function(matches_path), 2),
    }
    for name, (function, arguments) in functions.items():
        connection.create_scalar_function(name, function, arguments, deterministic=True)


def _wrap_text_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of texts for SQL: NULL if an argument is NULL, numbers and bytes as text.

    A column or a JSON value may have any type, and an exception would abort the statement or a migration.
    """

    def call(*values: Any) -> Any:
        if None in values:
            return None
        return function(*(value if isinstance(value, str) else _to_text(value) for value in values))

    return call


def _to_text(value: float | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# views and triggers call them, so every connection of this process needs them
apsw.connection_hooks.append(register)


def mark_log(db: Database, inode: int) -> bool:
    """Set the mark in the open transaction; return whether it was not set before."""
    if _is_set(db):
        return False
    _change(db, inode, on=True)
    return True


def clear_log_mark(db: Database, inode: int) -> None:
    """Copy the log into the file and clear the mark, unless the database is being read or written."""
    if _is_set(db) and _checkpoint(db):
        with db.atomic():
            _change(db, inode, on=False)
        _checkpoint(db)


def _change(db: Database, inode: int, *, on: bool) -> None:
    before = _read_marks(db)
    db.connection().pragma("user_version", before | PENDING if on else before & ~PENDING)
    value = mask_for_storage("ui_state", "value", f"{inode}:{_read_mark(db)[1] + 1}")
    # SQL: runs before the schema of the file is known
    db.execute_sql(f"INSERT OR REPLACE INTO ui_state (key, value) VALUES ('{_MARKED_FILE}', ?)", (value,))


def _checkpoint(db: Database) -> bool:
    _, pages, copied = db.connection().pragma("wal_checkpoint", "PASSIVE")
    return pages == copied


def has_log(path: Path) -> bool:
    """Return whether there is a write-ahead log with content beside the database."""
    return files.get_size(files.append_suffix(path.resolve(), "-wal")) > 0


def lacks_log(db: Connection, path: Path) -> bool:
    """Return whether a database without a log on opening is a copy that lacks its log."""
    return _is_set(db) and _read_mark(db)[0] not in (0, path.stat().st_ino)


def read_generation(path: Path) -> int | None:
    """Return the generation of the file at `path` without its log; None if unreadable now."""
    try:
        with contextlib.closing(make_read_only(path, immutable=True).connect()) as connection:
            return _read_mark(wrap_connection(connection))[1]
    except (apsw.Error, ValueError):
        return None


def lacks_frames(path: Path) -> bool:
    """Return whether the write-ahead log is shorter than its index says.

    SQLite is asked, because opening and closing the index file would drop all locks of this process on it.
    """
    try:
        with contextlib.closing(DatabaseFile(str(path)).connect()) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            page_size = connection.pragma("page_size")
            _, frames, _ = connection.pragma("wal_checkpoint", "NOOP")
    except (apsw.IOError, apsw.CorruptError, apsw.NotADBError):
        return True  # the first pages to read are missing
    except apsw.Error:
        return False
    size = files.get_size(files.append_suffix(path, "-wal"))
    return frames > 0 and size < LOG_HEADER + frames * (FRAME_HEADER + page_size)


def _read_mark(db: Connection) -> tuple[int, int]:
    """Return the inode and the generation of a marked database, else zeros."""
    # SQL: runs before the schema of the file is known
    row = db.execute_sql(f"SELECT value FROM ui_state WHERE key = '{_MARKED_FILE}'").fetchone()
    inode, _, generation = (row[0] if row else "0:0").partition(":")
    return int(inode), int(generation)


def _is_set(db: Connection) -> bool:
    return bool(_read_marks(db) & PENDING)


def _read_marks(db: Connection) -> int:
    return db.connection().pragma("user_version")


class FileLoss(Struct, frozen=True):
    """Loss of an open database's file to another program.

    `can_checkpoint`: nobody else can have opened the database by its name since, so its write-ahead log may be copied
    into the open file. `keeps_log`: the log still belongs to the file.
    """

    words: str
    can_checkpoint: bool = False
    keeps_log: bool = False


class FileIdentity:
    """Identity and generation of an open database file, and the identity of its write-ahead log."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()  # SQLite's log is beside the file, not beside a link to it
        self._log_path = files.append_suffix(self._path, "-wal")
        status = self._path.stat()
        self._file, self._size, self._written = _identify(status), status.st_size, status.st_mtime_ns
        self._log = self._find_log()
        self._log_size = files.get_size(self._log_path)
        self._loss: FileLoss | None = None
        self._lock = threading.Lock()  # readers also check the file
        self._generation = 0
        self._generation = self._read_generation()

    def note_checkpoint(self) -> None:
        """Remember the state of the file after a checkpoint of this process."""
        with self._lock, contextlib.suppress(OSError):
            self._written, self._generation = self._path.stat().st_mtime_ns, self._read_generation()

    def note_commit(self) -> None:
        """Remember the size of the log after a transaction of this process."""
        with self._lock:
            self._log_size = max(self._log_size, files.get_size(self._log_path))

    @property
    def inode(self) -> int:
        return self._file[1]

    @property
    def has_log(self) -> bool:
        return self._log is not None

    def find_loss(self) -> FileLoss | None:
        """Return how the file was lost since it was opened; None if it was not."""
        with self._lock:
            self._loss = self._loss or self._look()
            return self._loss

    def _look(self) -> FileLoss | None:
        try:
            status = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return FileLoss(f"{self._path} was removed while it was in use", can_checkpoint=True)
        except OSError:
            return None
        if _identify(status) != self._file:
            return FileLoss(f"{self._path} was replaced by another file while it was in use")
        if status.st_size < self._size:  # it is vacuumed only while no other process has it open
            return FileLoss(f"{self._path} was truncated while it was in use", keeps_log=True)
        self._size = status.st_size
        if status.st_mtime_ns != self._written:  # usually a checkpoint
            self._written = status.st_mtime_ns
            if self._is_older():
                return FileLoss(f"{self._path} was overwritten by an older copy while it was in use")
        return self._find_loss_of_log()

    def _is_older(self) -> bool:
        """Return whether the file is of an earlier generation than at the last check."""
        before = self._generation
        self._generation = self._read_generation()
        if self._generation < before:  # or it was read during a checkpoint
            time.sleep(AGAIN_S)
            self._generation = self._read_generation()
        return self._generation < before

    def _read_generation(self) -> int:
        generation = read_generation(self._path) if self.has_log else 0
        return self._generation if generation is None else generation

    def _find_loss_of_log(self) -> FileLoss | None:
        log = self._find_log()
        if self._log is None or log == self._log:
            self._log = log
            return self._find_loss_in_log()
        if log is None:
            return FileLoss(f"{self._log_path} was removed while it was in use", can_checkpoint=True)
        return FileLoss(f"{self._log_path} was replaced by another file while it was in use")

    def _find_loss_in_log(self) -> FileLoss | None:
        size = files.get_size(self._log_path)
        is_shorter, self._log_size = size < self._log_size, size
        if not is_shorter or not self._lacks_frames():
            return None
        return FileLoss(f"{self._log_path} was truncated while it was in use", keeps_log=True)

    def _lacks_frames(self) -> bool:
        """Return whether the log lacks frames in use; SQLite resets its index before it shortens a log."""
        if lacks_frames(self._path):  # or another checkpoint intervened
            time.sleep(AGAIN_S)
            return lacks_frames(self._path)
        return False

    def _find_log(self) -> tuple[int, int] | None:
        try:
            return _identify(self._log_path.stat())
        except OSError:
            return None

    def set_log_aside(self) -> None:
        """Rename a write-ahead log that must not be applied to another file of the same name."""
        if self._log is not None and self._find_log() == self._log:
            set_log_aside(self._path)


def set_log_aside(path: Path) -> Path | None:
    """Rename the write-ahead log of a lost database; return its new path, None if it was empty."""
    log = files.append_suffix(path, "-wal")
    aside = files.append_suffix(path, f".wal-{time.strftime('%Y%m%d-%H%M%S')}")
    with contextlib.suppress(OSError):
        files.append_suffix(path, "-shm").unlink(missing_ok=True)
        if log.stat().st_size:
            log.rename(aside)
            return aside
        log.unlink()
    return None


def _identify(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
