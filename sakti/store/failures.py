"""Translate errors of SQLite, and detect damage: by SQLite's check, and by unreadable JSON."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import apsw

from sakti.core.errors import StoreError
from sakti.core.lazy import lazy_pattern
from sakti.store.database_file import DatabaseFile
from sakti.store.search.index import TABLES as INDEXES
from sakti.store.search.index import TASKS
from sakti.store.text_registry import list_tables

# Errors with their code, and whether a retry may succeed.
_CODES: tuple[tuple[tuple[type[Exception], ...], str, bool], ...] = (
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), "busy", True),
    ((apsw.FullError,), "full", True),
    ((apsw.CorruptError, apsw.NotADBError, apsw.FormatError), "damaged", False),
    ((apsw.ReadOnlyError, apsw.PermissionsError), "read_only", False),
    ((apsw.CantOpenError, apsw.IOError, apsw.NoMemError, apsw.InterruptError), "io", True),
)
_FOREIGN_KEY = "FOREIGN KEY"  # in SQLite's message: the row refers to a removed one
ROOM = 64 << 10  # bytes of free space that SQLite needs for its shared memory and a few pages
_DISK_ERRORS = (apsw.CantOpenError, apsw.IOError)
RECOVER = "`sakti db recover` copies what can still be read into a new file."


def find_sqlite_error(error: BaseException) -> apsw.Error | None:
    """Return SQLite's own error in `error`, which peewee may have wrapped once or twice."""
    origin: object = error
    while origin is not None and not isinstance(origin, apsw.Error):
        origin = getattr(origin, "orig", None)
    return origin if isinstance(origin, apsw.Error) else None


def classify_error(error: BaseException) -> str | None:
    """Return the kind of a database failure (busy, full, …); None for errors of the statement."""
    origin = find_sqlite_error(error)
    return next((code for kinds, code, _ in _CODES if isinstance(origin, kinds)), None)


def classify_error_at(error: BaseException, path: Path) -> str | None:
    """Return `code_of(error)` at the database `path`, telling a full disk apart.

    On a full disk, SQLite only reports that a file could not be created, enlarged or mapped.
    """
    code = classify_error(error)
    return (
        "full" if code == "io" and isinstance(find_sqlite_error(error), _DISK_ERRORS) and _is_disk_full(path) else code
    )


def _is_disk_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < ROOM
    except OSError:
        return False


def to_store_error(error: BaseException, path: Path, *, saving: bool, waited: float = 0.0) -> StoreError:
    """Convert SQLite's `error` to a `StoreError` with a code.

    `saving`: the statement was a write.
    """
    code = classify_error_at(error, path) or ("gone" if _FOREIGN_KEY in _get_sqlite_message(error) else "store")
    sentence = {
        "busy": f"Another window has been writing to the database for {waited:.0f} s.",
        "full": f"The disk is full: no space left for {path}.",
        "damaged": f"{path} is damaged ({_get_sqlite_message(error)}). {RECOVER}",
        "read_only": f"{path} is not writable.",
        "gone": "The thread or task it belongs to was removed in another window.",
    }.get(code, f"{path}: {_get_sqlite_message(error)}. `sakti doctor` finds the reason.")
    retryable = any(again for _, c, again in _CODES if c == code)
    return StoreError(f"Not saved. {sentence}" if saving else sentence, code=code, retryable=retryable)


def _get_sqlite_message(error: BaseException) -> str:
    return str(find_sqlite_error(error) or error).rstrip(".")


_OF_INDEX = lazy_pattern(r"\bfts5\b.*\btable \"?(?:main\.)?(\w+)", re.IGNORECASE)


def split_faults(rows: Sequence[str]) -> tuple[list[str], set[str]]:
    """Split the rows of SQLite's check into faults of the file and search indexes that can be rebuilt.

    Both are empty if nothing is wrong.
    """
    broken: set[str] = set()
    rest: list[str] = []
    for row in rows:
        match = _OF_INDEX.search(row)
        if match and match[1] in (*INDEXES, TASKS):
            broken.add(match[1])
        elif row != "ok":
            rest.append(row)
    return rest, broken


def find_damage(database: DatabaseFile) -> str | None:
    """Describe the file's damage in a few words; None if intact, or if it cannot be checked now.

    Reads the complete file.
    """
    try:
        with contextlib.closing(database.connect()) as connection:
            connection.set_busy_timeout(1_000)
            rows = [str(r[0]) for r in connection.execute("PRAGMA quick_check(20)").fetchall()]
            rest, _ = split_faults(rows)
            return rest[0].replace("\n", " ") if rest else find_unreadable_column(connection)
    except apsw.Error as e:
        return str(e) if classify_error(e) == "damaged" else None


def find_unreadable_column(connection: apsw.Connection) -> str | None:
    """Return the first column whose JSON cannot be read."""
    for table in list_tables():
        for column, _ in table.json:
            text = f"sakti_unpacked({column})" if column in table.packed else column
            (count,) = connection.execute(
                f"SELECT count(*) FROM {table.name} WHERE {column} IS NOT NULL AND NOT json_valid({text})"
            ).fetchall()[0]
            if count:
                return f"{count} of {table.name}: {column} cannot be read"
    return None


def to_archive_error(error: Exception, place: Path) -> StoreError:
    """Return the error for an archive that cannot be written."""
    if isinstance(error, apsw.Error):
        return to_store_error(error, place, saving=False)
    return StoreError(f"{place} cannot be written: {getattr(error, 'strerror', None) or error}.", code="io")
