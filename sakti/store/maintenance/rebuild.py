"""Rebuild a damaged file: its schema, inconsistent rows, and derived data.

Tables are recognised by the shape of their rows. The first page of a table is only stored in the schema, but a page
that no other page points to is such a root, and SQLite reads the rows of each root under any name
(sqlite.org/fileformat2.html, 1.6). In copied rows, unreadable values are replaced; rows without their parent get a
new one or are deleted, and derived data is computed again. Raw SQL: recovered rows may not conform to the models.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
from msgspec import Struct

from sakti.core.clock import TimeIds
from sakti.core.lazy import lazy_pattern
from sakti.store import opening, packing, text_registry
from sakti.store.connection import Database
from sakti.store.memory import format_line, integrity
from sakti.store.search import index as search_index
from sakti.store.search import index_upkeep, reindexing
from sakti.store.tasks import graph, questions
from sakti.store.tasks import rows as task_rows

if TYPE_CHECKING:
    from sakti.core.clock import Clock

PAGE = 4096
HEADER = 100  # bytes at the beginning of a database
# Errors of rows that cannot be read, including those of a missing schema.
UNUSABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FormatError, apsw.SQLError, UnicodeDecodeError)

# --- rebuilding a lost schema -----------------------------------------------------------------------------------------


SAMPLE = 40  # rows of a table that are examined
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


def rebuild_schema(damaged: Path, copy: Path, model: apsw.Connection) -> bool:
    """Give `copy` of a damaged database the schema of the tables found in it; False without any.

    `model` is a connection to an empty database with the full schema.
    """
    shutil.copyfile(damaged, copy)
    roots = dict(_find_root_pages(copy))
    _clear_schema(copy)
    with contextlib.closing(opening.DatabaseFile(str(copy)).connect()) as connection:
        for option in (apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, apsw.SQLITE_DBCONFIG_RESET_DATABASE):
            connection.config(option, 1 if option == apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA else 0)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        for root, unnumbered in roots.items():
            _add_to_schema(connection, f"at_{root}", root, _make_probe(f"at_{root}", unnumbered=unnumbered))
        _read_schema_again(connection)
        tables = _identify(connection, roots, _read_shapes(model))
        connection.execute("DELETE FROM sqlite_schema")
        for shape, root in tables.items():
            _add_to_schema(connection, shape.name, root, shape.sql)
        _read_schema_again(connection)
        return bool(tables)


def _find_root_pages(path: Path) -> Iterator[tuple[int, bool]]:
    """Yield the root pages of tables and indexes: those that no other page points to.

    The second value is whether its rows have no rowid.
    """
    roots: dict[int, bool] = {}
    targets: set[int] = set()
    with path.open("rb") as file:
        for number, page in enumerate(iter(lambda: file.read(PAGE), b""), 1):
            if number > 1 and len(page) == PAGE and page[0] in (*_LEAF, *_INNER):
                roots[number] = (_LEAF | _INNER)[page[0]]
                targets.update(_iter_children(page) if page[0] in _INNER else ())
    yield from ((n, unnumbered) for n, unnumbered in roots.items() if n not in targets)


def _iter_children(page: bytes) -> Iterator[int]:
    """Yield the numbers of the pages that an inner page points to."""
    cells = min(int.from_bytes(page[3:5], "big"), PAGE // 2)
    offsets = (int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big") for n in range(cells))
    yield from (int.from_bytes(page[at : at + 4], "big") for at in (8, *offsets))


def make_header(pages: int) -> bytes:
    """Return the header of a database of this program, without a log (sqlite.org/fileformat2.html, 1.3)."""
    header = bytearray(HEADER)
    header[0:16] = b"SQLite format 3\0"
    header[16:24] = bytes((PAGE >> 8, PAGE & 0xFF, 1, 1, 0, 64, 32, 32))
    header[24:28] = header[92:96] = (1).to_bytes(4, "big")  # equal change counters: the size field below is valid
    header[28:32] = pages.to_bytes(4, "big")
    header[44:48] = (4).to_bytes(4, "big")  # schema format
    header[56:60] = (1).to_bytes(4, "big")  # UTF-8
    header[68:72] = opening.APPLICATION_ID.to_bytes(4, "big")
    header[96:100] = apsw.SQLITE_VERSION_NUMBER.to_bytes(4, "big")
    return bytes(header)


def _clear_schema(path: Path) -> None:
    """Replace the first page by one with an empty schema; the rest of the file stays."""
    page = bytearray(PAGE)
    page[:HEADER] = make_header(path.stat().st_size // PAGE)
    page[100] = 13  # a leaf of a table
    page[105:107] = PAGE.to_bytes(2, "big")  # nothing in it
    with path.open("r+b") as file:
        file.write(page)


def _add_to_schema(connection: apsw.Connection, name: str, root: int, sql: str) -> None:
    connection.execute("INSERT INTO sqlite_schema VALUES ('table', ?1, ?1, ?2, ?3)", (name, root, sql))


def _make_probe(name: str, *, unnumbered: bool) -> str:
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
    samples = {root: _read_sample(connection, root) for root in roots}
    tables: dict[_TableShape, int] = {}
    for refers in (False, True):  # tables that others refer to come first

        def fits(shape: _TableShape, root: int, refers: bool = refers) -> bool:
            if shape in tables or shape.unnumbered != roots[root] or not shape.fits(samples[root]):
                return False
            return not refers or _have_targets(connection, shape, samples[root], tables)

        free = [root for root in roots if root not in tables.values()]
        _assign_roots(connection, {root: [s for s in shapes if fits(s, root)] for root in free}, tables, refers=refers)
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
        shape = _choose_shape(fitting[root], refers=refers)
        if shape is not None:
            tables.setdefault(shape, root)


def _choose_shape(shapes: list[_TableShape], *, refers: bool) -> _TableShape | None:
    """Return the one table that fits, preferably one that refers to others."""
    strict = [s for s in shapes if any(c.refers for c in s.columns)] if refers else []
    best = strict or shapes
    return best[0] if len(best) == 1 and (refers or not best[0].unnumbered) else None


def _have_targets(
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


def _read_sample(connection: apsw.Connection, root: int) -> list[tuple[apsw.SQLiteValue, ...]]:
    rows: list[tuple[apsw.SQLiteValue, ...]] = []
    with contextlib.suppress(*UNUSABLE):
        for row in connection.execute(f"SELECT * FROM at_{root} LIMIT {SAMPLE}"):
            rows.append(row)
    return rows


def _count_rows(connection: apsw.Connection, root: int) -> int:
    with contextlib.suppress(*UNUSABLE):
        return int(str(connection.execute(f"SELECT count(*) FROM at_{root}").get))
    return 0


def _read_shapes(model: apsw.Connection) -> list[_TableShape]:
    tables = model.execute(
        "SELECT s.name, s.sql, l.wr FROM main.sqlite_schema s JOIN pragma_table_list l ON l.name = s.name"
        " WHERE s.type = 'table' AND l.type = 'table' AND l.schema = 'main' AND s.name NOT LIKE 'sqlite_%'"
    ).fetchall()
    return [_read_shape(model, str(name), str(sql), unnumbered=bool(wr)) for name, sql, wr in tables]


def _read_shape(model: apsw.Connection, name: str, sql: str, *, unnumbered: bool) -> _TableShape:
    words = _list_allowed_words(sql)
    refers = {c: (table, key) for c, table, key in _REFERS.findall(sql)}
    rows = model.execute(
        'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_xinfo(?) WHERE hidden IN (0, 3)', (name,)
    )
    packed = _list_packed_columns(name)

    def column(name: str, kind: str, required: object, default: object, pk: object) -> _Column:
        kinds = (_KINDS.get(kind, str), *((bytes,) if name in packed else ()))
        may_be_null = not required or default is not None or (bool(pk) and not unnumbered)
        return _Column(name, kinds, may_be_null, frozenset(words.get(name, ())), refers.get(name))

    columns = [(int(str(pk)), column(str(c), str(k), required, default, pk)) for c, k, required, default, pk in rows]
    if unnumbered:  # such rows begin with their keys
        columns.sort(key=lambda pair: pair[0] or len(columns))
    return _TableShape(name, sql, unnumbered, tuple(c for _, c in columns))


def _list_allowed_words(sql: str) -> dict[str, tuple[str, ...]]:
    """Return by column the words that the checks of a table allow."""
    return {column: tuple(re.findall(r"'([^']*)'", words)) for column, words in _CHECKED_WORDS.findall(sql)}


# --- repairing rows ---------------------------------------------------------------------------------------------------

LOST = "This message could not be read: the file was damaged."
TITLE = "Recovered thread"
MOST_GAPS = 100_000  # most missing messages of a thread
# Replacements of words that a column does not allow, if the schema's default is missing or means a running state.
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
# Row changes made by migrations, by the column that the migration added: rows of an older schema still need them.
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


def _list_packed_columns(table: str) -> Sequence[str]:
    """Return the columns of a table that may hold compressed values."""
    return text_registry.map_tables()[table].packed if table in text_registry.map_tables() else ()


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _to_text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class Repairs:
    """Repairs of the rows that were copied, in the new database."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock

    def run(self, missing: Collection[str]) -> list[str]:
        """Repair the rows and rebuild derived data; return sentences on repairs that matter to the user.

        `missing`: columns that the damaged file's tables did not have yet.
        """
        repairs: list[str] = []

        def report(count: int, text: str) -> None:
            if count:
                repairs.append(f"{count} {text}")

        with self._db.connection():
            self._change("DELETE FROM task_counts")  # repairs may make their keys equal; they are recomputed later
            self._change("DELETE FROM leases")  # none is active: no other process has the database open
            with index_upkeep.bypass_triggers(self._db):  # triggers read values that are not repaired yet
                texts = self._replace_unreadable_texts()
            report(texts, "texts had unreadable characters, replaced by �")
            report(self._replace_unknown_words(), "rows had invalid values, replaced by the defaults")
            report(
                self._replace_unreadable_json(),
                "values could not be read: messages keep their plain text if there is one",
            )
            for statement in (s for column, some in _LATER.items() if column in missing for s in some):
                self._change(statement)
            report(self._add_threads(), "threads were lost but not their messages: they have new titles")
            self._add_records()
            report(self._add_groups(), "groups of observations were lost but not their lines")
            self._delete_dangling()
            report(self._fill_gaps(), "messages were lost in the middle of a thread, each replaced by a note")
            for (record,) in self._fetch("SELECT id FROM observational_memory"):
                if sentence := integrity.repair_states(self._db, record, self._clock.now()):
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

    def _columns(self, kind: str) -> list[tuple[str, str]]:
        """Return the tables and columns of a type, without those of indexes."""
        return self._fetch(
            "SELECT m.name, c.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table'"
            " AND c.type = ? AND m.sql NOT LIKE 'CREATE VIRTUAL%'"
            " AND m.name NOT LIKE 'search\\___%\\_%' ESCAPE '\\' AND m.name NOT LIKE 'task\\_words\\_%' ESCAPE '\\'",
            (kind,),
        )

    def _replace_unreadable_texts(self) -> int:
        """Convert texts to valid UTF-8 and values to their column's type; return the number of changed texts."""
        connection: Any = self._db.connection()
        connection.create_scalar_function("sakti_is_text", _is_text, 1)
        connection.create_scalar_function("sakti_as_text", _to_text, 1)
        changed = 0
        for table, column in self._columns("TEXT"):
            is_packed = "0"
            if column in _list_packed_columns(table):
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
        """Replace words that a column's CHECK does not allow; return how many."""
        changed = 0
        for table, sql in self._fetch("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"):
            for column, allowed in _list_allowed_words(sql or "").items():
                marks = ", ".join("?" * len(allowed))
                changed += self._change(
                    f"UPDATE OR REPLACE {table} SET {column} = ?"
                    f" WHERE {column} IS NOT NULL AND {column} NOT IN ({marks})",
                    (self._choose_word(table, column), *allowed),
                )
        self._change("UPDATE tasks SET priority = 2 WHERE priority NOT BETWEEN 0 AND 4")
        return changed

    def _choose_word(self, table: str, column: str) -> str | None:
        """Return the replacement of an unknown word: the usual one, the schema's default, or NULL."""
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
        for table in text_registry.list_tables():
            for column, usual in table.json:
                text = f"sakti_unpacked({column})" if column in table.packed else column
                wrong = f"{column} IS NOT NULL AND NOT json_valid({text})"
                value = "NULL" if usual is None else f"'{usual}'"
                if (table.name, column) == ("messages", "parts"):
                    value = plain_text
                    self._change(f"UPDATE messages SET part_tokens = json_array(token_count) WHERE {wrong}")
                changed += self._change(f"UPDATE {table.name} SET {column} = {value} WHERE {wrong}")
        return changed

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
        """Insert a record for groups that lost theirs, with the observed range of its threads."""
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
        """Insert a group for lines that lost theirs, so that they stay in the log; return how many."""
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
            text = "\n".join(format_line(*line) for line in lines)
            self._change(
                "INSERT INTO observation_groups (id, record_id, thread_id, kind, state, text, created_at,"
                " activated_at) VALUES (?, (SELECT id FROM observational_memory WHERE lookup_key = ?), ?,"
                " 'observation', 'active', ?, ?, ?)",
                (group_id, key, thread_id, text, created_at, created_at),
            )
        return len(lost)

    def _delete_dangling(self) -> None:
        """Delete rows that are useless without a lost row; rows that others refer to come first."""
        self._change("DELETE FROM origins WHERE thread_id NOT IN (SELECT id FROM threads)")
        for table in reversed(text_registry.list_tables()):
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
            return 0  # the last index cannot be right
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

    def _rebuild_indexes(self) -> None:
        """Compute the readiness of tasks, and everything in the search index."""
        db = self._db
        with db.connection():
            for (resource_id,) in self._fetch("SELECT DISTINCT resource_id FROM tasks"):
                graph.recount(db, resource_id)
                for task in questions.list_live(db, resource_id):
                    task_rows.update(db, task.id, title=task.title)  # indexes it
            for (thread_id,) in self._fetch("SELECT id FROM threads WHERE deleted_at IS NULL"):
                if self._has_unindexed_lines(thread_id):
                    for pk in reindexing.list_log_lines(db, thread_id):
                        reindexing.index_line(db, pk)
            self._index_pages()
            search_index.index_messages(db, search_index.list_unindexed(db))

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
