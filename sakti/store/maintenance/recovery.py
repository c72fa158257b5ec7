"""Recover a damaged database: copy every readable row into a new file and keep the damaged one."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from msgspec import Struct, field

from sakti.core.errors import StoreError
from sakti.store import failures, files, opening
from sakti.store.connection import plain
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import archive_care, lost_schema, recovery_repairs

if TYPE_CHECKING:
    from sakti.core.clock import Clock

PIECE = 2_000  # rows that are copied at once where all is well
MARGIN = 2_000  # row numbers that are tried behind the last one that is known, where the end of a table is lost
HEADER = 100  # bytes at the beginning of a database
# made anew
_SKIPPED = (
    "schema_migrations",
    "search_docs",
    "search_words",
    "search_trigrams",
    "task_words",
    "task_counts",
    "packing",
)
_REBUILT = ".rebuilt"  # the end of the name of a copy whose schema was found again
FOUND_AGAIN = "The file no longer named its tables: they were identified by their rows where possible."
_TELLING = "observational_memory"  # a table by which a file is known for one of this program
_OWNERS = (
    "SELECT id FROM main.tasks UNION SELECT id FROM main.observational_memory"
    " UNION SELECT resource_id FROM main.threads"
)
_BROKEN = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FormatError)


class Recovered(Struct):
    """Result of a recovery.

    `rows` is per table the number of rows recovered and of known rows lost; `repaired` are sentences on what was
    repaired.
    """

    path: Path
    kept: Path
    rows: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    repaired: list[str] = field(default_factory=list[str])

    @property
    def copies(self) -> list[Path]:
        """List copies of the database beside it."""
        return [p for kind in ("backup", "before") for p in sorted(self.path.parent.glob(f"{self.path.name}.{kind}-*"))]

    @property
    def lost(self) -> int:
        return sum(lost for _, lost in self.rows.values())


def recover(path: Path, clock: Clock) -> Recovered:
    """Recover the database at `path` into a new one in its place; keep the old as `<name>.damaged-<date>`.

    Takes about as long as writing all of it anew.

    Raises `StoreError`: busy where it is open elsewhere, full where there is no room, read_only where nothing can be
    written, not_ours.
    """
    new = files.own(path, "recovering")
    recovered = Recovered(path, files.beside(path, f".damaged-{time.strftime('%Y%m%d-%H%M%S')}"))
    with _keeping_sides(path, recovered.kept):
        _require_exclusive(path)
        _recover(new, path, recovered, clock)
    return recovered


@contextlib.contextmanager
def _keeping_sides(path: Path, kept: Path) -> Generator[None]:
    """Copy SQLite's side files first, and delete the copies if the database is not recovered.

    SQLite removes the log of a file that is empty, and it may be all that is there.
    """
    copies = [(files.beside(path, side), files.beside(kept, side)) for side in files.SIDES]
    try:
        for file, copy in copies:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(file, copy)
                copy.chmod(0o600)
        yield
    except BaseException as e:
        for file, copy in copies:
            _give_back(file, copy)
        if isinstance(e, OSError):
            raise StoreError(f"{path} cannot be recovered: {e.strerror}.", code="io") from e
        raise


def _give_back(file: Path, copy: Path) -> None:
    """Remove a copy; where SQLite has removed the file meanwhile, it gets its name again."""
    with contextlib.suppress(OSError):
        if file.exists():
            copy.unlink(missing_ok=True)
        else:
            copy.rename(file)


def _recover(new: Path, path: Path, found: Recovered, clock: Clock) -> None:
    try:
        opening.build(new, clock, wal=False)
        _fill(new, path, found, clock)
        _put_in_place(new, path, found.kept)
    except apsw.FullError as e:
        raise failures.to_store_error(e, path, saving=False) from e
    finally:
        for file in files.all_of(new):
            file.unlink(missing_ok=True)


def _require_exclusive(path: Path) -> None:
    """Raise StoreError if another process has the file open or it cannot be written."""
    if not path.exists():
        raise StoreError(f"{path} does not exist: nothing to recover.", code="missing")
    _not_of_another(path)
    if not files.writable(path):
        raise StoreError(
            f"{path} or its folder is not writable: copy it to a writable folder and name it with SAKTI_DB.",
            code="read_only",
        )
    if not opening.is_alone(path):
        raise StoreError(f"{path} is open in another window: close it first.", code="busy")


def _not_of_another(path: Path) -> None:
    """Raise `StoreError` for the database of another program.

    Damage may have destroyed the application id, so a file with a table that only this program has is always
    accepted.
    """
    with contextlib.suppress(apsw.Error, OSError, UnicodeDecodeError):  # what cannot be read is damaged
        database = opening.read_only(path)  # not a byte of another's file changes
        try:
            with contextlib.closing(database.connect()) as connection:
                tables = {str(n) for (n,) in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
                if _TELLING not in tables:
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
    if path.stat().st_size >= HEADER and _opens(path) and _has_schema(path):
        yield path
        return
    folder = files.make_folder()
    try:
        copy = folder / path.name
        shutil.copyfile(path, copy)
        lost_schema.write_log_pages(copy, log)
        if copy.stat().st_size < HEADER:
            yield None
            return
        _mend_header(copy)
        if _opens(copy) and _has_schema(copy):
            yield copy
            return
        rebuilt = folder / f"{path.name}{_REBUILT}"
        yield rebuilt if lost_schema.rebuild_schema(copy, rebuilt, model) else None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opens(path: Path) -> bool:
    connection = _connect_tolerant(path)
    try:
        for _ in range(2):  # the first look at a damaged schema fails, the next one uses the part that was read
            with contextlib.suppress(*_BROKEN, apsw.SQLError):
                return bool(connection.execute("SELECT count(*) FROM sqlite_schema").get)
        return False
    finally:
        connection.close()


def _has_schema(path: Path) -> bool:
    """Return whether the file still has its schema."""
    connection = _connect_tolerant(path)
    try:
        for _ in range(2):
            with contextlib.suppress(*_BROKEN, apsw.SQLError, UnicodeDecodeError):
                names = {n for (n,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
                return {"messages", "threads", _TELLING} <= names
        return False
    finally:
        connection.close()


def _connect_tolerant(path: Path) -> apsw.Connection:
    """Open a connection that skips errors and writes nothing, not even a checkpoint on close."""
    connection = DatabaseFile(str(path)).connect()
    _tolerate_faults(connection)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def _tolerate_faults(connection: apsw.Connection) -> None:
    """Accept a faulty schema and a truncated file as far as they can be read."""
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1)


def _mend_header(path: Path) -> None:
    """Write the header that every database of this program has (sqlite.org/fileformat2.html, 1.3)."""
    with path.open("r+b") as file:
        size = path.stat().st_size
        header = bytearray(HEADER)
        header[0:16] = b"SQLite format 3\0"
        header[16:24] = bytes((0x10, 0x00, 2, 2, 0, 64, 32, 32))  # pages of 4096 bytes, WAL
        header[28:32] = (size // 4096).to_bytes(4, "big")
        header[44:48] = (4).to_bytes(4, "big")  # schema format
        header[56:60] = (1).to_bytes(4, "big")  # UTF-8
        header[68:72] = opening.APPLICATION_ID.to_bytes(4, "big")
        file.write(header)


# --- copying ------------------------------------------------------------------------------------------------


def _fill(new: Path, path: Path, found: Recovered, clock: Clock) -> None:
    connection = DatabaseFile(str(new)).connect()
    try:
        for pragma in (
            "synchronous = OFF",
            "journal_mode = MEMORY",
            "foreign_keys = 0",
            "secure_delete = 1",
            "temp_store = MEMORY",
            "ignore_check_constraints = 1",
        ):  # they are put right afterwards
            connection.execute(f"PRAGMA {pragma}").fetchall()
        with _readable(path, files.beside(found.kept, "-wal"), connection) as source:
            lacking = set[str]() if source is None else _copy_all(connection, source, found)
            if source is not None and source.name.endswith(_REBUILT):
                found.repaired.append(FOUND_AGAIN)
        db = plain(connection)
        found.repaired += recovery_repairs.repair(db, clock, lacking)
        if repair := archive_care.recover(db, path, found.kept.name.removeprefix(path.name)):
            found.repaired.append(repair)
        for pragma in ("foreign_key_check", "integrity_check(1)"):
            wrong = [str(r) for r in connection.execute(f"PRAGMA {pragma}").fetchall() if r != ("ok",)]
            if wrong:
                raise StoreError(f"The recovered rows do not fit together ({wrong[0]}): nothing was changed.")
        connection.execute("PRAGMA journal_mode = wal").fetchall()
    finally:
        connection.close()


def _copy_all(connection: apsw.Connection, source: Path, found: Recovered) -> set[str]:
    """Copy all readable rows.

    Return the columns (`tasks.claim_owner`) that existing tables lacked: those of newer schemas.
    """
    lacking: set[str] = set()
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
            found.rows[name] = table.copy()
            lacking |= {f"{name}.{column}" for column in table.lacking}
    connection.execute("DETACH old")
    connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0)
    return lacking


class _CopiedTable:
    """Table of the damaged file and its copy.

    `columns` are those that both have, empty where it cannot be read; `lacking` those that only the copy has.
    """

    def __init__(self, connection: apsw.Connection, name: str) -> None:
        self._connection, self._name = connection, name
        self.columns = self._both()
        self.lacking = [c for c in self._info("main") if c not in self.columns]

    def _both(self) -> list[str]:
        for _ in range(2):
            with contextlib.suppress(*_BROKEN, apsw.SQLError):
                old = self._info("old")
                return [c for c in self._info("main") if c in old]
        return []

    def _info(self, schema: str) -> list[str]:
        rows = self._connection.execute(f"SELECT name FROM pragma_table_info(?, '{schema}')", (self._name,))
        return [str(n) for (n,) in rows.fetchall()]

    def copy(self) -> tuple[int, int]:
        """Copy readable rows; return the numbers of copied and of lost rows."""
        if self.columns[0] != "pk":
            return self._copy_without_numbers()
        pks = self._row_numbers()
        end = self._end(pks)
        at = min(pks, default=1)
        while at <= end:
            last = min(at + PIECE - 1, end)
            self._copy_between(at, last)
            at = last + 1
        (came,) = self._one(f"SELECT count(*) FROM main.{self._name}") or (0,)
        have = {int(str(n)) for (n,) in self._connection.execute(f"SELECT pk FROM main.{self._name}")}
        return int(str(came)), len(pks - have)

    def _copy_between(self, first: int, last: int) -> None:
        """Copy the rows of a range; where one cannot be read, each half by itself."""
        names = ", ".join(self.columns)
        # a range looks at the row behind it, too, which may be the one that cannot be read
        where, values = ("= ?", (first,)) if first == last else ("BETWEEN ? AND ?", (first, last))
        try:
            self._connection.execute(
                f"INSERT OR IGNORE INTO main.{self._name} ({names}) SELECT {names} FROM old.{self._name}"
                f" NOT INDEXED WHERE pk {where}",
                values,
            )
        except (*_BROKEN, apsw.ConstraintError, apsw.TooBigError):
            if first < last:
                middle = (first + last) // 2
                self._copy_between(first, middle)
                self._copy_between(middle + 1, last)

    def _row_numbers(self) -> set[int]:
        """Return the row numbers that the table or one of its indexes has, as far as they can be read."""
        pks: set[int] = set()
        rows = self._rows(
            "SELECT name FROM old.sqlite_schema WHERE type = 'index' AND tbl_name = ?"
            " AND coalesce(sql, '') NOT LIKE '% WHERE %'",
            (self._name,),
        )
        for (name,) in [("",), *rows]:
            for direction in ("", "DESC"):
                pks.update(self._walk(str(name), direction))
        return pks

    def _walk(self, index: str, direction: str) -> Iterator[int]:
        by = f'INDEXED BY "{index}"' if index else "NOT INDEXED"
        key = self._one(f"SELECT name FROM pragma_index_info('{index}', 'old') WHERE seqno = 0") if index else ("pk",)
        if key is None or key[0] is None:
            return
        with contextlib.suppress(*_BROKEN, apsw.SQLError):
            for (n,) in self._connection.execute(f"SELECT pk FROM old.{self._name} {by} ORDER BY {key[0]} {direction}"):
                if isinstance(n, int):
                    yield n

    def _end(self, known: set[int]) -> int:
        """Return the last row number worth trying."""
        row = self._one(f"SELECT max(pk) FROM old.{self._name} NOT INDEXED")
        last = max(known, default=0)
        if row is None:
            return last + MARGIN
        return max(last, int(str(row[0] or 0)))

    def _copy_without_numbers(self) -> tuple[int, int]:
        """Copy a table without rowid: from both ends, then by the keys that other tables have of it."""
        names = ", ".join(self.columns)
        marks = ", ".join("?" * len(self.columns))
        insert = f"INSERT OR IGNORE INTO main.{self._name} ({names}) VALUES ({marks})"
        key = self.columns[0]
        is_complete = False
        for direction in ("ASC", "DESC"):
            is_complete = (
                self._take(f"SELECT {names} FROM old.{self._name} ORDER BY {key} {direction}", (), insert)
                or is_complete
            )
            if is_complete:
                break
        if not is_complete:
            for (value,) in self._rows(_OWNERS, ()):
                self._take(f"SELECT {names} FROM old.{self._name} WHERE {key} = ?", (str(value),), insert)
        (came,) = self._one(f"SELECT count(*) FROM main.{self._name}") or (0,)
        return int(str(came)), 0 if is_complete else 1

    def _take(self, sql: str, values: Sequence[str], insert: str) -> bool:
        """Copy the result of a query; return whether all of it could be read."""
        rows: list[tuple[apsw.SQLiteValue, ...]] = []
        is_complete = True
        try:
            for row in self._connection.execute(sql, values):
                rows.append(row)
        except (*_BROKEN, apsw.SQLError, UnicodeDecodeError):
            is_complete = False
        with self._connection, contextlib.suppress(apsw.ConstraintError):
            self._connection.executemany(insert, rows)
        return is_complete

    def _rows(self, sql: str, values: Sequence[str]) -> list[tuple[apsw.SQLiteValue, ...]]:
        with contextlib.suppress(*_BROKEN, apsw.SQLError):
            return list(self._connection.execute(sql, values).fetchall())
        return []

    def _one(self, sql: str) -> tuple[apsw.SQLiteValue, ...] | None:
        with contextlib.suppress(*_BROKEN, apsw.SQLError):
            rows = self._connection.execute(sql).fetchall()
            return rows[0] if rows else None
        return None


# --- in its place -------------------------------------------------------------------------------------------


def _put_in_place(new: Path, path: Path, kept: Path) -> None:
    with new.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(path, kept)  # the name is never without a file
    except OSError:
        shutil.copyfile(path, kept)
        kept.chmod(0o600)
    for side in files.SIDES:  # they were copied beside it before anything was opened
        files.beside(path, side).unlink(missing_ok=True)
    new.replace(path)
