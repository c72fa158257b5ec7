"""Build the SQL condition of a query's operators and its scope.

Raw SQL: conditions on the rows of search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from sakti.store.connection import Connection
from sakti.store.search import reindexing
from sakti.store.search.folding import escape_like, fold_text, match_all, split_trigrams
from sakti.store.search.query import Query
from sakti.store.search.rows import to_json_list

LARGE = 10_000  # number of texts from which listing the rows of a scope pays off
FEW = 2_000  # most rows of a scope that are listed


class Scope(Struct, frozen=True):
    """Scope of a search: a thread, a workspace, or everything (both None).

    `since`: earliest time, Unix ms.
    """

    resource_id: str | None = None
    thread_id: str | None = None
    kinds: tuple[str, ...] = ()
    since: int | None = None


class RowFilter(Struct):
    """Row filter: the SQL condition over `d`, and its values.

    `narrow`: the user gave a filter or scope. `keys`: the rows that may pass, in ascending order; None if unknown.
    """

    where: str
    values: list[object]
    narrow: bool
    keys: Sequence[int] | None = None

    def bounds(self, newest: int) -> tuple[int, int]:
        """Return the range of the rows' keys: above the first value, up to the second."""
        if self.keys is None:
            return 0, newest
        return (self.keys[0] - 1, self.keys[-1]) if self.keys else (0, 0)

    def without(self, keys: Sequence[int]) -> RowFilter:
        """Return the filter for the opposite rows."""
        return replace(
            self,
            where=f"{self.where} AND d.pk NOT IN (SELECT value FROM json_each(?))",
            values=[*self.values, to_json_list(keys)],
        )

    def unlike(self, sizes: Sequence[bytes], indexed: Mapping[str, Sequence[str]]) -> RowFilter:
        """Return the filter for rows of other sizes that match none of the `indexed` queries, by table."""
        clauses, values = [self.where], list(self.values)
        if sizes:
            alike = " OR ".join(["substr(z.sz, 1, ?) = ?"] * len(sizes))
            clauses.append(f"NOT EXISTS (SELECT 1 FROM search_words_docsize z WHERE z.id = d.pk AND ({alike}))")
            values += [value for size in sizes for value in (len(size), size)]
        for table, matches in indexed.items():
            clauses += [f"NOT EXISTS (SELECT 1 FROM {table} WHERE {table} MATCH ? AND rowid = d.pk)"] * len(matches)
            values += matches
        return replace(self, where=" AND ".join(clauses), values=values)

    def among(self, column: str) -> str:
        """Return the condition that `column` is one of the rows.

        FTS5 takes `+rowid` as a condition, not as a list.
        """
        return "" if self.keys is None else f" AND {column} IN ({','.join(map(str, self.keys))})"


def place_of(db: Connection, query: Query, scope: Scope, newest: int) -> RowFilter:
    """Return the filter of a query in a scope; `newest`: the key of the newest row."""
    threads = _select_threads(db, query, scope)
    where, values = _build_filters(query, scope, threads)
    for name, value in query.other_than:
        ids = json.dumps(sorted({value, *_find_threads(db, value)})) if name == "thread" else None
        clause, some = _build_filters(replace(Query(""), **{name: value}), Scope(), ids)
        where, values = f"{where} AND NOT coalesce({clause}, 0)", [*values, *some]
    # rows of a thread that was just deleted; normally there are none to check
    hidden = f" AND NOT {reindexing.HIDDEN}" if reindexing.has_hidden_rows(db) else ""
    keys = _list_if_few(db, query, scope, threads) if newest > LARGE else None
    return RowFilter(where + hidden, values, where != "1 = 1", keys)


def _select_threads(db: Connection, query: Query, scope: Scope) -> str | None:
    """Return the selected thread ids as JSON; None: any."""
    if query.thread:
        ids = {query.thread, *_find_threads(db, query.thread)}
        return json.dumps(sorted(ids if scope.thread_id is None else ids & {scope.thread_id}))
    return None if scope.thread_id is None else json.dumps([scope.thread_id])


def _find_threads(db: Connection, thread: str) -> set[str]:
    """Return the ids of threads whose id or title contains a text."""
    name = f"%{escape_like(thread)}%"
    sql = "SELECT id FROM threads WHERE id LIKE ? ESCAPE '\\' OR title LIKE ? ESCAPE '\\'"
    # SQL: also runs on a bare connection, which no query of peewee does
    return {id for (id,) in db.execute_sql(sql, (name, name)).fetchall()}


def find_unknown_filters(db: Connection, query: Query) -> dict[str, str]:
    """Return the thread and task filters that match nothing; they are treated as words of a text."""
    missing: dict[str, str] = {}
    if query.thread and not _find_threads(db, query.thread):
        sql = "SELECT 1 FROM search_docs WHERE thread_id = ? LIMIT 1"
        # SQL: also runs on a bare connection, which no query of peewee does
        if not db.execute_sql(sql, (query.thread,)).fetchone():
            missing["thread"] = query.thread
    # SQL: also runs on a bare connection, which no query of peewee does
    if query.task and not db.execute_sql(_TASK, (query.task, query.task)).fetchone():
        missing["task"] = query.task
    return missing


_TASK = "SELECT 1 FROM tasks WHERE id = ? UNION ALL SELECT 1 FROM tasks WHERE handle = ? LIMIT 1"


def _list_if_few(db: Connection, query: Query, scope: Scope, threads: str | None) -> Sequence[int] | None:
    """Return the rows of a scope with at most `FEW`, else None.

    The newest texts of a large store may contain none of them.
    """
    kinds = _list_kinds(query, scope)
    values: Sequence[str]
    if threads is not None:
        rows = "SELECT d.pk FROM json_each(?) w CROSS JOIN search_docs d ON d.thread_id = w.value"
        values = [threads]
    elif kinds is not None and "message" not in kinds:
        rows = f"SELECT pk FROM search_docs WHERE kind IN ({','.join('?' * len(kinds))})"
        values = kinds
    elif scope.resource_id is not None:
        rows = _WORKSPACE
        values = [scope.resource_id] * 4
    else:
        return None
    # SQL: also runs on a bare connection, which no query of peewee does
    if db.execute_sql(f"SELECT 1 FROM ({rows}) LIMIT 1 OFFSET {FEW}", values).fetchone():
        return None
    # SQL: one statement for all ids, which are one parameter
    return sorted({key for (key,) in db.execute_sql(rows, values).fetchall()})


# No index has the workspace of a row: it is that of its thread or task. Few other rows have no thread.
_WORKSPACE = """
SELECT d.pk FROM threads t CROSS JOIN search_docs d ON d.thread_id = t.id WHERE t.resource_id = ? UNION ALL
SELECT d.pk FROM tasks k CROSS JOIN search_docs d ON d.kind = 'task' AND d.doc_id = k.id WHERE k.resource_id = ?
 UNION ALL
SELECT pk FROM search_docs WHERE kind = 'working_memory' AND doc_id = 'resource:' || ? UNION ALL
SELECT pk FROM search_docs WHERE thread_id IS NULL AND kind IN ('message', 'observation', 'reflection')
 AND resource_id = ?
"""


def _list_kinds(query: Query, scope: Scope) -> Sequence[str] | None:
    """Return the kinds that both the query and the scope allow, None for all."""
    if not query.kind:
        return scope.kinds or None
    return [kind for kind in query.kind.split(",") if not scope.kinds or kind in scope.kinds]


def _build_filters(query: Query, scope: Scope, threads: str | None) -> tuple[str, list[object]]:
    clauses, values = ["1 = 1"], list[object]()

    def add(clause: str, *more: object) -> None:
        clauses.append(clause)
        values.extend(more)

    if scope.resource_id is not None:
        add("d.resource_id = ?", scope.resource_id)
    if threads is not None:
        add("d.thread_id IN (SELECT value FROM json_each(?))", threads)
    if (kinds := _list_kinds(query, scope)) is not None:
        add(f"d.kind IN ({','.join('?' * len(kinds))})", *kinds)
    if query.role:
        roles = query.role.split(",")
        add(f"d.role IN ({','.join('?' * len(roles))})", *roles)
    if query.origin:
        programs = query.origin.split(",")
        imported = f"json_extract(t.metadata, '$.origin.program') IN ({','.join('?' * len(programs))})"
        add(f"EXISTS (SELECT 1 FROM threads t WHERE t.id = d.thread_id AND {imported})", *programs)
    if query.task:
        add("EXISTS (SELECT 1 FROM tasks k WHERE k.id = d.task_id AND ? IN (k.id, k.handle))", query.task)
    for since in (query.since, scope.since):
        if since is not None:
            add("d.created_at >= ?", since)
    if query.until is not None:
        add("d.created_at < ?", query.until)
    if query.path:
        add(*_build_path_condition(query.path))
    return " AND ".join(clauses), values


def _build_path_condition(path: str) -> tuple[str, *tuple[object, ...]]:
    """Build the condition for a path that a tool used or the text names.

    A glob or a part of the path is enough, in any case. The result of a call matches if the call does. Brackets are
    literal: `app/[id]/page.tsx`.
    """
    is_glob = "*" in path or "?" in path
    lower, of = (path.lower(), "lower({})") if path.isascii() else (fold_text(path), "sakti_folded({})")
    glob = lower.replace("[", "[[]")
    pieces = split_trigrams(max(re.split(r"[*?]+", path), key=len))
    values: list[object] = [f"*{glob}*", glob if is_glob else f"*{glob}*"]
    values += [match_all(pieces), f"*{glob.strip('*')}*"] if pieces else []

    def names(row: str) -> str:
        paths = of.format(f"{row}.paths")
        touched = f"({row}.paths != '' AND {paths} GLOB ? AND sakti_touched({paths}, ?))"
        # the text of a row is only assembled if the index says that it may contain the path
        in_text = (
            f"({row}.pk IN (SELECT rowid FROM search_trigrams WHERE search_trigrams MATCH ?)"
            f" AND EXISTS (SELECT 1 FROM search_texts x WHERE x.pk = {row}.pk AND {of.format('x.text')} GLOB ?))"
        )
        return f"({touched} OR {in_text})" if pieces else touched

    of_a_call = (
        "d.role = 'tool' AND EXISTS (SELECT 1 FROM search_docs c WHERE c.thread_id = d.thread_id"
        f" AND c.kind = 'message' AND c.position = d.position - 1 AND {names('c')})"
    )
    return f"({names('d')} OR ({of_a_call}))", *values, *values
