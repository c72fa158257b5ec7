"""Translate errors of SQLite: a sentence for people and a code for programs."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from sakti.core.errors import StoreError

# What is tried again later may succeed; the rest needs the user.
_CODES: tuple[tuple[tuple[type[Exception], ...], str, bool], ...] = (
    ((apsw.BusyError, apsw.LockedError, apsw.ProtocolError), "busy", True),
    ((apsw.FullError,), "full", True),
    ((apsw.CorruptError, apsw.NotADBError, apsw.FormatError), "damaged", False),
    ((apsw.ReadOnlyError, apsw.PermissionsError), "read_only", False),
    ((apsw.CantOpenError, apsw.IOError, apsw.NoMemError, apsw.InterruptError), "io", True),
)
_GONE = "FOREIGN KEY"  # of SQLite's words: what a row refers to is no more
ROOM = 64 << 10  # bytes that SQLite needs on a disk for its shared memory and a few pages; with less it is full
_OF_THE_DISK = (apsw.CantOpenError, apsw.IOError)
RECOVER = "`sakti db recover` copies what can still be read into a new file."


def cause(error: BaseException) -> apsw.Error | None:
    """Return SQLite's own error behind `error`, which peewee may have wrapped once or twice."""
    origin: object = error
    while origin is not None and not isinstance(origin, apsw.Error):
        origin = getattr(origin, "orig", None)
    return origin if isinstance(origin, apsw.Error) else None


def code_of(error: BaseException) -> str | None:
    """Return the kind of a database failure (busy, full, …); None for errors of the statement."""
    origin = cause(error)
    return next((code for kinds, code, _ in _CODES if isinstance(origin, kinds)), None)


def code_at(error: BaseException, path: Path) -> str | None:
    """Return `code_of(error)` at the database `path`, telling a full disk apart.

    Without room on the disk SQLite only reports that a file could not be made, enlarged or mapped.
    """
    code = code_of(error)
    return "full" if code == "io" and isinstance(cause(error), _OF_THE_DISK) and _no_room(path) else code


def _no_room(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < ROOM
    except OSError:
        return False


def to_store_error(error: BaseException, path: Path, *, saving: bool, waited: float = 0.0) -> StoreError:
    """Convert SQLite's `error` to a `StoreError` whose code says why.

    `saving`: the statement was a write; what that means for the user is for the caller to say.
    """
    code = code_at(error, path) or ("gone" if _GONE in _own_words(error) else "store")
    sentence = {
        "busy": f"Another window has been writing to the database for {waited:.0f} s.",
        "full": f"The disk is full: no space left for {path}.",
        "damaged": f"{path} is damaged ({_own_words(error)}). {RECOVER}",
        "read_only": f"{path} is not writable.",
        "gone": "The thread or task it belongs to was removed in another window.",
    }.get(code, f"{path}: {_own_words(error)}. `sakti doctor` finds the reason.")
    retryable = any(again for _, c, again in _CODES if c == code)
    return StoreError(f"Not saved. {sentence}" if saving else sentence, code=code, retryable=retryable)


def _own_words(error: BaseException) -> str:
    return str(cause(error) or error).rstrip(".")
