"""Read and write archives: files beside a database that hold compressed parts of old messages.

Such a message has a *reference* instead: the archive's random number and the key of a row in it. Decoding parts needs
no connection: archives are searched beside the databases opened by this process (`register_database`), and identified
by the number. Each read checks the file again, since it may be moved away or put back.

Raw SQL: a file with two tables, and the messages that refer to it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import urllib.parse
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw
from msgspec import Struct

from sakti.core.errors import StoreError
from sakti.store.connection import Connection

MARK = b"\0arc"  # first bytes of a reference; no other value of a column begins with them
_ID, _KEY = 16, 8  # bytes
REFERS = f"substr(parts, 1, {len(MARK)}) = X'{MARK.hex()}'"  # of messages: the condition of `messages_archived`
SCHEMA = (
    "CREATE TABLE archive (id BLOB NOT NULL);"
    " CREATE TABLE parts (key INTEGER PRIMARY KEY AUTOINCREMENT, parts BLOB NOT NULL);"
)
KNOWN = 64  # most places that are searched, the last opened
_BUSY_MS = 5_000


class _OpenArchive(Struct, frozen=True):
    """Open archive: its file and its number."""

    file: tuple[int, int]
    id: bytes
    connection: apsw.Connection


_lock = threading.Lock()
_places: OrderedDict[str, _OpenArchive | None] = OrderedDict()


def get_path(database: Path) -> Path:
    """Return the place of a database's archive."""
    return database.with_name(f"{database.name}.archive")


def register_database(database: str | Path) -> None:
    """Register an opened database, whose archive may be needed."""
    place = str(get_path(Path(database)))
    with _lock:
        _places.setdefault(place, None)
        _places.move_to_end(place)
        while len(_places) > KNOWN:
            _close(_places.popitem(last=False)[1])


def close_archive(database: Path) -> None:
    """Close the archive of a database until it is needed again."""
    place = str(get_path(database))
    with _lock:
        if place in _places:
            _close(_places[place])
            _places[place] = None


def is_reference(stored: object) -> bool:
    return isinstance(stored, bytes) and stored.startswith(MARK)


def make_reference(number: bytes, key: int) -> bytes:
    return MARK + number + key.to_bytes(_KEY, "big")


def archive_number_of(reference: bytes) -> bytes:
    return reference[len(MARK) : len(MARK) + _ID]


def key_of(reference: bytes) -> int:
    return int.from_bytes(reference[len(MARK) + _ID :], "big")


def read(reference: bytes) -> str | bytes | None:
    """Return the part that a reference replaces; None if the archive is missing or unreadable."""
    with _lock:
        try:
            archive = _archive(archive_number_of(reference))
            if archive is None:
                return None
            row = archive.connection.execute("SELECT parts FROM parts WHERE key = ?", (key_of(reference),)).fetchone()
        except apsw.Error:
            return None
    return row[0] if row and isinstance(row[0], str | bytes) else None


def find_archive(number: bytes) -> Path | None:
    """Return the path of an archive, None if it is missing."""
    with _lock:
        try:
            archive = _archive(number)
        except apsw.Error:
            return None
        return None if archive is None else Path(archive.connection.filename)


def _archive(number: bytes) -> _OpenArchive | None:
    for place, archive in reversed(_places.items()):
        try:
            file_stat = Path(place).stat()
        except OSError:
            continue
        file = (file_stat.st_dev, file_stat.st_ino)
        if archive is None or archive.file != file:
            _close(archive)
            _places[place] = archive = _open_file(Path(place), file)
        if archive is not None and archive.id == number:
            return archive
    return None


def _open_file(place: Path, file: tuple[int, int]) -> _OpenArchive | None:
    try:
        connection = connect(place, query_only=True)
    except apsw.Error:
        return None
    try:
        return _OpenArchive(file, read_number(connection) or b"", connection)
    except apsw.Error:
        connection.close()
        return None


def _close(archive: _OpenArchive | None) -> None:
    if archive is not None:
        archive.connection.close()


def connect(place: Path, *, query_only: bool = False) -> apsw.Connection:
    """Open the archive at `place`. Raises `apsw.Error`."""
    if query_only and not (os.access(place, os.W_OK) and os.access(place.parent, os.W_OK)):
        name = f"file:{urllib.parse.quote(str(place.absolute()))}?mode=ro&immutable=1"
        return apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection = apsw.Connection(str(place), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(_BUSY_MS)
    for pragma in ("synchronous = FULL", "secure_delete = 1", f"query_only = {int(query_only)}"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def read_number(connection: apsw.Connection) -> bytes | None:
    """Return the number of an open archive, None if the file is not one."""
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('archive', 'parts')").get:
        return None
    number_bytes = connection.execute("SELECT id FROM archive").get
    return number_bytes if isinstance(number_bytes, bytes) else None


def create(database: Path) -> None:
    """Create the archive of a database if it is missing, or complete one whose creation was interrupted.

    Raises `apsw.Error`, `OSError`, and `StoreError` (not_ours) if the file belongs to another program.
    """
    build(get_path(database), secrets.token_bytes(_ID))


def build(place: Path, archive_number: bytes) -> None:
    """Create an archive with that number at `place`.

    Raises the errors of `create`.
    """
    if not place.exists():
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with contextlib.closing(connect(place)) as connection, connection:
        if read_number(connection) is not None:
            return
        if connection.execute("SELECT count(*) FROM sqlite_schema").get:
            raise StoreError(f"{place} is not an archive of sakti: move it elsewhere.", code="not_ours")
        connection.execute(SCHEMA)
        connection.execute("INSERT INTO archive VALUES (?)", (archive_number,))


def store_parts(connection: apsw.Connection, texts: Iterable[str]) -> list[bytes]:
    """Store the JSON of parts for good; return the references."""
    archive_number = read_number(connection)
    assert archive_number is not None
    references: list[bytes] = []
    with connection:
        for text in texts:
            plain = text.encode()
            small = zlib.compress(plain, 9)
            connection.execute("INSERT INTO parts (parts) VALUES (?)", (small if len(small) < len(plain) else text,))
            references.append(make_reference(archive_number, connection.last_insert_rowid()))
    return references


# --- a database's messages in it ------------------------------------------------------------------------------


def find_reference(db: Connection, thread_id: str | None = None) -> bytes | None:
    """Return a reference in any message (of one thread), None without one."""
    where, values = (f"thread_id = ? AND +{REFERS}", (thread_id,)) if thread_id is not None else (REFERS, ())
    # SQL: compares the beginning of packed parts, which no field supports
    row = db.execute_sql(f"SELECT parts FROM messages WHERE {where} LIMIT 1", values).fetchone()
    return row[0] if row else None


def is_missing(db: Connection, thread_id: str | None = None) -> bool:
    """Return whether messages (of one thread) are in a missing archive."""
    any_ref = find_reference(db, thread_id)
    return any_ref is not None and find_archive(archive_number_of(any_ref)) is None


def refuse_missing(db: Connection, thread_id: str | None = None) -> None:
    """Raise `StoreError` (archive) if messages (of one thread) are in a missing archive.

    Removing them from the indexes needs their texts.
    """
    if is_missing(db, thread_id):
        raise StoreError(MISSING, code="archive")


MISSING = "The archive of this database is missing: put the file ending in .archive back beside the database."


def find_referred_keys(db: Connection, keys: Sequence[int], number: bytes) -> set[int]:
    """Return those of `keys` (in order) of an archive that messages refer to."""
    # SQL: compares packed parts by a range of bytes, which no field has
    rows = db.execute_sql(
        f"SELECT parts FROM messages WHERE {REFERS} AND parts BETWEEN ? AND ?",
        (make_reference(number, keys[0]), make_reference(number, keys[-1])),
    ).fetchall()
    return {key_of(stored) for (stored,) in rows}
