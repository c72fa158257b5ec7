"""Recover a damaged database: copy readable rows, rebuild the rest.

The file is made readable first, in a temporary copy if necessary: with the pages of its write-ahead log, a new
header, or a rebuilt schema. Every readable row is copied to a new database, where `rebuild` repairs it. The damaged
file stays.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from msgspec import Struct, field

from sakti.core.errors import StoreError
from sakti.store import failures, files, opening
from sakti.store.connection import wrap_connection
from sakti.store.database_file import FRAME_HEADER, LOG_HEADER, DatabaseFile
from sakti.store.maintenance import archiving
from sakti.store.maintenance.rebuild import HEADER, PAGE, UNUSABLE, Repairs, make_header, rebuild_schema

if TYPE_CHECKING:
    from sakti.core.clock import Clock

FOUND_AGAIN = "The file no longer named its tables: they were identified by their rows where possible."
_MAIN_TABLE = "observational_memory"  # a table that identifies a file as one of this program
_REBUILT = ".rebuilt"  # suffix of a copy whose schema was rebuilt
_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FormatError)


class Recovered(Struct):
    """Result of a recovery.

    `rows` is per table the number of rows recovered and of known rows lost; `repaired` are sentences on what was
    repaired.
    """

    path: Path
    damaged: Path
    rows: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    repaired: list[str] = field(default_factory=list[str])

    @property
    def copies(self) -> list[Path]:
        """List copies of the database beside it."""
        return [p for kind in ("backup", "before") for p in sorted(self.path.parent.glob(f"{self.path.name}.{kind}-*"))]

    @property
    def lost_rows(self) -> int:
        return sum(count for _, count in self.rows.values())


def recover(path: Path, clock: Clock) -> Recovered:
    """Recover the database at `path` into a new one in its place; keep the old as `<name>.damaged-<date>`.

    It takes about as long as writing the whole file.

    Raises `StoreError`: busy if it is open in another process, full without room on the disk, read_only, not_ours.
    """
    new = files.make_unfinished_path(path, "recovering")
    recovered = Recovered(path, files.append_suffix(path, f".damaged-{time.strftime('%Y%m%d-%H%M%S')}"))
    with _copy_sides(path, recovered.damaged):
        _require_exclusive(path)
        _recover(new, path, recovered, clock)
    return recovered


@contextlib.contextmanager
def _copy_sides(path: Path, damaged: Path) -> Generator[None]:
    """Copy SQLite's side files first; remove these copies if the database is not recovered.

    SQLite removes the log of an empty file, although the log may contain all data.
    """
    copies = [(files.append_suffix(path, side), files.append_suffix(damaged, side)) for side in files.SIDES]
    try:
        for file, copy in copies:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(file, copy)
                copy.chmod(0o600)
        yield
    except BaseException as e:
        for file, copy in copies:
            _restore_side(file, copy)
        if isinstance(e, OSError):
            raise StoreError(f"{path} cannot be recovered: {e.strerror}.", code="io") from e
        raise


def _restore_side(file: Path, copy: Path) -> None:
    """Remove a copy, or rename it back if SQLite has removed the file meanwhile."""
    with contextlib.suppress(OSError):
        if file.exists():
            copy.unlink(missing_ok=True)
        else:
            copy.rename(file)


def _recover(new: Path, path: Path, recovered: Recovered, clock: Clock) -> None:
    try:
        opening.build(new, clock, wal=False)
        _fill_database(new, path, recovered, clock)
        _put_in_place(new, path, recovered.damaged)
    except apsw.FullError as e:
        raise failures.to_store_error(e, path, saving=False) from e
    finally:
        files.delete_database(new)


def _require_exclusive(path: Path) -> None:
    """Raise StoreError if another process has the file open or it cannot be written."""
    if not path.exists():
        raise StoreError(f"{path} does not exist: nothing to recover.", code="missing")
    _refuse_foreign(path)
    if not files.is_writable(path):
        raise StoreError(
            f"{path} or its folder is not writable: copy it to a writable folder and name it with SAKTI_DB.",
            code="read_only",
        )
    if not opening.is_alone(path):
        raise StoreError(f"{path} is open in another window: close it first.", code="busy")


def _refuse_foreign(path: Path) -> None:
    """Raise `StoreError` for the database of another program.

    Damage may have destroyed the application id, so a file with a table that only this program has is always
    accepted.
    """
    with contextlib.suppress(apsw.Error, OSError, UnicodeDecodeError):  # an unreadable file is damaged
        database = opening.open_read_only(path)  # another program's file must not change
        try:
            with contextlib.closing(database.connect()) as connection:
                tables = {str(n) for (n,) in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
                if _MAIN_TABLE not in tables:
                    opening.refuse_foreign(connection, path)
        finally:
            database.remove()


# --- reading damaged files ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _readable(path: Path, log: Path, model: apsw.Connection) -> Generator[Path | None]:
    """Yield a readable form of the damaged file; None if nothing can be read.

    The file itself, a copy with the pages of its `log` and a repaired header, or one whose schema was rebuilt from
    `model`, an empty database.
    """
    if _is_usable(path):
        yield path
        return
    folder = files.copy_to_folder([path])
    try:
        copy = folder / path.name
        write_log_pages(copy, log)
        if copy.stat().st_size < HEADER:
            yield None
            return
        with copy.open("r+b") as file:
            file.write(make_header(copy.stat().st_size // PAGE))
        if _is_usable(copy):
            yield copy
            return
        rebuilt = folder / f"{path.name}{_REBUILT}"
        yield rebuilt if rebuild_schema(copy, rebuilt, model) else None
    finally:
        files.remove_folder(folder)


def _is_usable(path: Path) -> bool:
    """Return whether the file can be opened and still has its schema."""
    if path.stat().st_size < HEADER:
        return False
    with contextlib.closing(DatabaseFile(str(path)).connect()) as connection:
        _tolerate_faults(connection)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for _ in range(2):  # the first query on a damaged schema fails, the next one uses the part that was read
            with contextlib.suppress(*UNUSABLE):
                names = {n for (n,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
                return {"messages", "threads", _MAIN_TABLE} <= names
    return False


def _tolerate_faults(connection: apsw.Connection) -> None:
    """Accept a faulty schema and a truncated file as far as they can be read."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)


# --- pages of a write-ahead log ---------------------------------------------------------------------------------------


_MAGIC = 0x377F0682  # with the lowest bit set, checksums use big-endian words
_SIZES = {1 << n for n in range(9, 17)}


class _Frame(Struct, frozen=True):
    page: int
    pages: int  # pages of the database after a commit, else 0
    at: int


def write_log_pages(copy: Path, log: Path) -> bool:
    """Write the committed pages of a log into a copy of its database; return whether there were any.

    Pages that neither of them has are zeros.
    """
    content = log.read_bytes() if log.exists() else b""
    frames = list(_read_frames(content))
    while frames and not frames[-1].pages:
        frames.pop()
    if not frames:
        return False
    (size,) = struct.unpack_from(">I", content, 8)
    with copy.open("r+b") as file:
        for frame in frames:
            file.seek((frame.page - 1) * size)
            file.write(content[frame.at : frame.at + size])
        file.truncate(frames[-1].pages * size)
    return True


def _read_frames(content: bytes) -> Iterator[_Frame]:
    """Yield the valid frames of a log in order."""
    if len(content) < LOG_HEADER:
        return
    magic, _, size, _ = struct.unpack_from(">4I", content)
    if magic & ~1 != _MAGIC or size not in _SIZES:
        return
    order = ">" if magic & 1 else "<"
    salts = content[16:24]
    sums = _compute_checksum(content[:24], (0, 0), order)
    if sums != struct.unpack_from(">2I", content, 24):
        return
    for at in range(LOG_HEADER, len(content) - FRAME_HEADER - size + 1, FRAME_HEADER + size):
        page, pages = struct.unpack_from(">2I", content, at)
        start = at + FRAME_HEADER
        sums = _compute_checksum(content[at : at + 8] + content[start : start + size], sums, order)
        if not page or content[at + 8 : at + 16] != salts or sums != struct.unpack_from(">2I", content, at + 16):
            return
        yield _Frame(page, pages, start)


def _compute_checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


# --- copying ------------------------------------------------------------------------------------------------

PIECE = 2_000  # rows copied at once if all can be read
MARGIN = 2_000  # row numbers tried after the last known one if the end of a table is lost
_SKIPPED = (  # these are rebuilt
    "schema_migrations",
    "search_docs",
    "search_words",
    "search_trigrams",
    "task_words",
    "task_counts",
    "packing",
)
_OWNERS = (
    "SELECT id FROM main.tasks UNION SELECT id FROM main.observational_memory"
    " UNION SELECT resource_id FROM main.threads"
)


def _fill_database(new: Path, path: Path, recovered: Recovered, clock: Clock) -> None:
    with contextlib.closing(DatabaseFile(str(new)).connect()) as connection:
        for pragma in (
            "synchronous = OFF",
            "journal_mode = MEMORY",
            "foreign_keys = 0",
            "secure_delete = 1",
            "temp_store = MEMORY",
            "ignore_check_constraints = 1",  # `Repairs` corrects such rows
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        with _readable(path, files.append_suffix(recovered.damaged, "-wal"), connection) as source:
            missing = set[str]() if source is None else _copy_all(connection, source, recovered)
            if source is not None and source.name.endswith(_REBUILT):
                recovered.repaired.append(FOUND_AGAIN)
        db = wrap_connection(connection)
        recovered.repaired += Repairs(db, clock).run(missing)
        if sentence := archiving.recover_archive(db, path, recovered.damaged.name.removeprefix(path.name)):
            recovered.repaired.append(sentence)
        for pragma in ("foreign_key_check", "integrity_check(1)"):
            wrong = [str(r) for r in connection.execute(f"PRAGMA {pragma}").fetchall() if r != ("ok",)]
            if wrong:
                raise StoreError(f"The recovered rows are inconsistent ({wrong[0]}): nothing was changed.")
        connection.execute("PRAGMA journal_mode = wal").fetchall()


def _copy_all(connection: apsw.Connection, source: Path, recovered: Recovered) -> set[str]:
    """Copy all readable rows.

    Return the columns (`tasks.claim_owner`) that existing tables lacked: those of newer schemas.
    """
    missing: set[str] = set()
    names = [
        str(n)
        for (n,) in connection.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table' ORDER BY rowid")
        if not any(str(n) == s or str(n).startswith(f"{s}_") for s in (*_SKIPPED, "sqlite"))
        and n != "search_vocabulary"
    ]
    _tolerate_faults(connection)
    connection.execute("ATTACH ? AS old", (str(source),))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    for name in names:
        table = _CopiedTable(connection, name)
        if table.columns:
            recovered.rows[name] = table.copy()
            missing |= {f"{name}.{column}" for column in table.missing}
    connection.execute("DETACH old")
    connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0)
    return missing


class _CopiedTable:
    """Table of the damaged file and its copy.

    `columns` are those that both have, empty if it cannot be read; `missing` those that only the copy has.
    """

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self.columns = self._list_common_columns()
        self.missing = [c for c in self._list_columns("main") if c not in self.columns]

    def _list_common_columns(self) -> list[str]:
        for _ in range(2):
            with contextlib.suppress(*UNUSABLE):
                old = self._list_columns("old")
                return [c for c in self._list_columns("main") if c in old]
        return []

    def _list_columns(self, schema: str) -> list[str]:
        rows = self._connection.execute(f"SELECT name FROM pragma_table_info(?, '{schema}')", (self._name,))
        return [str(n) for (n,) in rows.fetchall()]

    def copy(self) -> tuple[int, int]:
        """Copy readable rows; return the numbers of copied and of lost rows."""
        if self.columns[0] != "pk":
            return self._copy_without_numbers()
        pks = self._read_row_numbers()
        end = self._find_end(pks)
        at = min(pks, default=1)
        while at <= end:
            last = min(at + PIECE - 1, end)
            self._copy_between(at, last)
            at = last + 1
        (copied,) = self._fetch_one(f"SELECT count(*) FROM main.{self._name}") or (0,)
        have = {int(str(n)) for (n,) in self._connection.execute(f"SELECT pk FROM main.{self._name}")}
        return int(str(copied)), len(pks - have)

    def _copy_between(self, first: int, last: int) -> None:
        """Copy the rows of a range; if one cannot be read, copy each half separately."""
        names = ", ".join(self.columns)
        # a range query also reads the row after it, which may be the unreadable one
        where, values = ("= ?", (first,)) if first == last else ("BETWEEN ? AND ?", (first, last))
        try:
            self._connection.execute(
                f"INSERT OR IGNORE INTO main.{self._name} ({names}) SELECT {names} FROM old.{self._name}"
                f" NOT INDEXED WHERE pk {where}",
                values,
            )
        except (*_UNREADABLE, apsw.ConstraintError, apsw.TooBigError):
            if first < last:
                middle = (first + last) // 2
                self._copy_between(first, middle)
                self._copy_between(middle + 1, last)

    def _read_row_numbers(self) -> set[int]:
        """Return the readable row numbers of a table and its indexes."""
        pks: set[int] = set()
        rows = self._fetch_rows(
            "SELECT name FROM old.sqlite_schema WHERE type = 'index' AND tbl_name = ?"
            " AND coalesce(sql, '') NOT LIKE '% WHERE %'",
            (self._name,),
        )
        for (name,) in [("",), *rows]:
            for direction in ("", "DESC"):
                pks.update(self._walk_index(str(name), direction))
        return pks

    def _walk_index(self, index: str, direction: str) -> Iterator[int]:
        by = f'INDEXED BY "{index}"' if index else "NOT INDEXED"
        key = (
            self._fetch_one(f"SELECT name FROM pragma_index_info('{index}', 'old') WHERE seqno = 0")
            if index
            else ("pk",)
        )
        if key is None or key[0] is None:
            return
        with contextlib.suppress(*UNUSABLE):
            for (n,) in self._connection.execute(f"SELECT pk FROM old.{self._name} {by} ORDER BY {key[0]} {direction}"):
                if isinstance(n, int):
                    yield n

    def _find_end(self, known: set[int]) -> int:
        """Return the last row number worth trying."""
        row = self._fetch_one(f"SELECT max(pk) FROM old.{self._name} NOT INDEXED")
        last = max(known, default=0)
        if row is None:
            return last + MARGIN
        return max(last, int(str(row[0] or 0)))

    def _copy_without_numbers(self) -> tuple[int, int]:
        """Copy a table without rowid: from both ends, then by its keys in other tables."""
        names = ", ".join(self.columns)
        marks = ", ".join("?" * len(self.columns))
        insert = f"INSERT OR IGNORE INTO main.{self._name} ({names}) VALUES ({marks})"
        key = self.columns[0]
        is_complete = any(
            self._copy_result(f"SELECT {names} FROM old.{self._name} ORDER BY {key} {direction}", (), insert)
            for direction in ("ASC", "DESC")
        )
        if not is_complete:
            for (value,) in self._fetch_rows(_OWNERS, ()):
                self._copy_result(f"SELECT {names} FROM old.{self._name} WHERE {key} = ?", (str(value),), insert)
        (copied,) = self._fetch_one(f"SELECT count(*) FROM main.{self._name}") or (0,)
        return int(str(copied)), 0 if is_complete else 1

    def _copy_result(self, sql: str, values: Sequence[str], insert: str) -> bool:
        """Copy the result of a query; return whether all of it could be read."""
        rows: list[tuple[apsw.SQLiteValue, ...]] = []
        is_complete = True
        try:
            for row in self._connection.execute(sql, values):
                rows.append(row)
        except UNUSABLE:
            is_complete = False
        with self._connection, contextlib.suppress(apsw.ConstraintError):
            self._connection.executemany(insert, rows)
        return is_complete

    def _fetch_rows(self, sql: str, values: Sequence[str]) -> list[tuple[apsw.SQLiteValue, ...]]:
        with contextlib.suppress(*UNUSABLE):
            return list(self._connection.execute(sql, values).fetchall())
        return []

    def _fetch_one(self, sql: str) -> tuple[apsw.SQLiteValue, ...] | None:
        return next(iter(self._fetch_rows(sql, ())), None)


# --- in its place -------------------------------------------------------------------------------------------


def _put_in_place(new: Path, path: Path, damaged: Path) -> None:
    with new.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(path, damaged)  # there is always a file of that name
    except OSError:
        shutil.copyfile(path, damaged)
        damaged.chmod(0o600)
    for side in files.SIDES:  # they were copied before anything was opened
        files.append_suffix(path, side).unlink(missing_ok=True)
    new.replace(path)
