"""Recover a damaged database: copy what reads, rebuild the rest.

The file is made readable first, in a temporary copy if necessary: with the pages of its write-ahead log, a new header,
or a schema whose tables were recognised by the shape of their rows. (The schema alone tells which page each table
begins at, but the pages show which of them are roots, and SQLite reads the rows of each root under any name:
sqlite.org/fileformat2.html, 1.6.) Every row that reads goes into a new database. There unreadable values are replaced,
rows whose parent is lost get a new one, and derived data is computed again. The damaged file is kept.

Raw SQL: recovered rows may not conform to the models.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import struct
import time
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Struct, field

from sakti.core.errors import StoreError
from sakti.core.ids import TimeIds
from sakti.core.patterns import lazy_pattern
from sakti.store import archive_file, failures, files, opening, packing, text_registry
from sakti.store.connection import Database, plain
from sakti.store.database_file import DatabaseFile
from sakti.store.maintenance import checks
from sakti.store.memory import as_line, integrity
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep, reindexing
from sakti.store.tasks import graph, questions
from sakti.store.tasks import rows as task_rows
from sakti.store.threads import codec

if TYPE_CHECKING:
    from sakti.core.clock import Clock

FOUND_AGAIN = "The file no longer named its tables: they were identified by their rows where possible."
_MAIN_TABLE = "observational_memory"  # a table by which a file is recognised as one of this program
_REBUILT = ".rebuilt"  # the end of the name of a copy whose schema was rebuilt
_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FormatError)
_UNUSABLE = (*_UNREADABLE, apsw.SQLError, UnicodeDecodeError)  # also a schema that does not name what is asked for


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
    def lost_rows(self) -> int:
        return sum(count for _, count in self.rows.values())


def recover(path: Path, clock: Clock) -> Recovered:
    """Recover the database at `path` into a new one in its place; keep the old as `<name>.damaged-<date>`.

    Takes about as long as writing all of it anew.

    Raises `StoreError`: busy where it is open elsewhere, full where there is no room, read_only where nothing can be
    written, not_ours.
    """
    new = files.own(path, "recovering")
    recovered = Recovered(path, files.beside(path, f".damaged-{time.strftime('%Y%m%d-%H%M%S')}"))
    with _copy_sides(path, recovered.kept):
        _require_exclusive(path)
        _recover(new, path, recovered, clock)
    return recovered


@contextlib.contextmanager
def _copy_sides(path: Path, kept: Path) -> Generator[None]:
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
            _restore_side(file, copy)
        if isinstance(e, OSError):
            raise StoreError(f"{path} cannot be recovered: {e.strerror}.", code="io") from e
        raise


def _restore_side(file: Path, copy: Path) -> None:
    """Remove a copy; where SQLite has removed the file meanwhile, it gets its name again."""
    with contextlib.suppress(OSError):
        if file.exists():
            copy.unlink(missing_ok=True)
        else:
            copy.rename(file)


def _recover(new: Path, path: Path, recovered: Recovered, clock: Clock) -> None:
    try:
        opening.build(new, clock, wal=False)
        _fill(new, path, recovered, clock)
        _put_in_place(new, path, recovered.kept)
    except apsw.FullError as e:
        raise failures.to_store_error(e, path, saving=False) from e
    finally:
        for file in files.all_of(new):
            file.unlink(missing_ok=True)


def _require_exclusive(path: Path) -> None:
    """Raise StoreError if another process has the file open or it cannot be written."""
    if not path.exists():
        raise StoreError(f"{path} does not exist: nothing to recover.", code="missing")
    _refuse_foreign(path)
    if not files.writable(path):
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
    with contextlib.suppress(apsw.Error, OSError, UnicodeDecodeError):  # what cannot be read is damaged
        database = opening.read_only(path)  # not a byte of another's file changes
        try:
            with contextlib.closing(database.connect()) as connection:
                tables = {str(n) for (n,) in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
                if _MAIN_TABLE not in tables:
                    opening.refuse_foreign(connection, path)
        finally:
            database.remove()


# --- reading damaged files ----------------------------------------------------------------------------------

PAGE = 4096
HEADER = 100  # bytes at the beginning of a database


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
            file.write(_make_header(copy.stat().st_size // PAGE))
        if _is_usable(copy):
            yield copy
            return
        rebuilt = folder / f"{path.name}{_REBUILT}"
        yield rebuilt if _rebuild_schema(copy, rebuilt, model) else None
    finally:
        files.remove(folder)


def _is_usable(path: Path) -> bool:
    """Return whether the file can be opened and still has its schema."""
    if path.stat().st_size < HEADER:
        return False
    connection = _connect_tolerant(path)
    try:
        for _ in range(2):  # the first look at a damaged schema fails, the next one uses the part that was read
            with contextlib.suppress(*_UNUSABLE):
                names = {n for (n,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
                return {"messages", "threads", _MAIN_TABLE} <= names
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


def _make_header(pages: int) -> bytes:
    """Return the header that a database of this program has (sqlite.org/fileformat2.html, 1.3), without a log."""
    header = bytearray(HEADER)
    header[0:16] = b"SQLite format 3\0"
    header[16:24] = bytes((PAGE >> 8, PAGE & 0xFF, 1, 1, 0, 64, 32, 32))
    header[24:28] = header[92:96] = (1).to_bytes(4, "big")  # as often changed as the size below was written
    header[28:32] = pages.to_bytes(4, "big")
    header[44:48] = (4).to_bytes(4, "big")  # schema format
    header[56:60] = (1).to_bytes(4, "big")  # UTF-8
    header[68:72] = opening.APPLICATION_ID.to_bytes(4, "big")
    header[96:100] = apsw.SQLITE_VERSION_NUMBER.to_bytes(4, "big")
    return bytes(header)


# --- rebuilding a lost schema -----------------------------------------------------------------------------------------


SAMPLE = 40  # rows of a table that are looked at
_MOST_COLUMNS = 40  # more than any table has
# Kinds of pages by their first byte: leaves and inner pages of tables; True: of tables without row numbers.
_LEAF, _INNER = {13: False, 10: True}, {5: False, 2: True}
_CHECKED_WORDS = lazy_pattern(r"CHECK \((\w+) IN\s*\(([^)]*)\)\)")
_KINDS: dict[str, type] = {"INTEGER": int, "REAL": float, "BLOB": bytes}
_REFERS = lazy_pattern(r"^\s*(\w+) TEXT NOT NULL REFERENCES (\w+) \((\w+)\)", re.MULTILINE)


class _Column(Struct, frozen=True):
    name: str
    kinds: tuple[type, ...]
    may_be_null: bool
    words: frozenset[str]
    refers: tuple[str, str] | None

    def accepts(self, value: object) -> bool:
        """Return whether the column may hold a value."""
        if value is None:
            return self.may_be_null
        return isinstance(value, self.kinds) and (not self.words or value in self.words)


class _TableShape(Struct, frozen=True):
    """Known table, its columns in the order of a row on its page."""

    name: str
    sql: str
    unnumbered: bool
    columns: tuple[_Column, ...]

    def fits(self, rows: Sequence[Sequence[object]]) -> bool:
        """Return whether all rows can belong to this table."""
        count = len(self.columns)
        return bool(rows) and all(
            all(c.accepts(v) for c, v in zip(self.columns, row, strict=False))
            and not any(v is not None for v in row[count:])
            for row in rows
        )


def _rebuild_schema(damaged: Path, copy: Path, model: apsw.Connection) -> bool:
    """Give `copy` of a damaged database the schema of the tables found in it; False without any.

    `model` is a connection to an empty database with the full schema.
    """
    shutil.copyfile(damaged, copy)
    roots = dict(_root_pages(copy))
    _clear_schema(copy)
    connection = opening.DatabaseFile(str(copy)).connect()
    try:
        for option in (apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, apsw.SQLITE_DBCONFIG_RESET_DATABASE):
            connection.config(option, 1 if option == apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA else 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        for root, unnumbered in roots.items():
            _enter(connection, f"at_{root}", root, _probe(f"at_{root}", unnumbered=unnumbered))
        _read_schema_again(connection)
        tables = _identify(connection, roots, _shapes(model))
        connection.execute("DELETE FROM sqlite_schema")
        for shape, root in tables.items():
            _enter(connection, shape.name, root, shape.sql)
        _read_schema_again(connection)
        return bool(tables)
    finally:
        connection.close()


def _root_pages(path: Path) -> Iterator[tuple[int, bool]]:
    """Yield the root pages of tables and indexes: those that no other page points to.

    The second value is whether its rows have no rowid.
    """
    roots: dict[int, bool] = {}
    targets: set[int] = set()
    with path.open("rb") as file:
        for number, page in enumerate(iter(lambda: file.read(PAGE), b""), 1):
            if number > 1 and len(page) == PAGE and page[0] in (*_LEAF, *_INNER):
                roots[number] = (_LEAF | _INNER)[page[0]]
                targets.update(_children_of(page) if page[0] in _INNER else ())
    yield from ((n, unnumbered) for n, unnumbered in roots.items() if n not in targets)


def _children_of(page: bytes) -> Iterator[int]:
    """Yield the numbers of the pages that an inner page points to."""
    cells = min(int.from_bytes(page[3:5], "big"), PAGE // 2)
    offsets = (int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big") for n in range(cells))
    yield from (int.from_bytes(page[at : at + 4], "big") for at in (8, *offsets))


def _clear_schema(path: Path) -> None:
    """Replace the first page by one with an empty schema; the rest of the file stays."""
    page = bytearray(PAGE)
    page[:HEADER] = _make_header(path.stat().st_size // PAGE)
    page[100] = 13  # a leaf of a table
    page[105:107] = PAGE.to_bytes(2, "big")  # nothing in it
    with path.open("r+b") as file:
        file.write(page)


def _enter(connection: apsw.Connection, name: str, root: int, sql: str) -> None:
    connection.execute("INSERT INTO sqlite_schema VALUES ('table', ?1, ?1, ?2, ?3)", (name, root, sql))


def _probe(name: str, *, unnumbered: bool) -> str:
    columns = ", ".join(f"c{n}" for n in range(_MOST_COLUMNS))
    return f"CREATE TABLE {name} ({columns}" + (", PRIMARY KEY (c0)) WITHOUT ROWID" if unnumbered else ")")


def _read_schema_again(connection: apsw.Connection) -> None:
    (version,) = connection.execute("PRAGMA schema_version").fetchall()[0]
    connection.execute(f"PRAGMA schema_version = {int(str(version)) + 1}").fetchall()


def _identify(
    connection: apsw.Connection, roots: dict[int, bool], shapes: Sequence[_TableShape]
) -> dict[_TableShape, int]:
    """Assign tables to root pages.

    Of several roots that fit a table the one with the most rows wins; a root that fits several tables gets none.
    """
    samples = {root: _sample(connection, root) for root in roots}
    tables: dict[_TableShape, int] = {}
    for refers in (False, True):  # first those that others refer to
        fitting = {
            root: [s for s in shapes if s not in tables and s.unnumbered == unnumbered and s.fits(samples[root])]
            for root, unnumbered in roots.items()
            if root not in tables.values()
        }
        if refers:
            fitting = {root: _with_targets(connection, of, samples[root], tables) for root, of in fitting.items()}
        _assign_roots(connection, fitting, tables, refers=refers)
    return tables


def _assign_roots(
    connection: apsw.Connection,
    fitting: dict[int, list[_TableShape]],
    tables: dict[_TableShape, int],
    *,
    refers: bool,
) -> None:
    """Add the tables of roots that fit one table only, those with the most rows first."""
    for root in sorted(filter(fitting.get, fitting), key=lambda root: -_count_rows(connection, root)):
        shape = _only_shape(fitting[root], refers=refers)
        if shape is not None:
            tables.setdefault(shape, root)


def _only_shape(shapes: list[_TableShape], *, refers: bool) -> _TableShape | None:
    """Return the one table that fits, preferably one that refers to others."""
    strict = [s for s in shapes if any(c.refers for c in s.columns)] if refers else []
    best = strict or shapes
    return best[0] if len(best) == 1 and (refers or not best[0].unnumbered) else None


def _with_targets(
    connection: apsw.Connection,
    shapes: Sequence[_TableShape],
    rows: Sequence[Sequence[object]],
    tables: dict[_TableShape, int],
) -> list[_TableShape]:
    return [s for s in shapes if _targets_exist(connection, s, rows, tables)]


def _targets_exist(
    connection: apsw.Connection, shape: _TableShape, rows: Sequence[Sequence[object]], tables: dict[_TableShape, int]
) -> bool:
    """Return whether the foreign keys of sample rows are found in the tables they refer to."""
    places = {s.name: (s, root) for s, root in tables.items()}
    for at, column in enumerate(shape.columns):
        if column.refers is None or column.refers[0] not in places:
            continue
        other, root = places[column.refers[0]]
        key = next(n for n, c in enumerate(other.columns) if c.name == column.refers[1])
        values = {v for (v,) in connection.execute(f"SELECT c{key} FROM at_{root}")}
        if not all(row[at] in values for row in rows):
            return False
    return True


def _sample(connection: apsw.Connection, root: int) -> list[tuple[apsw.SQLiteValue, ...]]:
    rows: list[tuple[apsw.SQLiteValue, ...]] = []
    with contextlib.suppress(*_UNUSABLE):
        for row in connection.execute(f"SELECT * FROM at_{root} LIMIT {SAMPLE}"):
            rows.append(row)
    return rows


def _count_rows(connection: apsw.Connection, root: int) -> int:
    with contextlib.suppress(*_UNUSABLE):
        return int(str(connection.execute(f"SELECT count(*) FROM at_{root}").get))
    return 0


def _shapes(model: apsw.Connection) -> list[_TableShape]:
    tables = model.execute(
        "SELECT s.name, s.sql, l.wr FROM main.sqlite_schema s JOIN pragma_table_list l ON l.name = s.name"
        " WHERE s.type = 'table' AND l.type = 'table' AND l.schema = 'main' AND s.name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return [_shape(model, str(name), str(sql), unnumbered=bool(wr)) for name, sql, wr in tables]


def _shape(model: apsw.Connection, name: str, sql: str, *, unnumbered: bool) -> _TableShape:
    words = _allowed_words(sql)
    refers = {c: (table, key) for c, table, key in _REFERS.findall(sql)}
    rows = model.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden IN (0, 3)', (name,)
    )
    packed = _packed_columns(name)

    def column(name: str, kind: str, required: object, default: object, pk: object) -> _Column:
        kinds = (_KINDS.get(kind, str), *((bytes,) if name in packed else ()))
        may_be_null = not required or default is not None or (bool(pk) and not unnumbered)
        return _Column(name, kinds, may_be_null, frozenset(words.get(name, ())), refers.get(name))

    columns = [(int(str(pk)), column(str(c), str(k), required, default, pk)) for c, k, required, default, pk in rows]
    return _TableShape(name, sql, unnumbered, tuple(c for _, c in _in_stored_order(columns, unnumbered=unnumbered)))


def _in_stored_order(columns: list[tuple[int, _Column]], *, unnumbered: bool) -> list[tuple[int, _Column]]:
    """Return columns, each with its place in the primary key, as rows have them: keys first without row numbers."""
    return sorted(columns, key=lambda c: c[0] or len(columns)) if unnumbered else columns


def _allowed_words(sql: str) -> dict[str, tuple[str, ...]]:
    """Return by column the words that the checks of a table allow."""
    return {column: tuple(re.findall(r"'([^']*)'", words)) for column, words in _CHECKED_WORDS.findall(sql)}


# --- pages of a write-ahead log ---------------------------------------------------------------------------------------


_LOG_HEADER, _FRAME_HEADER = 32, 24
_MAGIC = 0x377F0682  # with the lowest bit set, checksums are of big-endian words
_SIZES = {1 << n for n in range(9, 17)}


class _Frame(Struct, frozen=True):
    page: int
    pages: int  # of the database after a commit, else 0
    at: int


def write_log_pages(copy: Path, log: Path) -> bool:
    """Write the committed pages of a log into a copy of its database; return whether there were any.

    Pages that neither of them has are zeros.
    """
    content = log.read_bytes() if log.exists() else b""
    frames = list(_frames(content))
    while frames and not frames[-1].pages:
        frames.pop()
    if not frames:
        return False
    size = _page_size(content)
    with copy.open("r+b") as file:
        for frame in frames:
            file.seek((frame.page - 1) * size)
            file.write(content[frame.at : frame.at + size])
        file.truncate(frames[-1].pages * size)
    return True


def _page_size(content: bytes) -> int:
    (size,) = struct.unpack_from(">I", content, 8)
    return size


def _frames(content: bytes) -> Iterator[_Frame]:
    """Yield the valid frames of a log in order."""
    if len(content) < _LOG_HEADER:
        return
    magic, _, size, _ = struct.unpack_from(">4I", content)
    if magic & ~1 != _MAGIC or size not in _SIZES:
        return
    order = ">" if magic & 1 else "<"
    salts = content[16:24]
    sums = _checksum(content[:24], (0, 0), order)
    if sums != struct.unpack_from(">2I", content, 24):
        return
    for at in range(_LOG_HEADER, len(content) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        page, pages = struct.unpack_from(">2I", content, at)
        start = at + _FRAME_HEADER
        sums = _checksum(content[at : at + 8] + content[start : start + size], sums, order)
        if not page or content[at + 8 : at + 16] != salts or sums != struct.unpack_from(">2I", content, at + 16):
            return
        yield _Frame(page, pages, start)


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, other in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return first, second


# --- copying ------------------------------------------------------------------------------------------------

PIECE = 2_000  # rows that are copied at once if all is well
MARGIN = 2_000  # row numbers that are tried behind the last known one if the end of a table is lost
# They are rebuilt.
_SKIPPED = (
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


def _fill(new: Path, path: Path, recovered: Recovered, clock: Clock) -> None:
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
        with _readable(path, files.beside(recovered.kept, "-wal"), connection) as source:
            missing = set[str]() if source is None else _copy_all(connection, source, recovered)
            if source is not None and source.name.endswith(_REBUILT):
                recovered.repaired.append(FOUND_AGAIN)
        db = plain(connection)
        recovered.repaired += _Repairs(db, clock).run(missing)
        if sentence := _recover_archive(db, path, recovered.kept.name.removeprefix(path.name)):
            recovered.repaired.append(sentence)
        for pragma in ("foreign_key_check", "integrity_check(1)"):
            wrong = [str(r) for r in connection.execute(f"PRAGMA {pragma}").fetchall() if r != ("ok",)]
            if wrong:
                raise StoreError(f"The recovered rows do not fit together ({wrong[0]}): nothing was changed.")
        connection.execute("PRAGMA journal_mode = wal").fetchall()
    finally:
        connection.close()


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
        self.columns = self._both()
        self.missing = [c for c in self._info("main") if c not in self.columns]

    def _both(self) -> list[str]:
        for _ in range(2):
            with contextlib.suppress(*_UNUSABLE):
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
        except (*_UNREADABLE, apsw.ConstraintError, apsw.TooBigError):
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
        with contextlib.suppress(*_UNUSABLE):
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
        except _UNUSABLE:
            is_complete = False
        with self._connection, contextlib.suppress(apsw.ConstraintError):
            self._connection.executemany(insert, rows)
        return is_complete

    def _rows(self, sql: str, values: Sequence[str]) -> list[tuple[apsw.SQLiteValue, ...]]:
        with contextlib.suppress(*_UNUSABLE):
            return list(self._connection.execute(sql, values).fetchall())
        return []

    def _one(self, sql: str) -> tuple[apsw.SQLiteValue, ...] | None:
        with contextlib.suppress(*_UNUSABLE):
            rows = self._connection.execute(sql).fetchall()
            return rows[0] if rows else None
        return None


# --- repairing rows ---------------------------------------------------------------------------------------------------

LOST = "This message could not be read: the file was damaged."
TITLE = "Recovered thread"
MOST_GAPS = 100_000  # messages that a thread may have lost
# What replaces a word that a column does not allow, if the schema has no default or a running state is its default.
_USUAL_WORDS = {
    ("messages", "role"): "system",
    ("steps", "purpose"): "actor",
    ("observational_memory", "scope"): "thread",
    ("observational_memory", "origin_type"): "observation",
    ("observation_groups", "kind"): "observation",
    ("observation_groups", "state"): "active",
    ("task_dependencies", "type"): "related",
    ("task_messages", "relation"): "reference",
    ("carry_over", "kind"): "thread",
    ("child_runs", "state"): "interrupted",
    ("jobs", "state"): "lost",
    ("approval_rules", "decision"): "ask",
    ("working_memory", "scope"): "thread",
}
# What migrations do to rows, by a column that came with them: a file of an older schema has not seen it.
_LATER: dict[str, tuple[str, ...]] = {
    "tasks.claim_owner": (
        "UPDATE tasks SET session_id = thread_id WHERE status = 'in_progress' AND thread_id IS NOT NULL"
        " AND session_id IS NOT NULL AND session_id NOT LIKE 'shell:%' AND session_id NOT LIKE 'user:%'",
    ),
    "prompt_history.thread_id": (
        "UPDATE threads SET metadata = json_remove(metadata, '$.carry_over')",
        "UPDATE threads SET title = sakti_masked(title) WHERE title != sakti_masked(title)",
    ),
}


def _packed_columns(table: str) -> Sequence[str]:
    """Return the columns of a table that may hold compressed values."""
    return text_registry.by_name()[table].packed if table in text_registry.by_name() else ()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _as_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class _Repairs:
    """Repairs of the rows that were copied, in the new database."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def run(self, missing: Collection[str]) -> list[str]:
        """Repair the rows and rebuild derived data; return sentences about repairs that matter to the user.

        `missing`: columns that the damaged file's tables did not have yet.
        """
        repairs: list[str] = []

        def report(count: int, text: str) -> None:
            if count:
                repairs.append(f"{count} {text}")

        with self._db.connection():
            self._change("DELETE FROM task_counts")  # their keys may become the same; they are counted in the end
            self._change("DELETE FROM leases")  # none is active: the database is open nowhere else
            with index_upkeep.past_triggers(self._db):  # they read what is repaired here
                texts = self._replace_unreadable_texts()
            report(texts, "texts had unreadable characters, replaced by �")
            report(self._replace_unknown_words(), "rows had invalid values, replaced by the defaults")
            report(
                self._replace_unreadable_json(),
                "values could not be read: messages keep their plain text where there is one",
            )
            for statement in (s for column, some in _LATER.items() if column in missing for s in some):
                self._change(statement)
            report(self._add_threads(), "threads were lost but not their messages: they have new titles")
            self._add_records()
            report(self._add_groups(), "groups of observations were lost but not their lines")
            self._delete_dangling()
            report(self._fill_gaps(), "messages were lost in the middle of a thread, each replaced by a note")
            for (record,) in self._fetch("SELECT id FROM observational_memory"):
                if sentence := integrity.mend(self._db, record, self._clock.now()):
                    repairs.append(sentence)
        self._rebuild_indexes()
        self._change("INSERT OR IGNORE INTO packing VALUES ('messages', 0)")  # those of an older schema are not packed
        packing.pack_all(self._db, math.inf)
        return repairs

    def _change(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement; return how many rows it changed."""
        # SQL: works on rows that the models do not allow
        self._db.execute_sql(sql, values)
        return self._db.connection().changes()

    def _fetch(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        # SQL: works on rows that the models do not allow
        return self._db.execute_sql(sql, values).fetchall()

    # --- values

    def _columns(self, kind: str) -> list[tuple[str, str]]:
        """Return the tables and columns of a type, without those of indexes."""
        return self._fetch(
            "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'"
            " AND c.type = ? AND m.sql NOT LIKE 'CREATE VIRTUAL%'"
            " AND m.name NOT LIKE 'search\\___%\\_%' ESCAPE '\\' AND m.name NOT LIKE 'task\\_words\\_%' ESCAPE '\\'",
            (kind,),
        )

    def _replace_unreadable_texts(self) -> int:
        """Convert texts to valid UTF-8 and values to the type of their column; return how many texts changed."""
        connection: Any = self._db.connection()
        connection.create_scalar_function("sakti_is_text", _is_text, 1)
        connection.create_scalar_function("sakti_as_text", _as_text, 1)
        changed = 0
        for table, column in self._columns("TEXT"):
            is_packed = "0"
            if column in _packed_columns(table):
                is_packed = f"typeof({column}) = 'blob' AND sakti_unpacked({column}) != ''"
            changed += self._change(
                f"UPDATE {table} SET {column} = sakti_as_text(CAST({column} AS BLOB)) WHERE {column} IS NOT NULL"
                f" AND (typeof({column}) != 'text' OR NOT sakti_is_text(CAST({column} AS BLOB))) AND NOT ({is_packed})"
            )
        for table, column in self._columns("INTEGER"):
            if column != "pk":
                self._change(f"UPDATE {table} SET {column} = 0 WHERE typeof({column}) NOT IN ('integer', 'null')")
        return changed

    def _replace_unknown_words(self) -> int:
        """Replace words that a column's CHECK does not allow by the usual one; return how many."""
        changed = 0
        for table, sql in self._fetch("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"):
            for column, allowed in _allowed_words(sql or "").items():
                marks = ", ".join("?" * len(allowed))
                changed += self._change(
                    f"UPDATE OR REPLACE {table} SET {column} = ?"
                    f" WHERE {column} IS NOT NULL AND {column} NOT IN ({marks})",
                    (self._usual_word(table, column), *allowed),
                )
        self._change("UPDATE tasks SET priority = 2 WHERE priority NOT BETWEEN 0 AND 4")
        return changed

    def _usual_word(self, table: str, column: str) -> str | None:
        """Return what replaces an unknown word: the usual one, the schema's default, or NULL."""
        if (table, column) in _USUAL_WORDS:
            return _USUAL_WORDS[table, column]
        ((default,),) = self._fetch("SELECT dflt_value FROM pragma_table_info(?) WHERE name = ?", (table, column))
        return None if default is None else str(default).strip("'")

    def _replace_unreadable_json(self) -> int:
        changed = 0
        note = f"json_object('t', 'marker', 'kind', 'withheld', 'text', '{LOST}')"
        plain_text = (
            f"json_array(CASE raw_content WHEN '' THEN {note} ELSE json_object('t', 'text', 'text', raw_content) END)"
        )
        for table in text_registry.tables():
            for column, usual in table.json:
                text = f"sakti_unpacked({column})" if column in table.packed else column
                wrong = f"{column} IS NOT NULL AND NOT json_valid({text})"
                value = "NULL" if usual is None else f"'{usual}'"
                if (table.name, column) == ("messages", "parts"):
                    value = plain_text
                    self._change(f"UPDATE messages SET part_tokens = json_array(token_count) WHERE {wrong}")
                changed += self._change(f"UPDATE {table.name} SET {column} = {value} WHERE {wrong}")
        return changed

    # --- rows

    def _add_threads(self) -> int:
        return sum(
            self._change(
                "INSERT OR IGNORE INTO threads (id, resource_id, title, created_at, updated_at)"
                f" SELECT thread_id, min(resource_id), '{TITLE}', min(created_at), max(created_at) FROM {table}"
                " WHERE thread_id NOT IN (SELECT id FROM threads) GROUP BY thread_id"
            )
            for table in ("messages", "observations", "compaction_records")
        )

    def _add_records(self) -> None:
        """Insert a record for groups whose own was lost, with how far it has observed its threads."""
        lost = self._fetch(
            "SELECT g.record_id, min(g.thread_id), count(DISTINCT g.thread_id), min(g.created_at), t.resource_id"
            " FROM observation_groups g JOIN threads t ON t.id = g.thread_id"
            " WHERE g.record_id NOT IN (SELECT id FROM observational_memory) GROUP BY g.record_id"
        )
        for record_id, thread_id, count, created_at, resource_id in lost:
            is_single = count == 1
            key = f"thread:{thread_id}" if is_single else f"resource:{resource_id}"
            is_created = self._change(
                "INSERT OR IGNORE INTO observational_memory (id, lookup_key, scope, thread_id, resource_id,"
                " origin_type, created_at, updated_at) VALUES (?, ?, ?, ?, ?, 'observation', ?, ?)",
                (record_id, key, "thread" if is_single else "resource", thread_id if is_single else None, resource_id,
                 created_at, created_at),
            )  # fmt: skip
            if not is_created:
                self._change(
                    "UPDATE observation_groups SET record_id ="
                    " (SELECT id FROM observational_memory WHERE lookup_key = ?) WHERE record_id = ?",
                    (key, record_id),
                )
        self._change(
            "DELETE FROM observation_groups WHERE record_id NOT IN (SELECT id FROM observational_memory)"
            " AND thread_id NOT IN (SELECT id FROM threads) AND id NOT IN (SELECT group_id FROM observations)"
        )

    def _add_groups(self) -> int:
        """Insert a group for lines whose own was lost, so that they stay in the log; return how many."""
        lost = self._fetch(
            "SELECT group_id, min(thread_id), min(resource_id), min(created_at) FROM observations"
            " WHERE group_id NOT IN (SELECT id FROM observation_groups) GROUP BY group_id ORDER BY min(pk)"
        )
        for group_id, thread_id, resource_id, created_at in lost:
            key = f"thread:{thread_id}"
            self._change(
                "INSERT OR IGNORE INTO observational_memory (id, lookup_key, scope, thread_id, resource_id,"
                " origin_type, created_at, updated_at) VALUES (?, ?, 'thread', ?, ?, 'observation', ?, ?)",
                (f"recovered-{thread_id}", key, thread_id, resource_id, created_at, created_at),
            )
            lines = self._fetch(
                "SELECT coalesce(edited, content), priority, time FROM observations WHERE group_id = ?"
                " AND forgotten = 0 ORDER BY line",
                (group_id,),
            )
            text = "\n".join(as_line(*line) for line in lines)
            self._change(
                "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, text, created_at,"
                " activated_at) VALUES (?, (SELECT id FROM observational_memory WHERE lookup_key = ?), ?,"
                " 'observation', 'active', ?, ?, ?)",
                (group_id, key, thread_id, text, created_at, created_at),
            )
        return len(lost)

    def _delete_dangling(self) -> None:
        """Delete rows that refer to a lost one and say nothing without it; first those that others refer to."""
        self._change("DELETE FROM origins WHERE thread_id NOT IN (SELECT id FROM threads)")
        for table in reversed(text_registry.tables()):
            references = self._fetch('SELECT "from", "table", "to" FROM pragma_foreign_key_list(?)', (table.name,))
            for column, target, key in references:
                self._change(f"DELETE FROM {table.name} WHERE {column} NOT IN (SELECT {key} FROM {target})")

    def _fill_gaps(self) -> int:
        """Insert a placeholder for each lost message, so that the others keep their indexes; return how many."""
        threads = self._fetch(
            "SELECT thread_id, min(resource_id), max(message_index) FROM messages GROUP BY thread_id"
            " HAVING max(message_index) + 1 != count(*)"
        )
        return sum(self._fill_gaps_of(*thread) for thread in threads)

    def _fill_gaps_of(self, thread_id: str, resource_id: str, last: int) -> int:
        times: dict[int, int] = dict(
            self._fetch("SELECT message_index, created_at FROM messages WHERE thread_id = ?", (thread_id,))
        )
        if last > len(times) + MOST_GAPS:
            return 0  # the number is none
        ids, parts = TimeIds(self._clock), json.dumps([{"t": "marker", "kind": "withheld", "text": LOST}])
        time, filled = times[min(times)], 0
        for index in range(last + 1):
            time = times.get(index, time)
            if index not in times:
                self._change(
                    "INSERT INTO messages (id, thread_id, resource_id, role, message_index, parts, raw_content, state,"
                    " part_tokens, created_at) VALUES (?, ?, ?, 'system', ?, ?, '', 'withheld', '[0]', ?)",
                    (ids.new(), thread_id, resource_id, index, parts, time),
                )
                filled += 1
        return filled

    # --- derived data

    def _rebuild_indexes(self) -> None:
        """Compute the readiness of tasks, and everything in the search index."""
        db = self._db
        with db.connection():
            for (resource_id,) in self._fetch("SELECT DISTINCT resource_id FROM tasks"):
                graph.count_again(db, resource_id)
                for task in questions.all_live(db, resource_id):
                    task_rows.update(db, task.id, title=task.title)  # indexes it
            for (thread_id,) in self._fetch("SELECT id FROM threads WHERE deleted_at IS NULL"):
                if self._has_unindexed_lines(thread_id):
                    for pk in reindexing.lines_of(db, thread_id):
                        reindexing.index_line(db, pk)
            self._index_pages()
            search_index.index_messages(db, search_index.unindexed(db))

    def _has_unindexed_lines(self, thread_id: str) -> bool:
        return bool(
            self._fetch(
                "SELECT 1 FROM observations o JOIN observation_groups g ON g.id = o.group_id WHERE o.thread_id = ?"
                " AND g.state != 'discarded' AND o.forgotten = 0 AND NOT EXISTS (SELECT 1 FROM search_docs d"
                " WHERE d.kind IN ('observation', 'reflection') AND d.doc_id = o.id) LIMIT 1",
                (thread_id,),
            )
        )

    def _index_pages(self) -> None:
        """Index the newest versions of working memory."""
        pages = self._fetch(
            "SELECT w.scope, w.owner_id, w.content, w.created_at, CASE w.scope WHEN 'thread' THEN t.resource_id"
            " ELSE w.owner_id END AS resource FROM working_memory w LEFT JOIN threads t ON t.id = w.owner_id"
            " WHERE w.version = (SELECT max(version) FROM working_memory n WHERE n.scope = w.scope"
            " AND n.owner_id = w.owner_id) AND t.deleted_at IS NULL AND resource IS NOT NULL"
        )
        for scope, owner_id, content, created_at, resource_id in pages:
            search_index.put(
                self._db,
                kind="working_memory",
                doc_id=f"{scope}:{owner_id}",
                resource_id=resource_id,
                created_at=created_at,
                text=content,
                thread_id=owner_id if scope == "thread" else None,
            )


# --- the archive ------------------------------------------------------------------------------------------------------


def _recover_archive(db: Database, path: Path, end: str) -> str:
    """Copy the readable rows of a damaged archive into a new one; the old one is kept with `end`.

    `db`: the database at `path`. Return what was done; "" where it is whole, missing, or nothing in it can be read.
    Raises `apsw.Error`, `OSError`.
    """
    _, problem = checks.archive_problems(db)
    place, new = archive_file.path_of(path), files.own(archive_file.path_of(path), "recovering")
    some = archive_file.any_reference(db)
    if not problem or some is None or not place.exists():
        return ""
    number = archive_file.number_of(some)
    # SQL: compares packed parts by a range of bytes, which no field has
    rows = db.execute_sql(
        f"SELECT parts FROM messages WHERE {archive_file.REFERS} AND parts >= ?", (some[:-8],)
    ).fetchall()
    keys = sorted({archive_file.key_of(stored) for (stored,) in rows if archive_file.number_of(stored) == number})
    try:
        came = _copy_rows(place, new, number, keys)
        if not came:
            return ""
        archive_file.forget(path)
        place.rename(files.beside(place, end))
        new.rename(place)
    finally:
        for file in files.all_of(new):
            file.unlink(missing_ok=True)
    return f"{came} of {len(keys)} texts in the archive could be read; the damaged one is {files.beside(place, end)}"


def _copy_rows(place: Path, new: Path, number: bytes, keys: list[int]) -> int:
    """Copy the rows of an archive that can be read to a new one; return how many."""
    archive_file.build(new, number)
    source, target = archive_file.connect(place, query_only=True), archive_file.connect(new)
    came = 0
    try:
        with target:
            for key in keys:
                try:
                    row = source.execute("SELECT parts FROM parts WHERE key = ?", (key,)).fetchone()
                except apsw.Error:
                    continue
                if row is not None and codec.readable(row[0] if isinstance(row[0], str | bytes) else None):
                    target.execute("INSERT INTO parts VALUES (?, ?)", (key, row[0]))
                    came += 1
    finally:
        source.close()
        target.close()
    return came


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
