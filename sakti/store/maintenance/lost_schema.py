"""Rebuild a lost schema, and read the pages of a write-ahead log that SQLite would remove.

Tables are found by the shape of their rows. The schema alone tells which page each table begins at, but the pages show
which of them are roots (no other page points there), and SQLite reads the rows of each root under any name: the table
is recognised by the number of columns, their types, and the words that a column may hold (sqlite.org/fileformat2.html,
1.6).
"""

from __future__ import annotations

import contextlib
import re
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
from msgspec import Struct

from sakti.core.lazy import lazy_pattern
from sakti.store import opening, text_registry

PAGE = 4096
SAMPLE = 40  # rows of a table that are looked at
_MOST = 40  # columns that are looked at: more than any table has
_BROKEN = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FormatError, apsw.SQLError, UnicodeDecodeError)
_LEAF, _INNER = {13: False, 10: True}, {5: False, 2: True}  # by the first byte of a page; True: without row numbers
_WORDS = lazy_pattern(r"CHECK \((\w+) IN\s*\(([^)]*)\)\)")
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


def rebuild_schema(damaged: Path, copy: Path, model: apsw.Connection) -> bool:
    """Give `copy` of a damaged database the schema of the tables found in it; False without any.

    `model` is a connection to an empty database with the full schema.
    """
    shutil.copyfile(damaged, copy)
    roots = dict(_root_pages(copy))
    _blank_schema(copy)
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
    kinds: dict[int, bool] = {}
    led_to: set[int] = set()
    with path.open("rb") as file:
        number = 0
        while page := file.read(PAGE):
            number += 1
            if number == 1 or len(page) < PAGE or page[0] not in (*_LEAF, *_INNER):
                continue
            kinds[number] = _LEAF[page[0]] if page[0] in _LEAF else _INNER[page[0]]
            if page[0] in _INNER:
                cells = int.from_bytes(page[3:5], "big")
                places = [int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big") for n in range(min(cells, PAGE // 2))]
                led_to.update(int.from_bytes(page[at : at + 4], "big") for at in (8, *places))
    yield from ((n, unnumbered) for n, unnumbered in kinds.items() if n not in led_to)


def _blank_schema(path: Path) -> None:
    """Replace the first page by one with an empty schema; the rest of the file stays."""
    size = path.stat().st_size // PAGE
    page = bytearray(PAGE)
    page[0:16] = b"SQLite format 3\0"
    page[16:24] = bytes((0x10, 0x00, 1, 1, 0, 64, 32, 32))  # pages of 4096 bytes, no write-ahead log
    page[24:28] = page[92:96] = (1).to_bytes(4, "big")  # as often changed as the size below was written
    page[28:32] = size.to_bytes(4, "big")
    page[44:48] = (4).to_bytes(4, "big")  # schema format
    page[56:60] = (1).to_bytes(4, "big")  # UTF-8
    page[96:100] = apsw.SQLITE_VERSION_NUMBER.to_bytes(4, "big")
    page[100] = 13  # a leaf of a table
    page[105:107] = PAGE.to_bytes(2, "big")  # nothing in it
    with path.open("r+b") as file:
        file.write(page)


def _enter(connection: apsw.Connection, name: str, root: int, sql: str) -> None:
    connection.execute("INSERT INTO sqlite_schema VALUES ('table', ?1, ?1, ?2, ?3)", (name, root, sql))


def _probe(name: str, *, unnumbered: bool) -> str:
    columns = ", ".join(f"c{n}" for n in range(_MOST))
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
        free = [s for s in shapes if s not in tables]
        fitting = {
            root: [s for s in free if s.unnumbered == unnumbered and s.fits(samples[root])]
            for root, unnumbered in roots.items()
            if root not in tables.values()
        }
        if refers:
            fitting = {root: _with_targets(connection, of, samples[root], tables) for root, of in fitting.items()}
        for root in sorted(filter(fitting.get, fitting), key=lambda root: -_rows(connection, root)):
            shape = _only_shape(fitting[root], refers=refers)
            if shape is not None and shape not in tables:
                tables[shape] = root
    return tables


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
    return [s for s in shapes if _refers_to_what_is_there(connection, s, rows, tables)]


def _refers_to_what_is_there(
    connection: apsw.Connection, shape: _TableShape, rows: Sequence[Sequence[object]], found: dict[_TableShape, int]
) -> bool:
    """Return whether the foreign keys of sample rows are found in the tables they refer to."""
    places = {s.name: (s, root) for s, root in found.items()}
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
    with contextlib.suppress(*_BROKEN):
        for row in connection.execute(f"SELECT * FROM at_{root} LIMIT {SAMPLE}"):
            rows.append(row)
    return rows


def _rows(connection: apsw.Connection, root: int) -> int:
    with contextlib.suppress(*_BROKEN):
        return int(str(connection.execute(f"SELECT count(*) FROM at_{root}").get))
    return 0


def _shapes(model: apsw.Connection) -> list[_TableShape]:
    tables = model.execute(
        "SELECT s.name, s.sql, l.wr FROM main.sqlite_schema s JOIN pragma_table_list l ON l.name = s.name"
        " WHERE s.type = 'table' AND l.type = 'table' AND l.schema = 'main' AND s.name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return [_shape(model, str(name), str(sql), unnumbered=bool(wr)) for name, sql, wr in tables]


def _shape(model: apsw.Connection, name: str, sql: str, *, unnumbered: bool) -> _TableShape:
    words = {c: frozenset(re.findall(r"'([^']*)'", text)) for c, text in _WORDS.findall(sql)}
    refers = {c: (table, key) for c, table, key in _REFERS.findall(sql)}
    rows = model.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden IN (0, 3)', (name,)
    )
    packed = text_registry.by_name()[name].packed if name in text_registry.by_name() else ()

    def column(name: str, kind: str, required: object, default: object, pk: object) -> _Column:
        kinds = (_KINDS.get(kind, str), *((bytes,) if name in packed else ()))
        may_be_null = not required or default is not None or (bool(pk) and not unnumbered)
        return _Column(name, kinds, may_be_null, words.get(name, frozenset()), refers.get(name))

    columns = [(int(str(pk)), column(str(c), str(k), required, default, pk)) for c, k, required, default, pk in rows]
    keys = sorted((pk, c) for pk, c in columns if pk) if unnumbered else []
    ordered = [c for _, c in keys] + [c for pk, c in columns if not (unnumbered and pk)]
    return _TableShape(name, sql, unnumbered, tuple(ordered))


_HEADER, _FRAME_HEADER = 32, 24
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
    if len(content) < _HEADER:
        return
    magic, _, size, _ = struct.unpack_from(">4I", content)
    if magic & ~1 != _MAGIC or size not in _SIZES:
        return
    order = ">" if magic & 1 else "<"
    salts = content[16:24]
    sums = _checksum(content[:24], (0, 0), order)
    if sums != struct.unpack_from(">2I", content, 24):
        return
    for at in range(_HEADER, len(content) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
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
