"""Filter what search finds: the SQL condition of a query's operators and of its scope."""

from __future__ import annotations

import re

from msgspec import Struct

from sakti.store.connection import Connection
from sakti.store.search import reindexing
from sakti.store.search.query import Query
from sakti.store.search.substrings import all_of, trigrams


class Scope(Struct, frozen=True):
    """Scope of a search: one thread, one workspace, or (both None) everywhere."""

    resource_id: str | None = None
    thread_id: str | None = None
    kinds: tuple[str, ...] = ()


class Place(Struct):
    """Filter of rows: the SQL condition over `d` and `t`, and its values; `narrow`: the user gave a filter or scope.

    `table` is `d`: the view with the texts only where the condition needs them.
    """

    where: str
    values: list[object]
    narrow: bool
    table: str = "search_docs"


def place_of(db: Connection, query: Query, scope: Scope) -> Place:
    """Return the filter of a query in a scope."""
    where, values = _filters(query, scope)
    # rows of a thread that was deleted just now; otherwise none are there, and nothing need be looked at
    hidden = f" AND NOT {reindexing.HIDDEN}" if reindexing.has_hidden_rows(db) else ""
    return Place(where + hidden, values, where != "1 = 1", "search_texts" if query.path else "search_docs")


def _filters(query: Query, scope: Scope) -> tuple[str, list[object]]:
    clauses, values = ["1 = 1"], list[object]()

    def add(clause: str, *more: object) -> None:
        clauses.append(clause)
        values.extend(more)

    if scope.resource_id is not None:
        add("d.resource_id = ?", scope.resource_id)
    if scope.thread_id is not None:
        add("d.thread_id = ?", scope.thread_id)
    kinds = (query.kind,) if query.kind else scope.kinds
    if kinds:
        add(f"d.kind IN ({','.join('?' * len(kinds))})", *kinds)
    if query.role:
        add("d.role = ?", query.role.lower())
    if query.thread:
        like = (f"%{query.thread}", f"%{query.thread}%")
        add("(d.thread_id = ? OR d.thread_id LIKE ? OR t.title LIKE ?)", query.thread, *like)
    if query.task:
        add("EXISTS (SELECT 1 FROM tasks k WHERE k.id = d.task_id AND ? IN (k.id, k.handle))", query.task)
    if query.since is not None:
        add("d.created_at >= ?", query.since)
    if query.until is not None:
        add("d.created_at < ?", query.until)
    if query.path:
        add(*_path(query.path))
    return " AND ".join(clauses), values


def _path(path: str) -> tuple[str, *tuple[object, ...]]:
    """Return the condition for a path that a tool touched, or that stands in the text; a glob, or a part of it."""
    glob = path if any(c in path for c in "*?[") else f"*{path}*"
    touched = "d.paths GLOB ?"
    literal = max(re.split(r"[*?\[\]]+", path), key=len)
    if len(literal) < 3:
        return touched, glob
    in_text = (
        "(d.pk IN (SELECT rowid FROM search_trigrams WHERE search_trigrams MATCH ?)"
        " AND (d.text GLOB ? OR d.text LIKE ? ESCAPE '\\'))"
    )
    like = "%" + re.sub(r"([\\%_])", r"\\\1", path) + "%"
    return f"({touched} OR {in_text})", glob, all_of(trigrams(literal)), f"*{glob.strip('*')}*", like
