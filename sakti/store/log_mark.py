"""Mark a database file while its write-ahead log (`-wal`) holds more than the file itself.

A copy of such a file alone lacks the newest commits, and nothing else in it says so. The mark is set by the first
write and cleared when the log has been copied into the file: after a pause, and when the database is closed. It is
part of the file, and so is the file's inode: a marked file with another inode and without a log is a copy made while
the original was in use. After a crash the log is there, and if another program has copied it into the file since, the
inode is the same: neither is reported.

Each change of the mark also counts up the file's generation: if the file suddenly has a lower one, it was overwritten
in place by an older copy (`file_identity`).

Raw SQL: pragmas, and a row that is written once for each time the file is in use.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from sakti.store import database_file, files
from sakti.store.connection import Connection, Database, plain
from sakti.store.text_registry import entering

WARNING = (
    "{path} is a copy that was made while the original was in use, without the file ending in -wal: the newest messages"
    " and changes may be missing. Copy both files, or use `sakti db backup`."
)
_LOG_HEADER, _FRAME_HEADER = 32, 24  # bytes
NAME = "marked_file"  # in ui_state: inode and generation, with a colon between them


def set_in(db: Database, inode: int) -> bool:
    """Set the mark in the open transaction; return whether it was not set before."""
    if _is_set(db):
        return False
    _change(db, inode, on=True)
    return True


def clear(db: Database, inode: int) -> None:
    """Copy the log into the file and clear the mark, unless somebody reads or writes now."""
    if _is_set(db) and _checkpoint(db):
        with db.atomic():
            _change(db, inode, on=False)
        _checkpoint(db)


def _change(db: Database, inode: int, *, on: bool) -> None:
    before = _marks(db)
    db.execute_sql(f"PRAGMA user_version = {before | database_file.PENDING if on else before & ~database_file.PENDING}")
    value = entering("ui_state", "value", f"{inode}:{_read_mark(db)[1] + 1}")
    db.execute_sql(f"INSERT OR REPLACE INTO ui_state (key, value) VALUES ('{NAME}', ?)", (value,))


def _checkpoint(db: Database) -> bool:
    _, pages, copied = db.execute_sql("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return pages == copied


def has_log(path: Path) -> bool:
    """Return whether there is a write-ahead log with content beside the database."""
    return files.size_of(files.beside(path.resolve(), "-wal")) > 0


def lacks_log(db: Connection, path: Path) -> bool:
    """Return whether a database that had no log when it was opened is a copy that lacks one."""
    return _is_set(db) and _read_mark(db)[0] not in (0, path.stat().st_ino)


def read_generation(path: Path) -> int | None:
    """Return the generation of the file at `path` without its log; None if it cannot be read now."""
    try:
        with contextlib.closing(database_file.make_read_only(path, immutable=True).connect()) as connection:
            return _read_mark(plain(connection))[1]
    except (apsw.Error, ValueError):
        return None


def lacks_frames(path: Path) -> bool:
    """Return whether the write-ahead log is shorter than its index says.

    Through SQLite: a process that closed the index itself would lose all its locks on it.
    """
    try:
        with contextlib.closing(database_file.DatabaseFile(str(path)).connect()) as connection:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            db = plain(connection)
            (page_size,) = db.execute_sql("PRAGMA page_size").fetchone()
            _, frames, _ = db.execute_sql("PRAGMA wal_checkpoint(NOOP)").fetchone()
    except (apsw.IOError, apsw.CorruptError, apsw.NotADBError):
        return True  # the pages that it reads first are not there
    except apsw.Error:
        return False
    size = files.size_of(files.beside(path, "-wal"))
    return frames > 0 and size < _LOG_HEADER + frames * (_FRAME_HEADER + page_size)


def _read_mark(db: Connection) -> tuple[int, int]:
    """Return the inode and the generation of a database that was marked, else zeros."""
    row = db.execute_sql(f"SELECT value FROM ui_state WHERE key = '{NAME}'").fetchone()
    inode, _, generation = (row[0] if row else "0:0").partition(":")
    return int(inode), int(generation)


def _is_set(db: Connection) -> bool:
    return bool(_marks(db) & database_file.PENDING)


def _marks(db: Connection) -> int:
    return db.execute_sql("PRAGMA user_version").fetchone()[0]
