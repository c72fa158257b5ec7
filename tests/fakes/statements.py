"""Every statement that a store executes, and which of them walk through a whole table.

    async with captured(store) as statements:
        await store.read(queries.load_board, "/w", 0)
    assert scans(await store.read(explained, statements)) == []

No statistics (ANALYZE) are made: a planner that knows nothing of the data is what users have.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

import sakti
from sakti.core.clock import SystemClock
from sakti.store import archive_file, migrate
from sakti.store.connection import Connection, wrap_connection
from sakti.store.database import Store
from sakti.store.search import occurrences

_READS = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", re.IGNORECASE)
_SCAN = re.compile(r"SCAN (\S+)")
_ALIAS = re.compile(r'"(\w+)" AS "(t\d+)"')
_MADE = re.compile(r"(?:CO-ROUTINE|MATERIALIZE) (\S+)")


@dataclass(frozen=True, slots=True)
class Plan:
    """How SQLite executes a statement, a line a step."""

    sql: str
    steps: tuple[str, ...]

    def scans(self) -> list[str]:
        """The steps that go through a table, by row or by index. What a subquery or a CTE of the statement made, an
        array of its parameters (json_each) and a full-text index are no tables."""
        made = {name for step in self.steps for name in _MADE.findall(step)}
        found = [(step, name[1]) for step in self.steps if (name := _SCAN.match(step))]
        return [
            step
            for step, name in found
            if name not in made
            and "VIRTUAL TABLE" not in step
            and not name.startswith(("(", "CONSTANT"))
            and "VALUES CLAUSE" not in step
        ]


@dataclass(slots=True)
class Captured:
    """Statements in the order in which they were first executed, each with values that it was executed with."""

    statements: dict[str, Any] = field(default_factory=dict)

    def take(self, _cursor: object, sql: str, values: Any) -> bool:
        self.statements.setdefault(sql, values)
        return True


@contextlib.asynccontextmanager
async def captured(store: Store) -> AsyncIterator[Captured]:
    """What the writer and the reader of a store execute meanwhile."""
    out = Captured()

    def listen(db: Connection, trace: Any) -> Any:
        connection = db.connection()
        before, connection.exec_trace = connection.exec_trace, trace
        return before

    before = await store.write(listen, out.take), await store.read(listen, out.take)
    try:
        yield out
    finally:
        await store.write(listen, before[0])
        await store.read(listen, before[1])


def explained(db: Connection, captured: Captured) -> list[Plan]:
    """How each of them is executed."""
    occurrences.find_occurrences(
        db, (1,), (("x", 1),), 1, (), 1
    )  # lends this connection the function that searches call
    return [
        Plan(sql, tuple(row[3] for row in db.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()))
        for sql, values in captured.statements.items()
        if _READS.match(sql)
    ]


def by_table(plan: Plan) -> str:
    """A statement and the tables it goes through, with the name of the table where peewee says t1, and no quotes."""
    text = f"{plan.sql} -- {'; '.join(plan.scans())}"
    for table, alias in _ALIAS.findall(plan.sql):
        text = re.sub(rf'"?\b{alias}\b"?', table, text)
    return text.replace('"', "")


def unlisted(plans: Sequence[Plan], allowed: dict[str, str]) -> list[str]:
    """The statements that go through a table and that no text of `allowed` (each with a reason) is a part of."""
    return [
        f"{by_table(plan).rpartition(' -- ')[2]}: {plan.sql}"
        for plan in plans
        if plan.scans() and not any(part in by_table(plan) for part in allowed)
    ]


# --- of the whole test run ----------------------------------------------------------------------------------

_SAKTI = str(Path(sakti.__file__).parent)
_TESTS = str(Path(__file__).parent.parent)
_BETWEEN = ("connection.py", "database.py", "rows.py", "searcher.py")  # of the store: what executes others' statements
# They work on another schema or on what is left of a damaged file.
_OUTSIDE = (
    "migrate.py",
    "copies.py",
    "rebuild.py",
    "recovery.py",
)


@dataclass(slots=True)
class Product:
    """What functions of the package ask in this process, whichever test runs them; a test's own questions do not
    count. `take` is a connection's trace; `fresh` are those that were not looked at yet: statement → (values, who)."""

    known: set[str] = field(default_factory=set)
    fresh: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _model: apsw.Connection | None = None

    def take(self, _cursor: object, sql: str, values: Any) -> bool:
        if sql not in self.known and _READS.match(sql) and (who := _asked_by()) is not None:
            self.known.add(sql)
            self.fresh[sql] = (values, who)
        return True

    def unlisted(self, allowed: dict[str, str]) -> list[str]:
        """Of the fresh ones those that go through a table and that nothing allows, each with who asked."""
        fresh, self.fresh = self.fresh, {}  # the model's packing asks, too
        plans = [(Plan(sql, self._steps(sql, values)), who) for sql, (values, who) in fresh.items()]
        return [f"{who}: {text}" for plan, who in plans for text in unlisted([plan], allowed)]

    def _steps(self, sql: str, values: Any) -> tuple[str, ...]:
        if self._model is None:
            self._model = apsw.Connection(":memory:")
            migrate.upgrade(wrap_connection(self._model), None, SystemClock())
            self._model.register_fts5_function(occurrences.NAME, lambda api: 0)
            self._model.execute("ATTACH ':memory:' AS archive")  # a file of its own
            self._model.execute(archive_file.SCHEMA.replace("CREATE TABLE ", "CREATE TABLE archive."))
        try:
            return tuple(str(row[3]) for row in self._model.execute(f"EXPLAIN QUERY PLAN {sql}", values))
        except apsw.SQLError as e:
            return (f"SCAN cannot be explained {e}",)


def _asked_by() -> str | None:
    """The function of the package that a statement is from; None where that is a test, or a migration."""
    frame = sys._getframe(2)
    while frame is not None:
        name, kind = _kind_of(frame.f_code.co_filename)
        if kind == "no":
            return None
        if kind == "yes":
            return f"{name}:{frame.f_code.co_name}"
        frame = frame.f_back
    return None


@functools.cache
def _kind_of(file: str) -> tuple[str, Literal["yes", "no", "between"]]:
    """A file's name, and whether what it asks counts; "between": that is for its caller to say."""
    name = Path(file).name
    if file.startswith(_TESTS) or name in _OUTSIDE:
        return name, "no"
    return name, "yes" if file.startswith(_SAKTI) and name not in _BETWEEN else "between"
